//! Who is at the other end of a socket, as far as the kernel can name him.
//!
//! A user namespace that does not map all users shows those that it does not map as one, the overflow user,
//! and that may be whom the program looks like itself: then nobody there can be told from it.

use core::ffi::CStr;

use crate::sys::{close, nr, syscall4, syscall6};

/// As whom the kernel shows users that it cannot name, unless told otherwise.
const OVERFLOW: u32 = 65534;

/// Whether this user, or root, is at the other end: whoever is gets this program's memory. The path
/// outlives the daemon and its directory, and may be somebody else's by now.
pub fn is_trusted(socket: i32) -> bool {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    // struct ucred: process, user, group.
    let mut peer = [u32::MAX; 3];
    let mut len = size_of_val(&peer) as u32;
    // SAFETY: both live across the calls, and the buffer is as long as stated.
    let (done, own) = unsafe {
        let (to, len) = (peer.as_mut_ptr() as usize, &raw mut len as usize);
        let done = syscall6(nr::GETSOCKOPT, socket as usize, SOL_SOCKET, SO_PEERCRED, to, len, 0);
        (done, syscall4(nr::GETEUID, 0, 0, 0, 0))
    };
    done == 0 && (peer[1] == 0 || peer[1] as isize == own) && is_nobody_else(peer[1])
}

/// Whether no other user is shown as this one.
fn is_nobody_else(uid: u32) -> bool {
    let mut text = [0; 512];
    if maps_all(read(c"/proc/self/uid_map", &mut text)) {
        return true;
    }
    let overflow = read(c"/proc/sys/kernel/overflowuid", &mut text);
    u64::from(uid) != numbers(overflow).next().unwrap_or(u64::from(OVERFLOW))
}

/// Whether a user namespace of this `uid_map` (lines: first id inside, first one outside, how many) has
/// every user.
fn maps_all(uid_map: &[u8]) -> bool {
    let mut all = 0u64;
    for count in numbers(uid_map).skip(2).step_by(3) {
        all = all.saturating_add(count);
    }
    all >= u64::from(u32::MAX)
}

fn numbers(text: &[u8]) -> impl Iterator<Item = u64> {
    let parts = text.split(|byte| !byte.is_ascii_digit()).filter(|part| !part.is_empty());
    let digit = |sum: u64, byte: &u8| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    parts.map(move |part| part.iter().fold(0, digit))
}

/// What a file begins with; nothing if it cannot be read.
fn read<'a>(path: &CStr, to: &'a mut [u8]) -> &'a [u8] {
    const AT_FDCWD: usize = -100isize as usize;
    const O_CLOEXEC: usize = 0o2000000;
    // SAFETY: a constant string, and a buffer that is as long as stated.
    let read = unsafe {
        let file = syscall4(nr::OPENAT, AT_FDCWD, path.as_ptr() as usize, O_CLOEXEC, 0);
        if file < 0 {
            return &[];
        }
        let read = syscall4(nr::READ, file as usize, to.as_mut_ptr() as usize, to.len(), 0);
        close(file as i32);
        read
    };
    to.get(..read.max(0) as usize).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_all_users_or_some() {
        assert!(maps_all(b"         0          0 4294967295\n"));
        assert!(maps_all(b"0 0 1000\n1000 100000 1\n1001 1001 4294966294\n"));
        for some in [&b""[..], b"0 1000 1\n", b"0 1000 1\n1 100000 65536\n", b"x", b"0 4294967295"]
        {
            assert!(!maps_all(some), "{some:?}");
        }
    }

    #[test]
    fn files_are_read() {
        let mut text = [0; 512];
        assert!(numbers(read(c"/proc/sys/kernel/overflowuid", &mut text)).next().is_some());
        assert_eq!(read(c"/proc/self/no such file", &mut text), b"");
    }
}

//! Opening what the kernel has of a program as the program's user may.
//!
//! A daemon of root's that serves others may read everybody's memory, and so may one with CAP_SYS_PTRACE. What a user has
//! it manage must be memory that this user may read: a program with more rights than who started it (set-user-ID, set-group-ID, capabilities
//! of its file, or one that has given such rights up) may share its memory with a process that has none, for the moment of a vfork. Only the kernel
//! knows all of what makes the difference (`dumpable` above all), so it is the kernel that is asked.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::agents::seqpacket;
use crate::control::trusted_path::own_uid;

/// Does `open` with the rights of who is at the other end of `socket`, as he was when he connected.
///
/// # Errors
/// The system has no thread, or does not let this process be anybody else; those of `open`.
pub fn as_user_of<T: Send>(
    socket: &impl std::os::fd::AsRawFd,
    open: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let user = seqpacket::peer(socket)?;
    // Root's programs are root's.
    if user.uid == 0 {
        return open();
    }
    std::thread::scope(|scope| {
        // The rights are those of a thread, and end with it.
        let opens = move || {
            become_user(&user)
                .map_err(|e| io::Error::other(format!("acting as user {}: {e}", user.uid)))?;
            open()
        };
        let thread =
            std::thread::Builder::new().name("as-user".into()).spawn_scoped(scope, opens)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// This thread acts as `user` from now on, but is not his: the real user is who may send it signals, which would end the process.
fn become_user(user: &libc::ucred) -> io::Result<()> {
    if user.uid != own_uid() {
        set_thread_res_gid(None, Gid::from_raw(user.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(user.uid), None)?;
    }
    let sets = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets })?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::skip::skip;

    #[test]
    fn roots_own_is_opened_as_root() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let maps = as_user_of(&ours, || File::open("/proc/self/maps"));
        assert!(maps.is_ok(), "the peer is this process");
    }

    #[test]
    fn who_acts_as_a_user_is_not_his_and_has_no_rights() {
        if own_uid() != 0 {
            skip("as_its_user::who_acts_as_a_user_is_not_his_and_has_no_rights", "not root");
            return;
        }
        let user = libc::ucred { pid: 0, uid: 12345, gid: 23456 };
        let status = std::thread::spawn(move || {
            become_user(&user).expect("root may");
            let own = File::open("/proc/1/maps");
            (own.err().map(|error| error.kind()), fs::read_to_string("/proc/thread-self/status"))
        });
        let (refused, status) = status.join().expect("no panic");
        assert_eq!(refused, Some(io::ErrorKind::PermissionDenied), "of root's memory");
        let status = status.expect("everybody may read it");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_ascii_whitespace().collect::<Vec<_>>()).expect(name)
        };
        assert_eq!(field("Uid:"), ["0", "12345", "0", "12345"]);
        assert_eq!(field("Gid:")[1], "23456");
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert_eq!(own_uid(), 0, "other threads are what they were");
    }
}

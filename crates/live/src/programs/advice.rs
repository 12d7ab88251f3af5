//! What one can tell the kernel about the memory of another process: `process_madvise`. Asks for
//! CAP_SYS_NICE.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The most ranges that one call takes (UIO_MAXIOV).
const RANGES: usize = 1024;

/// The process as a descriptor.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers and touches no memory.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
        // SAFETY: the kernel gave us this descriptor just now, and nobody else knows it.
        number if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number as i32) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives `advice` (`MADV_…`) for ranges of another process, each an address and a length; returns for
/// how many bytes. What is not mapped, or locked, is skipped with the rest of its range.
///
/// # Errors
/// EPERM without the privilege, ESRCH when the process is gone.
pub fn advise(process: &OwnedFd, ranges: &[(u64, u64)], advice: i32) -> io::Result<u64> {
    let vector = |&(address, len): &(u64, u64)| libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: len as usize,
    };
    let vectors: Vec<libc::iovec> = ranges.iter().map(vector).collect();
    let mut advised = 0;
    for mut vectors in vectors.chunks(RANGES) {
        while !vectors.is_empty() {
            // SAFETY: the vectors live through the call; the addresses in them are the other
            // process's and are not touched here.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    process.as_raw_fd(),
                    vectors.as_ptr(),
                    vectors.len(),
                    advice,
                    0,
                )
            };
            let mut left = match done {
                0.. => done as u64,
                _ => match io::Error::last_os_error().raw_os_error() {
                    // Nothing is mapped there, or it is locked.
                    Some(libc::ENOMEM | libc::EINVAL) => 0,
                    _ => return Err(io::Error::last_os_error()),
                },
            };
            advised += left;
            while let Some(first) = vectors.first()
                && left >= first.iov_len as u64
            {
                left -= first.iov_len as u64;
                vectors = &vectors[1..];
            }
            // A range that is no longer mapped ends the call.
            if !vectors.is_empty() {
                vectors = &vectors[1..];
            }
        }
    }
    Ok(advised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn advice_reaches_a_process_and_skips_what_is_not_mapped() {
        const PAGE: u64 = 4096;
        let held = vec![1u8; 64 << 10];
        let first = (held.as_ptr() as u64).next_multiple_of(PAGE);
        let us = pidfd(std::process::id()).expect("we are there");
        // The first page is never mapped.
        let ranges = [(PAGE, PAGE), (first, 2 * PAGE), (first + 3 * PAGE, PAGE)];
        match advise(&us, &ranges, libc::MADV_WILLNEED) {
            Ok(advised) => assert_eq!(advised, 3 * PAGE),
            Err(error) => skip(
                "advice::advice_reaches_a_process_and_skips_what_is_not_mapped",
                &format!("process_madvise: {error}"),
            ),
        }
        assert!(held.iter().all(|&byte| byte == 1));
    }
}

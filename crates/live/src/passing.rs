//! Which errors of the system pass.

use std::io;

/// Whether what failed may go through later: the system had no memory, or something came between.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS))
}

//! Whether memory is registered with a userfaultfd, found out without asking anybody: another one is refused it then.
//!
//! Registered for write protection only, and given back at once: no access is trapped by that meanwhile.

use crate::sys::{close, nr, syscall4};

/// `ioctl` request of the kernel.
pub const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
const MODE_WP: u64 = 2;
const UFFD_USER_MODE_ONLY: usize = 1;

/// Whether nothing from one address to another is; false also if that cannot be found out. It takes a descriptor.
pub(crate) fn is_free([start, end]: [usize; 2]) -> bool {
    // SAFETY: what is pointed to lives across the calls. The range is the caller's own memory, of which no access changes.
    unsafe {
        let fd = syscall4(nr::USERFAULTFD, UFFD_USER_MODE_ONLY, 0, 0, 0);
        if fd < 0 {
            return false;
        }
        let ask = |request: usize, of: usize| syscall4(nr::IOCTL, fd as usize, request, of, 0);
        let mut api = [0xaa, FEATURE_PAGEFAULT_FLAG_WP, 0];
        let mut range = [start as u64, (end - start) as u64, MODE_WP, 0];
        let is_ready = ask(UFFDIO_API, api.as_mut_ptr() as usize) == 0;
        let is_free = is_ready && ask(UFFDIO_REGISTER, range.as_mut_ptr() as usize) == 0;
        if is_free {
            ask(UFFDIO_UNREGISTER, range.as_mut_ptr() as usize);
        }
        close(fd as i32);
        is_free
    }
}

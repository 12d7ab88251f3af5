//! What the kernel's page cache holds of a file, and files of a mount by the numbers that its server gave them.
//!
//! cachestat(2) is there since Linux 6.5 and has no face in a library that could be used here; nor has
//! open_by_handle_at(2).

use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Its number, which is the same on every machine that Clew is for; libc has it for some of them only.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`, bytes.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat`: what a range of a file has in the page cache, pages of the system.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// Pages that are there.
    pub cached: u64,
    /// Of these, those that are to be written.
    pub dirty: u64,
    /// Of these, those that are being written.
    pub writeback: u64,
    /// Pages that were there and are not any more, as far as the kernel remembers.
    pub evicted: u64,
    /// Of these, those that it would miss.
    pub recently_evicted: u64,
}

/// What the page cache holds of these bytes of a file.
///
/// # Errors
/// ENOSYS where the kernel is older; EOPNOTSUPP for files in huge pages; EBADF for a descriptor that only names a
/// file; EPERM for a file that the caller could neither write nor owns.
pub fn cache_stat(file: impl AsFd, bytes: Range<u64>) -> io::Result<CacheStat> {
    // No length means all that is behind.
    if bytes.is_empty() {
        return Ok(CacheStat::default());
    }
    let range = CacheRange { offset: bytes.start, len: bytes.end - bytes.start };
    let mut found = CacheStat::default();
    // SAFETY: both structures are laid out as the kernel has them and outlive the call, which reads the one and writes
    // the other; the descriptor is borrowed for as long.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    if result == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

/// `FILEID_INO64_GEN`: a number of 64 bits, its higher half first, and a generation.
const NODE_AND_GENERATION: i32 = 0x81;

/// `struct file_handle`, with what FUSE has in it.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    node: [u32; 2],
    generation: u32,
}

/// Opens, for reading, a file of a FUSE mount that the kernel knows by this number. Its server is asked to open it, so
/// whoever answers that must not be who calls this.
///
/// # Errors
/// ESTALE if the kernel knows no such file; EPERM for whoever may not open files by their numbers.
pub fn open_node(mount: impl AsFd, node: u64, generation: u32) -> io::Result<OwnedFd> {
    let mut handle = FileHandle {
        bytes: (3 * size_of::<u32>()) as u32,
        kind: NODE_AND_GENERATION,
        node: [(node >> 32) as u32, node as u32],
        generation,
    };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOATIME | libc::O_NONBLOCK;
    // SAFETY: the handle is laid out as the kernel has it, says how long it is, and outlives the call; the descriptor
    // that comes back is nobody else's.
    unsafe {
        let of = (&raw mut handle).cast::<libc::file_handle>();
        match libc::open_by_handle_at(mount.as_fd().as_raw_fd(), of, flags) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_written_is_cached_and_what_is_not_there_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 40_960]).unwrap();
        let stat = match cache_stat(&file, 0..1 << 20) {
            Ok(stat) => stat,
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                let test = "what_was_written_is_cached_and_what_is_not_there_is_not";
                return crate::skip::skip(test, "the kernel has no cachestat");
            }
            Err(error) => panic!("{error}"),
        };
        let page = page_bytes();
        assert_eq!(stat.cached, 40_960u64.div_ceil(page));
        assert_eq!(cache_stat(&file, 0..page).unwrap().cached, 1);
        assert_eq!(cache_stat(&file, 1 << 20..2 << 20).unwrap(), CacheStat::default());
        assert_eq!(cache_stat(&file, 5..5).unwrap(), CacheStat::default());
    }

    fn page_bytes() -> u64 {
        // SAFETY: it takes a number and gives one.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
    }

    #[test]
    fn a_number_that_no_file_has_is_an_error() {
        let root = std::fs::File::open("/").unwrap();
        assert!(open_node(&root, u64::MAX, 0).is_err());
    }
}

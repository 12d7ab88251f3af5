//! Sparse shared memory with a name and a descriptor, so that it can outlive the process.
//!
//! A segment has a fixed virtual size and holds memory only where it was written. It hands out
//! atomics (always safe) and raw pointers (whoever dereferences them knows the lock); never
//! references to plain memory.
//!
//! Memory that does not exist yet can be asked for with [`Segment::populate`], which fails with an
//! error. A first touch without it raises SIGBUS when the machine is out of memory. Even reading a
//! hole gives it memory, so a successor asks where there is some ([`Segment::for_data`]).
//!
//! A process that is killed has made, thread by thread, the stores before the instruction at which
//! it was stopped and none behind it; a successor that maps the segment when the process is gone
//! sees just these, on every kind of CPU. So all that matters to it is the order in which the
//! compiler leaves them: where it does, [`in_order`] keeps it.

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// The kernel's unit of memory in a segment.
const PAGE_BYTES: usize = 4096;

/// Bytes of zeros written by one call of `pwrite`.
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];

/// Why a segment could not be had or changed.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The system refused.
    #[error("{call} of {bytes} bytes at {offset} in segment '{name}': {source}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// The segment.
        name: String,
        /// Where in the segment.
        offset: usize,
        /// How much of it.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The range ends behind the segment.
    #[error("{bytes} bytes at {offset} end behind segment '{name}' of {len} bytes")]
    Range {
        /// The segment.
        name: String,
        /// Start of the range.
        offset: usize,
        /// Length of the range.
        bytes: usize,
        /// Length of the segment.
        len: usize,
    },
    /// No segment has such a length.
    #[error("segment '{name}' has {len} bytes, not one or more whole pages")]
    Length {
        /// The segment.
        name: String,
        /// Its length.
        len: i64,
    },
}

/// What was written before is in memory before what is written behind, for a successor of a process
/// that is killed in between. Costs no instruction.
#[inline(always)]
pub(crate) fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// A named memfd, mapped shared and sparse.
#[derive(Debug)]
pub struct Segment {
    name: String,
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned by the segment and lives as long as it; the pointer is only handed
// out raw or as atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new segment of `len` bytes (rounded up to 4 KiB), all zero, holding no memory yet.
    pub fn new(name: &str, len: usize) -> Result<Segment, SegmentError> {
        let len = len.max(1).next_multiple_of(PAGE_BYTES);
        let fail = |call, source| SegmentError::System {
            call,
            name: name.to_string(),
            offset: 0,
            bytes: len,
            source,
        };
        let c_name = CString::new(name.replace('\0', "?")).unwrap_or_default();
        // SAFETY: the name is a C string that outlives the call.
        let fd = unsafe { libc::memfd_create(c_name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(fail("memfd_create", io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just created and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // memfds are born 0777: no other user may open one through /proc.
        // SAFETY: plain system call on our descriptor.
        if unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) } != 0 {
            return Err(fail("fchmod", io::Error::last_os_error()));
        }
        // SAFETY: plain system call on our descriptor.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(fail("ftruncate", io::Error::last_os_error()));
        }
        Segment::map(name, fd, len)
    }

    /// Maps a segment that an earlier process made; its length is the file's.
    ///
    /// # Errors
    /// If the system refuses, or the length is not one or more whole pages.
    pub fn adopt(name: &str, fd: OwnedFd) -> Result<Segment, SegmentError> {
        // SAFETY: stat is plain data, filled by fstat before it is read.
        let len = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd.as_raw_fd(), &mut stat) != 0 {
                return Err(SegmentError::System {
                    call: "fstat",
                    name: name.to_string(),
                    offset: 0,
                    bytes: 0,
                    source: io::Error::last_os_error(),
                });
            }
            stat.st_size
        };
        match usize::try_from(len) {
            Ok(bytes) if bytes > 0 && bytes.is_multiple_of(PAGE_BYTES) => {
                Segment::map(name, fd, bytes)
            }
            _ => Err(SegmentError::Length { name: name.to_string(), len }),
        }
    }

    fn map(name: &str, fd: OwnedFd, len: usize) -> Result<Segment, SegmentError> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                // Other programs' memory has no place in a core dump. No harm if refused.
                // SAFETY: the mapping just made.
                unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTDUMP) };
                Ok(Segment { name: name.to_string(), fd, base, len })
            }
            _ => Err(SegmentError::System {
                call: "mmap",
                name: name.to_string(),
                offset: 0,
                bytes: len,
                source: io::Error::last_os_error(),
            }),
        }
    }

    /// What it is called in /proc.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Virtual size, bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a segment has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory it holds now, bytes, as the kernel counts it.
    pub fn resident_bytes(&self) -> Result<u64, SegmentError> {
        // SAFETY: stat is plain data, filled by fstat before it is read.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(self.fd.as_raw_fd(), &mut stat) != 0 {
                return Err(self.failed("fstat", 0, 0));
            }
            Ok(stat.st_blocks as u64 * 512)
        }
    }

    /// The next offset from `offset` on where there is memory or, with `hole`, where there is none;
    /// the segment's length if there is no such offset.
    fn seek(&self, offset: usize, hole: bool) -> Result<usize, SegmentError> {
        if offset >= self.len {
            return Ok(self.len);
        }
        let whence = if hole { libc::SEEK_HOLE } else { libc::SEEK_DATA };
        // SAFETY: plain system call on our descriptor, whose position nobody uses.
        let found = unsafe { libc::lseek(self.fd.as_raw_fd(), offset as libc::off_t, whence) };
        if found < 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENXIO) => Ok(self.len),
                _ => Err(self.failed("lseek", offset, self.len - offset)),
            };
        }
        Ok((found as usize).clamp(offset, self.len))
    }

    /// Calls `f` for every stretch that has memory, in whole pages, from the front. Takes time for
    /// the memory that is there, whatever the length.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn for_data(&self, mut f: impl FnMut(Range<usize>)) -> Result<(), SegmentError> {
        let mut end = 0;
        loop {
            let start = self.seek(end, false)?;
            end = self.seek(start, true)?;
            if start == end {
                return Ok(());
            }
            f(start - start % PAGE_BYTES..end.next_multiple_of(PAGE_BYTES));
        }
    }

    /// Bytes from the front that have memory without a hole among them.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn leading_bytes(&self) -> Result<usize, SegmentError> {
        match self.seek(0, false)? {
            0 => Ok(self.seek(0, true)?.next_multiple_of(PAGE_BYTES)),
            _ => Ok(0),
        }
    }

    fn failed(&self, call: &'static str, offset: usize, bytes: usize) -> SegmentError {
        SegmentError::System {
            call,
            name: self.name.clone(),
            offset,
            bytes,
            source: io::Error::last_os_error(),
        }
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), SegmentError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(SegmentError::Range { name: self.name.clone(), offset, bytes, len: self.len }),
        }
    }

    /// Gives the memory of a range back; it reads as zeros afterwards. Both whole pages.
    pub fn punch(&self, offset: usize, bytes: usize) -> Result<(), SegmentError> {
        self.check(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (at, len) = (offset as libc::off_t, bytes as libc::off_t);
        // SAFETY: plain system call on our descriptor.
        if unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, at, len) } != 0 {
            return Err(self.failed("fallocate", offset, bytes));
        }
        Ok(())
    }

    /// Makes sure that a range, which must hold no data, has memory and is mapped. Both whole
    /// pages.
    ///
    /// Zeros are written through the descriptor rather than through the mapping: an error instead
    /// of SIGBUS, and for eight pages 1.7 us each in place of 2.4 (one read fault maps them all).
    pub fn populate(&self, offset: usize, bytes: usize) -> Result<(), SegmentError> {
        self.check(offset, bytes)?;
        let mut done = 0;
        while done < bytes {
            let want = (bytes - done).min(ZEROS.len());
            let at = (offset + done) as libc::off_t;
            // SAFETY: `want` bytes of ZEROS are readable.
            let wrote =
                unsafe { libc::pwrite(self.fd.as_raw_fd(), ZEROS.as_ptr().cast(), want, at) };
            if wrote <= 0 {
                if wrote < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                    continue;
                }
                return Err(self.failed("pwrite", offset, bytes));
            }
            done += wrote as usize;
        }
        for page in (offset..offset + bytes).step_by(PAGE_BYTES * 8) {
            // SAFETY: in range (checked above) and just given memory.
            unsafe { self.base.as_ptr().add(page).read_volatile() };
        }
        Ok(())
    }

    /// The address of byte `offset`; the caller keeps to `len - offset` bytes behind it.
    ///
    /// # Panics
    /// If `offset` is behind the end.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "offset {offset} in '{}' of {}", self.name, self.len);
        // SAFETY: within the mapping, or one behind its end.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The `index`-th word of eight bytes.
    ///
    /// # Panics
    /// If it is behind the end.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len / 8, "word {index} in '{}' of {}", self.name, self.len);
        // SAFETY: in bounds, aligned (the base is page aligned), any bit pattern is valid, and the
        // mapping lives as long as `self`.
        unsafe { &*self.base.as_ptr().cast::<AtomicU64>().add(index) }
    }

    /// The `index`-th word of four bytes.
    ///
    /// # Panics
    /// If it is behind the end.
    #[inline]
    pub fn half(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.len / 4, "half {index} in '{}' of {}", self.name, self.len);
        // SAFETY: as in `word`.
        unsafe { &*self.base.as_ptr().cast::<AtomicU32>().add(index) }
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Segment {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn holds_memory_only_where_written_and_gives_it_back() {
        let segment = Segment::new("clew-test", 1 << 40).unwrap();
        assert_eq!(segment.resident_bytes().unwrap(), 0);
        segment.populate(8192, 8192).unwrap();
        segment.word(1024).store(7, Ordering::Relaxed);
        assert_eq!(segment.resident_bytes().unwrap(), 8192);
        segment.punch(8192, 4096).unwrap();
        assert_eq!(segment.resident_bytes().unwrap(), 4096);
        assert_eq!(segment.word(1024).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_successor_sees_the_same_bytes() {
        let segment = Segment::new("clew-test", 4096).unwrap();
        segment.word(3).store(42, Ordering::Relaxed);
        let fd = segment.as_fd().try_clone_to_owned().unwrap();
        drop(segment);
        let again = Segment::adopt("clew-test", fd).unwrap();
        assert_eq!(again.len(), 4096);
        assert_eq!(again.word(3).load(Ordering::Relaxed), 42);
    }

    #[test]
    fn tells_where_there_is_memory_and_makes_none_by_asking() {
        let segment = Segment::new("clew-test", 1 << 40).unwrap();
        let data = |segment: &Segment| {
            let mut all = Vec::new();
            segment.for_data(|stretch| all.push((stretch.start, stretch.end))).unwrap();
            all
        };
        assert_eq!((data(&segment), segment.leading_bytes().unwrap()), (vec![], 0));
        segment.populate(8192, 4096).unwrap();
        assert_eq!((data(&segment), segment.leading_bytes().unwrap()), (vec![(8192, 12288)], 0));
        segment.populate(0, 8192).unwrap();
        let end = 1 << 40;
        segment.populate(end - 4096, 4096).unwrap();
        assert_eq!(data(&segment), [(0, 12288), (end - 4096, end)]);
        assert_eq!(segment.leading_bytes().unwrap(), 12288);
        assert_eq!(segment.resident_bytes().unwrap(), 4 * 4096);
    }

    #[test]
    fn what_cannot_be_a_segment_is_refused() {
        for len in [0, 1, 4095, 4097] {
            let segment = Segment::new("clew-test", 4096).unwrap();
            // SAFETY: plain system call on a descriptor of ours; its mapping is not touched.
            assert_eq!(unsafe { libc::ftruncate(segment.as_raw_fd(), len) }, 0);
            let fd = segment.as_fd().try_clone_to_owned().unwrap();
            let refused = Segment::adopt("clew-test", fd);
            assert!(matches!(refused, Err(SegmentError::Length { len: l, .. }) if l == len));
        }
        let (pipe, _other) = std::io::pipe().unwrap();
        assert!(Segment::adopt("clew-test", pipe.into()).is_err());
    }

    #[test]
    fn only_the_owner_may_open_it() {
        let segment = Segment::new("clew-test", 4096).unwrap();
        // SAFETY: stat is plain data, filled by fstat.
        let mode = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(segment.as_raw_fd(), &mut stat), 0);
            stat.st_mode
        };
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn refuses_what_is_behind_its_end() {
        let segment = Segment::new("clew-test", 4096).unwrap();
        assert!(matches!(segment.punch(4096, 4096), Err(SegmentError::Range { .. })));
        assert!(matches!(segment.populate(usize::MAX, 2), Err(SegmentError::Range { .. })));
    }
}

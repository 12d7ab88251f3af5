//! Sparse shared memory with a name and a descriptor, so that it can outlive the process.
//!
//! A segment has a fixed virtual size and holds memory only where it was written. It hands out
//! atomics (always safe) and raw pointers (whoever dereferences them knows the lock); never
//! references to plain memory.
//!
//! The size is sealed: whoever gets hold of the descriptor cannot cut the segment short, which would
//! kill whoever touches its mapping behind the end. What is shared with a program is read and written
//! through the descriptor ([`Segment::read_at`]), which ends in an error where the mapping would in
//! SIGBUS; all but words that are changed atomically.
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
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// The kernel's unit of memory in a segment.
const PAGE_BYTES: usize = 4096;

/// Neither shorter nor longer, for ever.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

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
    file: File,
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
        let fd = unsafe {
            libc::memfd_create(c_name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
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
        // SAFETY: plain system call on our descriptor.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(fail("fcntl(F_ADD_SEALS)", io::Error::last_os_error()));
        }
        Segment::map(name, fd, len)
    }

    /// As [`Segment::adopt`] for one of just `len` bytes that a program has a descriptor of, too;
    /// gives `fd` back, and has looked at nothing in it, if its size is another or could change.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn adopt_sealed(
        name: &str,
        fd: OwnedFd,
        len: usize,
    ) -> Result<Result<Segment, OwnedFd>, SegmentError> {
        // Seals first: a size that is sealed stays what it is found to be.
        // SAFETY: plain system call on our descriptor.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // EINVAL: what cannot be sealed.
        if seals < 0 || seals & SEALS != SEALS || size(name, &fd)? != len as i64 {
            return Ok(Err(fd));
        }
        Segment::map(name, fd, len).map(Ok)
    }

    /// Maps a segment that an earlier process made; its length is the file's.
    ///
    /// # Errors
    /// If the system refuses, or the length is not one or more whole pages.
    pub fn adopt(name: &str, fd: OwnedFd) -> Result<Segment, SegmentError> {
        let len = size(name, &fd)?;
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
                Ok(Segment { name: name.to_string(), file: File::from(fd), base, len })
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

    /// Virtual size, bytes, at least a page.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Memory it holds now, bytes, as the kernel counts it.
    pub fn resident_bytes(&self) -> Result<u64, SegmentError> {
        // SAFETY: stat is plain data, filled by fstat before it is read.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(self.file.as_raw_fd(), &mut stat) != 0 {
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
        let found = unsafe { libc::lseek(self.file.as_raw_fd(), offset as libc::off_t, whence) };
        if found < 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENXIO) => Ok(self.len),
                _ => Err(self.failed("lseek", offset, 0)),
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
        self.refused(call, offset, bytes, io::Error::last_os_error())
    }

    fn refused(
        &self,
        call: &'static str,
        offset: usize,
        bytes: usize,
        source: io::Error,
    ) -> SegmentError {
        SegmentError::System { call, name: self.name.clone(), offset, bytes, source }
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
        if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at, len) } != 0 {
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
        for at in (offset..offset + bytes).step_by(ZEROS.len()) {
            self.write_at(at, &ZEROS[..ZEROS.len().min(offset + bytes - at)])?;
        }
        for page in (offset..offset + bytes).step_by(PAGE_BYTES * 8) {
            // SAFETY: in range (checked above) and just given memory.
            unsafe { self.base.as_ptr().add(page).read_volatile() };
        }
        Ok(())
    }

    /// Another open file of the same memory, to be given away: its owner can change the flags of his,
    /// and not of ours.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn reopen(&self) -> Result<OwnedFd, SegmentError> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = File::options().read(true).write(true).open(path);
        file.map(OwnedFd::from).map_err(|source| self.refused("open", 0, self.len, source))
    }

    /// Copies bytes from `offset` on, once; what is a hole is zeros and gets no memory.
    ///
    /// # Errors
    /// If the range ends behind the segment, or the system refuses.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        self.check(offset, out.len())?;
        let read = self.file.read_exact_at(out, offset as u64);
        read.map_err(|source| self.refused("pread", offset, out.len(), source))
    }

    /// Writes bytes from `offset` on.
    ///
    /// # Errors
    /// As [`Segment::read_at`]; if there is no memory for them.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.check(offset, bytes.len())?;
        let wrote = self.file.write_all_at(bytes, offset as u64);
        wrote.map_err(|source| self.refused("pwrite", offset, bytes.len(), source))
    }

    /// The address of byte `offset`; the caller keeps to `len - offset` bytes behind it.
    ///
    /// # Panics
    /// If `offset` is behind the end.
    #[inline]
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

/// The size of what `fd` is of, bytes.
fn size(name: &str, fd: &OwnedFd) -> Result<i64, SegmentError> {
    // SAFETY: stat is plain data, filled by fstat before it is read.
    unsafe {
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
        Ok(stat.st_size)
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Segment {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
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
            let fd = unsealed(len);
            let refused = Segment::adopt("clew-test", fd);
            assert!(matches!(refused, Err(SegmentError::Length { len: l, .. }) if l == len));
        }
        let (pipe, _other) = std::io::pipe().unwrap();
        assert!(Segment::adopt("clew-test", pipe.into()).is_err());
    }

    /// A memfd whose size anybody can change who has it.
    fn unsealed(len: i64) -> OwnedFd {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: plain system calls; the descriptor is owned by nobody else.
        unsafe {
            let fd = OwnedFd::from_raw_fd(libc::memfd_create(c"clew-test".as_ptr(), flags));
            assert_eq!(libc::ftruncate(fd.as_raw_fd(), len), 0);
            fd
        }
    }

    #[test]
    fn nobody_changes_its_size() {
        let segment = Segment::new("clew-test", 8192).unwrap();
        let theirs = segment.reopen().unwrap();
        for len in [0, 4096, 12288] {
            // SAFETY: plain system call on a descriptor of ours.
            assert_eq!(unsafe { libc::ftruncate(theirs.as_raw_fd(), len) }, -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EPERM));
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_ADD_SEALS, 8) }, -1);
        segment.write_at(4090, &[7; 100]).unwrap();
        let mut read = [0; 102];
        segment.read_at(4089, &mut read).unwrap();
        assert_eq!((read[0], read[1], read[100], read[101]), (0, 7, 7, 0));
        assert!(matches!(segment.read_at(8190, &mut read), Err(SegmentError::Range { .. })));
        assert!(matches!(segment.write_at(8190, &read), Err(SegmentError::Range { .. })));
    }

    #[test]
    fn flags_of_a_descriptor_given_away_are_not_ours() {
        let segment = Segment::new("clew-test", 4096).unwrap();
        let theirs = segment.reopen().unwrap();
        // SAFETY: plain system call on a descriptor of ours.
        let set = unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
        assert_eq!(set, 0);
        segment.write_at(8, &[7; 8]).unwrap();
        assert_eq!(segment.word(1).load(Ordering::Relaxed), 0x0707_0707_0707_0707);
    }

    #[test]
    fn only_what_is_sealed_is_read_behind_a_programs_back() {
        let segment = Segment::new("clew-test", 8192).unwrap();
        let adopt = |fd| Segment::adopt_sealed("clew-test", fd, 8192).unwrap();
        assert!(adopt(segment.reopen().unwrap()).is_ok());
        assert!(adopt(Segment::new("clew-test", 4096).unwrap().reopen().unwrap()).is_err());
        assert!(adopt(unsealed(8192)).is_err());
        for some in [libc::F_SEAL_SHRINK, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW] {
            let fd = unsealed(8192);
            // SAFETY: plain system call on a descriptor of ours.
            assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, some) }, 0);
            assert!(adopt(fd).is_err(), "{some}");
        }
        let (pipe, _other) = std::io::pipe().unwrap();
        assert!(adopt(pipe.into()).is_err());
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
        segment.populate(0, 4096).unwrap();
        assert!(matches!(segment.populate(4096, 1), Err(SegmentError::Range { .. })));
        segment.punch(4096, 0).unwrap();
    }

    #[test]
    fn long_ranges_get_memory_to_their_last_page_and_not_behind() {
        let segment = Segment::new("clew-test", 1 << 20).unwrap();
        segment.word(0).store(7, Ordering::Relaxed);
        segment.populate(4096, 17 * 4096).unwrap();
        assert_eq!(segment.resident_bytes().unwrap(), 18 * 4096);
        assert_eq!((segment.leading_bytes().unwrap(), segment.name()), (18 * 4096, "clew-test"));
        assert_eq!(segment.word(0).load(Ordering::Relaxed), 7, "what was there stays");
        segment.half(3).store(9, Ordering::Relaxed);
        assert_eq!(segment.word(1).load(Ordering::Relaxed), 9 << 32);
    }
}

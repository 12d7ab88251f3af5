//! A program's memory, read as `/proc/PID/mem`.
//!
//! What is stored is an error there, and nobody's wait. A page of a file is waited for as long as its file system likes,
//! which may be a server of the program's own, and no signal ends that wait. So readers say how long they have been at it:
//! of such a program nothing more is taken, and somebody else does its reader's work ([`crate::governor`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Reading takes a microsecond; from a disk some milliseconds.
const STUCK: Duration = Duration::from_millis(100);

/// The memory.
pub struct MemFile {
    file: File,
    readers: AtomicUsize,
    /// When the first of them began, milliseconds of [`now_ms`].
    since: AtomicU64,
    /// It was found stuck, and nobody was told yet that it is not any more.
    was_stuck: AtomicBool,
}

impl From<File> for MemFile {
    fn from(file: File) -> MemFile {
        let (readers, since) = (AtomicUsize::new(0), AtomicU64::new(0));
        MemFile { file, readers, since, was_stuck: AtomicBool::new(false) }
    }
}

impl MemFile {
    /// Fills `out` with what is at `address`.
    ///
    /// # Errors
    /// Nothing is mapped there, or what is there is stored.
    pub fn read(&self, out: &mut [u8], address: u64) -> io::Result<()> {
        if self.readers.fetch_add(1, Ordering::SeqCst) == 0 {
            self.since.store(now_ms(), Ordering::SeqCst);
        }
        let read = self.file.read_exact_at(out, address);
        self.readers.fetch_sub(1, Ordering::SeqCst);
        read
    }

    /// Whether somebody has been reading for so long that it may be for ever.
    pub fn is_stuck(&self) -> bool {
        let is_stuck = self.readers.load(Ordering::SeqCst) > 0
            && now_ms().saturating_sub(self.since.load(Ordering::SeqCst))
                > STUCK.as_millis() as u64;
        if is_stuck {
            self.was_stuck.store(true, Ordering::Relaxed);
        }
        is_stuck
    }

    /// Whether it was found stuck, and is not any more: true once.
    pub fn goes_on(&self) -> bool {
        self.was_stuck.load(Ordering::Relaxed)
            && !self.is_stuck()
            && self.was_stuck.swap(false, Ordering::Relaxed)
    }

    /// Whether it was found stuck, and nobody has heard that it [goes on](MemFile::goes_on).
    pub fn was_stuck(&self) -> bool {
        self.was_stuck.load(Ordering::Relaxed) || self.is_stuck()
    }
}

impl AsRawFd for MemFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn now_ms() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64
}

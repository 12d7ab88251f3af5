//! A program's memory, read as `/proc/PID/mem`.
//!
//! What is stored is an error there, and nobody's wait. A page of a file is waited for as long as its file system likes,
//! which may be a server of the program's own, and no signal ends that wait. So readers say how long they have been at it:
//! of such a program nothing more is taken, and somebody else does its reader's work ([`crate::governor`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Reading takes a microsecond; from a disk some milliseconds.
const STUCK: Duration = Duration::from_millis(100);

/// The memory.
pub struct MemFile {
    file: File,
    readers: Mutex<Readers>,
}

#[derive(Default)]
struct Readers {
    count: usize,
    /// When the first of them began.
    since: Option<Instant>,
    /// It was found stuck, and nobody was told yet that it is not any more.
    was_stuck: bool,
}

impl Readers {
    fn are_stuck(&mut self) -> bool {
        let is_stuck = self.count > 0 && self.since.is_some_and(|since| since.elapsed() > STUCK);
        self.was_stuck |= is_stuck;
        is_stuck
    }
}

impl From<File> for MemFile {
    fn from(file: File) -> MemFile {
        MemFile { file, readers: Mutex::default() }
    }
}

impl MemFile {
    /// Fills `out` with what is at `address`.
    ///
    /// # Errors
    /// Nothing is mapped there, or what is there is stored.
    pub fn read(&self, out: &mut [u8], address: u64) -> io::Result<()> {
        {
            let mut readers = self.readers.lock();
            if readers.count == 0 {
                readers.since = Some(Instant::now());
            }
            readers.count += 1;
        }
        let read = self.file.read_exact_at(out, address);
        self.readers.lock().count -= 1;
        read
    }

    /// Whether somebody has been reading for so long that it may be for ever.
    pub fn is_stuck(&self) -> bool {
        self.readers.lock().are_stuck()
    }

    /// Whether it was found stuck, and is not any more: true once.
    pub fn goes_on(&self) -> bool {
        let mut readers = self.readers.lock();
        !readers.are_stuck() && std::mem::take(&mut readers.was_stuck)
    }

    /// Whether it was found stuck, and nobody has heard that it [goes on](MemFile::goes_on).
    pub fn was_stuck(&self) -> bool {
        let mut readers = self.readers.lock();
        readers.are_stuck() || readers.was_stuck
    }
}

impl AsRawFd for MemFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

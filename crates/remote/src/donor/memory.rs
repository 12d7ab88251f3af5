//! Where the bytes of pieces lie: in a file of memory. Each piece has whole pages of it, at a place that nothing had before,
//! and when the piece is dropped the kernel has them back at once. So a borrower takes what its pieces take, however it
//! mixes their sizes: a heap keeps what lies between those that stay.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The file.
#[derive(Debug)]
pub(super) struct Memory {
    file: Arc<File>,
    /// Where the next piece begins. Places are not used again: at a gigabyte a second they last for centuries.
    next: AtomicU64,
    page_bytes: u64,
}

impl Memory {
    /// Nothing is in it.
    ///
    /// # Errors
    /// The kernel gives none, or this process may write no file that is so long.
    pub fn new() -> io::Result<Memory> {
        let limit = getrlimit(Resource::Fsize);
        if limit.current.is_some() {
            let raised = Rlimit { current: limit.maximum, ..limit };
            if limit.maximum.is_some() || setrlimit(Resource::Fsize, raised).is_err() {
                let why =
                    "files are limited (ulimit -f), and memory to lend is one: unlimited is needed";
                return Err(io::Error::other(why));
            }
        }
        let file = memfd_create("clew-lent", MemfdFlags::CLOEXEC)?;
        let page_bytes = rustix::param::page_size() as u64;
        Ok(Memory { file: Arc::new(file.into()), next: AtomicU64::new(0), page_bytes })
    }

    /// What so many bytes take.
    pub fn taken_by(&self, bytes: usize) -> u64 {
        (bytes as u64).next_multiple_of(self.page_bytes)
    }

    /// Keeps these bytes.
    ///
    /// # Errors
    /// The machine has no memory for them.
    pub fn keep(&self, bytes: &[u8]) -> io::Result<Kept> {
        let taken = self.taken_by(bytes.len());
        let at = self.next.fetch_add(taken, Relaxed);
        let kept = Kept { file: Arc::clone(&self.file), at, bytes: bytes.len() as u32, taken };
        // What was written of it before an error is given back with it.
        kept.file.write_all_at(bytes, at)?;
        Ok(kept)
    }

    /// What all of it takes, as the kernel says, bytes.
    #[cfg(test)]
    pub fn taken_bytes(&self) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&self.file.metadata().expect("it is ours")) * 512
    }
}

/// Bytes of a piece. Dropped, they take nothing any more.
#[derive(Debug)]
pub(super) struct Kept {
    file: Arc<File>,
    at: u64,
    bytes: u32,
    taken: u64,
}

impl Kept {
    /// What it takes.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Appends to `out` up to `len` bytes from `skip` on; how many. None if there are none.
    pub fn read(&self, skip: u64, len: usize, out: &mut Vec<u8>) -> Option<usize> {
        let rest = u64::from(self.bytes).checked_sub(skip).filter(|rest| *rest > 0)?;
        let len = len.min(rest as usize);
        let before = out.len();
        out.resize(before + len, 0);
        if let Err(error) = self.file.read_exact_at(&mut out[before..], self.at + skip) {
            tracing::warn!(%error, "what was lent cannot be read");
            out.truncate(before);
            return None;
        }
        Some(len)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&*self.file, how, self.at, self.taken) {
            tracing::warn!(%error, "what was lent and forgotten still takes memory");
        }
    }
}

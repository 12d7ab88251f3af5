//! Compresses what was read from disk, beside those who wait for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::PAGE_BYTES;
use crate::buffer::AlignedBuffer;
use crate::counters::{Counters, add};
use crate::pages::{Epoch, FilePages};
use crate::stamp::FileKey;

/// Reads that may wait, of up to 1 MiB each; mostly 128 KiB. What is read faster than it can be compressed
/// is left out: a long sequential read gains least.
const WAITING: usize = 32;
/// Buffers that are kept for the next reads.
const SPARE: usize = 8;

/// Whole pages of a file. The buffer that they were read to goes along with them, as copying it would keep a reader from
/// its next read.
#[derive(Debug)]
pub struct Batch {
    /// The file.
    pub key: FileKey,
    /// When it was read.
    pub epoch: Epoch,
    /// The page that the buffer begins with.
    pub first: u64,
    /// Those that are to be kept.
    pub runs: Vec<Range<u64>>,
    /// What was read.
    pub buffer: AlignedBuffer,
}

impl Batch {
    fn pages(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }
}

/// The way to the thread that compresses; it ends with it.
#[derive(Debug)]
pub struct Packer {
    batches: SyncSender<Batch>,
    spare: Arc<Mutex<Vec<AlignedBuffer>>>,
    counters: Arc<Counters>,
}

impl Packer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(
        pages: Arc<FilePages>,
        counters: Arc<Counters>,
    ) -> std::io::Result<(Packer, JoinHandle<()>)> {
        let (batches, waiting) = sync_channel(WAITING);
        let (counted, spare) = (counters.clone(), Arc::<Mutex<Vec<AlignedBuffer>>>::default());
        let given_back = spare.clone();
        let thread = thread::Builder::new()
            .name("clew-packer".to_string())
            .spawn(move || pack(&pages, &counted, &given_back, &waiting))?;
        Ok((Packer { batches, spare, counters }, thread))
    }

    /// Hands pages over, unless too many wait. A buffer in place of theirs.
    pub fn offer(&self, batch: Batch) -> AlignedBuffer {
        match self.batches.try_send(batch) {
            Ok(()) => self.spare.lock().pop().unwrap_or_default(),
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                add(&self.counters.pages_too_many, batch.pages());
                batch.buffer
            }
        }
    }
}

/// Whoever reads goes before: what is left of the processors is for this.
const NICENESS: i32 = 19;

fn pack(
    pages: &FilePages,
    counters: &Counters,
    spare: &Mutex<Vec<AlignedBuffer>>,
    waiting: &Receiver<Batch>,
) {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        tracing::debug!("compressing takes processors from readers: {error}");
    }
    for batch in waiting {
        let mut kept = 0;
        for number in batch.runs.iter().cloned().flatten() {
            let at = (number - batch.first) as usize * PAGE_BYTES;
            let bytes = &batch.buffer.filled(at + PAGE_BYTES)[at..];
            kept += u64::from(pages.put(batch.key, batch.epoch, number, bytes));
        }
        add(&counters.pages_packed, kept);
        let mut spare = spare.lock();
        if spare.len() < SPARE {
            spare.push(batch.buffer);
        }
    }
}

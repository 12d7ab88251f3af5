//! Compresses what was read from disk, beside those who wait for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::PAGE_BYTES;
use crate::counters::{Counters, add};
use crate::pages::{Epoch, FilePages};
use crate::stamp::FileKey;

/// Reads that may wait, of up to 1 MiB each; mostly 128 KiB. What is read faster than it can be compressed
/// is left out: a long sequential read gains least.
const WAITING: usize = 32;

/// Whole pages of a file, in a row.
#[derive(Debug)]
pub struct Batch {
    /// The file.
    pub key: FileKey,
    /// When it was read.
    pub epoch: Epoch,
    /// The first page.
    pub first: u64,
    /// All of them.
    pub bytes: Vec<u8>,
}

impl Batch {
    fn pages(&self) -> u64 {
        (self.bytes.len() / PAGE_BYTES) as u64
    }
}

/// The way to the thread that compresses; it ends with it.
#[derive(Debug)]
pub struct Packer {
    batches: SyncSender<Batch>,
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
        let counted = counters.clone();
        let thread = thread::Builder::new()
            .name("clew-packer".to_string())
            .spawn(move || pack(&pages, &counted, &waiting))?;
        Ok((Packer { batches, counters }, thread))
    }

    /// Hands pages over, unless too many wait.
    pub fn offer(&self, batch: Batch) {
        match self.batches.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                add(&self.counters.pages_too_many, batch.pages());
            }
        }
    }
}

/// Whoever reads goes before: what is left of the processors is for this.
const NICENESS: i32 = 19;

fn pack(pages: &FilePages, counters: &Counters, waiting: &Receiver<Batch>) {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        tracing::debug!("compressing takes processors from readers: {error}");
    }
    for batch in waiting {
        let mut kept = 0;
        for (number, bytes) in (batch.first..).zip(batch.bytes.chunks_exact(PAGE_BYTES)) {
            kept += u64::from(pages.put(batch.key, batch.epoch, number, bytes));
        }
        add(&counters.pages_packed, kept);
    }
}

//! Who reads ahead: the kernel asks for 128 KiB at a time, and a disk that is asked for more at once gives it sooner.
//!
//! A file that is changed through us meanwhile is left alone: this thread waits for no lock that a reader has, who may be
//! waiting for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::PAGE_BYTES;
use crate::buffer::AlignedBuffer;
use crate::handles::OpenFile;
use crate::lower::{read_full, stat};
use crate::pages::Epoch;
use crate::stamp::Stamp;

/// Windows that may wait to be read.
const WAITING: usize = 16;
/// How long a window is kept for who does not read on.
const KEPT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Order {
    open: Arc<OpenFile>,
    pages: Range<u64>,
    stamp: Stamp,
}

/// The way to the thread that reads; it ends with it.
#[derive(Debug)]
pub struct Ahead {
    orders: SyncSender<Order>,
    taken: Arc<AtomicUsize>,
}

impl Ahead {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start() -> std::io::Result<Ahead> {
        let (orders, waiting) = sync_channel(WAITING);
        thread::Builder::new().name("clew-ahead".to_string()).spawn(move || serve(&waiting))?;
        Ok(Ahead { orders, taken: Arc::default() })
    }

    /// Pages of a file that has this stamp were asked for, and the disk had to be.
    pub fn asked(&self, open: &Arc<OpenFile>, pages: &Range<u64>, stamp: Stamp, epoch: Epoch) {
        let file_pages = stamp.size.div_ceil(PAGE_BYTES as u64);
        let Some(ahead) = open.windows.asked(pages, file_pages, epoch, &self.taken) else { return };
        // Otherwise it may change and look the same.
        let is_settled = stamp.is_settled(SystemTime::now());
        let order = Order { open: open.clone(), pages: ahead.clone(), stamp };
        if !is_settled || self.orders.try_send(order).is_err() {
            open.windows.done(&ahead, None);
        }
    }
}

fn serve(waiting: &Receiver<Order>) {
    let mut lately: VecDeque<(Instant, Weak<OpenFile>)> = VecDeque::new();
    loop {
        match waiting.recv_timeout(KEPT) {
            Ok(order) => {
                let bytes = read(&order);
                order.open.windows.done(&order.pages, bytes);
                let file = Arc::downgrade(&order.open);
                lately.retain(|(_, other)| !other.ptr_eq(&file));
                lately.push_back((Instant::now(), file));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some((since, file)) = lately.front()
            && since.elapsed() >= KEPT
        {
            if let Some(open) = file.upgrade() {
                open.windows.forget();
            }
            lately.pop_front();
        }
    }
}

/// Reads a window, if the file is still as it was.
fn read(order: &Order) -> Option<AlignedBuffer> {
    let Order { open, pages, stamp } = order;
    let file = open.direct.as_ref()?;
    let _unchanged = open.inode.changes.try_read()?;
    if Stamp::of(&stat(&*open.inode).ok()?) != *stamp {
        return None;
    }
    let mut buffer = AlignedBuffer::default();
    let bytes = buffer.take((pages.end - pages.start) as usize * PAGE_BYTES);
    let at = pages.start * PAGE_BYTES as u64;
    let there = (stamp.size - at).min(bytes.len() as u64) as usize;
    let read = read_full(file, bytes, at).ok()?;
    bytes[read..].fill(0);
    (read >= there).then_some(buffer)
}

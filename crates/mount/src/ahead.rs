//! Who reads ahead: the kernel asks for 128 KiB at a time, and a disk that is asked for more at once gives it sooner.
//!
//! A file that is changed through us meanwhile is left alone: this thread waits for no lock that a reader has, who may be
//! waiting for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::PAGE_BYTES;
use crate::buffer::AlignedBuffer;
use crate::handles::OpenFile;
use crate::inodes::Inode;
use crate::lower::{read_full, stat};
use crate::pages::Epoch;
use crate::stamp::Stamp;
use crate::windows::{Rooms, Windows};

/// Windows that may wait to be read.
const WAITING: usize = 16;
/// How long a window is kept for who does not read on.
const KEPT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Order {
    /// Not the open file: its end would wait for the disk, and that of locks with it.
    file: Arc<OwnedFd>,
    inode: Arc<Inode>,
    windows: Arc<Windows>,
    pages: Range<u64>,
    stamp: Stamp,
    epoch: Epoch,
}

/// The way to the thread that reads; it ends with it.
#[derive(Debug)]
pub struct Ahead {
    orders: SyncSender<Order>,
    rooms: Arc<Rooms>,
}

impl Ahead {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start() -> std::io::Result<Ahead> {
        let (orders, waiting) = sync_channel(WAITING);
        let rooms = Arc::<Rooms>::default();
        let of_thread = rooms.clone();
        thread::Builder::new()
            .name("clew-ahead".to_string())
            .spawn(move || serve(&waiting, &of_thread))?;
        Ok(Ahead { orders, rooms })
    }

    /// Pages of a file that has this stamp were asked for, and the disk had to be.
    pub fn asked(&self, open: &OpenFile, pages: &Range<u64>, stamp: Stamp, epoch: Epoch) {
        // Otherwise it may change and look the same.
        let may_be = |_: &&Arc<OwnedFd>| stamp.is_settled(SystemTime::now());
        let Some(file) = open.direct.as_ref().filter(may_be) else { return };
        let file_pages = stamp.size.div_ceil(PAGE_BYTES as u64);
        let Some(ahead) = open.windows.asked(pages, file_pages, epoch, &self.rooms) else { return };
        let (file, inode, windows) = (file.clone(), open.inode.clone(), open.windows.clone());
        let order = Order { file, inode, windows, pages: ahead.clone(), stamp, epoch };
        if self.orders.try_send(order).is_err() {
            open.windows.done(&ahead, epoch, None);
        }
    }
}

fn serve(waiting: &Receiver<Order>, rooms: &Rooms) {
    let mut lately: VecDeque<(Instant, Weak<Windows>)> = VecDeque::new();
    loop {
        match waiting.recv_timeout(KEPT) {
            Ok(order) => {
                let bytes = read(&order, rooms);
                order.windows.done(&order.pages, order.epoch, bytes);
                let windows = Arc::downgrade(&order.windows);
                lately.retain(|(_, other)| !other.ptr_eq(&windows));
                lately.push_back((Instant::now(), windows));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some((since, windows)) = lately.front()
            && since.elapsed() >= KEPT
        {
            if let Some(windows) = windows.upgrade() {
                windows.forget();
            }
            lately.pop_front();
        }
    }
}

/// Reads a window, if the file is still as it was.
fn read(order: &Order, rooms: &Rooms) -> Option<AlignedBuffer> {
    let Order { file, inode, pages, stamp, .. } = order;
    let _unchanged = inode.changes.try_read()?;
    if Stamp::of(&stat(&**inode).ok()?) != *stamp {
        return None;
    }
    let mut buffer = rooms.buffer();
    let bytes = buffer.take((pages.end - pages.start) as usize * PAGE_BYTES);
    let at = pages.start * PAGE_BYTES as u64;
    let there = (stamp.size - at).min(bytes.len() as u64) as usize;
    let read = read_full(file, bytes, at).ok()?;
    bytes[read..].fill(0);
    (read >= there).then_some(buffer)
}

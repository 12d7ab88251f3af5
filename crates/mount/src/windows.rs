//! What was read ahead of who reads one open file in a row: two windows at most, of which one is read while the other is handed
//! out.
//!
//! What a window holds is given only in the epoch in which it was read ([`Epoch`]), as what the pool has.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::PAGE_BYTES;
use crate::buffer::AlignedBuffer;
use crate::pages::Epoch;

/// Pages of a window: 512 KiB, four requests of the kernel.
pub const WINDOW_PAGES: u64 = 128;
/// Pages that must have been read in a row first.
const IN_A_ROW: u64 = 64;
/// How far requests may come out of their turn: the kernel sends two at once, which any two threads answer.
const OUT_OF_TURN: u64 = 64;
/// Windows of one open file.
const WINDOWS: usize = 2;
/// Windows of all files of a mount: 8 MiB.
const ALL_WINDOWS: usize = 16;
/// Buffers that are kept for the next ones.
const MOST_SPARE: usize = 4;
/// How long a reader waits for a window that is being read, before it reads for itself.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the windows of all files of a mount share.
#[derive(Debug, Default)]
pub struct Rooms {
    taken: AtomicUsize,
    /// Of windows that are gone: new memory costs as much as reading into it.
    spare: Mutex<Vec<AlignedBuffer>>,
}

impl Rooms {
    /// A buffer for a window.
    pub fn buffer(&self) -> AlignedBuffer {
        self.spare.lock().pop().unwrap_or_default()
    }

    fn take(self: &Arc<Rooms>) -> Option<Room> {
        let more = |windows| (windows < ALL_WINDOWS).then_some(windows + 1);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Room(self.clone()))
    }

    fn keep(&self, buffer: AlignedBuffer) {
        let mut spare = self.spare.lock();
        if spare.len() < MOST_SPARE {
            spare.push(buffer);
        }
    }
}

/// Room for one window, as long as it lives.
#[derive(Debug)]
struct Room(Arc<Rooms>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug)]
struct Window {
    pages: Range<u64>,
    epoch: Epoch,
    /// None as long as it is being read.
    bytes: Option<AlignedBuffer>,
    room: Room,
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.room.0.keep(bytes);
        }
    }
}

#[derive(Debug, Default)]
struct Row {
    /// Where what was read in a row ends, and how many pages that were.
    end: u64,
    len: u64,
    windows: VecDeque<Window>,
}

/// The windows of one open file.
#[derive(Debug, Default)]
pub struct Windows {
    row: Mutex<Row>,
    read: Condvar,
}

impl Windows {
    /// Pages of the file were asked for, which has `file_pages`, and nothing but the disk has them. What
    /// is to be read ahead now, of which [`Windows::done`] is to be told.
    pub fn asked(
        &self,
        pages: &Range<u64>,
        file_pages: u64,
        epoch: Epoch,
        rooms: &Arc<Rooms>,
    ) -> Option<Range<u64>> {
        let mut row = self.row.lock();
        let is_next = pages.start <= row.end + OUT_OF_TURN && pages.end + OUT_OF_TURN >= row.end;
        if !is_next || row.windows.iter().any(|window| window.epoch != epoch) {
            *row = Row { end: pages.end, len: pages.end - pages.start, ..Row::default() };
            return None;
        }
        row.end = row.end.max(pages.end);
        row.len += pages.end - pages.start;
        // Who went past what is here has it.
        let passed = row.end.saturating_sub(OUT_OF_TURN);
        row.windows.retain(|window| window.pages.end > passed);
        let start = row.windows.back().map_or(row.end, |last| last.pages.end);
        let ahead = start..file_pages.min(start + WINDOW_PAGES);
        // Who asks for much at once needs nobody.
        let is_much = pages.end - pages.start > WINDOW_PAGES;
        if is_much || row.len < IN_A_ROW || row.windows.len() == WINDOWS || ahead.is_empty() {
            return None;
        }
        let room = rooms.take()?;
        let window = Window { pages: ahead.clone(), epoch, bytes: None, room };
        row.windows.push_back(window);
        Some(ahead)
    }

    /// A window was read, or was not. Another of the same pages may have been asked for since, in another epoch.
    pub fn done(&self, pages: &Range<u64>, epoch: Epoch, bytes: Option<AlignedBuffer>) {
        let mut row = self.row.lock();
        let is_it = |window: &Window| {
            window.pages == *pages && window.epoch == epoch && window.bytes.is_none()
        };
        if let Some(at) = row.windows.iter().position(is_it) {
            match bytes {
                None => drop(row.windows.remove(at)),
                bytes => row.windows[at].bytes = bytes,
            }
        }
        self.read.notify_all();
    }

    /// Copies these pages, if all of them were read ahead, or are being.
    pub fn give(&self, pages: &Range<u64>, epoch: Epoch, into: &mut [u8]) -> bool {
        let mut row = self.row.lock();
        let mut next = pages.start;
        while next < pages.end {
            let has = |window: &&Window| window.epoch == epoch && window.pages.contains(&next);
            let Some(window) = row.windows.iter().find(has) else { return false };
            if let Some(bytes) = &window.bytes {
                let end = pages.end.min(window.pages.end);
                let [from, to] =
                    [next, end].map(|page| (page - window.pages.start) as usize * PAGE_BYTES);
                let at = (next - pages.start) as usize * PAGE_BYTES;
                into[at..at + to - from].copy_from_slice(&bytes.filled(to)[from..]);
                next = end;
            } else if self.read.wait_for(&mut row, PATIENCE).timed_out() {
                return false;
            }
        }
        true
    }

    /// Nobody has read on for a while.
    pub fn forget(&self) {
        *self.row.lock() = Row::default();
    }
}

#[cfg(test)]
mod tests {
    use clew_core::CodecKind;

    use super::*;
    use crate::pages::{FilePages, FilePagesConfig, Leaves};
    use crate::stamp::{FileKey, Stamp};

    fn epochs() -> [Epoch; 2] {
        let pool = FilePages::new(FilePagesConfig {
            limit_bytes: 1 << 20,
            codec: CodecKind::Lz4,
            leaves: Leaves::Oldest,
            selective: false,
        });
        let (pool, key) = (pool.unwrap(), FileKey { dev: 1, ino: 2 });
        [1, 2].map(|time| {
            let times = (time, 0);
            pool.epoch(key, Stamp { size: 1, mtime: times, ctime: times, btime: times })
        })
    }

    fn bytes_of(pages: &Range<u64>) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::default();
        let bytes = buffer.take((pages.end - pages.start) as usize * PAGE_BYTES);
        for (page, bytes) in pages.clone().zip(bytes.chunks_mut(PAGE_BYTES)) {
            bytes.fill(page as u8);
        }
        buffer
    }

    fn gives(windows: &Windows, pages: Range<u64>, epoch: Epoch) -> bool {
        let mut into = vec![0; (pages.end - pages.start) as usize * PAGE_BYTES];
        let given = windows.give(&pages, epoch, &mut into);
        for (page, bytes) in pages.zip(into.chunks(PAGE_BYTES)) {
            assert!(!given || bytes.iter().all(|byte| *byte == page as u8), "page {page}");
        }
        given
    }

    #[test]
    fn who_reads_in_a_row_has_two_windows_and_what_was_passed_leaves() {
        let (windows, rooms) = (Windows::default(), Arc::<Rooms>::default());
        let [now, later] = epochs();
        let asked = |pages| windows.asked(&pages, 1000, now, &rooms);
        assert_eq!(asked(0..32), None);
        assert_eq!(asked(32..64), Some(64..192));
        assert_eq!(asked(64..96), Some(192..320));
        assert_eq!(asked(128..160), None, "two are enough");
        // Out of its turn.
        assert_eq!(asked(96..128), None);
        windows.done(&(64..192), now, Some(bytes_of(&(64..192))));
        assert!(gives(&windows, 64..96, now) && gives(&windows, 160..192, now));
        assert!(!gives(&windows, 32..96, now), "half of it");
        assert!(!gives(&windows, 64..96, later), "another file by now");
        windows.done(&(192..320), now, Some(bytes_of(&(192..320))));
        assert!(gives(&windows, 180..230, now), "of both");
        assert_eq!((asked(192..224), rooms.taken.load(Relaxed)), (None, 2));
        assert_eq!((asked(224..256), rooms.taken.load(Relaxed)), (Some(320..448), 2));
        assert!(!gives(&windows, 64..96, now), "it has left");
        // At the end of the file.
        let ends = |pages| windows.asked(&pages, 330, now, &rooms);
        windows.forget();
        assert_eq!((ends(256..320), rooms.taken.load(Relaxed)), (None, 0));
        assert_eq!((ends(320..330), rooms.taken.load(Relaxed)), (None, 0));
    }

    #[test]
    fn what_was_not_read_or_is_of_another_state_is_given_to_nobody() {
        let (windows, rooms) = (Windows::default(), Arc::<Rooms>::default());
        let [now, later] = epochs();
        let asked = |pages, epoch| windows.asked(&pages, 1000, epoch, &rooms);
        assert_eq!(asked(0..60, now), None);
        assert_eq!(asked(60..96, now), Some(96..224));
        windows.done(&(96..224), now, None);
        assert!(!gives(&windows, 96..128, now));
        assert_eq!(rooms.taken.load(Relaxed), 0);
        assert_eq!(asked(96..128, now), Some(128..256));
        // The file has changed: what comes now is of before.
        assert_eq!((asked(128..160, later), rooms.taken.load(Relaxed)), (None, 0));
        windows.done(&(128..256), now, Some(bytes_of(&(128..256))));
        assert!(!gives(&windows, 128..160, now) && !gives(&windows, 128..160, later));
        // The same pages are asked for anew, and what comes is of before.
        windows.forget();
        assert_eq!((asked(0..32, later), asked(32..64, later)), (None, Some(64..192)));
        windows.done(&(64..192), now, Some(bytes_of(&(64..192))));
        windows.done(&(64..192), later, None);
        assert!(!gives(&windows, 64..96, later));
        // Who jumps begins anew.
        assert_eq!((asked(600..632, later), rooms.taken.load(Relaxed)), (None, 0));
    }

    #[test]
    fn all_files_together_have_so_many_windows() {
        let (rooms, [now, _]) = (Arc::<Rooms>::default(), epochs());
        let files: Vec<Windows> = (0..ALL_WINDOWS + 3).map(|_| Windows::default()).collect();
        let begun = |windows: &Windows| windows.asked(&(0..64), 1000, now, &rooms).is_some();
        assert_eq!(files.iter().filter(|windows| begun(windows)).count(), ALL_WINDOWS);
        drop(files);
        assert_eq!(rooms.taken.load(Relaxed), 0);
    }
}

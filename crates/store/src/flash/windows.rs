//! Read-ahead: what is read of the device is whole windows of a slot, and the last of them are kept as they are there,
//! encrypted. What left memory together lies together, so that what is asked for next is often here already. (Linux
//! reads ahead of a swap device by slots too: `mm/swap_state.c`, `swap_cluster_readahead`.)
//!
//! A slot that is on the device does not change before it has another generation, and that is in a window's name.
//!
//! Where a window takes longer than what was asked for (a link), the last windows say whether one pays while a program waits: if
//! enough of what they brought was asked for.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::Place;

/// Bytes of a window: what a disk reads in hardly more time than a block.
const WINDOW_BYTES: u32 = 32 << 10;
/// Windows that are kept: 2 MiB.
const KEPT: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    slot: u32,
    generation: u64,
    number: u32,
}

/// Objects that were asked for, for each window that was read, from which on one pays: a link of a gigabit brings a window in
/// the time of four objects.
const PAYS: u32 = 4;
/// Windows by which that is judged.
const JUDGED_BY: u32 = 32;
/// While windows do not pay, one read in so many brings one: it may be different by now.
const TRIED_ONE_IN: u32 = 16;

/// What of a slot is read for an object: offset in the slot and length, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub offset: u32,
    pub len: u32,
}

/// The windows that were read last.
#[derive(Debug)]
pub(super) struct Windows {
    kept: Mutex<LruCache<Name, Arc<[u8]>>>,
    worth: Mutex<Worth>,
}

/// What windows were good for lately. A leaf, held for a moment.
#[derive(Debug)]
struct Worth {
    windows: u32,
    /// Objects that were had from them.
    objects: u32,
    /// Reads without one since one was tried.
    untried: u32,
}

impl Worth {
    /// Whether a window pays, or is to be tried.
    fn pays(&mut self) -> bool {
        let pays = self.objects >= self.windows * PAYS || self.untried + 1 >= TRIED_ONE_IN;
        self.untried = if pays { 0 } else { self.untried + 1 };
        pays
    }

    /// What is long ago counts less.
    fn read(&mut self) {
        self.windows += 1;
        if self.windows > JUDGED_BY {
            self.windows /= 2;
            self.objects /= 2;
        }
    }
}

impl Windows {
    pub fn new() -> Windows {
        // The first ones are believed to pay.
        let worth = Worth { windows: 0, objects: 0, untried: 0 };
        Windows { kept: Mutex::new(LruCache::new(KEPT)), worth: Mutex::new(worth) }
    }

    /// Whether a program that waits for an object may wait for the window around it.
    pub fn pays(&self) -> bool {
        self.worth.lock().pays()
    }

    /// The windows of a slot of `slot_bytes` in which the first `needed` bytes from `place` on lie.
    pub fn around(place: Place, needed: usize, slot_bytes: u32) -> Span {
        let offset = place.offset / WINDOW_BYTES * WINDOW_BYTES;
        let end = (place.offset + needed as u32).next_multiple_of(WINDOW_BYTES).min(slot_bytes);
        Span { offset, len: end - offset }
    }

    /// No more than the blocks of `align` bytes in which they lie.
    pub fn exactly(place: Place, needed: usize, align: u32) -> Span {
        let offset = place.offset / align * align;
        Span { offset, len: (place.offset + needed as u32).next_multiple_of(align) - offset }
    }

    fn names(place: Place, span: Span) -> impl Iterator<Item = Name> {
        let Place { slot, generation, .. } = place;
        let numbers = span.offset / WINDOW_BYTES..(span.offset + span.len).div_ceil(WINDOW_BYTES);
        numbers.map(move |number| Name { slot, generation, number })
    }

    /// The first `needed` bytes from `place` on, if they are here.
    pub fn get(&self, place: Place, needed: usize) -> Option<Vec<u8>> {
        let span = Windows::around(place, needed, u32::MAX);
        let mut bytes = Vec::with_capacity(needed);
        let mut skip = (place.offset - span.offset) as usize;
        let mut kept = self.kept.lock();
        for name in Windows::names(place, span) {
            let window = kept.get(&name)?;
            let end = window.len().min(skip + needed - bytes.len());
            bytes.extend_from_slice(window.get(skip..end)?);
            skip = 0;
        }
        drop(kept);
        if bytes.len() != needed {
            return None;
        }
        self.worth.lock().objects += 1;
        Some(bytes)
    }

    /// What was read of `span` of the slot of `place`, from its first byte on. It is kept as far as it is whole windows.
    pub fn keep(&self, place: Place, span: Span, read: &[u8]) {
        self.worth.lock().read();
        let whole = read.chunks_exact(WINDOW_BYTES as usize);
        for (name, window) in Windows::names(place, span).zip(whole) {
            // Copied without the lock: a fault may want it.
            let window = window.into();
            self.kept.lock().put(name, window);
        }
    }

    /// They are not what was written.
    pub fn forget(&self, place: Place, needed: usize) {
        let mut kept = self.kept.lock();
        for name in Windows::names(place, Windows::around(place, needed, u32::MAX)) {
            kept.pop(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::LogId;
    use crate::flash::device::ALIGN;

    fn place(offset: u32, generation: u64) -> Place {
        Place { log: LogId::FLASH, slot: 3, generation, offset, len: 100 }
    }

    /// Bytes of a slot that differ from their neighbours.
    fn slot() -> Vec<u8> {
        (0..4 * WINDOW_BYTES).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    fn what_was_read_is_there_and_what_was_not_is_not() {
        let (windows, slot) = (Windows::new(), slot());
        let at = WINDOW_BYTES + WINDOW_BYTES - 50;
        let span = Windows::around(place(at, 1), 200, slot.len() as u32);
        assert_eq!(span, Span { offset: WINDOW_BYTES, len: 2 * WINDOW_BYTES });
        assert_eq!(windows.get(place(at, 1), 200), None);
        windows.keep(place(at, 1), span, &slot[span.offset as usize..][..span.len as usize]);
        for at in [WINDOW_BYTES, WINDOW_BYTES + 5000, at, 3 * WINDOW_BYTES - 200] {
            let expected = &slot[at as usize..][..200];
            assert_eq!(windows.get(place(at, 1), 200).as_deref(), Some(expected), "{at}");
            assert_eq!(windows.get(place(at, 2), 200), None, "another generation");
        }
        assert_eq!(windows.get(place(3 * WINDOW_BYTES - 100, 1), 200), None);
        assert_eq!(windows.get(place(WINDOW_BYTES - 1, 1), 2), None);
        windows.forget(place(at, 1), 200);
        assert_eq!(windows.get(place(WINDOW_BYTES, 1), 200), None);
    }

    #[test]
    fn windows_pay_while_enough_of_them_is_asked_for() {
        let (windows, slot) = (Windows::new(), slot());
        let read = |number: u32| {
            let at = place(number % 4 * WINDOW_BYTES, 1);
            let span = Windows::around(at, 1, slot.len() as u32);
            windows.keep(at, span, &slot[span.offset as usize..][..span.len as usize]);
            at
        };
        assert!(windows.pays(), "nobody knows yet");
        for number in 0..100 {
            let at = read(number);
            (0..PAYS).for_each(|_| drop(windows.get(at, 1).expect("it was read")));
        }
        assert!(windows.pays());
        for number in 0..2 * JUDGED_BY {
            read(number);
        }
        let tried = (0..10 * TRIED_ONE_IN).filter(|_| windows.pays()).count();
        assert_eq!(tried, 10, "of what nobody asked for one in so many is tried");
        for number in 0..4 * JUDGED_BY {
            let at = read(number);
            (0..2 * PAYS).for_each(|_| drop(windows.get(at, 1).expect("it was read")));
        }
        assert!((0..100).all(|_| windows.pays()), "it is different by now");
    }

    #[test]
    fn what_was_read_in_part_is_not_kept() {
        let (windows, slot) = (Windows::new(), slot());
        let span = Windows::around(place(0, 1), 200, slot.len() as u32);
        windows.keep(place(0, 1), span, &slot[..span.len as usize - 1]);
        assert_eq!(windows.get(place(0, 1), 200), None);
    }

    #[test]
    fn nothing_is_read_behind_a_slot() {
        let span = Windows::around(place(5 * ALIGN as u32 - 100, 1), 100, 5 * ALIGN as u32);
        assert_eq!(span, Span { offset: 0, len: 5 * ALIGN as u32 });
        let exactly = Windows::exactly(place(ALIGN as u32 - 1, 1), 2, ALIGN as u32);
        assert_eq!(exactly, Span { offset: 0, len: 2 * ALIGN as u32 });
        assert_eq!(Windows::exactly(place(4111, 1), 4112, 1), Span { offset: 4111, len: 4112 });
    }

    #[test]
    fn the_last_ones_are_kept() {
        let (windows, slot) = (Windows::new(), slot());
        for generation in 0..2 * KEPT.get() as u64 {
            let span = Windows::around(place(0, generation), 1, slot.len() as u32);
            windows.keep(place(0, generation), span, &slot[..span.len as usize]);
        }
        let kept = (0..).take(2 * KEPT.get()).filter(|n| windows.get(place(0, *n), 1).is_some());
        let expected: Vec<u64> = (KEPT.get() as u64..2 * KEPT.get() as u64).collect();
        assert_eq!(kept.collect::<Vec<u64>>(), expected);
    }
}

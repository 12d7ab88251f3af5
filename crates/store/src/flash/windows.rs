//! Read-ahead: what is read of the device is whole windows of a slot, and the last of them are kept as they are there,
//! encrypted. What left memory together lies together, so that what is asked for next is often here already. (Linux
//! reads ahead of a swap device by slots too: `mm/swap_state.c`, `swap_cluster_readahead`.)
//!
//! A slot that is on the device does not change before it has another generation, and that is in a window's name.
//!
//! A window takes longer than what was asked for. So a program that waits has that first, and the window is read behind it;
//! the last windows say whether one pays: if enough of what they brought was asked for. Who asks for something that lies in a
//! window which is being read waits for that.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

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
/// the time of four objects. On a disk, where it takes the time of one and a half, one object was no better.
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

/// Who waits for a window. Called once, when it is here or will not be.
pub(super) type Waiter = Box<dyn FnOnce() + Send>;

/// A window that is being read.
struct Coming {
    /// It does not wait behind what no program waits for.
    pressing: bool,
    waiters: Vec<Waiter>,
}

/// The windows that were read last, and those that are being read. Each lock is a leaf, held for a moment.
pub(super) struct Windows {
    kept: Mutex<LruCache<Name, Arc<[u8]>>>,
    coming: Mutex<HashMap<Name, Coming>>,
    worth: Mutex<Worth>,
}

/// What windows were good for lately.
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

impl fmt::Debug for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, coming) = (self.kept.lock().len(), self.coming.lock().len());
        write!(f, "Windows({kept} kept, {coming} coming, {:?})", self.worth.lock())
    }
}

impl Windows {
    pub fn new() -> Windows {
        // The first ones are believed to pay.
        let worth = Worth { windows: 0, objects: 0, untried: 0 };
        Windows {
            kept: Mutex::new(LruCache::new(KEPT)),
            coming: Mutex::default(),
            worth: Mutex::new(worth),
        }
    }

    /// Whether the window around an object is worth its read where a program waits.
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
        (bytes.len() == needed).then_some(bytes)
    }

    /// Something that was read with another object was asked for.
    pub fn was_of_use(&self) {
        self.worth.lock().objects += 1;
    }

    /// Whether the windows of `span` of the slot of `place` are to be read by who asks: nobody reads one of them. Then `begun` is given
    /// who waits for them, and the end of that read is to be told ([`Windows::came`]).
    pub fn begin(
        &self,
        place: Place,
        span: Span,
        pressing: bool,
        begun: impl FnOnce(&mut Vec<Waiter>),
    ) -> bool {
        let mut coming = self.coming.lock();
        if Windows::names(place, span).any(|name| coming.contains_key(&name)) {
            return false;
        }
        let mut waiters = Vec::new();
        begun(&mut waiters);
        for name in Windows::names(place, span) {
            let waiters = std::mem::take(&mut waiters);
            coming.insert(name, Coming { pressing, waiters });
        }
        true
    }

    /// Where to wait for the first `needed` bytes from `place` on, if they are being read; a program that waits (`pressing`) waits
    /// for no window behind which others may come first.
    pub fn coming(
        &self,
        place: Place,
        needed: usize,
        pressing: bool,
    ) -> Option<MappedMutexGuard<'_, Vec<Waiter>>> {
        let span = Windows::around(place, needed, u32::MAX);
        let coming = self.coming.lock();
        let comes =
            |name: Name| coming.get(&name).is_some_and(|window| window.pressing || !pressing);
        if !Windows::names(place, span).all(comes) {
            return None;
        }
        let last = Windows::names(place, span).last()?;
        MutexGuard::try_map(coming, |coming| Some(&mut coming.get_mut(&last)?.waiters)).ok()
    }

    /// The read of `span` is over, and gave these bytes, from its first one on: they are kept as far as they are whole windows. Who
    /// waited is to be called.
    #[must_use]
    pub fn came(&self, place: Place, span: Span, read: &[u8]) -> Vec<Waiter> {
        if !read.is_empty() {
            self.keep(place, span, read);
        }
        let mut coming = self.coming.lock();
        let over = Windows::names(place, span).filter_map(|name| coming.remove(&name));
        over.flat_map(|window| window.waiters).collect()
    }

    fn keep(&self, place: Place, span: Span, read: &[u8]) {
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
            assert!(windows.get(at, 1).is_some(), "it was read");
            (0..PAYS).for_each(|_| windows.was_of_use());
        }
        assert!(windows.pays());
        for number in 0..2 * JUDGED_BY {
            read(number);
        }
        let tried = (0..10 * TRIED_ONE_IN).filter(|_| windows.pays()).count();
        assert_eq!(tried, 10, "of what nobody asked for one in so many is tried");
        for number in 0..4 * JUDGED_BY {
            let at = read(number);
            assert!(windows.get(at, 1).is_some(), "it was read");
            (0..2 * PAYS).for_each(|_| windows.was_of_use());
        }
        assert!((0..100).all(|_| windows.pays()), "it is different by now");
    }

    #[test]
    fn who_asks_for_what_is_being_read_waits_for_that() {
        let (windows, slot) = (Windows::new(), slot());
        let called = Arc::new(Mutex::new(Vec::new()));
        let waiter = |number: u32| -> Waiter {
            let called = called.clone();
            Box::new(move || called.lock().push(number))
        };
        let at = place(WINDOW_BYTES - 50, 1);
        let span = Windows::around(at, 100, slot.len() as u32);
        assert!(windows.coming(at, 100, false).is_none(), "nobody reads it");
        assert!(windows.begin(at, span, false, |waiters| waiters.push(waiter(0))));
        let first = Windows::around(place(0, 1), 1, u32::MAX);
        assert!(!windows.begin(place(0, 1), first, true, |_| panic!("it is read already")));
        windows.coming(at, 100, false).expect("both are read").push(waiter(1));
        windows.coming(place(7, 1), 100, false).expect("the first one is read").push(waiter(2));
        assert!(windows.coming(at, 100, true).is_none(), "others may come before it");
        let behind = place(2 * WINDOW_BYTES - 50, 1);
        assert!(windows.coming(behind, 100, false).is_none(), "half of it is not being read");
        assert!(windows.coming(place(7, 2), 100, false).is_none(), "another generation");
        let read = &slot[span.offset as usize..][..span.len as usize];
        let waiters = windows.came(at, span, read);
        assert_eq!(windows.get(at, 100).as_deref(), Some(&slot[at.offset as usize..][..100]));
        waiters.into_iter().for_each(|waiter| waiter());
        called.lock().sort_unstable();
        assert_eq!(*called.lock(), [0, 1, 2]);
        assert!(windows.coming(at, 100, false).is_none(), "it is here");
        assert!(windows.begin(at, span, true, |_| ()));
        windows.coming(at, 100, true).expect("it is read at once").push(waiter(3));
        assert_eq!(windows.came(at, span, &[]).len(), 1, "who waited for what did not come");
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

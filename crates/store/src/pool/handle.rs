//! The handle table: who asks with a handle learns where the object is now.
//!
//! One word a handle: bits 0..22 references, 22..30 class, 30..40 object in the slab, 40..64 slab.
//! Class 255 means that there is no object; a free handle then has the next free one in bits
//! 32..64. Word 0 belongs to no handle and keeps the seed of the checksums.
//!
//! Place and class of an entry change only under the write lock of its class; references change at
//! any time, by compare-and-swap. A count that reaches its maximum stays there: such a block is
//! never freed, which is a leak and not an error. Parts of blocks are counted so from the start,
//! hence releasing one by mistake does nothing.
//!
//! The lock of the free list is a leaf.

use parking_lot::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::budget::Budget;
use super::class::FRAME_BYTES;
use crate::segment::{Segment, SegmentError};

const REFS_BITS: u32 = 22;
const CLASS_SHIFT: u32 = 22;
const OBJECT_SHIFT: u32 = 30;
const SLAB_SHIFT: u32 = 40;
const NO_CLASS: u8 = 255;
/// References that are not counted any more.
pub const REFS_PINNED: u32 = (1 << REFS_BITS) - 1;
/// Slabs that an entry can name.
pub const MAX_SLABS: usize = 1 << 24;

/// Where an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its slab.
    pub slab: u32,
    /// Its index there, below 1024.
    pub object: u16,
}

/// One entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleEntry(u64);

impl HandleEntry {
    fn new(place: Place, class: u8, refs: u32) -> HandleEntry {
        HandleEntry(
            u64::from(place.slab) << SLAB_SHIFT
                | u64::from(place.object) << OBJECT_SHIFT
                | u64::from(class) << CLASS_SHIFT
                | u64::from(refs),
        )
    }

    /// References; zero if nobody may use it.
    #[inline]
    pub fn refs(self) -> u32 {
        self.0 as u32 & REFS_PINNED
    }

    /// Its class, if it has an object.
    #[inline]
    pub fn class(self) -> Option<u8> {
        let class = (self.0 >> CLASS_SHIFT) as u8;
        (class != NO_CLASS).then_some(class)
    }

    /// Where the object is, if it has one.
    #[inline]
    pub fn place(self) -> Place {
        Place {
            slab: (self.0 >> SLAB_SHIFT) as u32,
            object: (self.0 >> OBJECT_SHIFT) as u16 & 0x3ff,
        }
    }
}

#[derive(Debug)]
struct FreeHandles {
    /// First free handle, zero if none.
    first: u32,
    /// Handles that were ever used, word 0 included.
    high: u32,
}

/// The table.
#[derive(Debug)]
pub struct HandleTable {
    entries: Segment,
    max: u32,
    free: Mutex<FreeHandles>,
}

impl HandleTable {
    /// Room for `handles` handles, with `seed` in word 0. Takes one frame from `budget` if it has
    /// one left.
    pub fn new(handles: u64, seed: u64) -> Result<HandleTable, SegmentError> {
        let max = handles.clamp(1, u64::from(u32::MAX) - 1) as u32;
        let entries = Segment::new("clew-handles", (max as usize + 1) * 8)?;
        entries.populate(0, FRAME_BYTES)?;
        entries.word(0).store(seed, Relaxed);
        Ok(HandleTable { entries, max, free: Mutex::new(FreeHandles { first: 0, high: 1 }) })
    }

    /// The seed of the checksums.
    pub fn seed(&self) -> u64 {
        self.entries.word(0).load(Relaxed)
    }

    /// The segment, for a successor.
    pub fn segment(&self) -> &Segment {
        &self.entries
    }

    /// Frames in use: every one that ever held a handle.
    pub fn frames(&self) -> u64 {
        (u64::from(self.free.lock().high) * 8).div_ceil(FRAME_BYTES as u64)
    }

    /// A handle without an object; `None` if the table or the budget is full.
    pub fn alloc(&self, budget: &Budget) -> Option<u32> {
        let mut free = self.free.lock();
        if free.first != 0 {
            let handle = free.first;
            free.first = (self.entries.word(handle as usize).load(Relaxed) >> 32) as u32;
            return Some(handle);
        }
        let handle = free.high;
        if handle > self.max {
            return None;
        }
        let offset = handle as usize * 8;
        if offset.is_multiple_of(FRAME_BYTES) {
            if !budget.charge(1) {
                return None;
            }
            if self.entries.populate(offset, FRAME_BYTES).is_err() {
                budget.refund(1);
                return None;
            }
        }
        free.high += 1;
        self.entries.word(handle as usize).store(u64::from(NO_CLASS) << CLASS_SHIFT, Relaxed);
        Some(handle)
    }

    /// Takes back a handle whose object is gone (see [`HandleTable::clear`]).
    pub fn free(&self, handle: u32) {
        let mut free = self.free.lock();
        let entry = u64::from(NO_CLASS) << CLASS_SHIFT | u64::from(free.first) << 32;
        self.entries.word(handle as usize).store(entry, Relaxed);
        free.first = handle;
    }

    /// The entry of `handle`, if the number is in range and somebody may use the object.
    #[inline]
    pub fn live(&self, handle: u32) -> Option<HandleEntry> {
        let entry = self.load(handle)?;
        (entry.refs() != 0).then_some(entry)
    }

    /// The entry of `handle`, if the number is in range, whatever its count.
    #[inline]
    pub fn load(&self, handle: u32) -> Option<HandleEntry> {
        if handle == 0 || handle > self.max {
            return None;
        }
        Some(HandleEntry(self.entries.word(handle as usize).load(Acquire)))
    }

    /// Gives `handle` its object. The caller holds the class's write lock.
    pub fn publish(&self, handle: u32, place: Place, class: u8, refs: u32) {
        let entry = HandleEntry::new(place, class, refs.min(REFS_PINNED));
        self.entries.word(handle as usize).store(entry.0, Release);
    }

    /// Says that the object has moved. The caller holds the class's write lock.
    pub fn relocate(&self, handle: u32, place: Place) {
        let keep = (1 << OBJECT_SHIFT) - 1;
        let moved = HandleEntry::new(place, 0, 0).0;
        let word = self.entries.word(handle as usize);
        let _ = word.fetch_update(AcqRel, Acquire, |entry| Some(entry & keep | moved));
    }

    /// Says that there is no object any more. The caller holds the class's write lock.
    pub fn clear(&self, handle: u32) {
        let word = self.entries.word(handle as usize);
        word.store(u64::from(NO_CLASS) << CLASS_SHIFT, Release);
    }

    /// One more reference; false if nobody has one.
    pub fn retain(&self, handle: u32) -> bool {
        if self.live(handle).is_none() {
            return false;
        }
        let word = self.entries.word(handle as usize);
        let more = |entry: u64| match HandleEntry(entry).refs() {
            0 => None,
            REFS_PINNED => Some(entry),
            _ => Some(entry + 1),
        };
        word.fetch_update(AcqRel, Acquire, more).is_ok()
    }

    /// One reference fewer; true if it was the last, and the caller must remove the object.
    pub fn release(&self, handle: u32) -> bool {
        if self.live(handle).is_none() {
            return false;
        }
        let word = self.entries.word(handle as usize);
        let fewer = |entry: u64| match HandleEntry(entry).refs() {
            0 | REFS_PINNED => None,
            _ => Some(entry - 1),
        };
        word.fetch_update(AcqRel, Acquire, fewer)
            .is_ok_and(|before| HandleEntry(before).refs() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_fields_apart() {
        let place = Place { slab: (1 << 24) - 1, object: 1023 };
        let entry = HandleEntry::new(place, 200, 5);
        assert_eq!((entry.place(), entry.class(), entry.refs()), (place, Some(200), 5));
        let entry = HandleEntry::new(Place { slab: 0, object: 0 }, 0, 0);
        assert_eq!((entry.class(), entry.refs()), (Some(0), 0));
    }

    #[test]
    fn handles_are_never_zero_and_come_back() {
        let budget = Budget::new(1 << 20);
        let table = HandleTable::new(3, 99).unwrap();
        let all: Vec<u32> = (0..3).map(|_| table.alloc(&budget).unwrap()).collect();
        assert!(!all.contains(&0));
        assert_eq!(table.alloc(&budget), None);
        table.free(all[1]);
        assert_eq!(table.alloc(&budget), Some(all[1]));
        assert_eq!(table.seed(), 99);
    }

    #[test]
    fn the_last_reference_is_told_and_a_full_count_sticks() {
        let budget = Budget::new(1 << 20);
        let table = HandleTable::new(3, 0).unwrap();
        let handle = table.alloc(&budget).unwrap();
        assert!(!table.retain(handle) && !table.release(handle));
        table.publish(handle, Place { slab: 7, object: 1 }, 3, 1);
        assert!(table.retain(handle));
        table.relocate(handle, Place { slab: 9, object: 2 });
        let entry = table.live(handle).unwrap();
        assert_eq!((entry.refs(), entry.place().slab, entry.class()), (2, 9, Some(3)));
        assert!(!table.release(handle));
        assert!(table.release(handle));
        assert!(!table.release(handle) && !table.retain(handle));
        table.publish(handle, Place { slab: 7, object: 1 }, 3, u32::MAX);
        assert!(table.retain(handle) && !table.release(handle));
        assert_eq!(table.live(handle).unwrap().refs(), REFS_PINNED);
    }
}

//! The handle table: who asks with a handle learns where the object is now.
//!
//! One word a handle: bits 0..22 references, 22..30 class, 30..40 object in the slab, 40..64 slab.
//! Class 255 means that there is no object; a free handle then has the next free one in bits
//! 32..64. Class 254 means that the object is lost, but that there are pages which name the handle:
//! it is not given to anybody else. Word 0 belongs to no handle and keeps the seed of the checksums.
//!
//! Place and class of an entry change only under the write lock of its class; references change at
//! any time, by compare-and-swap. A count that reaches its maximum stays there: such a block is
//! never freed, which is a leak and not an error. Parts of blocks are counted so from the start,
//! hence releasing one by mistake does nothing.
//!
//! The lock of the free list is a leaf.

use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::budget::Budget;
use super::class::FRAME_BYTES;
use crate::adopt::AdoptError;
use crate::segment::{Segment, SegmentError, in_order};

const REFS_BITS: u32 = 22;
const CLASS_SHIFT: u32 = 22;
const OBJECT_SHIFT: u32 = 30;
const SLAB_SHIFT: u32 = 40;
const NO_CLASS: u8 = 255;
const LOST_CLASS: u8 = 254;
/// References that are not counted any more.
pub const REFS_PINNED: u32 = (1 << REFS_BITS) - 1;
/// Slabs that an entry can name.
pub const MAX_SLABS: usize = 1 << 24;
/// No table ever has this handle, whatever its size.
pub const NO_HANDLE: u32 = u32::MAX;

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
    /// No object, and the next free handle.
    const fn free(next: u32) -> HandleEntry {
        HandleEntry((NO_CLASS as u64) << CLASS_SHIFT | (next as u64) << 32)
    }

    /// Never released, hence never given to anybody else.
    const LOST: HandleEntry = HandleEntry((LOST_CLASS as u64) << CLASS_SHIFT | REFS_PINNED as u64);

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
        (class < LOST_CLASS).then_some(class)
    }

    /// Whether nobody has ever written it.
    pub(super) fn is_blank(self) -> bool {
        self.0 == 0
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
    /// Handles behind `high` that pages name, descending: as good as lost.
    barred: Vec<u32>,
}

/// What becomes of a handle that a predecessor left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It keeps its object, with so many references.
    Live(u32),
    /// It has none, and pages name it.
    Lost,
    /// It is free.
    Free,
}

/// The table.
#[derive(Debug)]
pub struct HandleTable {
    entries: Segment,
    max: u32,
    /// Handles that were ever used, word 0 included. Behind them there may be no memory. Changes
    /// under the lock.
    high: AtomicU32,
    free: Mutex<FreeHandles>,
}

impl HandleTable {
    /// Room for `handles` handles, with `seed` in word 0. Takes one frame from `budget` if it has
    /// one left.
    pub fn new(handles: u64, seed: u64) -> Result<HandleTable, SegmentError> {
        let max = handles.clamp(1, u64::from(NO_HANDLE) - 1) as u32;
        let entries = Segment::new("clew-handles", (max as usize + 1) * 8)?;
        entries.populate(0, FRAME_BYTES)?;
        entries.word(0).store(seed, Relaxed);
        let free = Mutex::new(FreeHandles { first: 0, barred: Vec::new() });
        Ok(HandleTable { entries, max, high: AtomicU32::new(1), free })
    }

    /// A predecessor's table, with all handles that there is memory for. Their words may be read, but
    /// mean nothing and may not be changed before [`HandleTable::rebuild`].
    ///
    /// # Errors
    /// If the system refuses, or the seed is gone.
    pub(super) fn adopt(fd: OwnedFd) -> Result<HandleTable, AdoptError> {
        let entries = Segment::adopt("clew-handles", fd)?;
        let max = (entries.len() / 8 - 1).min(NO_HANDLE as usize - 1) as u32;
        // Frames are taken into use from the first on: what follows a hole is none of ours.
        let known = (entries.leading_bytes()? / 8).min(max as usize + 1) as u32;
        if known == 0 {
            return Err(AdoptError::NoSeed);
        }
        let free = Mutex::new(FreeHandles { first: 0, barred: Vec::new() });
        Ok(HandleTable { entries, max, high: AtomicU32::new(known), free })
    }

    /// Writes every word anew, and the free list, and gives up the frames behind the last handle in
    /// use. `beyond` are handles for which there was no memory and which pages name.
    ///
    /// # Errors
    /// If the system refuses; can be done again.
    pub(super) fn rebuild(
        &mut self,
        fate: impl Fn(u32) -> Fate,
        mut beyond: Vec<u32>,
    ) -> Result<(), SegmentError> {
        let known = *self.high.get_mut();
        let high = (1..known).rev().find(|handle| fate(*handle) != Fate::Free).unwrap_or(0) + 1;
        let mut first = 0;
        // Descending: the lowest is taken first.
        for handle in (1..high).rev() {
            let word = self.entries.word(handle as usize);
            let entry = match fate(handle) {
                Fate::Live(refs) => {
                    let kept = word.load(Relaxed) & !u64::from(REFS_PINNED);
                    HandleEntry(kept | u64::from(refs.min(REFS_PINNED)))
                }
                Fate::Lost => HandleEntry::LOST,
                Fate::Free => HandleEntry::free(std::mem::replace(&mut first, handle)),
            };
            word.store(entry.0, Release);
        }
        let kept = (high as usize * 8).next_multiple_of(FRAME_BYTES);
        for handle in high as usize..(known as usize).min(kept / 8) {
            self.entries.word(handle).store(0, Release);
        }
        if kept < self.entries.len() {
            self.entries.punch(kept, self.entries.len() - kept)?;
        }
        beyond.sort_unstable_by(|a, b| b.cmp(a));
        *self.high.get_mut() = high;
        *self.free.get_mut() = FreeHandles { first, barred: beyond };
        Ok(())
    }

    /// Handles that were ever used, word 0 included.
    pub(super) fn known(&self) -> u32 {
        self.high.load(Relaxed)
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
        (u64::from(self.high.load(Relaxed)) * 8).div_ceil(FRAME_BYTES as u64)
    }

    /// A handle without an object; `None` if the table or the budget is full.
    pub fn alloc(&self, budget: &Budget) -> Option<u32> {
        let mut free = self.free.lock();
        if free.first != 0 {
            let handle = free.first;
            free.first = (self.entries.word(handle as usize).load(Relaxed) >> 32) as u32;
            return Some(handle);
        }
        loop {
            let handle = self.high.load(Relaxed);
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
            let barred = free.barred.last() == Some(&handle);
            let entry = if barred { HandleEntry::LOST } else { HandleEntry::free(0) };
            self.entries.word(handle as usize).store(entry.0, Release);
            self.high.store(handle + 1, Release);
            if !barred {
                return Some(handle);
            }
            free.barred.pop();
        }
    }

    /// Takes back a handle whose object is gone (see [`HandleTable::clear`]).
    pub fn free(&self, handle: u32) {
        let mut free = self.free.lock();
        let entry = HandleEntry::free(free.first);
        self.entries.word(handle as usize).store(entry.0, Release);
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
        if handle == 0 || handle >= self.high.load(Relaxed) {
            return None;
        }
        Some(HandleEntry(self.entries.word(handle as usize).load(Acquire)))
    }

    /// Gives `handle` its object, which is complete. The caller holds the class's write lock.
    pub fn publish(&self, handle: u32, place: Place, class: u8, refs: u32) {
        let entry = HandleEntry::new(place, class, refs.min(REFS_PINNED));
        in_order();
        self.entries.word(handle as usize).store(entry.0, Release);
    }

    /// Says that the object has moved and is complete at its new place; the old one may be written
    /// over from now on. The caller holds the class's write lock.
    pub fn relocate(&self, handle: u32, place: Place) {
        let keep = (1 << OBJECT_SHIFT) - 1;
        let moved = HandleEntry::new(place, 0, 0).0;
        let word = self.entries.word(handle as usize);
        in_order();
        let _ = word.fetch_update(AcqRel, Acquire, |entry| Some(entry & keep | moved));
        in_order();
    }

    /// Says that the object is another, which is complete at its place; false, and nothing said, if
    /// nobody has a reference any more. The old one may be written over from now on. The caller holds
    /// the write locks of both classes.
    pub fn exchange(&self, handle: u32, place: Place, class: u8) -> bool {
        let word = self.entries.word(handle as usize);
        in_order();
        let other = |entry: u64| match HandleEntry(entry).refs() {
            0 => None,
            refs => Some(HandleEntry::new(place, class, refs).0),
        };
        let done = word.fetch_update(AcqRel, Acquire, other).is_ok();
        in_order();
        done
    }

    /// Says that there is no object any more; its place may be written over from now on. The caller
    /// holds the class's write lock.
    pub fn clear(&self, handle: u32) {
        self.entries.word(handle as usize).store(HandleEntry::free(0).0, Release);
        in_order();
    }

    /// One more reference; false if nobody has one.
    #[inline]
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
    #[inline]
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

//! Slabs: stretches of the arena that hold objects of one class.
//!
//! A slab owns 32 KiB of address space and memory for its first `frames` frames, as far as its
//! objects reach and a little further, which is what it is charged for. Its 16-byte record is kept
//! in a segment of its own. The same table has the frames of z3fold, of which each is a slab of one frame
//! with another record ([`Record`]). Records of slabs that a class owns change only under that class's write
//! lock, records of free slabs under the lock here, which is a leaf below the class locks.
//!
//! Some freed slabs keep their frames, for taking memory from the kernel and giving it back costs
//! about 2 us a frame. They count as used.
//!
//! A successor believes nothing of the records: of a process that was killed they may be half
//! written, or from before. It asks the kernel for the frames, takes the objects from the handle
//! table and writes the records anew. It counts on this alone: the frames of the records are taken
//! into use from the first on and kept, those of a slab too until it is empty.

use parking_lot::Mutex;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::budget::{Budget, For};
use super::class::{FRAME_BYTES, SLAB_FRAMES};
use super::handle::MAX_SLABS;
use crate::segment::{Segment, SegmentError};

/// No slab, at the ends of lists.
pub const NO_SLAB: u32 = u32::MAX;
/// No object, at the end of a slab's free list.
pub const NO_OBJECT: u16 = u16::MAX;
const RECORD_HALVES: usize = 4;
const RECORD_BYTES: usize = RECORD_HALVES * 4;

/// What is known of a slab, whatever lies in it: four words of four bytes, of which the second is the
/// next slab's number.
pub trait Record: Copy {
    /// Frames of address space that each has, 8 at most.
    const SLAB_FRAMES: usize;
    /// What the segments are called: frames, records.
    const NAMES: [&str; 2];

    /// Of a free slab, which has so many frames.
    fn free(next: u32, frames: u8) -> Self;

    /// Frames that have memory.
    fn frames(self) -> u8;

    /// How it is kept.
    fn to_words(self) -> [u32; RECORD_HALVES];

    /// As it was kept.
    fn of_words(words: [u32; RECORD_HALVES]) -> Self;
}

/// What is known of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabRecord {
    /// Neighbours in the list it is in.
    pub prev: u32,
    /// As above.
    pub next: u32,
    /// Objects in use.
    pub used: u16,
    /// Objects that were ever in use; what lies behind them means nothing.
    pub fresh: u16,
    /// First free object below `fresh`.
    pub free: u16,
    /// The class that owns it.
    pub class: u8,
    /// Frames that have memory.
    pub frames: u8,
}

impl SlabRecord {
    /// An empty slab of `class`, in no list.
    pub fn of(class: u8, frames: u8) -> SlabRecord {
        SlabRecord {
            prev: NO_SLAB,
            next: NO_SLAB,
            used: 0,
            fresh: 0,
            free: NO_OBJECT,
            class,
            frames,
        }
    }
}

impl Record for SlabRecord {
    const SLAB_FRAMES: usize = SLAB_FRAMES;
    const NAMES: [&str; 2] = ["clew-arena", "clew-slabs"];

    fn free(next: u32, frames: u8) -> SlabRecord {
        SlabRecord { next, ..SlabRecord::of(0, frames) }
    }

    fn frames(self) -> u8 {
        self.frames
    }

    fn to_words(self) -> [u32; RECORD_HALVES] {
        let counts = u32::from(self.used) | u32::from(self.fresh) << 16;
        let rest =
            u32::from(self.free) | u32::from(self.class) << 16 | u32::from(self.frames) << 24;
        [self.prev, self.next, counts, rest]
    }

    fn of_words([prev, next, counts, rest]: [u32; RECORD_HALVES]) -> SlabRecord {
        SlabRecord {
            prev,
            next,
            used: counts as u16,
            fresh: (counts >> 16) as u16,
            free: rest as u16,
            class: (rest >> 16) as u8,
            frames: (rest >> 24) as u8,
        }
    }
}

#[derive(Debug)]
struct FreeSlabs {
    /// Free slabs with frames, at most `kept_frames` in sum.
    kept: Vec<u32>,
    kept_frames: u64,
    /// First free slab without frames.
    bare: u32,
    /// Slabs ever used.
    high: u32,
}

/// All slabs, and the arena they lie in.
#[derive(Debug)]
pub struct SlabTable<R = SlabRecord> {
    arena: Segment,
    records: Segment,
    max: u32,
    free: Mutex<FreeSlabs>,
    punch_failures: AtomicU64,
    of: PhantomData<fn() -> R>,
}

impl<R: Record> SlabTable<R> {
    /// Address space of a slab, bytes.
    const SLAB_BYTES: usize = R::SLAB_FRAMES * FRAME_BYTES;

    /// Address space for `slabs` slabs.
    pub fn new(slabs: usize) -> Result<SlabTable<R>, SegmentError> {
        let [arena, records] = R::NAMES;
        let arena = Segment::new(arena, slabs * Self::SLAB_BYTES)?;
        Ok(SlabTable::over(arena, Segment::new(records, slabs * RECORD_BYTES)?, slabs, 0))
    }

    /// In these segments, with `high` slabs that were ever used and are not free.
    fn over(arena: Segment, records: Segment, max: usize, high: usize) -> SlabTable<R> {
        let free = FreeSlabs { kept: Vec::new(), kept_frames: 0, bare: NO_SLAB, high: high as u32 };
        SlabTable {
            arena,
            records,
            max: max as u32,
            free: Mutex::new(free),
            punch_failures: AtomicU64::new(0),
            of: PhantomData,
        }
    }

    /// A predecessor's slabs, with all records that there is memory for; what they say means nothing
    /// before [`SlabTable::rebuild`]. Answers which frames of each slab have memory, a bit each.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn adopt(
        arena: OwnedFd,
        records: OwnedFd,
    ) -> Result<(SlabTable<R>, Vec<u8>), SegmentError> {
        let arena = Segment::adopt(R::NAMES[0], arena)?;
        let records = Segment::adopt(R::NAMES[1], records)?;
        let max = (arena.len() / Self::SLAB_BYTES).min(records.len() / RECORD_BYTES).min(MAX_SLABS);
        let known = (records.leading_bytes()? / RECORD_BYTES).min(max);
        let mut frames = vec![0u8; known];
        arena.for_data(|data| {
            for frame in data.start / FRAME_BYTES..data.end / FRAME_BYTES {
                if let Some(slab) = frames.get_mut(frame / R::SLAB_FRAMES) {
                    *slab |= 1 << (frame % R::SLAB_FRAMES);
                }
            }
        })?;
        let table = SlabTable::over(arena, records, max, known);
        Ok((table, frames))
    }

    /// Gives up all frames but the first `keep[slab]` of each slab, and makes slabs without any
    /// free. `frames` is what [`SlabTable::adopt`] answered.
    ///
    /// # Errors
    /// If the system refuses; can be done again.
    pub(super) fn rebuild(&mut self, frames: &[u8], keep: &[u8]) -> Result<(), SegmentError> {
        let high = keep.iter().rposition(|kept| *kept > 0).map_or(0, |slab| slab + 1);
        // Neighbouring slabs in one call.
        let mut pending: Option<(usize, usize)> = None;
        for (slab, (frames, kept)) in frames.iter().zip(keep).take(high).enumerate() {
            let (from, to) =
                (slab * R::SLAB_FRAMES + usize::from(*kept), (slab + 1) * R::SLAB_FRAMES);
            if u32::from(*frames) >> kept == 0 {
                continue;
            }
            pending = match pending {
                Some((start, end)) if end == from => Some((start, to)),
                Some((start, end)) => {
                    self.arena.punch(start * FRAME_BYTES, (end - start) * FRAME_BYTES)?;
                    Some((from, to))
                }
                None => Some((from, to)),
            };
        }
        let behind = high * R::SLAB_FRAMES;
        let (start, end) = pending.unwrap_or((behind, behind));
        self.arena.punch(start * FRAME_BYTES, (end - start) * FRAME_BYTES)?;
        self.arena.punch(behind * FRAME_BYTES, self.arena.len() - behind * FRAME_BYTES)?;
        let records = (high * RECORD_BYTES).next_multiple_of(FRAME_BYTES);
        self.records.punch(records, self.records.len() - records)?;
        let mut bare = NO_SLAB;
        // Descending: the lowest is taken first.
        for slab in (0..high as u32).rev() {
            if keep[slab as usize] == 0 {
                self.set(slab, R::free(bare, 0));
                bare = slab;
            }
        }
        let free = self.free.get_mut();
        (free.bare, free.high) = (bare, high as u32);
        Ok(())
    }

    /// The frames.
    #[inline]
    pub fn arena(&self) -> &Segment {
        &self.arena
    }

    /// The records, for a successor.
    pub fn records(&self) -> &Segment {
        &self.records
    }

    /// Frames of the records in use.
    pub fn record_frames(&self) -> u64 {
        (u64::from(self.free.lock().high) * RECORD_BYTES as u64).div_ceil(FRAME_BYTES as u64)
    }

    /// Times the kernel refused to take memory back.
    pub fn punch_failures(&self) -> u64 {
        self.punch_failures.load(Relaxed)
    }

    /// The record of `slab`.
    pub fn get(&self, slab: u32) -> R {
        let at = slab as usize * RECORD_HALVES;
        R::of_words(std::array::from_fn(|i| self.records.half(at + i).load(Relaxed)))
    }

    /// Changes the record of `slab`.
    pub fn set(&self, slab: u32, record: R) {
        let at = slab as usize * RECORD_HALVES;
        for (i, half) in record.to_words().into_iter().enumerate() {
            self.records.half(at + i).store(half, Relaxed);
        }
    }

    /// The slab behind a free one in the list of those without frames.
    fn next_of(&self, slab: u32) -> u32 {
        self.records.half(slab as usize * RECORD_HALVES + 1).load(Relaxed)
    }

    /// An empty slab, and how many frames it has, at most `max_frames`; whoever asks writes its record. `None` if
    /// the address space or, for its record, the budget is exhausted.
    pub fn alloc(&self, max_frames: u8, what: For, budget: &Budget) -> Option<(u32, u8)> {
        let mut free = self.free.lock();
        let mut frames = 0;
        let slab = if let Some(slab) = free.kept.pop() {
            frames = self.get(slab).frames();
            free.kept_frames -= u64::from(frames);
            slab
        } else if free.bare != NO_SLAB {
            let slab = free.bare;
            free.bare = self.next_of(slab);
            slab
        } else {
            let slab = free.high;
            let offset = slab as usize * RECORD_BYTES;
            if slab >= self.max {
                return None;
            }
            if offset.is_multiple_of(FRAME_BYTES) {
                if !budget.charge_for(what, 1) {
                    return None;
                }
                if self.records.populate(offset, FRAME_BYTES).is_err() {
                    budget.refund(1);
                    return None;
                }
            }
            free.high += 1;
            slab
        };
        drop(free);
        if frames > max_frames {
            self.punch(slab, max_frames, frames, budget);
            frames = max_frames;
        }
        Some((slab, frames))
    }

    /// Gives frames `from..to` of a slab back.
    fn punch(&self, slab: u32, from: u8, to: u8, budget: &Budget) {
        let offset = slab as usize * Self::SLAB_BYTES + usize::from(from) * FRAME_BYTES;
        let frames = usize::from(to - from);
        if self.arena.punch(offset, frames * FRAME_BYTES).is_err() {
            // The memory stays ours until the slab is used and freed again.
            self.punch_failures.fetch_add(1, Relaxed);
        }
        budget.refund(frames as u64);
    }

    /// Takes an empty slab from its class, which holds no lock any more. Returns the frames given
    /// back to the kernel.
    pub fn release(&self, slab: u32, budget: &Budget) -> u64 {
        let frames = u64::from(self.get(slab).frames());
        {
            let mut free = self.free.lock();
            if free.kept_frames + frames <= 16 + budget.used_frames() / 64 {
                free.kept_frames += frames;
                free.kept.push(slab);
                return 0;
            }
        }
        self.release_bare(slab, budget)
    }

    fn release_bare(&self, slab: u32, budget: &Budget) -> u64 {
        let frames = self.get(slab).frames();
        self.punch(slab, 0, frames, budget);
        let mut free = self.free.lock();
        self.set(slab, R::free(free.bare, 0));
        free.bare = slab;
        u64::from(frames)
    }

    /// Gives the frames of free slabs back to the kernel; returns how many.
    pub fn trim(&self, budget: &Budget) -> u64 {
        let kept = {
            let mut free = self.free.lock();
            free.kept_frames = 0;
            std::mem::take(&mut free.kept)
        };
        kept.into_iter().map(|slab| self.release_bare(slab, budget)).sum()
    }
}

#[cfg(test)]
impl<R: Record> SlabTable<R> {
    pub(super) fn high(&self) -> u32 {
        self.free.lock().high
    }

    pub(super) fn kept_frames(&self) -> u64 {
        self.free.lock().kept_frames
    }

    pub(super) fn is_free(&self, slab: u32) -> bool {
        let free = self.free.lock();
        let mut bare = free.bare;
        while bare != NO_SLAB {
            if bare == slab {
                return true;
            }
            bare = self.next_of(bare);
        }
        free.kept.contains(&slab)
    }
}

//! What a successor must know of a log: which generations were used, and what is in its buffers. It lies in two
//! segments: the ledger itself, and the buffers, in which log segments wait to be written.
//!
//! | word of the ledger | what |
//! |---|---|
//! | 0 | says what it is |
//! | 1 | the first generation that was never used |
//! | 2 | the same, inverted |
//! | 3 | bytes of a slot (low half), buffers (high half) |
//! | 4 | slots of the device |
//! | 8 + 2b | generation of the log segment in buffer b, zero for none |
//! | 9 + 2b | its slot |
//!
//! A generation is taken by writing words 1 and 2, in this order, before the segment has a byte; so who dies in between
//! leaves word 1 one larger. Anything else is damage, and then no generation is known to be fresh.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use super::device::{ALIGN, HEAD_BYTES};
use super::{AdoptFlashError, MAX_SLOTS};
use crate::segment::{Segment, SegmentError, in_order};

const MAGIC: u64 = u64::from_le_bytes(*b"clewlog1");
/// Memory is asked for in steps of it.
const STEP: usize = 64 << 10;

/// How a device is used. All that outlives a daemon depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a slot, a multiple of 4 KiB.
    pub slot_bytes: u32,
    /// Slots of the device.
    pub slots: u32,
    /// Log segments that can be in memory at a time.
    pub buffers: u32,
}

impl Shape {
    pub fn is_sound(self) -> bool {
        let Shape { slot_bytes, slots, buffers } = self;
        slot_bytes > 0
            && (slot_bytes as usize).is_multiple_of(ALIGN)
            && slot_bytes <= 64 << 20
            && (1..=256).contains(&buffers)
            && (1..=MAX_SLOTS).contains(&slots)
    }

    /// Where a slot begins on the device, bytes.
    pub fn at(self, slot: u32) -> u64 {
        HEAD_BYTES + u64::from(slot) * u64::from(self.slot_bytes)
    }
}

/// The ledger and the buffers.
#[derive(Debug)]
pub(super) struct Ledger {
    words: Segment,
    buffers: Segment,
    pub shape: Shape,
}

impl Ledger {
    pub fn new(shape: Shape) -> Result<Ledger, SegmentError> {
        let words = Segment::new("clew-flash-log", ALIGN)?;
        words.populate(0, ALIGN)?;
        let bytes = shape.buffers as usize * shape.slot_bytes as usize;
        let buffers = Segment::new("clew-flash-buffers", bytes)?;
        let set = |word: usize, value: u64| words.word(word).store(value, Relaxed);
        set(1, 1);
        set(2, !1);
        set(3, u64::from(shape.buffers) << 32 | u64::from(shape.slot_bytes));
        set(4, u64::from(shape.slots));
        in_order();
        set(0, MAGIC);
        Ok(Ledger { words, buffers, shape })
    }

    /// What a predecessor left; whether it is known which generations were used.
    ///
    /// # Errors
    /// If the system refuses, or it is no ledger.
    pub fn adopt(words: OwnedFd, buffers: OwnedFd) -> Result<(Ledger, bool), AdoptFlashError> {
        let words = Segment::adopt("clew-flash-log", words)?;
        let buffers = Segment::adopt("clew-flash-buffers", buffers)?;
        if words.len() != ALIGN || words.leading_bytes()? != ALIGN {
            return Err(AdoptFlashError::Ledger);
        }
        let get = |word: usize| words.word(word).load(Relaxed);
        let slots = u32::try_from(get(4)).map_err(|_| AdoptFlashError::Ledger)?;
        let shape = Shape { slot_bytes: get(3) as u32, slots, buffers: (get(3) >> 32) as u32 };
        let bytes = u64::from(shape.buffers) * u64::from(shape.slot_bytes);
        if get(0) != MAGIC || !shape.is_sound() || buffers.len() as u64 != bytes {
            return Err(AdoptFlashError::Ledger);
        }
        let (next, said) = (get(1), !get(2));
        let is_known = next > 0 && (next == said || next == said.wrapping_add(1));
        Ok((Ledger { words, buffers, shape }, is_known))
    }

    pub fn segments(&self) -> [&Segment; 2] {
        [&self.words, &self.buffers]
    }

    /// The first generation that was never used.
    pub fn next(&self) -> u64 {
        self.words.word(1).load(Relaxed)
    }

    /// A generation that was never used, and never will be again.
    pub fn take_generation(&self) -> u64 {
        let generation = self.next();
        self.words.word(1).store(generation + 1, Relaxed);
        in_order();
        self.words.word(2).store(!(generation + 1), Relaxed);
        in_order();
        generation
    }

    /// Says which log segment is in a buffer from now on.
    pub fn note(&self, buffer: usize, generation: u64, slot: u32) {
        self.words.word(9 + 2 * buffer).store(u64::from(slot), Relaxed);
        in_order();
        self.words.word(8 + 2 * buffer).store(generation, Relaxed);
        in_order();
    }

    /// Generation and slot of what is in a buffer.
    pub fn noted(&self, buffer: usize) -> Option<(u64, u32)> {
        let generation = self.words.word(8 + 2 * buffer).load(Relaxed);
        let slot = self.words.word(9 + 2 * buffer).load(Relaxed);
        let slot = u32::try_from(slot).ok().filter(|slot| *slot < self.shape.slots)?;
        (generation != 0).then_some((generation, slot))
    }

    /// Says that there is nothing in a buffer.
    pub fn clear(&self, buffer: usize) {
        in_order();
        self.words.word(8 + 2 * buffer).store(0, Relaxed);
        in_order();
    }

    /// Gives a buffer's memory back.
    pub fn empty(&self, buffer: usize) -> Result<(), SegmentError> {
        self.buffers.punch(self.offset(buffer, 0), self.shape.slot_bytes as usize)
    }

    /// Bytes of each buffer that have memory, from its first on.
    pub fn memory(&self) -> Result<Vec<usize>, SegmentError> {
        let bytes = self.shape.slot_bytes as usize;
        let mut memory = vec![0; self.shape.buffers as usize];
        self.buffers.for_data(|data| {
            for (buffer, memory) in memory.iter_mut().enumerate() {
                let (start, end) = (buffer * bytes, (buffer + 1) * bytes);
                // What is behind a hole was never filled.
                if data.start <= start + *memory && data.end > start {
                    *memory = data.end.min(end) - start;
                }
            }
        })?;
        Ok(memory)
    }

    /// Where byte `offset` of a buffer is in the segment of all.
    pub fn offset(&self, buffer: usize, offset: usize) -> usize {
        buffer * self.shape.slot_bytes as usize + offset
    }

    /// Has memory under a buffer up to byte `to`, where there is some up to `has`; up to where there is then.
    pub fn grow(&self, buffer: usize, has: usize, to: usize) -> Result<usize, SegmentError> {
        let wanted = to.next_multiple_of(STEP).min(self.shape.slot_bytes as usize);
        if wanted > has {
            self.buffers.populate(self.offset(buffer, has), wanted - has)?;
        }
        Ok(has.max(wanted))
    }
}

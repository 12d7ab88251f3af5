//! What a successor needs to know of two copies: a word for each piece, in a segment of its own.
//!
//! | bits | what |
//! |---|---|
//! | 0..32 | bytes of the piece |
//! | 32, 33 | the first has it, the second has it |
//! | 34 | there is one: one of them had it once |
//!
//! Pieces begin where slots of a log do. A word that could not be written for want of memory is missing, or old: who reads
//! then asks the wrong one of the two first, and the other one when that has it not, or has other bytes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clew_store::flash::device::HEAD_BYTES;
use clew_store::{Segment, SegmentError};

const NAME: &str = "clew-copies";
const WORD: usize = 8;
const HAS: [u64; 2] = [1 << 32, 1 << 33];
const IS_THERE: u64 = 1 << 34;

/// The words.
#[derive(Debug)]
pub struct Record {
    segment: Segment,
    /// Bytes of a slot.
    chunk: u64,
}

impl Record {
    /// For a device of `bytes` whose log has slots of `chunk` bytes.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(bytes: u64, chunk: u64) -> Result<Record, SegmentError> {
        let slots = bytes.saturating_sub(HEAD_BYTES) / chunk.max(1);
        Ok(Record { segment: Segment::new(NAME, slots as usize * WORD)?, chunk: chunk.max(1) })
    }

    /// What a predecessor has written down.
    ///
    /// # Errors
    /// If it is no such segment.
    pub fn adopt(fd: OwnedFd, chunk: u64) -> Result<Record, SegmentError> {
        Ok(Record { segment: Segment::adopt(NAME, fd)?, chunk: chunk.max(1) })
    }

    fn place(&self, at: u64) -> Option<usize> {
        let from = at.checked_sub(HEAD_BYTES).filter(|from| from.is_multiple_of(self.chunk))?;
        let place = usize::try_from(from / self.chunk).ok()?.checked_mul(WORD)?;
        (place < self.segment.len()).then_some(place)
    }

    fn store(&self, at: u64, word: u64) {
        if let Some(place) = self.place(at) {
            // Within one page, so a kill does not cut it in two.
            let _ = self.segment.write_at(place, &word.to_le_bytes());
        }
    }

    /// A piece of `len` bytes is there, and who has it.
    pub(super) fn note(&self, at: u64, len: u64, has: [bool; 2]) {
        let flags = HAS.into_iter().zip(has).filter(|(_, has)| *has).map(|(flag, _)| flag);
        self.store(at, len & 0xffff_ffff | flags.sum::<u64>() | IS_THERE);
    }

    /// There is none any more.
    pub(super) fn forget(&self, at: u64) {
        self.store(at, 0);
    }

    /// Where each piece begins, its bytes, and who has it.
    pub(super) fn read(&self) -> Vec<(u64, u64, [bool; 2])> {
        let mut there = Vec::new();
        // Holes take no memory by this.
        let _ = self.segment.for_data(|range| {
            let mut words = vec![0; range.len()];
            if self.segment.read_at(range.start, &mut words).is_err() {
                return;
            }
            for (number, word) in words.as_chunks::<WORD>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if word & IS_THERE != 0 {
                    let slot = (range.start / WORD + number) as u64;
                    let len = (word & 0xffff_ffff).min(self.chunk);
                    let at = HEAD_BYTES + slot * self.chunk;
                    there.push((at, len, HAS.map(|flag| word & flag != 0)));
                }
            }
        });
        there
    }
}

impl AsFd for Record {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }
}

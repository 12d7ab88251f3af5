//! The frames of z3fold that have fewer than three zpages, by how many chunks are free, so that the one that a
//! zpage fits best is found at once.
//!
//! Doubly linked lists through the frames' records, the newest first; a bit a list says that it has
//! somebody. Frames with three zpages, and such with nothing free, are in none (`buddied`).

use super::super::slab::{NO_SLAB, SlabTable};
use super::frame::{CHUNKS, FrameRecord};

/// Where the records of frames are kept.
pub trait Records {
    /// The record of a frame.
    fn record(&self, frame: u32) -> FrameRecord;

    /// Changes it.
    fn set_record(&self, frame: u32, record: FrameRecord);
}

impl Records for SlabTable<FrameRecord> {
    fn record(&self, frame: u32) -> FrameRecord {
        self.get(frame)
    }

    fn set_record(&self, frame: u32, record: FrameRecord) {
        self.set(frame, record);
    }
}

/// The lists, by free chunks.
#[derive(Debug)]
pub struct Unbuddied {
    heads: [u32; CHUNKS as usize + 1],
    /// Which lists have somebody: bit i - 1 for i free chunks.
    some: u64,
}

impl Default for Unbuddied {
    fn default() -> Unbuddied {
        Unbuddied::new()
    }
}

impl Unbuddied {
    /// Nobody.
    pub fn new() -> Unbuddied {
        Unbuddied { heads: [NO_SLAB; CHUNKS as usize + 1], some: 0 }
    }

    /// The frame with the least room of those with so many chunks.
    pub fn best(&self, chunks: u8) -> Option<u32> {
        let enough = self.some >> (chunks - 1);
        (enough != 0).then(|| self.heads[usize::from(chunks) + enough.trailing_zeros() as usize])
    }

    /// Writes the record of a frame that is in no list, and puts it in the one that it belongs to.
    pub fn link(&mut self, table: &impl Records, frame: u32, mut record: FrameRecord) {
        let free = record.free_chunks();
        (record.prev, record.next) = (NO_SLAB, NO_SLAB);
        if free > 0 {
            let head = &mut self.heads[usize::from(free)];
            record.next = std::mem::replace(head, frame);
            if record.next != NO_SLAB {
                let next = table.record(record.next);
                table.set_record(record.next, FrameRecord { prev: frame, ..next });
            }
            self.some |= 1 << (free - 1);
        }
        table.set_record(frame, record);
    }

    /// Takes a frame out of its list, if it is in one.
    pub fn unlink(&mut self, table: &impl Records, record: FrameRecord) {
        let free = record.free_chunks();
        if free == 0 {
            return;
        }
        match record.prev {
            NO_SLAB => {
                self.heads[usize::from(free)] = record.next;
                if record.next == NO_SLAB {
                    self.some &= !(1 << (free - 1));
                }
            }
            prev => table.set_record(prev, FrameRecord { next: record.next, ..table.record(prev) }),
        }
        if record.next != NO_SLAB {
            let next = table.record(record.next);
            table.set_record(record.next, FrameRecord { prev: record.prev, ..next });
        }
    }

    /// All frames that are in a list, with the list's number.
    #[cfg(test)]
    pub fn all(&self, table: &impl Records) -> Vec<(u32, u8)> {
        let mut all = Vec::new();
        for (free, head) in (0..).zip(self.heads) {
            let mut frame = head;
            while frame != NO_SLAB {
                all.push((frame, free));
                frame = table.record(frame).next;
            }
        }
        all
    }
}

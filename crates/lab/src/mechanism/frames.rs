//! The frames of a z3fold pool without bytes: which blocks share one, by the real pool's own rules
//! (`clew_store::pool::z3fold`), with what they take by a model.

use std::cell::Cell;
use std::collections::HashMap;

use clew_core::FrameFacts;
use clew_store::pool::class::FRAME_BYTES;
use clew_store::pool::z3fold::frame::{Buddy, CHUNK_BYTES, FrameRecord};
use clew_store::pool::z3fold::unbuddied::{Records, Unbuddied};

/// Records in memory of our own.
#[derive(Default)]
struct Table(Vec<Cell<FrameRecord>>);

impl Records for Table {
    fn record(&self, frame: u32) -> FrameRecord {
        self.0[frame as usize].get()
    }

    fn set_record(&self, frame: u32, record: FrameRecord) {
        self.0[frame as usize].set(record);
    }
}

/// The frames.
#[derive(Default)]
pub struct Frames {
    lists: Unbuddied,
    table: Table,
    /// The blocks that are first, in the middle and last in each frame.
    owners: Vec<[Option<u32>; 3]>,
    free: Vec<u32>,
    of: HashMap<u32, u32>,
}

/// Chunks of a block that shares a frame; larger ones have frames of their own, smaller ones are in none.
fn chunks_of(bytes: u32) -> Option<u8> {
    let bytes = bytes as usize;
    let shares = bytes > CHUNK_BYTES && bytes <= FRAME_BYTES;
    shares.then(|| bytes.div_ceil(CHUNK_BYTES) as u8)
}

fn alone(bytes: u32) -> u64 {
    match bytes as usize > FRAME_BYTES {
        true => u64::from(bytes).next_multiple_of(FRAME_BYTES as u64),
        false => u64::from(bytes),
    }
}

impl Frames {
    /// What putting a block of so many bytes takes of the pool, bytes.
    pub fn cost(&self, bytes: u32) -> u64 {
        match chunks_of(bytes) {
            Some(chunks) if self.lists.best(chunks).is_some() => 0,
            Some(_) => FRAME_BYTES as u64,
            None => alone(bytes),
        }
    }

    /// Puts a block, which took what [`Frames::cost`] said.
    pub fn put(&mut self, block: u32, bytes: u32) {
        let Some(chunks) = chunks_of(bytes) else { return };
        let frame = self.lists.best(chunks).unwrap_or_else(|| {
            let frame = self.free.pop().unwrap_or_else(|| {
                self.table.0.push(Cell::new(FrameRecord::EMPTY));
                self.owners.push([None; 3]);
                self.owners.len() as u32 - 1
            });
            self.lists.link(&self.table, frame, FrameRecord::EMPTY);
            frame
        });
        let mut record = self.table.record(frame);
        self.lists.unlink(&self.table, record);
        let (buddy, _) = record.put(chunks);
        self.lists.link(&self.table, frame, record);
        self.owners[frame as usize][buddy as usize] = Some(block);
        self.of.insert(block, frame);
    }

    /// Takes a block out; what that frees, bytes.
    pub fn take(&mut self, block: u32, bytes: u32) -> u64 {
        let Some(frame) = self.of.remove(&block) else { return alone(bytes) };
        let mut record = self.table.record(frame);
        self.lists.unlink(&self.table, record);
        let owners = &mut self.owners[frame as usize];
        for buddy in [Buddy::First, Buddy::Middle, Buddy::Last] {
            if owners[buddy as usize] == Some(block) {
                owners[buddy as usize] = None;
                record.take(buddy);
            }
        }
        if record.zpages() == 0 {
            self.free.push(frame);
            return FRAME_BYTES as u64;
        }
        if let Some((_, to)) = record.compaction() {
            record.compacted(to);
            if record.chunks(Buddy::Middle) == 0 {
                owners.swap(Buddy::First as usize, Buddy::Middle as usize);
            }
        }
        self.lists.link(&self.table, frame, record);
        0
    }

    /// The frame that a block is in.
    pub fn of(&self, block: u32) -> Option<FrameFacts> {
        let frame = *self.of.get(&block)?;
        let record = self.table.record(frame);
        Some(FrameFacts {
            frame,
            zpages: record.zpages(),
            free_chunks: record.free_chunks(),
            used_chunks: record.used_chunks(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_frames_and_give_them_back() {
        let mut frames = Frames::default();
        let mut used = 0;
        for (block, bytes) in [(1, 1280), (2, 1900), (3, 600), (4, 40), (5, 5000)] {
            used += frames.cost(bytes);
            frames.put(block, bytes);
        }
        assert_eq!(used, 4096 + 40 + 8192);
        let shared = FrameFacts { frame: 0, zpages: 3, free_chunks: 0, used_chunks: 60 };
        assert_eq!([1, 2, 3].map(|block| frames.of(block)), [Some(shared); 3]);
        assert_eq!((frames.of(4), frames.of(5)), (None, None));
        assert_eq!((frames.take(1, 1280), frames.take(4, 40), frames.take(5, 5000)), (0, 40, 8192));
        // The middle one has moved to the last.
        let shared = FrameFacts { frame: 0, zpages: 2, free_chunks: 64 - 30 - 10, used_chunks: 40 };
        assert_eq!(frames.of(3), Some(shared));
        assert_eq!((frames.take(2, 1900), frames.take(3, 600)), (0, 4096));
        assert_eq!((frames.of(3), frames.cost(4000)), (None, 4096));
    }
}

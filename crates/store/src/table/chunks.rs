//! Chunks: frames of 512 page table entries, all of one segment.
//!
//! A second segment says whose each chunk is (16 bytes: its number in the address space plus one,
//! and the space), so that a successor can put the tables of every space together again. A chunk of
//! a space that is gone is punched, so a fresh chunk is all zero.
//!
//! The lock of the free list is a leaf.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clew_core::{SpaceId, Vpn};

use crate::segment::{Segment, SegmentError};

/// Entries of a chunk.
pub(super) const CHUNK_PAGES: u64 = 512;
const CHUNK_BYTES: usize = 4096;
const OWNER_BYTES: usize = 16;
/// Chunks that a slot of the index can name.
const MAX_CHUNKS: u32 = (1 << 28) - 1;

/// Why a page table could not grow.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// All chunks are taken.
    #[error("all {chunks} page table chunks of 512 pages are in use")]
    Full {
        /// How many there are.
        chunks: u32,
    },
    /// The page number exceeds 57-bit addresses.
    #[error("page number {:#x} exceeds 57-bit addresses", vpn.0)]
    Range {
        /// The page.
        vpn: Vpn,
    },
    /// The system gave no memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

#[derive(Debug)]
struct FreeChunks {
    list: Vec<u32>,
    /// Chunks ever used, counting from 1.
    high: u32,
}

/// The memory of all page tables.
#[derive(Debug)]
pub struct Tables {
    chunks: Segment,
    owners: Segment,
    max: u32,
    free: Mutex<FreeChunks>,
}

impl Tables {
    /// Room for the tables of `pages` pages, if they fill their chunks. Takes address space only.
    pub fn new(pages: u64) -> Result<Tables, SegmentError> {
        let max = pages.div_ceil(CHUNK_PAGES).clamp(1, u64::from(MAX_CHUNKS)) as u32;
        Ok(Tables {
            chunks: Segment::new("clew-table", (max as usize + 1) * CHUNK_BYTES)?,
            owners: Segment::new("clew-table-owners", (max as usize + 1) * OWNER_BYTES)?,
            max,
            free: Mutex::new(FreeChunks { list: Vec::new(), high: 1 }),
        })
    }

    /// Chunks and their owners, for a successor.
    pub fn segments(&self) -> [&Segment; 2] {
        [&self.chunks, &self.owners]
    }

    /// Memory in use, bytes.
    pub fn used_bytes(&self) -> u64 {
        let free = self.free.lock();
        let chunks = u64::from(free.high) - 1 - free.list.len() as u64;
        let owners = match free.high {
            1 => 0,
            high => (u64::from(high) * OWNER_BYTES as u64).div_ceil(4096),
        };
        chunks * CHUNK_BYTES as u64 + owners * 4096
    }

    /// A zero chunk for pages `512 * number..` of `space`.
    pub(super) fn alloc(&self, space: SpaceId, number: u64) -> Result<u32, TableError> {
        let mut free = self.free.lock();
        let (chunk, fresh) = match free.list.pop() {
            Some(chunk) => (chunk, false),
            None if free.high > self.max => return Err(TableError::Full { chunks: self.max }),
            None => (free.high, true),
        };
        let owner = chunk as usize * OWNER_BYTES;
        let memory =
            self.chunks.populate(chunk as usize * CHUNK_BYTES, CHUNK_BYTES).and_then(|()| {
                match fresh && (owner.is_multiple_of(4096) || chunk == 1) {
                    true => self.owners.populate(owner - owner % 4096, 4096),
                    false => Ok(()),
                }
            });
        if let Err(error) = memory {
            let _ = self.chunks.punch(chunk as usize * CHUNK_BYTES, CHUNK_BYTES);
            if !fresh {
                free.list.push(chunk);
            }
            return Err(error.into());
        }
        if fresh {
            free.high += 1;
        }
        self.owners.word(owner / 8).store(number + 1, Relaxed);
        self.owners.word(owner / 8 + 1).store(u64::from(space.0), Relaxed);
        Ok(chunk)
    }

    /// Takes back chunks that nobody can reach any more.
    pub(super) fn free(&self, mut chunks: Vec<u32>) {
        chunks.sort_unstable();
        for run in chunks.chunk_by(|a, b| a + 1 == *b) {
            let offset = run[0] as usize * CHUNK_BYTES;
            if self.chunks.punch(offset, run.len() * CHUNK_BYTES).is_err() {
                // Kept for ever rather than handed out with old contents; populate would do too,
                // but whoever cannot punch cannot write either.
                continue;
            }
            for chunk in run {
                let owner = *chunk as usize * OWNER_BYTES / 8;
                self.owners.word(owner).store(0, Relaxed);
                self.owners.word(owner + 1).store(0, Relaxed);
            }
            self.free.lock().list.extend_from_slice(run);
        }
    }

    /// The word of page `offset` (below 512) of a chunk.
    #[inline]
    pub(super) fn word(&self, chunk: u32, offset: u64) -> &AtomicU64 {
        self.chunks.word(chunk as usize * CHUNK_PAGES as usize + (offset % CHUNK_PAGES) as usize)
    }
}

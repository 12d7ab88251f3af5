//! Page tables of a process that died, put together again by a look at every chunk and its owner.
//!
//! What can be there is said at the head of [`super::chunks`]. What cannot is an error where it
//! leaves open whose pages a chunk has; a word that is no entry is damage to its page alone. In
//! neither case is it taken for an absent page, which reads as zeros.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use clew_core::{SpaceId, Vpn};
use parking_lot::Mutex;

use super::chunks::{CHUNK_BYTES, CHUNK_PAGES, FreeChunks, MAX_CHUNKS, OWNER_BYTES, Owner, Tables};
use super::entry::{Entry, State};
use super::numbers::Numbers;
use super::space::Space;
use crate::adopt::AdoptError;
use crate::segment::Segment;
use crate::store::Handle;

/// Pages of a space whose word was no entry. They are [`State::Stored`] in [`Handle::LOST`] now:
/// reading them is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Which pages, by address.
    pub pages: Vec<Vpn>,
}

/// The chunks of each space: which 512 pages, and the chunk.
pub type SpaceChunks = HashMap<SpaceId, Vec<(u64, u32)>>;

impl Tables {
    /// Takes over what a predecessor, which has ended, left in [`Tables::segments`]; how many
    /// chunks there can be follows from their lengths. Answers the chunks of every space, ascending
    /// by number: each is to be passed to [`Space::adopt`] or, if nobody wants the space any more,
    /// to [`Tables::discard`].
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    pub fn adopt(fds: [OwnedFd; 2]) -> Result<(Tables, SpaceChunks), AdoptError> {
        let [chunks, owners] = fds;
        let chunks = Segment::adopt("clew-table", chunks)?;
        let owners = Segment::adopt("clew-table-owners", owners)?;
        let room = (chunks.len() / CHUNK_BYTES).min(owners.len() / OWNER_BYTES) - 1;
        let max = room.min(MAX_CHUNKS as usize) as u32;
        let free = Mutex::new(FreeChunks { list: Vec::new(), high: 1 });
        let settled = AtomicBool::new(false);
        let numbers = Numbers::default();
        let tables = Tables { chunks, owners, max, free, numbers, settled };
        let spaces = tables.scan()?;
        Ok((tables, spaces))
    }

    fn scan(&self) -> Result<SpaceChunks, AdoptError> {
        // Owner records are taken into use from the first on: what follows a hole is none of ours.
        let known = (self.owners.leading_bytes()? / OWNER_BYTES).min(self.max as usize + 1);
        let mut behind = None;
        self.owners.for_data(|data| {
            let first = data.start / OWNER_BYTES;
            behind = behind.or((first >= known && first <= self.max as usize).then_some(first));
        })?;
        if let Some(chunk) = behind {
            return Err(AdoptError::Owner { chunk: chunk as u32 });
        }
        let mut has_memory = vec![false; known];
        let mut nobodys = Vec::new();
        self.chunks.for_data(|data| {
            for chunk in data.start / CHUNK_BYTES..data.end / CHUNK_BYTES {
                match has_memory.get_mut(chunk) {
                    Some(has) if chunk > 0 => *has = true,
                    // One at most: it died before it had made room for the owner's record.
                    _ => nobodys.push(chunk),
                }
            }
        })?;
        let mut spaces = SpaceChunks::new();
        let mut high = 1;
        let known = known as u32;
        for chunk in 1..known {
            let memory = has_memory[chunk as usize];
            match self.owner(chunk) {
                Owner::Of { space, number } if memory => {
                    spaces.entry(space).or_default().push((number, chunk));
                    high = chunk + 1;
                }
                Owner::Damaged => return Err(AdoptError::Owner { chunk }),
                Owner::Of { .. } | Owner::Nobody if memory => nobodys.push(chunk as usize),
                Owner::Of { .. } | Owner::Nobody => {}
            }
        }
        for (&space, chunks) in &mut spaces {
            chunks.sort_unstable();
            if let Some(pair) = chunks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let (number, first, second) = (pair[0].0, pair[0].1, pair[1].1);
                return Err(AdoptError::Twice { space, number, first, second });
            }
        }
        // Nothing is written before all of it was found right.
        for &chunk in &nobodys {
            let words = chunk * CHUNK_PAGES as usize..(chunk + 1) * CHUNK_PAGES as usize;
            if words.into_iter().any(|word| self.chunks.word(word).load(Acquire) != 0) {
                return Err(AdoptError::Unowned { chunk });
            }
        }
        for &chunk in &nobodys {
            self.chunks.punch(chunk * CHUNK_BYTES, CHUNK_BYTES)?;
        }
        // Descending: the lowest is taken first.
        let mut list = Vec::new();
        for chunk in (1..known).rev() {
            let owned = matches!(self.owner(chunk), Owner::Of { .. }) && has_memory[chunk as usize];
            if !owned {
                self.disown(chunk);
                if chunk < high {
                    list.push(chunk);
                }
            }
        }
        let records = match high {
            1 => 0,
            high => (high as usize * OWNER_BYTES).next_multiple_of(4096),
        };
        if records < self.owners.len() {
            self.owners.punch(records, self.owners.len() - records)?;
        }
        *self.free.lock() = FreeChunks { list, high };
        Ok(spaces)
    }

    /// Frees the chunks of a space that nobody wants any more, as [`Tables::adopt`] answered them.
    /// Blocks that its entries name lose nothing by it: references are counted when the store is
    /// adopted, from the entries of the spaces that are left.
    pub fn discard(&self, chunks: Vec<(u64, u32)>) {
        self.free(chunks.into_iter().map(|(_, chunk)| chunk).collect());
    }
}

impl Space {
    /// The page table of `id` from its chunks, as [`Tables::adopt`] answered them.
    pub fn adopt(id: SpaceId, tables: Arc<Tables>, chunks: Vec<(u64, u32)>) -> (Space, Damage) {
        let mut damage = Damage::default();
        let lost = Entry::with_block(State::Stored, Handle::LOST, 0);
        let mut counts = [0; State::ALL.len()];
        for &(number, chunk) in &chunks {
            for page in number * CHUNK_PAGES..(number + 1) * CHUNK_PAGES {
                let word = tables.word(chunk, page);
                let raw = word.load(Acquire);
                if raw == 0 {
                    continue;
                }
                let entry = Entry::checked(raw).unwrap_or_else(|| {
                    word.store(lost.raw(), Release);
                    damage.pages.push(Vpn(page));
                    lost
                });
                counts[entry.state() as usize] += 1;
            }
        }
        (Space::of_chunks(id, tables, chunks, counts), damage)
    }

    /// The block of every entry that names one, in no order: what [`crate::Store::adopt`] counts.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.entries().filter_map(Entry::handle)
    }
}

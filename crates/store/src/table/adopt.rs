//! Page tables of a process that died, put together again by a look at every leaf and its owner.
//!
//! What can be there is said at the head of [`super::leaves`]. What cannot is an error where it
//! leaves open whose pages a leaf has; a word that is no entry is damage to its page alone. In
//! neither case is it taken for an absent page, which reads as zeros.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use clew_core::{SpaceId, Vpn};
use parking_lot::Mutex;

use super::entry::{Entry, State};
use super::leaves::{FreeLeaves, LEAF_BYTES, LEAF_PAGES, MAX_LEAVES, OWNER_BYTES, Owner, Tables};
use super::numbers::Numbers;
use super::space::{AT_DONORS, COUNTS, ON_FLASH, Space};
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

/// The leaves of each space: which 512 pages, and the leaf.
pub type SpaceLeaves = HashMap<SpaceId, Vec<(u64, u32)>>;

impl Tables {
    /// Takes over what a predecessor, which has ended, left in [`Tables::segments`]; how many
    /// leaves there can be follows from their lengths. Answers the leaves of every space, ascending
    /// by number: each is to be passed to [`Space::adopt`] or, if nobody wants the space any more,
    /// to [`Tables::discard`].
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    pub fn adopt(fds: [OwnedFd; 2]) -> Result<(Tables, SpaceLeaves), AdoptError> {
        let [leaves, owners] = fds;
        let leaves = Segment::adopt("clew-table", leaves)?;
        let owners = Segment::adopt("clew-table-owners", owners)?;
        let room = (leaves.len() / LEAF_BYTES).min(owners.len() / OWNER_BYTES) - 1;
        let max = room.min(MAX_LEAVES as usize) as u32;
        let free = Mutex::new(FreeLeaves { list: Vec::new(), high: 1 });
        let settled = AtomicBool::new(false);
        let numbers = Numbers::default();
        let tables = Tables { leaves, owners, max, free, numbers, settled };
        let spaces = tables.scan()?;
        Ok((tables, spaces))
    }

    fn scan(&self) -> Result<SpaceLeaves, AdoptError> {
        // Owner records are taken into use from the first on: what follows a hole is none of ours.
        let known = (self.owners.leading_bytes()? / OWNER_BYTES).min(self.max as usize + 1);
        let mut behind = None;
        self.owners.for_data(|data| {
            let first = data.start / OWNER_BYTES;
            behind = behind.or((first >= known && first <= self.max as usize).then_some(first));
        })?;
        if let Some(leaf) = behind {
            return Err(AdoptError::Owner { leaf: leaf as u32 });
        }
        let mut has_memory = vec![false; known];
        let mut nobodys = Vec::new();
        self.leaves.for_data(|data| {
            for leaf in data.start / LEAF_BYTES..data.end / LEAF_BYTES {
                match has_memory.get_mut(leaf) {
                    Some(has) if leaf > 0 => *has = true,
                    // One at most: it died before it had made room for the owner's record.
                    _ => nobodys.push(leaf),
                }
            }
        })?;
        let mut spaces = SpaceLeaves::new();
        let mut high = 1;
        let known = known as u32;
        for leaf in 1..known {
            let memory = has_memory[leaf as usize];
            match self.owner(leaf) {
                Owner::Of { space, number } if memory => {
                    spaces.entry(space).or_default().push((number, leaf));
                    high = leaf + 1;
                }
                Owner::Damaged => return Err(AdoptError::Owner { leaf }),
                Owner::Of { .. } | Owner::Nobody if memory => nobodys.push(leaf as usize),
                Owner::Of { .. } | Owner::Nobody => {}
            }
        }
        for (&space, leaves) in &mut spaces {
            leaves.sort_unstable();
            if let Some(pair) = leaves.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let (number, first, second) = (pair[0].0, pair[0].1, pair[1].1);
                return Err(AdoptError::Twice { space, number, first, second });
            }
        }
        // Nothing is written before all of it was found right.
        for &leaf in &nobodys {
            let words = leaf * LEAF_PAGES as usize..(leaf + 1) * LEAF_PAGES as usize;
            if words.into_iter().any(|word| self.leaves.word(word).load(Acquire) != 0) {
                return Err(AdoptError::Unowned { leaf });
            }
        }
        for &leaf in &nobodys {
            self.leaves.punch(leaf * LEAF_BYTES, LEAF_BYTES)?;
        }
        // Descending: the lowest is taken first.
        let mut list = Vec::new();
        for leaf in (1..known).rev() {
            let owned = matches!(self.owner(leaf), Owner::Of { .. }) && has_memory[leaf as usize];
            if !owned {
                self.disown(leaf);
                if leaf < high {
                    list.push(leaf);
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
        *self.free.lock() = FreeLeaves { list, high };
        Ok(spaces)
    }

    /// Frees the leaves of a space that nobody wants any more, as [`Tables::adopt`] answered them.
    /// Blocks that its entries name lose nothing by it: references are counted when the store is
    /// adopted, from the entries of the spaces that are left.
    pub fn discard(&self, leaves: Vec<(u64, u32)>) {
        self.free(leaves.into_iter().map(|(_, leaf)| leaf).collect());
    }
}

impl Space {
    /// The page table of `id` from its leaves, as [`Tables::adopt`] answered them.
    pub fn adopt(id: SpaceId, tables: Arc<Tables>, leaves: Vec<(u64, u32)>) -> (Space, Damage) {
        let mut damage = Damage::default();
        let lost = Entry::with_block(State::Stored, Handle::LOST, 0);
        let mut counts = [0; COUNTS];
        for &(number, leaf) in &leaves {
            for page in number * LEAF_PAGES..(number + 1) * LEAF_PAGES {
                let word = tables.word(leaf, page);
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
                counts[ON_FLASH] += i64::from(entry.is_on_flash());
                counts[AT_DONORS] += i64::from(entry.is_at_donor());
            }
        }
        (Space::of_leaves(id, tables, leaves, counts), damage)
    }

    /// The block of every entry that names one, in no order: what [`crate::Store::adopt`] counts.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.entries().filter_map(Entry::handle)
    }
}

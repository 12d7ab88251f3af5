//! Leaves: frames of 512 page table entries, all of one segment.
//!
//! A second segment says whose each leaf is, so that a successor can put the tables of every space
//! together again: 16 bytes, the leaf's number in its address space plus one, then the space and a
//! check of both. The first word is zero as long as the leaf is nobody's, whatever the second is.
//!
//! Death may come between any two updates, so they come in this order:
//! - a leaf is made all zero, then its owner's second word is written, then the first;
//! - a leaf that nobody can reach is punched, then the first word is zeroed, then the second.
//!
//! Hence a leaf without an owner is all zero; one with an owner has every entry that was ever
//! published, or is going and has none. One that has entries and no owner was damaged.
//!
//! The lock of the free list is a leaf.

use parking_lot::Mutex;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use clew_core::{SpaceId, Vpn};

use super::numbers::Numbers;
use crate::segment::{Segment, SegmentError, in_order};

/// Entries of a leaf.
pub(super) const LEAF_PAGES: u64 = 512;
pub(super) const LEAF_BYTES: usize = 4096;
pub(super) const OWNER_BYTES: usize = 16;
/// Leaves that a slot of the index can name.
pub(super) const MAX_LEAVES: u32 = (1 << 28) - 1;
/// One in so many leaves is kept for pages that must be known.
pub(super) const SPARE_ONE_IN: u32 = 8;

/// Pages of a space: addresses have 57 bits.
pub(super) const VPN_LIMIT: u64 = 1 << 45;

/// Why a page table could not grow.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// All leaves are taken.
    #[error("all {leaves} page table leaves of 512 pages are in use")]
    Full {
        /// How many there are.
        leaves: u32,
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

/// What an owner record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The leaf is nobody's.
    Nobody,
    /// It is for pages `512 * number..` of `space`.
    Of { space: SpaceId, number: u64 },
    /// No record looks like this.
    Damaged,
}

/// The second word of an owner record: the space, and a check that binds it to number and leaf.
fn second_word(leaf: u32, space: SpaceId, number: u64) -> u64 {
    let mixed = (number ^ u64::from(space.0).rotate_left(36)).wrapping_add(u64::from(leaf) << 20);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed >> 32 << 32 | u64::from(space.0)
}

#[derive(Debug)]
pub(super) struct FreeLeaves {
    pub list: Vec<u32>,
    /// Leaves ever used, counting from 1.
    pub high: u32,
}

/// The memory of all page tables.
#[derive(Debug)]
pub struct Tables {
    pub(super) leaves: Segment,
    pub(super) owners: Segment,
    pub(super) max: u32,
    pub(super) free: Mutex<FreeLeaves>,
    /// Numbers of spaces.
    pub(super) numbers: Numbers,
    /// Whether spaces that are dropped give their leaves back; not yet, in a takeover.
    pub(super) settled: AtomicBool,
}

impl Tables {
    /// From now on the tables that were adopted are this process's own: a space that is dropped gives
    /// its leaves back. Until then a takeover that fails must leave them to the next one.
    pub fn settle(&self) {
        self.settled.store(true, Release);
    }

    /// Room for the tables of `pages` pages, if they fill their leaves. Takes address space only.
    pub fn new(pages: u64) -> Result<Tables, SegmentError> {
        let max = pages.div_ceil(LEAF_PAGES).clamp(1, u64::from(MAX_LEAVES)) as u32;
        Ok(Tables {
            leaves: Segment::new("clew-table", (max as usize + 1) * LEAF_BYTES)?,
            owners: Segment::new("clew-table-owners", (max as usize + 1) * OWNER_BYTES)?,
            max,
            free: Mutex::new(FreeLeaves { list: Vec::new(), high: 1 }),
            numbers: Numbers::default(),
            settled: AtomicBool::new(true),
        })
    }

    /// Leaves and their owners, for a successor.
    pub fn segments(&self) -> [&Segment; 2] {
        [&self.leaves, &self.owners]
    }

    /// Memory in use, bytes.
    pub fn used_bytes(&self) -> u64 {
        let free = self.free.lock();
        let leaves = u64::from(free.high) - 1 - free.list.len() as u64;
        let owners = match free.high {
            1 => 0,
            high => (u64::from(high) * OWNER_BYTES as u64).div_ceil(4096),
        };
        leaves * LEAF_BYTES as u64 + owners * 4096
    }

    /// A zero leaf for pages `512 * number..` of `space`, if more than `spare` are left.
    pub(super) fn alloc(&self, space: SpaceId, number: u64, spare: u32) -> Result<u32, TableError> {
        let mut free = self.free.lock();
        if free.list.len() as u32 + (self.max + 1 - free.high) <= spare {
            return Err(TableError::Full { leaves: self.max - spare });
        }
        let (leaf, fresh) = match free.list.pop() {
            Some(leaf) => (leaf, false),
            None => (free.high, true),
        };
        let owner = leaf as usize * OWNER_BYTES;
        let memory = self.leaves.populate(leaf as usize * LEAF_BYTES, LEAF_BYTES).and_then(|()| {
            match fresh && (owner.is_multiple_of(4096) || leaf == 1) {
                true => self.owners.populate(owner - owner % 4096, 4096),
                false => Ok(()),
            }
        });
        if let Err(error) = memory {
            let _ = self.leaves.punch(leaf as usize * LEAF_BYTES, LEAF_BYTES);
            if !fresh {
                free.list.push(leaf);
            }
            return Err(error.into());
        }
        if fresh {
            free.high += 1;
        }
        let [first, second] = self.owner_words(leaf);
        second.store(second_word(leaf, space, number), Release);
        in_order();
        first.store(number + 1, Release);
        in_order();
        Ok(leaf)
    }

    fn owner_words(&self, leaf: u32) -> [&AtomicU64; 2] {
        let at = leaf as usize * OWNER_BYTES / 8;
        [self.owners.word(at), self.owners.word(at + 1)]
    }

    /// Whose a leaf is.
    pub(super) fn owner(&self, leaf: u32) -> Owner {
        let [first, second] = self.owner_words(leaf).map(|word| word.load(Acquire));
        let Some(number) = first.checked_sub(1) else { return Owner::Nobody };
        let space = SpaceId(second as u32);
        match number < VPN_LIMIT / LEAF_PAGES && second == second_word(leaf, space, number) {
            true => Owner::Of { space, number },
            false => Owner::Damaged,
        }
    }

    /// From now on a leaf is nobody's. It has no memory.
    pub(super) fn disown(&self, leaf: u32) {
        let [first, second] = self.owner_words(leaf);
        first.store(0, Release);
        in_order();
        second.store(0, Release);
        in_order();
    }

    /// Takes back leaves that nobody can reach any more.
    pub(super) fn free(&self, mut leaves: Vec<u32>) {
        leaves.sort_unstable();
        for run in leaves.chunk_by(|a, b| a + 1 == *b) {
            let offset = run[0] as usize * LEAF_BYTES;
            if self.leaves.punch(offset, run.len() * LEAF_BYTES).is_err() {
                // Kept for ever rather than handed out with old contents; populate would do too,
                // but whoever cannot punch cannot write either.
                continue;
            }
            in_order();
            run.iter().for_each(|leaf| self.disown(*leaf));
            self.free.lock().list.extend_from_slice(run);
        }
    }

    /// The word of page `offset` (below 512) of a leaf.
    #[inline]
    pub(super) fn word(&self, leaf: u32, offset: u64) -> &AtomicU64 {
        self.leaves.word(leaf as usize * LEAF_PAGES as usize + (offset % LEAF_PAGES) as usize)
    }
}

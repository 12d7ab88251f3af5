//! The page table of one address space.
//!
//! Every single operation is atomic for its page and takes no lock, except that the first touch of
//! 512 pages takes the one for adding leaves. Leaves are freed with the space, not before: what a
//! program once used costs 8 bytes a page as long as it lives.
//!
//! [`Space::lock`] is not taken here. It is for whoever must see several pages, or pages and the
//! program, at one moment: who reads the kernel's events (unmap, mremap, fork) holds it for writing
//! while doing so, who puts pages in or commits them holds it for reading. It comes before all
//! other locks of this crate.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use clew_core::{SpaceId, Vpn};

use super::entry::{Entry, State};
use super::index::LeafIndex;
use super::leaves::{LEAF_PAGES, SPARE_ONE_IN, TableError, Tables, VPN_LIMIT};
use super::lock::SpaceLock;
use super::share::LeafShare;

/// Entries are counted by their states, and those on flash and at donors once more, behind these.
pub(super) const COUNTS: usize = State::ALL.len() + 2;
pub(super) const ON_FLASH: usize = State::ALL.len();
pub(super) const AT_DONORS: usize = ON_FLASH + 1;

/// Pages in each state. Taken without stopping the space: exact only while nobody changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the program.
    pub resident: u64,
    /// Being taken out.
    pub moving: u64,
    /// In blocks, or all zeros.
    pub stored: u64,
    /// Being put back.
    pub restoring: u64,
    /// Taken out, not compressed.
    pub parked: u64,
    /// Given to the kernel's swap.
    pub lent: u64,
    /// Of those stored and being put back: on flash.
    pub flash: u64,
    /// The same: at donors.
    pub donors: u64,
}

/// Why an entry was not exchanged.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It was another.
    #[error("the entry was {0:?}")]
    Found(Entry),
    /// The table could not grow.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// One page table.
#[derive(Debug)]
pub struct Space {
    id: SpaceId,
    /// See the head of this module.
    pub lock: SpaceLock,
    tables: Arc<Tables>,
    index: LeafIndex,
    counts: [AtomicI64; COUNTS],
    /// What its leaves are charged to.
    share: OnceLock<Arc<LeafShare>>,
}

impl Space {
    /// An empty table with memory from `tables`.
    pub fn new(id: SpaceId, tables: Arc<Tables>) -> Space {
        tables.numbers.claim(id);
        Space::with(id, tables, LeafIndex::new(), Default::default())
    }

    /// An empty table of a number that no other space has; `None` if all are taken.
    pub fn numbered(tables: &Arc<Tables>) -> Option<Space> {
        let id = tables.numbers.take()?;
        Some(Space::with(id, Arc::clone(tables), LeafIndex::new(), Default::default()))
    }

    fn with(
        id: SpaceId,
        tables: Arc<Tables>,
        index: LeafIndex,
        counts: [AtomicI64; COUNTS],
    ) -> Space {
        let (lock, share) = (SpaceLock::default(), OnceLock::new());
        Space { id, lock, tables, index, counts, share }
    }

    /// A table of leaves that have entries, `counts` of them in each state.
    pub(super) fn of_leaves(
        id: SpaceId,
        tables: Arc<Tables>,
        leaves: Vec<(u64, u32)>,
        counts: [i64; COUNTS],
    ) -> Space {
        tables.numbers.claim(id);
        Space::with(id, tables, LeafIndex::of(leaves), counts.map(AtomicI64::new))
    }

    /// Entries that are not absent, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.index.iter().flat_map(move |(_, leaf)| {
            (0..LEAF_PAGES).filter_map(move |page| {
                let entry = Entry::from_raw(self.tables.word(leaf, page).load(Ordering::Acquire));
                (!entry.is_absent()).then_some(entry)
            })
        })
    }

    /// Whose it is.
    #[inline]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// Charges its leaves to a share, those that it has already too. Once, before others use it.
    pub fn charge(&self, share: Arc<LeafShare>) {
        let has = self.index.len();
        if self.share.set(Arc::clone(&share)).is_ok() {
            share.add(has);
        }
    }

    /// Leaves of 512 pages (4 KiB each) that it takes.
    pub fn leaves(&self) -> usize {
        self.index.len()
    }

    /// The leaf of a page, made if there is none and more than `spare` are left: never of pages behind
    /// the limit.
    #[inline]
    fn leaf(&self, vpn: Vpn, spare: u32) -> Result<u32, TableError> {
        if vpn.0 >= VPN_LIMIT {
            return Err(TableError::Range { vpn });
        }
        let number = vpn.0 / LEAF_PAGES;
        self.index.get_or_insert(number, || {
            let Some(share) = self.share.get() else {
                return self.tables.alloc(self.id, number, spare);
            };
            share.take(spare == 0)?;
            self.tables.alloc(self.id, number, spare).inspect_err(|_| share.give_back(1))
        })
    }

    #[inline]
    fn count(&self, old: Entry, new: Entry) {
        let flash = i64::from(new.is_on_flash()) - i64::from(old.is_on_flash());
        if flash != 0 {
            self.counts[ON_FLASH].fetch_add(flash, Ordering::Relaxed);
        }
        let donors = i64::from(new.is_at_donor()) - i64::from(old.is_at_donor());
        if donors != 0 {
            self.counts[AT_DONORS].fetch_add(donors, Ordering::Relaxed);
        }
        let (old, new) = (old.state(), new.state());
        if old != new {
            self.counts[old as usize].fetch_sub(1, Ordering::Relaxed);
            self.counts[new as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The entry of `vpn`; absent where nothing was ever stored.
    #[inline]
    pub fn load(&self, vpn: Vpn) -> Entry {
        match self.index.get(vpn.0 / LEAF_PAGES) {
            Some(leaf) => Entry::from_raw(self.tables.word(leaf, vpn.0).load(Ordering::Acquire)),
            None => Entry::ABSENT,
        }
    }

    /// Sets the entry of `vpn` and returns the one before.
    ///
    /// # Errors
    /// If a leaf is needed and there is none. Never where `vpn` has a neighbour in its leaf.
    #[inline]
    pub fn store(&self, vpn: Vpn, entry: Entry) -> Result<Entry, TableError> {
        let leaf = match entry.is_absent() {
            false => self.leaf(vpn, 0)?,
            true => match self.index.get(vpn.0 / LEAF_PAGES) {
                Some(leaf) => leaf,
                None => return Ok(Entry::ABSENT),
            },
        };
        Ok(self.swap(leaf, vpn.0, entry))
    }

    /// As [`Space::store`], for a page that need not be known, as it is in its program: some leaves are
    /// left for those that must be.
    ///
    /// # Errors
    /// If a leaf is needed and there is none for such pages.
    #[inline]
    pub fn note(&self, vpn: Vpn, entry: Entry) -> Result<Entry, TableError> {
        let leaf = self.leaf(vpn, self.tables.max / SPARE_ONE_IN)?;
        Ok(self.swap(leaf, vpn.0, entry))
    }

    #[inline]
    fn swap(&self, leaf: u32, offset: u64, entry: Entry) -> Entry {
        let old = self.tables.word(leaf, offset).swap(entry.raw(), Ordering::AcqRel);
        let old = Entry::from_raw(old);
        self.count(old, entry);
        old
    }

    /// Sets the entry of `vpn` to `new` if it is `old`.
    ///
    /// # Errors
    /// [`Refused::Found`] with the entry if it was another, [`Refused::Table`] if a leaf is needed
    /// and there is none.
    #[inline]
    pub fn compare_exchange(&self, vpn: Vpn, old: Entry, new: Entry) -> Result<(), Refused> {
        let leaf = match self.index.get(vpn.0 / LEAF_PAGES) {
            Some(leaf) => leaf,
            _ if !old.is_absent() => return Err(Refused::Found(Entry::ABSENT)),
            _ if new.is_absent() => return Ok(()),
            _ => self.leaf(vpn, 0)?,
        };
        let word = self.tables.word(leaf, vpn.0);
        match word.compare_exchange(old.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.count(old, new);
                Ok(())
            }
            Err(found) => Err(Refused::Found(Entry::from_raw(found))),
        }
    }

    /// Leaves with pages of a range, by address, each with its part of the range.
    fn parts(&self, first: Vpn, count: u64) -> Vec<(Range<u64>, u32)> {
        let end = first.0.saturating_add(count).min(VPN_LIMIT);
        if first.0 >= end {
            return Vec::new();
        }
        let numbers = first.0 / LEAF_PAGES..=(end - 1) / LEAF_PAGES;
        let mut leaves: Vec<(u64, u32)> =
            if numbers.end() - numbers.start() <= self.index.len() as u64 {
                numbers.filter_map(|n| self.index.get(n).map(|leaf| (n, leaf))).collect()
            } else {
                self.index.iter().filter(|(n, _)| numbers.contains(n)).collect()
            };
        leaves.sort_unstable();
        let part = |(number, leaf)| {
            let from: u64 = number * LEAF_PAGES;
            (from.max(first.0)..(from + LEAF_PAGES).min(end), leaf)
        };
        leaves.into_iter().map(part).collect()
    }

    /// Calls `f` for every page of `count` from `first` whose entry is not absent, by address.
    /// Takes time for the pages of leaves that are there, and for no others.
    pub fn for_range(&self, first: Vpn, count: u64, mut f: impl FnMut(Vpn, Entry)) {
        self.for_range_while(first, count, |vpn, entry| {
            f(vpn, entry);
            true
        });
    }

    /// The same, as long as `f` says that it goes on.
    pub fn for_range_while(&self, first: Vpn, count: u64, mut f: impl FnMut(Vpn, Entry) -> bool) {
        for (pages, leaf) in self.parts(first, count) {
            for page in pages {
                let entry = self.tables.word(leaf, page).load(Ordering::Acquire);
                if entry != 0 && !f(Vpn(page), Entry::from_raw(entry)) {
                    return;
                }
            }
        }
    }

    /// Pages in its program.
    #[inline]
    pub fn resident(&self) -> u64 {
        self.counts[State::Resident as usize].load(Ordering::Relaxed).max(0) as u64
    }

    /// Pages in each state.
    #[inline]
    pub fn counts(&self) -> Counts {
        let of = |state: State| self.counts[state as usize].load(Ordering::Relaxed).max(0) as u64;
        Counts {
            resident: of(State::Resident),
            moving: of(State::Moving),
            stored: of(State::Stored),
            restoring: of(State::Restoring),
            parked: of(State::Parked),
            lent: of(State::Lent),
            flash: self.counts[ON_FLASH].load(Ordering::Relaxed).max(0) as u64,
            donors: self.counts[AT_DONORS].load(Ordering::Relaxed).max(0) as u64,
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Some(share) = self.share.get() {
            share.give_back(self.index.len());
        }
        if self.tables.settled.load(Ordering::Acquire) {
            self.tables.free(self.index.iter().map(|(_, leaf)| leaf).collect());
        }
        // Last: what is still there of a space is nobody else's.
        self.tables.numbers.give_back(self.id);
    }
}

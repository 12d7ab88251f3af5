//! A share of the leaves of all page tables: what the spaces that are charged to it may have together, so that
//! they leave the rest to others.

use std::sync::atomic::{AtomicU32, Ordering};

use super::leaves::{SPARE_ONE_IN, TableError};

/// Leaves that some spaces may have together.
#[derive(Debug)]
pub struct LeafShare {
    most: u32,
    used: AtomicU32,
}

impl LeafShare {
    /// So many.
    pub fn new(most: u32) -> LeafShare {
        LeafShare { most, used: AtomicU32::new(0) }
    }

    /// One more; some are kept for pages that must be known, as of all leaves.
    pub(super) fn take(&self, must_be_known: bool) -> Result<(), TableError> {
        let kept = if must_be_known { 0 } else { self.most / SPARE_ONE_IN };
        let one_more = |used: u32| (used < self.most - kept).then_some(used + 1);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(()),
            Err(_) => Err(TableError::Full { leaves: self.most - kept }),
        }
    }

    /// So many that a space has already.
    pub(super) fn add(&self, leaves: usize) {
        self.used.fetch_add(leaves as u32, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, leaves: usize) {
        self.used.fetch_sub(leaves as u32, Ordering::Relaxed);
    }
}

//! A child whose fork may have come before or after its parent moved pages.

use clew_core::Vpn;
use clew_store::{Entry, State};

use crate::mover::Mover;
use crate::space::ManagedSpace;

impl Mover {
    /// Gives `child`, at `to`, a share of what `parent` has stored in `pages` pages from `from`,
    /// where the child has nothing. Both locks are held as for [`Mover::fork`].
    pub fn fork_range(
        &self,
        parent: &ManagedSpace,
        child: &ManagedSpace,
        from: Vpn,
        pages: u64,
        to: Vpn,
    ) {
        let mut known = Vec::new();
        parent.table.for_range(from, pages, |vpn, entry| known.push((vpn, entry)));
        for (vpn, entry) in known {
            if !matches!(entry.state(), State::Stored | State::Restoring) {
                continue;
            }
            if let Some(handle) = entry.handle() {
                self.store.retain(handle);
            }
            let at = Vpn(vpn.0 - from.0 + to.0);
            let shared = entry.with_state(State::Stored);
            let taken = child.table.compare_exchange(at, Entry::ABSENT, shared).is_ok();
            if !taken && let Some(handle) = entry.handle() {
                self.store.release(handle);
            }
        }
    }
}

//! What programs do with their memory: adopt, forget, remap, fork, end.
//!
//! All but `end` and `drop_kept` are called with `table.lock` held for writing. Entries still
//! change meanwhile, by exchange: `Stored` to `Restoring` (a restore lends its pages before it
//! takes the lock) and `Resident` with a kept copy to `Resident` without.

use std::sync::Arc;

use clew_core::{Event, PageId, PageRun, Vpn};
use clew_store::{Entry, State};

use super::{Mover, page_entry, replace, set};
use crate::space::{Batch, ManagedSpace, Remap};

impl Mover {
    /// Pages present in a mapping that has just been registered.
    pub fn adopt(&self, space: &ManagedSpace, first: Vpn, pages: u64, events: &mut Vec<Event>) {
        let mut from = None;
        for vpn in first.0..=first.0 + pages {
            let new = vpn < first.0 + pages && space.table.load(Vpn(vpn)) == Entry::ABSENT;
            if new {
                set(space, Vpn(vpn), page_entry(State::Resident, None, 0));
                from.get_or_insert(vpn);
            } else if let Some(start) = from.take() {
                let first = PageId::new(space.id(), Vpn(start));
                events
                    .push(Event::Resident { run: PageRun { first, count: (vpn - start) as u32 } });
            }
        }
    }

    /// The program gave these pages up (madvise, munmap).
    pub fn forget(&self, space: &ManagedSpace, first: Vpn, pages: u64) {
        self.clear(space, first, pages);
    }

    /// Makes the pages absent; true if some of them were on their way out.
    fn clear(&self, space: &ManagedSpace, first: Vpn, pages: u64) -> bool {
        let mut moving = false;
        space.table.for_range(first, pages, |vpn, entry| {
            let entry = replace(space, vpn, entry, |_| Entry::ABSENT);
            match entry.state() {
                // The restorer has the reference, and wakes who waits when he sees it.
                State::Restoring => return,
                State::Moving => {
                    moving = true;
                    if entry.has(Entry::WANTED) {
                        space.memory.wake(vpn, 1);
                    }
                }
                State::Absent | State::Resident | State::Stored | State::Parked => {}
            }
            self.release(entry.handle());
        });
        moving
    }

    /// The program moved these pages (mremap). The ranges may overlap.
    pub fn remap(&self, space: &ManagedSpace, from: Vpn, pages: u64, to: Vpn) {
        if from == to {
            return;
        }
        let mut moving = false;
        let mut lifted = Vec::new();
        space.table.for_range(from, pages, |vpn, entry| {
            let entry = replace(space, vpn, entry, |_| Entry::ABSENT);
            lifted.push((vpn, entry));
        });
        moving |= self.clear(space, to, pages);
        for (vpn, entry) in lifted {
            let moved = match entry.state() {
                State::Restoring => {
                    // The restorer has the entry's reference and looks for it at the old address,
                    // where he wakes who waits; the moved entry gets a reference of its own.
                    entry.handle().inspect(|handle| {
                        self.store.retain(*handle);
                    });
                    entry.with_state(State::Stored)
                }
                State::Moving => {
                    moving = true;
                    if entry.has(Entry::WANTED) {
                        // Who waits does so at the old address, where the page will not come.
                        space.memory.wake(vpn, 1);
                    }
                    entry.without(Entry::WANTED)
                }
                State::Absent | State::Resident | State::Stored | State::Parked => entry,
            };
            set(space, Vpn(vpn.0 - from.0 + to.0), moved);
        }
        if moving {
            space.remapped(Remap { from, pages, to });
        }
    }

    /// The program forked: fills the child's table. What is stored is shared by reference; what is
    /// on its way out of the parent is published to the child too.
    pub fn fork(&self, parent: &Arc<ManagedSpace>, child: &Arc<ManagedSpace>) {
        let mut joins = false;
        parent.table.for_range(Vpn(0), u64::MAX, |vpn, entry| {
            let copy = match entry.state() {
                State::Resident => page_entry(State::Resident, None, 0),
                State::Stored | State::Restoring => {
                    entry.handle().inspect(|handle| {
                        self.store.retain(*handle);
                    });
                    entry.with_state(State::Stored)
                }
                State::Moving => {
                    joins = true;
                    page_entry(State::Moving, None, 0)
                }
                State::Absent | State::Parked => return,
            };
            set(child, vpn, copy);
        });
        if joins && let Some(batch) = &mut *parent.under_way.lock() {
            let remaps = batch.remaps.clone();
            *child.under_way.lock() = Some(Batch { remaps, dependents: Vec::new() });
            batch.dependents.push(Arc::clone(child));
        }
    }

    /// The address space is gone: every reference is given back, when its swap-out is over. The
    /// caller holds no lock of it.
    pub fn end(&self, space: &ManagedSpace) {
        let _over = space.one_swap_out.lock();
        let _events = space.table.lock.write();
        self.forget(space, Vpn(0), u64::MAX);
    }

    /// Gives up the copy kept of a resident page; true if there was one.
    pub fn drop_kept(&self, space: &ManagedSpace, vpn: Vpn) -> bool {
        let entry = space.table.load(vpn);
        let (State::Resident, Some(handle)) = (entry.state(), entry.handle()) else {
            return false;
        };
        let bare = page_entry(State::Resident, None, 0);
        if space.table.compare_exchange(vpn, entry, bare).is_err() {
            return false;
        }
        self.store.release(handle);
        true
    }
}

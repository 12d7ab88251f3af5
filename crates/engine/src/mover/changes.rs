//! What programs do with their memory: adopt, forget, remap, fork, end.
//!
//! All but `end` and `drop_kept` are called with `table.lock` held for writing. Entries still
//! change meanwhile, by exchange: `Stored` to `Restoring` (a restore lends its pages before it
//! takes the lock).

use std::sync::Arc;

use clew_core::{Event, PageId, PageRun, Vpn};
use clew_store::{Entry, State, TableError, points};

use super::{BlockStore, Mover, note, page_entry, replace};
use crate::learn::Learner;
use crate::space::{ManagedSpace, Memory};

/// Writes an entry to a place where there was none; false if it was not, and need not be.
fn write<M: ?Sized>(space: &ManagedSpace<M>, vpn: Vpn, entry: Entry) -> Result<bool, TableError> {
    match entry.state() {
        State::Resident | State::Lent => Ok(note(space, vpn, entry)),
        _ => space.table.store(vpn, entry).map(|_| true),
    }
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Pages present in a mapping that has just been registered.
    pub fn adopt(&self, space: &ManagedSpace<M>, first: Vpn, pages: u64, events: &mut Vec<Event>) {
        let mut from = None;
        for vpn in first.0..=first.0 + pages {
            let new = vpn < first.0 + pages && space.table.load(Vpn(vpn)) == Entry::ABSENT;
            if new && note(space, Vpn(vpn), page_entry(State::Resident, None, 0)) {
                from.get_or_insert(vpn);
            } else if let Some(start) = from.take() {
                let first = PageId::new(space.id(), Vpn(start));
                events
                    .push(Event::Resident { run: PageRun { first, count: (vpn - start) as u32 } });
            }
        }
    }

    /// The program gave these pages up (madvise, munmap).
    pub fn forget(&self, space: &ManagedSpace<M>, first: Vpn, pages: u64) {
        space.table.for_range(first, pages, |vpn, entry| {
            let entry = replace(space, vpn, entry, |_| Entry::ABSENT);
            match entry.state() {
                // The restorer has the reference, and wakes who waits when he sees it.
                State::Restoring => return,
                State::Moving if entry.has(Entry::WANTED) => space.memory.wake(vpn, 1),
                State::Parked => self.parked.remove(PageId::new(space.id(), vpn)),
                _ => {}
            }
            self.release(entry.handle());
        });
    }

    /// The program moved these pages (mremap). The ranges do not overlap: the kernel refuses that.
    ///
    /// A successor may do it again from where it was left: first the target is cleared, then each
    /// page is written to its new place before it is taken from the old one. `step` of the journal
    /// says which of the two it is; the caller sets it to zero before and after.
    ///
    /// # Errors
    /// If the table cannot grow for a page that is not in the program. That page stays known at its
    /// old place, and the program must not go on.
    pub fn remap(
        &self,
        space: &ManagedSpace<M>,
        from: Vpn,
        pages: u64,
        to: Vpn,
    ) -> Result<(), TableError> {
        const CLEARED: u64 = 1;
        if from == to {
            return Ok(());
        }
        let mut done = Ok(());
        if space.journal.step() != CLEARED {
            space.journal.batch_displaced(to, pages);
            self.forget(space, to, pages);
            space.journal.set_step(CLEARED);
            points::remap_cleared();
        }
        space.journal.batch_moved(from, pages, to);
        points::remap_followed();
        if space.table.counts().parked > 0 {
            self.parked.moved(space.id(), from, pages, to);
        }
        space.table.for_range(from, pages, |vpn, entry| {
            let target = Vpn(vpn.0 - from.0 + to.0);
            // The entry at the new place has a reference of its own from the start; the one at the
            // old place keeps its own, or has lent it to a restorer, who looks for the page there
            // and wakes who waits.
            if let Some(handle) = entry.handle() {
                self.store.retain(handle);
            }
            let moved = match entry.state() {
                State::Restoring => entry.with_state(State::Stored),
                State::Moving => entry.without(Entry::WANTED),
                State::Absent | State::Resident | State::Lent | State::Stored | State::Parked => {
                    entry
                }
            };
            match write(space, target, moved) {
                Ok(true) => {}
                Ok(false) => self.release(entry.handle()),
                Err(error) => {
                    self.release(entry.handle());
                    done = Err(error);
                    return;
                }
            }
            points::remap_twice();
            let old = replace(space, vpn, entry, |_| Entry::ABSENT);
            match old.state() {
                State::Restoring => return,
                // Who waits does so at the old address, where the page will not come.
                State::Moving if old.has(Entry::WANTED) => space.memory.wake(vpn, 1),
                _ => {}
            }
            self.release(old.handle());
        });
        done
    }

    /// The program forked: fills the child's table. What is stored is shared by reference; what is
    /// on its way out of the parent is published to the child too. Returns the pages that the child's
    /// table has no room for, which must not become zeros there.
    #[must_use]
    pub fn fork(&self, parent: &Arc<ManagedSpace<M>>, child: &Arc<ManagedSpace<M>>) -> Vec<Vpn> {
        let (mut joins, mut lost) = (false, Vec::new());
        parent.table.for_range(Vpn(0), u64::MAX, |vpn, entry| {
            let copy = match entry.state() {
                State::Resident => page_entry(State::Resident, None, 0),
                State::Lent => entry,
                State::Stored | State::Restoring | State::Parked => {
                    entry.handle().inspect(|handle| {
                        self.store.retain(*handle);
                    });
                    // A sample is its parent's only.
                    entry.with_state(State::Stored).without(Entry::SAMPLED)
                }
                State::Moving => page_entry(State::Moving, None, 0),
                State::Absent => return,
            };
            match write(child, vpn, copy) {
                Ok(written) => joins |= written && copy.state() == State::Moving,
                Err(_) => {
                    self.release(copy.handle());
                    lost.push(vpn);
                }
            }
        });
        if joins {
            child.journal.join_batch(&parent.journal);
        }
        // Not so in a takeover: both are recovered then.
        if joins {
            parent.join(child);
        }
        lost
    }

    /// The address space is gone: every reference is given back, when its swap-out is over. The
    /// caller holds no lock of it.
    pub fn end(&self, space: &ManagedSpace<M>) {
        let mut learner = space.one_swap_out.lock();
        *learner = Learner::default();
        let _events = space.table.lock.write();
        self.forget(space, Vpn(0), u64::MAX);
    }

    /// Gives up the copy kept of a resident page, if there is one; the bytes that this frees, which is
    /// nothing while other pages need the block. Waits for nobody.
    pub fn drop_kept(&self, space: &ManagedSpace<M>, vpn: Vpn) -> Option<u64> {
        // Not while entries are being moved: one of them is then at two places.
        let _events = space.table.lock.try_read()?;
        let entry = space.table.load(vpn);
        let handle = entry.handle().filter(|_| entry.state() == State::Resident)?;
        let bare = page_entry(State::Resident, None, 0);
        space.table.compare_exchange(vpn, entry, bare).ok()?;
        let bytes = u64::from(self.store.stored_bytes(handle));
        Some(if self.store.release(handle) { bytes } else { 0 })
    }
}

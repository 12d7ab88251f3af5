//! What becomes of a page that was taken out: stored, back in its program, or gone.
//!
//! A page is published to children before it is published to the space itself, each under its own
//! lock. As long as it is `Moving` here, children may still join; so who publishes looks, under the
//! lock, whether all of them have it.

use clew_core::{Tier, Vpn};
use clew_store::{Entry, Handle, State, points};

use super::{BlockStore, Mover, count, page_entry, replace};
use crate::space::{ManagedSpace, Memory, PutStop};

/// Where a page of a batch is, once that is known.
#[derive(Clone, Copy)]
pub(super) enum Home {
    /// A copy in the store; the publisher owns one reference. `None` is the page of zeros.
    Stored(Option<Handle>, u16),
    /// In the hands of the publisher: it must go back.
    Nowhere,
    /// It never left the program.
    Program,
    /// There was no page.
    Hole,
    /// Nobody can say: whoever asks for it must not go on.
    Lost,
}

/// What became of a page, where it is now.
pub(super) enum Landed {
    /// Stored, in so many bytes of this tier.
    Stored(Vpn, Tier, u32),
    /// In the program, as before.
    Program(Vpn),
    /// There was none; the program had dropped it.
    Hole(Vpn),
    /// The program gave it up meanwhile, and its event says so.
    Gone,
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// A page that was out as a sample is stored from now on: in the block `home`, of which one
    /// reference is consumed, or where it is. Takes no lock: whoever moves the entry meanwhile finds
    /// it borrowed, or stored with the reference that is then its own.
    pub(super) fn publish_sample(
        &self,
        space: &ManagedSpace<M>,
        vpn: Vpn,
        sample: Entry,
        home: Option<(Handle, u16)>,
    ) -> Landed {
        let stored = match home {
            Some((handle, index)) => self.stored_entry(Some(handle), index),
            None => sample.without(Entry::SAMPLED),
        };
        let borrowed = sample.with_state(State::Restoring);
        let done = space.table.compare_exchange(vpn, borrowed, stored).is_ok();
        // Given up or moved: then both references are ours.
        if !done {
            self.release(home.map(|(handle, _)| handle));
        }
        if !done || home.is_some() {
            self.release(sample.handle());
        }
        // Who came meanwhile waits for it.
        space.memory.wake(vpn, 1);
        match done {
            true => self.landed(vpn, stored),
            false => Landed::Gone,
        }
    }

    /// The page's home, where finding one takes no codec: nobody needs it stored, it is all zeros,
    /// or its kept copy is still valid.
    pub(super) fn without_compressing(
        &self,
        space: &ManagedSpace<M>,
        slot: usize,
        bytes: &[S::Unit],
    ) -> Option<Home> {
        let is_zeros = S::is_zeros(bytes);
        let entry = space.moving(slot).map(|(_, entry)| entry);
        if !is_zeros && entry.is_some_and(|e| e.handle().is_none() && !e.has(Entry::WANTED)) {
            return None;
        }
        // Else the kept copy could go, and its handle name another block, before it is retained.
        let _events = space.table.lock.read();
        let entry = space.moving(slot).map(|(_, entry)| entry);
        if entry.is_none_or(|entry| entry.has(Entry::WANTED)) && space.joined() == 0 {
            return Some(Home::Nowhere);
        }
        if is_zeros {
            count(&self.counters.zeros, 1);
            return Some(Home::Stored(None, 0));
        }
        let entry = entry?;
        let kept = entry.handle()?;
        if !self.store.is_kept(kept, entry, bytes) {
            return None;
        }
        // Events may take the entry's own reference away before this is published.
        self.store.retain(kept);
        count(&self.counters.reused, 1);
        Some(Home::Stored(Some(kept), entry.index()))
    }

    /// Ends `Moving` for a page, here and in the children that depend on it. Consumes one reference
    /// of the home's handle.
    pub(super) fn publish(
        &self,
        space: &ManagedSpace<M>,
        slot: usize,
        home: Home,
        bytes: &[S::Unit],
        flags: u8,
    ) -> Landed {
        let mut told = 0;
        loop {
            {
                let _events = space.table.lock.read();
                if space.joined() == told
                    && let Some(landed) = self.publish_here(space, slot, home, bytes, flags)
                {
                    return landed;
                }
            }
            // Without this space's lock: a put may have to wait for a child's events.
            let children = space.dependents(told);
            if children.is_empty() {
                std::thread::yield_now();
            }
            for child in children {
                if let Home::Stored(Some(handle), _) = home {
                    self.store.retain(handle);
                }
                // It is a sample of its parent's only.
                self.publish(&child, slot, home, bytes, 0);
                told += 1;
            }
        }
    }

    /// The same for one space, whose lock is held for reading. `None`: read events, try again.
    fn publish_here(
        &self,
        space: &ManagedSpace<M>,
        slot: usize,
        home: Home,
        bytes: &[S::Unit],
        flags: u8,
    ) -> Option<Landed> {
        let (handle, index) = match home {
            Home::Stored(handle, index) => (handle, index),
            Home::Nowhere | Home::Program | Home::Hole | Home::Lost => (None, 0),
        };
        // Nothing but WANTED is added to the entry while the lock is held.
        let Some((at, entry)) = space.moving(slot) else {
            self.release(handle);
            return Some(Landed::Gone);
        };
        match home {
            Home::Hole => {
                let entry = replace(space, at, entry, |_| Entry::ABSENT);
                self.release(entry.handle());
                wake_if_wanted(space, at, entry);
                Some(Landed::Hole(at))
            }
            Home::Program => {
                let entry = replace(space, at, entry, |old| {
                    page_entry(State::Resident, old.handle(), old.index())
                });
                wake_if_wanted(space, at, entry);
                Some(Landed::Program(at))
            }
            Home::Lost => {
                let lost = page_entry(State::Stored, Some(Handle::LOST), 0);
                let entry = replace(space, at, entry, |_| lost);
                self.release(entry.handle());
                wake_if_wanted(space, at, entry);
                Some(Landed::Stored(at, Tier::Pool, 0))
            }
            Home::Stored(..) if !entry.has(Entry::WANTED) => {
                let stored = self.stored_entry(handle, index).with(flags);
                if space.table.compare_exchange(at, entry, stored).is_err() {
                    return None; // wanted since
                }
                points::out_published();
                self.release(entry.handle());
                Some(self.landed(at, stored))
            }
            Home::Stored(..) | Home::Nowhere => {
                let stop = space.memory.put(at, bytes).stop;
                points::out_put_back();
                let state = match (stop, home) {
                    (Some(PutStop::Again), _) => return None,
                    // It is stored: whoever waits asks again.
                    (Some(PutStop::Gone), Home::Stored(..)) => State::Stored,
                    // Back, or the mapping is gone and its event will say so.
                    _ => State::Resident,
                };
                let keep = handle.filter(|_| state == State::Stored);
                let flags = if state == State::Stored { flags } else { 0 };
                let new = match state {
                    State::Stored => self.stored_entry(keep, index),
                    _ => page_entry(state, keep, index),
                };
                let new = new.with(flags);
                let entry = replace(space, at, entry, |_| new);
                self.release(entry.handle());
                if stop.is_some() {
                    wake_if_wanted(space, at, entry);
                }
                if state == State::Stored {
                    return Some(self.landed(at, new));
                }
                self.release(handle);
                if stop == Some(PutStop::Exists) {
                    count(&self.counters.conflicts, 1);
                }
                count(&self.counters.returned, 1);
                Some(Landed::Program(at))
            }
        }
    }

    fn landed(&self, at: Vpn, stored: Entry) -> Landed {
        Landed::Stored(at, self.tier_of(stored), self.share(stored.handle()))
    }

    /// What a page of a block takes; the page of zeros takes nothing.
    pub(super) fn share(&self, handle: Option<Handle>) -> u32 {
        let of = |h| self.store.stored_bytes(h) / u32::from(self.store.block_pages(h).max(1));
        handle.map_or(0, of)
    }
}

fn wake_if_wanted<U, M: Memory<U> + ?Sized>(space: &ManagedSpace<M>, vpn: Vpn, entry: Entry) {
    if entry.has(Entry::WANTED) {
        space.memory.wake(vpn, 1);
    }
}

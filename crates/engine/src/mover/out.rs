//! Taking pages out, in batches: mark, take, store, publish.
//!
//! A batch marks its pages `Moving` under `table.lock` held for writing and holds events until they
//! are taken. From then on the program may do what it likes: pages are followed by what is written
//! to [`crate::space::Batch`], children that it forks meanwhile join the batch and get their copy
//! of every page that was on its way.
//!
//! A page is published to children before it is published to the space itself, each under its own
//! lock. As long as it is `Moving` here, children may still join; so who publishes looks, under the
//! lock, whether all of them have it.

use std::sync::Arc;

use clew_core::{Event, Group, PageId, PageRun, Tier, Vpn};
use clew_store::{Entry, Handle, Members, State};

use super::{Mover, MoverContext, SwapOut, count, page_entry, replace};
use crate::space::{Batch, MAX_BATCH, ManagedSpace, PutStop, Took};

/// Where a page of a batch is, once that is known.
#[derive(Clone, Copy)]
enum Home {
    /// A copy in the store; the publisher owns one reference. `None` is the page of zeros.
    Stored(Option<Handle>, u16),
    /// In the hands of the publisher: it must go back.
    Nowhere,
    /// It never left the program.
    Program,
    /// There was no page.
    Hole,
}

/// What became of a page, where it is now.
enum Landed {
    /// Stored, in so many bytes.
    Stored(Vpn, u32),
    /// In the program, as before.
    Program(Vpn),
    /// There was none; the program had dropped it.
    Hole(Vpn),
    /// The program gave it up meanwhile, and its event says so.
    Gone,
}

/// The pages of a batch.
struct Marked {
    /// Ascending; the position is the slot.
    vpns: Vec<Vpn>,
    /// Group by group, in the order of the groups.
    members: Vec<Vpn>,
    /// Where each group ends in `members`.
    ends: Vec<usize>,
}

impl SwapOut {
    fn tell_stored(&mut self, page: PageId, bytes: u32) {
        self.stored += 1;
        self.events.push(Event::Stored { page, tier: Tier::Pool, bytes });
    }

    fn tell_stayed(&mut self, page: PageId) {
        self.events.push(Event::Stayed { page });
    }

    fn tell(&mut self, space: &ManagedSpace, landed: Landed) {
        match landed {
            Landed::Stored(at, bytes) => self.tell_stored(PageId::new(space.id(), at), bytes),
            Landed::Program(at) => self.tell_stayed(PageId::new(space.id(), at)),
            Landed::Hole(at) => {
                let run = PageRun { first: PageId::new(space.id(), at), count: 1 };
                self.events.push(Event::Freed { run });
            }
            Landed::Gone => {}
        }
    }

    /// Pages that were not tried and are still there.
    fn tell_untried(&mut self, space: &ManagedSpace, pages: &[PageId]) {
        for page in pages {
            let state = space.table.load(page.vpn()).state();
            if matches!(state, State::Resident | State::Moving) {
                self.tell_stayed(*page);
            }
        }
    }
}

impl Mover {
    /// Takes the groups' pages out and stores each group as a block. The pages are of this space;
    /// those that are not resident are skipped.
    pub fn swap_out(
        &self,
        space: &Arc<ManagedSpace>,
        groups: &[Group],
        ctx: &mut MoverContext,
    ) -> SwapOut {
        let mut out = SwapOut::default();
        let _one = space.one_swap_out.lock();
        let mut rest = groups;
        while let Some(first) = rest.first()
            && out.full.is_none()
        {
            let mut pages = first.pages.len();
            let fits = |group: &&Group| {
                pages += group.pages.len();
                pages <= MAX_BATCH
            };
            let (now, later) = rest.split_at(1 + rest[1..].iter().take_while(fits).count());
            let mut busy = self.batch(space, now, ctx, &mut out);
            busy.sort_unstable();
            if !busy.is_empty() && out.full.is_none() && space.memory.unshare(&busy) {
                let again: Vec<Group> = now.iter().filter_map(|g| only(g, &busy)).collect();
                busy = self.batch(space, &again, ctx, &mut out);
            }
            for vpn in busy {
                out.tell_stayed(PageId::new(space.id(), vpn));
            }
            rest = later;
        }
        for group in rest {
            out.tell_untried(space, &group.pages);
        }
        count(&self.counters.swapped_out, out.stored);
        out
    }

    /// One batch; returns the pages that are busy, of which nothing was told.
    fn batch(
        &self,
        space: &Arc<ManagedSpace>,
        groups: &[Group],
        ctx: &mut MoverContext,
        out: &mut SwapOut,
    ) -> Vec<Vpn> {
        let mut busy = Vec::new();
        let Some(marked) = self.mark(space, groups, out) else { return busy };
        let mut took = Vec::with_capacity(marked.vpns.len());
        space.memory.take_out(&marked.vpns, &mut took);
        space.memory.release_events();
        took.resize(marked.vpns.len(), Took::Stayed);
        let mut first = 0;
        for (group, end) in groups.iter().zip(marked.ends.iter().copied()) {
            let slots = marked.members[first..end].iter().map(|vpn| {
                let slot = marked.vpns.partition_point(|other| other < vpn);
                (*vpn, slot, took[slot])
            });
            self.store_group(space, group, slots, ctx, out, &mut busy);
            first = end;
        }
        end_part(space);
        space.memory.release_taken();
        busy
    }

    /// Stores a group of (page, slot, what became of it).
    fn store_group(
        &self,
        space: &Arc<ManagedSpace>,
        group: &Group,
        slots: impl Iterator<Item = (Vpn, usize, Took)>,
        ctx: &mut MoverContext,
        out: &mut SwapOut,
        busy: &mut Vec<Vpn>,
    ) {
        let page = self.page_bytes;
        let mut bytes = std::mem::take(&mut ctx.pages);
        bytes.resize(bytes.len().max(group.pages.len() * page), 0);
        // Which of the group's pages still need a place in a block, by their order in `bytes`, and
        // where they were.
        let mut fresh: Vec<usize> = Vec::with_capacity(group.pages.len());
        let mut vpns: Vec<Vpn> = Vec::with_capacity(group.pages.len());
        for (vpn, slot, took) in slots {
            let slot_bytes = &mut bytes[fresh.len() * page..][..page];
            let home = match took {
                Took::Hole => Home::Hole,
                Took::Busy | Took::Stayed => Home::Program,
                Took::Taken => {
                    space.memory.copy_taken(slot, slot_bytes);
                    let Some(home) = self.without_compressing(space, slot, slot_bytes) else {
                        fresh.push(slot);
                        vpns.push(vpn);
                        continue;
                    };
                    home
                }
            };
            match self.publish(space, slot, home, slot_bytes) {
                Landed::Program(now) if took == Took::Busy && now == vpn => busy.push(vpn),
                landed => out.tell(space, landed),
            }
        }
        // Where there was no room a moment ago, the rest of the batch goes back without trying.
        if !fresh.is_empty() {
            let mut put = None;
            if out.full.is_none() {
                let block = &bytes[..fresh.len() * page];
                let members = Members { vpns: &vpns, park: group.park_siblings };
                let (codec, chunk_bytes) = (group.codec, group.chunk_bytes);
                match self.store.put_group(&mut ctx.codec, block, codec, chunk_bytes, members) {
                    Ok(handle) => put = Some(handle),
                    Err(full) => out.full = Some(full),
                }
            }
            for (i, (slot, bytes)) in fresh.into_iter().zip(bytes.chunks_exact(page)).enumerate() {
                let home = put.map_or(Home::Nowhere, |h| Home::Stored(Some(h), i as u16));
                out.tell(space, self.publish(space, slot, home, bytes));
            }
        }
        ctx.pages = bytes;
    }

    /// The page's home, where finding one takes no codec: nobody needs it stored, it is all zeros,
    /// or its kept copy is still valid.
    fn without_compressing(&self, space: &ManagedSpace, slot: usize, bytes: &[u8]) -> Option<Home> {
        // Else the kept copy could go, and its handle name another block, before it is retained.
        let _events = space.table.lock.read();
        let entry = space.moving(slot).map(|(_, entry)| entry);
        if entry.is_none_or(|entry| entry.has(Entry::WANTED)) && space.dependents(0).is_empty() {
            return Some(Home::Nowhere);
        }
        if bytes.iter().all(|b| *b == 0) {
            count(&self.counters.zeros, 1);
            return Some(Home::Stored(None, 0));
        }
        let entry = entry?;
        let kept = entry.handle()?;
        if self.store.checksum(kept, entry.index()) != self.store.hash(bytes) {
            return None;
        }
        // Events may take the entry's own reference away before this is published.
        self.store.retain(kept);
        count(&self.counters.reused, 1);
        Some(Home::Stored(Some(kept), entry.index()))
    }

    /// Ends `Moving` for a page, here and in the children that depend on it. Consumes one reference
    /// of the home's handle.
    fn publish(&self, space: &ManagedSpace, slot: usize, home: Home, bytes: &[u8]) -> Landed {
        let mut told = 0;
        loop {
            // Without this space's lock: a put may have to wait for a child's events.
            for child in space.dependents(told) {
                if let Home::Stored(Some(handle), _) = home {
                    self.store.retain(handle);
                }
                self.publish(&child, slot, home, bytes);
                told += 1;
            }
            {
                let _events = space.table.lock.read();
                if space.dependents(told).is_empty()
                    && let Some(landed) = self.publish_here(space, slot, home, bytes)
                {
                    return landed;
                }
            }
            std::thread::yield_now();
        }
    }

    /// The same for one space, whose lock is held for reading. `None`: read events, try again.
    fn publish_here(
        &self,
        space: &ManagedSpace,
        slot: usize,
        home: Home,
        bytes: &[u8],
    ) -> Option<Landed> {
        let (handle, index) = match home {
            Home::Stored(handle, index) => (handle, index),
            Home::Nowhere | Home::Program | Home::Hole => (None, 0),
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
            Home::Stored(..) if !entry.has(Entry::WANTED) => {
                let stored = page_entry(State::Stored, handle, index);
                if space.table.compare_exchange(at, entry, stored).is_err() {
                    return None; // wanted since
                }
                self.release(entry.handle());
                Some(Landed::Stored(at, self.share(handle)))
            }
            Home::Stored(..) | Home::Nowhere => {
                let stop = space.memory.put(at, bytes).stop;
                let state = match (stop, home) {
                    (Some(PutStop::Again), _) => return None,
                    // It is stored: whoever waits asks again.
                    (Some(PutStop::Gone), Home::Stored(..)) => State::Stored,
                    // Back, or the mapping is gone and its event will say so.
                    _ => State::Resident,
                };
                let keep = handle.filter(|_| state == State::Stored);
                let entry = replace(space, at, entry, |_| page_entry(state, keep, index));
                self.release(entry.handle());
                if stop.is_some() {
                    wake_if_wanted(space, at, entry);
                }
                if state == State::Stored {
                    return Some(Landed::Stored(at, self.share(handle)));
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

    /// What a page of a block takes; the page of zeros takes nothing.
    pub(super) fn share(&self, handle: Option<Handle>) -> u32 {
        let of = |h| self.store.stored_bytes(h) / u32::from(self.store.block_pages(h).max(1));
        handle.map_or(0, of)
    }

    /// Marks the groups' pages and holds events; `None` if there is nothing to take.
    fn mark(&self, space: &ManagedSpace, groups: &[Group], out: &mut SwapOut) -> Option<Marked> {
        let _events = space.table.lock.write();
        if space.under_way.lock().is_some() {
            // Forked out of a batch of its parent's that is not over.
            groups.iter().for_each(|group| out.tell_untried(space, &group.pages));
            return None;
        }
        let mut members = Vec::with_capacity(MAX_BATCH);
        let mut ends = Vec::with_capacity(groups.len());
        for group in groups {
            for page in &group.pages {
                let entry = space.table.load(page.vpn());
                if entry.state() == State::Parked {
                    self.unpark(space, page.vpn(), entry, &mut out.events);
                }
                if entry.state() != State::Resident {
                    continue;
                }
                if members.len() == MAX_BATCH {
                    out.tell_stayed(*page);
                    continue;
                }
                members.push(page.vpn());
            }
            ends.push(members.len());
        }
        if members.is_empty() {
            return None;
        }
        let mut vpns = members.clone();
        vpns.sort_unstable();
        vpns.dedup();
        // A successor must know which slot is whose before any page leaves.
        space.journal.begin_batch(&vpns, space.id());
        for vpn in &vpns {
            // Its kept copy may be dropped at this moment.
            let entry = space.table.load(*vpn);
            replace(space, *vpn, entry, |old| old.with_state(State::Moving));
        }
        *space.under_way.lock() = Some(Batch::default());
        space.memory.hold_events();
        Some(Marked { vpns, members, ends })
    }
}

/// The batch is over for this space and those that joined it here.
fn end_part(space: &ManagedSpace) {
    let batch = {
        let _events = space.table.lock.write();
        space.journal.end_batch();
        space.under_way.lock().take()
    };
    for child in batch.into_iter().flat_map(|batch| batch.dependents) {
        end_part(&child);
    }
}

/// `group` with those of its pages that are in `vpns`, which are ascending.
fn only(group: &Group, vpns: &[Vpn]) -> Option<Group> {
    let chosen = |page: &PageId| vpns.binary_search(&page.vpn()).is_ok();
    let pages: Vec<PageId> = group.pages.iter().copied().filter(chosen).collect();
    (!pages.is_empty()).then(|| Group { pages, ..group.clone() })
}

fn wake_if_wanted(space: &ManagedSpace, vpn: Vpn, entry: Entry) {
    if entry.has(Entry::WANTED) {
        space.memory.wake(vpn, 1);
    }
}

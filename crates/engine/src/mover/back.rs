//! Answering faults: the page that is waited for, then what comes along with it.
//!
//! Pages that were stored as one block come back together, each chunk decompressed once: a fault puts
//! the page that is waited for, and then the others, or parks them (Ariadne 4.3, Archer 4.4). Where the
//! others are, the block remembers; that they are still there, the page table says.

use std::sync::Arc;
use std::time::Instant;

use clew_core::{AccessKind, Event, PageId, PageRun, Tier, Vpn};
use clew_policy::prefetch::around::Near;
use clew_store::flash::LogId;
use clew_store::{Entry, FetchError, Get, Handle, Piece, State, points};

use super::borrowed::{Borrowed, RUN, borrow, is_sibling};
use super::{
    Answered, Awaited, BlockStore, Fault, Mover, MoverContext, count, is_sample, note, page_entry,
};
use crate::space::{ManagedSpace, Memory, PutStop};

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Answers a fault at `vpn`. The caller holds `table.lock` for reading and has applied every
    /// event that was readable before the fault. What the policies are to know is appended to
    /// `events`.
    pub fn fault(
        &self,
        space: &Arc<ManagedSpace<M>>,
        vpn: Vpn,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> Fault<S::Far> {
        (ctx.codec_ns, ctx.answered) = (0, None);
        space.count_fault();
        loop {
            let entry = space.table.load(vpn);
            match entry.state() {
                State::Absent => return self.fresh(space, vpn, events),
                State::Resident | State::Lent => {
                    return self.dropped_or_back(space, vpn, events);
                }
                State::Moving => {
                    if space.table.compare_exchange(vpn, entry, entry.with(Entry::WANTED)).is_ok() {
                        return Fault::Waiting;
                    }
                }
                State::Restoring => return Fault::Waiting,
                State::Stored | State::Parked => {
                    if borrow(space, vpn, entry) {
                        return self.fault_stored(space, vpn, entry, None, ctx, events);
                    }
                }
            }
        }
    }

    /// Restored a moment ago, and this only wakes the program; or dropped by the program between
    /// our reading its event and its return, and zeros are due.
    fn dropped_or_back(
        &self,
        space: &ManagedSpace<M>,
        vpn: Vpn,
        events: &mut Vec<Event>,
    ) -> Fault<S::Far> {
        match space.memory.put_zero(vpn, 1).stop {
            Some(PutStop::Exists) => {
                space.memory.wake(vpn, 1);
                count(&self.counters.spurious, 1);
                Fault::Spurious
            }
            Some(PutStop::Again) => Fault::Again,
            Some(PutStop::Gone) => Fault::Gone,
            None => {
                for before in [Entry::new(State::Lent), Entry::ABSENT] {
                    let _ = space.table.compare_exchange(vpn, before, Entry::new(State::Resident));
                }
                self.tell_fresh(space, vpn, 1, events);
                Fault::Fresh(1)
            }
        }
    }

    fn tell_fresh(&self, space: &ManagedSpace<M>, vpn: Vpn, pages: u32, events: &mut Vec<Event>) {
        count(&self.counters.fresh, 1);
        let touched = PageId::new(space.id(), vpn);
        events.push(Event::Access { page: touched, kind: AccessKind::Fresh, write: false });
        if pages > 1 {
            // They came along, and nobody has used them yet.
            let run = PageRun { first: touched.plus(1), count: pages - 1 };
            events.push(Event::Resident { run });
        }
    }

    /// Ends a fault that was answered with [`Fault::Far`]: the block was fetched, or not. The caller holds
    /// `table.lock` for reading. As [`Mover::fault`] otherwise, and who waits is woken if the page is no
    /// longer waited for here.
    pub fn arrived(
        &self,
        space: &Arc<ManagedSpace<M>>,
        awaited: Awaited,
        fetched: Result<S::Fetched, FetchError>,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> Fault<S::Far> {
        (ctx.codec_ns, ctx.answered) = (0, None);
        let Awaited { vpn, entry } = awaited;
        if space.table.load(vpn) != entry.with_state(State::Restoring) {
            // Given up or moved meanwhile; who waits here has to ask again.
            self.release(entry.handle());
            space.memory.wake(vpn, 1);
            return Fault::Spurious;
        }
        points::far_arrived();
        match fetched {
            Ok(bytes) => self.fault_stored(space, vpn, entry, Some(&bytes), ctx, events),
            // Cleaning has carried it elsewhere: it is read anew.
            Err(FetchError::Moved { .. }) => {
                self.fault_stored(space, vpn, entry, None, ctx, events)
            }
            Err(lost) => {
                self.not_back(space, vpn, entry);
                count(&self.counters.corrupt, 1);
                Fault::Corrupt(lost.into())
            }
        }
    }

    fn fault_stored(
        &self,
        space: &Arc<ManagedSpace<M>>,
        vpn: Vpn,
        entry: Entry,
        fetched: Option<&S::Fetched>,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> Fault<S::Far> {
        let page = PageId::new(space.id(), vpn);
        let (mut others, mut tier) = (None, Tier::Pool);
        // What is far, and in memory all the same, is waited for by nobody.
        let mut here = None;
        let put = match entry.handle() {
            None => space.memory.put_zero(vpn, 1),
            Some(_) if entry.state() == State::Parked && self.copy_parked(page, entry, ctx) => {
                space.memory.put(vpn, &ctx.pages[..self.page_units])
            }
            Some(handle) => {
                let read = match fetched {
                    Some(_) => self.read_chunk(ctx, handle, entry.index(), 0, fetched),
                    None => self.read_chunk_here(ctx, handle, entry.index(), 0, &mut here),
                };
                match read {
                    Ok(Get::Far(far)) => {
                        points::far_asked();
                        return Fault::Far(Awaited { vpn, entry }, far);
                    }
                    Ok(Get::Here(piece)) => {
                        let log = self.store.log_of(handle);
                        tier = log.map_or_else(|| self.tier_of(entry), LogId::tier);
                        let at = usize::from(entry.index() - piece.pages.start) * self.page_units;
                        let put = space.memory.put(vpn, &ctx.pages[at..at + self.page_units]);
                        if piece.of > 1 && put.stop.is_none() {
                            // The last of them to come back would free what the others are read from.
                            self.store.retain(handle);
                            others = Some((handle, piece));
                        }
                        put
                    }
                    Err(error) => {
                        self.not_back(space, vpn, entry);
                        count(&self.counters.corrupt, 1);
                        return Fault::Corrupt(error);
                    }
                }
            }
        };
        points::back_put();
        match put.stop {
            None => {
                if S::IS_TIMED {
                    ctx.answered = Some(Answered { at: Instant::now(), codec_ns: ctx.codec_ns });
                }
                self.back(space, vpn, entry);
                self.room_along.put(1);
                self.tell_used(page, entry, tier, events);
                let fetched = fetched.or(here.as_ref());
                if let Some((handle, piece)) = others {
                    let back = (vpn, handle, entry.index());
                    if self.room_along.takes_block(piece.of) {
                        self.bring_others(space, back, piece, fetched, ctx, events);
                    }
                    self.store.release(handle);
                }
                if let Some(run_ahead) = self.run_ahead {
                    // Near what is far is more that was read with it.
                    let is_far = tier != Tier::Pool;
                    let is_stored = |vpn: &u64| is_there(space.table.load(Vpn(*vpn)), is_far);
                    let stored = |near: Near| near.vpns().filter(is_stored).count() as u32;
                    let ahead = space.runs.lock().fault(vpn, run_ahead, stored);
                    self.bring_near(space, ahead.vpns(), is_far, ctx, events);
                }
                Fault::Restored
            }
            Some(PutStop::Exists) => {
                self.present(space, vpn, entry);
                Fault::Spurious
            }
            Some(stop) => {
                self.not_back(space, vpn, entry);
                if stop == PutStop::Again { Fault::Again } else { Fault::Gone }
            }
        }
    }

    fn copy_parked(&self, page: PageId, entry: Entry, ctx: &mut MoverContext<S>) -> bool {
        ctx.pages.resize(self.page_units.max(ctx.pages.len()), S::Unit::default());
        self.parked.copy(page, entry, &mut ctx.pages[..self.page_units])
    }

    /// A page that was not in the program was asked for, and is back.
    fn tell_used(&self, page: PageId, entry: Entry, tier: Tier, events: &mut Vec<Event>) {
        if entry.state() == State::Parked {
            self.parked.remove(page);
            count(&self.counters.parked_used, 1);
            events.push(Event::Access { page, kind: AccessKind::Seen, write: false });
            events.push(Event::PrefetchUsed { page });
        } else if is_sample(entry) {
            count(&self.counters.sampled_used, 1);
            events.push(Event::Access { page, kind: AccessKind::Seen, write: false });
        } else {
            count(&self.counters.demand, 1);
            count(&self.counters.demand_flash, usize::from(tier == Tier::Flash));
            events.push(Event::Access { page, kind: AccessKind::Fault, write: false });
            events.push(Event::PageIn { page, tier, demand: true });
        }
    }

    /// Brings back the other pages of a block, one of which is back already; its piece is in the
    /// thread's buffer. The caller holds `table.lock` for reading and a reference of the block.
    fn bring_others(
        &self,
        space: &Arc<ManagedSpace<M>>,
        back: (Vpn, Handle, u16),
        piece: Piece,
        fetched: Option<&S::Fetched>,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) {
        let (_, handle, asked) = back;
        let first = piece.pages.clone();
        let (of, park) = (piece.of, piece.park);
        let mut next = Some(piece);
        let mut index = 0;
        loop {
            if let Some(piece) = next.take() {
                let others = self.still_there(space, back, &piece, ctx);
                let through = match park {
                    true => self.park_others(space, &others, ctx, events),
                    false => self.put_others(space, &others, ctx, events),
                };
                if !through {
                    return;
                }
                index = if piece.pages == first { 0 } else { piece.pages.end };
            }
            // The next one that is still there, and was not read yet.
            let wanted = |index: &u16| {
                !first.contains(index)
                    && *index != asked
                    && is_sibling(space, back, *index, ctx).is_some()
            };
            let Some(found) = (index..of).find(wanted) else { return };
            index = found + 1;
            // What is damaged is told when it is asked for.
            next = match self.read_chunk(ctx, handle, found, 0, fetched) {
                Ok(Get::Here(piece)) => Some(piece),
                Ok(Get::Far(_)) | Err(_) => None,
            };
        }
    }

    /// Brings back those of some pages, ascending, that are stored, and of those on flash what is in memory: the
    /// latter are looked at if `far_too`. The caller holds `table.lock` for reading.
    fn bring_near(
        &self,
        space: &ManagedSpace<M>,
        pages: impl Iterator<Item = u64>,
        far_too: bool,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) {
        let mut run: Vec<Borrowed> = Vec::new();
        let mut end = 0;
        for next in pages.map(Vpn) {
            let entry = space.table.load(next);
            let Some(handle) = entry.handle().filter(|_| is_there(entry, far_too)) else {
                continue;
            };
            if !borrow(space, next, entry) {
                continue;
            }
            match self.read_chunk_here(ctx, handle, entry.index(), end, &mut None) {
                Ok(Get::Here(piece)) => {
                    let at = end + usize::from(entry.index() - piece.pages.start);
                    run.push(Borrowed { vpn: next, entry, at });
                    end += piece.pages.len();
                }
                // It is fetched, or told of, when it is asked for.
                Ok(Get::Far(_)) | Err(_) => {
                    self.not_back(space, next, entry);
                    space.memory.wake(next, 1);
                }
            }
        }
        self.put_borrowed(space, &run, &ctx.pages, events);
    }

    /// The pages of a piece that the table still says to be in its block, by address.
    fn still_there(
        &self,
        space: &ManagedSpace<M>,
        back: (Vpn, Handle, u16),
        piece: &Piece,
        ctx: &MoverContext<S>,
    ) -> Vec<Borrowed> {
        let (_, handle, asked) = back;
        let mut found: Vec<Borrowed> = piece
            .pages
            .clone()
            .filter(|index| *index != asked)
            .filter_map(|index| {
                let (vpn, entry) = is_sibling(space, back, index, ctx)?;
                let at = usize::from(index - piece.pages.start);
                let bytes = &ctx.pages[at * self.page_units..][..self.page_units];
                self.store.check_page(handle, index, bytes).ok()?;
                Some(Borrowed { vpn, entry, at })
            })
            .collect();
        found.sort_unstable_by_key(|borrowed| borrowed.vpn);
        found
    }

    /// Makes pages resident; false if events have to be read first.
    fn put_others(
        &self,
        space: &ManagedSpace<M>,
        others: &[Borrowed],
        ctx: &MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> bool {
        let is_ours = |borrowed: &&Borrowed| borrow(space, borrowed.vpn, borrowed.entry);
        let borrowed: Vec<Borrowed> = others.iter().filter(is_ours).copied().collect();
        self.put_borrowed(space, &borrowed, &ctx.pages, events)
    }

    /// Makes borrowed pages resident; false if events have to be read first: the rest stays stored.
    fn put_borrowed(
        &self,
        space: &ManagedSpace<M>,
        borrowed: &[Borrowed],
        buffer: &[S::Unit],
        events: &mut Vec<Event>,
    ) -> bool {
        let (mut done, mut most) = (0, RUN);
        while done < borrowed.len() {
            let step = self.put_some(space, &borrowed[done..], most, buffer, events);
            // The first touch of a run of samples tells for the run.
            for borrowed in
                borrowed[done..done + step.back].iter().filter(|borrowed| is_sample(borrowed.entry))
            {
                let page = PageId::new(space.id(), borrowed.vpn);
                events.push(Event::Access { page, kind: AccessKind::Seen, write: false });
            }
            (done, most) = (done + step.done, step.most);
            count(&self.counters.along, step.back);
            self.room_along.put(step.back);
            if step.again {
                for borrowed in &borrowed[done..] {
                    self.not_back(space, borrowed.vpn, borrowed.entry);
                    space.memory.wake(borrowed.vpn, 1);
                }
                return false;
            }
        }
        true
    }

    /// Parks pages. Nobody can have begun to wait for one: who reads faults is here.
    fn park_others(
        &self,
        space: &Arc<ManagedSpace<M>>,
        others: &[Borrowed],
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> bool {
        for borrowed in others {
            let bytes = &ctx.pages[borrowed.at * self.page_units..][..self.page_units];
            self.park_page(space, borrowed.vpn, borrowed.entry, bytes, &mut ctx.codec, events);
        }
        self.room_along.put(others.len());
        true
    }

    fn fresh(&self, space: &ManagedSpace<M>, vpn: Vpn, events: &mut Vec<Event>) -> Fault<S::Far> {
        let wish = space.memory.fresh_run(vpn).max(1);
        let mut run = 1;
        while run < wish && space.table.load(Vpn(vpn.0 + run as u64)) == Entry::ABSENT {
            run += 1;
        }
        let mut put = space.memory.put_zero(vpn, run);
        if put.pages == 0 && run > 1 && put.stop == Some(PutStop::Gone) {
            // The run left the mapping.
            put = space.memory.put_zero(vpn, 1);
        }
        if put.pages > 0 {
            let resident = page_entry(State::Resident, None, 0);
            let pages = 0..put.pages as u64;
            let noted = pages.take_while(|i| note(space, Vpn(vpn.0 + i), resident)).count();
            if noted > 0 {
                self.tell_fresh(space, vpn, noted as u32, events);
            }
            return Fault::Fresh(put.pages as u32);
        }
        match put.stop {
            Some(PutStop::Exists) => {
                space.memory.wake(vpn, 1);
                count(&self.counters.spurious, 1);
                Fault::Spurious
            }
            Some(PutStop::Gone) => Fault::Gone,
            Some(PutStop::Again) | None => Fault::Again,
        }
    }
}

/// Whether a page can come along with another: it is in a block, on flash only if that one was, and nobody watches
/// whether it is used.
fn is_there(entry: Entry, far_too: bool) -> bool {
    entry.state() == State::Stored
        && entry.handle().is_some()
        && !is_sample(entry)
        && (far_too || !entry.is_far())
}

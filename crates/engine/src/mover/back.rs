//! Bringing pages back: faults, one at a time, and restores, in runs.
//!
//! Whoever turns `Stored` or `Parked` into `Restoring` has borrowed the entry's reference, so that
//! the block stays while it is read without a lock. Then, with `table.lock` held for reading, he puts
//! the page and exchanges the entry. Where it is no longer the one he left, the program has given the
//! page up or moved it, and only the reference is his.
//!
//! Two may hold the same `Restoring` entry at once: where a page was moved away and back between
//! the two. They put the same bytes, one of them finds the page present, and the exchange of only
//! one goes through.
//!
//! Pages that were stored as one block come back together, each chunk decompressed once: a fault puts
//! the page that is waited for, and then the others, or parks them (Ariadne 4.3, Archer 4.4); a restore
//! takes along what its chunks hold. Where the others are, the block remembers; that they are still
//! there, the page table says.

use std::sync::Arc;
use std::time::Instant;

use clew_core::{AccessKind, Event, PageId, PageRun, Tier, Vpn};
use clew_store::{Entry, Handle, Piece, ReadError, State, points};

use super::{
    Answered, BlockStore, Fault, Mover, MoverContext, Restored, count, is_sample, note, page_entry,
};
use crate::space::{ManagedSpace, Memory, PutStop};

/// Pages put by one call while restoring.
const RESTORE_RUN: usize = 32;

/// Pages that come along with one run of a restore, at most: what they take is a thread's own.
const ALONG: usize = 128;

/// A page whose entry was borrowed.
#[derive(Clone, Copy)]
pub(super) struct Borrowed {
    pub vpn: Vpn,
    /// The entry before.
    pub entry: Entry,
    /// Which page of the thread's buffer it is.
    pub at: usize,
}

/// How far one put of a run came.
struct Step {
    /// Pages that need nothing more, from the first on.
    done: usize,
    /// Pages among them that came back.
    back: usize,
    /// Pages that the next put should try.
    most: usize,
    /// Events have to be read first.
    again: bool,
}

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
    ) -> Fault {
        (ctx.codec_ns, ctx.answered) = (0, None);
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
                        return self.fault_stored(space, vpn, entry, ctx, events);
                    }
                }
            }
        }
    }

    /// Restored a moment ago, and this only wakes the program; or dropped by the program between
    /// our reading its event and its return, and zeros are due.
    fn dropped_or_back(&self, space: &ManagedSpace<M>, vpn: Vpn, events: &mut Vec<Event>) -> Fault {
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
        let page = PageId::new(space.id(), vpn);
        events.push(Event::Resident { run: PageRun { first: page, count: pages } });
        events.push(Event::Access { page, kind: AccessKind::Fresh, write: false });
    }

    fn fault_stored(
        &self,
        space: &Arc<ManagedSpace<M>>,
        vpn: Vpn,
        entry: Entry,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> Fault {
        let page = PageId::new(space.id(), vpn);
        let mut others = None;
        let put = match entry.handle() {
            None => space.memory.put_zero(vpn, 1),
            Some(_) if entry.state() == State::Parked && self.copy_parked(page, entry, ctx) => {
                space.memory.put(vpn, &ctx.pages[..self.page_units])
            }
            Some(handle) => match self.read_chunk(ctx, handle, entry.index(), 0) {
                Ok(piece) => {
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
            },
        };
        points::back_put();
        match put.stop {
            None => {
                if S::IS_TIMED {
                    ctx.answered = Some(Answered { at: Instant::now(), codec_ns: ctx.codec_ns });
                }
                self.back(space, vpn, entry);
                self.tell_used(page, entry, events);
                if let Some((handle, piece)) = others {
                    self.bring_others(space, (vpn, handle, entry.index()), piece, ctx, events);
                    self.store.release(handle);
                }
                if let Some(run_ahead) = self.run_ahead {
                    let pages = space.runs.lock().fault(vpn, run_ahead);
                    self.bring_behind(space, vpn, pages, ctx, events);
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
    fn tell_used(&self, page: PageId, entry: Entry, events: &mut Vec<Event>) {
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
            events.push(Event::Access { page, kind: AccessKind::Fault, write: false });
            events.push(Event::PageIn { page, tier: Tier::Pool, demand: true });
        }
    }

    /// Restores page `index` of a block with what is decompressed with it, from page `at` of the
    /// thread's buffer on.
    fn read_chunk(
        &self,
        ctx: &mut MoverContext<S>,
        handle: Handle,
        index: u16,
        at: usize,
    ) -> Result<Piece, ReadError> {
        let from = at * self.page_units;
        ctx.pages.resize((from + self.page_units).max(ctx.pages.len()), S::Unit::default());
        let begin = S::IS_TIMED.then(Instant::now);
        loop {
            match self.store.get_chunk(&mut ctx.codec, handle, index, &mut ctx.pages[from..]) {
                Err(ReadError::WrongSize { wanted, .. }) => {
                    ctx.pages.resize(from + wanted, S::Unit::default())
                }
                read => {
                    ctx.codec_ns += begin.map_or(0, |begin| begin.elapsed().as_nanos() as u64);
                    return read;
                }
            }
        }
    }

    /// Brings back the other pages of a block, one of which is back already; its piece is in the
    /// thread's buffer. The caller holds `table.lock` for reading and a reference of the block.
    fn bring_others(
        &self,
        space: &Arc<ManagedSpace<M>>,
        back: (Vpn, Handle, u16),
        piece: Piece,
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
            next = self.read_chunk(ctx, handle, found, 0).ok();
        }
    }

    /// Brings back those of the `pages` pages behind a fault that are stored. The caller holds
    /// `table.lock` for reading.
    fn bring_behind(
        &self,
        space: &ManagedSpace<M>,
        vpn: Vpn,
        pages: u32,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) {
        let mut run: Vec<Borrowed> = Vec::new();
        let mut end = 0;
        for next in (1..=u64::from(pages)).map_while(|n| vpn.0.checked_add(n)).map(Vpn) {
            let entry = space.table.load(next);
            let Some(handle) = entry.handle().filter(|_| entry.state() == State::Stored) else {
                continue;
            };
            if is_sample(entry) || !borrow(space, next, entry) {
                continue;
            }
            match self.read_chunk(ctx, handle, entry.index(), end) {
                Ok(piece) => {
                    let at = end + usize::from(entry.index() - piece.pages.start);
                    run.push(Borrowed { vpn: next, entry, at });
                    end += piece.pages.len();
                }
                // It is told when it is asked for.
                Err(_) => {
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
        found.sort_unstable_by_key(|lent| lent.vpn);
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
        let lend = |lent: &&Borrowed| borrow(space, lent.vpn, lent.entry);
        let lent: Vec<Borrowed> = others.iter().filter(lend).copied().collect();
        self.put_borrowed(space, &lent, &ctx.pages, events)
    }

    /// Makes borrowed pages resident; false if events have to be read first: the rest stays stored.
    fn put_borrowed(
        &self,
        space: &ManagedSpace<M>,
        lent: &[Borrowed],
        buffer: &[S::Unit],
        events: &mut Vec<Event>,
    ) -> bool {
        let (mut done, mut most) = (0, RESTORE_RUN);
        while done < lent.len() {
            let step = self.put_some(space, &lent[done..], most, buffer, events);
            // The first touch of a run of samples tells for the run.
            for lent in lent[done..done + step.back].iter().filter(|lent| is_sample(lent.entry)) {
                let page = PageId::new(space.id(), lent.vpn);
                events.push(Event::Access { page, kind: AccessKind::Seen, write: false });
            }
            (done, most) = (done + step.done, step.most);
            count(&self.counters.along, step.back);
            if step.again {
                for lent in &lent[done..] {
                    self.not_back(space, lent.vpn, lent.entry);
                    space.memory.wake(lent.vpn, 1);
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
        for lent in others {
            let bytes = &ctx.pages[lent.at * self.page_units..][..self.page_units];
            self.park_page(space, lent.vpn, lent.entry, bytes, &mut ctx.codec, events);
        }
        true
    }

    /// The page of a borrowed entry is in the program again. False if the entry was another's.
    fn back(&self, space: &ManagedSpace<M>, vpn: Vpn, stored: Entry) -> bool {
        // A sample is stored raw, unless it has a kept copy: not worth keeping.
        let kept = stored.handle().filter(|_| self.retain && !stored.has(Entry::SAMPLED));
        let resident = page_entry(State::Resident, kept, stored.index());
        let lent = stored.with_state(State::Restoring);
        let done = space.table.compare_exchange(vpn, lent, resident).is_ok();
        points::back_resident();
        if !done || kept.is_none() {
            self.release(stored.handle());
        }
        done
    }

    /// A page is in the program where the table said stored.
    fn present(&self, space: &ManagedSpace<M>, vpn: Vpn, stored: Entry) {
        if self.back(space, vpn, stored) {
            count(&self.counters.conflicts, 1);
        }
        space.memory.wake(vpn, 1);
    }

    /// The page of a borrowed entry does not come back now. Who waits for it is not woken.
    fn not_back(&self, space: &ManagedSpace<M>, vpn: Vpn, stored: Entry) {
        let lent = stored.with_state(State::Restoring);
        if space.table.compare_exchange(vpn, lent, stored).is_err() {
            self.release(stored.handle());
        }
    }

    fn fresh(&self, space: &ManagedSpace<M>, vpn: Vpn, events: &mut Vec<Event>) -> Fault {
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

    /// Brings stored and parked pages back: `vpns` ascending. Pages that are neither are skipped,
    /// damaged ones stay stored.
    pub fn restore(
        &self,
        space: &ManagedSpace<M>,
        vpns: &[Vpn],
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> Restored {
        let is_out = |entry: Entry| matches!(entry.state(), State::Stored | State::Parked);
        let mut result = Restored::default();
        self.for_borrowed_runs(space, vpns, is_out, ctx, &mut result.corrupt, |run, ctx| {
            result.pages += self.put_run(space, run, &ctx.pages, events);
        });
        count(&self.counters.restored, result.pages);
        result
    }

    /// Ends a sample: brings back those of `vpns` (ascending) that are out as samples.
    pub fn end_sample(
        &self,
        space: &ManagedSpace<M>,
        vpns: &[Vpn],
        ctx: &mut MoverContext<S>,
    ) -> Restored {
        let mut result = Restored::default();
        self.for_borrowed_runs(space, vpns, is_sample, ctx, &mut result.corrupt, |run, ctx| {
            result.pages += self.put_run(space, run, &ctx.pages, &mut Vec::new());
        });
        result
    }

    /// Borrows those pages that are `wanted`, run by run, reads them to the thread's buffer, and hands
    /// them to `finish`, by address, with what came along.
    pub(super) fn for_borrowed_runs(
        &self,
        space: &ManagedSpace<M>,
        vpns: &[Vpn],
        wanted: impl Fn(Entry) -> bool,
        ctx: &mut MoverContext<S>,
        corrupt: &mut Option<(Vpn, ReadError)>,
        mut finish: impl FnMut(&[Borrowed], &mut MoverContext<S>),
    ) {
        let mut run: Vec<Borrowed> = Vec::with_capacity(RESTORE_RUN);
        for (i, vpn) in vpns.iter().copied().enumerate() {
            let entry = space.table.load(vpn);
            if wanted(entry) && borrow(space, vpn, entry) {
                run.push(Borrowed { vpn, entry, at: run.len() });
            }
            let ends = vpns.get(i + 1).is_none_or(|next| next.0 != vpn.0 + 1);
            if !run.is_empty() && (ends || run.len() == RESTORE_RUN) {
                self.read_run(space, &mut run, ctx, corrupt);
                finish(&run, ctx);
                run.clear();
            }
        }
    }

    /// Reads the pages of a run, drops those from it that cannot be read, and borrows what came
    /// along.
    fn read_run(
        &self,
        space: &ManagedSpace<M>,
        run: &mut Vec<Borrowed>,
        ctx: &mut MoverContext<S>,
        corrupt: &mut Option<(Vpn, ReadError)>,
    ) {
        let page = self.page_units;
        // Where the page of the buffer is that the next piece goes to.
        let mut end = run.len();
        ctx.pages.resize((end * page).max(ctx.pages.len()), S::Unit::default());
        let mut is_read = vec![false; run.len()];
        let mut along: Vec<Borrowed> = Vec::new();
        for i in 0..run.len() {
            let Borrowed { vpn, entry, at } = run[i];
            if is_read[i] {
                continue;
            }
            let Some(handle) = entry.handle() else {
                ctx.pages[at * page..(at + 1) * page].fill(S::Unit::default());
                is_read[i] = true;
                continue;
            };
            let read = self.read_chunk(ctx, handle, entry.index(), end);
            let piece = match read {
                Ok(piece) => piece,
                Err(error) => {
                    self.cannot_read(space, run[i], error, corrupt);
                    continue;
                }
            };
            let back = (vpn, handle, entry.index());
            let from = end;
            // Of the run itself: each to its place, so that neighbours stay neighbours.
            for (other, lent) in run.iter().enumerate().skip(i) {
                let is_of_piece = lent.entry.handle() == Some(handle)
                    && piece.pages.contains(&lent.entry.index());
                if is_read[other] || !is_of_piece {
                    continue;
                }
                let found = from + usize::from(lent.entry.index() - piece.pages.start);
                let bytes = found * page..(found + 1) * page;
                // What was asked for is verified; the others are read anew if they are damaged.
                if other == i
                    || self
                        .store
                        .check_page(handle, lent.entry.index(), &ctx.pages[bytes.clone()])
                        .is_ok()
                {
                    ctx.pages.copy_within(bytes, lent.at * page);
                    is_read[other] = true;
                }
            }
            if piece.pages.len() == 1 || along.len() >= ALONG {
                continue;
            }
            for index in piece.pages.clone() {
                let found = from + usize::from(index - piece.pages.start);
                let bytes = &ctx.pages[found * page..(found + 1) * page];
                if let Some((vpn, entry)) = is_sibling(space, back, index, ctx)
                    && self.store.check_page(handle, index, bytes).is_ok()
                    && borrow(space, vpn, entry)
                {
                    along.push(Borrowed { vpn, entry, at: found });
                    end = found + 1;
                }
            }
        }
        let mut read = is_read.into_iter();
        run.retain(|_| read.next().unwrap_or(false));
        if !along.is_empty() {
            run.append(&mut along);
            run.sort_unstable_by_key(|lent| lent.vpn);
        }
    }

    /// A borrowed page whose block is damaged stays stored.
    fn cannot_read(
        &self,
        space: &ManagedSpace<M>,
        lent: Borrowed,
        error: ReadError,
        corrupt: &mut Option<(Vpn, ReadError)>,
    ) {
        count(&self.counters.corrupt, 1);
        corrupt.get_or_insert((lent.vpn, error));
        let _events = space.table.lock.read();
        self.not_back(space, lent.vpn, lent.entry);
        space.memory.wake(lent.vpn, 1);
    }

    /// Puts the pages of a run; returns how many came back.
    fn put_run(
        &self,
        space: &ManagedSpace<M>,
        run: &[Borrowed],
        buffer: &[S::Unit],
        events: &mut Vec<Event>,
    ) -> usize {
        let (mut done, mut back, mut most) = (0, 0, RESTORE_RUN);
        while done < run.len() {
            let guard = space.table.lock.read();
            let step = self.put_some(space, &run[done..], most, buffer, events);
            drop(guard);
            (done, back, most) = (done + step.done, back + step.back, step.most);
            if step.again {
                std::thread::yield_now();
            }
        }
        back
    }

    /// Puts the first neighbours of a run, up to `most`, by one call. The caller holds `table.lock`
    /// for reading.
    fn put_some(
        &self,
        space: &ManagedSpace<M>,
        run: &[Borrowed],
        most: usize,
        buffer: &[S::Unit],
        events: &mut Vec<Event>,
    ) -> Step {
        let first = run[0];
        let still =
            |lent: &Borrowed| space.table.load(lent.vpn) == lent.entry.with_state(State::Restoring);
        let step = |done, back| Step { done, back, most: RESTORE_RUN, again: false };
        if !still(&first) {
            // Given up or moved; who waits here has to ask again.
            self.release(first.entry.handle());
            space.memory.wake(first.vpn, 1);
            return step(1, 0);
        }
        // The pages of a run are neighbours unless one was skipped between them.
        let follows = |(i, lent): &(usize, &Borrowed)| {
            lent.vpn.0 == first.vpn.0 + *i as u64 && lent.at == first.at + i && still(lent)
        };
        let n = run.iter().take(most).enumerate().take_while(follows).count();
        let page = self.page_units;
        let put = space.memory.put(first.vpn, &buffer[first.at * page..(first.at + n) * page]);
        points::back_put();
        for lent in &run[..put.pages] {
            self.back(space, lent.vpn, lent.entry);
            let page = PageId::new(space.id(), lent.vpn);
            if lent.entry.state() == State::Parked {
                // The policies take it for resident already.
                self.parked.remove(page);
                events.push(Event::PrefetchExpired { page });
            } else if !is_sample(lent.entry) {
                events.push(Event::PageIn { page, tier: Tier::Pool, demand: false });
            }
        }
        let (done, back) = (put.pages, put.pages);
        match put.stop {
            None => step(done, back),
            Some(PutStop::Again) => Step { again: true, ..step(done, back) },
            Some(PutStop::Exists) => {
                let lent = run[done];
                self.present(space, lent.vpn, lent.entry);
                step(done + 1, back)
            }
            // Perhaps only the run as a whole: it may leave its mapping for the next one.
            Some(PutStop::Gone) if put.pages == 0 && n > 1 => Step { most: n / 2, ..step(0, 0) },
            Some(PutStop::Gone) => {
                let lent = run[done];
                self.not_back(space, lent.vpn, lent.entry);
                space.memory.wake(lent.vpn, 1);
                step(done + 1, back)
            }
        }
    }
}

/// Turns a `Stored` or `Parked` entry into `Restoring` and borrows its reference; false if it has
/// changed.
pub(super) fn borrow<M: ?Sized>(space: &ManagedSpace<M>, vpn: Vpn, entry: Entry) -> bool {
    let done = space.table.compare_exchange(vpn, entry, entry.with_state(State::Restoring)).is_ok();
    points::back_lent();
    done
}

/// Page `index` of the block read last, if it is still where it was, seen from one of its pages.
fn is_sibling<S: BlockStore, M: ?Sized>(
    space: &ManagedSpace<M>,
    (vpn, handle, asked): (Vpn, Handle, u16),
    index: u16,
    ctx: &MoverContext<S>,
) -> Option<(Vpn, Entry)> {
    let at = S::sibling(&ctx.codec, asked, vpn, index)?;
    let entry = space.table.load(at);
    let is_it = entry.state() == State::Stored && entry.handle() == Some(handle);
    (is_it && entry.index() == index).then_some((at, entry))
}

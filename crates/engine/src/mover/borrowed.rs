//! Pages on their way back, whose entries were borrowed.
//!
//! Whoever turns `Stored` or `Parked` into `Restoring` has borrowed the entry's reference, so that
//! the block stays while it is read without a lock. Then, with `table.lock` held for reading, he puts
//! the page and exchanges the entry. Where it is no longer the one he left, the program has given the
//! page up or moved it, and only the reference is his.
//!
//! Two may hold the same `Restoring` entry at once: where a page was moved away and back between
//! the two. They put the same bytes, one of them finds the page present, and the exchange of only
//! one goes through.

use std::time::Instant;

use clew_core::{Event, PageId, Vpn};
use clew_store::{Entry, FetchError, Get, Handle, Piece, ReadError, State, points};

use super::{BlockStore, Mover, MoverContext, count, is_sample, page_entry};
use crate::space::{ManagedSpace, Memory, PutStop};

/// Pages put by one call.
pub(super) const RUN: usize = 32;

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
pub(super) struct Step {
    /// Pages that need nothing more, from the first on.
    pub done: usize,
    /// Pages among them that came back.
    pub back: usize,
    /// Pages that the next put should try.
    pub most: usize,
    /// Events have to be read first.
    pub again: bool,
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Restores page `index` of a block with what is decompressed with it, from page `at` of the
    /// thread's buffer on; if it is far away, from what was `fetched` of it.
    pub(super) fn read_chunk(
        &self,
        ctx: &mut MoverContext<S>,
        handle: Handle,
        index: u16,
        at: usize,
        fetched: Option<&S::Fetched>,
    ) -> Result<Get<Piece, S::Far>, ReadError> {
        let from = at * self.page_units;
        ctx.pages.resize((from + self.page_units).max(ctx.pages.len()), S::Unit::default());
        let begin = S::IS_TIMED.then(Instant::now);
        loop {
            let (scratch, out) = (&mut ctx.codec, &mut ctx.pages[from..]);
            let read = match fetched {
                None => self.store.get_chunk(scratch, handle, index, out),
                Some(fetched) => {
                    self.store.get_chunk_fetched(scratch, fetched, index, out).map(Get::Here)
                }
            };
            match read {
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

    /// The same of a block that may be far away, if its bytes are in memory all the same: they are `here` then.
    pub(super) fn read_chunk_here(
        &self,
        ctx: &mut MoverContext<S>,
        handle: Handle,
        index: u16,
        at: usize,
        here: &mut Option<S::Fetched>,
    ) -> Result<Get<Piece, S::Far>, ReadError> {
        match self.read_chunk(ctx, handle, index, at, None)? {
            Get::Far(far) => {
                *here = self.store.fetch_here(&far);
                match here {
                    Some(bytes) => self.read_chunk(ctx, handle, index, at, Some(bytes)),
                    None => Ok(Get::Far(far)),
                }
            }
            read => Ok(read),
        }
    }

    /// The same, and waits for a block that is far away.
    pub(super) fn read_chunk_and_wait(
        &self,
        ctx: &mut MoverContext<S>,
        handle: Handle,
        index: u16,
        at: usize,
    ) -> Result<Piece, ReadError> {
        let mut fetched = None;
        loop {
            match self.read_chunk(ctx, handle, index, at, fetched.as_ref())? {
                Get::Here(piece) => return Ok(piece),
                Get::Far(far) => match self.store.fetch_now(far) {
                    Ok(bytes) => fetched = Some(bytes),
                    // Cleaning has carried it elsewhere: it is read anew.
                    Err(FetchError::Moved { .. }) => {}
                    Err(lost) => return Err(lost.into()),
                },
            }
        }
    }

    /// The page of a borrowed entry is in the program again. False if the entry was another's.
    pub(super) fn back(&self, space: &ManagedSpace<M>, vpn: Vpn, stored: Entry) -> bool {
        // A sample is stored raw, unless it has a kept copy: not worth keeping.
        let kept = stored.handle().filter(|_| self.retain && !stored.has(Entry::SAMPLED));
        let resident = page_entry(State::Resident, kept, stored.index());
        let borrowed = stored.with_state(State::Restoring);
        let done = space.table.compare_exchange(vpn, borrowed, resident).is_ok();
        points::back_resident();
        if !done || kept.is_none() {
            self.release(stored.handle());
        }
        done
    }

    /// A page is in the program where the table said stored.
    pub(super) fn present(&self, space: &ManagedSpace<M>, vpn: Vpn, stored: Entry) {
        if self.back(space, vpn, stored) {
            count(&self.counters.conflicts, 1);
        }
        space.memory.wake(vpn, 1);
    }

    /// The page of a borrowed entry does not come back now. Who waits for it is not woken.
    pub(super) fn not_back(&self, space: &ManagedSpace<M>, vpn: Vpn, stored: Entry) {
        let borrowed = stored.with_state(State::Restoring);
        if space.table.compare_exchange(vpn, borrowed, stored).is_err() {
            self.release(stored.handle());
        }
    }

    /// Puts the first neighbours of a run, up to `most`, by one call. The caller holds `table.lock`
    /// for reading.
    pub(super) fn put_some(
        &self,
        space: &ManagedSpace<M>,
        run: &[Borrowed],
        most: usize,
        buffer: &[S::Unit],
        events: &mut Vec<Event>,
    ) -> Step {
        let first = run[0];
        let still = |borrowed: &Borrowed| {
            space.table.load(borrowed.vpn) == borrowed.entry.with_state(State::Restoring)
        };
        let step = |done, back| Step { done, back, most: RUN, again: false };
        if !still(&first) {
            // Given up or moved; who waits here has to ask again.
            self.release(first.entry.handle());
            space.memory.wake(first.vpn, 1);
            return step(1, 0);
        }
        // The pages of a run are neighbours unless one was skipped between them.
        let follows = |(i, borrowed): &(usize, &Borrowed)| {
            borrowed.vpn.0 == first.vpn.0 + *i as u64
                && borrowed.at == first.at + i
                && still(borrowed)
        };
        let n = run.iter().take(most).enumerate().take_while(follows).count();
        let page = self.page_units;
        let put = space.memory.put(first.vpn, &buffer[first.at * page..(first.at + n) * page]);
        points::back_put();
        for borrowed in &run[..put.pages] {
            // The block says it, and may be gone with this page.
            let tier = self.tier_of(borrowed.entry);
            self.back(space, borrowed.vpn, borrowed.entry);
            let page = PageId::new(space.id(), borrowed.vpn);
            if borrowed.entry.state() == State::Parked {
                // The policies take it for resident already.
                self.parked.remove(page);
                events.push(Event::PrefetchExpired { page });
            } else if !is_sample(borrowed.entry) {
                events.push(Event::PageIn { page, tier, demand: false });
            }
        }
        let (done, back) = (put.pages, put.pages);
        match put.stop {
            None => step(done, back),
            Some(PutStop::Again) => Step { again: true, ..step(done, back) },
            Some(PutStop::Exists) => {
                let borrowed = run[done];
                self.present(space, borrowed.vpn, borrowed.entry);
                step(done + 1, back)
            }
            // Perhaps only the run as a whole: it may leave its mapping for the next one.
            Some(PutStop::Gone) if put.pages == 0 && n > 1 => Step { most: n / 2, ..step(0, 0) },
            Some(PutStop::Gone) => {
                let borrowed = run[done];
                self.not_back(space, borrowed.vpn, borrowed.entry);
                space.memory.wake(borrowed.vpn, 1);
                step(done + 1, back)
            }
        }
    }
}

/// Turns a `Stored` or `Parked` entry into `Restoring` and borrows its reference; false if it has
/// changed.
pub(super) fn borrow<M: ?Sized>(space: &ManagedSpace<M>, vpn: Vpn, entry: Entry) -> bool {
    let done = space.table.compare_exchange(vpn, entry, entry.with_state(State::Restoring)).is_ok();
    points::back_borrowed();
    done
}

/// Page `index` of the block read last, if it is still where it was, seen from one of its pages.
pub(super) fn is_sibling<S: BlockStore, M: ?Sized>(
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

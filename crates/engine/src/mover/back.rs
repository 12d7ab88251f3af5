//! Bringing pages back: faults, one at a time, and restores, in runs.
//!
//! Whoever turns `Stored` into `Restoring` has borrowed the entry's reference, so that the block
//! stays while it is read without a lock. Then, with `table.lock` held for reading, he puts the
//! page and exchanges the entry. Where it is no longer the one he left, the program has given the
//! page up or moved it, and only the reference is his.
//!
//! Two may hold the same `Restoring` entry at once: where a page was moved away and back between
//! the two. They put the same bytes, one of them finds the page present, and the exchange of only
//! one goes through.

use std::time::Instant;

use clew_core::{Event, PageId, Tier, Vpn};
use clew_store::{Entry, State};

use super::{Fault, Mover, MoverContext, Restored, count, page_entry, set};
use crate::space::{ManagedSpace, PutStop};

/// Pages put by one call while restoring.
const RESTORE_RUN: usize = 32;

impl Mover {
    /// Answers a fault at `vpn`. The caller holds `table.lock` for reading and has applied every
    /// event that was readable before the fault.
    pub fn fault(&self, space: &ManagedSpace, vpn: Vpn, ctx: &mut MoverContext) -> Fault {
        loop {
            let entry = space.table.load(vpn);
            match entry.state() {
                State::Absent => return self.fresh(space, vpn),
                State::Resident => return self.dropped_or_back(space, vpn),
                State::Moving => {
                    if space.table.compare_exchange(vpn, entry, entry.with(Entry::WANTED)).is_ok() {
                        return Fault::Waiting;
                    }
                }
                State::Restoring | State::Parked => return Fault::Waiting,
                State::Stored => {
                    if borrow(space, vpn, entry) {
                        return self.fault_stored(space, vpn, entry, ctx);
                    }
                }
            }
        }
    }

    /// Restored a moment ago, and this only wakes the program; or dropped by the program between
    /// our reading its event and its return, and zeros are due.
    fn dropped_or_back(&self, space: &ManagedSpace, vpn: Vpn) -> Fault {
        match space.memory.put_zero(vpn, 1).stop {
            Some(PutStop::Exists) => {
                space.memory.wake(vpn, 1);
                count(&self.counters.spurious, 1);
                Fault::Spurious
            }
            Some(PutStop::Again) => Fault::Again,
            Some(PutStop::Gone) => Fault::Gone,
            None => {
                count(&self.counters.fresh, 1);
                Fault::Fresh(1)
            }
        }
    }

    fn fault_stored(
        &self,
        space: &ManagedSpace,
        vpn: Vpn,
        entry: Entry,
        ctx: &mut MoverContext,
    ) -> Fault {
        let put = match entry.handle() {
            None => space.memory.put_zero(vpn, 1),
            Some(handle) => {
                ctx.pages.resize(self.page_bytes.max(ctx.pages.len()), 0);
                let out = &mut ctx.pages[..self.page_bytes];
                let begin = Instant::now();
                let read = self.store.get(&mut ctx.codec, handle, entry.index(), out);
                ctx.fault_codec_ns += begin.elapsed().as_nanos() as u64;
                if let Err(error) = read {
                    self.not_back(space, vpn, entry);
                    count(&self.counters.corrupt, 1);
                    return Fault::Corrupt(error);
                }
                space.memory.put(vpn, out)
            }
        };
        match put.stop {
            None => {
                self.back(space, vpn, entry);
                count(&self.counters.demand, 1);
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

    /// The page of a borrowed entry is in the program again. False if the entry was another's.
    fn back(&self, space: &ManagedSpace, vpn: Vpn, stored: Entry) -> bool {
        let kept = if self.retain { stored.handle() } else { None };
        let resident = page_entry(State::Resident, kept, stored.index());
        let lent = stored.with_state(State::Restoring);
        let done = space.table.compare_exchange(vpn, lent, resident).is_ok();
        if !done || kept.is_none() {
            self.release(stored.handle());
        }
        done
    }

    /// A page is in the program where the table said stored.
    fn present(&self, space: &ManagedSpace, vpn: Vpn, stored: Entry) {
        if self.back(space, vpn, stored) {
            count(&self.counters.conflicts, 1);
        }
        space.memory.wake(vpn, 1);
    }

    /// The page of a borrowed entry does not come back now. Who waits for it is not woken.
    fn not_back(&self, space: &ManagedSpace, vpn: Vpn, stored: Entry) {
        let lent = stored.with_state(State::Restoring);
        if space.table.compare_exchange(vpn, lent, stored).is_err() {
            self.release(stored.handle());
        }
    }

    fn fresh(&self, space: &ManagedSpace, vpn: Vpn) -> Fault {
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
        for i in 0..put.pages as u64 {
            set(space, Vpn(vpn.0 + i), page_entry(State::Resident, None, 0));
        }
        if put.pages > 0 {
            count(&self.counters.fresh, 1);
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

    /// Brings stored pages back: `vpns` ascending. Pages that are not stored are skipped, damaged
    /// ones stay stored.
    pub fn restore(
        &self,
        space: &ManagedSpace,
        vpns: &[Vpn],
        ctx: &mut MoverContext,
        events: &mut Vec<Event>,
    ) -> Restored {
        let mut result = Restored::default();
        let mut run: Vec<(Vpn, Entry)> = Vec::with_capacity(RESTORE_RUN);
        for (i, vpn) in vpns.iter().copied().enumerate() {
            let entry = space.table.load(vpn);
            if entry.state() == State::Stored && borrow(space, vpn, entry) {
                run.push((vpn, entry));
            }
            let ends = vpns.get(i + 1).is_none_or(|next| next.0 != vpn.0 + 1);
            if !run.is_empty() && (ends || run.len() == RESTORE_RUN) {
                self.read_run(space, &mut run, ctx, &mut result.corrupt);
                result.pages += self.put_run(space, &run, ctx, events);
                run.clear();
            }
        }
        count(&self.counters.restored, result.pages);
        result
    }

    /// Reads the pages of a run, and drops those from it that cannot be read.
    fn read_run(
        &self,
        space: &ManagedSpace,
        run: &mut Vec<(Vpn, Entry)>,
        ctx: &mut MoverContext,
        corrupt: &mut Option<(Vpn, clew_store::ReadError)>,
    ) {
        let page = self.page_bytes;
        ctx.pages.resize((RESTORE_RUN * page).max(ctx.pages.len()), 0);
        let mut good = 0;
        run.retain(|&(vpn, entry)| {
            let out = &mut ctx.pages[good * page..(good + 1) * page];
            let read = match entry.handle() {
                Some(handle) => self.store.get(&mut ctx.codec, handle, entry.index(), out),
                None => {
                    out.fill(0);
                    Ok(())
                }
            };
            if let Err(error) = read {
                count(&self.counters.corrupt, 1);
                corrupt.get_or_insert((vpn, error));
                let _events = space.table.lock.read();
                self.not_back(space, vpn, entry);
                space.memory.wake(vpn, 1);
                return false;
            }
            good += 1;
            true
        });
    }

    /// Puts the pages of a run, which are the first of `ctx.pages`; returns how many came back.
    fn put_run(
        &self,
        space: &ManagedSpace,
        run: &[(Vpn, Entry)],
        ctx: &MoverContext,
        events: &mut Vec<Event>,
    ) -> usize {
        let page = self.page_bytes;
        let still = |(vpn, entry): &(Vpn, Entry)| {
            space.table.load(*vpn) == entry.with_state(State::Restoring)
        };
        let (mut done, mut back, mut most) = (0, 0, RESTORE_RUN);
        while done < run.len() {
            let guard = space.table.lock.read();
            let (vpn, entry) = run[done];
            if !still(&run[done]) {
                // Given up or moved; who waits here has to ask again.
                drop(guard);
                self.release(entry.handle());
                space.memory.wake(vpn, 1);
                done += 1;
                continue;
            }
            // The pages of a run are neighbours unless one was skipped between them.
            let n = (done..run.len().min(done + most))
                .take_while(|i| run[*i].0.0 == vpn.0 + (*i - done) as u64 && still(&run[*i]))
                .count();
            let put = space.memory.put(vpn, &ctx.pages[done * page..(done + n) * page]);
            for (vpn, entry) in &run[done..done + put.pages] {
                self.back(space, *vpn, *entry);
                let page = PageId::new(space.id(), *vpn);
                events.push(Event::PageIn { page, tier: Tier::Pool, demand: false });
            }
            done += put.pages;
            back += put.pages;
            most = RESTORE_RUN;
            match put.stop {
                None => {}
                Some(PutStop::Again) => {
                    drop(guard);
                    std::thread::yield_now();
                }
                Some(PutStop::Exists) => {
                    let (vpn, entry) = run[done];
                    self.present(space, vpn, entry);
                    done += 1;
                }
                // Perhaps only the run as a whole: it may leave its mapping for the next one.
                Some(PutStop::Gone) if put.pages == 0 && n > 1 => most = n / 2,
                Some(PutStop::Gone) => {
                    let (vpn, entry) = run[done];
                    self.not_back(space, vpn, entry);
                    space.memory.wake(vpn, 1);
                    done += 1;
                }
            }
        }
        back
    }
}

/// Turns a `Stored` entry into `Restoring` and borrows its reference; false if it has changed.
fn borrow(space: &ManagedSpace, vpn: Vpn, stored: Entry) -> bool {
    space.table.compare_exchange(vpn, stored, stored.with_state(State::Restoring)).is_ok()
}

//! Restores: pages come back in runs of neighbours, and what their chunks hold comes along.

use clew_core::{Event, Vpn};
use clew_store::{Entry, ReadError, State};

use super::borrowed::{Borrowed, RUN, borrow, is_sibling};
use super::{BlockStore, Mover, MoverContext, Restored, count, is_sample};
use crate::space::{ManagedSpace, Memory};

/// Pages that come along with one run of a restore, at most: what they take is a thread's own.
const ALONG: usize = 128;

/// Pages of a run while the program runs: a fault on one of them waits for all of it, and any fault
/// for the call that puts it.
const RUN_IN_USE: usize = 8;

/// Runs without a fault, after which the program counts as one that does not run.
const CALM: u32 = 16;

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
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
        let mut run: Vec<Borrowed> = Vec::with_capacity(RUN);
        let (mut faults, mut calm) = (space.faults(), CALM);
        for (i, vpn) in vpns.iter().copied().enumerate() {
            let entry = space.table.load(vpn);
            if wanted(entry) && borrow(space, vpn, entry) {
                run.push(Borrowed { vpn, entry, at: run.len() });
            }
            // What is far is waited for: no other page of the run waits with it for more than one.
            let ends = entry.is_far() || vpns.get(i + 1).is_none_or(|next| next.0 != vpn.0 + 1);
            let most = if calm < CALM { RUN_IN_USE } else { RUN };
            if !run.is_empty() && (ends || run.len() >= most) {
                self.read_run(space, &mut run, ctx, corrupt);
                finish(&run, ctx);
                run.clear();
                calm = if space.is_in_use(&mut faults) { 0 } else { calm + 1 };
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
            let read = self.read_chunk_and_wait(ctx, handle, entry.index(), end);
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
            for (other, borrowed) in run.iter().enumerate().skip(i) {
                let is_of_piece = borrowed.entry.handle() == Some(handle)
                    && piece.pages.contains(&borrowed.entry.index());
                if is_read[other] || !is_of_piece {
                    continue;
                }
                let found = from + usize::from(borrowed.entry.index() - piece.pages.start);
                let bytes = found * page..(found + 1) * page;
                // What was asked for is verified; the others are read anew if they are damaged.
                if other == i
                    || self
                        .store
                        .check_page(handle, borrowed.entry.index(), &ctx.pages[bytes.clone()])
                        .is_ok()
                {
                    ctx.pages.copy_within(bytes, borrowed.at * page);
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
            run.sort_unstable_by_key(|borrowed| borrowed.vpn);
        }
    }

    /// A borrowed page whose block is damaged stays stored.
    fn cannot_read(
        &self,
        space: &ManagedSpace<M>,
        borrowed: Borrowed,
        error: ReadError,
        corrupt: &mut Option<(Vpn, ReadError)>,
    ) {
        count(&self.counters.corrupt, 1);
        corrupt.get_or_insert((borrowed.vpn, error));
        let _events = space.table.lock.read();
        self.not_back(space, borrowed.vpn, borrowed.entry);
        space.memory.wake(borrowed.vpn, 1);
    }

    /// Puts the pages of a run; returns how many came back.
    fn put_run(
        &self,
        space: &ManagedSpace<M>,
        run: &[Borrowed],
        buffer: &[S::Unit],
        events: &mut Vec<Event>,
    ) -> usize {
        let (mut done, mut back, mut most) = (0, 0, RUN);
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
}

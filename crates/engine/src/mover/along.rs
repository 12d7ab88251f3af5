//! What comes along with a fault: pages that lie near to it, brought when the program runs again.
//!
//! It takes several times as long as the answer, and the program's next fault is behind it. So it can be
//! taken in pieces by several threads at once: each takes the next piece, reads it without a lock, and
//! puts it with `table.lock` held for reading.

use std::sync::atomic::{AtomicUsize, Ordering};

use clew_core::{Event, Vpn};
use clew_store::{Entry, Get, State};

use super::borrowed::{Borrowed, borrow};
use super::{BlockStore, Mover, MoverContext, is_sample};
use crate::space::{ManagedSpace, Memory};

/// Pages of a piece. Who waits for one of them waits for all, and each costs a call of the system.
const PIECE: usize = 4;

/// Pages that are to come along with a fault, in the order in which they are brought.
#[derive(Debug, Default)]
#[must_use = "the pages do not come"]
pub struct Along {
    pub(super) vpns: Vec<Vpn>,
    /// Those that are far away and in memory all the same come, too.
    pub(super) far_too: bool,
    /// How many were taken.
    taken: AtomicUsize,
}

impl Along {
    /// How many they are.
    pub fn len(&self) -> usize {
        self.vpns.len()
    }

    /// Whether nothing comes along.
    pub fn is_empty(&self) -> bool {
        self.vpns.is_empty()
    }

    /// The same, beginning with what follows `vpn`: programs mostly go on there.
    pub fn from(mut self, vpn: Vpn) -> Along {
        let behind = self.vpns.partition_point(|page| *page < vpn);
        self.vpns.rotate_left(behind);
        self
    }

    /// The next pages, at most so many, which nobody else takes; `None` when all were taken.
    fn take(&self, most: usize) -> Option<&[Vpn]> {
        let from = self.taken.fetch_add(most, Ordering::Relaxed);
        self.vpns
            .get(from..)
            .filter(|left| !left.is_empty())
            .map(|left| &left[..most.min(left.len())])
    }
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Brings all of it. The caller holds `table.lock` for reading.
    pub fn bring_along(
        &self,
        space: &ManagedSpace<M>,
        along: Along,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) {
        if !along.is_empty() {
            let run = self.read_near(space, &along.vpns, along.far_too, true, ctx);
            self.put_borrowed(space, &run, &ctx.pages, events);
        }
        // Its memory serves the next one.
        ctx.along.vpns = along.vpns;
        ctx.along.vpns.clear();
    }

    /// Brings the next piece of what others bring, too; false if none is left. Whether the caller `holds`
    /// `table.lock` for reading, he has to say.
    pub fn bring_piece(
        &self,
        space: &ManagedSpace<M>,
        along: &Along,
        holds: bool,
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(piece) = along.take(PIECE) else { return false };
        let run = self.read_near(space, piece, along.far_too, holds, ctx);
        let _events_wait = (!holds && !run.is_empty()).then(|| space.table.lock.read());
        self.put_borrowed(space, &run, &ctx.pages, events)
    }

    /// Borrows those of some pages that are stored, and of those that are far away those that are in memory all the
    /// same, if they are looked at (`far_too`), and reads them to the thread's buffer.
    fn read_near(
        &self,
        space: &ManagedSpace<M>,
        vpns: &[Vpn],
        far_too: bool,
        holds: bool,
        ctx: &mut MoverContext<S>,
    ) -> Vec<Borrowed> {
        let mut run: Vec<Borrowed> = Vec::with_capacity(vpns.len());
        let mut end = 0;
        for next in vpns.iter().copied() {
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
                    let _events_wait = (!holds).then(|| space.table.lock.read());
                    self.not_back(space, next, entry);
                    space.memory.wake(next, 1);
                }
            }
        }
        run
    }
}

/// Whether a page can come along with another: it is in a block, on flash only if that one was, and nobody watches
/// whether it is used.
pub(super) fn is_there(entry: Entry, far_too: bool) -> bool {
    entry.state() == State::Stored
        && entry.handle().is_some()
        && !is_sample(entry)
        && (far_too || !entry.is_far())
}

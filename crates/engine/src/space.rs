//! One address space under management: its page table and the memory behind it.
//!
//! Lock order: `one_swap_out`, then `table.lock`, then `under_way`, which is a leaf held for
//! moments. Nobody holds the `table.lock` of two spaces, except who forks: the child is not known
//! to anybody else yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use clew_core::{SpaceId, Vpn};
use clew_policy::prefetch::runs::Runs;
use clew_store::{Entry, Space, SpaceJournal, State};
use parking_lot::{Mutex, MutexGuard};

use crate::learn::Learner;

/// What became of a page that should leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Took {
    /// It is out of the program; its bytes can be copied.
    Taken,
    /// The same, but it must go back at once: it is needed where its user cannot wait for it.
    Needed,
    /// There was nothing at that address.
    Hole,
    /// It is shared after a fork, or pinned: still in the program.
    Busy,
    /// It cannot be moved, or not now: still in the program.
    Stayed,
    /// Nothing was tried, because a fault came first: still in the program.
    CalledOff,
    /// Whether it left, and where it is, nobody can say any more: the program must not go on without.
    Lost,
}

/// How far a put came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Put {
    /// Pages done, from the first.
    pub pages: usize,
    /// What stopped it before the end.
    pub stop: Option<PutStop>,
}

/// What stopped a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutStop {
    /// The program is changing its mappings: read its events, look again, try again. Also where the
    /// system has no memory at the moment: a page that has no other home must not be given up.
    Again,
    /// There is a page already.
    Exists,
    /// There is no such mapping (any more), or no program.
    Gone,
}

/// The memory of one program, as the mover needs it, in units of which a page is made
/// ([`crate::BlockStore::Unit`]). Live it is a process with an agent; in tests a table of bytes; in replay what the
/// trace says.
pub trait Memory<U = u8>: Send + Sync {
    /// From now until [`Memory::release_events`], no event of this program is read until its pages are
    /// taken: what the page table says stays true meanwhile. `yields`: a fault that comes before that has
    /// begun may call it off ([`Took::CalledOff`]). Called with the space's lock held for writing.
    fn hold_events(&self, yields: bool);

    /// Takes `vpns` (ascending, at most [`MAX_BATCH`]) out of the program, each atomically; `took`
    /// gets one entry each. The bytes are available to [`Memory::copy_taken`] from
    /// [`Memory::finish_taking`] to [`Memory::release_taken`]. One batch at a time.
    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>);

    /// Ends [`Memory::hold_events`].
    fn release_events(&self);

    /// Waits until the bytes of what was taken of `vpns` are there; corrects `took` where they never will be, or where a
    /// page must go back ([`Took::Needed`]).
    fn finish_taking(&self, _vpns: &[Vpn], _took: &mut Vec<Took>) {}

    /// Copies the `i`-th page of the batch, which was [`Took::Taken`] or [`Took::Needed`], to `out` (one page). False if it cannot be read
    /// any more: then it is lost.
    #[must_use]
    fn copy_taken(&self, i: usize, out: &mut [U]) -> bool;

    /// The batch's bytes are no longer needed.
    fn release_taken(&self);

    /// Gives `vpns` (ascending) to the kernel's swap; `took` gets one entry each, [`Took::Taken`],
    /// [`Took::Hole`] or [`Took::Stayed`]. A touch brings a page back, and nobody hears of it. Without
    /// such a swap all stay.
    fn lend(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        took.clear();
        took.resize(vpns.len(), Took::Stayed);
    }

    /// Makes busy pages exclusively the program's own, and brings lent ones in; true if it is worth
    /// trying them again.
    fn unshare(&self, vpns: &[Vpn]) -> bool;

    /// Puts whole pages of `bytes` at `first` and wakes who waits for them. Never waits.
    fn put(&self, first: Vpn, bytes: &[U]) -> Put;

    /// As [`Memory::put`], with zeros.
    fn put_zero(&self, first: Vpn, count: usize) -> Put;

    /// Wakes who waits for these pages, to look again.
    fn wake(&self, first: Vpn, count: usize);

    /// How many pages of fresh memory to give at once when `vpn` is first touched, at least 1.
    fn fresh_run(&self, vpn: Vpn) -> usize;
}

/// Most pages one batch takes out.
pub const MAX_BATCH: usize = 512;

/// The same of a program that runs: its faults wait until the pages of a batch have left.
pub(crate) const BATCH_IN_USE: usize = 64;

/// A batch between mark and publish, as one of its spaces sees it. Where its pages are now is in
/// the journal.
pub(crate) struct Batch<M: ?Sized> {
    /// Children forked since the marking, which had a part in pages that were on their way.
    pub dependents: Vec<Arc<ManagedSpace<M>>>,
}

impl<M: ?Sized> Default for Batch<M> {
    fn default() -> Self {
        Batch { dependents: Vec::new() }
    }
}

/// One address space under management.
pub struct ManagedSpace<M: ?Sized = dyn Memory> {
    /// Its page table, and the lock that orders events against puts.
    pub table: Space,
    /// Its memory.
    pub memory: Arc<M>,
    /// What a successor must know of it.
    pub journal: SpaceJournal,
    /// The batch that pages of this space are part of: its own, or that of the parent it was
    /// forked from meanwhile. Changes only under `table.lock` held for writing.
    pub(crate) under_way: Mutex<Option<Batch<M>>>,
    /// Children that joined it.
    joined: AtomicUsize,
    /// Faults so far; wraps around.
    faults: AtomicU32,
    /// The runs of its faults. A leaf, held for moments.
    pub(crate) runs: Mutex<Runs>,
    /// Held for the whole of a swap-out: one at a time.
    pub(crate) one_swap_out: Mutex<Learner>,
}

impl<M: ?Sized> ManagedSpace<M> {
    /// Manages `table`, whose bytes are in `memory`.
    pub fn new(table: Space, memory: Arc<M>, journal: SpaceJournal) -> ManagedSpace<M> {
        let (under_way, joined, faults, runs, one_swap_out) = Default::default();
        ManagedSpace { table, memory, journal, under_way, joined, faults, runs, one_swap_out }
    }

    /// Its number.
    pub fn id(&self) -> SpaceId {
        self.table.id()
    }

    /// It has met a fault.
    pub(crate) fn count_fault(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    /// Faults so far, for [`ManagedSpace::is_in_use`].
    pub(crate) fn faults(&self) -> u32 {
        self.faults.load(Relaxed)
    }

    /// Whether it has met a fault since `seen` was what is here now.
    pub(crate) fn is_in_use(&self, seen: &mut u32) -> bool {
        let now = self.faults.load(Relaxed);
        std::mem::replace(seen, now) != now
    }

    /// Nothing is taken out as long as the guard lives.
    pub fn hold_swap_outs(&self) -> MutexGuard<'_, Learner> {
        self.one_swap_out.lock()
    }

    /// As [`ManagedSpace::hold_swap_outs`]; `None` if one is under way for longer than `patience`.
    pub fn try_hold_swap_outs(&self, patience: Duration) -> Option<MutexGuard<'_, Learner>> {
        self.one_swap_out.try_lock_for(patience)
    }

    /// Where the page that was marked for `slot` is now, and its entry; `None` if the program gave
    /// it up. True as long as `table.lock` is held.
    ///
    /// No other page is mistaken for it: a `Moving` entry was marked at its address or came there
    /// by a remap, which is journaled and says that what was marked there is gone.
    pub(crate) fn moving(&self, slot: usize) -> Option<(Vpn, Entry)> {
        let at = self.journal.batch_slot(slot).filter(|_| slot < self.journal.batch_len())?;
        let entry = self.table.load(at);
        (entry.state() == State::Moving).then_some((at, entry))
    }

    /// The children that joined the batch under way, but for the first `known`.
    pub(crate) fn dependents(&self, known: usize) -> Vec<Arc<ManagedSpace<M>>> {
        self.under_way.lock().as_ref().map_or(Vec::new(), |b| b.dependents[known..].to_vec())
    }

    /// How many children have joined it. True as long as `table.lock` is held.
    pub(crate) fn joined(&self) -> usize {
        self.joined.load(Relaxed)
    }

    /// A batch begins. The caller holds `table.lock` for writing, as for the two below.
    pub(crate) fn begin_part(&self) {
        *self.under_way.lock() = Some(Batch::default());
    }

    /// A child has joined the batch under way; false if there is none.
    pub(crate) fn join(&self, child: &Arc<ManagedSpace<M>>) -> bool {
        let mut under_way = self.under_way.lock();
        let Some(batch) = &mut *under_way else { return false };
        child.begin_part();
        batch.dependents.push(Arc::clone(child));
        self.joined.store(batch.dependents.len(), Relaxed);
        true
    }

    /// The batch is over here; the children that had joined it.
    pub(crate) fn end_part(&self) -> Vec<Arc<ManagedSpace<M>>> {
        self.joined.store(0, Relaxed);
        self.under_way.lock().take().map_or(Vec::new(), |batch| batch.dependents)
    }
}

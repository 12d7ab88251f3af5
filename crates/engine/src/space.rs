//! One address space under management: its page table and the memory behind it.
//!
//! Lock order: a parent's `table.lock` before a forked child's, each before `remaps` and
//! `dependents`; the latter two are held for moments and never across I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clew_core::{SpaceId, Vpn};
use clew_store::Space;
use parking_lot::Mutex;

/// What became of a page that should leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Took {
    /// It is out of the program; its bytes can be copied.
    Taken,
    /// There was nothing at that address.
    Hole,
    /// It is shared after a fork, or pinned: still in the program.
    Busy,
    /// It cannot be moved, or not now: still in the program.
    Stayed,
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
    /// The program is changing its mappings: read its events, look again, try again.
    Again,
    /// There is a page already.
    Exists,
    /// There is no such mapping (any more), or no program.
    Gone,
}

/// The memory of one program, as the mover needs it. Live it is a process with an agent; in tests
/// and replay a table of bytes.
pub trait Memory: Send + Sync {
    /// From now until [`Memory::release_events`], no event of this program is read: what the page
    /// table says stays true while pages are taken. Called with the space's lock held for writing.
    fn hold_events(&self);

    /// Takes `vpns` (ascending, at most [`MAX_BATCH`]) out of the program, each atomically; `took`
    /// gets one entry each. The bytes stay available to [`Memory::copy_taken`] until
    /// [`Memory::release_taken`]. One batch at a time.
    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>);

    /// Ends [`Memory::hold_events`].
    fn release_events(&self);

    /// Copies the `i`-th page of the batch, which was [`Took::Taken`], to `out` (one page).
    fn copy_taken(&self, i: usize, out: &mut [u8]);

    /// The batch's bytes are no longer needed.
    fn release_taken(&self);

    /// Makes busy pages exclusively the program's own; true if it is worth trying them again.
    fn unshare(&self, vpns: &[Vpn]) -> bool;

    /// Puts whole pages of `bytes` at `first` and wakes who waits for them. Never waits.
    fn put(&self, first: Vpn, bytes: &[u8]) -> Put;

    /// As [`Memory::put`], with zeros.
    fn put_zero(&self, first: Vpn, count: usize) -> Put;

    /// Wakes who waits for these pages, to look again.
    fn wake(&self, first: Vpn, count: usize);

    /// How many pages of fresh memory to give at once when `vpn` is first touched, at least 1.
    fn fresh_run(&self, vpn: Vpn) -> usize;
}

/// Most pages one batch takes out.
pub const MAX_BATCH: usize = 512;

/// A remap that happened while pages were on their way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remap {
    pub from: Vpn,
    pub count: u64,
    pub to: Vpn,
}

/// One address space under management.
pub struct ManagedSpace {
    /// Its page table, and the lock that orders events against puts.
    pub table: Space,
    /// Its memory.
    pub memory: Arc<dyn Memory>,
    /// Whether a batch is between mark and publish.
    pub(crate) batch_active: AtomicBool,
    /// Remaps since the batch began, oldest first.
    pub(crate) remaps: Mutex<Vec<Remap>>,
    /// Children forked since the batch began, which share its pages.
    pub(crate) dependents: Mutex<Vec<Arc<ManagedSpace>>>,
    /// One batch at a time.
    pub(crate) batch: Mutex<()>,
}

impl ManagedSpace {
    /// Manages `table`, whose bytes are in `memory`.
    pub fn new(table: Space, memory: Arc<dyn Memory>) -> ManagedSpace {
        ManagedSpace {
            table,
            memory,
            batch_active: AtomicBool::new(false),
            remaps: Mutex::new(Vec::new()),
            dependents: Mutex::new(Vec::new()),
            batch: Mutex::new(()),
        }
    }

    /// Its number.
    pub fn id(&self) -> SpaceId {
        self.table.id()
    }

    /// Where the page that was at `vpn` when the batch began is now.
    pub(crate) fn translate(&self, mut vpn: Vpn) -> Vpn {
        for remap in self.remaps.lock().iter() {
            if (remap.from.0..remap.from.0 + remap.count).contains(&vpn.0) {
                vpn = Vpn(vpn.0 - remap.from.0 + remap.to.0);
            }
        }
        vpn
    }

    pub(crate) fn in_batch(&self) -> bool {
        self.batch_active.load(Ordering::Acquire)
    }
}

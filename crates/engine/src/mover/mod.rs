//! Mechanism: moves pages between programs and the store, and keeps the page table true.
//!
//! `Resident -> Moving -> Stored -> Restoring -> Resident`; `Absent` is memory that holds nothing,
//! `Parked` is `Stored` with a decompressed copy at hand.
//! `Lent` is in its program for everybody but the kernel, which has it in its own swap; from `Resident`,
//! back to it when that is found out, or on to `Moving`.
//! `out` takes pages out (`publish` ends it for each), `back` answers faults and `restore` brings
//! back what nobody waits for (`borrowed` is what both do), `evict` moves blocks to flash, `parked` keeps what came back early, `lend` gives
//! pages to the kernel's swap and finds those that came back, `changes` applies what programs do with
//! their memory, `recover` ends what a predecessor that died had begun. `along` says whether the rest of a large
//! block comes with a fault, `room` waits until a log has some, `lesson` makes dictionaries, `untouched` puts zeros where nobody has been.
//!
//! Invariants:
//! - Events (removed, remapped, unmapped, forked) are read and applied under `table.lock` held for
//!   writing. Whoever puts a page holds it for reading, and looks at the entry again after taking
//!   it. The kernel refuses a put while an event is unread, so a put never brings back what the
//!   program gave up.
//! - Only `Resident` and `Lent` pages are taken out. A page that is present but `Absent` here may still be
//!   about to be dropped by a madvise whose event was read: it is left alone until the program
//!   touches it afresh, or until it was seen that no such call is under way.
//! - An entry owns one reference of the handle it names. A `Restoring` entry's reference is borrowed
//!   by the restorer, who gives it back with the exchange that ends `Restoring`, or, where somebody
//!   else ended it, to the store.
//! - A page is `Moving` only in a space whose `under_way` is set, and a batch ends by publishing
//!   every page it marked: no entry stays `Moving`. A page that moves to another address meanwhile
//!   is followed; one that is given up is `Absent` at once, and its address can be used again.
//! - Whoever turns a `Moving` entry with WANTED, or a `Restoring` one, into another without putting
//!   its page wakes who waits for it.
//! - No lock of a space is held while waiting for another process: `take_out` and `unshare` run
//!   without.
//!
//! Death may come between any two updates; they are made in this order, so that each prefix is a
//! state that a successor can end:
//! - out: the batch is journaled; its pages are marked `Moving`; the agent moves them to staging;
//!   they are stored, in blocks that nobody names yet; their entries name the blocks (published);
//!   the batch is ended in the journal; staging is emptied.
//! - back: the entry becomes `Restoring`; the page is put; the entry becomes `Resident`.
//! - changes: a message of the kernel is in the journal until it has been applied; to apply one
//!   twice is to apply it once.
//!
//! References of blocks are not part of the truth: a successor counts the entries that name them.
//!
//! Lock order: see [`crate::space`].

mod along;
mod back;
mod blocks;
mod borrowed;
mod changes;
mod evict;
mod lend;
mod lesson;
mod out;
mod parked;
mod publish;
mod recover;
mod repack;
mod restore;
mod room;
mod untouched;

pub use blocks::BlockStore;
pub use parked::Parking;
pub use recover::{ReadEvents, Staged};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clew_core::{Event, PageId, RunAhead, Tier, Vpn};
use clew_store::flash::LogId;
use clew_store::table::Refused;
use clew_store::{Entry, FarBlock, Handle, PutError, ReadError, State, Store};
use parking_lot::Mutex;

use crate::space::{ManagedSpace, Memory};
use along::RoomAlong;
use parked::ParkedPages;

/// Scratch space of one thread.
pub struct MoverContext<S: BlockStore = Arc<Store>> {
    /// The codecs' scratch.
    pub codec: S::Scratch,
    /// Time spent reading the store, decompression and checksum included, in nanoseconds. A fault
    /// begins it anew.
    pub codec_ns: u64,
    /// Of the last fault: when the page that was asked for was put, unless it was not. What came along
    /// with it came later.
    pub answered: Option<Answered>,
    pages: Vec<S::Unit>,
    /// Pages of a group that need a place in a block, and where they come from.
    members: Vec<Vpn>,
    sources: Vec<out::Source>,
    /// The batch.
    marked: out::Marked,
}

impl<S: BlockStore> Default for MoverContext<S> {
    fn default() -> Self {
        MoverContext {
            codec: S::Scratch::default(),
            codec_ns: 0,
            answered: None,
            pages: Vec::new(),
            members: Vec::new(),
            sources: Vec::new(),
            marked: out::Marked::default(),
        }
    }
}

/// A page that a fault asked for is in its program, which runs again.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Since then.
    pub at: Instant,
    /// What of [`MoverContext::codec_ns`] had been spent by then: on its own chunk.
    pub codec_ns: u64,
}

/// Counts since the beginning.
#[derive(Debug, Default)]
pub struct MoverCounters {
    /// Pages taken out and stored.
    pub swapped_out: AtomicU64,
    /// Of these, pages whose kept copy was still valid.
    pub reused: AtomicU64,
    /// Of these, pages of zeros.
    pub zeros: AtomicU64,
    /// Pages taken out and given back at once: asked for meanwhile, or no room.
    pub returned: AtomicU64,
    /// Pages moved to a log.
    pub evicted: AtomicU64,
    /// Pages of the pool that were stored anew.
    pub repacked: AtomicU64,
    /// Pages brought back by a fault.
    pub demand: AtomicU64,
    /// Pages given to the kernel's swap.
    pub lent: AtomicU64,
    /// Pages found to have come back from there: the kernel's own faults.
    pub lent_back: AtomicU64,
    /// Of these, pages that were waited for on flash.
    pub demand_flash: AtomicU64,
    /// Pages brought back by restore.
    pub restored: AtomicU64,
    /// Pages that a fault brought back with the one asked for, as of the same block or run.
    pub along: AtomicU64,
    /// Pages taken out to see whether they are used.
    pub sampled: AtomicU64,
    /// Faults that said so of one, or of a run.
    pub sampled_used: AtomicU64,
    /// Pages parked.
    pub parked: AtomicU64,
    /// Of these, pages that were used while they were parked.
    pub parked_used: AtomicU64,
    /// Of these, pages that were pushed out unused, or were to leave.
    pub parked_expired: AtomicU64,
    /// Faults on memory that held nothing.
    pub fresh: AtomicU64,
    /// Faults on pages that were back already.
    pub spurious: AtomicU64,
    /// Pages that were present where the table said stored. A defect, but for a page that was moved away
    /// and back while two fetched it (`borrowed`).
    pub conflicts: AtomicU64,
    /// Stored copies whose checksum was wrong.
    pub corrupt: AtomicU64,
}

/// A page that somebody waits for, and whose block is being fetched. Its entry stays borrowed until
/// [`Mover::arrived`].
#[derive(Clone, Copy, Debug)]
#[must_use = "its program waits for ever"]
pub struct Awaited {
    /// The page.
    pub vpn: Vpn,
    entry: Entry,
}

/// How a fault was answered; `F` is where a block is that has to be waited for.
#[derive(Debug)]
pub enum Fault<F = FarBlock> {
    /// The stored page is back.
    Restored,
    /// Fresh zeros, this many pages.
    Fresh(u32),
    /// It was there already.
    Spurious,
    /// It is on its way; whoever moves it will wake the program.
    Waiting,
    /// It is far away: whoever asked has it fetched, and then calls [`Mover::arrived`].
    Far(Awaited, F),
    /// The program is changing its mappings: read events, then ask again.
    Again,
    /// The program or the mapping is gone.
    Gone,
    /// The stored copy is damaged. The program must not go on.
    Corrupt(ReadError),
}

/// What a swap-out did.
#[derive(Debug, Default)]
pub struct SwapOut {
    /// For the policies: one `Stored`, `Stayed` or (there was no page) `Freed` for every page that
    /// was still resident, unless the program gave it up meanwhile.
    pub events: Vec<Event>,
    /// Pages stored.
    pub stored: usize,
    /// The pool had no room.
    pub full: Option<PutError>,
}

/// What a restore did.
#[derive(Debug, Default)]
pub struct Restored {
    /// Pages brought back.
    pub pages: usize,
    /// The first damaged copy, and where. It stays stored.
    pub corrupt: Option<(Vpn, ReadError)>,
}

/// Sees a page that was taken out, before anybody can have it back: who takes long makes its program
/// wait.
pub type Witness<U = u8> = Box<dyn Fn(PageId, &[U]) + Send + Sync>;

/// Moves pages of any space in and out of one store. The daemon's, with its defaults, moves bytes between
/// programs and the pool.
pub struct Mover<S: BlockStore = Arc<Store>, M: ?Sized = dyn Memory> {
    /// The store.
    pub store: S,
    /// What it counted.
    pub counters: MoverCounters,
    /// Sees what leaves.
    witness: Option<Witness<S::Unit>>,
    /// A copy is kept after its page came back.
    retain: bool,
    run_ahead: Option<RunAhead>,
    /// Set at each look by who keeps a budget.
    pub room_along: RoomAlong,
    parking: Parking,
    parked: ParkedPages<S::Unit, M>,
    /// Held by who learns ([`lesson`]).
    lesson: Mutex<()>,
    page_units: usize,
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Moves pages in and out of `store`.
    pub fn new(store: S, retain: bool, parking: Parking) -> Mover<S, M> {
        let page_units = store.page_units();
        let (counters, room_along, parked, lesson) = Default::default();
        let parking = Parking { pages: parking.pages.max(1), ..parking };
        Mover {
            store,
            counters,
            witness: None,
            retain,
            run_ahead: None,
            room_along,
            parking,
            parked,
            lesson,
            page_units,
        }
    }

    /// The same, with somebody who sees each page that was taken out, as it was then.
    pub fn with_witness(self, witness: Option<Witness<S::Unit>>) -> Mover<S, M> {
        Mover { witness, ..self }
    }

    /// The same, bringing pages behind a fault along with it.
    pub fn with_run_ahead(self, run_ahead: Option<RunAhead>) -> Mover<S, M> {
        Mover { run_ahead, ..self }
    }

    /// A page that is stored in this block.
    fn stored_entry(&self, handle: Option<Handle>, index: u16) -> Entry {
        let entry = page_entry(State::Stored, handle, index);
        let log = handle.and_then(|handle| self.store.log_of(handle));
        log.map_or(entry, |log| entry.with(log_flag(log)))
    }

    /// The tier that a stored page is in, as far as its entry knows; which donor, its block says.
    pub fn tier_of(&self, entry: Entry) -> Tier {
        if !entry.is_far() {
            return Tier::Pool;
        }
        if entry.has(Entry::FLASH) {
            return Tier::Flash;
        }
        let log = entry.handle().and_then(|handle| self.store.log_of(handle));
        log.map_or(Tier::Pool, LogId::tier)
    }

    fn release(&self, handle: Option<Handle>) {
        if let Some(handle) = handle {
            self.store.release(handle);
        }
    }
}

/// A page in `state` with the block that holds its copy, if any.
fn page_entry(state: State, handle: Option<Handle>, index: u16) -> Entry {
    match handle {
        Some(handle) => Entry::with_block(state, handle, index),
        None => Entry::new(state),
    }
}

/// What the entry of a page has whose block is in this log.
fn log_flag(log: LogId) -> u8 {
    if log == LogId::FLASH { Entry::FLASH } else { Entry::DONOR }
}

/// Whether a page is out as a sample.
fn is_sample(entry: Entry) -> bool {
    entry.state() == State::Stored && entry.has(Entry::SAMPLED)
}

/// Writes an entry that must not be lost.
fn set<M: ?Sized>(space: &ManagedSpace<M>, vpn: Vpn, entry: Entry) {
    if let Err(error) = space.table.store(vpn, entry) {
        // Going on would let a program read zeros where its data was. Dying does not: the keeper
        // holds the descriptors, and programs wait.
        clew_core::remark!(
            "clew: the page table cannot grow ({error}): stopping before a page is lost"
        );
        std::process::abort();
    }
}

/// Notes that a page is in its program, if there is room. One that is not noted is left alone: it is
/// there or it is zeros, as everything that nobody knows of.
fn note<M: ?Sized>(space: &ManagedSpace<M>, vpn: Vpn, entry: Entry) -> bool {
    space.table.note(vpn, entry).is_ok()
}

/// The entry that stood in the way of an exchange; the tables of known entries exist.
fn found(refused: Refused) -> Entry {
    match refused {
        Refused::Found(entry) => entry,
        Refused::Table(_) => Entry::ABSENT,
    }
}

/// Replaces whatever `vpn` has come to be since `entry` was read; returns what was replaced.
fn replace<M: ?Sized>(
    space: &ManagedSpace<M>,
    vpn: Vpn,
    mut entry: Entry,
    new: impl Fn(Entry) -> Entry,
) -> Entry {
    loop {
        match space.table.compare_exchange(vpn, entry, new(entry)) {
            Ok(()) => return entry,
            Err(refused) => entry = found(refused),
        }
    }
}

fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

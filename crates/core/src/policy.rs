//! The six questions of a swap scheme, one trait each.
//!
//! A policy is a deterministic state machine over [`Event`]s. It does no I/O, reads no clock and
//! takes no lock; time comes in the [`View`], random numbers from a seeded generator it was built
//! with. `on_event` tells it something, `pick_*` and their like ask it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::app::AppId;
use crate::event::Event;
use crate::page::{Hotness, PageId, PageRun};
use crate::tier::{DonorId, Tier};
use crate::view::{Classes, View};

/// A number a policy counts, for `--format json` and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name, with the unit as suffix.
    pub name: &'static str,
    /// Value.
    pub value: f64,
    /// What it counts.
    pub help: &'static str,
}

/// Long, pure work a policy wants done off the fault path (Archer 4.3: mining).
///
/// Live runs it in the background, replay inline. When it has run, `Event::JobDone` with its
/// number follows and the policy fetches the result from wherever the closure left it.
pub struct Job {
    /// Number by which `JobDone` names it; unique within the policy. (The engine gives jobs numbers
    /// of its own on their way out and translates back.)
    pub id: u64,
    /// The work.
    pub run: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

/// An app that must end. Any part may say so, after any event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The app.
    pub app: AppId,
    /// Why; shown to the user.
    pub reason: &'static str,
}

/// What every policy has.
pub trait Observe: Send {
    /// Something happened.
    fn on_event(&mut self, _event: &Event, _view: &View<'_>) {}

    /// Long work to be done now, if any.
    fn take_job(&mut self) -> Option<Job> {
        None
    }

    /// An app that must end because of what happened, if any (MobileSwap III-C: its donor is
    /// lost). The engine asks until there is none.
    fn take_ending(&mut self) -> Option<Ending> {
        None
    }

    /// What it has counted.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}

/// How much must leave DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Pages wanted.
    pub pages: usize,
    /// The hard limit is reached: the foreground app is no longer spared.
    pub urgent: bool,
}

/// What is to be watched of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleDemand {
    /// The app.
    pub app: AppId,
    /// About so many pages.
    pub pages: usize,
    /// Neighbours in a run, at most.
    pub run_pages: u32,
}

/// What a chooser points at: schemes differ in their unit, callers need not care.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// One page (LRU).
    Page(PageId),
    /// Pages that belong together (Archer's association groups, Ariadne's cold groups).
    Pages(Vec<PageId>),
    /// Everything of an app (ElasticZRAM, MobileSwap).
    App(AppId),
}

/// A unit, with what its chooser knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// What leaves.
    pub unit: Unit,
    /// Its class, where the chooser has one.
    pub hotness: Option<Hotness>,
}

/// An answer to "who leaves?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take this out.
    Take(Victim),
    /// End this app (low-memory killer, lost donor). The reason is shown to the user.
    EndApp {
        /// The app.
        app: AppId,
        /// Why.
        reason: &'static str,
    },
}

/// Who leaves DRAM next?
pub trait Reclaim: Observe + Classes {
    /// Appends victims to `out`, most expendable first, until `demand` is met or nobody is left.
    /// A page handed out is off the lists until an event puts it back (`Stored`, `Stayed`, `PageIn`).
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>);

    /// Appends everything of `app` that is resident, in any order, foreground or not, each with
    /// what is known about it: somebody asked for this app to be taken out. What is handed out is
    /// off the lists as with [`Reclaim::pick_victims`].
    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>);

    /// Appends resident pages of an app of which it is worth knowing whether the next relaunch uses
    /// them, as runs of neighbours. They stay on the lists; asked again, others come first. Whoever
    /// asks watches them (live: takes them out, and the first touch brings back the run) and tells
    /// `Access { kind: Seen }` of what was touched and [`Event::Unused`] of what was not.
    fn pick_samples(&mut self, _: SampleDemand, _: &View<'_>, _out: &mut Vec<PageRun>) {}
}

/// A page that asks to be let into the pool.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The page.
    pub page: PageId,
    /// Its first bytes (up to 512; ezswap III-B).
    pub sample: &'a [u8],
}

/// An answer to "may it enter the pool?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// It may.
    Yes,
    /// It may not; placement is asked with [`Cause::Rejected`].
    No,
}

/// May it enter the pool?
pub trait Admission: Observe {
    /// Whether `candidate` may enter. Called from the policy thread with a sample of the page.
    fn admit(&mut self, candidate: Candidate<'_>, view: &View<'_>) -> Admit;

    /// Whether every page is admitted, so that samples need not be taken.
    fn admits_all(&self) -> bool {
        false
    }

    /// Whether clean pages of files may enter at all (ezswap III-A, all-page accommodation). Otherwise they
    /// are dropped, and nobody is asked about them.
    fn takes_files(&self) -> bool {
        false
    }
}

/// How many of the pages behind a fault, and around it, may come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RunAhead {
    /// Behind it, at most.
    pub max_pages: u32,
    /// One fault in so many that begin a run or a block brings nothing, to see what would have been used.
    pub probe_one_in: u32,
    /// Pages of the aligned block around it that may come; below two, none.
    pub around_pages: u32,
}

/// The codecs that a group can ask for.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CodecKind {
    /// Stored as it is.
    Raw,
    /// LZ4 block format.
    #[default]
    Lz4,
    /// Zstandard at its fastest level.
    Zstd,
    /// Zstandard with a dictionary learned from the pages of the same program: for groups of one
    /// page in one chunk. Others are stored as [`CodecKind::Zstd`] does.
    ZstdDictionary,
    /// LZO1X.
    Lzo,
    /// Base-delta-immediate.
    BaseDeltaImmediate,
}

impl CodecKind {
    /// Its name where people read it.
    pub fn shown(self) -> &'static str {
        match self {
            CodecKind::Raw => "uncompressed",
            CodecKind::Lz4 => "LZ4",
            CodecKind::Zstd => "zstd",
            CodecKind::ZstdDictionary => "zstd with a learned dictionary",
            CodecKind::Lzo => "LZO",
            CodecKind::BaseDeltaImmediate => "base-delta-immediate",
        }
    }

    /// Whether it learns from the pages that it stores.
    pub fn learns(self) -> bool {
        self == CodecKind::ZstdDictionary
    }
}

/// How the pool keeps what is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolKind {
    /// Objects of about one size share slabs of one to eight frames, as in the kernel's zsmalloc.
    #[default]
    SizeClasses,
    /// Up to three zpages share a frame, as in the kernel's z3fold. Frames can be evicted.
    Z3fold,
}

impl PoolKind {
    /// Its name where people read it.
    pub fn shown(self) -> &'static str {
        match self {
            PoolKind::SizeClasses => "size classes",
            PoolKind::Z3fold => "z3fold",
        }
    }
}

/// Pages that are compressed together as one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The pages in the order of the block. A packer may group pages of one app; the engine cuts a
    /// group where its pages are of several address spaces, so that what arrives is of one space.
    pub pages: Vec<PageId>,
    /// Class, where known.
    pub hotness: Option<Hotness>,
    /// What compresses it.
    pub codec: CodecKind,
    /// Bytes one call of the codec compresses: less than a page (several chunks a page), a page,
    /// or more (several pages a chunk). Never more than the group holds.
    pub chunk_bytes: u32,
    /// A fault on one page brings the others back too, as resident (Ariadne) or parked (Archer).
    pub park_siblings: bool,
}

/// What is compressed together, in what chunks?
pub trait Packing: Observe {
    /// Turns victims (pages and page groups; the engine has expanded apps) into groups, appended to
    /// `out`. What is left in `victims` waits for a fuller group (Ariadne 4.3: an incomplete cold
    /// group): the engine offers it again, first, in the next round, and takes it back with
    /// `Stayed` if it is used meanwhile. With `flush` nothing may be left.
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    );

    /// Whether it ever wants anything stored anew.
    fn repacks(&self) -> bool {
        false
    }

    /// Appends groups of about `wanted` pages that are in the pool, and that should rather be packed like this, as
    /// nothing else is to be done now. A page that is not stored any more, or takes no less then, is left where it is; so
    /// none is named twice.
    fn pick_repacks(&mut self, _wanted: usize, _view: &View<'_>, _out: &mut Vec<Group>) {}
}

/// What leaves the pool?
pub trait Eviction: Observe {
    /// Appends units that should leave the pool so that about `bytes` become free; nothing
    /// appended means that nothing may leave, and the pool is full.
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>);
}

/// How the pages of a block lie on flash.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum FlashForm {
    /// As they are stored in the pool, or would be.
    #[default]
    AsStored,
    /// Decompressed (ElasticZRAM 2.2.1).
    Pages,
}

impl FlashForm {
    /// Whether nothing needs to be said of it.
    pub fn is_as_stored(&self) -> bool {
        *self == FlashForm::AsStored
    }
}

/// Why a group needs a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// It leaves DRAM.
    SwapOut,
    /// The pool did not admit it.
    Rejected,
    /// It was evicted from the pool, or is to leave another tier.
    Evicted,
}

/// An answer to "which tier?".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Place {
    /// To this tier; to flash or a donor as it is stored, or would be in the pool.
    Tier(Tier),
    /// To flash, as pages that are not compressed.
    FlashPages,
    /// To this donor, as pages that are not compressed.
    DonorPages(DonorId),
    /// It stays where it is.
    Stay,
    /// End the app (its data is gone, or there is nowhere to put it).
    EndApp(AppId),
}

/// Which tier?
pub trait Placement: Observe {
    /// Where `group` goes. `app` owns it.
    fn place(&mut self, group: &Group, app: AppId, cause: Cause, view: &View<'_>) -> Place;

    /// Appends up to `pages` stored pages that should go to another tier now; where to, it says when
    /// [`Placement::place`] is asked with [`Cause::Evicted`]. Asked from time to time.
    fn pick_moves(&mut self, _pages: usize, _view: &View<'_>, _out: &mut Vec<PageId>) {}
}

/// What made the prefetcher be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Trigger {
    /// The app was brought to the foreground.
    Relaunch(AppId),
    /// A stored page was demanded; it is already on its way.
    Fault(PageId),
    /// A prefetched page was used.
    Hit(PageId),
}

/// How a prefetched page waits for its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrival {
    /// It becomes resident.
    #[default]
    Resident,
    /// It is parked in a first-in-first-out buffer of `pages` (Ariadne 4.4). Pushed out unused, it
    /// is compressed again, or, with `keep`, its stored copy is valid once more.
    Parked {
        /// Pages the buffer holds.
        pages: usize,
        /// Keep the stored copy while the page is parked.
        keep: bool,
    },
}

/// What comes back early?
pub trait Prefetch: Observe {
    /// How what it picks on a fault or a hit waits. What a relaunch restores becomes resident.
    fn arrival(&self) -> Arrival {
        Arrival::Resident
    }

    /// If so, pages behind a fault come with it, decided where it is answered; then it is not to be
    /// asked about faults beside that.
    fn run_ahead(&self) -> Option<RunAhead> {
        None
    }

    /// Whether an app in front must have all that is picked at its relaunch: what finds no room then comes as soon as
    /// there is some, and room is made for it. Else it is left where it is.
    fn brings_all(&self) -> bool {
        false
    }

    /// Appends stored pages worth restoring now, in the order wanted. The engine skips those that
    /// are not stored any more.
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>);
}

//! What happens. Policies learn about the world through these and nothing else.
//!
//! Invariants, kept by whoever drives an engine:
//! - the page table is changed first, the event is told after it;
//! - every use of a page that becomes known is one [`Event::Access`]. What else the use meant
//!   (it ended a prefetch, it brought a page back) is told beside it: a demand swap-in is
//!   `Access { kind: Fault }`, then `PageIn { demand: true }`; the use of a parked or prefetched
//!   page is `Access { kind: Seen }`, then [`Event::PrefetchUsed`];
//! - [`Event::Freed`], [`Event::SpaceEnd`] and [`Event::Exit`] may name pages nobody ever heard of;
//! - a page of a file that is dropped is told as `Stored` on flash, of no bytes, and as `PageIn` from there
//!   when it is read from its file, also for the first time;
//! - only one app is in front: bringing one there sends the other back (the engine tells
//!   [`Event::Background`] by itself).

use serde::{Deserialize, Serialize};

use crate::app::{AppId, SpaceId};
use crate::page::{PageId, PageRun};
use crate::view::DeviceFacts;

/// A machine that lends memory (MobileSwap III-A), by the order in which it was named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DonorId(u8);

impl DonorId {
    /// How many there can be.
    pub const COUNT: usize = 31;

    /// The first.
    pub const FIRST: DonorId = DonorId(0);

    /// The one of this number; `None` if there are not so many.
    pub const fn new(number: usize) -> Option<DonorId> {
        if number < DonorId::COUNT { Some(DonorId(number as u8)) } else { None }
    }

    /// Its number, less than [`DonorId::COUNT`].
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// How a donor stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorState {
    /// It takes pages and gives them back.
    Up,
    /// It gives back what it has and takes nothing more: its link is weak or busy.
    Weak,
    /// It wants its memory back: what it has is to leave it.
    Pressed,
    /// It does not answer, or has lost what it had.
    Lost,
    /// Of two copies there is one: it gives that back and takes nothing more.
    Single,
}

impl DonorState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            DonorState::Up => "up",
            DonorState::Weak => "weak",
            DonorState::Pressed => "pressed",
            DonorState::Lost => "lost",
            DonorState::Single => "single",
        }
    }
}

/// Where a stored page is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The compressed pool in memory.
    Pool,
    /// The kernel's own zram.
    Kernel,
    /// A file or a block device. Of a space of files: the files themselves.
    Flash,
    /// The memory of another machine.
    Donor(DonorId),
}

impl Tier {
    /// How many kinds of tiers there are.
    pub const COUNT: usize = 4;

    /// Position in arrays of [`Tier::COUNT`] elements, where all donors are one.
    pub fn index(self) -> usize {
        match self {
            Tier::Pool => 0,
            Tier::Kernel => 1,
            Tier::Flash => 2,
            Tier::Donor(_) => Tier::DONORS,
        }
    }

    /// [`Tier::index`] of all donors.
    pub const DONORS: usize = 3;
}

/// How an access came to be known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum AccessKind {
    /// The program touched a page that was not mapped: a fault.
    Fault,
    /// The first touch of memory that never held anything.
    Fresh,
    /// A parked page was touched, or a trace says so.
    Seen,
}

/// One thing that happened, in the order the engine learned of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    /// An app was started (cold launch).
    Launch { app: AppId },
    /// An app was brought back to the foreground (hot launch).
    Relaunch { app: AppId },
    /// The first complete response after a launch or relaunch; ends the relaunch.
    ResponseComplete { app: AppId, response_ns: u64 },
    /// An app was sent to the background.
    Background { app: AppId },
    /// An app ended; all its pages are gone.
    Exit { app: AppId },
    /// A process of `app` appeared; or, with `file`, what it has of files: clean pages, whose contents lie in
    /// their file too ([`crate::view::Facts::is_file`]).
    SpaceStart {
        space: SpaceId,
        app: AppId,
        #[serde(default)]
        file: bool,
    },
    /// An address space is gone (exit or execve); its pages are gone.
    SpaceEnd { space: SpaceId },
    /// Anonymous pages found resident, not accessed as far as anyone knows. May name pages told
    /// before.
    Resident { run: PageRun },
    /// A page was accessed.
    Access { page: PageId, kind: AccessKind, write: bool },
    /// Pages that were watched (parked) from before a relaunch of their app to its end were not
    /// touched. The counterpart of `Access { kind: Seen }` where touches of resident pages cannot
    /// be seen; the pages are resident again, or stay parked, as before.
    Unused { run: PageRun },
    /// Pages were unmapped or their contents given up by the program.
    Freed { run: PageRun },
    /// Pages moved to another address (mremap).
    Moved { from: PageRun, to: PageId },
    /// A page's contents left DRAM for `tier`, taking `bytes` there (its share of a block).
    Stored { page: PageId, tier: Tier, bytes: u32 },
    /// A page that was handed out stays resident after all (it could not be taken out, there was
    /// no room, or it was used while it waited for its group to fill).
    Stayed { page: PageId },
    /// A stored page came back, resident or parked. `demand` is false when it came along or was
    /// prefetched.
    PageIn { page: PageId, tier: Tier, demand: bool },
    /// A page that was brought back early was then used.
    PrefetchUsed { page: PageId },
    /// A page that was brought back early was left unused; it is stored again (`Stored` follows)
    /// or stays resident, as [`crate::policy::Arrival`] says.
    PrefetchExpired { page: PageId },
    /// A background job that a policy asked for is done. Only the policy that asked is told.
    JobDone { job: u64 },
    /// The device that flash is on was looked at, as often as the scheme wants it.
    DeviceSample { device: DeviceFacts },
    /// A donor stands otherwise than before ([`crate::view::Facts::donors`]).
    Donor { donor: DonorId, state: DonorState },
    /// Memory is short: pages wanted back.
    Pressure { pages: u64, urgent: bool },
    /// Time passed.
    Tick,
}

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
use crate::tier::{DonorId, DonorState, Tier};
use crate::view::DeviceFacts;

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
    /// Resident pages were used since that was last looked at, when and how often is not known. Told by the end
    /// of a relaunch at the latest, and in no order of use.
    Used { run: PageRun },
    /// Pages that were watched (parked) from before a relaunch of their app to its end were not
    /// touched, or resident pages were found untouched. The counterpart of `Access { kind: Seen }` and [`Event::Used`];
    /// the pages are resident again, or stay parked, as before.
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

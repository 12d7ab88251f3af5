//! What the daemon's threads share.
//!
//! `Shared::processes` is a leaf among locks, held for moments.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use clew_core::{AppId, Event, SpaceId};
use clew_engine::Mover;
use clew_store::{Journal, Space, SpaceJournal, Tables};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::RwLock;

use crate::control::trusted_path::own_uid;
use crate::faults::affinity::Placement;
use crate::faults::allowance::Allowance;
use crate::faults::arrivals::Arrivals;
use crate::faults::latency::FaultLatency;
use crate::message::Message;
use crate::programs::process::Process;
use crate::survival::records::column;
use crate::users::Users;

/// Events that fault threads post for the policies; beyond this many unread ones they are dropped
/// (and counted): policies then know a little less, and no page is harmed.
const RING: usize = 1 << 15;

/// What is left of a program whose record is damaged: only the old keeper has its descriptors, and
/// nobody knows which. Its pages are evidence, and may be all that is left of its data: they are
/// kept, and their journal stays in use, so that every further successor keeps them too.
pub struct Lost {
    /// Its page table.
    pub table: Space,
    /// Its journal.
    pub journal: SpaceJournal,
}

/// Who answers faults, and where.
pub struct Handlers {
    /// A descriptor each, which watches the programs it serves.
    pub epolls: Vec<OwnedFd>,
    /// Its CPU.
    pub cpus: Vec<usize>,
    /// Where the faulting thread should be during a relaunch.
    pub placement: Placement,
}

/// What all threads of the daemon share.
pub struct Shared {
    /// Moves pages.
    pub mover: Mover,
    /// Whom it serves.
    pub users: Arc<Users>,
    /// Makes page tables.
    pub tables: Arc<Tables>,
    /// What a successor must know besides.
    pub journal: Arc<Journal>,
    /// How many daemons have served these programs, this one included.
    pub generation: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Managed processes by space.
    pub processes: RwLock<HashMap<SpaceId, Arc<Process>>>,
    /// Fault threads' epoll descriptors, one a handler.
    pub epolls: Vec<OwnedFd>,
    /// The CPU of each handler.
    pub handler_cpus: Vec<usize>,
    /// Where the faulting thread should be during a relaunch.
    pub placement: Placement,
    /// To the policy thread.
    pub governor: Sender<Message>,
    /// Events for the policies; the policy thread reads them when it next wakes.
    pub ring: (Sender<Event>, Receiver<Event>),
    /// Events that found the ring full.
    pub ring_dropped: AtomicU64,
    /// First touches of fresh memory that waited because more than the budget was used.
    pub room_waits: AtomicU64,
    /// Where blocks arrive that faults wait for.
    pub arrivals: Arrivals,
    /// How long fault threads may wait where they need not.
    pub allowance: Allowance,
    /// How long faults took, one a handler.
    pub latencies: Vec<FaultLatency>,
    /// Groups of programs taken over that are not served yet: until then nothing may end.
    pub recovering: AtomicUsize,
    /// More than the budget is used, and pages are on their way out: who wants fresh memory gives them
    /// time.
    pub over_budget: AtomicBool,
    /// What is kept of programs whose records were found damaged.
    pub lost: OnceLock<Vec<Lost>>,
}

impl Shared {
    /// Shared state around `mover`.
    pub fn new(
        mover: Mover,
        tables: Arc<Tables>,
        journal: Arc<Journal>,
        generation: u64,
        page_bytes: u64,
        handlers: Handlers,
        governor: Sender<Message>,
    ) -> Shared {
        let Handlers { epolls, cpus, placement } = handlers;
        Shared {
            mover,
            users: Arc::new(Users::new(own_uid(), None)),
            tables,
            journal,
            generation,
            page_bytes,
            processes: RwLock::new(HashMap::new()),
            arrivals: Arrivals::default(),
            allowance: Allowance::default(),
            latencies: epolls.iter().map(|_| FaultLatency::default()).collect(),
            epolls,
            handler_cpus: cpus,
            placement,
            governor,
            ring: crossbeam_channel::bounded(RING),
            ring_dropped: AtomicU64::new(0),
            room_waits: AtomicU64::new(0),
            recovering: AtomicUsize::new(0),
            over_budget: AtomicBool::new(false),
            lost: OnceLock::new(),
        }
    }

    /// The same as a daemon that serves these users.
    pub fn with_users(self, users: Users) -> Shared {
        Shared { users: Arc::new(users), ..self }
    }

    /// The column of records that is true for this daemon's descriptors.
    pub fn column(&self) -> usize {
        column(self.generation)
    }

    /// The one that was true for its predecessor's.
    pub fn other_column(&self) -> usize {
        1 - self.column()
    }

    /// The page table of a new space; `None` if there are too many.
    pub fn new_table(&self) -> Option<Space> {
        Space::numbered(&self.tables)
    }

    /// Memory of all page tables and of the journal.
    pub fn tables_bytes(&self) -> u64 {
        self.tables.used_bytes() + self.journal.used_bytes()
    }

    /// Posts an event for the policies without waking anyone.
    pub fn post(&self, event: Event) {
        if self.ring.0.try_send(event).is_err() {
            self.ring_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The process of a space.
    pub fn process(&self, id: SpaceId) -> Option<Arc<Process>> {
        self.processes.read().get(&id).cloned()
    }

    /// All processes of an app.
    pub fn of_app(&self, app: AppId) -> Vec<Arc<Process>> {
        self.processes.read().values().filter(|p| p.app == app).cloned().collect()
    }
}

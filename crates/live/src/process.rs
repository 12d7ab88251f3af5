//! Managed processes and what the daemon's threads share.
//!
//! Lock order: a space's batch lock, its `table.lock`, its `regions`; `Shared::processes` is a leaf,
//! held for moments.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use clew_core::{AppId, Event, PageId, PageRun, SpaceId, Vpn};
use clew_engine::{ManagedSpace, Mover};
use clew_store::{State, Tables};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Mutex, RwLock};

use crate::affinity::Placement;
use crate::governor::Message;
use crate::program::ProgramMemory;

/// Events that fault threads post for the policies; beyond this many unread ones they are dropped
/// (and counted): policies then know a little less, and no page is harmed.
const RING: usize = 1 << 16;

/// One process (or one address space of it: after execve it is another).
pub struct Process {
    /// Its space.
    pub id: SpaceId,
    /// Its app.
    pub app: AppId,
    /// Process id; 0 for a forked child, which the kernel does not name.
    pub pid: u32,
    /// Command name.
    pub command: String,
    /// Page table.
    pub space: Arc<ManagedSpace>,
    /// Memory: the same that `space` uses.
    pub memory: Arc<ProgramMemory>,
    /// Registered mappings: start to end.
    pub regions: Mutex<BTreeMap<u64, u64>>,
    /// What the program moved lately, oldest first.
    pub moves: Mutex<Vec<crate::events::Move>>,
    /// `/proc/PID/statm`, `/proc/PID/smaps` and `/proc/PID/maps`; absent for a forked child.
    pub files: Option<Mutex<ProcFiles>>,
    /// The CPU whose fault thread serves it.
    pub handler: usize,
    /// Its app is being relaunched: the thread that faults is kept next to the handler.
    pub relaunching: AtomicBool,
    /// A thread whose affinity was narrowed, and what it was before.
    pub narrowed: Mutex<Option<(u32, libc::cpu_set_t)>>,
    /// Faults served.
    pub faults: AtomicU64,
    /// Faults among them that brought a stored page back.
    pub demand: AtomicU64,
    /// Pages brought back otherwise.
    pub restored: AtomicU64,
    /// Pages taken out.
    pub swapped_out: AtomicU64,
}

/// Open files of one process under /proc; they stay bound to it.
pub struct ProcFiles {
    pub statm: File,
    pub maps: File,
    pub smaps: File,
}

impl Process {
    /// A run of pages of this process.
    pub fn run(&self, first: Vpn, pages: u64) -> PageRun {
        PageRun { first: PageId::new(self.id, first), count: pages.min(u64::from(u32::MAX)) as u32 }
    }

    /// Whether its pages can be taken out.
    pub fn is_managed(&self) -> bool {
        self.memory.has_agent()
    }

    /// Vpns of stored pages, ascending.
    pub fn stored_vpns(&self) -> Vec<Vpn> {
        let mut vpns = Vec::new();
        self.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            if entry.state() == State::Stored {
                vpns.push(vpn);
            }
        });
        vpns
    }
}

/// What all threads of the daemon share.
pub struct Shared {
    /// Moves pages.
    pub mover: Mover,
    /// Makes page tables.
    pub tables: Arc<Tables>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Managed processes by space.
    pub processes: RwLock<HashMap<SpaceId, Arc<Process>>>,
    /// Fault threads' epoll descriptors, one a handler.
    pub epolls: Vec<std::os::fd::OwnedFd>,
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
    next_space: AtomicU32,
}

impl Shared {
    /// Shared state around `mover`.
    pub fn new(
        mover: Mover,
        tables: Arc<Tables>,
        page_bytes: u64,
        epolls: Vec<std::os::fd::OwnedFd>,
        handler_cpus: Vec<usize>,
        placement: Placement,
        governor: Sender<Message>,
    ) -> Shared {
        Shared {
            mover,
            tables,
            page_bytes,
            processes: RwLock::new(HashMap::new()),
            epolls,
            handler_cpus,
            placement,
            governor,
            ring: crossbeam_channel::bounded(RING),
            ring_dropped: AtomicU64::new(0),
            next_space: AtomicU32::new(1),
        }
    }

    /// A number no space had before.
    pub fn new_space_id(&self) -> SpaceId {
        SpaceId(self.next_space.fetch_add(1, Ordering::Relaxed))
    }

    /// The page table of a new space.
    pub fn new_table(&self, id: SpaceId) -> clew_store::Space {
        clew_store::Space::new(id, self.tables.clone())
    }

    /// Memory of all page tables.
    pub fn tables_bytes(&self) -> u64 {
        self.tables.used_bytes()
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

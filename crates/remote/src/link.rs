//! A channel to one donor: a long-lived link, a queue, and a worker on a core of its own (MobileSwap III-B).
//!
//! Who asks for something puts it into the queue and goes on; the worker sends it and tells what came of it. What was
//! asked for by a program that waits overtakes everything else, on this side and on the link: no more is on its way
//! than the link carries in a few milliseconds. The worker sleeps while nothing is asked for.
//!
//! *When the link is cut* what was asked for and not answered is asked again on the next one, in the same order: a donor
//! keeps what it has for the session. A write waits as long as it takes, unless somebody else has a copy: its bytes
//! are in memory, where they can be read. A read waits for [`Patience`], and then cannot be answered.
//!
//! A donor is hostile: it may answer anything, late, twice or never. It is believed what is cheap to believe (how it
//! stands); bytes are verified by who asked for them.

mod worker;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::thread::JoinHandle;

use clew_core::DonorState;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::Standing;
use crate::cores::Core;
use crate::keys::{Identity, PublicKey};
use crate::patience::Patience;
use crate::queue::{Asked, Came, Queues, What, Wrote};
use crate::secure::Session;

/// Where a donor is, and who.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it listens; looked up anew for each link.
    pub address: String,
    /// One's own keys.
    pub identity: Identity,
    /// Its key.
    pub donor: PublicKey,
    /// By which it knows what is whose.
    pub session: Session,
    /// It has something of this session, from an earlier link: if it does not know of it, it has lost that.
    pub has: bool,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    waiting: AtomicU64,
    connections: AtomicU64,
    cuts: AtomicU64,
}

struct Shared {
    queues: Mutex<Queues>,
    wakes: OwnedFd,
    peer: Peer,
    patience: Patience,
    standing: Mutex<Standing>,
    counts: Counts,
    /// What it had is gone, and somebody may still ask for it.
    has_lost: AtomicBool,
}

/// The channel. Dropped, it tells the donor nothing: a successor may come. All methods may be called from any thread.
pub struct Link {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({}, {:?})", self.shared.peer.address, self.standing().state)
    }
}

impl Link {
    /// A channel to `peer`, whose worker is on `core`. It waits for nothing.
    ///
    /// # Errors
    /// If the system gives no thread, or no descriptor.
    pub fn new(peer: Peer, patience: Patience, core: Option<Core>) -> io::Result<Link> {
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            wakes: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            peer,
            patience,
            standing: Mutex::new(Standing::unknown()),
            counts: Counts::default(),
            has_lost: AtomicBool::new(false),
        });
        let works = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("clew-link".into());
        let worker = named.spawn(move || worker::run(&works, core))?;
        Ok(Link { shared, worker: Some(worker) })
    }

    /// Has `bytes` stored at `at`. `told` is called once, from the worker.
    pub fn write(&self, at: u64, bytes: Vec<u8>, told: Wrote) {
        self.ask(Asked::now(at, What::Write { bytes, told }, false));
    }

    /// Asks for up to `len` bytes from `at` on. `told` is called once, from the worker.
    pub fn read(&self, at: u64, len: u32, pressing: bool, told: Came) {
        self.ask(Asked::now(at, What::Read { len, told }, pressing));
    }

    /// What begins in the `len` bytes from `at` on is needed no more.
    pub fn forget(&self, at: u64, len: u64) {
        self.ask(Asked::now(at, What::Forget { len }, false));
    }

    pub(crate) fn ask(&self, asked: Asked) {
        self.shared.counts.waiting.fetch_add(asked.written_bytes(), Relaxed);
        let is_to_wake = {
            let mut queues = self.shared.queues.lock();
            let is_to_wake = queues.is_empty() || asked.is_read();
            queues.push(asked);
            is_to_wake
        };
        if is_to_wake {
            self.shared.wake();
        }
    }

    /// How the donor stands.
    pub fn standing(&self) -> Standing {
        let counts = &self.shared.counts;
        let mut standing = Standing {
            sent_bytes: counts.sent.load(Relaxed),
            received_bytes: counts.received.load(Relaxed),
            waiting_bytes: counts.waiting.load(Relaxed),
            connections: counts.connections.load(Relaxed),
            cuts: counts.cuts.load(Relaxed),
            ..self.shared.standing.lock().clone()
        };
        if self.shared.has_lost.load(Relaxed) && standing.state != DonorState::Lost {
            standing.state = DonorState::Lost;
            standing.why = Some("it has lost what it had".to_string());
        }
        standing
    }

    /// Nobody asks for anything any more that the donor had before: what it has lost is lost no more.
    pub fn forgive(&self) {
        self.shared.has_lost.store(false, Relaxed);
    }

    /// Whether the donor has lost what it had since this was asked the last time.
    pub fn take_loss(&self) -> bool {
        self.shared.has_lost.swap(false, AcqRel)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.queues.lock().ends = true;
        self.shared.wake();
        if let Some(worker) = self.worker.take() {
            // It may be told of something by its own worker, which then ends by itself.
            if worker.thread().id() != std::thread::current().id() {
                let _ = worker.join();
            }
        }
    }
}

impl Shared {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wakes, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests;

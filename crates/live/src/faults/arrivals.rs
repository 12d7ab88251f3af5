//! Where blocks arrive that were fetched for faults ([`crate::faults::far`]).

use std::sync::Arc;
use std::time::Instant;

use clew_engine::{Awaited, Mover};
use clew_store::{FarBlock, FetchError, Fetched};
use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::programs::process::Process;

/// A block that was fetched for a fault, or why it was not.
pub(super) struct Arrival {
    pub(super) process: Arc<Process>,
    pub(super) awaited: Awaited,
    pub(super) since: Instant,
    pub(super) fetched: Result<Fetched, FetchError>,
}

/// Where blocks arrive.
#[derive(Debug)]
pub struct Arrivals {
    desk: Sender<Arrival>,
    pub(super) queue: Receiver<Arrival>,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        let (desk, queue) = unbounded();
        Arrivals { desk, queue }
    }
}

impl Arrivals {
    /// Has a block fetched for a fault that began at `since`. Waits for nothing.
    pub fn fetch(
        &self,
        mover: &Mover,
        process: &Arc<Process>,
        (awaited, far): (Awaited, FarBlock),
        since: Instant,
    ) {
        let (desk, process) = (self.desk.clone(), Arc::clone(process));
        mover.store.fetch(far, true, move |fetched| {
            // The other end lives as long as the daemon.
            let _ = desk.send(Arrival { process, awaited, since, fetched });
        });
    }
}

//! Faults whose block is on flash: the fault thread has it fetched and goes on with the next fault; when
//! its bytes are there, a thread of its own puts the page.
//!
//! That thread holds the space's lock for reading, as whoever puts pages, and waits for no device. Where
//! the program is changing its mappings meanwhile, it faults anew.

use std::sync::Arc;
use std::time::Instant;

use clew_core::Event;
use clew_engine::{Awaited, Fault, MoverContext};
use clew_store::{FarBlock, FetchError, Fetched};
use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::faults::serve::{ended, tell};
use crate::programs::process::{Process, Shared};

/// A block that was fetched for a fault, or why it was not.
struct Arrival {
    process: Arc<Process>,
    awaited: Awaited,
    since: Instant,
    fetched: Result<Fetched, FetchError>,
}

/// Where blocks arrive.
#[derive(Debug)]
pub struct Arrivals {
    desk: Sender<Arrival>,
    queue: Receiver<Arrival>,
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
        shared: &Shared,
        process: &Arc<Process>,
        (awaited, far): (Awaited, FarBlock),
        since: Instant,
    ) {
        let (desk, process) = (self.desk.clone(), Arc::clone(process));
        shared.mover.store.fetch(far, true, move |fetched| {
            // The other end lives as long as the daemon.
            let _ = desk.send(Arrival { process, awaited, since, fetched });
        });
    }
}

/// Puts pages as their blocks arrive, for ever.
pub fn run(shared: &Shared) {
    let (mut ctx, mut told): (MoverContext, Vec<Event>) = Default::default();
    for Arrival { process, awaited, since, fetched } in &shared.arrivals.queue {
        let fault = {
            let _events = process.space.table.lock.read();
            shared.mover.arrived(&process.space, awaited, fetched, &mut ctx, &mut told)
        };
        tell(shared, &process, &mut told);
        match fault {
            Fault::Restored => shared.latencies[process.handler].flash.record(since.elapsed()),
            Fault::Far(awaited, far) => {
                shared.arrivals.fetch(shared, &process, (awaited, far), since);
            }
            fault => ended(shared, &process, awaited.vpn, fault),
        }
    }
}

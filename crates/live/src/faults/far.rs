//! Faults whose block is on flash: the fault thread has it fetched and goes on with the next fault; when
//! its bytes are there, a thread of its own puts the page.
//!
//! That thread holds the space's lock for reading, as whoever puts pages, and waits for no device. Where
//! the program is changing its mappings meanwhile, it faults anew.

use clew_core::Event;
use clew_engine::{Fault, MoverContext};

use crate::faults::arrivals::Arrival;
use crate::faults::serve::{ended, tell};
use crate::programs::shared::Shared;

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
                shared.arrivals.fetch(&shared.mover, &process, (awaited, far), since);
            }
            fault => ended(shared, &process, awaited.vpn, fault),
        }
    }
}

//! Faults whose block is on flash: the fault thread has it fetched and goes on with the next fault; when
//! its bytes are there, a thread of its own puts the page.
//!
//! That thread holds the space's lock for reading, as whoever puts pages, and waits for no device. Where
//! the program is changing its mappings meanwhile, it faults anew; where somebody has the lock for long, it is served once
//! that is over ([`crate::faults::aside`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::Event;
use clew_engine::{Fault, MoverContext};
use crossbeam_channel::RecvTimeoutError;

use crate::faults::arrivals::Arrival;
use crate::faults::serve::{ended, tell};
use crate::programs::shared::Shared;

/// How long it waits for the lock of a space, unless that is known to be held for long.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often it looks whether such a lock is free.
const LOOK: Duration = Duration::from_millis(10);

/// Puts pages as their blocks arrive, for ever.
pub fn run(shared: &Shared) {
    let (mut ctx, mut told): (MoverContext, Vec<Event>) = Default::default();
    let mut laid_aside: Vec<Arrival> = Vec::new();
    let (queue, mut look) = (&shared.arrivals.queue, Instant::now());
    loop {
        let next = match laid_aside.is_empty() {
            true => queue.recv().map_err(RecvTimeoutError::from),
            false => queue.recv_deadline(look),
        };
        let mut put = |arrival, patience| put(shared, arrival, patience, &mut ctx, &mut told);
        if !laid_aside.is_empty() && look <= Instant::now() {
            let again = std::mem::take(&mut laid_aside);
            laid_aside.extend(again.into_iter().filter_map(|a| put(a, Duration::ZERO)));
            look = Instant::now() + LOOK;
        }
        match next {
            Ok(arrival) => {
                let is_of_its = |other: &Arrival| Arc::ptr_eq(&other.process, &arrival.process);
                let is_held = laid_aside.iter().any(is_of_its);
                let patience = if is_held { Duration::ZERO } else { PATIENCE };
                laid_aside.extend(put(arrival, patience));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Puts one; gives it back if its space's lock is held for longer than `patience`.
fn put(
    shared: &Shared,
    arrival: Arrival,
    patience: Duration,
    ctx: &mut MoverContext,
    told: &mut Vec<Event>,
) -> Option<Arrival> {
    let process = arrival.process.clone();
    let Some(events) = process.space.table.lock.read_within(patience) else {
        return Some(arrival);
    };
    let Arrival { awaited, since, fetched, .. } = arrival;
    let fault = shared.mover.arrived(&process.space, awaited, fetched, ctx, told);
    drop(events);
    tell(shared, &process, told);
    match fault {
        Fault::Restored => shared.latencies[process.handler].flash.record(since.elapsed()),
        Fault::Far(awaited, far) => {
            shared.arrivals.fetch(&shared.mover, &process, (awaited, far), since);
        }
        fault => ended(shared, &process, awaited.vpn, fault),
    }
    None
}

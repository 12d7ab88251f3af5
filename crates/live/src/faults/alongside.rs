//! Who helps a fault thread with what comes along with a fault.
//!
//! What comes along takes several times as long as the fault's own page, and the program, which runs again, soon
//! faults on something behind it. A second thread, on another CPU, takes pieces of it at the same time. It is
//! asked only where there is much to bring, and a fault thread whose helper is still busy does all of it alone.

use std::sync::Arc;

use clew_core::{Event, Vpn};
use clew_engine::{Along, MoverContext};

use crate::faults::affinity;
use crate::programs::process::Process;
use crate::programs::shared::Shared;

/// Pages from which on help is asked for: waking somebody costs about as much as one of them.
const WORTH: usize = 6;

/// Helps fault thread `handler`, for ever.
pub fn run(shared: &Shared, handler: usize) {
    affinity::pin(shared.handler_cpus[(handler + 1) % shared.handler_cpus.len()]);
    affinity::hurry();
    let (mut ctx, mut told): (MoverContext, Vec<Event>) = Default::default();
    for (process, along) in shared.helpers[handler].jobs() {
        while shared.mover.bring_piece(&process.space, &along, false, &mut ctx, &mut told) {
            shared.tell(&process, &mut told);
        }
        shared.tell(&process, &mut told);
    }
}

/// Brings what comes along with a fault at `vpn`. The caller, a fault thread, holds the space's lock for reading.
pub fn bring(
    shared: &Shared,
    process: &Arc<Process>,
    vpn: Vpn,
    along: Along,
    ctx: &mut MoverContext,
    told: &mut Vec<Event>,
) {
    let mover = &shared.mover;
    match shared.helpers.get(process.handler) {
        Some(helper) if along.len() >= WORTH && !helper.is_wanted() => {
            let along = Arc::new(along.from(vpn));
            helper.ask((process.clone(), along.clone()));
            // What the program goes on with, and more until the helper has come: it may be that it never does.
            while mover.bring_piece(&process.space, &along, true, ctx, told) && helper.is_wanted() {
            }
        }
        _ => mover.bring_along(&process.space, along, ctx, told),
    }
}

//! Who comes to the front when, where that is not one round after the other: apps that are tested among
//! others, and an app that has bursts.
//!
//! Source: Archer, 5.2.1 and 5.2.2. There twenty apps are started first; here some of them are brought back
//! before each app that is tested, too, as nothing would leave memory any more otherwise.

use std::io::Write;

use super::profile::Burst;
use super::session::Device;
use super::{GenerateError, Workload};

/// Rounds after which a tested app is ended and started anew: it is brought back three times in between.
const LIFE: usize = 3;

/// All others once, then rounds. In a round each tested app is brought back, half a round after its turn; in
/// its turn it is started, every third round; and before each turn come `between` of the others.
pub fn tested<W: Write>(
    workload: &Workload,
    device: &mut Device<'_, W>,
    tested: usize,
    between: usize,
) -> Result<(), GenerateError> {
    let tested = tested.min(workload.apps);
    let others: Vec<usize> = (tested..workload.apps).collect();
    for &other in &others {
        device.session(other, true)?;
    }
    let mut turns = others.iter().cycle().filter(|_| !others.is_empty());
    let mut started = vec![false; tested];
    let rounds = workload.profile.relaunches as usize;
    for turn in 0..rounds * tested {
        let done = match workload.events {
            Some(events) => device.records() as f64 / events as f64,
            None => turn as f64 / (rounds * tested) as f64,
        };
        device.progress(done)?;
        if done >= 1.0 {
            return Ok(());
        }
        for &other in turns.by_ref().take(between) {
            device.session(other, false)?;
        }
        let (now, again) = (turn % tested, (turn + tested / 2) % tested);
        if (turn / tested).is_multiple_of(LIFE) {
            if std::mem::replace(&mut started[now], true) {
                device.exit(now)?;
            }
            device.session(now, true)?;
        }
        if started[again] && again != now {
            device.session(again, false)?;
        }
    }
    Ok(())
}

/// All others once, then the first app with its bursts.
pub fn bursts<W: Write>(
    workload: &Workload,
    device: &mut Device<'_, W>,
    burst: &Burst,
) -> Result<(), GenerateError> {
    for other in 1..workload.apps {
        device.session(other, true)?;
    }
    device.session(0, true)?;
    device.burst_begins(0)?;
    let bursts = workload.profile.relaunches;
    for number in 0..bursts {
        device.progress(f64::from(number) / f64::from(bursts))?;
        if workload.events.is_some_and(|events| device.records() >= events) {
            return Ok(());
        }
        device.burst(0, burst)?;
    }
    Ok(())
}

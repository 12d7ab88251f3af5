//! Faults of a program while pages of the same program leave and come back all the time: what a fault
//! waits for besides its own page. Beside the kernel's zram in the same state.
//!
//! A fault is a read of more than 2 us: the kernel brings some pages back more quickly
//! (those in its swap cache), which are not counted on its side. So its quick half is left out,
//! and the medians of the two sides are not of the same faults; the tails are.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clew_live::control::protocol::Request;
use clew_live::faults::account::FaultAccount;
use clew_live::programs::advice::{advise, pidfd};

use super::clew_side::{self, ClewSide};
use super::kernel_side::{self, KernelSide};
use super::measured::{Costs, Measured};
use super::orders::Layout;
use super::side::Faulted;
use super::{MicroConfig, place};
use crate::error::BenchError;
use crate::progress::Progress;

/// Reads of one repetition.
const READS: u64 = 40_000;
/// What a program does with a page between two of them.
const GAP: Duration = Duration::from_micros(20);
/// What the daemon needs for itself, its pool not counted.
const DAEMON_BYTES: u64 = 16 << 20;
/// Bytes of original for one of its stored form, about, where the budget is made.
const RATIO: u64 = 2;

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let steps = (config.repetitions * 4) as u64;
    progress.begin("fault-under-load: filling workers", steps);
    let measured = vec![reclaim(config, scratch, progress)?, orders(config, scratch, progress)?];
    progress.done("fault-under-load: every page held what was written to it");
    Ok(measured)
}

/// Half of the pages fit: each side reclaims by itself, while the program reads at random.
fn reclaim(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Measured, BenchError> {
    let (pages, half) = (config.pages, config.pages * 4096 / 2);
    let mut kernel =
        KernelSide::start(config, &place(scratch, "kernel-half")?, Layout::Dense, pages)?;
    let budget = half + half / RATIO + DAEMON_BYTES;
    let place = place(scratch, "clew-half")?;
    let mut clew = ClewSide::start_with(config, &place, Layout::Dense, pages, Some(budget), "")?;
    kernel.limit(half)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let before = clew.daemon.status()?.fault_account;
    for repetition in 0..config.repetitions as u64 {
        let seed = config.seed + repetition;
        ours.push(clew.worker.wander(seed, READS, GAP)?);
        progress.step(clew_side::NAME);
        theirs.push(kernel.worker.wander(seed, READS, GAP)?);
        progress.step(kernel_side::NAME);
    }
    let account = clew.daemon.status()?.fault_account;
    clew.worker.verify()?;
    kernel.worker.verify()?;
    Ok(compared("own-reclaim", &ours, &theirs, &before, &account))
}

/// Somebody orders all of it out, and back, and out again.
fn orders(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Measured, BenchError> {
    let pages = config.pages;
    let mut kernel =
        KernelSide::start(config, &place(scratch, "kernel-orders")?, Layout::Dense, pages)?;
    let mut clew = ClewSide::start(config, &place(scratch, "clew-orders")?, Layout::Dense, pages)?;
    let unavailable = |error: std::io::Error| BenchError::Unavailable {
        what: "process_madvise",
        reason: error.to_string(),
    };
    let descriptor = pidfd(kernel.worker.pid()).map_err(unavailable)?;
    let region = [(kernel.worker.address(), pages * 4096)];
    let before = clew.daemon.status()?.fault_account;
    let (mut ours, mut theirs, mut turns) = (Vec::new(), Vec::new(), (0, 0));
    for repetition in 0..config.repetitions as u64 {
        let seed = config.seed + repetition;
        let mut client = clew.daemon.connect()?;
        let app = || clew_side::APP.to_string();
        let turn = |out: bool| match out {
            true => client.order(&Request::SwapOut { app: app() }).is_ok(),
            false => client.order(&Request::Restore { app: app() }).is_ok(),
        };
        let (faulted, taken) = meanwhile(turn, || clew.worker.wander(seed, READS, GAP));
        ours.push(faulted?);
        turns.0 += loaded(clew_side::NAME, taken)?;
        progress.step(clew_side::NAME);
        let turn = |out: bool| match out {
            true => advise(&descriptor, &region, libc::MADV_PAGEOUT).is_ok(),
            false => advise(&descriptor, &region, libc::MADV_WILLNEED).is_ok(),
        };
        let (faulted, taken) = meanwhile(turn, || kernel.worker.wander(seed, READS, GAP));
        theirs.push(faulted?);
        turns.1 += loaded(kernel_side::NAME, taken)?;
        progress.step(kernel_side::NAME);
    }
    let account = clew.daemon.status()?.fault_account;
    clew.worker.verify()?;
    kernel.worker.verify()?;
    let mut measured = compared("out-and-back", &ours, &theirs, &before, &account);
    measured.clew = measured.clew.with("turns", turns.0 as f64);
    measured.peer.costs = measured.peer.costs.with("turns", turns.1 as f64);
    Ok(measured)
}

/// How many turns were taken; an error where the load ended before the reads did.
fn loaded(side: &'static str, (turns, was_refused): (u64, bool)) -> Result<u64, BenchError> {
    match was_refused {
        false => Ok(turns),
        true => Err(BenchError::Refused {
            program: side,
            reason: format!("turn {turns} out or back ended the load on its faults"),
        }),
    }
}

/// Does `work` while another thread takes turns until it is done; how many those were, and whether
/// one was refused, which ends them.
fn meanwhile<T>(
    mut turn: impl FnMut(bool) -> bool + Send,
    work: impl FnOnce() -> T,
) -> (T, (u64, bool)) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut turns = 0;
            while !over.load(Ordering::Relaxed) {
                if !turn(turns % 2 == 0) {
                    return (turns, true);
                }
                turns += 1;
            }
            (turns, false)
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        (done, load.join().unwrap_or((0, true)))
    })
}

fn compared(
    case: &str,
    ours: &[Faulted],
    theirs: &[Faulted],
    before: &FaultAccount,
    account: &FaultAccount,
) -> Measured {
    let mut costs = costs(ours);
    let faults = (account.faults - before.faults).max(1) as f64;
    for (now, then) in account.causes.iter().zip(&before.causes) {
        let each = (now.seconds - then.seconds) * 1e6 / faults;
        costs = costs.with(&format!("{}_us", now.cause), each);
        let slow = (now.slow_faults - then.slow_faults) as f64;
        costs = costs.with(&format!("slow_{}", now.cause), slow);
    }
    let peer = (kernel_side::NAME, self::costs(theirs));
    Measured::of("fault-under-load", case, "one fault", costs, peer)
}

fn costs(all: &[Faulted]) -> Costs {
    let each = |of: fn(&Faulted) -> f64| -> Vec<f64> { all.iter().map(of).collect() };
    let median = |of: fn(&Faulted) -> f64| Costs::of(&each(of)).p50_us;
    Costs::of_distributions(&each(|f| f.p50_us), &each(|f| f.p99_us))
        .with("p999_us", median(|f| f.p999_us))
        .with("slow_share", median(|f| f.slow_share))
        .with("faults", all.iter().map(|f| f.faults).sum::<u64>() as f64)
}

//! Processor time of taking pages out, both sides with LZ4 on the same pages: everything that runs
//! in the group of daemon, agent and program; the caller of MADV_PAGEOUT and the kernel's threads.

use std::path::Path;
use std::time::{Duration, Instant};

use super::clew_side::ClewSide;
use super::kernel_side::{self, KernelSide};
use super::measured::{Costs, Measured};
use super::orders::{Layout, Order};
use super::{MicroConfig, place};
use crate::error::BenchError;
use crate::interrupt;
use crate::progress::Progress;

/// What both sides do after a burst of work, outside the clock.
const REST: Duration = Duration::from_millis(60);

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let steps = config.repetitions * 4 + 2;
    progress.begin("swap-out: filling two workers", steps as u64);
    let mut kernel =
        KernelSide::start(config, &place(scratch, "kernel")?, Layout::Dense, config.pages)?;
    let mut clew = ClewSide::start(config, &place(scratch, "clew")?, Layout::Dense, config.pages)?;
    let mut measured = Vec::new();
    // "read": the pages came back and were only read, so a side that kept its copy may use it.
    for (case, write) in [("written", true), ("read", false)] {
        let (mut ours, mut our_walls) = (Vec::new(), Vec::new());
        let (mut theirs, mut their_walls) = (Vec::new(), Vec::new());
        // One more: the first one finds memory that nobody has looked at yet.
        for repetition in 0..=config.repetitions {
            let (cpu, wall) = clew_once(&mut clew, write)?;
            progress.step("clew");
            let (kernel_cpu, kernel_wall) = kernel_once(&mut kernel, write)?;
            progress.step(kernel_side::NAME);
            if repetition > 0 {
                ours.push(a_page(cpu, config.pages));
                our_walls.push(a_page(wall, config.pages));
                theirs.push(a_page(kernel_cpu, config.pages));
                their_walls.push(a_page(kernel_wall, config.pages));
            }
        }
        let ours = Costs::of(&ours)
            .with("wall_us", Costs::of(&our_walls).p50_us)
            .with("compression_ratio", clew.app()?.ratio);
        let theirs = Costs::of(&theirs)
            .with("wall_us", Costs::of(&their_walls).p50_us)
            .with("compression_ratio", kernel.compression_ratio());
        let peer = (kernel_side::NAME, theirs);
        measured.push(Measured::of("swap-out", case, "CPU a page", ours, peer));
    }
    clew.worker.verify()?;
    kernel.worker.verify()?;
    progress.done("swap-out: every page held what was written to it");
    Ok(measured)
}

fn a_page(time: Duration, pages: u64) -> f64 {
    time.as_secs_f64() * 1e6 / pages as f64
}

/// Processor and wall time of taking all pages out once.
fn clew_once(clew: &mut ClewSide, write: bool) -> Result<(Duration, Duration), BenchError> {
    clew.restore()?;
    if write {
        clew.worker.act(&Order::Write)?;
    } else {
        clew.worker.touch(1, u64::MAX, Duration::ZERO, false)?;
    }
    interrupt::sleep(REST)?;
    let (before, begin) = (clew.group.cpu_time()?, Instant::now());
    clew.swap_out()?;
    let wall = begin.elapsed();
    Ok((clew.group.cpu_time()?.saturating_sub(before), wall))
}

fn kernel_once(kernel: &mut KernelSide, write: bool) -> Result<(Duration, Duration), BenchError> {
    if write {
        kernel.worker.act(&Order::Write)?;
    } else {
        kernel.worker.touch(1, u64::MAX, Duration::ZERO, false)?;
    }
    interrupt::sleep(REST)?;
    let (before, begin) = (kernel.cpu_time()?, Instant::now());
    kernel.page_out()?;
    let wall = begin.elapsed();
    Ok((kernel.cpu_time()?.saturating_sub(before), wall))
}

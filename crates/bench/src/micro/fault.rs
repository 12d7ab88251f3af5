//! One demand fault: random pages of a program that is not pinned, all of them swapped out.

use std::path::Path;
use std::time::Duration;

use super::clew_side::ClewSide;
use super::kernel_side::{self, KernelSide};
use super::measured::{Costs, Measured};
use super::orders::Layout;
use super::side::Touches;
use super::{MicroConfig, place};
use crate::error::BenchError;
use crate::progress::Progress;

/// Touches of one repetition.
const TOUCHES: u64 = 4_000;
/// Work between two touches: none, and what a program does with a page.
const GAPS: [(&str, Duration); 2] =
    [("back-to-back", Duration::ZERO), ("20us-between", Duration::from_micros(20))];

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    progress.begin("fault: filling two workers", (config.repetitions * GAPS.len() * 2) as u64);
    let mut kernel =
        KernelSide::start(config, &place(scratch, "kernel")?, Layout::Dense, config.pages)?;
    let mut clew = ClewSide::start(config, &place(scratch, "clew")?, Layout::Dense, config.pages)?;
    let mut measured = Vec::new();
    for (case, gap) in GAPS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for repetition in 0..config.repetitions as u64 {
            let seed = config.seed + repetition;
            clew.swap_out()?;
            clew.foreground()?;
            ours.push(clew.worker.touch(seed, TOUCHES, gap, false)?);
            clew.background()?;
            progress.step("clew");
            kernel.page_out()?;
            theirs.push(kernel.worker.touch(seed, TOUCHES, gap, false)?);
            progress.step(kernel_side::NAME);
        }
        let peer = (kernel_side::NAME, costs(&theirs));
        measured.push(Measured::of("fault", case, "one fault", costs(&ours), peer));
    }
    clew.worker.verify()?;
    kernel.worker.verify()?;
    progress.done("fault: every page held what was written to it");
    Ok(measured)
}

fn costs(touches: &[Touches]) -> Costs {
    let medians: Vec<f64> = touches.iter().map(|t| t.p50_us).collect();
    let tails: Vec<f64> = touches.iter().map(|t| t.p99_us).collect();
    Costs::of_distributions(&medians, &tails)
}

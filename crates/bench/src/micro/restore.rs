//! Until many pages are back: from the decision to restore to the last touch of them all.
//!
//! Clew restores on request and then everything is touched; or touching begins at once and the
//! request is served meanwhile; or nothing but demand faults. The kernel's side: demand faults, and
//! MADV_WILLNEED before the touches.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::clew_side::{self, ClewSide};
use super::kernel_side::{self, KernelSide};
use super::measured::{Costs, Measured};
use super::orders::Layout;
use super::{MicroConfig, place};
use crate::error::BenchError;
use crate::progress::Progress;

const LAYOUTS: [(&str, Layout); 2] =
    [("clustered", Layout::Clustered), ("scattered", Layout::Scattered)];
const WILLNEED: &str = "kernel-zram-willneed";

/// How Clew brings the pages back.
#[derive(Clone, Copy)]
enum Way {
    First,
    Meanwhile,
    Demand,
}

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let mut measured = Vec::new();
    for (name, layout) in LAYOUTS {
        let part = format!("restore {name}: filling two workers");
        progress.begin(&part, (config.repetitions * 5) as u64);
        let place = |side| place(scratch, &format!("{name}-{side}"));
        let mut kernel = KernelSide::start(config, &place("kernel")?, layout, config.pages)?;
        let mut clew = ClewSide::start(config, &place("clew")?, layout, config.pages)?;
        let mut walls: [Vec<f64>; 5] = Default::default();
        for repetition in 0..config.repetitions as u64 {
            let seed = config.seed + repetition;
            let mut keep = |column: usize, wall: Duration| {
                walls[column].push(wall.as_secs_f64() * 1e6);
            };
            for (column, way) in [(0, Way::First), (1, Way::Meanwhile), (2, Way::Demand)] {
                keep(column, clew_once(&mut clew, way, seed)?);
                progress.step("clew");
                if column < 2 {
                    let willneed = column == 1;
                    keep(3 + column, kernel_once(&mut kernel, willneed, seed)?);
                    progress.step(kernel_side::NAME);
                }
            }
        }
        clew.worker.verify()?;
        kernel.worker.verify()?;
        progress.done(&format!("restore {name}: every page held what was written to it"));
        let pages = config.pages as f64;
        let costs = walls.map(|walls| Costs::of(&walls).with("pages", pages));
        let [first, meanwhile, demand, theirs, theirs_willneed] = costs;
        let one = |case: &str, ours: &Costs, peer: &str, theirs: &Costs| {
            let case = format!("{name}{case}");
            Measured::of("restore", &case, "all pages", ours.clone(), (peer, theirs.clone()))
        };
        measured.extend([
            one("", &first, kernel_side::NAME, &theirs),
            one("", &first, WILLNEED, &theirs_willneed),
            one("-overlapped", &meanwhile, kernel_side::NAME, &theirs),
            one("-overlapped", &meanwhile, WILLNEED, &theirs_willneed),
            one("-demand", &demand, kernel_side::NAME, &theirs),
        ]);
    }
    Ok(measured)
}

fn clew_once(clew: &mut ClewSide, way: Way, seed: u64) -> Result<Duration, BenchError> {
    clew.swap_out()?;
    let touch = |clew: &mut ClewSide| clew.worker.touch(seed, u64::MAX, Duration::ZERO, false);
    let begin = Instant::now();
    match way {
        Way::First => {
            clew.foreground()?;
            clew.restore()?;
            touch(clew)?;
        }
        Way::Meanwhile => {
            clew.foreground()?;
            let mut client = clew.daemon.connect()?;
            thread::scope(|scope| {
                let restoring = scope.spawn(move || client.order(&clew_side::restore()));
                let touched = touch(clew);
                let restored = restoring.join().unwrap_or(Ok(()));
                touched?;
                Ok::<(), BenchError>(restored?)
            })?;
        }
        Way::Demand => {
            clew.foreground()?;
            touch(clew)?;
        }
    }
    let wall = begin.elapsed();
    clew.background()?;
    Ok(wall)
}

fn kernel_once(kernel: &mut KernelSide, willneed: bool, seed: u64) -> Result<Duration, BenchError> {
    kernel.page_out()?;
    let begin = Instant::now();
    kernel.worker.touch(seed, u64::MAX, Duration::ZERO, willneed)?;
    Ok(begin.elapsed())
}

//! What being managed costs a program that is never swapped: reads and writes of random pages, all
//! resident, managed and alone in turn. Every pair is two new workers, so that where the kernel
//! happened to put their pages evens out.

use std::path::Path;

use super::clew_side::ClewSide;
use super::measured::{Costs, Measured};
use super::orders::{Layout, Order};
use super::side::Worker;
use super::{MicroConfig, place};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::session::Launch;

/// Pages that are worked on: 64 MiB.
const PAGES: u64 = 16_384;
/// Operations of one run: some 20 ms, so that both of a pair meet the same state of the machine.
const OPERATIONS: u64 = 50_000;
/// Runs of each worker of a pair.
const RUNS: u64 = 60;
const PEER: &str = "unmanaged";

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let pairs = config.repetitions.max(5);
    progress.begin("idle: working managed and unmanaged", pairs as u64);
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let alone_first = pair % 2 == 1;
        let start_alone = || -> Result<Worker, BenchError> {
            let launch = Launch { scratch: place(scratch, "alone")?, ..Launch::default() };
            let mut worker = Worker::start("unmanaged", &config.clew_exe, &launch)?;
            worker.map(config.seed, Layout::Dense, PAGES)?;
            Ok(worker)
        };
        let early = if alone_first { Some(start_alone()?) } else { None };
        let mut clew = ClewSide::start(config, &place(scratch, "clew")?, Layout::Dense, PAGES)?;
        let mut alone = match early {
            Some(worker) => worker,
            None => start_alone()?,
        };
        let (mut managed, mut unmanaged) = (Vec::new(), Vec::new());
        for run in 0..=RUNS {
            let order = Order::Work { seed: config.seed + run, operations: OPERATIONS };
            // Each goes first every other time.
            let mut once = |first: bool| -> Result<(), BenchError> {
                let (worker, times) = match first {
                    true => (&mut clew.worker, &mut managed),
                    false => (&mut alone, &mut unmanaged),
                };
                let took = worker.act(&order)?.as_secs_f64() * 1e6;
                // The first run warms up.
                if run > 0 {
                    times.push(took);
                }
                Ok(())
            };
            let turn = (pair as u64 + run).is_multiple_of(2);
            once(turn)?;
            once(!turn)?;
        }
        let both: Vec<f64> = managed.iter().zip(&unmanaged).map(|(m, u)| m / u).collect();
        ratios.push(Costs::of(&both).p50_us);
        let (managed, unmanaged) = (Costs::of(&managed), Costs::of(&unmanaged));
        ours.push(managed.p50_us);
        theirs.push(unmanaged.p50_us);
        progress.step(&format!("pair {}", pair + 1));
    }
    let ratios = Costs::of(&ratios);
    let ours = Costs::of(&ours).with("ratio_min", ratios.min_us).with("ratio_max", ratios.max_us);
    let mut measured =
        Measured::of("idle", "random-pages", "one run of work", ours, (PEER, Costs::of(&theirs)));
    // Of runs side by side, which is steadier than the ratio of all medians.
    measured.ratio = ratios.p50_us;
    progress.done("idle: done");
    Ok(vec![measured])
}

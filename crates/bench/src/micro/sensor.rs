//! How well the daemon learns what relaunches use, against a program that says so.
//!
//! A worker with [`MicroConfig::pages`] pages uses a fifth of them at each relaunch: a core that stays
//! the same, 70 %, and others that are different each time. At first everything is out. What the
//! scheme holds for hot after a relaunch is compared with what the next one uses: *coverage* is the
//! share of what is used that was held for hot, *accuracy* the share of what was held for hot that is
//! used. The best a perfect observer can say is the core: 70 % coverage, all of it right.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clew_live::control::status::HotPages;

use super::clew_side::ClewSide;
use super::measured::{Costs, Measured};
use super::orders::{Layout, Order};
use super::{MicroConfig, place};
use crate::error::BenchError;
use crate::progress::Progress;
use clew_core::Seeded;

/// Relaunches of one measurement: each part of the hot set was watched about once.
const RELAUNCHES: u64 = 24;
/// Relaunches at the end whose figures count.
const COUNTED: usize = 6;
/// How long the app is in the background between two: the daemon samples it after 0.2 s.
const BACKGROUND: Duration = Duration::from_millis(450);
/// One in so many pages is used by a relaunch.
const USED: u64 = 5;
/// Of these, per cent that every relaunch uses.
const ALIKE: u64 = 70;

/// What is used together.
const PATTERNS: [(&str, u64); 2] = [("clustered", 16), ("scattered", 1)];
/// Shares and runs of the sensor; share 0 is off.
const SENSORS: [(u32, u32); 5] = [(0, 8), (16, 1), (16, 8), (8, 8), (4, 8)];

/// What a relaunch uses: runs of `run` pages, the first `core` of them the same each time.
fn used(seed: u64, run: u64, pages: u64, relaunch: u64) -> BTreeSet<u64> {
    let (runs, wanted) = (pages / run, pages / USED / run);
    let core = wanted * ALIKE / 100;
    let mut order: Vec<u64> = (0..runs).collect();
    Seeded::of(seed, &[5, run]).shuffle(&mut order);
    let (same, mut others) = (order[..core as usize].to_vec(), order[core as usize..].to_vec());
    Seeded::of(seed, &[6, run, relaunch]).shuffle(&mut others);
    let chosen = same.into_iter().chain(others.into_iter().take((wanted - core) as usize));
    chosen.flat_map(|n| n * run..(n + 1) * run).collect()
}

/// What one setting of the sensor gave.
#[derive(Default)]
struct Learned {
    coverage: Vec<f64>,
    accuracy: Vec<f64>,
    walls_us: Vec<f64>,
    touches: f64,
}

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let config = MicroConfig { scheme: "ariadne".to_string(), ..config.clone() };
    let mut measured = Vec::new();
    for (pattern, run) in PATTERNS {
        let mut without = Costs::default();
        for (share, run_pages) in SENSORS {
            let name = match share {
                0 => format!("{pattern}-off"),
                _ => format!("{pattern}-1/{share}-runs-of-{run_pages}"),
            };
            progress.begin(&format!("sensor {name}: filling a worker"), RELAUNCHES);
            let toml = format!(
                "[sensor]\naccessed-bits = false\nshare = {share}\nrun-pages = {run_pages}\n"
            );
            let place = place(scratch, &name.replace('/', "-"))?;
            let learned = one(&config, &place, run, &toml, progress)?;
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
            let costs = Costs::of(&learned.walls_us)
                .with("coverage_pct", 100.0 * mean(&learned.coverage))
                .with("accuracy_pct", 100.0 * mean(&learned.accuracy))
                .with("touches", learned.touches);
            if share == 0 {
                without = costs.clone();
            }
            let peer = ("no sensor", without.clone());
            measured.push(Measured::of("sensor", &name, "one relaunch", costs, peer));
            progress.done(&format!("sensor {name}: every page held what was written to it"));
        }
    }
    Ok(measured)
}

fn one(
    config: &MicroConfig,
    scratch: &Path,
    run: u64,
    toml: &str,
    progress: &dyn Progress,
) -> Result<Learned, BenchError> {
    let mut clew = ClewSide::start_with(config, scratch, Layout::Dense, config.pages, None, toml)?;
    clew.background()?;
    clew.swap_out()?;
    let mut learned = Learned::default();
    let mut before = 0;
    for relaunch in 0..RELAUNCHES {
        let used = used(config.seed, run, config.pages, relaunch);
        let counts = RELAUNCHES - relaunch <= COUNTED as u64;
        if counts {
            let hot = hot_pages(&clew.hot_pages()?, clew.worker.address());
            let both = hot.intersection(&used).count() as f64;
            learned.coverage.push(both / used.len() as f64);
            learned.accuracy.push(both / hot.len().max(1) as f64);
        }
        if relaunch + COUNTED as u64 == RELAUNCHES {
            before = clew.daemon.status()?.sensor.touches;
        }
        let mut pages: Vec<u64> = used.into_iter().collect();
        Seeded::of(config.seed, &[7, relaunch]).shuffle(&mut pages);
        clew.foreground()?;
        let wall = clew.worker.act(&Order::Visit { pages })?;
        clew.responded(wall)?;
        clew.background()?;
        if counts {
            learned.walls_us.push(wall.as_secs_f64() * 1e6);
        }
        thread::sleep(BACKGROUND);
        progress.step("relaunch");
    }
    let touches = clew.daemon.status()?.sensor.touches - before;
    learned.touches = touches as f64 / COUNTED as f64;
    clew.worker.verify()?;
    Ok(learned)
}

/// Pages of the worker's region.
fn hot_pages(processes: &[HotPages], address: u64) -> BTreeSet<u64> {
    let runs = processes.iter().flat_map(|process| &process.runs);
    runs.flat_map(|(first, pages)| (0..*pages).map(move |page| first / 4096 + page))
        .filter_map(|page| page.checked_sub(address / 4096))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relaunches_are_as_alike_as_they_are_said_to_be() {
        for run in [1, 16] {
            let (a, b) = (used(1, run, 25_600, 3), used(1, run, 25_600, 4));
            assert_eq!((a.len(), b.len()), (5120, 5120));
            let same = a.intersection(&b).count() as f64 / 5120.0;
            // The others are of the rest of all pages, and meet there by chance.
            assert!((0.69..0.79).contains(&same), "{same}");
            assert_eq!(a, used(1, run, 25_600, 3));
        }
    }
}

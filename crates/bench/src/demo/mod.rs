//! The demo: every arm with the same work and the same memory, one after the other; at one total and
//! one similarity, or at several, with intervals.
//!
//! A *point* is a total and a similarity; a *run* is one arm at one point in one round. Runs that
//! are finished can be kept in a directory and are not made again, so that a comparison can be
//! interrupted and gone on with, and an arm that has changed can be run anew beside others that have
//! not.

mod breakdown;
mod derive;
mod finished;
mod method;
mod schedule;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clew_report::{Arm, Point, ProgramFacts, Results, Skipped, Touched};

use crate::arms::{ArmKind, ArmSettings};
use crate::error::BenchError;
use crate::interrupt::InterruptGuard;
use crate::pagemap::page_bytes;
use crate::plan;
use crate::preparation::{installed, rehearse};
use crate::process_memory::ProgramMemory;
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::run::{self, Outcome, Work};
use crate::scratch::Scratch;
use crate::survey::survey;

use finished::{Conditions, Finished};
use schedule::Run;
pub(crate) use schedule::total_bytes;

/// What the demo runs.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// The `clew` command; without it no arm of Clew runs.
    pub clew_exe: Option<PathBuf>,
    /// The scheme of the arm `clew`.
    pub clew_scheme: String,
    /// Further options of its daemon.
    pub daemon_options: Vec<OsString>,
    /// Totals, as parts of what `dram` uses; the first is that of the base point.
    pub totals: Vec<f64>,
    /// The only total in bytes instead; `dram` need not run then.
    pub total_bytes: Option<u64>,
    /// Parts of a working set that are the same each time, 0 to 1; the first is that of the base
    /// point.
    pub similarities: Vec<f64>,
    /// The arms; `dram` runs in any case where it has to find out how much is needed.
    pub arms: Vec<ArmKind>,
    /// Measured relaunches of each arm at each point; one visit to each program comes before them.
    pub relaunches: usize,
    /// Rounds among which they are divided. Each has data of its own and another order of arms.
    pub rounds: usize,
    /// The programs.
    pub programs: Vec<Kind>,
    /// Data of each.
    pub data_bytes: u64,
    /// Seed of data, queries and the sequence of switches.
    pub seed: u64,
    /// Part of the queries that change data, 0 to 1.
    pub updates: f64,
    /// Part of the total kept free for the next relaunch: by the daemon's budget in arms of Clew, by
    /// reclaim between the switches in the kernel's.
    pub headroom_bytes: u64,
    /// Rest between two switches.
    pub pause: Duration,
    /// Where finished runs are kept, if anywhere. Then what relaunches touch is looked at, too.
    pub kept_in: Option<PathBuf>,
    /// Runs nothing, and derives everything from what is finished.
    pub only_finished: bool,
    /// The version that is measured.
    pub commit: Option<String>,
}

impl Default for DemoConfig {
    fn default() -> DemoConfig {
        DemoConfig {
            clew_exe: None,
            clew_scheme: "zram".to_string(),
            daemon_options: Vec::new(),
            totals: vec![0.6],
            total_bytes: None,
            similarities: vec![0.7],
            arms: ArmKind::QUICK.to_vec(),
            relaunches: 32,
            rounds: 1,
            programs: Kind::QUICK.to_vec(),
            data_bytes: 112 << 20,
            seed: 1,
            updates: 0.1,
            headroom_bytes: 24 << 20,
            pause: Duration::from_millis(250),
            kept_in: None,
            only_finished: false,
            commit: None,
        }
    }
}

impl DemoConfig {
    /// The whole comparison, kept in `directory`.
    pub fn full(directory: PathBuf) -> DemoConfig {
        DemoConfig {
            totals: vec![0.5, 0.4, 0.6, 0.75],
            similarities: vec![0.7, 0.0, 0.3, 0.95],
            arms: ArmKind::FULL.to_vec(),
            relaunches: 112,
            rounds: 2,
            programs: Kind::SYNTHETIC.to_vec(),
            pause: Duration::from_millis(200),
            kept_in: Some(directory),
            ..DemoConfig::default()
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let fail = |text: &str| Err(BenchError::Setting(text.to_string()));
        let is_part = |part: &f64| (0.0..=1.0).contains(part);
        if self.programs.is_empty() || self.arms.is_empty() {
            return fail("at least one program and one arm are needed");
        }
        if let Some(natural) = self.programs.iter().find(|kind| Kind::NATURAL.contains(kind)) {
            return fail(&format!("no model knows the answers of {natural}: ask for a scenario"));
        }
        if self.relaunches == 0 || self.rounds == 0 {
            return fail("at least one relaunch and one round are needed");
        }
        if self.rounds > self.relaunches {
            return fail("there are more rounds than relaunches");
        }
        if self.totals.is_empty() || self.similarities.is_empty() {
            return fail("at least one total and one similarity are needed");
        }
        if self.totals.len() > 1 && self.total_bytes.is_some() {
            return fail("a total in bytes is the only one");
        }
        if !self.similarities.iter().all(is_part) || !is_part(&self.updates) {
            return fail("similarities and updates are parts: between 0 and 1");
        }
        if !self.totals.iter().all(|total| (0.05..=4.0).contains(total)) {
            return fail("totals are between 0.05 and 4 times what the programs need");
        }
        if self.data_bytes < 1 << 20 {
            return fail("a program needs at least 1 MiB of data");
        }
        Ok(())
    }

    fn work(&self, programs: &[Kind], run: Run) -> Work {
        let (relaunches, rounds) = (self.relaunches, self.rounds);
        let switches = relaunches / rounds + usize::from(run.round < relaunches % rounds);
        let seed = self.seed + run.round as u64;
        Work {
            programs: programs.to_vec(),
            load: Load {
                seed,
                data_bytes: self.data_bytes,
                similarity: run.similarity,
                updates: self.updates,
                is_front: false,
            },
            sequence: plan::switches(seed, programs.len(), switches),
            front: None,
            pause: self.pause,
            fills_freely: false,
        }
    }

    fn runs(&self) -> Vec<Run> {
        let mut runs = schedule::runs(&self.totals, &self.similarities, &self.arms, self.rounds);
        if self.total_bytes.is_some() {
            runs.retain(|run| self.arms.contains(&run.arm));
            runs.iter_mut().for_each(|run| run.total = None);
        }
        runs
    }
}

/// Runs the demo. What cannot run is named in the result, with the reason. After an interruption
/// ([`BenchError::Interrupted`]) the same call goes on where this one stopped, if it keeps its runs.
pub fn demo(config: &DemoConfig, progress: &dyn Progress) -> Result<Results, BenchError> {
    config.check()?;
    let _interrupts = InterruptGuard::new();
    let scratch = Scratch::new("clew-demo-")?;
    let mut skipped = Vec::new();
    let programs = installed(&config.programs, &mut skipped)?;
    let mut finished = Finished::open(config.kept_in.as_deref())?;
    let settings = ArmSettings {
        clew_exe: config.clew_exe.clone(),
        clew_scheme: config.clew_scheme.clone(),
        daemon_options: config.daemon_options.clone(),
    };
    let runs = config.runs();
    let base = config.work(&programs, runs[0]);
    let conditions = Conditions::of_labels(config, &base);
    let labels = match finished.labels(&conditions) {
        Some(labels) => labels,
        None if config.only_finished => Vec::new(),
        None => {
            rehearse(&base, scratch.path(), progress)?;
            let looked = config.kept_in.is_some();
            match looked.then(|| survey(&programs, base.load, scratch.path(), progress)) {
                None => Vec::new(),
                Some(Ok(labels)) => {
                    finished.keep_labels(&conditions, &labels)?;
                    labels
                }
                Some(Err(BenchError::Interrupted)) => return Err(BenchError::Interrupted),
                // Without a zram device, for example: what the programs are known for must do.
                Some(Err(error)) => {
                    let reason = error.to_string();
                    skipped.push(Skipped { name: "labels by measurement".to_string(), reason });
                    Vec::new()
                }
            }
        }
    };

    let mut made: Vec<(Run, Arm)> = Vec::new();
    let mut need: Option<u64> = None;
    let mut memory = Vec::new();
    for (position, &run) in runs.iter().enumerate() {
        let work = config.work(&programs, run);
        let total =
            config.total_bytes.or(need.zip(run.total).map(|(need, part)| total_bytes(need, part)));
        let total = total.filter(|_| run.arm != ArmKind::Dram);
        let conditions = Conditions::of(config, &work, Some(run.arm), total);
        let result = match finished.result(run, &conditions) {
            Some(result) => Ok(result),
            None if config.only_finished => continue,
            None => {
                let place = format!("{} of {}: {run}", position + 1, runs.len());
                let left = finished.time_left(&runs[position..]);
                let told = Told { place, left, progress };
                let begin = Instant::now();
                let (headroom, scratch) = (config.headroom_bytes, scratch.path());
                match run::one(run.arm, &settings, total, headroom, &work, scratch, &told) {
                    Ok(Outcome { result, memory: of_programs, .. }) => {
                        finished.keep(run, &conditions, &result, begin.elapsed())?;
                        if run.arm == ArmKind::Dram && memory.is_empty() {
                            memory = of_programs;
                        }
                        Ok(result)
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match result {
            Ok(result) => {
                if run.arm == ArmKind::Dram && need.is_none() {
                    need = Some(result.total_bytes_peak);
                }
                made.push((run, result));
            }
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                progress.done(&format!("{run} did not run: {error}"));
                skipped.push(Skipped { name: run.to_string(), reason: error.to_string() });
            }
        }
    }
    let points = match config.total_bytes {
        None => schedule::points(&config.totals, &config.similarities),
        Some(total) => vec![Point {
            total_part: need.map(|need| total as f64 / need as f64),
            similarity: Some(config.similarities[0]),
        }],
    };
    let total = |point: Point| {
        let of_need = need.zip(point.total_part).map(|(need, part)| total_bytes(need, part));
        (point, config.total_bytes.or(of_need).unwrap_or_default())
    };
    let points: Vec<(Point, u64)> = points.into_iter().map(total).collect();
    let is_single = points.len() == 1;
    Ok(Results {
        title: if is_single { "Clew demo" } else { "Clew: full comparison" }.to_string(),
        commit: config.commit.clone(),
        duration_seconds: Some(finished.seconds()),
        settings: config.settings(),
        skipped,
        notes: config.notes(points[0].1),
        method: config.method(),
        ..derive::results(
            config.seed,
            &points,
            &config.arms,
            &facts_of(&programs, &labels, &memory),
            &made,
        )
    })
}

/// What is known of the programs: as looked at, or as seen in `dram`, or else as they are known.
fn facts_of(
    programs: &[Kind],
    labels: &[Touched],
    memory: &[ProgramMemory],
) -> Vec<(Kind, ProgramFacts)> {
    let facts = |(position, &kind): (usize, &Kind)| {
        let label = labels.iter().find(|label| label.program == kind.name()).cloned();
        let seen = memory.get(position).copied().unwrap_or_default();
        let touched = |label: &Touched| (label.touched_pages * page_bytes() as f64) as u64;
        let facts = ProgramFacts {
            name: kind.to_string(),
            layout: label.as_ref().map_or(kind.layout(), |label| label.layout),
            description: kind.description().to_string(),
            anonymous_bytes: label.as_ref().map(|label| label.data_bytes).or(seen.filled_bytes),
            touched_bytes: label.as_ref().map(touched).or(seen.touched_bytes),
            label,
        };
        (kind, facts)
    };
    programs.iter().enumerate().map(facts).collect()
}

/// Says in front of each part where the whole is.
struct Told<'a> {
    place: String,
    left: Option<Duration>,
    progress: &'a dyn Progress,
}

impl Progress for Told<'_> {
    fn begin(&self, _part: &str, steps: u64) {
        let left = match self.left {
            Some(left) => format!(", about {} min left", left.as_secs().div_ceil(60)),
            None => String::new(),
        };
        self.progress.begin(&format!("{}{left}", self.place), steps);
    }

    fn step(&self, now: &str) {
        self.progress.step(now);
    }

    fn done(&self, outcome: &str) {
        self.progress.done(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let fine = DemoConfig::default();
        assert!(fine.check().is_ok() && DemoConfig::full("runs".into()).check().is_ok());
        let bad = [
            DemoConfig { programs: Vec::new(), ..fine.clone() },
            DemoConfig { arms: Vec::new(), ..fine.clone() },
            DemoConfig { programs: vec![Kind::Tsserver], ..fine.clone() },
            DemoConfig { relaunches: 0, ..fine.clone() },
            DemoConfig { rounds: 33, ..fine.clone() },
            DemoConfig { similarities: vec![0.7, 1.5], ..fine.clone() },
            DemoConfig { similarities: Vec::new(), ..fine.clone() },
            DemoConfig { updates: -0.1, ..fine.clone() },
            DemoConfig { totals: vec![0.0], ..fine.clone() },
            DemoConfig { totals: vec![f64::NAN], ..fine.clone() },
            DemoConfig { totals: vec![0.5, 0.6], total_bytes: Some(1 << 30), ..fine.clone() },
            DemoConfig { data_bytes: 10, ..fine.clone() },
        ];
        for config in bad {
            assert!(matches!(config.check(), Err(BenchError::Setting(_))), "{config:?}");
        }
    }

    #[test]
    fn dram_runs_where_it_has_to_find_out_what_is_needed() {
        let arms = |config: &DemoConfig| -> Vec<ArmKind> {
            config.runs().iter().map(|run| run.arm).collect()
        };
        let only = DemoConfig { arms: vec![ArmKind::Clew], ..DemoConfig::default() };
        assert_eq!(arms(&only), [ArmKind::Dram, ArmKind::Clew]);
        assert_eq!(arms(&DemoConfig { total_bytes: Some(1 << 28), ..only }), [ArmKind::Clew]);
    }
}

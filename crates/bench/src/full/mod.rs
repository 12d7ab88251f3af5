//! The full comparison: every arm at several totals and several similarities, with intervals.
//!
//! A *point* is a total and a similarity; a *run* is one arm at one point in one round. Runs that
//! are finished are kept in a directory and not made again, so that a comparison can be interrupted
//! and gone on with, and an arm that has changed can be run anew beside others that have not.

mod breakdown;
mod derive;
mod finished;
mod schedule;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) use derive::results;
pub(crate) use schedule::{Run, total_bytes};

use clew_report::{Arm, Point, ProgramFacts, Results, Skipped, Touched};

use crate::arms::{ArmKind, ArmSettings};
use crate::error::BenchError;
use crate::interrupt::InterruptGuard;
use crate::method::Asked;
use crate::pagemap::page_bytes;
use crate::preparation::{installed, rehearse};
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::run::{self, Work};
use crate::scratch::Scratch;
use crate::survey::survey;

use finished::{Conditions, Finished};

/// What the full comparison runs.
#[derive(Clone, Debug)]
pub struct FullConfig {
    /// The `clew` command.
    pub clew_exe: PathBuf,
    /// The scheme of the arm `clew`.
    pub clew_scheme: String,
    /// Totals, as parts of what `dram` uses; the first is that of the base point.
    pub totals: Vec<f64>,
    /// Parts of a working set that are the same each time; the first is that of the base point.
    pub similarities: Vec<f64>,
    /// The arms; `dram` runs in any case.
    pub arms: Vec<ArmKind>,
    /// Measured relaunches of each arm at each point.
    pub relaunches: usize,
    /// Rounds among which they are divided. Each has data of its own and another order of arms.
    pub rounds: usize,
    /// The programs.
    pub programs: Vec<Kind>,
    /// Data of each.
    pub data_bytes: u64,
    /// Seed of everything.
    pub seed: u64,
    /// Part of the queries that change data, 0 to 1.
    pub updates: f64,
    /// Part of the total kept free for the next relaunch.
    pub headroom_bytes: u64,
    /// Rest between two switches.
    pub pause: Duration,
    /// Where finished runs are kept.
    pub directory: PathBuf,
    /// Runs nothing, and derives everything from what is finished.
    pub only_finished: bool,
    /// The version that is measured.
    pub commit: Option<String>,
}

impl FullConfig {
    /// The whole comparison with the command `clew_exe`, kept in `directory`.
    pub fn new(clew_exe: PathBuf, directory: PathBuf) -> FullConfig {
        FullConfig {
            clew_exe,
            clew_scheme: "zram".to_string(),
            totals: vec![0.5, 0.4, 0.6, 0.75],
            similarities: vec![0.7, 0.0, 0.3, 0.95],
            arms: ArmKind::FULL.to_vec(),
            relaunches: 112,
            rounds: 2,
            programs: Kind::ALL.to_vec(),
            data_bytes: 112 << 20,
            seed: 1,
            updates: 0.1,
            headroom_bytes: 24 << 20,
            pause: Duration::from_millis(200),
            directory,
            only_finished: false,
            commit: None,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let fail = |text: &str| Err(BenchError::Setting(text.to_string()));
        let is_part = |part: &f64| (0.0..=1.0).contains(part);
        if self.programs.is_empty() || self.relaunches == 0 || self.rounds == 0 {
            return fail("at least one program, one relaunch and one round are needed");
        }
        if self.rounds > self.relaunches {
            return fail("there are more rounds than relaunches");
        }
        if self.totals.is_empty() || self.similarities.is_empty() {
            return fail("at least one total and one similarity are needed");
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
        Work {
            programs: programs.to_vec(),
            load: Load {
                seed: self.seed + run.round as u64,
                data_bytes: self.data_bytes,
                similarity: run.similarity,
                updates: self.updates,
            },
            switches: relaunches / rounds + usize::from(run.round < relaunches % rounds),
            pause: self.pause,
        }
    }
}

/// Runs the comparison. What cannot run is named in the result, with the reason. After an
/// interruption ([`BenchError::Interrupted`]) the same call goes on where this one stopped.
pub fn full(config: &FullConfig, progress: &dyn Progress) -> Result<Results, BenchError> {
    config.check()?;
    let _interrupts = InterruptGuard::new();
    let scratch = Scratch::new("clew-demo-")?;
    let mut skipped = Vec::new();
    let programs = installed(&config.programs, &mut skipped)?;
    let mut finished = Finished::open(&config.directory)?;
    let settings = ArmSettings {
        clew_exe: Some(config.clew_exe.clone()),
        clew_scheme: config.clew_scheme.clone(),
        daemon_options: Vec::new(),
    };
    let runs = schedule::runs(&config.totals, &config.similarities, &config.arms, config.rounds);
    let base = config.work(&programs, runs[0]);
    let conditions = Conditions::of_labels(config, &base);
    let labels = match finished.labels(&conditions) {
        Some(labels) => labels,
        None if config.only_finished => Vec::new(),
        None => {
            rehearse(&base, scratch.path(), progress)?;
            match survey(&programs, base.load, scratch.path(), progress) {
                Ok(labels) => {
                    finished.keep_labels(&conditions, &labels)?;
                    labels
                }
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                // Without a zram device, for example: what the programs are known for must do.
                Err(error) => {
                    let reason = error.to_string();
                    skipped.push(Skipped { name: "labels by measurement".to_string(), reason });
                    Vec::new()
                }
            }
        }
    };

    let mut made: Vec<(Run, Arm)> = Vec::new();
    let mut need: Option<u64> = None;
    for (position, &run) in runs.iter().enumerate() {
        let work = config.work(&programs, run);
        let total = match (run.total, need) {
            (None, _) => None,
            (Some(part), Some(need)) => Some(total_bytes(need, part)),
            // dram did not run, which was said.
            (Some(_), None) => continue,
        };
        let conditions = Conditions::of(config, &work, Some(run.arm), total);
        let result = match finished.result(run, &conditions) {
            Some(result) => Ok(result),
            None if config.only_finished => continue,
            None => {
                let place = format!("{} of {}: {run}", position + 1, runs.len());
                let left = finished.time_left(&runs[position..]);
                let told = Told { place, left, progress };
                let begin = Instant::now();
                let headroom = config.headroom_bytes;
                let scratch = scratch.path();
                let outcome = run::one(run.arm, &settings, total, headroom, &work, scratch, &told);
                let result = outcome.map(|outcome| outcome.result);
                if let Ok(result) = &result {
                    finished.keep(run, &conditions, result, begin.elapsed())?;
                }
                result
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
    let points = schedule::points(&config.totals, &config.similarities);
    let total =
        |point: Point| need.zip(point.total_part).map_or(0, |(need, part)| total_bytes(need, part));
    let points: Vec<(Point, u64)> = points.iter().map(|&point| (point, total(point))).collect();
    let asked = Asked {
        totals: config.totals.clone(),
        similarities: config.similarities.clone(),
        relaunches: config.relaunches,
        rounds: config.rounds,
        data_bytes: config.data_bytes,
        headroom_bytes: config.headroom_bytes,
        updates: config.updates,
        pause_ms: config.pause.as_millis() as u64,
    };
    let facts = facts_of(&programs, &labels);
    Ok(Results {
        title: "Clew: full comparison".to_string(),
        commit: config.commit.clone(),
        duration_seconds: Some(finished.seconds()),
        settings: asked.settings(),
        skipped,
        method: asked.method(),
        ..results(config.seed, &points, &config.arms, &facts, &made)
    })
}

/// What is known of the programs: as measured, or else as they are known.
fn facts_of(programs: &[Kind], labels: &[Touched]) -> Vec<(Kind, ProgramFacts)> {
    let facts = |&kind: &Kind| {
        let facts = kind.facts();
        let label = labels.iter().find(|label| label.program == kind.name()).cloned();
        let touched = |label: &Touched| (label.touched_pages * page_bytes() as f64) as u64;
        let facts = ProgramFacts {
            layout: label.as_ref().map_or(facts.layout, |label| label.layout),
            anonymous_bytes: label.as_ref().map(|label| label.data_bytes),
            touched_bytes: label.as_ref().map(touched),
            label,
            ..facts
        };
        (kind, facts)
    };
    programs.iter().map(facts).collect()
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

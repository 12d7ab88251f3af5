//! Where the runs of a paper are made and kept: its traces, generated once, and its replays, each in a
//! file named by a digest of its settings and its trace. What is there is not run again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use clew_policy::Scheme;
use clew_report::Arm;
use clew_trace::generate::profile::Profile;
use clew_trace::generate::{GenerateError, Workload, generate};
use clew_trace::{ContentsKind, Draft, Trace};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::compare::in_parallel;
use crate::error::LabError;
use crate::input::Input;
use crate::kept;
use crate::replay::{Pages, Settings, Watched, watched};
use crate::sweep::set;

/// Hears how much of the present figure is done, 0 to 1; whether to go on is its answer.
pub type Going<'a> = &'a (dyn Fn(f64) -> ControlFlow<()> + Sync);

/// What came of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// As of any replay.
    pub arm: Arm,
    /// What it says of each launch and relaunch.
    pub watched: Watched,
}

/// A trace, and what it stands for.
pub struct Workbench {
    /// The trace.
    pub input: Input,
    /// How many pages of the real workload stand behind each of its own.
    pub grain: f64,
    /// What it is called in claims.
    pub name: String,
    identity: String,
}

/// What part of the real workload a trace may say that it is: what the generator makes, and far less.
const SCALES: std::ops::RangeInclusive<f64> = 1e-6..=16.0;

impl Workbench {
    fn of(input: Input) -> Result<Workbench, LabError> {
        let provenance = &input.trace.header().provenance;
        let scale = provenance.notes.get("scale").and_then(|scale| scale.parse::<f64>().ok());
        let grain = scale.filter(|scale| SCALES.contains(scale)).map_or(1.0, |scale| 1.0 / scale);
        let name = match provenance.notes.get("profile") {
            Some(profile) => format!(
                "generated {profile}, one page in {grain:.0}, seed {}, order {}",
                provenance.seed.unwrap_or_default(),
                provenance.notes.get("order").map_or("0", String::as_str)
            ),
            None => input.name(),
        };
        let identity = kept::identity(&input.trace)?;
        Ok(Workbench { input, grain, name, identity })
    }

    /// An app's name.
    pub fn app(&self, number: u32) -> String {
        let names = &self.input.trace.totals().apps;
        names.get(&clew_core::AppId(number)).cloned().unwrap_or_else(|| number.to_string())
    }

    /// Whether it was generated as this.
    pub fn is_of(&self, profile: &Profile) -> bool {
        let notes = &self.input.trace.header().provenance.notes;
        notes.get("profile").is_some_and(|name| name == profile.name)
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        u64::from(self.input.trace.header().page_bytes)
    }

    /// Whether what pages hold is in it.
    pub fn has_bytes(&self) -> bool {
        self.input.trace.header().contents == ContentsKind::Bytes
    }
}

/// Traces and runs.
pub struct Desk<'a> {
    directory: PathBuf,
    /// Whether everything is as small as it can be.
    pub quick: bool,
    given: Option<Arc<Workbench>>,
    benches: BTreeMap<PathBuf, Arc<Workbench>>,
    jobs: usize,
    going: Going<'a>,
}

impl<'a> Desk<'a> {
    /// One that keeps its things in `directory`. A trace that is `given` stands for the paper's usual
    /// workload.
    pub fn new(
        directory: &Path,
        quick: bool,
        given: Option<&Path>,
        jobs: usize,
        going: Going<'a>,
    ) -> Result<Desk<'a>, LabError> {
        for part in ["traces", "runs"] {
            let path = directory.join(part);
            std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
        }
        let given = match given {
            Some(path) => Some(Arc::new(Workbench::of(Input::open(path)?)?)),
            None => None,
        };
        let (directory, benches) = (directory.to_path_buf(), BTreeMap::new());
        Ok(Desk { directory, quick, given, benches, jobs, going })
    }

    /// Whether somebody gave a trace.
    pub fn has_given(&self) -> bool {
        self.given.is_some()
    }

    /// The trace that was given, or that of `workload`.
    pub fn usual(&mut self, workload: &Workload) -> Result<Arc<Workbench>, LabError> {
        match &self.given {
            Some(given) => Ok(Arc::clone(given)),
            None => self.generated(workload),
        }
    }

    /// The trace of `workload`, which is generated if it is not there yet.
    pub fn generated(&mut self, workload: &Workload) -> Result<Arc<Workbench>, LabError> {
        let contents = if workload.contents { "" } else { "-bare" };
        let name = format!(
            "{}-{}-{}-{}-{}{contents}.trace",
            workload.profile.name, workload.seed, workload.order, workload.scale, workload.apps
        );
        let path = self.directory.join("traces").join(name);
        if let Some(bench) = self.benches.get(&path) {
            return Ok(Arc::clone(bench));
        }
        let is_there = |path| Trace::open(path).is_ok_and(|t| *t.header() == workload.header());
        if !is_there(&path) {
            let draft = Draft::new(&path, false).map_err(LabError::file(&path))?;
            let going = self.going;
            let (draft, _) = generate(workload, draft, &mut |part| going(part))?;
            draft.commit().map_err(LabError::file(&path))?;
        }
        let bench = Arc::new(Workbench::of(Input::open(&path)?)?);
        self.benches.insert(path, Arc::clone(&bench));
        Ok(bench)
    }

    /// Replays, in the order of their settings.
    pub fn runs(&self, bench: &Workbench, settings: &[Settings]) -> Result<Vec<Run>, LabError> {
        let done: Vec<AtomicU64> = settings.iter().map(|_| AtomicU64::new(0)).collect();
        let stopped = AtomicBool::new(false);
        let telling = Mutex::new(());
        in_parallel(settings.len(), self.jobs, |at| {
            if stopped.load(Relaxed) {
                return Err(GenerateError::Interrupted.into());
            }
            let mut progress = |bytes: u64, of: u64| {
                done[at].store(bytes * 1000 / of.max(1), Relaxed);
                let _one = telling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let all: u64 = done.iter().map(|done| done.load(Relaxed)).sum();
                if (self.going)(all as f64 / 1e3 / settings.len() as f64).is_break() {
                    stopped.store(true, Relaxed);
                }
            };
            self.run(bench, &settings[at], &mut progress)
        })
    }

    fn run(
        &self,
        bench: &Workbench,
        settings: &Settings,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Run, LabError> {
        let key = kept::key(&bench.identity, settings);
        let runs = self.directory.join("runs");
        if let Some(run) = kept::read(&runs, &key) {
            progress(1, 1);
            return Ok(run);
        }
        let Input { trace, lookahead } = &bench.input;
        let (arm, watched) = watched(trace, lookahead, settings, progress)?;
        let run = Run { arm, watched };
        kept::write(&runs, &key, &run)?;
        Ok(run)
    }
}

/// The preset `name` with some of its parameters set, by their paths.
///
/// # Errors
/// [`LabError::Scheme`] if there is no such scheme; [`LabError::Setting`] if it has no such parameter.
pub fn scheme(name: &str, parameters: &[(&str, Value)]) -> Result<Scheme, LabError> {
    let preset = Scheme::preset(name)?;
    let bad = |why: String| LabError::Setting { what: format!("scheme {name}"), why };
    let mut table: Table =
        preset.to_toml().parse().map_err(|e: toml::de::Error| bad(e.to_string()))?;
    for (path, value) in parameters {
        set(&mut table, path, value.clone()).map_err(|why| bad(format!("{path}: {why}")))?;
    }
    Ok(Scheme::from_toml(&table.to_string())?)
}

/// Policies alone: sizes by the table of costs. Timing needs no bytes.
pub const BARE: Pages = Pages::Weightless { ratio: None };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_by_their_paths() {
        let large =
            scheme("archer", &[("reclaim.queue", Value::Integer(512))]).expect("it has one");
        assert!(large.to_toml().contains("queue = 512"), "{}", large.to_toml());
        let unknown = scheme("flash-and-dreams", &[]).expect_err("there is none").to_string();
        assert!(unknown.contains("flash-and-dreams"), "{unknown}");
        let wrong = scheme("zram", &[("reclaim.queue", Value::Integer(1))]).expect_err("no such");
        assert!(wrong.to_string().contains("queue"), "{wrong}");
    }
}

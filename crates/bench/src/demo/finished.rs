//! Runs that are finished, kept as files: one a run, with the conditions under which it was made.
//! A run whose conditions have changed (another data set, another limit, another `clew`) counts as
//! not made.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clew_report::{Arm, Machine, Touched, percent};
use clew_trace::{regular, write_whole};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::DemoConfig;
use super::schedule::Run;
use crate::arms::ArmKind;
use crate::error::{BenchError, file_error};
use crate::programs::Kind;
use crate::run::Work;

/// What such a file says about its format.
const FORMAT: u32 = 2;

/// Bytes of such a file, at most.
const MOST_BYTES: u64 = 64 << 20;

/// Everything that a result depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    format: u32,
    machine: Machine,
    programs: Vec<Kind>,
    seed: u64,
    data_bytes: u64,
    similarity: f64,
    updates: f64,
    switches: usize,
    pause_ms: u64,
    headroom_bytes: u64,
    total_bytes: Option<u64>,
    /// The command, for arms that run it: its size and when it was built.
    clew: Option<(u64, u64)>,
    /// The scheme of the arm `clew`, as text.
    scheme: Option<String>,
}

impl Conditions {
    /// Those of `arm` doing `work` within `total_bytes`.
    pub fn of(
        config: &DemoConfig,
        work: &Work,
        arm: Option<ArmKind>,
        total_bytes: Option<u64>,
    ) -> Conditions {
        let scheme = match arm {
            Some(ArmKind::Clew) => {
                let file = fs::read_to_string(&config.clew_scheme);
                Some(file.unwrap_or_else(|_| config.clew_scheme.clone()))
            }
            _ => None,
        };
        Conditions {
            format: FORMAT,
            machine: Machine::here(),
            programs: work.programs.clone(),
            seed: work.load.seed,
            data_bytes: work.load.data_bytes,
            similarity: work.load.similarity,
            updates: work.load.updates,
            switches: work.sequence.len(),
            pause_ms: config.pause.as_millis() as u64,
            headroom_bytes: config.headroom_bytes,
            total_bytes,
            clew: arm
                .filter(|arm| arm.is_clew())
                .and_then(|_| build_of(config.clew_exe.as_deref()?)),
            scheme,
        }
    }
}

impl Conditions {
    /// What relaunches touch does not depend on how many there are.
    pub fn of_labels(config: &DemoConfig, work: &Work) -> Conditions {
        Conditions { switches: 0, ..Conditions::of(config, work, None, None) }
    }
}

/// Size of a file and when it was last written, in seconds.
fn build_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    let written = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((metadata.len(), written.as_secs()))
}

#[derive(Serialize, Deserialize)]
struct File<T> {
    conditions: Conditions,
    seconds: f64,
    result: T,
}

/// The directory, if there is one.
pub struct Finished {
    directory: Option<PathBuf>,
    /// How long the runs took that were found or made so far, dram's and the others'.
    took: Vec<(bool, f64)>,
}

impl Finished {
    /// Uses `directory`, which is made where it is missing.
    pub fn open(directory: Option<&Path>) -> Result<Finished, BenchError> {
        if let Some(directory) = directory {
            fs::create_dir_all(directory).map_err(file_error("create", directory))?;
        }
        Ok(Finished { directory: directory.map(Path::to_path_buf), took: Vec::new() })
    }

    /// The result of `run`, if it was made under these conditions.
    pub fn result(&mut self, run: Run, conditions: &Conditions) -> Option<Arm> {
        let file: File<Arm> = read(&self.path(&file_name(run))?, conditions)?;
        self.took.push((run.arm == ArmKind::Dram, file.seconds));
        Some(file.result)
    }

    /// Keeps the result of `run`, which took `time`.
    pub fn keep(
        &mut self,
        run: Run,
        conditions: &Conditions,
        result: &Arm,
        time: Duration,
    ) -> Result<(), BenchError> {
        self.took.push((run.arm == ArmKind::Dram, time.as_secs_f64()));
        let conditions = conditions.clone();
        let file = File { conditions, seconds: time.as_secs_f64(), result };
        self.write(&file_name(run), &file)
    }

    /// The labels, if they were found out under these conditions.
    pub fn labels(&self, conditions: &Conditions) -> Option<Vec<Touched>> {
        read(&self.path("labels.json")?, conditions).map(|file: File<Vec<Touched>>| file.result)
    }

    /// Keeps the labels.
    pub fn keep_labels(
        &self,
        conditions: &Conditions,
        labels: &[Touched],
    ) -> Result<(), BenchError> {
        let conditions = conditions.clone();
        self.write("labels.json", &File { conditions, seconds: 0.0, result: labels })
    }

    /// How long the runs of `left` will take, if they take as long as those before them.
    pub fn time_left(&self, left: &[Run]) -> Option<Duration> {
        let mean = |dram: bool| {
            let times: Vec<f64> =
                self.took.iter().filter(|took| took.0 == dram).map(|took| took.1).collect();
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
        };
        // The first run is dram's: until another one was made, its time must do for all.
        let (of_dram, of_others) = (mean(true)?, mean(false).or(mean(true))?);
        let seconds = left.iter().map(|run| match run.arm {
            ArmKind::Dram => of_dram,
            _ => of_others,
        });
        Some(Duration::from_secs_f64(seconds.sum()))
    }

    /// How long all runs took together.
    pub fn seconds(&self) -> f64 {
        self.took.iter().map(|took| took.1).sum()
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(name))
    }

    /// Whole or not at all: an interruption leaves no half file.
    fn write(&self, name: &str, file: &impl Serialize) -> Result<(), BenchError> {
        let Some(path) = self.path(name) else { return Ok(()) };
        write_whole(&path, &serde_json::to_string(file)?).map_err(file_error("write", &path))
    }
}

/// `None` for a file that is not there, that cannot be read, or that was made under other
/// conditions.
fn read<T: DeserializeOwned>(path: &Path, conditions: &Conditions) -> Option<File<T>> {
    let text = regular::read_text(path, MOST_BYTES, 0).ok()?;
    let file: File<T> = serde_json::from_str(&text).ok()?;
    (file.conditions == *conditions).then_some(file)
}

fn file_name(run: Run) -> String {
    let total = run.total.map_or(String::new(), |total| format!("-t{}", percent(total)));
    format!("{}{total}-s{}-r{}.json", run.arm, percent(run.similarity), run.round + 1)
}

//! Scenarios of natural programs: every arm does the same, and each visit is compared with the same
//! visit in memory. So a result says what swapping adds, not how long programs work.

mod growth;
mod growth_sheet;
mod paired;
mod parts;
mod sheet;

pub use growth::{GrowthArm, GrowthResult, GrowthStep, growth};
pub use growth_sheet::sheet as growth_sheet;
pub use paired::Added;
pub use parts::{Part, Scenario};
pub use sheet::sheet;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clew_report::{Machine, Memory, Sample, Skipped};
use serde::Serialize;

use crate::arms::wait::Wait;
use crate::arms::{ArmKind, ArmSettings};
use crate::demo::total_bytes;
use crate::error::BenchError;
use crate::interrupt::InterruptGuard;
use crate::preparation::{installed, rehearse};
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::run::{self, Outcome, Work};
use crate::scratch::Scratch;

/// What a scenario is run with.
#[derive(Clone, Debug)]
pub struct ScenarioConfig {
    pub scenario: Scenario,
    /// The `clew` command; without it no arm of Clew runs.
    pub clew_exe: Option<PathBuf>,
    /// The scheme of the arm `clew`.
    pub clew_scheme: String,
    /// More words for its daemon.
    pub daemon_options: Vec<OsString>,
    /// The arms beside `dram`, which always runs.
    pub arms: Vec<ArmKind>,
    /// Only these programs, of those that the scenario has; all of them if empty.
    pub programs: Vec<Kind>,
    /// Memory of the arms, as a part of what `dram` uses; or in bytes.
    pub fraction: f64,
    pub total_bytes: Option<u64>,
    /// Measured returns of each part, where not as many as it has by itself.
    pub returns: Option<usize>,
    /// Data of a program whose data is made: tables, records.
    pub data_bytes: u64,
    pub headroom_bytes: u64,
    pub seed: u64,
    pub pause: Duration,
    /// The version that is measured.
    pub commit: Option<String>,
}

impl ScenarioConfig {
    /// The scenario as it is run where nothing else is asked for.
    pub fn new(scenario: Scenario) -> ScenarioConfig {
        ScenarioConfig {
            scenario,
            clew_exe: None,
            clew_scheme: "clew".to_string(),
            daemon_options: Vec::new(),
            arms: vec![ArmKind::KernelZram, ArmKind::Clew],
            programs: Vec::new(),
            fraction: 0.5,
            total_bytes: None,
            returns: None,
            data_bytes: 240 << 20,
            headroom_bytes: 48 << 20,
            seed: 1,
            pause: Duration::from_millis(250),
            commit: None,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let fail = |text: &str| Err(BenchError::Setting(text.to_string()));
        if !(0.05..=4.0).contains(&self.fraction) {
            return fail("a total is between 0.05 and 4 times what the programs need");
        }
        if self.returns == Some(0) {
            return fail("at least one return is needed");
        }
        let known: Vec<Kind> = self.scenario.parts().into_iter().flat_map(|p| p.programs).collect();
        match self.programs.iter().find(|kind| !known.contains(kind)) {
            Some(other) => fail(&format!("{} has no {other}", self.scenario)),
            None => Ok(()),
        }
    }

    fn settings(&self) -> ArmSettings {
        ArmSettings {
            clew_exe: self.clew_exe.clone(),
            clew_scheme: self.clew_scheme.clone(),
            daemon_options: self.daemon_options.clone(),
        }
    }

    fn work(&self, part: &Part) -> Work {
        Work {
            programs: part.programs.clone(),
            load: Load {
                seed: self.seed,
                data_bytes: self.data_bytes,
                similarity: 0.7,
                updates: 0.1,
                is_front: false,
            },
            sequence: part.sequence(self.seed),
            front: part.front_place(),
            pause: self.pause,
            fills_freely: true,
        }
    }
}

/// What a scenario gave.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioResult {
    pub scenario: Scenario,
    pub commit: Option<String>,
    pub seed: u64,
    pub machine: Machine,
    pub parts: Vec<PartResult>,
    pub skipped: Vec<Skipped>,
}

/// What one of its parts gave.
#[derive(Clone, Debug, Serialize)]
pub struct PartResult {
    pub title: String,
    pub programs: Vec<String>,
    pub front: Option<String>,
    /// The most that `dram` used, and what the other arms had.
    pub need_bytes: u64,
    pub total_bytes: u64,
    /// `dram` first.
    pub arms: Vec<ArmResult>,
}

/// One arm of a part.
#[derive(Clone, Debug, Serialize)]
pub struct ArmResult {
    pub name: String,
    pub scheme: String,
    /// What swapping added to the measured visits.
    pub added: Vec<Added>,
    /// Processor time of everything in the arm after the fill.
    pub cpu_ms: Option<f64>,
    pub total_bytes_mean: u64,
    pub total_bytes_peak: u64,
    pub ratio: Option<f64>,
    pub faults: u64,
    /// What swapping wrote to disks, the fill included.
    pub disk_bytes_written: u64,
    pub answers: u64,
    /// Those that differ from the model's, or from those in memory.
    pub wrong_answers: u64,
    /// What faults waited for after the fill, where the arm knows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// Where memory was, in the mean, between visits.
    pub kept: Option<Memory>,
    /// The measured visits.
    pub visits: Vec<Sample>,
}

impl ScenarioResult {
    /// Wrong answers in all arms.
    pub fn wrong_answers(&self) -> u64 {
        self.parts.iter().flat_map(|part| &part.arms).map(|arm| arm.wrong_answers).sum()
    }
}

/// Runs a scenario. What cannot run is named in the result, with the reason.
///
/// # Errors
/// If nothing can run: no program, or not in memory either.
pub fn scenario(
    config: &ScenarioConfig,
    progress: &dyn Progress,
) -> Result<ScenarioResult, BenchError> {
    config.check()?;
    let _interrupts = InterruptGuard::new();
    let scratch = Scratch::new("clew-demo-")?;
    let mut skipped = Vec::new();
    let mut parts = config.scenario.parts();
    if let Some(returns) = config.returns {
        parts.iter_mut().for_each(|part| part.returns = returns);
    }
    let mut wanted = Vec::new();
    for kind in parts.iter().flat_map(|part| &part.programs) {
        let is_wanted = config.programs.is_empty() || config.programs.contains(kind);
        if is_wanted && !wanted.contains(kind) {
            wanted.push(*kind);
        }
    }
    let there = installed(&wanted, &mut skipped)?;
    let mut results = Vec::new();
    for part in parts {
        let title = part.title;
        let Some(part) = part.with_only(&there) else {
            let reason = "a program that it needs is missing, or was not asked for".to_string();
            skipped.push(Skipped { name: title.to_string(), reason });
            continue;
        };
        results.push(one_part(config, &part, scratch.path(), &mut skipped, progress)?);
    }
    Ok(ScenarioResult {
        scenario: config.scenario,
        commit: config.commit.clone(),
        seed: config.seed,
        machine: Machine::here(),
        parts: results,
        skipped,
    })
}

fn one_part(
    config: &ScenarioConfig,
    part: &Part,
    scratch: &std::path::Path,
    skipped: &mut Vec<Skipped>,
    progress: &dyn Progress,
) -> Result<PartResult, BenchError> {
    let settings = config.settings();
    let work = config.work(part);
    rehearse(&work, scratch, progress)?;
    let run = |arm, total| {
        run::one(arm, &settings, total, config.headroom_bytes, &work, scratch, progress)
    };
    let memory = run(ArmKind::Dram, None)?;
    let need_bytes = memory.result.total_bytes_peak;
    let total_bytes =
        config.total_bytes.unwrap_or_else(|| total_bytes(need_bytes, config.fraction));
    let mut arms = vec![arm_result(part, &memory, &memory)];
    for &arm in config.arms.iter().filter(|&&arm| arm != ArmKind::Dram) {
        match run(arm, Some(total_bytes)) {
            Ok(outcome) => arms.push(arm_result(part, &memory, &outcome)),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                progress.done(&format!("{arm} did not run: {error}"));
                let name = format!("{arm}, {}", part.title);
                skipped.push(Skipped { name, reason: error.to_string() });
            }
        }
    }
    Ok(PartResult {
        title: part.title.to_string(),
        programs: part.programs.iter().map(Kind::to_string).collect(),
        front: part.front.map(|front| front.to_string()),
        need_bytes,
        total_bytes,
        arms,
    })
}

/// An arm beside the one in memory.
fn arm_result(part: &Part, memory: &Outcome, arm: &Outcome) -> ArmResult {
    let pairs = paired::pairs(&memory.result.samples, &arm.result.samples);
    let programs: Vec<String> = part.programs.iter().map(Kind::to_string).collect();
    let result = &arm.result;
    ArmResult {
        name: result.name.clone(),
        scheme: result.scheme.clone(),
        added: Added::of_each(&programs, part.front.map(Kind::name), &pairs),
        cpu_ms: result.switching_cpu_ms(),
        total_bytes_mean: arm.total_bytes_mean,
        total_bytes_peak: result.total_bytes_peak,
        ratio: result.ratio,
        faults: result.faults,
        disk_bytes_written: result.disk_bytes_written,
        answers: result.answers,
        wrong_answers: result.wrong_answers + paired::differing(&memory.digests, &arm.digests),
        waits: arm.waits.clone(),
        kept: result.kept,
        visits: result.samples.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let fine = ScenarioConfig::new(Scenario::Pressure);
        assert!(fine.check().is_ok());
        let bad = [
            ScenarioConfig { fraction: 0.0, ..fine.clone() },
            ScenarioConfig { fraction: f64::NAN, ..fine.clone() },
            ScenarioConfig { returns: Some(0), ..fine.clone() },
            ScenarioConfig { programs: vec![Kind::Sqlite], ..fine.clone() },
        ];
        for config in bad {
            assert!(matches!(config.check(), Err(BenchError::Setting(_))), "{config:?}");
        }
    }
}

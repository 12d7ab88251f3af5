//! The demo: all arms one after the other, with the same work.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clew_report::{Arm, Point, ProgramFacts, Results, Skipped, percent};

use crate::arms::{ArmKind, ArmSettings};
use crate::error::BenchError;
use crate::full::{Run, results, total_bytes as part_of};
use crate::interrupt::InterruptGuard;
use crate::method::Asked;
use crate::preparation::{installed, rehearse};
use crate::process_memory::ProgramMemory;
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::run::{self, Work};
use crate::scratch::Scratch;

/// What the demo runs.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// The `clew` command; without it the `clew` arm does not run.
    pub clew_exe: Option<PathBuf>,
    /// The scheme of the `clew` arm.
    pub clew_scheme: String,
    /// Further options of its daemon.
    pub daemon_options: Vec<OsString>,
    /// Memory of the arms, as a part of what the `dram` arm needs.
    pub total_fraction: f64,
    /// Memory of the arms in bytes; needed where the `dram` arm does not run.
    pub total_bytes: Option<u64>,
    /// Part of it kept free for the next relaunch: by the daemon's budget in the `clew` arm, by
    /// reclaim between the switches in the `kernel-zram` arm.
    pub headroom_bytes: u64,
    /// Measured switches of each arm.
    pub switches: usize,
    /// Seed of data, queries and the sequence of switches.
    pub seed: u64,
    /// The programs.
    pub programs: Vec<Kind>,
    /// The arms. They run in this order; `dram` first.
    pub arms: Vec<ArmKind>,
    /// Data of each program.
    pub data_bytes: u64,
    /// Part of an interaction's working set that is the same each time, 0 to 1.
    pub similarity: f64,
    /// Part of the queries that change data, 0 to 1.
    pub updates: f64,
    /// Rest between two switches.
    pub pause: Duration,
    /// The version that is measured.
    pub commit: Option<String>,
}

impl Default for DemoConfig {
    fn default() -> DemoConfig {
        DemoConfig {
            clew_exe: None,
            clew_scheme: "zram".to_string(),
            daemon_options: Vec::new(),
            total_fraction: 0.6,
            total_bytes: None,
            headroom_bytes: 24 << 20,
            switches: 32,
            seed: 1,
            programs: Kind::QUICK.to_vec(),
            arms: ArmKind::QUICK.to_vec(),
            data_bytes: 112 << 20,
            similarity: 0.7,
            updates: 0.1,
            pause: Duration::from_millis(250),
            commit: None,
        }
    }
}

impl DemoConfig {
    fn check(&self) -> Result<(), BenchError> {
        let fail = |text: &str| Err(BenchError::Setting(text.to_string()));
        let is_part = |part: f64| (0.0..=1.0).contains(&part);
        if self.programs.is_empty() || self.arms.is_empty() || self.switches == 0 {
            return fail("at least one program, one arm and one switch are needed");
        }
        if !is_part(self.similarity) || !is_part(self.updates) {
            return fail("similarity and updates are parts: between 0 and 1");
        }
        if !(0.05..=4.0).contains(&self.total_fraction) {
            return fail("the total is between 0.05 and 4 times what the programs need");
        }
        if !self.arms.contains(&ArmKind::Dram) && self.total_bytes.is_none() {
            return fail("without the dram arm, which finds out what is needed, give a total");
        }
        if self.data_bytes < 1 << 20 {
            return fail("a program needs at least 1 MiB of data");
        }
        Ok(())
    }
}

/// Runs the demo. Arms that cannot run are named in the result, with the reason.
pub fn demo(config: &DemoConfig, progress: &dyn Progress) -> Result<Results, BenchError> {
    config.check()?;
    let begin = Instant::now();
    let _interrupts = InterruptGuard::new();
    let scratch = Scratch::new("clew-demo-")?;
    let mut skipped = Vec::new();
    let work = Work {
        programs: installed(&config.programs, &mut skipped)?,
        load: Load {
            seed: config.seed,
            data_bytes: config.data_bytes,
            similarity: config.similarity,
            updates: config.updates,
        },
        switches: config.switches,
        pause: config.pause,
    };
    rehearse(&work, scratch.path(), progress)?;

    let settings = ArmSettings {
        clew_exe: config.clew_exe.clone(),
        clew_scheme: config.clew_scheme.clone(),
        daemon_options: config.daemon_options.clone(),
    };
    let mut total_bytes = config.total_bytes;
    let mut need = None;
    let mut runs: Vec<(Run, Arm)> = Vec::new();
    let mut memory = vec![ProgramMemory::default(); work.programs.len()];
    for kind in ArmKind::all().into_iter().filter(|kind| config.arms.contains(kind)) {
        let (total, headroom) = (total_bytes, config.headroom_bytes);
        match run::one(kind, &settings, total, headroom, &work, scratch.path(), progress) {
            Ok(outcome) => {
                if kind == ArmKind::Dram {
                    let needed = outcome.result.total_bytes_peak;
                    need = Some(needed);
                    total_bytes = total_bytes.or(Some(part_of(needed, config.total_fraction)));
                    memory = outcome.memory;
                }
                // At the only point there is, whatever its total.
                let run = Run { arm: kind, total: None, similarity: config.similarity, round: 0 };
                runs.push((run, outcome.result));
            }
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                progress.done(&format!("{kind} did not run: {error}"));
                skipped.push(Skipped { name: kind.to_string(), reason: error.to_string() });
            }
        }
    }
    let of_need = total_bytes.zip(need).map(|(total, need)| total as f64 / need as f64);
    let total_part = match config.total_bytes {
        None => Some(config.total_fraction),
        Some(_) => of_need,
    };
    let point = Point { total_part, similarity: Some(config.similarity) };
    let facts = |(&kind, memory): (&Kind, &ProgramMemory)| {
        let facts = ProgramFacts {
            anonymous_bytes: memory.filled_bytes,
            touched_bytes: memory.touched_bytes,
            ..kind.facts()
        };
        (kind, facts)
    };
    let programs: Vec<_> = work.programs.iter().zip(&memory).map(facts).collect();
    let total = total_bytes.unwrap_or_default();
    let asked = Asked {
        totals: total_part.into_iter().collect(),
        similarities: vec![config.similarity],
        relaunches: config.switches,
        rounds: 1,
        data_bytes: config.data_bytes,
        headroom_bytes: config.headroom_bytes,
        updates: config.updates,
        pause_ms: config.pause.as_millis() as u64,
    };
    let how = match config.total_bytes {
        Some(_) => "as given".to_string(),
        None => format!("{} % of what dram used", percent(config.total_fraction)),
    };
    let equal = format!("Equal totals: {} MiB ({how}).", total >> 20);
    Ok(Results {
        title: "Clew demo".to_string(),
        commit: config.commit.clone(),
        duration_seconds: Some(begin.elapsed().as_secs_f64()),
        settings: asked.settings(),
        skipped,
        notes: if total > 0 { vec![equal] } else { Vec::new() },
        method: asked.method(),
        ..results(config.seed, &[(point, total)], &config.arms, &programs, &runs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let fine = DemoConfig::default();
        assert!(fine.check().is_ok());
        let bad = [
            DemoConfig { programs: Vec::new(), ..fine.clone() },
            DemoConfig { arms: Vec::new(), ..fine.clone() },
            DemoConfig { switches: 0, ..fine.clone() },
            DemoConfig { similarity: 1.5, ..fine.clone() },
            DemoConfig { updates: -0.1, ..fine.clone() },
            DemoConfig { total_fraction: 0.0, ..fine.clone() },
            DemoConfig { total_fraction: f64::NAN, ..fine.clone() },
            DemoConfig { arms: vec![ArmKind::Clew], ..fine.clone() },
            DemoConfig { data_bytes: 10, ..fine.clone() },
        ];
        for config in bad {
            assert!(matches!(config.check(), Err(BenchError::Setting(_))), "{config:?}");
        }
    }
}

//! The demo's result for people: a table for the terminal, a page that opens offline, a picture.

mod breakdowns;
mod curves;
mod full_page;
mod full_table;
mod page;
mod picture;
mod plots;
mod svg;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use clew_trace::write_whole;
use serde::Serialize;

pub use full_page::full_page;
pub use full_table::full_table;
pub use page::page;
pub use picture::picture;
pub use table::table;

use crate::arms::ArmKind;
use crate::bootstrap::Estimate;
use crate::error::{BenchError, file_error};
use crate::full::FullResult;
use crate::result::DemoResult;

/// The colours of arms and text, for light and dark surroundings. Used by page and picture.
const COLOURS: &str = include_str!("colours.css");

/// A result as JSON, with the documented names.
pub fn json(result: &impl Serialize) -> Result<String, BenchError> {
    Ok(serde_json::to_string_pretty(result)?)
}

/// Writes `demo.json`, `demo.html` and `demo.svg` into `directory` and tells where they are.
pub fn write_all(result: &DemoResult, directory: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let files =
        [("demo.json", json(result)?), ("demo.html", page(result)), ("demo.svg", picture(result))];
    write(&files, directory)
}

/// Writes `full.json` and `full.html` into `directory` and tells where they are.
pub fn write_full(result: &FullResult, directory: &Path) -> Result<Vec<PathBuf>, BenchError> {
    write(&[("full.json", json(result)?), ("full.html", full_page(result))], directory)
}

fn write(files: &[(&str, String)], directory: &Path) -> Result<Vec<PathBuf>, BenchError> {
    fs::create_dir_all(directory).map_err(file_error("create", directory))?;
    files
        .iter()
        .map(|(name, text)| {
            let path = directory.join(name);
            write_whole(&path, text).map_err(file_error("write", &path))?;
            Ok(path)
        })
        .collect()
}

/// Milliseconds as people read them: 4.2, 17, 231.
fn ms(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A ratio with its interval.
fn interval(estimate: &Estimate) -> String {
    format!("{:.2} ({:.2}-{:.2})", estimate.value, estimate.low, estimate.high)
}

/// The class of an arm in drawings: its name without what a class cannot have.
fn class(arm: ArmKind) -> String {
    arm.name().replace('+', "-")
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / (1 << 20) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::{ArmKind, Kept};
    use crate::programs::Kind;
    use crate::result::{ArmResult, Host, ProgramFacts, ProgramResult, Sample, Settings, Skipped};
    use crate::statistics::Summary;
    use crate::totals::TotalPoint;

    /// A made-up result: only for what reports look like.
    pub(super) fn example() -> DemoResult {
        let arm = |name, scheme: &str, factor: f64| {
            let samples: Vec<Sample> = (0..16)
                .map(|switch| Sample {
                    switch,
                    program: Kind::ALL[switch % 4],
                    relaunch_ms: factor * (10.0 + switch as f64),
                    ..Sample::default()
                })
                .collect();
            let times: Vec<f64> = samples.iter().map(|sample| sample.relaunch_ms).collect();
            ArmResult {
                name,
                scheme: scheme.to_string(),
                relaunch_ms: Summary::of(&times),
                cpu_seconds: 3.0 + factor,
                fill_cpu_seconds: 2.0,
                swapping_cpu_seconds: (name != ArmKind::Dram).then_some(factor),
                total_bytes_peak: 300 << 20,
                ratio: (name != ArmKind::Dram).then_some(2.5),
                disk_bytes_written: 0,
                faults: 1000,
                wrong_answers: 0,
                answers: 20_000,
                kept: Kept::default(),
                per_program: Kind::ALL
                    .map(|kind| ProgramResult {
                        name: kind,
                        layout: kind.layout(),
                        relaunch_ms: Summary::of(&times),
                        wrong_answers: 0,
                    })
                    .to_vec(),
                samples,
                totals: (0..10).map(|i| TotalPoint { at_ms: i * 100, bytes: i << 25 }).collect(),
                fill_seconds: 4.0,
            }
        };
        DemoResult {
            arms: vec![arm(ArmKind::Dram, "dram", 1.0), arm(ArmKind::KernelZram, "zram", 4.0)],
            skipped: vec![Skipped {
                name: "clew".to_string(),
                reason:
                    "no <userfaultfd> here, and nothing else that could do the same work for it"
                        .to_string(),
            }],
            total_bytes: 300 << 20,
            host: Host { kernel: "6.18.0".to_string(), cpus: 2, memory_bytes: 24 << 30 },
            seed: 1,
            commit: Some("abc1234".to_string()),
            settings: Settings {
                total_fraction: Some(0.6),
                headroom_bytes: 24 << 20,
                switches: 16,
                similarity: 0.7,
                updates: 0.1,
                pause_ms: 250,
            },
            programs: Kind::ALL
                .map(|kind| ProgramFacts {
                    name: kind,
                    layout: kind.layout(),
                    description: kind.description().to_string(),
                    anonymous_bytes: Some(112 << 20),
                    touched_bytes: Some(17 << 20),
                })
                .to_vec(),
            duration_seconds: 100.0,
        }
    }

    /// The same with a `clew` arm.
    pub(super) fn full_example(factor: f64) -> DemoResult {
        let mut result = example();
        let mut ours = result.arms[1].clone();
        ours.name = ArmKind::Clew;
        ours.relaunch_ms.p50 *= factor;
        ours.relaunch_ms.p95 *= factor;
        result.arms.push(ours);
        result.skipped.clear();
        result
    }

    #[test]
    fn the_json_has_the_documented_names_and_comes_back() {
        let result = example();
        let text = json(&result).expect("it can be written");
        assert_eq!(serde_json::from_str::<DemoResult>(&text).expect("it can be read"), result);
        let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let arm = &value["arms"][1];
        assert_eq!(arm["name"], "kernel-zram");
        for name in [
            "scheme",
            "relaunch_ms",
            "cpu_seconds",
            "total_bytes_peak",
            "ratio",
            "disk_bytes_written",
            "faults",
            "wrong_answers",
            "per_program",
            "samples",
        ] {
            assert!(!arm[name].is_null(), "{name} is missing");
        }
        for name in ["p50", "p95", "max", "n"] {
            assert!(arm["relaunch_ms"][name].is_number(), "{name} is missing");
        }
        assert_eq!(value["skipped"][0]["name"], "clew");
        for name in ["kernel", "cpus", "memory_bytes"] {
            assert!(!value["host"][name].is_null(), "{name} is missing");
        }
        assert_eq!(value["seed"], 1);
        assert_eq!(value["total_bytes"], 300 << 20);
    }

    #[test]
    fn the_verdict_says_who_wins_and_whether_it_counts() {
        assert!(example().verdict().contains("nothing to compare: clew did not run"));
        assert!(full_example(0.5).verdict().contains("2.0 times faster than"));
        assert!(full_example(2.0).verdict().contains("2.0 times slower than"));
        assert!(full_example(1.0).verdict().contains("as fast as the kernel"));
        let mut wrong = full_example(0.5);
        wrong.arms[2].wrong_answers = 3;
        assert!(wrong.verdict().contains("3 answers were wrong"));
    }

    #[test]
    fn all_files_are_written() {
        let directory = std::env::temp_dir().join(format!("clew-report-{}", std::process::id()));
        let paths = write_all(&example(), &directory).expect("they can be written");
        assert_eq!(paths.len(), 3);
        assert!(paths.iter().all(|path| path.is_file()));
        // Others may have made the directory, with links in it to what is not theirs.
        let (elsewhere, link) = (directory.join("elsewhere"), directory.join("demo.json"));
        fs::write(&elsewhere, "precious").expect("it can be written");
        fs::remove_file(&link).expect("it is there");
        std::os::unix::fs::symlink(&elsewhere, &link).expect("a link");
        write_all(&example(), &directory).expect("they can be written");
        assert_eq!(fs::read_to_string(&elsewhere).expect("still there"), "precious");
        fs::remove_dir_all(&directory).expect("still there");
    }
}

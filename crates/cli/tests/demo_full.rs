//! One small point of the full comparison, with real programs and the real daemon: that it runs,
//! keeps what is finished, makes only what is missing, and reports with the documented names.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clew_fixture::*;
use serde_json::Value;

/// `clew demo --full` at one small point.
fn command(out: &Path) -> Command {
    let mut command = clew();
    command.args(["--format", "json", "demo", "--full", "--totals", "160", "--similarity", "70"]);
    command.args(["--arms", "kernel-zram,clew-zram", "--programs", "python,sqlite"]);
    command.args(["--relaunches", "6", "--rounds", "1", "--data", "16MiB", "--out"]).arg(out);
    command
}

/// What it printed, and what it said meanwhile.
fn run(out: &Path, more: &[&str]) -> (Value, String) {
    let output = run_to_end(command(out).args(more), Duration::from_secs(300));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}")), said)
}

#[test]
fn a_small_point_runs_once_and_is_reported_again() {
    let name = "a_small_point_runs_once_and_is_reported_again";
    if !can_run(name, &["python3", "sqlite3"]) {
        return;
    }
    if !Path::new("/sys/class/zram-control").exists() {
        return skip(name, "there is no zram device");
    }
    let dir = TempDir::new();
    let out = dir.join("full");
    let (result, said) = run(&out, &[]);
    assert!(said.contains("3 of 3: "), "{said}");
    assert_eq!(result["skipped"], Value::Array(Vec::new()), "{said}");
    assert_eq!(result["format"], 2);
    let arms = result["points"][0]["arms"].as_array().expect("arms");
    let names: Vec<&str> = arms.iter().filter_map(|arm| arm["name"].as_str()).collect();
    assert_eq!(names, ["dram", "kernel-zram", "clew-zram"]);
    for arm in arms {
        assert_eq!(arm["relaunch_ms"]["n"], 6, "{arm}");
        assert_eq!(arm["wrong_answers"], 0, "{arm}");
        assert!(arm["answers"].as_u64() > Some(500), "{arm}");
        assert!(arm["relaunch_ms"]["p50"].as_f64() > Some(0.0), "{arm}");
        for field in ["scheme", "cpu_ms", "total_bytes_peak", "disk_bytes_written", "faults"] {
            assert!(!arm[field].is_null(), "{field} is missing: {arm}");
        }
    }
    // Both were labelled by what they touch: sqlite's rows are neighbours, python's objects not.
    let programs = result["programs"].as_array().expect("programs");
    let labels = programs.iter().filter(|one| one["label"]["touched_pages"].as_f64() > Some(0.0));
    assert_eq!(labels.count(), 2, "{programs:?}");
    let comparison = &result["comparisons"][0];
    for field in ["p50", "p95", "p50_by_program", "swapping_cpu"] {
        let [low, high] = ["low", "high"].map(|end| comparison[field][end].as_f64());
        assert!(low.is_some() && low <= high, "{field}: {comparison}");
    }
    for file in ["full.json", "full.html", "full.svg"] {
        assert!(fs::metadata(out.join(file)).is_ok_and(|file| file.len() > 1_000), "{file}");
    }

    // The file can be shown again, in as many columns as a terminal has.
    let shown = run_to_end(clew().arg("report").arg(out.join("full.json")), LONG);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("clew-zram / kernel-zram") && shown.contains("0 wrong of"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");

    // Nothing is run again, and the result is the same.
    let (again, said) = run(&out, &[]);
    assert!(!said.contains(" of 3: "), "{said}");
    assert_eq!(again, result);
    // Only what is missing is run.
    let lost = out.join("runs/clew-zram-t160-s70-r1.json");
    fs::remove_file(&lost).expect("a finished run is there");
    let (part, _) = run(&out, &["--report"]);
    assert_eq!(part["points"][0]["arms"].as_array().map(Vec::len), Some(2));
    let (_, said) = run(&out, &[]);
    assert!(said.contains("3 of 3: clew-zram") && !said.contains("2 of 3: "), "{said}");
    assert!(lost.is_file());
    // Under other conditions it counts as not made: there is nothing to report.
    let output = run_to_end(command(&out).args(["--seed", "2", "--report"]), LONG);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
}

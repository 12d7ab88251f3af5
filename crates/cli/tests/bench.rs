//! `clew bench`: cases that drive a worker of their own run to their end, find every page as it was written, and tell a ratio.
//! What the ratio is, is no test's business.

use std::path::Path;
use std::time::Duration;

use clew_fixture::*;
use serde_json::Value;

/// Runs a case once, which needs these programs.
fn once(case: &str, programs: &[&str]) {
    let name = format!("bench::{case}");
    if !can_run(&name, programs) {
        return;
    }
    if !Path::new("/sys/class/zram-control").exists() {
        skip(&name, "the kernel has no zram");
        return;
    }
    let dir = TempDir::new();
    let mut bench = clew();
    bench.args(["--format", "json", "bench", case, "--repetitions", "1"]);
    bench.env("TMPDIR", dir.path());
    let output = run_to_end(&mut bench, Duration::from_secs(300));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let measured = result.as_array().expect("a list");
    assert!(!measured.is_empty());
    for measured in measured {
        assert_eq!(measured["bench"], *case);
        assert!(measured["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{measured}");
    }
}

#[test]
fn fault() {
    once("fault", &[]);
}

/// In a group of one busy program the kernel may find nothing to swap, and end it: both sides go on all the same.
#[test]
fn fault_under_load() {
    once("fault-under-load", &[]);
}

#[test]
fn swap_out() {
    once("swap-out", &[]);
}

/// Restores make memory there that nobody has touched, which is no page that has stayed.
#[test]
fn restore() {
    once("restore", &[]);
}

#[test]
fn flash() {
    once("flash", &["fio"]);
}

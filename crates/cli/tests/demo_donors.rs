//! The arms of the demo that put pages on another machine: with real programs, the real daemon, `clew donate` or a Redis
//! server, and the link between them. Nothing of it is left behind, however the demo ends.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use clew_fixture::*;
use serde_json::Value;

/// One with a donor and the one with a Redis server; CLEW_DONOR_ARMS names others (all four take minutes).
const ARMS: &str = "clew-mobileswap,clew-cloudswap";

/// Two programs grow, in less memory than they have, with their files in `dir`. Nothing but the budget limits them: what
/// arms put elsewhere, they put there by themselves.
fn command(arms: &str, dir: &TempDir) -> Command {
    let mut command = clew();
    command.args(["--format", "json", "demo", "--scenario", "growth", "--fraction", "0.7"]);
    command.args(["--arms", arms, "--programs", "python,sqlite", "--out"]).arg(dir.join("out"));
    command.env("TMPDIR", dir.path());
    command
}

/// Processes that have something of this directory among their words.
fn of(dir: &Path) -> Vec<(u32, String)> {
    let words = |pid| {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&bytes).replace('\0', " ")))
    };
    let dir = dir.to_str().expect("UTF-8").to_string();
    let all = processes().into_iter().filter_map(words);
    all.filter(|(_, words)| words.contains(&dir)).collect()
}

/// No process and no file of the demo is left.
fn nothing_is_left(dir: &TempDir) {
    assert_eq!(of(dir.path()), [], "are left");
    let files = fs::read_dir(dir.path()).expect("it is there").filter_map(Result::ok);
    let names = files.map(|file| file.file_name()).filter(|name| name != "out");
    assert_eq!(names.collect::<Vec<_>>(), [""; 0], "are left");
}

#[test]
fn what_leaves_goes_to_another_machine_and_comes_back_right() {
    let name = "what_leaves_goes_to_another_machine_and_comes_back_right";
    if !can_run(name, &["python3", "sqlite3", "redis-server", "ip", "tc"]) {
        return;
    }
    let dir = TempDir::new();
    let arms = env::var("CLEW_DONOR_ARMS").unwrap_or_else(|_| ARMS.to_string());
    let mut demo = command(&arms, &dir);
    let output = run_to_end(&mut demo, Duration::from_secs(600));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["skipped"], Value::Array(Vec::new()), "{said}");
    let ran = result["arms"].as_array().expect("arms");
    let by_name = |name: &str| {
        let arm = ran.iter().find(|arm| arm["name"] == *name);
        arm.unwrap_or_else(|| panic!("{name} did not run: {said}"))
    };
    // An arm that is too slow with one program, which a busy machine may make it, is given no second one.
    let used = |arm: &Value| arm["steps"][1]["used_bytes"].as_u64();
    let in_memory = used(by_name("dram")).unwrap_or(u64::MAX);
    for name in arms.split(',') {
        let arm = by_name(name);
        assert_eq!(arm["wrong_answers"], 0, "{arm}");
        assert!(arm["answers"].as_u64() > Some(0), "{arm}");
        assert!(used(arm).is_none_or(|used| used < in_memory / 10 * 9), "nothing has left: {arm}");
        let scheme = arm["scheme"].as_str().expect("a scheme");
        let lender = if name == "clew-cloudswap" { "a Redis server" } else { "a donor" };
        assert!(scheme.ends_with(&format!("{lender} behind a link of 920 Mbit/s")), "{scheme}");
    }
    nothing_is_left(&dir);
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_on_either_machine() {
    let name = "a_demo_that_is_interrupted_leaves_nothing_on_either_machine";
    if !can_run(name, &["python3", "sqlite3"]) {
        return;
    }
    let dir = TempDir::new();
    let mut demo = command("clew-mobileswap", &dir);
    let mut demo = demo.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let lends = |(_, words): &(u32, String)| words.contains(" donate ");
    let borrows = |(_, words): &(u32, String)| words.contains(" --donor ");
    let both = poll(LONG, || {
        let there = of(dir.path());
        (there.iter().any(lends) && there.iter().any(borrows)).then_some(())
    });
    assert!(both.is_some(), "{:?}", of(dir.path()));
    terminate(demo.id());
    let ended = wait_for_end(&mut demo, LONG);
    let ended = ended.unwrap_or_else(|| {
        kill_tree(&mut demo);
        panic!("it does not end")
    });
    assert_eq!(ended.code(), Some(1));
    nothing_is_left(&dir);
    for hierarchy in ["memory", "cpuacct", ""] {
        let group = format!("/sys/fs/cgroup/{hierarchy}/clew-demo-{}", demo.id());
        assert!(!Path::new(&group).exists(), "{group} is left");
    }
}

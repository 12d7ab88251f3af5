//! The arms from their beginning to their end, small: what they answer, what they leave behind.
//!
//! The `clew` arm is run against a stub that speaks Clew's command line and control protocol; what
//! Clew itself does with real programs is tested where the command is built.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clew_bench::arms::ArmKind;
use clew_bench::cgroup::Cgroup;
use clew_bench::programs::Kind;
use clew_bench::progress::Silent;
use clew_bench::{DemoConfig, demo};
use clew_live::control::status::{AppStatus, PoolStatus, ProcessStatus, Status};
use clew_report::{Arm, Results};
use skip::skip;

/// An executable that behaves as `clew` does, in `directory`.
fn stub(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).expect("a temporary directory");
    let process = ProcessStatus { managed: true, ..ProcessStatus::default() };
    let app = AppStatus { processes: vec![process], ..AppStatus::default() };
    let pool =
        PoolStatus { used_bytes: 4096, stored_pages: 3, ratio: 3.0, ..PoolStatus::default() };
    let status = Status { pool, apps: vec![app], ..Status::default() };
    let template = directory.join("status.json");
    fs::write(&template, serde_json::to_string(&status).expect("it is data")).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clew_stub.py");
    let (template, script) = (template.display(), script.display());
    let exe = directory.join("clew");
    let text = format!("#!/bin/sh\nCLEW_STUB_STATUS='{template}' exec python3 '{script}' \"$@\"\n");
    fs::write(&exe, text).expect("written");
    fs::set_permissions(&exe, fs::Permissions::from_mode(0o755)).expect("ours");
    exe
}

/// Demos of one process share the name of their group.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn small(arms: &[ArmKind]) -> DemoConfig {
    DemoConfig {
        arms: arms.to_vec(),
        programs: vec![Kind::Python, Kind::Sqlite],
        data_bytes: 8 << 20,
        headroom_bytes: 4 << 20,
        relaunches: 4,
        pause: Duration::from_millis(20),
        ..DemoConfig::default()
    }
}

/// `None`, said loudly, where the demo cannot run at all.
fn run(test: &str, config: &DemoConfig) -> Option<Results> {
    for kind in &config.programs {
        if let Err(error) = kind.executable() {
            skip(test, &error.to_string());
            return None;
        }
    }
    if let Err(error) = Cgroup::create("probe") {
        skip(test, &error.to_string());
        return None;
    }
    let result = demo(config, &Silent).expect("the demo runs");
    let group = format!("clew-demo-{}", std::process::id());
    for hierarchy in ["memory", "cpuacct", ""] {
        let path = Path::new("/sys/fs/cgroup").join(hierarchy).join(&group);
        assert!(!path.exists(), "{} is left behind", path.display());
    }
    assert!(!std::env::temp_dir().join(&group).exists(), "files are left behind");
    Some(result)
}

/// An arm that ran.
fn arm<'a>(results: &'a Results, name: &str) -> Option<&'a Arm> {
    results.at(results.base(), name)
}

#[test]
fn clew_is_driven_through_its_command() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // The stub gives no memory back: the limit must hold all.
    let directory = std::env::temp_dir().join(format!("clew-stub-{}", std::process::id()));
    let clew_exe = Some(stub(&directory));
    let arms = small(&[ArmKind::Dram, ArmKind::Clew]);
    let config = DemoConfig { totals: vec![2.0], clew_exe, ..arms };
    let Some(result) = run("arms::clew", &config) else { return };
    assert!(result.skipped.is_empty(), "{:?}", result.skipped);
    assert_eq!(result.wrong_answers(), 0);
    let ours = arm(&result, "clew").expect("it ran");
    assert_eq!((ours.relaunch_ms.n, ours.scheme.as_str()), (4, "zram"));
    assert_eq!(ours.faults, 4, "the stub counts a fault for each switch");
    assert_eq!(ours.ratio, Some(3.0));
    let dram = arm(&result, "dram").expect("it ran");
    let order = |arm: &Arm| -> Vec<String> {
        arm.samples.iter().map(|sample| sample.program.clone()).collect()
    };
    assert_eq!(order(dram), order(ours), "equal work in both arms");
    assert_eq!(dram.answers, ours.answers);
    fs::remove_dir_all(&directory).expect("still there");
}

#[test]
fn an_arm_that_cannot_run_is_named_with_its_reason() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let clew_exe = Some(PathBuf::from("/nowhere/clew"));
    let config = DemoConfig { clew_exe, ..small(&[ArmKind::Dram, ArmKind::Clew]) };
    let Some(result) = run("arms::named", &config) else { return };
    assert!(arm(&result, "clew").is_none() && arm(&result, "dram").is_some());
    assert_eq!(result.skipped.len(), 1);
    assert!(result.skipped[0].reason.contains("/nowhere/clew"), "{:?}", result.skipped);
}

#[test]
fn a_limit_that_kills_is_the_reason_that_is_given() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // The stub never makes room. The data is most of the memory: what files take of the peak, which
    // the kernel can drop, must not be enough to make room for it.
    let directory = std::env::temp_dir().join(format!("clew-stub-oom-{}", std::process::id()));
    let config = DemoConfig {
        data_bytes: 48 << 20,
        totals: vec![0.4],
        headroom_bytes: 0,
        clew_exe: Some(stub(&directory)),
        ..small(&[ArmKind::Dram, ArmKind::Clew])
    };
    let Some(result) = run("arms::limit", &config) else { return };
    assert!(arm(&result, "clew").is_none());
    let reason = &result.skipped[0].reason;
    assert!(reason.contains("limit"), "{reason}");
    fs::remove_dir_all(&directory).expect("still there");
}

#[test]
fn the_kernels_zram_swaps_and_is_put_back() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let page_cluster = || fs::read_to_string("/proc/sys/vm/page-cluster").unwrap_or_default();
    let before = page_cluster();
    // Large enough that the data, not the programs' own start, is what is swapped.
    let arms = small(&[ArmKind::Dram, ArmKind::KernelZram]);
    let config = DemoConfig { data_bytes: 32 << 20, ..arms };
    let Some(result) = run("arms::zram", &config) else { return };
    assert_eq!(page_cluster(), before);
    let Some(kernel) = arm(&result, "kernel-zram") else {
        let reason = &result.skipped[0].reason;
        assert!(reason.contains("cannot be used here"), "{reason}");
        return skip("arms::zram", reason);
    };
    assert_eq!(kernel.wrong_answers, 0);
    assert!(kernel.ratio.is_some_and(|ratio| ratio > 1.0), "nothing was swapped: {kernel:?}");
    assert!(kernel.total_bytes_peak < result.base_arms()[0].total_bytes_peak);
}

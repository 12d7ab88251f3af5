//! Memory and pool are full: what `on_full` says happens, and nothing else.

mod support;

use std::fs;
use std::time::Duration;

use clew_live::control::Request;
use support::touch::{MIB, run_as};
use support::*;

/// A daemon whose pool is far too small for what does not compress.
fn small_pool(on_full: &str) -> Fixture {
    let dir = TempDir::new();
    let scheme = dir.join("small.toml");
    let text = format!(
        "[scheme]\nname = \"small\"\nmem_limit_bytes = \"8MiB\"\non_full = \"{on_full}\"\n\
         reclaim = \"lru\"\nadmission = \"all\"\nplacement = \"pool\"\n\
         packing = {{ kind = \"one-page\", codec = \"lz4\", chunk = \"4KiB\" }}\n\
         eviction = \"none\"\nprefetch = \"none\"\n"
    );
    fs::write(&scheme, text).expect("a scheme");
    let config = dir.join("clew.toml");
    fs::write(&config, "[[rule]]\nprogram = \"guarded\"\nprotect = true\n").expect("a config");
    let (scheme, config) = (scheme.to_str().expect("UTF-8"), config.to_str().expect("UTF-8"));
    Fixture::start_with("96MiB", &["--scheme", scheme, "--config", config])
}

#[test]
fn a_full_pool_ends_the_app_that_was_away_longest_if_the_scheme_says_so() {
    if !can_run("pressure::kill", &["cc"]) {
        return;
    }
    let mut fixture = small_pool("kill");
    let mut guarded = run_as(&fixture, "guarded", 24, 0);
    let mut oldest = run_as(&fixture, "oldest", 24, 0);
    fixture.wait_resident("guarded", 20 * MIB);
    fixture.wait_resident("oldest", 20 * MIB);
    let mut front = run_as(&fixture, "front", 24, 0);
    fixture.wait_resident("front", 20 * MIB);
    fixture.order(&Request::Fg { app: "oldest".into() });
    fixture.order(&Request::Fg { app: "front".into() });
    let sums = [&mut guarded, &mut front].map(|program| program.ask("sum"));
    assert!(fixture.status().ended_apps.is_empty(), "{:?}", fixture.status());

    // One too many.
    let mut last = run_as(&fixture, "last", 40, 0);
    let ended = poll(LONG, || {
        let status = fixture.status();
        (!status.ended_apps.is_empty()).then_some(status.ended_apps)
    });
    let ended = ended.unwrap_or_else(|| panic!("{:?}\n{}", fixture.status(), fixture.log()));
    assert!(!ended.iter().any(|app| app == "guarded" || app == "front"), "{ended:?}");
    for name in &ended {
        let program = if name == "oldest" { &mut oldest } else { &mut last };
        let status = program.wait(LONG);
        assert!(!status.success(), "{name} ended with {status}");
    }
    guarded.expect("sum", &sums[0]);
    front.expect("sum", &sums[1]);
    // It is said where the user looks.
    assert!(fixture.log().contains("ended an app"), "{}", fixture.log());
    fixture.assert_daemon_lives();
}

#[test]
fn a_full_pool_ends_nobody_otherwise() {
    if !can_run("pressure::stop", &["cc"]) {
        return;
    }
    let mut fixture = small_pool("stop");
    let mut programs =
        [("one", 48), ("two", 48), ("three", 24)].map(|(name, mib)| run_as(&fixture, name, mib, 0));
    let sums: Vec<String> = programs.iter_mut().map(|program| program.ask("sum")).collect();
    let full = poll(LONG, || fixture.status().pool.full.then_some(()));
    assert!(full.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    std::thread::sleep(Duration::from_secs(1));
    for (program, sum) in programs.iter_mut().zip(&sums) {
        program.expect("sum", sum);
    }
    assert!(fixture.status().ended_apps.is_empty());
    fixture.assert_daemon_lives();
}

/// What the daemon's policies have counted.
fn counted(fixture: &Fixture, name: &str) -> u64 {
    let status = fixture.status();
    let found = status.policies.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {status:?}")).value as u64
}

#[test]
fn pages_that_cannot_leave_are_left_alone_for_a_while() {
    if !can_run("pressure::stays", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("48MiB");
    let mut program = run_as(&fixture, "fixed", 64, 80);
    let sum = program.ask("sum");
    // The kernel moves no page to memory of another protection.
    program.expect("readonly", "readonly");
    program.expect("sum", &sum);
    fixture.wait_resident("fixed", 60 * MIB);
    let pages = 64 * MIB / 4096;
    let before = counted(&fixture, "engine_ordered_pages");
    std::thread::sleep(Duration::from_secs(3));
    // They are tried again and again, but not all the time.
    let ordered = counted(&fixture, "engine_ordered_pages") - before;
    assert!((1..pages * 8).contains(&ordered), "{ordered} of {pages} pages\n{}", fixture.log());
    program.expect("sum", &sum);
    fixture.assert_daemon_lives();
}

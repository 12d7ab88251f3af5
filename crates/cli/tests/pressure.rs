//! Memory and pool are full: what `on_full` says happens, and nothing else.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use clew_fixture::touch::{MIB, run_as};
use clew_fixture::*;
use clew_live::control::protocol::Request;

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

    // One too many. The oldest has to go, and that is enough.
    let mut last = run_as(&fixture, "last", 32, 0);
    let ended = poll(LONG, || {
        let status = fixture.status();
        (!status.ended_apps.is_empty()).then_some(status.ended_apps)
    });
    let ended = ended.unwrap_or_else(|| panic!("{:?}\n{}", fixture.status(), fixture.log()));
    assert_eq!(ended, ["oldest"]);
    let status = oldest.wait(LONG);
    assert_eq!(status.signal(), Some(9), "oldest ended with {status}");
    let sum = last.ask("sum");
    let gone = poll(LONG, || fixture.app("oldest").processes.is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}", fixture.status());
    guarded.expect("sum", &sums[0]);
    front.expect("sum", &sums[1]);
    last.expect("sum", &sum);
    assert_eq!(fixture.status().ended_apps, ["oldest"]);
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
    for (program, sum) in programs.iter_mut().zip(&sums) {
        program.expect("sum", sum);
    }
    // Near its limit the pool is full and has room again, many times; one line says so.
    for round in 0..12 {
        for program in &mut programs {
            program.expect(&format!("write 2000 {round}"), "wrote 2000");
        }
        for app in ["one", "two", "three"] {
            fixture.swap_out(app);
        }
        fixture.order(&Request::Restore { app: "one".into() });
    }
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    let said = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!((said("the pool is full"), said("has had room") <= 1), (1, true), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("WARN")).count(), said("the pool"), "{log}");
    for program in &mut programs {
        let sum = program.ask("sum");
        assert!(sum.ends_with(" bad 0"), "{sum}");
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
    // What is never written is not managed: it has to be, before it is forbidden.
    let pages = 64 * MIB / 4096;
    let managed = poll(LONG, || (fixture.status().managed_pages >= pages).then_some(()));
    assert!(managed.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    // The kernel moves no page to memory of another protection.
    program.expect("readonly", "readonly");
    program.expect("sum", &sum);
    fixture.wait_resident("fixed", 60 * MIB);
    let before = counted(&fixture, "engine_ordered_pages");
    std::thread::sleep(Duration::from_secs(3));
    // They are tried again and again, but not all the time.
    let ordered = counted(&fixture, "engine_ordered_pages") - before;
    assert!((1..pages * 8).contains(&ordered), "{ordered} of {pages} pages\n{}", fixture.log());
    program.expect("sum", &sum);
    fixture.assert_daemon_lives();
}

/// The priorities of the daemon's workers, as `nice` has them.
fn workers_nice(daemon: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{daemon}/task")).expect("it lives").flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let nice = |stat: String| {
        let (name, rest) = stat.rsplit_once(") ")?;
        name.contains("(worker-").then(|| rest.split(' ').nth(16)?.parse().ok()).flatten()
    };
    stats.filter_map(nice).collect()
}

#[test]
fn who_makes_room_comes_before_programs_while_more_than_the_budget_is_used() {
    let test = "pressure::who_makes_room";
    if !can_run(test, &["cc"]) {
        return;
    }
    // It says which priority it has got.
    let may = run_to_end(Command::new("nice").args(["-n", "-10", "nice"]), LONG);
    if String::from_utf8_lossy(&may.stdout).trim() != "-10" {
        return skip(test, "nobody may come before others here (CAP_SYS_NICE)");
    }
    let mut fixture = Fixture::start("24MiB");
    let daemon = fixture.daemon_pid();
    assert!(workers_nice(daemon).iter().all(|nice| *nice == 0), "{:?}", workers_nice(daemon));
    let mut program = run_as(&fixture, "large", 96, 50);
    let came_first = poll(LONG, || {
        program.expect("write 16384 1", "wrote 16384");
        workers_nice(daemon).contains(&-10).then_some(())
    });
    assert!(came_first.is_some(), "{:?}\n{}", workers_nice(daemon), fixture.log());
    program.quit();
    // Each of them hears of it with the next thing that it does.
    let mut program = run_as(&fixture, "small", 4, 50);
    let is_over = poll(LONG, || {
        fixture.swap_out("small");
        program.expect("write 1024 1", "wrote 1024");
        workers_nice(daemon).iter().all(|nice| *nice == 0).then_some(())
    });
    assert!(is_over.is_some(), "{:?}\n{}", workers_nice(daemon), fixture.log());
    fixture.assert_daemon_lives();
}

#[test]
fn the_daemon_and_its_keeper_are_the_last_to_be_ended() {
    let test = "pressure::the_daemon_and_its_keeper_are_the_last_to_be_ended";
    if !can_run(test, &["sh"]) {
        return;
    }
    let mut may = Command::new("sh");
    may.args(["-c", "echo -900 >/proc/self/oom_score_adj"]);
    // Who may not lower it below what it was at first (CAP_SYS_RESOURCE) may take back what was added.
    let wanted = if run_to_end(&mut may, LONG).status.success() { "-900\n" } else { "0\n" };
    const OWN: &str = "/proc/self/oom_score_adj";
    let before = fs::read_to_string(OWN).expect("ours");
    // What it starts inherits that.
    fs::write(OWN, "300").expect("it may be raised");
    let mut fixture = Fixture::start("64MiB");
    fs::write(OWN, before).expect("as it was");
    let status = fixture.status();
    for pid in [status.daemon_pid, status.keeper_pid] {
        let found = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it lives");
        assert_eq!(found, wanted);
    }
    fixture.assert_daemon_lives();
}

#[test]
fn what_the_daemon_touches_is_locked() {
    if !can_run("pressure::locked", &[]) {
        return;
    }
    let mut fixture = Fixture::start("64MiB");
    let pid = fixture.daemon_pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let locked = |line: &str| line.starts_with("VmLck:") && !line.ends_with("\t       0 kB");
    assert!(status.lines().any(locked), "{status}");
    fixture.assert_daemon_lives();
}

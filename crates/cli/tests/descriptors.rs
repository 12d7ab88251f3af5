//! When descriptors run out: forks wait, and nothing and nobody else does.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use clew_fixture::*;

const PAGES: u64 = 2048;
const BYTES: u64 = PAGES * 4096;

/// Descriptors that the daemon may have open.
const LIMIT: u64 = 160;

/// A daemon with few descriptors, and a program of which most is stored, with its answer to "sum".
fn with_few(test: &str) -> Option<(Fixture, Program, String)> {
    if !can_run(test, &["cc", "prlimit"]) {
        return None;
    }
    // Strangers of 6 MiB are listened to, and not managed.
    let fixture = Fixture::start_configured("1GiB", "zram", "min-process = \"7MiB\"\n");
    let pid = fixture.daemon_pid().to_string();
    let limit = format!("--nofile={LIMIT}:{LIMIT}");
    let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status().expect("prlimit runs");
    assert!(set.success(), "prlimit: {set}");
    let mut other = fixture.run_touch("other", PAGES, 50, 3);
    let sum = other.ask("sum");
    fixture.swap_out_at_least("other", BYTES * 8 / 10);
    Some((fixture, other, sum))
}

#[test]
fn forks_wait_for_descriptors_and_nobody_else_does() {
    let Some((mut fixture, mut other, sum)) = with_few("descriptors::forks") else { return };
    let mut forker = fixture.run_touch("forker", PAGES, 50, 5);
    let forkers = forker.ask("sum");
    fixture.swap_out_at_least("forker", BYTES * 8 / 10);
    let mut children: Vec<u32> = Vec::new();
    while (children.len() as u64) < LIMIT {
        forker.send("fork-keep");
        let Some(answer) = forker.read_within(Duration::from_secs(3)) else { break };
        let pid = answer.strip_prefix("child ").and_then(|pid| pid.parse().ok());
        children.push(pid.unwrap_or_else(|| panic!("{answer}")));
    }
    assert!((children.len() as u64) < LIMIT, "{LIMIT} children with {LIMIT} descriptors");
    // Its fork waits. Another program's faults are answered.
    other.expect("sum", &sum);
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    let told = log.lines().filter(|line| line.contains("cannot read what a program did")).count();
    assert!((1..20).contains(&told), "told {told} times\n{}", fixture.log());
    // With a child's end there is a descriptor again, and nothing was lost.
    let ended = children.len() / 2;
    children[..ended].iter().for_each(|pid| kill(*pid));
    let answer = forker.read(LONG);
    assert!(answer.starts_with("child "), "{answer}\n{}", fixture.log());
    forker.expect("child sum", &forkers);
    forker.expect("sum", &forkers);
    fixture.swap_out_at_least("other", BYTES * 8 / 10);
    other.expect("sum", &sum);
    fixture.assert_daemon_lives();
    children[ended..].iter().for_each(|pid| kill(*pid));
}

#[test]
fn strangers_leave_descriptors_to_children_and_clients() {
    let Some((mut fixture, mut program, sum)) = with_few("descriptors::strangers") else { return };
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/agents/hello");
    let hello = fs::read_to_string(hello).expect("a script that says hello");
    let hello = hello.lines().find(|line| line.starts_with("send ")).expect("a hello");
    let script = fixture.dir.join("flood");
    fs::write(&script, format!("{hello}\n") + &"wait 999\n".repeat(120)).expect("a script");
    let mut flood: Vec<Child> =
        (0..LIMIT).map(|_| fixture.start_hostile(&binary, &script)).collect();
    let many = poll(LONG, || (fixture.daemon_descriptors() as u64 >= LIMIT / 4 * 3).then_some(()));
    assert!(many.is_some(), "{} descriptors\n{}", fixture.daemon_descriptors(), fixture.log());
    // Until those are heard who are still on their way.
    let (mut most, mut looks) = (0, 0);
    let settled = poll(LONG, || {
        let now = fixture.daemon_descriptors();
        looks = if now > most { 0 } else { looks + 1 };
        most = most.max(now);
        (looks == 40).then_some(())
    });
    assert!(settled.is_some(), "{most} descriptors\n{}", fixture.log());
    // They are given no more, but for a moment what is being closed, and there are more of them than descriptors.
    let fewer =
        poll(LONG, || ((fixture.daemon_descriptors() as u64) < LIMIT - LIMIT / 16).then_some(()));
    assert!(fewer.is_some(), "{} descriptors\n{}", fixture.daemon_descriptors(), fixture.log());
    for _ in 0..3 {
        let answer = program.ask("fork-keep");
        assert!(answer.starts_with("child "), "{answer}");
        program.expect("child sum", &sum);
        program.expect("child quit", "child ended");
    }
    program.expect("sum", &sum);
    flood.iter_mut().for_each(kill_tree);
    fixture.assert_daemon_lives();
}

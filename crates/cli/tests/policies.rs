//! Five policies that Clew does not have (crates/cli/examples/policies), each live and in a replay: what
//! it wants is done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clew_bench::zram::ZramSwap;
use clew_fixture::*;
use clew_live::control::protocol::Request;
use clew_report::{Arm, Memory, Replay, Results};

const PAGES: u64 = 4096;
const NEEDS: [&str; 3] = ["cc", "mkswap", "swapon"];

/// The command that has them; built with the tests.
fn command() -> PathBuf {
    let tests = std::env::current_exe().expect("a test");
    let built = tests.parent().and_then(Path::parent).expect("target/PROFILE");
    let command = built.join("examples/policies");
    assert!(command.exists(), "`cargo build -p clew --examples` makes {}", command.display());
    command
}

/// A scheme of LRU, with these answers in place of its own.
fn scheme(dir: &TempDir, answers: &[(&str, &str)]) -> String {
    let of = |question: &str, own: &str| {
        let answer = answers.iter().find(|(asked, _)| *asked == question);
        format!("{question} = {}\n", answer.map_or(own, |(_, answer)| answer))
    };
    let whole = "{ kind = \"one-page\", codec = \"lz4\", chunk = \"4KiB\" }";
    let (none, limit) = ("\"none\"", "\"1GiB\"");
    let text = String::from("[scheme]\nname = \"theirs\"\n")
        + &of("on_full", "\"stop\"")
        + &of("mem_limit_bytes", limit)
        + &of("retain", "false")
        + &of("reclaim", "\"lru\"")
        + &of("admission", "\"all\"")
        + &of("packing", whole)
        + &of("eviction", none)
        + &of("placement", "\"pool\"")
        + &of("prefetch", none);
    let path = dir.join("theirs.toml");
    fs::write(&path, text).expect("a scheme");
    path.to_str().expect("UTF-8").to_string()
}

/// What a replay of three small apps gives, with memory for half of them.
fn replayed(dir: &TempDir, scheme: &str) -> Arm {
    let trace = dir.join("apps.clew");
    let trace = trace.to_str().expect("UTF-8");
    let words = ["gen", "mobile-2025", "--apps", "3", "--scale", "0.02", "--events", "60000"];
    let made = run_to_end(Command::new(command()).args(words).args(["--output", trace]), LONG);
    assert!(made.status.success(), "{}", texts(&made));
    let words = ["replay", trace, "--scheme", scheme, "--budget", "50%", "--kernel-zram"];
    let said = run_to_end(Command::new(command()).args(words).args(["--format", "json"]), LONG);
    assert!(said.status.success(), "{}", texts(&said));
    let results: Results = serde_json::from_slice(&said.stdout).expect("a result");
    results.base_arms()[0].clone()
}

fn own(arm: &Arm) -> &Replay {
    arm.replay.as_ref().expect("a replay")
}

fn peak(arm: &Arm) -> Memory {
    arm.peak.expect("a replay knows it")
}

fn counted(fixture: &Fixture, name: &str) -> f64 {
    let status = fixture.status();
    status.policies.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value)
}

#[test]
fn one_that_rejects_every_second_page() {
    let dir = TempDir::new();
    let scheme = scheme(&dir, &[("admission", "\"even-pages\"")]);
    let outcome = replayed(&dir, &scheme);
    assert!(own(&outcome).swapped_out_pages > 0 && outcome.faults > 0, "{outcome:?}");
    if !can_run("policies::admission", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_of(&command(), "1GiB", &["--scheme", &scheme]);
    let mut program = fixture.run_touch("half", PAGES, 50, 7);
    let sum = program.ask("sum");
    fixture.swap_out("half");
    let app = fixture.app("half");
    let half = PAGES / 2 - 100..=PAGES / 2 + 100;
    assert!(half.contains(&app.stored_pages), "{app:?}");
    assert!(app.resident_bytes >= PAGES / 2 * 4096, "{app:?}");
    program.expect("sum", &sum);
    fixture.assert_daemon_lives();
}

#[test]
fn one_that_asks_for_a_job() {
    let dir = TempDir::new();
    let scheme = scheme(&dir, &[("prefetch", "\"mines\"")]);
    assert_eq!(own(&replayed(&dir, &scheme)).policies["mined"], 5050.0);
    if !can_run("policies::job", &[]) {
        return;
    }
    let mut fixture = Fixture::start_of(&command(), "1GiB", &["--scheme", &scheme]);
    let mined = poll(LONG, || (counted(&fixture, "mined") == 5050.0).then_some(()));
    assert!(mined.is_some(), "{:?}", fixture.status());
    fixture.assert_daemon_lives();
}

#[test]
fn one_that_ends_an_app_at_a_tick() {
    let dir = TempDir::new();
    let answers = [("prefetch", "\"ends-at-tick\""), ("on_full", "\"kill\"")];
    let scheme = scheme(&dir, &answers);
    let outcome = replayed(&dir, &scheme);
    assert_eq!((own(&outcome).kills, own(&outcome).cold_launches), (1, 1), "{outcome:?}");
    if !can_run("policies::ending", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_of(&command(), "1GiB", &["--scheme", &scheme]);
    let binary = compile(&fixture.dir, "touch.c", &[]);
    let mut program = fixture.run("first", &[binary.to_str().expect("UTF-8"), "4096", "50", "7"]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&program.wait(LONG)), Some(9));
    let ended = poll(LONG, || (fixture.status().ended_apps == ["first"]).then_some(()));
    assert!(ended.is_some(), "{:?}", fixture.status());
    fixture.assert_daemon_lives();
}

#[test]
fn one_that_evicts() {
    let dir = TempDir::new();
    let answers = [
        ("eviction", "\"oldest-out\""),
        ("placement", "\"onwards\""),
        ("mem_limit_bytes", "\"2MiB\""),
    ];
    let scheme = scheme(&dir, &answers);
    let outcome = replayed(&dir, &scheme);
    assert!(own(&outcome).policies["engine_moved_pages"] > 0.0 && peak(&outcome).kernel_bytes > 0);
    if !can_run("policies::eviction", &NEEDS) {
        return;
    }
    let mut fixture = Fixture::start_of(&command(), "1GiB", &["--scheme", &scheme]);
    let Some(_swap) = swap("policies::eviction", &fixture) else { return };
    let mut program = fixture.run_touch("moves", PAGES, 50, 7);
    let sum = program.ask("sum");
    let moved = poll(LONG, || {
        fixture.order(&Request::SwapOut { app: "moves".into() });
        (fixture.app("moves").lent_pages > PAGES / 4).then_some(())
    });
    assert!(moved.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    assert!(counted(&fixture, "engine_moved_pages") > 0.0);
    program.expect("sum", &sum);
    fixture.assert_daemon_lives();
}

#[test]
fn one_that_places_by_app_into_two_tiers() {
    let dir = TempDir::new();
    let scheme = scheme(&dir, &[("placement", "\"by-app\"")]);
    let outcome = replayed(&dir, &scheme);
    let peak = peak(&outcome);
    assert!(peak.kernel_bytes > 0 && peak.pool_bytes > 0, "{peak:?}");
    if !can_run("policies::placement", &NEEDS) {
        return;
    }
    let mut fixture = Fixture::start_of(&command(), "1GiB", &["--scheme", &scheme]);
    let Some(_swap) = swap("policies::placement", &fixture) else { return };
    let mut programs = ["first", "second"].map(|app| fixture.run_touch(app, PAGES, 50, 7));
    let sums = programs.each_mut().map(|program| program.ask("sum"));
    for app in ["first", "second"] {
        fixture.swap_out_at_least(app, PAGES * 4096 / 2);
    }
    let [first, second] = ["first", "second"].map(|app| fixture.app(app));
    assert!(first.lent_pages == 0 && second.lent_pages > PAGES / 2, "{first:?}\n{second:?}");
    for (program, sum) in programs.iter_mut().zip(&sums) {
        program.expect("sum", sum);
    }
    fixture.assert_daemon_lives();
}

/// A device that the kernel swaps to, which the daemon has noticed.
fn swap(test: &str, fixture: &Fixture) -> Option<ZramSwap> {
    let swap = ZramSwap::start("lz4", 256 << 20).map_err(|error| skip(test, &error.to_string()));
    let tier = || fixture.status().tiers.into_iter().find(|tier| tier.tier == "kernel");
    let noticed = || tier().is_some_and(|t| t.limit_bytes.is_some_and(|b| b > 0)).then_some(());
    let swap = swap.ok()?;
    assert!(poll(LONG, noticed).is_some(), "{:?}", fixture.status().tiers);
    Some(swap)
}

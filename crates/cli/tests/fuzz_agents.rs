//! Agents that do not keep to the protocol (tests/programs/hostile.c): the daemon lives and goes on
//! serving a real program. The scripts that they follow are spoiled from tests/corpus/agents.

mod support;

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clew_live::control::{Client, Request};
use fuzz::{Random, Run, corpus};
use support::{Fixture, LONG, SetAtEnd, TempDir, can_run, compile, kill_tree, poll, rss_anon};

const PAGES: u64 = 4096;
/// Hostile programs at once.
const AT_ONCE: usize = 4;
/// No script may take longer.
const LIMIT: Duration = Duration::from_millis(1500);

const DESCRIPTORS: [&str; 7] =
    ["uffd", "uffd-blocking", "uffd-other", "uffd-armed", "memfd", "file", "pipe"];

/// One of the scripts with some of its lines, numbers and descriptors changed.
fn spoiled_script(random: &mut Random, scripts: &[Vec<u8>]) -> String {
    let lines_of = |script: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(script).lines().map(String::from).collect()
    };
    let mut lines = lines_of(&random.pick(scripts));
    for _ in 0..random.below(4) {
        let at = random.below(lines.len());
        let what = random.below(9);
        if lines.is_empty() || what == 0 {
            let other = lines_of(&random.pick(scripts));
            lines.insert(at, random.pick(&other));
            continue;
        }
        match what {
            1 => drop(lines.remove(at)),
            2 => lines.insert(at, lines[at].clone()),
            3 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            4 => lines.truncate(at),
            5 => {
                lines.insert(at, random.pick(&["close", "open", "recv 300", "wait 20"]).to_string())
            }
            6 if lines[at].starts_with("send ") => {
                lines[at] += " ";
                lines[at] += random.pick::<&str>(&DESCRIPTORS);
            }
            7 if lines[at].starts_with("send ") => {
                // More often in the header than behind it.
                let len = lines[at].len() - 5;
                let most = if random.below(2) == 0 { len.min(80) } else { len };
                let digit = 5 + random.below(most);
                let to = random.pick(&["0", "1", "7", "f"]);
                lines[at].replace_range(digit..(digit + 1).min(len + 5), to);
            }
            8 if lines[at].starts_with("send ") => {
                let len = lines[at].len() - 5;
                let digit = 5 + random.below(len);
                match random.below(2) {
                    0 => lines[at].truncate(digit),
                    _ => lines[at].insert_str(digit, &"f0".repeat(1 + random.below(600))),
                }
            }
            _ => {}
        }
    }
    lines.join("\n") + "\n"
}

/// Waits until the daemon knows of no hostile program any more.
fn wait_forgotten(fixture: &Fixture) {
    let only_ours = poll(LONG, || {
        let others = fixture.status().apps.into_iter().filter(|app| app.name != "touch");
        others.map(|app| app.processes.len()).all(|n| n == 0).then_some(())
    });
    assert!(only_ours.is_some(), "not forgotten: {:?}\n{}", fixture.status(), fixture.log());
}

fn assert_no_panic(fixture: &Fixture, seed: u64) {
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "seed {seed}: {panics:?}\n{}", fixture.log());
}

#[test]
fn the_daemon_outlives_hostile_agents() {
    if !can_run("fuzz_agents", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    fixture.swap_out("touch");
    program.expect("sum", &sum);
    let (descriptors, bytes) = (fixture.daemon_descriptors(), rss_anon(fixture.daemon_pid()));

    let scripts = corpus("agents");
    let mut run = Run::start("agents");
    // Kept where a failure leaves it.
    let kept = std::env::temp_dir().join(format!("clew-fuzz-agents-{}", std::process::id()));
    fs::create_dir_all(&kept).expect("a directory");
    let over = AtomicBool::new(false);
    let (mut ended, mut killed) = (0u64, 0u64);
    std::thread::scope(|scope| {
        let socket = fixture.socket.clone();
        let over = &over;
        let _at_end = SetAtEnd(over);
        scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let order = Request::SwapOut { app: "hostile".to_string() };
                // There may be none at the moment.
                let _ = Client::connect(&socket).and_then(|mut c| c.order(&order));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut running: Vec<(Child, Instant)> = Vec::new();
        let mut next = 0;
        while run.goes_on() {
            running.retain_mut(|(child, began)| match child.try_wait().expect("try_wait") {
                Some(_) => {
                    ended += 1;
                    false
                }
                None if began.elapsed() > LIMIT => {
                    killed += 1;
                    kill_tree(child);
                    false
                }
                None => true,
            });
            while running.len() < AT_ONCE {
                // Each as it is first.
                let text = match scripts.get(next) {
                    Some(script) => String::from_utf8_lossy(script).into_owned(),
                    None => spoiled_script(&mut run.random, &scripts),
                };
                let script = kept.join(format!("{next}"));
                fs::write(&script, text).expect("a script");
                next += 1;
                running.push((fixture.start_hostile(&binary, &script), Instant::now()));
            }
            program.expect(&format!("touch random 300 {}", run.cases), "touched 300 bad 0");
            fixture.swap_out("touch");
        }
        for (mut child, _) in running {
            kill_tree(&mut child);
        }
    });

    program.expect("sum", &sum);
    assert_no_panic(&fixture, run.seed);
    fixture.assert_daemon_lives();
    wait_forgotten(&fixture);
    fixture.swap_out_at_least("touch", PAGES * 4096 / 2);
    program.expect("sum", &sum);
    let back = poll(LONG, || (fixture.daemon_descriptors() <= descriptors).then_some(()));
    let now = fixture.daemon_descriptors();
    assert!(back.is_some(), "{descriptors} descriptors before, {now} after: {}", kept.display());
    let grown = rss_anon(fixture.daemon_pid()).saturating_sub(bytes);
    println!(
        "fuzz agents: {ended} hostile programs ended, {killed} were ended; the daemon grew by {} KiB",
        grown >> 10
    );
    assert!(grown < 64 << 20, "the daemon grew by {grown} bytes");
    program.quit();
    fixture.wait_all_freed("touch");
    let _ = fs::remove_dir_all(&kept);
}

/// The scripts are of the protocol that is spoken: else they would all end at hello.
#[test]
fn the_corpus_gets_as_far_as_orders() {
    if !can_run("fuzz_agents::corpus", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", "min-process = \"1MiB\"\n");
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let script = fixture.dir.join("script");
    let works = include_str!("../../../tests/corpus/agents/silent-order");
    fs::write(&script, format!("{works}\n{}", "wait 999\n".repeat(9))).expect("a script");
    let mut hostile = fixture.start_hostile(&binary, &script);
    let managed = poll(LONG, || {
        let processes = fixture.app("hostile").processes;
        processes.iter().any(|process| process.managed).then_some(())
    });
    assert!(managed.is_some(), "{:?}\n{}", fixture.app("hostile"), fixture.log());
    kill_tree(&mut hostile);
    fixture.assert_daemon_lives();
}

/// What silence costs others; how long is printed and not judged.
#[test]
fn a_good_program_is_served_beside_silent_agents() {
    if !can_run("fuzz_agents::silent", &["cc"]) {
        return;
    }
    let scripts = TempDir::new();
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let silent = |name: &str, steps: &[&str]| {
        let script = scripts.join(name);
        let text = steps.iter().copied().chain(["wait 999"; 6]).collect::<Vec<_>>().join("\n");
        fs::write(&script, text + "\n").expect("a script");
        script
    };
    let works = include_str!("../../../tests/corpus/agents/silent-order");
    let before_order: Vec<&str> = works.lines().collect();
    let hello = silent("hello", &[]);
    let order = silent("order", &before_order);

    for (what, script, count) in [("nobody", None, 0), ("5 that say no hello", Some(&hello), 5)] {
        let started = |script: &PathBuf| fixture.start_hostile(&binary, script);
        let mut others: Vec<Child> =
            script.iter().flat_map(|s| (0..count).map(|_| started(s))).collect();
        std::thread::sleep(Duration::from_millis(100));
        let began = Instant::now();
        let program = fixture.run_touch("touch", PAGES, 50, 3);
        println!("fuzz agents: managed after {:?} beside {what}", began.elapsed());
        others.iter_mut().for_each(kill_tree);
        program.quit();
        fixture.wait_all_freed("touch");
    }

    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    for count in [0, 1, 4] {
        let mut others: Vec<Child> =
            (0..count).map(|_| fixture.start_hostile(&binary, &order)).collect();
        std::thread::sleep(Duration::from_millis(300));
        let socket = fixture.socket.clone();
        let asked = std::thread::spawn(move || {
            let order = Request::SwapOut { app: "hostile".to_string() };
            let _ = Client::connect(&socket).and_then(|mut c| c.order(&order));
        });
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        fixture.swap_out("touch");
        let out = began.elapsed();
        let began = Instant::now();
        program.expect("sum", &sum);
        println!(
            "fuzz agents: beside {count} that answer no order: out after {out:?}, back after {:?}",
            began.elapsed()
        );
        others.iter_mut().for_each(kill_tree);
        asked.join().expect("it is answered or refused");
    }
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

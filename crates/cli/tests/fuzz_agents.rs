//! Agents that do not keep to the protocol (tests/programs/hostile.c): the daemon lives and goes on
//! serving a real program. The scripts that they follow are spoiled from tests/corpus/agents.

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use std::fs;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clew_fixture::hostile::*;
use clew_fixture::{
    Fixture, LONG, Program, SetAtEnd, TempDir, can_run, compile, kill_tree, poll, rss_anon,
};
use clew_live::control::client::Client;
use clew_live::control::protocol::Request;
use fuzz::{Random, Run, corpus};

const PAGES: u64 = 4096;
/// Hostile programs at once.
const AT_ONCE: usize = 4;
/// No script may take longer.
const LIMIT: Duration = Duration::from_millis(1500);

const DESCRIPTORS: [&str; 12] = [
    "uffd",
    "uffd-blocking",
    "uffd-other",
    "uffd-armed",
    "memfd",
    "file",
    "pipe",
    "program",
    "itself",
    "another",
    "dead",
    "thread",
];

/// What an agent may do besides sending messages.
const STEPS: [&str; 18] = [
    "close",
    "open",
    "opens 20",
    "recv 300",
    "wait 20",
    "begin",
    "truncate 0",
    "truncate 4096",
    "punch",
    "chmod 666",
    "append",
    "map 4096",
    "map 99999744",
    "flood 50",
    "exec",
    "fork",
    "block",
    "race 100",
];

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
            5 => lines.insert(at, random.pick(&STEPS).to_string()),
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
        let others = fixture.status().apps.into_iter().filter(|app| app.name == "hostile");
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
    assert!(grown < 8 << 20, "the daemon grew by {grown} bytes: {}", kept.display());
    program.quit();
    fixture.wait_all_freed("touch");
    let _ = fs::remove_dir_all(&kept);
}

/// Whoever says hello is believed nothing about whose agent it is.
#[test]
fn who_is_no_programs_agent_is_turned_away() {
    if !can_run("fuzz_agents::who_is_no_programs_agent_is_turned_away", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", "min-process = \"512MiB\"\n");
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let script = fixture.dir.join("script");
    let hello = include_str!("../../../tests/corpus/agents/hello");
    let hello =
        hello.lines().next().and_then(|line| line.strip_suffix(" program")).expect("a hello");
    let others = ["itself", "another", "dead", "thread", "file", "", "program program"];
    let cases = others.map(|name| ("", name)).into_iter();
    for (before, name) in cases.chain([("replace\n", "program"), ("", "program")]) {
        // What is turned away is told so at once; the last one is listed as long as it lives.
        let text = format!("{before}{hello} {name}\n{}", "recv 999\n".repeat(9));
        fs::write(&script, text).expect("a script");
        let mut hostile = fixture.start_hostile(&binary, &script);
        let pid = hostile.id();
        let listed = poll(LONG, || {
            let apps = fixture.status().apps.into_iter().filter(|app| app.name == "hostile");
            match apps.flat_map(|app| app.processes).map(|process| process.pid).next() {
                None => hostile.try_wait().expect("try_wait").map(|_| None),
                // Also if it has another's number.
                listed => Some(listed),
            }
        });
        kill_tree(&mut hostile);
        let wanted = (name == "program" && before.is_empty()).then_some(pid);
        assert_eq!(listed, Some(wanted), "'{before}{name}'\n{}", fixture.log());
    }
    wait_forgotten(&fixture);
    fixture.assert_daemon_lives();
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

/// Silence costs others nothing but time: they are served while it lasts, however many are silent.
/// Whoever waited for one of these would wait until this test gives up.
#[test]
fn a_good_program_is_served_beside_silent_agents() {
    if !can_run("fuzz_agents::silent", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    // More than would be heard one by one within what a program waits to be managed here.
    let mut nobody = Hostile::start(&fixture, "says-nothing", &["opens 200"]);
    nobody.wait_done();
    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    // As many as there are workers, and more, hold orders that they have begun and never end.
    let mut holders: Vec<Hostile> = (0..5)
        .map(|i| {
            let steps = [&hello(SAYS_NOTHING), "await", READY, "await", "begin"];
            Hostile::start(&fixture, &format!("holder-{i}"), &steps)
        })
        .collect();
    let managed = poll(LONG, || {
        let processes = fixture.app("hostile").processes;
        (processes.iter().filter(|process| process.managed).count() == holders.len()).then_some(())
    });
    assert!(managed.is_some(), "{:?}\n{}", fixture.app("hostile"), fixture.log());
    let socket = fixture.socket.clone();
    let order = Request::SwapOut { app: "hostile".to_string() };
    let asked = std::thread::spawn(move || Client::connect(&socket)?.order(&order));
    holders.iter_mut().for_each(Hostile::wait_done);
    for _ in 0..3 {
        fixture.swap_out_at_least("touch", PAGES * 4096 / 2);
        program.expect("sum", &sum);
    }
    assert!(nobody.is_running() && holders.iter_mut().all(Hostile::is_running), "they are silent");
    drop((nobody, holders));
    // It has waited for them.
    let _ = asked.join().expect("no panic");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn nobody_changes_the_size_of_what_the_daemon_maps() {
    if !can_run("fuzz_agents::size", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    fixture.swap_out("touch");
    let (hello, taken) = (hello(SAYS_NOTHING), all_taken());
    let before = ["truncate 0", READY, "await", &taken, COPIED, "recv 500", DONE];
    let meanwhile = [READY, "await", "begin", "truncate 0", &taken, COPIED, "recv 500", DONE];
    let longer =
        [READY, "await", "begin", "truncate 99999744", "append", &taken, COPIED, "recv 500", DONE];
    let holes =
        [READY, "await", "begin", "punch", &taken, COPIED, "punch", "recv 500", "punch", DONE];
    for steps in [&before[..], &meanwhile, &longer, &holes] {
        let all: Vec<&str> = [&hello, "await"].iter().chain(steps).copied().collect();
        let mut hostile = Hostile::to_the_end(&fixture, "size", &all);
        let outcome = outcome_under_orders(&fixture, &mut hostile);
        assert_eq!(outcome, Some(10), "{steps:?}\n{}", fixture.log());
        fixture.assert_daemon_lives();
        program.expect("sum", &sum);
        fixture.swap_out("touch");
    }
    program.expect("sum", &sum);
}

/// It writes there, and what it writes never comes: whoever would change the buffer would wait with it, and could
/// not be ended.
#[test]
fn who_locks_the_buffer_keeps_no_daemon_from_ending() {
    if !can_run("fuzz_agents::lock", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    let (hello, taken) = (hello(SAYS_NOTHING), all_taken());
    let steps = [&hello, "await", READY, "await", "begin", "lock", &taken, COPIED];
    let mut hostile = Hostile::start(&fixture, "locks", &steps);
    under_orders(&fixture, || hostile.wait_done());
    // Longer than a buffer that is not used keeps its memory.
    std::thread::sleep(Duration::from_secs(3));
    fixture.swap_out_at_least("touch", PAGES * 4096 / 2);
    program.expect("sum", &sum);
    assert!(hostile.is_running(), "it has the lock\n{}", fixture.log());
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    std::thread::sleep(Duration::from_secs(3));
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    drop(hostile);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// A buffer of a daemon that did not seal it: its program kills that daemon, and no further one.
#[test]
fn no_successor_touches_a_buffer_that_can_be_cut_short() {
    if !can_run("fuzz_agents::unsealed", &["cc"]) {
        return;
    }
    let tools = TempDir::new();
    let hook = compile(&tools, "unsealed.c", &["-shared", "-fPIC"]);
    let unsealed = vec![("LD_PRELOAD", hook.to_str().expect("UTF-8").to_string())];
    let mut fixture = Fixture::start_hooked("1GiB", &["--scheme", "zram"], unsealed);
    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    fixture.swap_out("touch");
    let (hello, taken) = (hello(SAYS_NOTHING), all_taken());
    let steps = [&hello, "await", READY, "await", "begin", "truncate 0", &taken];
    // What cannot be read is lost, once it says that it is there.
    let lying: Vec<&str> = steps.iter().copied().chain([COPIED]).collect();
    let mut lying = Hostile::start(&fixture, "lies", &lying);
    under_orders(&fixture, || lying.wait_done());
    let is_told = || fixture.log().contains("cannot be read").then_some(());
    poll(LONG, is_told).expect("it is told");
    fixture.assert_daemon_lives();
    program.expect("sum", &sum);
    drop(lying);
    fixture.swap_out("touch");
    let mut hostile = Hostile::start(&fixture, "cuts", &steps);
    let is_over = AtomicBool::new(false);
    let socket = fixture.socket.clone();
    std::thread::scope(|scope| {
        let _at_end = SetAtEnd(&is_over);
        scope.spawn(|| swap_out_hostile(&socket, &is_over));
        hostile.wait_done();
        // In the middle of an order.
        fixture.kill_daemon();
    });
    for _ in 0..2 {
        fixture.start_successor(&[]);
        program.expect("sum", &sum);
        let status = fixture.process("touch", program.pid).expect("it is served");
        assert!(!status.managed, "{status:?}");
        fixture.assert_daemon_lives();
        fixture.kill_daemon();
    }
    // Nor does the one that gives up and brings every page back.
    let config = fixture.dir.join("gives-up.toml");
    fs::write(&config, "max-short-lives = 1\n").expect("a config");
    fixture.start_successor(&[]);
    fixture.kill_daemon();
    fixture.start_successor(&["--config", config.to_str().expect("UTF-8")]);
    program.expect("sum", &sum);
    assert!(hostile.is_running(), "in the middle of an order: the daemon waits for its end");
    drop(hostile);
    assert_eq!(fixture.wait_daemon(LONG).code(), Some(4), "{}", fixture.log());
    program.expect("sum", &sum);
    program.quit();
}

#[test]
fn a_program_that_has_become_another_is_not_managed() {
    if !can_run("fuzz_agents::another", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let steps = [&hello(SAYS_NOTHING), "await", "exec", READY];
    let mut hostile = Hostile::start(&fixture, "executes", &steps);
    hostile.wait_done();
    let found = poll(LONG, || {
        let processes = fixture.app("hostile").processes;
        processes.into_iter().find(|p| p.managed || p.reason.contains("another program"))
    });
    let found = found.unwrap_or_else(|| panic!("{:?}\n{}", fixture.app("hostile"), fixture.log()));
    assert!(!found.managed, "what was opened is another program's: {found:?}");
    fixture.assert_daemon_lives();
}

/// Starts four programs and sees that their pages go and come: each of the threads that answer faults
/// has one at least.
fn four_are_served(fixture: &Fixture) -> Vec<Program> {
    let start = |i| fixture.run_touch(&format!("touch-{i}"), PAGES / 4, 50, 3);
    let mut programs: Vec<Program> = (0..4).map(start).collect();
    for program in &mut programs {
        let sum = program.ask("sum");
        fixture.swap_out_at_least(&program.name, PAGES / 8 * 4096);
        program.expect("sum", &sum);
    }
    programs
}

/// One whose reads wait: a fault thread that waited with it would serve nobody any more.
#[test]
fn a_userfaultfd_that_its_agent_has_wait_holds_up_nobody() {
    if !can_run("fuzz_agents::waits", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let (first, childs, none) = (hello(SAYS_NOTHING), hello(SAYS), none_taken());
    let steps = as_child(&first, &childs, &none, &[READY_CHILD, "block", "touch", "touch"]);
    let mut hostile = Hostile::start(&fixture, "waits", &steps);
    under_orders(&fixture, || hostile.wait_done());
    // Some of them are served by the thread that serves the child.
    let _programs = answered(fixture.daemon_pid(), || four_are_served(&fixture));
    assert!(hostile.is_running(), "nobody has read its messages\n{}", fixture.log());
    fixture.assert_daemon_lives();
}

/// And one that reads them away: what is told of its memory may be wrong.
#[test]
fn a_program_whose_agent_reads_its_messages_is_ended() {
    if !can_run("fuzz_agents::reads", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let (first, childs, none) = (hello(SAYS_NOTHING), hello(SAYS), none_taken());
    let steps = as_child(&first, &childs, &none, &["race 999"; 100]);
    let mut hostile = Hostile::start(&fixture, "reads", &steps);
    let outcome = outcome_under_orders(&fixture, &mut hostile);
    // Its child was killed.
    assert_eq!(outcome, Some(4), "{}", fixture.log());
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    assert!(log.contains("a program is ended: it cannot be served any more"), "{log}");
    let _programs = answered(fixture.daemon_pid(), || four_are_served(&fixture));
    drop(hostile);
    wait_forgotten(&fixture);
    fixture.assert_daemon_lives();
}

/// Of one memory one process is managed: all that have it would be counted, and others taken out for that.
#[test]
fn of_one_memory_one_process_is_managed() {
    if !can_run("fuzz_agents::one_memory", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let hello = hello(SAYS_NOTHING);
    let steps = [&hello, "await", READY, "wait 300", "besides", &hello];
    let _hostile = Hostile::start(&fixture, "twice", &steps);
    let refused = poll(LONG, || {
        let processes = fixture.app("hostile").processes;
        let (managed, others): (Vec<_>, Vec<_>) = processes.into_iter().partition(|p| p.managed);
        let of_it = format!("its memory is that of process {}", managed.first()?.pid);
        let is_one = managed.len() == 1 && others.len() == 1;
        (is_one && others[0].reason.starts_with(&of_it)).then(|| managed[0].resident_bytes)
    });
    let resident = refused.unwrap_or_else(|| panic!("{:?}\n{}", fixture.status(), fixture.log()));
    let counted = fixture.status().used.programs_bytes;
    assert!(counted < resident * 3 / 2, "{counted} bytes are counted of {resident}");
    fixture.assert_daemon_lives();
}

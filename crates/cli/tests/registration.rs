//! Memory that appears while the daemon registers other memory beside it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clew_fixture::*;

/// A mapping that comes into a free place of a span, after the kernel was asked to register the span
/// and before the daemon looks at what was registered, is not registered: its pages must not leave.
#[test]
fn what_is_mapped_while_its_neighbours_are_registered_loses_nothing() {
    if !can_run("registration::neighbours", &["cc"]) {
        return;
    }
    let tools = TempDir::new();
    let hook = compile(&tools, "slow_register.c", &["-shared", "-fPIC"]);
    let slow = vec![("LD_PRELOAD", hook.to_str().expect("UTF-8").to_string())];
    let mut fixture = Fixture::start_hooked("1GiB", &["--scheme", "zram"], slow);
    let binary = compile(&fixture.dir, "pieces.c", &[]);
    let mut program = fixture.run("pieces", &[binary.to_str().expect("UTF-8"), "256"]);
    program.wait_line("running", LONG);
    fixture.wait_resident("pieces", 4 << 20);
    let began = Instant::now();
    let mut swap_outs = 0;
    while program.is_running() && began.elapsed() < LONG {
        swap_outs += u32::from(fixture.try_swap_out("pieces").is_ok());
        std::thread::sleep(Duration::from_millis(20));
        if swap_outs == 60 {
            terminate(program.pid);
            break;
        }
    }
    let status = program.wait(LONG);
    let lines = program.rest(LONG);
    assert!(status.success(), "{status}, {swap_outs} swap-outs\n{}", lines.join("\n"));
    assert!(lines.last().is_some_and(|line| line.starts_with("OK ")), "{lines:?}");
    assert_eq!(swap_outs, 60);
    let stored = fixture.status().totals.swapped_out_pages;
    assert!(stored > 1000, "{stored} pages out");
    fixture.wait_all_freed("pieces");
    fixture.assert_daemon_lives();
}

/// Where mappings grow upwards, what a program allocates lies next to the variables of the C library, in one mapping with
/// them. They leave with it, and who takes them out must not need them.
#[test]
fn variables_of_the_c_library_may_leave() {
    if !can_run("registration::variables_of_the_c_library", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "beside.c", &[]);
    let mut program = fixture.run("beside", &[binary]);
    program.wait_ready();
    fixture.wait_resident("beside", 15 << 20);
    for _ in 0..3 {
        fixture.swap_out_at_least("beside", 15 << 20);
        program.expect("read", "bad 0");
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid)).expect("it lives");
    let lines: Vec<&str> = maps.lines().collect();
    let last_of_libc = lines.iter().rposition(|line| line.contains("libc"));
    let behind =
        last_of_libc.and_then(|at| lines.get(at + 1)).and_then(|line| line.split_once('-'));
    let (start, rest) = behind.unwrap_or_else(|| panic!("no C library: {maps}"));
    let address = |text: &str| u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{text}"));
    let end = rest.split(' ').next().unwrap_or_default();
    if address(end) - address(start) < 15 << 20 {
        skip("registration::variables_of_the_c_library", "they lie apart from what is allocated");
    }
    program.quit();
    fixture.wait_all_freed("beside");
    fixture.assert_daemon_lives();
}

#[test]
fn what_is_not_to_be_registered_and_comes_to_a_place_that_was_loses_nothing() {
    if !can_run("registration::replaced", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "replaced.c", &[]);
    let mut program = fixture.run("replaced", &[binary.to_str().expect("UTF-8")]);
    program.wait_ready();
    let is_over = AtomicBool::new(false);
    let leaves = || {
        while !is_over.load(Relaxed) {
            let _ = fixture.try_swap_out("replaced");
        }
    };
    let answer = thread::scope(|scope| {
        let asking = scope.spawn(|| program.ask("go"));
        let others = [scope.spawn(leaves), scope.spawn(leaves)];
        let answer = asking.join();
        is_over.store(true, Relaxed);
        others.into_iter().for_each(|other| other.join().expect("it only orders"));
        answer.expect("an answer")
    });
    assert_eq!(answer, "as written");
    fixture.assert_daemon_lives();
}

/// The new part lies above what is stored, and both grow.
#[test]
fn what_is_mapped_beside_registered_memory_grows_with_it() {
    joins("grow");
}

/// The new part lies below, and is what the kernel would move before it refuses.
#[test]
fn what_is_mapped_beside_registered_memory_moves_with_it() {
    joins("move");
}

/// Each time another program: what is registered with its neighbour stays so.
fn joins(order: &str) {
    if !can_run(&format!("registration::{order}"), &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "joins.c", &[]).to_str().expect("UTF-8").to_string();
    for round in 0..4 {
        let name = format!("joins-{round}");
        let mut program = fixture.run(&name, &[&binary, "4194304"]);
        program.wait_ready();
        fixture.wait_resident(&name, 4 << 20);
        // Half of them find it in memory.
        if round % 2 == 0 {
            fixture.swap_out_at_least(&name, 4 << 20);
        }
        assert_eq!(program.ask(order), "moved, bad 0", "round {round}");
        program.quit();
    }
    fixture.assert_daemon_lives();
}

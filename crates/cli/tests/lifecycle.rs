//! Programs that end, are killed, exec and fork while their pages are stored; daemons that stop and
//! daemons that die.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use clew_fixture::hook::{Table, Tools, point_named};
use clew_fixture::touch::{BYTES, PAGES, ZRAM, swapped_out};
use clew_fixture::*;
use clew_live::control::protocol::Request;

#[test]
fn a_program_that_ends_frees_its_slots() {
    let Some((mut fixture, program, _)) = swapped_out("lifecycle::ends", &ZRAM) else { return };
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn a_killed_program_frees_its_slots() {
    let Some((mut fixture, mut program, _)) = swapped_out("lifecycle::killed", &ZRAM) else {
        return;
    };
    program.kill();
    fixture.wait_all_freed("touch");
    // Killed in the middle of faults.
    for round in 0..5 {
        let mut program = fixture.run_touch("again", PAGES, 50, round);
        fixture.swap_out_at_least("again", BYTES * 8 / 10);
        program.send("touch random 100000 3");
        std::thread::sleep(Duration::from_millis(round * 20));
        program.kill();
        fixture.wait_all_freed("again");
    }
    // Killed in the middle of a swap-out.
    for round in 0..5 {
        let mut program = fixture.run_touch("third", PAGES, 50, round);
        std::thread::scope(|scope| {
            scope.spawn(|| fixture.try_swap_out("third")); // may be refused: the program goes away
            std::thread::sleep(Duration::from_millis(round * 15));
            program.kill();
        });
        fixture.wait_all_freed("third");
    }
    fixture.assert_daemon_lives();
}

/// The thread that prepares a program waits just before it says that the program is managed, and meanwhile all of it is
/// looked through by another one: policies that keep pages by app must know of them all the same. And who
/// has the program swapped out now waits until it is managed.
#[test]
fn what_is_found_before_a_program_is_known_is_not_lost() {
    if !can_run("lifecycle::found_before_known", &["cc", "nm", "objcopy"]) {
        return;
    }
    let tools = Tools::new();
    let table = Table::new(tools.dir.join("table"));
    let mut setting = tools.environment(&table, &[]);
    setting.extend([tools.with_points(), tools.wait_at(point_named("manage_watched"), 1)]);
    let fixture = Fixture::start_hooked("2GiB", &["--scheme", "ariadne"], setting);
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    let sum = program.ask("sum");
    let is_found = || (fixture.status().managed_pages * 10 >= PAGES * 8).then_some(());
    assert!(poll(LONG, is_found).is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    assert_eq!(table.fired(), 1);
    std::thread::scope(|scope| {
        let order = scope.spawn(|| fixture.swap_out("touch"));
        std::thread::sleep(Duration::from_millis(500));
        let is_early = order.is_finished();
        table.release();
        order.join().expect("it is done");
        assert!(!is_early, "it was not waited for");
    });
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    assert_eq!(program.ask("sum"), sum);
    program.quit();
}

#[test]
fn a_program_that_execs_starts_anew() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::execs", &ZRAM) else {
        return;
    };
    program.expect("write 500 3", "wrote 500");
    fixture.swap_out("touch");
    for _ in 0..3 {
        program.send("exec");
        program.wait_ready();
        let freed = poll(LONG, || (fixture.status().pool.stored_pages == 0).then_some(()));
        assert!(freed.is_some(), "slots of the old image remain: {:?}", fixture.status());
        fixture.wait_resident("touch", BYTES * 9 / 10);
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
        program.expect("sum", &sum);
        fixture.swap_out("touch");
    }
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// It becomes the next one just as it is made ready to be managed: that one is managed all the same.
#[test]
fn programs_that_execute_the_next_one_at_any_moment_are_managed_in_the_end() {
    const AGAIN: &str = "\
        import os, random, sys, time\n\
        held = bytearray(20 << 20)\n\
        left = int(sys.argv[1])\n\
        if left:\n    \
            time.sleep(random.random() * 0.03)\n    \
            os.execv(sys.executable, [sys.executable, sys.argv[0], str(left - 1)])\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n";
    let test = "lifecycle::programs_that_execute_the_next_one_at_any_moment";
    if !can_run(test, &["python3"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let script = fixture.dir.join("again.py");
    fs::write(&script, AGAIN).expect("written");
    let script = script.to_str().expect("UTF-8").to_string();
    let names: Vec<String> = (0..24).map(|number| format!("again{number}")).collect();
    let start = |name: &String| fixture.run(name, &["python3", &script, "8"]);
    let mut programs: Vec<_> = names.iter().map(start).collect();
    for (name, program) in names.iter().zip(&mut programs) {
        program.wait_line("ready", LONG);
        fixture.wait_resident(name, 18 << 20);
    }
    programs.into_iter().for_each(Program::quit);
    fixture.assert_daemon_lives();
}

#[test]
fn forked_children_have_the_right_pages() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::forks", &ZRAM) else {
        return;
    };
    // A child that computes everything from stored pages, and the parent after it.
    program.expect("fork-sum", &format!("fork-{sum}"));
    program.expect("sum", &sum);
    fixture.swap_out("touch");

    // A child that stays. Each side writes; neither sees the other's pages.
    let answer = program.ask("fork-keep");
    assert!(answer.starts_with("child "), "{answer}");
    program.expect("child sum", &sum);
    program.expect("sum", &sum);
    fixture.swap_out("touch");
    program.expect("child write 3000 5", "wrote 3000");
    program.expect("sum", &sum);
    let child_sum = program.ask("child sum");
    assert!(child_sum != sum && child_sum.ends_with(" bad 0"), "{child_sum}");
    program.expect("write 3000 9", "wrote 3000");
    fixture.swap_out("touch");
    let parent_sum = program.ask("sum");
    assert!(parent_sum != sum && parent_sum.ends_with(" bad 0"), "{parent_sum}");
    program.expect("child sum", &child_sum);

    // The parent's pages go out again although a child shares them.
    fixture.swap_out_at_least("touch", BYTES / 2);
    program.expect("child quit", "child ended");
    program.expect("sum", &parent_sum);

    // A child that is killed.
    fixture.swap_out("touch");
    let answer = program.ask("fork-keep");
    let child: u32 = answer.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("a pid");
    program.send("child touch seq");
    kill(child);
    fixture.swap_out("touch");
    // The child may have answered before it died, or died before it was asked.
    program.send("sum");
    let mut answer = program.read(LONG);
    if answer.starts_with("touched") {
        assert!(answer.ends_with(" bad 0"), "{answer}");
        answer = program.read(LONG);
    } else if answer == "child gone" {
        answer = program.read(LONG);
    }
    assert_eq!(answer, parent_sum);
    program.expect("spawn", "spawned");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn a_child_outlives_its_killed_parent() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::orphan", &ZRAM) else {
        return;
    };
    let answer = program.ask("fork-keep");
    assert!(answer.starts_with("child "), "{answer}");
    // The child reads this line, and then finds its input closed: its parent is gone.
    program.expect("child sum", &sum);
    fixture.swap_out("touch");
    program.send("child sum");
    std::thread::sleep(Duration::from_millis(10));
    program.kill();
    assert_eq!(program.rest(LONG), [sum], "{}", program.report());
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn what_a_program_does_to_its_mapping_is_followed() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::mapping", &ZRAM) else {
        return;
    };
    program.expect("move", "moved");
    program.expect("sum", &sum);
    fixture.swap_out("touch");
    program.expect("move", "moved");
    program.expect("mlock 100 50", "locked 50");
    fixture.swap_out("touch");
    program.expect("drop 1000 5000", "dropped 5000");
    let dropped = program.ask("sum");
    assert!(dropped.ends_with(" bad 0"), "{dropped}");
    fixture.swap_out("touch");
    let before = fixture.app("touch").stored_pages;
    program.expect("unmap 8000 4000", "unmapped 4000");
    let freed = poll(LONG, || (fixture.app("touch").stored_pages + 3000 <= before).then_some(()));
    assert!(freed.is_some(), "{before} before: {:?}", fixture.app("touch"));
    let sum = program.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    fixture.swap_out("touch");
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Memory of the buffers between a daemon and its programs' agents.
fn buffer_bytes(daemon: u32) -> u64 {
    let descriptors = fs::read_dir(format!("/proc/{daemon}/fd")).expect("a daemon's descriptors");
    let descriptors = descriptors.flatten().map(|entry| entry.path());
    let is_buffer = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:clew-buffer"))
    };
    let blocks = |path: PathBuf| fs::metadata(path).map_or(0, |file| file.blocks());
    descriptors.filter(is_buffer).map(blocks).sum::<u64>() * 512
}

#[test]
fn a_buffer_that_is_not_needed_takes_no_memory() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::buffers", &ZRAM) else {
        return;
    };
    let mut most = 0;
    for round in 0..3 {
        let filled = buffer_bytes(fixture.daemon_pid());
        most = most.max(filled);
        if round == 1 {
            // A successor does not know whether it was needed.
            fixture.kill_daemon();
            fixture.start_successor(&[]);
        }
        let left = || Some(buffer_bytes(fixture.daemon_pid())).filter(|left| *left <= page_size());
        assert!(poll(LONG, left).is_some(), "{} of {filled}", buffer_bytes(fixture.daemon_pid()));
        program.expect("sum", &sum);
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    }
    assert!(most > page_size(), "no buffer was ever filled");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn restore_brings_everything_back() {
    let Some((fixture, mut program, sum)) = swapped_out("lifecycle::restore", &ZRAM) else {
        return;
    };
    fixture.order(&Request::Restore { app: "touch".to_string() });
    let status = fixture.app("touch");
    assert_eq!(status.stored_pages, 0, "{status:?}");
    assert!(rss_anon(program.pid) >= BYTES * 9 / 10, "{} resident", rss_anon(program.pid));
    program.expect("sum", &sum);
    program.quit();
}

#[test]
fn stop_brings_everything_back_and_lets_go() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::stop", &ZRAM) else {
        return;
    };
    let answer = program.ask("fork-keep");
    assert!(answer.starts_with("child "), "{answer}");
    fixture.swap_out("touch");
    let output = fixture.verb(&["stop"]);
    assert!(output.status.success(), "clew stop: {}{}", texts(&output), fixture.log());
    let status = fixture.wait_daemon(LONG);
    assert!(status.success(), "the daemon ended with {status}\n{}", fixture.log());
    program.expect("sum", &sum);
    program.expect("child sum", &sum);
    program.expect("write 2000 4", "wrote 2000");
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    program.expect(&format!("drop 0 {}", PAGES / 2), &format!("dropped {}", PAGES / 2));
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    program.expect("child quit", "child ended");
    let forked = program.ask("fork-sum");
    assert_eq!(forked, format!("fork-{}", program.ask("sum")));
    program.quit();
}

#[test]
fn stop_ends_where_a_program_has_taken_its_memory_out_of_clews_hands() {
    let Some((mut fixture, mut program, _)) = swapped_out("lifecycle::stop_unregistered", &ZRAM)
    else {
        return;
    };
    let agent = program.agent();
    program.expect(&format!("unregister {agent}"), "unregistered");
    let mut other = fixture.run_touch("other", PAGES, 50, 4);
    let sum = other.ask("sum");
    fixture.swap_out("other");
    let output = fixture.verb(&["stop"]);
    assert!(output.status.success(), "clew stop: {}{}", texts(&output), fixture.log());
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    other.expect("sum", &sum);
    other.quit();
    program.quit();
}

#[test]
fn stop_while_the_program_works() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::stop_at_work", &ZRAM)
    else {
        return;
    };
    program.send("touch random 200000 8");
    program.send("sum");
    fixture.order(&Request::Stop);
    let status = fixture.wait_daemon(LONG);
    assert!(status.success(), "the daemon ended with {status}\n{}", fixture.log());
    assert_eq!(program.read(LONG), "touched 200000 bad 0", "{}", program.report());
    assert_eq!(program.read(LONG), sum, "{}", program.report());
    program.quit();
}

/// Waiting is right; a wrong byte never is.
#[test]
fn no_program_reads_a_wrong_byte_after_the_daemon_was_killed() {
    let Some((mut fixture, mut program, sum)) = swapped_out("lifecycle::killed_daemon", &ZRAM)
    else {
        return;
    };
    let answer = program.ask("fork-keep");
    assert!(answer.starts_with("child "), "{answer}");
    program.expect("child sum", &sum);
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    fixture.kill_daemon();

    program.send("child sum");
    program.send("sum");
    let line = program.read_within(Duration::from_secs(2));
    // The child had its pages; the sum it may give is the right one. The parent had none.
    if let Some(line) = &line {
        assert_eq!(line, &sum, "after the daemon was killed\n{}", program.report());
        let second = program.read_within(Duration::from_secs(2));
        assert_eq!(
            second,
            None,
            "a program read stored pages without a daemon\n{}",
            program.report()
        );
    }
    assert!(program.is_running(), "the program died\n{}{}", program.errors(), fixture.log());
    assert!(is_alive(program.pid), "the program died\n{}", program.errors());
    assert!(!program.errors().contains("touch:"), "wrong bytes: {}", program.errors());
    // Nothing can bring its pages back any more: it must still be possible to end it.
    program.kill();
    let gone = poll(LONG, || (!is_alive(program.pid)).then_some(()));
    assert!(gone.is_some(), "it cannot be killed\n{}", program.report());
}

#[test]
fn a_fork_after_the_daemon_was_killed_reads_no_wrong_byte() {
    let Some((mut fixture, mut program, _)) = swapped_out("lifecycle::killed_fork", &ZRAM) else {
        return;
    };
    fixture.kill_daemon();
    program.send("fork-sum");
    let line = program.read_within(Duration::from_secs(2));
    assert_eq!(line, None, "after the daemon was killed\n{}", program.report());
    assert!(is_alive(program.pid), "the program died\n{}", program.errors());
    assert!(!program.errors().contains("touch:"), "wrong bytes: {}", program.errors());
    program.kill();
}

//! Advice that changes what memory holds, here or in children, and of which the kernel tells nobody.

use std::thread;

use clew_fixture::obeys::{PAGES, end, swapped_out};
use clew_fixture::*;
use clew_live::control::protocol::Request;
use rustix::io::Errno;

const EINVAL: i32 = Errno::INVAL.raw_os_error();
const ENOMEM: i32 = Errno::NOMEM.raw_os_error();

/// The same, where the kernel has guards.
fn with_guards(test: &str) -> Option<(Fixture, Program)> {
    let (fixture, mut program) = swapped_out(test)?;
    let said = program.ask("guard 0 1 1");
    if said != "guard 0" {
        assert_eq!(said, format!("guard {}", EINVAL));
        skip(test, "no MADV_GUARD_INSTALL (Linux 6.13)");
        return None;
    }
    program.expect("unguard 0 1", "unguard 0");
    Some((fixture, program))
}

#[test]
fn what_a_guard_dropped_is_zeros() {
    let Some((fixture, mut program)) = with_guards("advice::what_a_guard_dropped_is_zeros") else {
        return;
    };
    program.expect("guard 0 1000 1000", "guard 0");
    program.expect("unguard 0 1000", "unguard 0");
    program.expect("check", "bad 0");
    fixture.swap_out_at_least("obeys", PAGES * 4096 / 2);
    program.expect("fork", "bad 0");
    end(fixture, program);
}

/// The kernel stops at what can have no guard, and steps over what is not there.
#[test]
fn what_a_guard_did_not_come_to_stays() {
    let Some((fixture, mut program)) = with_guards("advice::what_a_guard_did_not_come_to_stays")
    else {
        return;
    };
    program.expect("lock 2000 7", "lock 0");
    program.expect("unmap 3000 7", "unmap 0");
    fixture.swap_out_at_least("obeys", PAGES * 4096 * 8 / 10);
    program.expect("guard 1501 777 499", &format!("guard {}", EINVAL));
    program.expect("guard 2900 200 200", &format!("guard {}", ENOMEM));
    program.expect("guard 2000 1 0", &format!("guard {}", EINVAL));
    program.expect("unguard 1501 499", "unguard 0");
    program.expect("unguard 2900 100", "unguard 0");
    program.expect("unguard 3007 93", "unguard 0");
    program.expect("check", "bad 0");
    end(fixture, program);
}

#[test]
fn what_children_do_not_get_is_zeros_there() {
    let Some((mut fixture, mut program)) =
        swapped_out("advice::what_children_do_not_get_is_zeros_there")
    else {
        return;
    };
    program.expect("wipe 500 1000", "wipe 0");
    program.expect("fork", "bad 0");
    program.expect("check", "bad 0");
    // It stays where it is, and the rest is taken out as before, under a successor too.
    let rest = (PAGES - 1000) * 4096;
    fixture.swap_out_at_least("obeys", rest * 9 / 10);
    program.expect("fork", "bad 0");
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    fixture.swap_out_at_least("obeys", rest * 9 / 10);
    let listed = fixture.process("obeys", program.pid).expect("it is listed");
    assert!(listed.managed && rss_anon(program.pid) >= 1000 * 4096, "{listed:?}");
    program.expect("fork", "bad 0");
    // A child's own, of what it shares with its parent.
    program.expect("fork 2000 1000", "bad 0");
    // What children get again is taken out again.
    program.expect("keep 500 1000", "keep 0");
    program.expect("check", "bad 0");
    let out = poll(LONG, || {
        fixture.swap_out("obeys");
        fixture.process("obeys", program.pid).filter(|p| p.stored_pages > PAGES * 9 / 10)
    });
    assert!(out.is_some(), "{:?}\n{}", fixture.app("obeys"), fixture.log());
    program.expect("fork", "bad 0");
    program.expect("check", "bad 0");
    end(fixture, program);
}

#[test]
fn advice_that_is_refused_is_refused() {
    let Some((fixture, mut program)) = swapped_out("advice::advice_that_is_refused_is_refused")
    else {
        return;
    };
    program.expect("unmap 100 1", "unmap 0");
    program.expect("wipe 100 1", &format!("wipe {}", ENOMEM));
    program.expect("keep 100 1", &format!("keep {}", ENOMEM));
    program.expect("fork", "bad 0");
    end(fixture, program);
}

/// A child of vfork has its program's memory, and its filter of system calls is its own.
#[test]
fn a_filter_of_a_child_that_shares_memory_is_not_its_programs() {
    let Some((fixture, mut program)) = swapped_out("advice::a_filter_of_a_child") else { return };
    program.expect("vforked", "vforked 0");
    program.expect("wipe 500 1000", "wipe 0");
    program.expect("check", "bad 0");
    program.expect("fork", "bad 0");
    end(fixture, program);
}

/// It may be the thread's that gives the advice: then nobody can be asked, and that is said.
#[test]
fn advice_that_nobody_can_be_asked_about_is_refused() {
    let Some((fixture, mut program)) = swapped_out("advice::refused") else { return };
    program.expect("threaded", "threaded 0");
    program.expect("wipe 500 1000", &format!("wipe {}", Errno::AGAIN.raw_os_error()));
    program.expect("keep 500 1000", "keep 0");
    program.expect("fork", "bad 0");
    end(fixture, program);
}

/// Its memory is its program's, and the daemon knows its number for nobody's.
#[test]
fn advice_of_a_child_that_shares_memory_counts() {
    let Some((fixture, mut program)) = swapped_out("advice::vfork") else { return };
    program.expect("vwipe 500 1000", "vwipe 0");
    program.expect("fork", "bad 0");
    program.expect("check", "bad 0");
    end(fixture, program);
}

/// From there no daemon is found; but what was never registered needs none.
#[test]
fn advice_for_new_memory_needs_no_daemon() {
    let Some((fixture, mut program)) = swapped_out("advice::elsewhere") else { return };
    program.expect("elsewhere", "elsewhere 0");
    program.expect("check", "bad 0");
    // Of what is registered nobody can be asked.
    program.expect("wipe 500 1000", &format!("wipe {}", Errno::AGAIN.raw_os_error()));
    program.expect("keep 500 1000", "keep 0");
    program.expect("fork", "bad 0");
    end(fixture, program);
}

/// All is back then, and nothing of it registered: nobody has to be asked.
#[test]
fn advice_is_taken_when_the_daemon_has_ended() {
    let Some((mut fixture, mut program)) = swapped_out("advice::ended") else { return };
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    program.expect("wipe 500 1000", "wipe 0");
    program.expect("fork", "bad 0");
    program.quit();
}

/// Another thread may have put something of its own there in the meantime.
#[test]
fn who_is_asked_has_no_number_of_the_programs() {
    if !can_run("advice::numbers", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "own_number.c", &["-pthread"]);
    let mut program = fixture.run("numbers", &[binary.to_str().expect("UTF-8")]);
    program.wait_ready();
    fixture.swap_out_at_least("numbers", 15 << 20);
    program.expect("go", "closed 0 taken 0 foreign 0 failed 0");
    fixture.assert_daemon_lives();
}

#[test]
fn who_asks_from_a_stack_of_its_own_gets_an_answer() {
    if !can_run("advice::stack", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "own_stack.c", &[]);
    let mut program = fixture.run("stack", &[binary.to_str().expect("UTF-8")]);
    program.wait_ready();
    fixture.swap_out_at_least("stack", 15 << 20);
    let answer = thread::scope(|scope| {
        let asking = scope.spawn(|| program.ask("go"));
        // The stack leaves while the daemon is asked.
        while !asking.is_finished() {
            let _ = fixture.try_swap_out("stack");
        }
        asking.join().expect("an answer")
    });
    assert_eq!(answer, "failed 0 changed 0");
    fixture.assert_daemon_lives();
}

#[test]
fn who_shuts_all_threads_in_while_one_asks_is_killed_for_nothing() {
    if !can_run("advice::shut_in", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "asks_shut_in.c", &["-pthread"]);
    for round in 0..3 {
        let name = format!("shut-in-{round}");
        let mut program = fixture.run(&name, &[binary.to_str().expect("UTF-8")]);
        program.wait_ready();
        fixture.swap_out_at_least(&name, 15 << 20);
        program.expect("go", "shut in 0");
        program.expect("go", "over");
    }
    fixture.assert_daemon_lives();
}

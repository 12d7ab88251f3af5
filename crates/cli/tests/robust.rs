//! What the kernel reads of a thread that has been killed is where the kernel finds it.

use std::process::Command;

use clew_fixture::*;

const BYTES: u64 = 16 << 20;

/// The list of what a thread has locked lies in memory that is taken out.
#[test]
fn a_robust_mutex_of_a_killed_thread_is_released() {
    if !can_run("robust::a_robust_mutex_of_a_killed_thread_is_released", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "robust.c", &["-pthread"]);
    let words = |verb: &str| [fixture.dir.join("mutex").into_os_string(), verb.into()];
    let hold = [[binary.clone().into_os_string()].as_slice(), &words("hold")].concat();
    let wait = words("wait");
    let mut program = fixture.run("robust", &hold);
    program.wait_ready();
    fixture.wait_resident("robust", BYTES * 9 / 10);
    fixture.swap_out_at_least("robust", BYTES * 9 / 10);
    program.expect("hold", "held");
    // All that can leave leaves, and has been asked to since the thread sleeps.
    fixture.swap_out_at_least("robust", BYTES * 99 / 100);
    fixture.swap_out("robust");
    kill(program.pid);
    program.wait(LONG);
    let waited = run_to_end(Command::new(&binary).args(&wait), LONG);
    assert_eq!(String::from_utf8_lossy(&waited.stdout).trim(), "owner died", "{}", texts(&waited));
    fixture.wait_all_freed("robust");
    fixture.assert_daemon_lives();
}

/// What a thread locks is on its list a moment later, and may be on its way out by then.
#[test]
fn robust_mutexes_that_are_locked_while_pages_leave_are_released() {
    if !can_run("robust::robust_mutexes_that_are_locked_while_pages_leave_are_released", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "robust.c", &["-pthread"]);
    let file = fixture.dir.join("mutexes").into_os_string();
    let mut program =
        fixture.run("robust", &[binary.clone().into_os_string(), file.clone(), "hold".into()]);
    program.wait_ready();
    fixture.wait_resident("robust", BYTES * 9 / 10);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let at_end = SetAtEnd(&over);
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                fixture.swap_out("robust");
            }
        });
        program.expect("many", "held");
        drop(at_end);
    });
    kill(program.pid);
    program.wait(LONG);
    let counted = run_to_end(Command::new(&binary).arg(&file).arg("count"), 2 * LONG);
    assert_eq!(String::from_utf8_lossy(&counted.stdout).trim(), "150", "{}", texts(&counted));
    fixture.wait_all_freed("robust");
    fixture.assert_daemon_lives();
}

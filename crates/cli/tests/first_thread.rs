//! Programs whose first thread has ended (`pthread_exit` in main) are managed as others are.

use std::time::Duration;

use clew_fixture::touch::{BYTES, PAGES};
use clew_fixture::*;

/// All of it leaves and comes back, and what is resident is counted.
fn is_managed(fixture: &Fixture, program: &mut Program, sum: &str) {
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    program.expect("sum", sum);
    let counted = poll(LONG, || {
        let process = fixture.process("touch", program.pid)?;
        let is_counted = process.resident_bytes >= BYTES * 8 / 10
            && fixture.status().used.programs_bytes >= BYTES * 8 / 10;
        (process.managed && is_counted).then_some(())
    });
    assert!(counted.is_some(), "{:?}\n{}", fixture.app("touch"), fixture.log());
}

#[test]
fn a_program_whose_first_thread_ends_stays_managed() {
    if !can_run("first_thread::stays", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    let sum = program.ask("sum");
    is_managed(&fixture, &mut program, &sum);
    program.expect("leave", "left");
    // Every two seconds the daemon asks whether it still has its memory.
    std::thread::sleep(Duration::from_secs(6));
    for _ in 0..2 {
        is_managed(&fixture, &mut program, &sum);
    }
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn a_program_whose_first_thread_has_ended_comes_to_be_managed() {
    if !can_run("first_thread::comes", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", "min-process = \"1GiB\"\n");
    let binary = compile(&fixture.dir, "touch.c", &[]);
    let pages = PAGES.to_string();
    let words = [binary.to_str().expect("UTF-8"), pages.as_str(), "50", "7"];
    let mut program = fixture.run("touch", &words);
    program.wait_ready();
    program.expect("leave", "left");
    let sum = program.ask("sum");
    // It is too small to be managed until somebody asks for it.
    is_managed(&fixture, &mut program, &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

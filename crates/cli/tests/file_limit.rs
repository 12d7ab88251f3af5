//! A daemon whose files may not grow (RLIMIT_FSIZE): the memory that it shares with agents counts as one.

use std::process::Command;
use std::time::Duration;

use clew_fixture::touch::{BYTES, PAGES};
use clew_fixture::*;

fn limit(fixture: &Fixture, bytes: &str) {
    let mut command = Command::new("prlimit");
    command.args([&format!("--pid={}", fixture.daemon_pid()), &format!("--fsize={bytes}")]);
    let limited = run_to_end(&mut command, LONG);
    assert!(limited.status.success(), "{}", texts(&limited));
}

/// The signal that the kernel sends then would end it.
#[test]
fn who_comes_is_not_managed_and_who_is_there_is_served() {
    if !can_run("file_limit::daemon", &["cc", "prlimit"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    limit(&fixture, "4096:unlimited");
    let binary = fixture.dir.join("touch");
    let words = [binary.to_str().expect("UTF-8"), "16384", "50", "9"];
    let mut late = fixture.run("late", &words);
    late.wait_ready();
    // It may be listed with the reason, or its hello is refused already.
    let is_managed = poll(Duration::from_secs(5), || {
        let _ = fixture.try_swap_out("late");
        fixture.process("late", late.pid).filter(|process| process.managed)
    });
    assert!(is_managed.is_none(), "{is_managed:?}\n{}", fixture.log());
    program.expect("sum", &sum);
    // Pages stay where the pool would have to grow for them.
    let _ = fixture.try_swap_out("touch");
    program.expect("sum", &sum);
    late.quit();
    limit(&fixture, "unlimited:unlimited");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    program.expect("sum", &sum);
    let later = fixture.run_touch("later", PAGES, 50, 9);
    fixture.swap_out_at_least("later", BYTES * 8 / 10);
    later.quit();
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn doctor_says_so() {
    if !can_run("file_limit::doctor", &["prlimit"]) {
        return;
    }
    let said = |limit: &str| {
        let mut command = Command::new("prlimit");
        command.args([limit, env!("CARGO_BIN_EXE_clew"), "doctor"]);
        texts(&run_to_end(&mut command, LONG))
    };
    let short = said("--fsize=65536:65536");
    assert!(short.contains("files of 65536 bytes at most"), "{short}");
    let narrow = said("--as=34359738368");
    assert!(narrow.contains("34359738368 bytes of address space at most"), "{narrow}");
    let long = said("--fsize=unlimited");
    assert!(!long.contains("bytes at most"), "{long}");
}

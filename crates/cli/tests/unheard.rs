//! Daemons whose words nobody hears, and supervisors that cannot start one for a while: that ends nobody.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clew_fixture::touch::{BYTES, PAGES};
use clew_fixture::*;

/// A command of its own in `dir`.
fn executable(dir: &TempDir, name: &str, text: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

/// A full disk is one way, a pipe that nobody reads any more another; and one whose reader sleeps.
#[test]
fn a_daemon_and_a_supervisor_that_cannot_be_heard_go_on() {
    if !can_run("unheard::log", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let pipe = dir.join("pipe");
    let fill = "head -c 65536 /dev/zero";
    let asleep = format!("mkfifo {0}\nexec 9<>{0}\n{fill} >&9", pipe.display());
    let ways = [("full", "", "/dev/full"), ("closed", "", "&-"), ("asleep", &*asleep, "&9")];
    for (name, before, end) in ways {
        let begins = format!("#!/bin/sh\nexport CLEW_LOG=info\n{before}");
        let text = format!("{begins}\nexec {} \"$@\" 2>{end}\n", binary().display());
        let own = executable(&dir, name, text.as_bytes());
        let mut fixture = Fixture::start_of(&own, "1GiB", &["--scheme", "zram", "--supervise"]);
        let mut program = fixture.run_touch("touch", PAGES, 50, 1);
        let sum = program.ask("sum");
        for _ in 0..2 {
            fixture.swap_out_at_least("touch", BYTES * 8 / 10);
            let before = fixture.status().daemon_pid;
            kill(before);
            fixture.wait_for_next(before);
            program.expect("sum", &sum);
        }
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
        let status = fixture.status();
        kill(status.keeper_pid);
        // It looks each second, and says so then.
        for _ in 0..30 {
            sleep(Duration::from_millis(100));
            assert_eq!(fixture.status().daemon_pid, status.daemon_pid);
        }
        program.expect("sum", &sum);
        let done = fixture.verb(&["stop"]);
        assert!(done.status.success(), "{}", texts(&done));
        assert!(fixture.wait_daemon(LONG).success());
        program.expect("sum", &sum);
        program.quit();
    }
}

/// As while another version is installed.
#[test]
fn a_supervisor_that_cannot_start_a_daemon_tries_again() {
    if !can_run("unheard::starts", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let own = executable(&dir, "own", &fs::read(binary()).expect("the command"));
    let away = dir.join("away");
    let mut fixture = Fixture::start_of(&own, "1GiB", &["--scheme", "zram", "--supervise"]);
    let mut program = fixture.run_touch("touch", PAGES, 50, 1);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    let before = fixture.status().daemon_pid;
    fs::rename(&own, &away).expect("it is moved");
    kill(before);
    let is_said = || fixture.log().contains("cannot be started").then_some(());
    assert!(poll(LONG, is_said).is_some(), "{}", fixture.log());
    fs::rename(&away, &own).expect("it is moved back");
    fixture.wait_for_next(before);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

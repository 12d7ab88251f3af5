//! How apps are used is known to the next daemon.

use std::fs;

use clew_fixture::touch::run_as;
use clew_fixture::*;
use clew_live::control::protocol::Request;

/// Times that the app was started or came to the front.
fn launches(fixture: &Fixture) -> u64 {
    fixture.app("touch").launches
}

/// Starts the app, has it come to the front so often, and ends it.
fn use_it(fixture: &Fixture, times: usize) {
    let program = run_as(fixture, "touch", 16, 50);
    for _ in 0..times {
        fixture.order(&Request::Fg { app: "touch".into() });
        fixture.order(&Request::Bg { app: "touch".into() });
    }
    program.quit();
    fixture.wait_all_freed("touch");
}

#[test]
fn how_an_app_is_used_outlives_app_and_daemon() {
    if !can_run("profiles::outlives", &["cc"]) {
        return;
    }
    let place = TempDir::new();
    let file = place.join("profiles");
    let file = file.to_str().expect("a name");
    {
        let fixture = Fixture::start_with("256MiB", &["--profiles", file]);
        use_it(&fixture, 3);
        // It is new, and no stranger: once for each start.
        let program = run_as(&fixture, "touch", 16, 50);
        assert_eq!(launches(&fixture), 1 + 3 + 1, "{}", fixture.log());
        program.quit();
        fixture.wait_all_freed("touch");
        // A signal is an order to end, whichever thread gets it.
        let mut fixture = fixture;
        terminate(fixture.status().daemon_pid);
        let ended = fixture.wait_daemon(LONG);
        assert!(ended.success(), "{ended}: {}", fixture.log());
    }
    let mut fixture = Fixture::start_with("256MiB", &["--profiles", file]);
    let program = run_as(&fixture, "touch", 16, 50);
    assert_eq!(launches(&fixture), 5 + 1, "{}", fixture.log());
    // The lock of a daemon that was killed is in nobody's way.
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    assert!(launches(&fixture) >= 1, "{}", fixture.log());
    assert!(!fixture.log().contains("written down"), "{}", fixture.log());
    program.quit();
}

#[test]
fn a_file_of_something_else_is_refused_and_left_alone() {
    let place = TempDir::new();
    let file = place.join("diary");
    fs::write(&file, "dear diary").expect("written");
    let socket = place.join("s");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_clew"))
        .args(["daemon", "--socket"])
        .arg(&socket)
        .arg("--profiles")
        .arg(&file)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is no database of profiles"), "{said}");
    assert_eq!(fs::read(&file).expect("still there"), b"dear diary");
    assert!(!socket.exists());
}

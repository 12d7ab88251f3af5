//! What goes to another machine's memory comes back from there: with a real program, a real donor or Redis server, and
//! daemons that are killed. Over loopback.

mod support;

use std::process::{Command, Stdio};

use support::donors::{Lends, Server, is_there, port};
use support::touch::{MIB, run_as};
use support::*;

/// Two machines, so to say, that know each other by a code, and the one lends.
fn donor(keys: &TempDir) -> (Lends, String) {
    let mut lends = Lends::new(keys, "donor");
    let at = lends.address().to_string();
    lends.pair(keys, "borrower", &at);
    lends.start();
    (lends, at)
}

/// Takes all of it out, and sees it there.
fn send_away(fixture: &Fixture, mib: u64) {
    // On a busy machine an agent may be taken for silent for a while.
    let mut last = Ok(());
    let sent = poll(2 * LONG, || {
        last = fixture.try_swap_out("touch");
        let stored = fixture.status().donors[0].stored_pages;
        (stored >= mib * MIB / 4096 * 9 / 10).then_some(())
    });
    assert!(sent.is_some(), "{last:?} {:?}\n{}", fixture.status(), fixture.log());
}

/// Comes back, before and after a death of the daemon, with everything there.
fn comes_back(fixture: &mut Fixture, mib: u64) -> Program {
    let mut program = run_as(fixture, "touch", mib, 50);
    let sum = program.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    send_away(fixture, mib);
    assert_eq!(program.ask("sum"), sum);
    send_away(fixture, mib);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    assert!(fixture.status().donors[0].stored_pages > 0, "{:?}", fixture.status().donors);
    assert_eq!(program.ask("sum"), sum);
    program
}

#[test]
fn what_goes_to_a_donor_comes_back_and_who_loses_it_is_ended() {
    if !can_run("donors::donor", &["cc"]) {
        return;
    }
    let keys = TempDir::new();
    let (lends, at) = donor(&keys);
    let own = keys.join("borrower");
    let words = ["--scheme", "mobileswap", "--donor", &at, "--keys", own.to_str().expect("UTF-8")];
    let mut fixture = Fixture::start_with("1GiB", &words);
    let program = comes_back(&mut fixture, 24);
    send_away(&fixture, 24);
    drop(lends);
    let ended = poll(LONG, || (fixture.status().ended_apps == ["touch"]).then_some(()));
    assert!(ended.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    drop(program);
}

#[test]
fn what_goes_to_a_redis_server_comes_back() {
    if !can_run("donors::redis", &["cc", "redis-server"]) {
        return;
    }
    let port = port();
    let files = TempDir::new();
    let server = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(files.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = Server(server.expect("redis-server starts"));
    poll(LONG, || is_there(port)).expect("it serves");
    let at = format!("redis://127.0.0.1:{port}");
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "remoteswap", "--donor", &at]);
    // Page by page, each by itself.
    comes_back(&mut fixture, 6).quit();
    fixture.wait_all_freed("touch");
}

#[test]
fn who_is_not_known_is_refused_with_what_to_do() {
    let keys = TempDir::new();
    let mut command = clew();
    command.arg("--socket").arg(keys.join("s")).args(["daemon", "--budget", "64MiB"]);
    command.args(["--scheme", "mobileswap", "--donor", "127.0.0.1:7", "--keys"]).arg(keys.path());
    let refused = run_to_end(&mut command, LONG);
    assert!(!refused.status.success());
    assert!(texts(&refused).contains("clew pair 127.0.0.1:7 CODE"), "{}", texts(&refused));
}

//! What goes to another machine's memory comes back from there: with a real program, a real donor or Redis server, and
//! daemons that are killed. Over loopback.

mod support;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use support::touch::{MIB, run_as};
use support::*;

const PAGES: u64 = 24 * MIB / 4096;

/// A process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

fn is_there(port: u16) -> Option<()> {
    std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
}

/// Two machines, so to say, that know each other by a code, and the one lends.
fn donor(keys: &TempDir) -> (Server, String) {
    let port = port();
    let at = format!("127.0.0.1:{port}");
    let own = |name: &str| keys.join(name);
    let donate = |words: &[&str]| {
        let mut command = clew();
        command.args(["donate", "--listen", &at, "--keys"]).arg(own("donor")).args(words);
        command
    };
    let code = keys.join("code");
    let shown = std::fs::File::create(&code).expect("a file");
    let pairs = donate(&["--pair"]).stdout(shown).stderr(Stdio::null()).spawn();
    let mut pairs = Server(pairs.expect("clew donate --pair starts"));
    let said = poll(LONG, || {
        let said = std::fs::read_to_string(&code).expect("what it shows");
        said.lines().next().filter(|_| said.ends_with('\n')).map(str::to_string)
    });
    let said = said.expect("it shows a code");
    let pair = |code: &str| {
        let mut command = clew();
        command.args(["pair", &at, code, "--keys"]).arg(own("borrower"));
        run_to_end(&mut command, LONG)
    };
    let wrong = pair("2222-2222");
    assert_eq!(wrong.status.code(), Some(2), "{}", texts(&wrong));
    let right = pair(&said);
    assert!(right.status.success(), "{}", texts(&right));
    wait_for_end(&mut pairs.0, LONG).expect("it ends when it has paired");
    let lends = donate(&["--memory", "256MiB", "--reserve", "0"]).stderr(Stdio::null()).spawn();
    let lends = Server(lends.expect("clew donate starts"));
    poll(LONG, || is_there(port)).expect("it lends");
    (lends, at)
}

/// Takes all of it out, and sees it there.
fn send_away(fixture: &Fixture) {
    let sent = poll(LONG, || {
        let _ = fixture.try_swap_out("touch");
        let status = fixture.status();
        (status.donors[0].stored_pages >= PAGES * 9 / 10).then_some(())
    });
    assert!(sent.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
}

/// Comes back, before and after a death of the daemon, with everything there.
fn comes_back(fixture: &mut Fixture) -> Program {
    let mut program = run_as(fixture, "touch", 24, 50);
    let sum = program.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    send_away(fixture);
    assert_eq!(program.ask("sum"), sum);
    send_away(fixture);
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
    let program = comes_back(&mut fixture);
    send_away(&fixture);
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
    comes_back(&mut fixture).quit();
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

//! What goes to another machine's memory comes back from there: with a real program, a real donor or Redis server, and
//! daemons that are killed. Over loopback.

use std::io::{ErrorKind, Read as _, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use clew_core::DonorState;
use clew_fixture::donors::{Lends, Server, is_there, port};
use clew_fixture::redis::Redis;
use clew_fixture::touch::{MIB, run_as};
use clew_fixture::*;
use clew_live::control::protocol::Request;
use clew_remote::borrowed::{Lender, Single};
use clew_remote::cloud::Cloud;
use clew_remote::patience::Patience;
use clew_remote::proxy::{Act, Proxy};
use clew_remote::secure::Session;
use clew_store::flash::device::{Blocks, Device, HEAD_BYTES, Read};

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

/// Each byte does not give him as long again.
#[test]
fn who_pairs_a_byte_at_a_time_is_not_waited_for() {
    let keys = TempDir::new();
    let lends = Lends::new(&keys, "donor");
    let (mut pairs, code) = lends.await_code(&keys);
    let mut slow = TcpStream::connect(lends.address()).expect("it listens");
    slow.set_read_timeout(Some(Duration::from_millis(2500))).expect("a socket");
    // Says the donor's own greeting, then nothing that makes sense.
    let (mut heard, mut said) = ([0; 256], 0);
    let len = slow.read(&mut heard).expect("its greeting");
    heard[len..].fill(0);
    loop {
        match slow.read(&mut [0; 256]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if slow.write_all(&heard[said..=said]).is_err() {
                    break;
                }
                said += 1;
                assert!(said <= 8, "it waits on");
            }
            Err(_) => break,
        }
    }
    let paired = lends.say_code(&keys, "borrower", &lends.address().to_string(), &code);
    assert!(paired.status.success(), "{}", texts(&paired));
    wait_for_end(&mut pairs.0, LONG).expect("it ends when it has paired");
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

/// A donor is told to give its memory back: what it has comes here, where there is room, before it takes it.
#[test]
fn what_a_donor_has_that_wants_its_memory_back_comes_here() {
    if !can_run("donors::wanted back", &["cc"]) {
        return;
    }
    let keys = TempDir::new();
    let (lends, at) = donor(&keys);
    let own = keys.join("borrower");
    let words = ["--scheme", "remoteswap", "--donor", &at, "--keys", own.to_str().expect("UTF-8")];
    let mut fixture = Fixture::start_with("1GiB", &words);
    let mut program = run_as(&fixture, "touch", 24, 50);
    let sum = program.ask("sum");
    send_away(&fixture, 24);
    lends.signal("USR1");
    let is_here = || (fixture.status().donors[0].stored_pages == 0).then_some(());
    let here = poll(LONG, is_here);
    assert!(here.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    assert_eq!(program.ask("sum"), sum, "{}", fixture.log());
    let status = fixture.status();
    assert!(status.ended_apps.is_empty(), "{status:?}\n{}", fixture.log());
    program.quit();
    fixture.assert_daemon_lives();
}

/// A Redis server that serves at the port, and at `socket` in `files`.
fn redis_server(files: &TempDir) -> (Server, u16) {
    let port = port();
    let server = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(files.path())
        .arg("--unixsocket")
        .arg(files.join("socket"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let server = Server(server.expect("redis-server starts"));
    poll(LONG, || is_there(port)).expect("it serves");
    (server, port)
}

#[test]
fn what_goes_to_a_redis_server_comes_back() {
    if !can_run("donors::redis", &["cc", "redis-server"]) {
        return;
    }
    let files = TempDir::new();
    let (_server, port) = redis_server(&files);
    let at = format!("redis://127.0.0.1:{port}");
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "remoteswap", "--donor", &at]);
    // Page by page, each by itself.
    let program = comes_back(&mut fixture, 6);
    program.quit();
    fixture.wait_all_freed("touch");
    // An orderly end leaves nothing there.
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    let mut asks = Redis::connect(&files.join("socket"));
    assert_eq!(asks.ask(&["DBSIZE"]), "0");
}

const SEGMENT: u64 = 64 << 10;

fn put(cloud: &Cloud, bytes: &[u8]) -> bool {
    let (tell, told) = channel();
    let told_of = move |wrote: std::io::Result<()>| {
        let _ = tell.send(wrote.is_ok());
    };
    cloud.put(HEAD_BYTES, bytes.to_vec(), Box::new(told_of));
    told.recv_timeout(LONG).expect("an answer")
}

fn get(cloud: &Cloud) -> Option<Vec<u8>> {
    let (tell, told) = channel();
    let came = move |came: std::io::Result<usize>, blocks: Blocks| {
        let _ = tell.send(came.ok().map(|len| blocks.bytes()[..len].to_vec()));
    };
    let (into, told_of) = (Blocks::zeroed(4096), Box::new(came));
    cloud.read(Read { at: HEAD_BYTES, into, told: told_of, pressing: true, tries: 0 });
    told.recv_timeout(LONG).expect("an answer")
}

/// A link is cut, and the server gets what it had sent when the next one has put something else there.
#[test]
fn a_redis_server_carries_out_nothing_late() {
    if !can_run("donors::late", &["redis-server"]) {
        return;
    }
    let files = TempDir::new();
    let (_server, port) = redis_server(&files);
    let mut asks = Redis::connect(&files.join("socket"));
    let proxy = Proxy::new([127, 0, 0, 1].into(), ([127, 0, 0, 1], port).into()).expect("a proxy");
    let patience =
        Patience { donor: LONG, link: Duration::from_millis(500), ..Patience::default() };
    let at = format!("redis://{}", proxy.address());
    let cloud = Cloud::new(&at, Session([5; 16]), SEGMENT, 8 * SEGMENT, patience).expect("a cloud");
    assert!(put(&cloud, b"old"));
    proxy.act(Act::StopOlder);
    cloud.forget(HEAD_BYTES, SEGMENT as usize);
    assert!(put(&cloud, b"new"));
    proxy.act(Act::Pass);
    let over = poll(LONG, || (asks.ask(&["CLIENT", "LIST"]).lines().count() == 2).then_some(()));
    assert!(over.is_some(), "{}", asks.ask(&["CLIENT", "LIST"]));
    assert_eq!(get(&cloud).as_deref(), Some(&b"new"[..]));
    // Who may not end links is told so, and can read.
    let refuses = asks.ask(&["ACL", "SETUSER", "default", "-client"]);
    assert_eq!(refuses, "OK");
    proxy.act(Act::Cut);
    proxy.act(Act::Pass);
    let weak = poll(LONG, || (cloud.standing().state == DonorState::Weak).then_some(()));
    assert!(weak.is_some(), "{:?}", cloud.standing());
    assert!(!put(&cloud, b"newer"));
    assert_eq!(get(&cloud).as_deref(), Some(&b"new"[..]));
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

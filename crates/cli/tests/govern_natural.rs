//! Programs that no agent could enter, as people have them, under `clew govern`: a server in Go, and a browser with its sandbox.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clew_fixture::browser::{chromium, digest, has_sandboxed_renderer, wanted};
use clew_fixture::governed::{Ground, number, programs};
use clew_fixture::*;

/// Pages that tests/programs/server.go has.
const PAGES: u64 = 12_288;

#[test]
fn a_server_in_go_answers_right() {
    let Some(ground) = Ground::new("govern_natural::go", &["go"]) else { return };
    let binary = ground.dir.join("server");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&binary).arg(program_source("server.go"));
    // Nothing of it is anybody's own.
    let cache = ground.dir.join("cache");
    go.envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local")]);
    go.env("GOCACHE", &cache).env("GOPATH", ground.dir.join("path")).current_dir(ground.dir.path());
    let built = run_to_end(&mut go, 4 * LONG);
    assert!(built.status.success(), "{}", texts(&built));
    let mut server = Program::start(&ground.dir, "server", Command::new(&binary));
    let said = server.read(LONG);
    let at = said.strip_prefix("serving ").unwrap_or_else(|| panic!("{said}"));
    let mut governor = ground.govern("24MiB", &[&server.pid.to_string()]);
    let mut random = Random(7);
    for _ in 0..3 {
        governor.wait_swapped(PAGES / 3);
        let stream = TcpStream::connect(at).expect("it listens");
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        for _ in 0..2000 {
            let page = random.below(PAGES);
            // In one piece: the rest of a line would wait for the first to be acknowledged.
            (&stream).write_all(format!("{page}\n").as_bytes()).expect("it reads");
            let answer = lines.next().expect("it answers").expect("a line");
            assert_eq!(answer, format!("{page} true"));
        }
    }
    let status = governor.status();
    assert!(number(&status["apps"][0], "faults") > 500, "{status:#}");
    governor.end();
    server.kill();
}

#[test]
fn a_browser_with_its_sandbox_renders_right() {
    let test = "govern_natural::browser";
    let Some(ground) = Ground::new(test, &["chromium", "setpriv", "unshare"]) else { return };
    /// A user of whom this machine has no other programs.
    const SOMEBODY: u32 = 47_110;
    let dir = other_user::directory_of_theirs();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    let wanted = wanted(dir.path());
    let session = format!("--session={SOMEBODY}");
    let mut governor = ground.govern("48MiB", &[&session]);
    let (mut sandboxed, mut swapped, mut governed) = (false, 0, 0);
    for round in 0..8 {
        let words = chromium(dir.path(), &format!("governed-{round}"), &[]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("HOME", dir.path()).uid(SOMEBODY).gid(SOMEBODY);
        let mut browser = Program::start(&dir, "chromium", command);
        while browser.is_running() {
            sandboxed |= has_sandboxed_renderer(browser.pid);
            let status = governor.status();
            governed = governed.max(programs(&status).len());
            swapped = swapped.max(number(&status, "paged_out_pages"));
        }
        let said = browser.rest(LONG).join("\n");
        assert_eq!(digest(&said), Some(wanted.clone()), "{said}\n{}", browser.report());
        if swapped > 2000 {
            break;
        }
    }
    assert!(sandboxed, "no renderer was in a sandbox");
    assert!(governed >= 3 && swapped > 2000, "{governed} processes, {swapped} pages");
    governor.end();
}

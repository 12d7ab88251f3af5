//! Programs that `clew govern` starts: signals, ends, exit codes, and what they leave behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clew_fixture::governed::{Ground, number, programs, touch};
use clew_fixture::*;
use clew_live::control::protocol::Request;
use serde_json::Value;

/// `clew govern WORDS -- sh -c SCRIPT`, which has begun.
fn started(ground: &Ground, words: &[&str], script: &str) -> (Child, u32) {
    let (child, said) = begun(ground, words, script);
    let pid = poll(LONG, || fs::read_to_string(&said).ok()?.trim().parse().ok());
    (child, pid.expect("the program begins"))
}

/// The same, and where it says its number when it begins.
fn begun(ground: &Ground, words: &[&str], script: &str) -> (Child, PathBuf) {
    let said = ground.dir.join("said");
    let _ = fs::remove_file(&said);
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; {script}", said.display());
    let mut command = clew();
    command.args(["govern", "--budget", "1GiB"]).args(words).args(["--", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    (command.spawn().expect("it starts"), said)
}

/// The exit code, which has to come.
fn code(mut child: Child) -> Option<i32> {
    let status = wait_for_end(&mut child, LONG);
    if status.is_none() {
        kill_tree(&mut child);
    }
    status.expect("it does not end").code()
}

#[test]
fn signals_are_the_programs_to_heed_and_its_end_is_the_end() {
    let Some(ground) = Ground::new("govern_started::signals", &[]) else { return };
    let heeds = "trap 'exit 7' TERM; while :; do sleep 0.05; done";
    let (child, _) = started(&ground, &[], heeds);
    signal(child.id(), "TERM");
    assert_eq!(code(child), Some(7));
    // As shells say it.
    let (child, pid) = started(&ground, &[], "exec sleep 600");
    signal(child.id(), "HUP");
    assert_eq!(code(child), Some(128 + 1));
    assert!(!is_alive(pid));
    let (child, _) = started(&ground, &[], "kill -KILL $$");
    assert_eq!(code(child), Some(128 + 9));
    // Whatever else is governed.
    let (child, _) = started(&ground, &["--session=47110"], "exit 3");
    assert_eq!(code(child), Some(3));
}

#[test]
fn a_program_that_was_started_for_nothing_does_not_stay() {
    let Some(ground) = Ground::new("govern_started::for_nothing", &[]) else { return };
    let open = ground.dir.join("open");
    fs::create_dir(&open).expect("a directory");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("ours");
    let socket = open.join("g.sock");
    let words = ["--control", socket.to_str().expect("UTF-8")];
    // It may be over before the program has said anything.
    let (child, said) = begun(&ground, &words, "exec sleep 600");
    assert_eq!(code(child), Some(2));
    let is_over = || match fs::read_to_string(&said) {
        Ok(pid) => (!is_alive(pid.trim().parse().expect("a pid"))).then_some(()),
        Err(_) => Some(()),
    };
    assert!(poll(LONG, is_over).is_some(), "it is there still");
}

#[test]
fn what_a_program_leaves_behind_is_governed_until_it_ends() {
    let Some(ground) = Ground::new("govern_started::left_behind", &["python3"]) else { return };
    let socket = ground.dir.join("g.sock");
    let at = socket.to_str().expect("UTF-8");
    // The first process ends at once, and the one that has the memory is in a session of its own.
    let end = ground.dir.join("end");
    let script = format!(
        "exec python3 -c \"import os,time\n\
         if os.fork(): os._exit(5)\n\
         os.setsid()\n\
         if os.fork(): os._exit(0)\n\
         kept=bytearray(os.urandom(1<<20)*32)\n\
         while not os.path.exists('{}'): time.sleep(0.05)\"",
        end.display()
    );
    let (child, first) = started(&ground, &["--control", at], &script);
    let governed = poll(LONG, || {
        let status = clew_live::control::client::Client::connect(&socket).ok()?.status().ok()?;
        let process = status.apps.first()?.processes.first()?.clone();
        (process.resident_bytes > 32 << 20).then_some(process.pid)
    });
    let governed = governed.expect("nobody is governed");
    assert!(governed != first && !is_alive(first), "{governed}");
    fs::write(&end, "").expect("a file");
    assert_eq!(code(child), Some(5), "as the program that was started");
}

#[test]
fn what_forked_processes_share_counts_once() {
    let Some(ground) = Ground::new("govern_started::forks", &["python3"]) else { return };
    let script = "import os,sys,signal\n\
        kept=bytearray(os.urandom(1<<20)*64)\n\
        for _ in range(6):\n\
        \x20if os.fork()==0: signal.pause()\n\
        print('ready',flush=True)\n\
        sys.stdin.readline()\n\
        os.killpg(0,signal.SIGKILL)\n";
    let mut python = Command::new("python3");
    python.args(["-c", script]);
    let (mut forked, pid) = ground.start("forked", python);
    let mut governor = ground.govern("2GiB", &[&pid.to_string()]);
    let status = governor.wait("seven programs", |status| programs(status).len() == 7);
    // At once, and when each has been looked at.
    let counts = |status: &Value| {
        let bytes = number(&status["used"], "programs_bytes");
        assert!((60 << 20..160 << 20).contains(&bytes), "{status:#}");
    };
    counts(&status);
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        counts(&governor.status());
    }
    governor.end();
    forked.send("end");
    forked.wait(LONG);
}

#[test]
fn what_is_no_process_and_who_only_looks_like_an_agent() {
    let Some(ground) = Ground::new("govern_started::names", &["python3"]) else { return };
    let script = "import threading,sys\n\
        kept=bytearray(b'x'*(8<<20))\n\
        thread=threading.Thread(target=lambda: sys.stdin.readline())\n\
        thread.start()\n\
        print('ready',flush=True)\n\
        print(thread.native_id,flush=True)\n";
    let named = ground.dir.join("clew-agent");
    let python = fs::canonicalize("/usr/bin/python3").expect("python3");
    fs::copy(python, &named).expect("a copy");
    let mut command = Command::new(&named);
    command.args(["-c", script]);
    let (mut program, pid) = ground.start("named", command);
    let thread = program.read(LONG);
    let refused = run_to_end(clew().args(["govern", &thread]), LONG);
    assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
    let why = format!("a thread of process {pid}");
    assert!(texts(&refused).contains(&why), "{}", texts(&refused));
    let mut governor = ground.govern("1GiB", &[&pid.to_string()]);
    let status = governor.wait("the program", |status| programs(status).len() == 1);
    assert_eq!(programs(&status)[0]["command"], "clew-agent");
    governor.end();
    program.send("end");
    program.wait(LONG);
}

#[test]
fn a_number_names_the_process_that_has_it_whatever_others_call_themselves() {
    let Some(ground) = Ground::new("govern_started::numbers", &[]) else { return };
    let (meant, pid) = ground.start("meant", touch(&ground.static_touch(), 1024));
    // Called as the other's process is numbered.
    let named = ground.dir.join(pid.to_string());
    fs::copy(ground.static_touch(), &named).expect("a copy");
    let (other, others) = ground.start("other", touch(&named, 1024));
    let socket = ground.dir.join("g.sock");
    let words =
        ["--control", socket.to_str().expect("UTF-8"), &others.to_string(), &pid.to_string()];
    let mut governor = ground.govern("1GiB", &words);
    governor.wait("both", |status| programs(status).len() == 2);
    let mut client = clew_live::control::client::Client::connect(&socket).expect("it answers");
    client.order(&Request::Fg { app: pid.to_string() }).expect("it is governed");
    let status = client.status().expect("a status");
    let front = status.apps.iter().filter(|app| app.state == "foreground");
    let front: Vec<u32> = front.flat_map(|app| &app.processes).map(|process| process.pid).collect();
    assert_eq!(front, [pid], "{status:?}");
    governor.end();
    meant.quit();
    other.quit();
}

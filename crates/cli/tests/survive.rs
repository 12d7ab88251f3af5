//! Daemons that die, and those that take over.
//!
//! `CLEW_KILLS` sets how often the daemon is killed in the storm (20).

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clew_fixture::other_user::{OtherUser, as_other_user};
use clew_fixture::touch::{BYTES, PAGES, ZRAM, swapped_out};
use clew_fixture::*;
use clew_live::agents::preload;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::Request;

#[test]
fn a_successor_goes_on_where_a_killed_daemon_died() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::successor", &ZRAM) else {
        return;
    };
    for round in 0..3 {
        fixture.kill_daemon();
        program.send("sum");
        let early = program.read_within(Duration::from_millis(200));
        assert_eq!(early, None, "an answer, though nobody can bring its pages");
        fixture.start_successor(&[]);
        assert_eq!(program.read(LONG), sum, "round {round}\n{}", fixture.log());
        assert_eq!(fixture.app("touch").processes.len(), 1);
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    }
    program.expect("write 500 3", "wrote 500");
    let changed = program.ask("sum");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    // All is as if it had been one daemon: stopping brings everything back.
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success());
    assert!(rss_anon(program.pid) >= BYTES * 9 / 10, "not back: {}", rss_anon(program.pid));
    program.expect("sum", &changed);
    program.quit();
    for what in ["keeper", "pid", "lock", "agents"] {
        assert!(!fixture.socket.with_extension(what).exists(), "{what} is left");
    }
}

#[test]
fn children_are_taken_over_too() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::children", &ZRAM) else {
        return;
    };
    let child = program.ask("fork-keep");
    assert!(child.starts_with("child "), "{child}");
    program.expect("child write 300 5", "wrote 300");
    let childs = program.ask("child sum");
    fixture.swap_out("touch");
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("child sum", &childs);
    program.expect("sum", &sum);
    // A fork that nobody answers, and then somebody does.
    fixture.swap_out("touch");
    fixture.kill_daemon();
    program.send("fork-sum");
    assert_eq!(program.read_within(Duration::from_millis(200)), None);
    fixture.start_successor(&[]);
    assert_eq!(program.read(LONG), format!("fork-{sum}"), "{}", fixture.log());
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn a_living_daemon_is_replaced_while_its_program_works() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::replaced", &ZRAM) else {
        return;
    };
    let second = fixture.verb(&["daemon", "--budget", "1GiB"]);
    assert_eq!(second.status.code(), Some(1), "{}", texts(&second));
    assert!(texts(&second).contains("--takeover"), "{}", texts(&second));
    for _ in 0..3 {
        fixture.swap_out("touch");
        program.send("sum");
        fixture.start_successor(&["--takeover"]);
        assert_eq!(program.read(LONG), sum, "{}", fixture.log());
    }
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// What it was asked is still with the socket, which the successor goes on with.
#[test]
fn a_daemon_that_hangs_is_replaced_by_one_that_lives() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::hangs", &ZRAM) else {
        return;
    };
    assert!(signal(fixture.status().daemon_pid, "STOP"));
    fixture.start_successor(&["--takeover"]);
    program.expect("sum", &sum);
    // Whatever has been queued there is answered by now.
    fixture.swap_out("touch");
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Another version; one that may not open enough, or have files as long as its shared memory, or map as much; one whose trace
/// cannot be written: each is told before anybody is ended.
#[test]
fn who_could_not_take_over_ends_nobody() {
    const VERSION_AT: u64 = 6 * 8;
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::unasked", &ZRAM) else {
        return;
    };
    let daemon = fixture.status().daemon_pid;
    let nowhere = fixture.dir.join("missing/trace");
    let nowhere = nowhere.to_str().expect("UTF-8");
    let mut refused = |limit: &str, besides: &[&str], why: &str| {
        for check in [&["--check"][..], &[]] {
            let mut command = Command::new("prlimit");
            command.arg(limit);
            command.args([env!("CARGO_BIN_EXE_clew"), "daemon", "--budget", "1GiB", "--takeover"]);
            command.args(check).args(besides);
            let said = run_to_end(command.arg("--socket").arg(&fixture.socket), LONG);
            assert_eq!(said.status.code(), Some(1), "{why}: {}", texts(&said));
            assert!(texts(&said).contains(why), "{why}: {}", texts(&said));
            assert_eq!(fixture.status().daemon_pid, daemon, "{why}: it has ended the daemon");
        }
        program.expect("sum", &sum);
        fixture.swap_out("touch");
    };
    refused("--nofile=48:48", &[], "descriptors open and needs");
    refused("--fsize=65536:65536", &[], "its files may have 65536 bytes");
    refused("--as=4294967296", &[], "its address space may have 4294967296 bytes");
    refused("--nofile=1024:1024", &["--record", nowhere], "missing/trace");
    // What is written there says who serves.
    let lock = fixture.socket.with_extension("lock");
    fs::remove_file(&lock).and_then(|()| fs::create_dir(&lock)).expect("a directory in its place");
    refused("--nofile=1024:1024", &[], "cannot write");
    fs::remove_dir(&lock).expect("it is empty");
    let journal = journal_of(&fixture);
    let mut version = [0; 8];
    journal.read_exact_at(&mut version, VERSION_AT).expect("it is that long");
    let older = (u64::from_le_bytes(version) - 1).to_le_bytes();
    journal.write_all_at(&older, VERSION_AT).expect("it is written");
    refused("--nofile=1024:1024", &[], "the journal has version");
    journal.write_all_at(&version, VERSION_AT).expect("it is written");
    let could = fixture.verb(&["daemon", "--budget", "1GiB", "--takeover", "--check"]);
    assert!(could.status.success(), "{}", texts(&could));
    let said = format!("could take over from process {daemon} at");
    assert!(texts(&could).contains(&said), "{}", texts(&could));
    let arguments = ["daemon", "--budget", "1GiB", "--takeover", "--check", "--format", "json"];
    let could = fixture.verb(&arguments);
    assert!(texts(&could).contains("\"spaces\": 1"), "{}", texts(&could));
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// From a namespace in which the living daemon and its keeper are not seen, or seem to have begun at another time.
#[test]
fn who_does_not_see_the_daemon_leaves_it_alone() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::unseen", &ZRAM) else {
        return;
    };
    let beside = ["pid", "keeper", "lock"].map(|what| fixture.socket.with_extension(what));
    let written = || beside.each_ref().map(|path| std::fs::read(path).ok());
    let before = written();
    assert!(before.iter().all(Option::is_some));
    let namespaces =
        [&["-p", "--fork", "--mount-proc"][..], &["-T", "--boottime", "100000", "--fork"]];
    for namespace in namespaces {
        for takeover in [&[][..], &["--takeover"]] {
            let mut command = Command::new("unshare");
            command.args(namespace).arg(env!("CARGO_BIN_EXE_clew")).args(["daemon", "--budget"]);
            let command = command.args(["1GiB", "--socket"]).arg(&fixture.socket).args(takeover);
            let said = run_to_end(command, LONG);
            let code = said.status.code();
            assert!(matches!(code, Some(1 | 2)), "{namespace:?}: {code:?} {}", texts(&said));
            assert_eq!(written(), before, "{namespace:?} {takeover:?}");
        }
    }
    program.expect("sum", &sum);
    fixture.swap_out("touch");
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Any program of the daemon's user may fill that user's queue of signals, in which a timer takes a place.
#[test]
fn children_are_served_where_no_signal_can_be_queued() {
    if !can_run("survive::unqueued", &["cc", "prlimit"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let pid = fixture.status().daemon_pid.to_string();
    let set = Command::new("prlimit").args(["--pid", &pid, "--sigpending=0:0"]).status();
    assert!(set.expect("prlimit runs").success());
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    program.expect("fork-sum", &format!("fork-{sum}"));
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Any program of the daemon's user may use up what that user may watch.
#[test]
fn children_are_served_where_nothing_more_can_be_watched() {
    if !can_run("survive::unwatched", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let (library, file) = (dir.join("unwatched.so"), dir.join("file"));
    fs::rename(compile(&dir, "unwatched.c", &["-shared", "-fPIC"]), &library).expect("it is ours");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let setting = vec![("LD_PRELOAD", path(&library)), ("UNWATCHED", path(&file))];
    let mut fixture = Fixture::start_hooked("1GiB", &["--scheme", "zram"], setting);
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    fs::write(&file, "").expect("written");
    program.expect("fork-sum", &format!("fork-{sum}"));
    let child = program.ask("fork-keep");
    assert!(child.starts_with("child "), "{child}");
    fixture.swap_out("touch");
    program.expect("child sum", &sum);
    assert!(fixture.log().contains("cannot watch a child yet"), "{}", fixture.log());
    // Then as usual.
    fs::remove_file(&file).expect("it is there");
    fixture.swap_out("touch");
    program.expect("child sum", &sum);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Directories for temporary files are tidied.
#[test]
fn what_is_written_beside_a_socket_is_written_again() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::tidied", &ZRAM) else {
        return;
    };
    let beside = ["pid", "keeper"].map(|what| fixture.socket.with_extension(what));
    for path in &beside {
        let before = std::fs::read(path).expect("it is there");
        std::fs::remove_file(path).expect("it is there");
        // Whoever comes meanwhile is no second one.
        let second = fixture.verb(&["daemon", "--budget", "1GiB"]);
        assert_eq!(second.status.code(), Some(1), "{}", texts(&second));
        let is_back = || std::fs::read(path).is_ok_and(|text| text == before).then_some(());
        assert!(poll(LONG, is_back).is_some(), "{}\n{}", path.display(), fixture.log());
        // What makes no sense is no better.
        std::fs::write(path, "1 2 many\n").expect("it is ours");
        assert!(poll(LONG, is_back).is_some(), "{}\n{}", path.display(), fixture.log());
    }
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// They are removed as a whole, too, and whoever comes after that meets this daemon.
#[test]
fn the_directory_of_a_socket_is_made_again() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::removed", &ZRAM) else {
        return;
    };
    let status = fixture.status();
    let directory = fixture.socket.parent().expect("it has one").to_path_buf();
    let aside = directory.with_extension("aside");
    std::fs::rename(&directory, &aside).expect("nothing else has that name");
    let is_back = || Client::connect(&fixture.socket).and_then(|mut client| client.status()).ok();
    let met = poll(LONG, is_back).map(|status| status.daemon_pid);
    assert_eq!(met, Some(status.daemon_pid));
    let second = fixture.verb(&["daemon", "--budget", "1GiB"]);
    assert_eq!(second.status.code(), Some(1), "{}", texts(&second));
    // Agents find it, too.
    let mut late = fixture.run_touch("late", PAGES, 50, 9);
    let late_sum = late.ask("sum");
    fixture.swap_out_at_least("late", BYTES * 8 / 10);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    late.expect("sum", &late_sum);
    program.quit();
    late.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
    std::fs::remove_dir_all(aside).expect("it is ours");
}

/// Whoever may write there may put something in their place, and be gone.
#[test]
fn sockets_that_lead_nowhere_are_made_again() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::nowhere", &ZRAM) else {
        return;
    };
    let daemon = fixture.status().daemon_pid;
    let places = [fixture.socket.clone(), fixture.socket.with_extension("agents")];
    let is_back = |fixture: &Fixture, daemon: u32| {
        let met = || {
            let status = Client::connect(&fixture.socket).and_then(|mut c| c.status()).ok()?;
            (status.daemon_pid == daemon).then_some(())
        };
        assert!(poll(LONG, met).is_some(), "{}", fixture.log());
    };
    for place in &places {
        fs::remove_file(place).expect("it is there");
        // Bound, and nobody listens any more.
        drop(std::os::unix::net::UnixListener::bind(place).expect("it is free"));
    }
    is_back(&fixture, daemon);
    fixture.run_touch("late", PAGES / 4, 50, 9).quit();
    // The next one looks, too, whether it is met where it serves.
    fixture.kill_daemon();
    fs::remove_file(&places[0]).expect("it is there");
    drop(std::os::unix::net::UnixListener::bind(&places[0]).expect("it is free"));
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    // What is no socket stays, and it is said.
    fs::remove_file(&places[0]).and_then(|()| fs::write(&places[0], "mine")).expect("written");
    let is_said = || fixture.log().contains("is no socket any more").then_some(());
    assert!(poll(LONG, is_said).is_some(), "{}", fixture.log());
    assert_eq!(fs::read(&places[0]).expect("it is there"), b"mine");
    fs::remove_file(&places[0]).expect("it is ours");
    let successor = fixture.daemon_pid();
    is_back(&fixture, successor);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Whoever has begun as many threads as the user may has nobody of the daemon's clients wait for ever.
#[test]
fn clients_are_answered_where_no_thread_can_begin() {
    if !can_run("survive::threadless", &["cc", "prlimit", "setpriv", "unshare"]) {
        return;
    }
    let mut user = OtherUser::start("1GiB", "");
    let pid = user.status().daemon_pid.to_string();
    // Root of the tests may not change another user's limits.
    let set = as_other_user(&["prlimit", "--pid", &pid, "--nproc=1:1"].map(String::from));
    assert!(Command::new(&set[0]).args(&set[1..]).status().expect("it runs").success());
    for _ in 0..3 {
        assert_eq!(user.status().daemon_pid.to_string(), pid);
    }
    user.stop();
}

/// Two that serve one place would be taken for one by whoever comes after them.
#[test]
fn where_another_daemon_has_begun_nothing_is_made_again() {
    let Some((fixture, mut program, sum)) = swapped_out("survive::displaced", &ZRAM) else {
        return;
    };
    let first = fixture.status().daemon_pid;
    let directory = fixture.socket.parent().expect("it has one").to_path_buf();
    let aside = directory.with_extension("aside");
    // Nobody of this process may come in between: the first one looks each second.
    assert!(signal(first, "STOP"));
    std::fs::rename(&directory, &aside).expect("nothing else has that name");
    std::fs::create_dir(&directory).expect("it is free");
    let socket = fixture.socket.clone();
    let mut second = clew();
    let words = ["daemon", "--budget", "1GiB", "--socket"];
    let mut second = second.args(words).arg(&socket).spawn().expect("it starts");
    let serves = || {
        let status = Client::connect(&socket).and_then(|mut client| client.status()).ok()?;
        (status.daemon_pid == second.id()).then_some(())
    };
    let began = poll(LONG, serves);
    assert!(signal(first, "CONT"));
    began.expect("the second one serves");
    let is_said = || {
        let log = std::fs::read_to_string(aside.join("daemon.log")).unwrap_or_default();
        log.contains("has begun to serve there").then_some(())
    };
    poll(LONG, is_said).expect("the first one says who is there");
    assert_eq!(fixture.status().daemon_pid, second.id());
    fixture.order(&Request::Stop);
    assert!(wait_for_end(&mut second, LONG).expect("it ends").success());
    // Then the place is free again.
    let is_back = || {
        let status = Client::connect(&socket).and_then(|mut client| client.status()).ok()?;
        (status.daemon_pid == first).then_some(())
    };
    poll(LONG, is_back).expect("the first one is there again");
    program.expect("sum", &sum);
    program.quit();
    std::fs::remove_dir_all(aside).expect("it is ours");
}

/// What is stored would be lost with the daemon.
#[test]
fn a_daemon_whose_keeper_has_died_is_not_replaced_and_says_so() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::keeperless", &ZRAM) else {
        return;
    };
    let status = fixture.status();
    kill(status.keeper_pid);
    let is_said = || fixture.log().contains("the keeper (process").then_some(());
    assert!(poll(LONG, is_said).is_some(), "{}", fixture.log());
    for check in [&["--check"][..], &[]] {
        let words = [&["daemon", "--budget", "1GiB", "--takeover"], check].concat();
        let refused = fixture.verb(&words);
        assert_eq!(refused.status.code(), Some(1), "{}", texts(&refused));
        assert!(texts(&refused).contains("its keeper has died"), "{}", texts(&refused));
        assert_eq!(fixture.status().daemon_pid, status.daemon_pid);
    }
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    program.expect("sum", &sum);
    program.quit();
}

#[test]
fn a_program_that_starts_while_no_daemon_lives_is_managed_afterwards() {
    let Some((mut fixture, program, _)) = swapped_out("survive::late", &ZRAM) else { return };
    let environment = fixture.client().call(&Request::Environment).expect("an environment");
    let environment: clew_live::control::protocol::Environment = environment;
    fixture.kill_daemon();
    // As a child of a managed program would be: it has the environment, and asks nobody.
    let mut command = Command::new(compile(&fixture.dir, "touch.c", &[]));
    command.args(["8192", "50", "3"]);
    command.env("LD_PRELOAD", preload::object(&fixture.socket).expect("it has a place"));
    command.env("CLEW_AGENT_SOCKET", &environment.agent_socket).env("CLEW_APP", "late");
    let mut late = Program::start(&fixture.dir, "late", command);
    late.wait_ready();
    fixture.start_successor(&[]);
    fixture.wait_resident("late", 8192 * 4096 * 8 / 10);
    let sum = late.ask("sum");
    fixture.swap_out_at_least("late", 8192 * 4096 * 8 / 10);
    late.expect("sum", &sum);
    late.quit();
    program.quit();
    fixture.assert_daemon_lives();
}

/// The successor runs out of descriptors, each time a little later.
#[test]
fn a_takeover_that_fails_leaves_everything_to_the_next_one() {
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::fails", &ZRAM) else {
        return;
    };
    fixture.kill_daemon();
    let (mut failed, mut served) = (0, false);
    for descriptors in (6..64).step_by(2).chain((64..256).step_by(16)) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={descriptors}:{descriptors}"));
        command.arg(env!("CARGO_BIN_EXE_clew")).arg("daemon").arg("--socket").arg(&fixture.socket);
        command.args(["--budget", "1GiB"]).stderr(std::process::Stdio::null());
        let mut next = command.spawn().expect("prlimit starts");
        let serves = poll(LONG, || match next.try_wait().expect("try_wait") {
            Some(_) => Some(false),
            None => {
                Client::connect(&fixture.socket).and_then(|mut c| c.status()).ok().map(|_| true)
            }
        });
        if serves.expect("it serves or ends") {
            fixture.hand_over();
            wait_for_end(&mut next, LONG).expect("it ends");
            served = true;
            break;
        }
        failed += 1;
    }
    assert!(failed >= 3 && served, "{failed} failed, one served: {served}");
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.assert_daemon_lives();
}

/// The keeper keeps the listening socket, and connections that the daemon had accepted.
#[test]
fn who_waits_for_the_answer_of_a_daemon_that_dies_is_told() {
    if !can_run("survive::told", &[]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let stopped = fixture.status().daemon_pid;
    assert!(signal(stopped, "STOP"));
    let socket = fixture.socket.clone();
    let asks = std::thread::spawn(move || Client::connect(&socket).and_then(|mut c| c.status()));
    std::thread::sleep(Duration::from_millis(200));
    fixture.kill_daemon();
    let answer = asks.join().expect("no panic");
    assert!(matches!(answer, Err(ControlError::Dead { .. })), "{answer:?}");
    // As many as the socket lets wait to be accepted, and some more.
    for n in 0..132 {
        let answer = Client::connect(&fixture.socket).map(drop);
        assert!(matches!(answer, Err(ControlError::Dead { .. })), "{n}: {answer:?}");
    }
    fixture.start_successor(&[]);
    fixture.assert_daemon_lives();
}

#[test]
fn the_supervisor_starts_the_next_daemon() {
    let arguments = ["--scheme", "zram", "--supervise"];
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::supervised", &arguments)
    else {
        return;
    };
    for _ in 0..2 {
        let before = fixture.status().daemon_pid;
        kill(before);
        fixture.wait_for_next(before);
        program.expect("sum", &sum);
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    }
    // It passes signals on: everything comes back, and both end.
    let done = fixture.verb(&["stop"]);
    assert!(done.status.success(), "{}", texts(&done));
    assert!(fixture.wait_daemon(LONG).success());
    program.expect("sum", &sum);
    program.quit();
}

/// It waits longer each time, and a signal meanwhile is heeded at once.
#[test]
fn the_supervisor_waits_between_daemons_and_can_be_told_to_end() {
    if !can_run("survive::waits", &[]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    // Each of its daemons finds the socket served and ends with 1.
    let mut command = clew();
    command.args(["daemon", "--supervise", "--budget", "1GiB", "--socket"]).arg(&fixture.socket);
    command.stderr(std::process::Stdio::piped()).process_group(0);
    let mut supervisor = command.spawn().expect("it starts");
    let said = BufReader::new(supervisor.stderr.take().expect("piped"));
    let (to, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|l| to.send(l)));
    let mut starts = Vec::new();
    while starts.last().is_none_or(|line: &String| !line.ends_with("in 3.2 s")) {
        let line = lines.recv_timeout(LONG).expect("it says what it does");
        if line.contains("starting the next one") {
            starts.push(line);
        }
    }
    let waits: Vec<&str> = starts.iter().filter_map(|l| l.split(" in ").nth(1)).collect();
    assert_eq!(waits, ["0.1 s", "0.2 s", "0.4 s", "0.8 s", "1.6 s", "3.2 s"], "{starts:?}");
    terminate(supervisor.id());
    let ended = wait_for_end(&mut supervisor, LONG).expect("it ends");
    // One daemon more was told, which would have brought pages back; then no other.
    assert_eq!(ended.code(), Some(1));
    let after: Vec<String> = lines.iter().collect();
    assert!(after.len() == 1 && after[0].contains("serves"), "{after:?}");
}

/// Kills the daemons of a supervisor as soon as they answer, as long as `goes_on` is true of what it
/// said last.
fn kill_each_daemon(fixture: &Fixture, goes_on: impl Fn(&str) -> bool) {
    let starts = || -> Vec<String> {
        let text = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
        let lines = text.lines().filter(|line| line.contains("starting the next one"));
        lines.map(str::to_string).collect()
    };
    let mut before = 0;
    for round in 0..30 {
        let next = poll(LONG, || {
            if !is_alive(fixture.daemon_pid()) {
                return Some(None);
            }
            let status = Client::connect(&fixture.socket).and_then(|mut c| c.status()).ok()?;
            (status.daemon_pid != before).then_some(Some(status.daemon_pid))
        });
        let next = next.unwrap_or_else(|| panic!("nobody took over\n{}", fixture.log()));
        let Some(next) = next else { return };
        before = next;
        kill(before);
        let said = poll(LONG, || starts().get(round).cloned());
        let said = said.unwrap_or_else(|| panic!("nothing was said\n{}", fixture.log()));
        if !goes_on(&said) {
            return;
        }
    }
    panic!("30 daemons\n{}", fixture.log());
}

#[test]
fn a_supervisor_ends_when_its_daemons_give_up() {
    if !can_run("survive::supervised_gives_up", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    fs::write(&config, "max-short-lives = 3\n").expect("a config");
    let config = config.to_str().expect("UTF-8");
    let arguments = ["--scheme", "zram", "--supervise", "--config", config];
    let Some((mut fixture, mut program, sum)) =
        swapped_out("survive::supervised_gives_up", &arguments)
    else {
        return;
    };
    // The fourth brings every page back, which must not be killed at that.
    kill_each_daemon(&fixture, |last| !last.ends_with("in 0.2 s"));
    assert_eq!(fixture.wait_daemon(LONG).code(), Some(4), "{}", fixture.log());
    assert!(fixture.log().contains("starting the next one in 0."), "{}", fixture.log());
    assert!(rss_anon(program.pid) >= BYTES * 9 / 10, "not back: {}", rss_anon(program.pid));
    program.expect("sum", &sum);
    program.quit();
}

/// Told to end while no daemon lives: the next one comes, and brings everything back.
#[test]
fn a_supervisor_that_is_told_to_end_between_two_daemons_brings_every_page_back() {
    if !can_run("survive::told_between", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    fs::write(&config, "max-short-lives = 1000\n").expect("a config");
    let config = config.to_str().expect("UTF-8");
    let arguments = ["--scheme", "zram", "--supervise", "--config", config];
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::told_between", &arguments)
    else {
        return;
    };
    kill_each_daemon(&fixture, |last| !last.ends_with("in 0.8 s"));
    terminate(fixture.daemon_pid());
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    assert!(rss_anon(program.pid) >= BYTES * 9 / 10, "not back: {}", rss_anon(program.pid));
    program.expect("sum", &sum);
    program.quit();
}

#[test]
fn a_restart_loop_gives_up_and_brings_every_page_back() {
    if !can_run("survive::gives_up", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    fs::write(&config, "max-short-lives = 2\n").expect("a config");
    let config = config.to_str().expect("UTF-8");
    let arguments = ["--scheme", "zram", "--config", config];
    let Some((mut fixture, mut program, sum)) = swapped_out("survive::gives_up", &arguments) else {
        return;
    };
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    fixture.kill_daemon();
    let last = fixture.verb(&["daemon", "--budget", "1GiB", "--config", config]);
    assert_eq!(last.status.code(), Some(4), "{}", texts(&last));
    assert!(rss_anon(program.pid) >= BYTES * 9 / 10, "not back: {}", rss_anon(program.pid));
    program.expect("sum", &sum);
    program.quit();
}

#[test]
fn a_storm_of_kills_loses_nothing() {
    storm_of_kills("survive::storm", "zram", number_from_env("CLEW_KILLS", 20), false);
}

/// Pages come back as blocks, early, parked, and are out as samples.
#[test]
fn a_storm_of_kills_and_switches_loses_nothing() {
    let kills = number_from_env("CLEW_KILLS", 20).div_ceil(2);
    storm_of_kills("survive::storm of switches", "ariadne", kills, true);
}

/// Pages are stored with dictionaries, which change meanwhile, and come back in runs.
#[test]
fn a_storm_of_kills_and_switches_loses_no_dictionary() {
    let kills = number_from_env("CLEW_KILLS", 20).div_ceil(2);
    storm_of_kills("survive::storm of dictionaries", "clew", kills, true);
}

/// Pages share frames, in which they move when another leaves.
#[test]
fn a_storm_of_kills_loses_nothing_of_frames() {
    let kills = number_from_env("CLEW_KILLS", 20).div_ceil(2);
    storm_of_kills("survive::storm of frames", "zswap", kills, false);
}

/// Kills the daemon at random moments while programs work and pages go out; and, if so wished, while
/// apps come to the front and go back.
fn storm_of_kills(test: &str, scheme: &str, kills: u64, switches: bool) {
    if !can_run(test, &["cc", "python3"]) {
        return;
    }
    let never_give_up = "max-short-lives = 1000000\n";
    let mut fixture = Fixture::start_configured("1GiB", scheme, never_give_up);
    let shadow = compile(&fixture.dir, "shadow.c", &[]);
    let shadow = shadow.to_str().expect("UTF-8").to_string();
    let script = program_source("checksum.py").to_str().expect("UTF-8").to_string();

    let mut alone = Program::start(&fixture.dir, "alone", {
        let mut command = Command::new("python3");
        command.args([&script, "5"]);
        command
    });
    alone.wait_ready();
    let mut python = fixture.run("python", &["python3", &script, "5"]);
    python.wait_ready();
    // Ends when it is told to: its time is long enough for any storm.
    let mut storm = fixture.run("shadow", &[shadow.as_str(), "--seconds", "3600"]);
    storm.wait_line("running", LONG);
    fixture.wait_resident("shadow", 8 << 20);

    let over = AtomicBool::new(false);
    let (mut times, mut swap_outs) = (Vec::new(), 0u64);
    let socket = fixture.socket.clone();
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut done = 0u64;
            while !over.load(Ordering::SeqCst) {
                for app in ["shadow", "python"] {
                    // No answer while no daemon lives, or when it dies in the middle.
                    let order = Request::SwapOut { app: app.to_string() };
                    if Client::connect(&socket).and_then(|mut c| c.order(&order)).is_ok() {
                        done += 1;
                    }
                    if switches {
                        let app = || app.to_string();
                        let responded = Request::Responded { app: app(), response_ns: 1 };
                        for (order, pause) in [
                            (Request::Fg { app: app() }, 30),
                            (responded, 10),
                            (Request::Bg { app: app() }, 150),
                            (Request::Fg { app: app() }, 30),
                        ] {
                            let _ = Client::connect(&socket).and_then(|mut c| c.order(&order));
                            std::thread::sleep(Duration::from_millis(pause));
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            done
        });
        // Also if something below panics: the swapper is waited for.
        let at_end = SetAtEnd(&over);
        let mut random = Random(7);
        for kill in 0..kills {
            std::thread::sleep(Duration::from_millis(50 + random.below(500)));
            let line = format!("mutate {}", 50 + kill % 100);
            python.send(&line);
            fixture.kill_daemon();
            let began = Instant::now();
            fixture.start_successor(&[]);
            times.push(began.elapsed());
            assert_eq!(python.read(2 * LONG), alone.ask(&line), "kill {kill}\n{}", fixture.log());
            if kill % 5 == 4 {
                let wanted = alone.ask("check");
                python.expect("check", &wanted);
            }
            assert!(storm.is_running(), "kill {kill}: {}{}", storm.report(), fixture.log());
        }
        drop(at_end);
        swap_outs = swapper.join().expect("the swapper ends");
    });
    let wanted = alone.ask("check");
    python.expect("check", &wanted);
    // SIGTERM: it verifies all that it has, and says so.
    terminate(storm.pid);
    let status = storm.wait(2 * LONG);
    let lines = storm.rest(LONG);
    assert!(
        status.success(),
        "{status}\n{}\n{}{}",
        lines.join("\n"),
        storm.report(),
        fixture.log()
    );
    assert!(lines.last().is_some_and(|l| l.starts_with("OK ")), "{lines:?}");
    times.sort();
    println!(
        "{kills} kills, {swap_outs} swap-outs answered; takeover p50 {:?}, worst {:?}\n{}",
        times[times.len() / 2],
        times[times.len() - 1],
        lines.join("\n")
    );
    python.quit();
    alone.quit();
    fixture.assert_daemon_lives();
}

/// The journal; where the keeper is, the socket's files say.
fn journal_of(fixture: &Fixture) -> fs::File {
    let keeper = fs::read_to_string(fixture.socket.with_extension("keeper")).expect("a keeper");
    let words: Vec<&str> = keeper.split_whitespace().collect();
    let [pid, _, _, journal] = words[..] else { panic!("{keeper}") };
    let path = format!("/proc/{pid}/fd/{journal}");
    fs::File::options().read(true).write(true).open(path).expect("the journal")
}

/// Flips a bit in both copies of the record of the program of this name.
fn damage_record(fixture: &Fixture, app: &str) {
    const SLOT: usize = 256 << 10;
    const RECORDS: std::ops::Range<usize> = 512..4096;
    let file = journal_of(fixture);
    let name = format!("\"app\":\"{app}\"").into_bytes();
    let mut damaged = 0;
    for slot in 1..64 {
        let mut records = vec![0; RECORDS.len()];
        let at = (slot * SLOT + RECORDS.start) as u64;
        file.read_exact_at(&mut records, at).expect("it is that long");
        let found: Vec<usize> =
            (0..records.len()).filter(|at| records[*at..].starts_with(&name)).collect();
        for found in found {
            let byte = [records[found + 7] ^ 4];
            file.write_all_at(&byte, at + found as u64 + 7).expect("it is written");
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no record of {app}");
}

#[test]
fn pages_of_a_program_whose_record_is_damaged_are_kept() {
    let Some((mut fixture, mut program, _)) = swapped_out("survive::damaged", &ZRAM) else {
        return;
    };
    let mut other = fixture.run_touch("other", 8192, 50, 3);
    let mut sum = other.ask("sum");
    fixture.swap_out_at_least("other", 8192 * 4096 * 8 / 10);
    let stored = fixture.status().pool.stored_pages;
    // But for pages of zeros, which take no place.
    let lost = stored - fixture.app("other").stored_pages;
    assert!(lost > PAGES / 2, "{:?}", fixture.status());
    let mut keepers = vec![fixture.status().keeper_pid];
    fixture.kill_daemon();
    damage_record(&fixture, "touch");
    for round in 0..2 {
        fixture.start_successor(&[]);
        let status = fixture.status();
        assert_eq!(status.lost_programs, 1, "{status:?}\n{}", fixture.log());
        assert_eq!(status.apps.len(), 1, "{status:?}");
        assert!(fixture.log().contains("damaged"), "{}", fixture.log());
        other.expect("sum", &sum);
        // Nobody gets its memory: neither what comes back of others, nor who is new.
        other.expect(&format!("write 8192 {round}"), "wrote 8192");
        let mut third = fixture.run_touch("third", 4096, 50, round);
        fixture.swap_out_at_least("third", 4096 * 4096 * 8 / 10);
        third.expect("touch seq", "touched 4096 bad 0");
        third.quit();
        other.expect("write 8192 7", "wrote 8192");
        sum = other.ask("sum");
        fixture.swap_out_at_least("other", 8192 * 4096 * 8 / 10);
        let kept = poll(LONG, || (fixture.status().pool.stored_pages <= stored).then_some(()));
        assert!(kept.is_some(), "the third is not forgotten: {:?}", fixture.status());
        let now = fixture.status().pool.stored_pages - fixture.app("other").stored_pages;
        assert_eq!(now, lost, "pages kept: {:?}", fixture.status());
        other.expect("sum", &sum);
        keepers.push(fixture.status().keeper_pid);
        fixture.kill_daemon();
    }
    // It waits, and reads nothing wrong.
    program.send("sum");
    assert_eq!(program.read_within(Duration::from_millis(300)), None);
    program.kill();
    fixture.start_successor(&[]);
    other.quit();
    // They stay for the sake of the damaged one, whoever stops.
    for keeper in keepers {
        assert!(is_alive(keeper), "{keeper} has what nobody else has");
        kill(keeper);
    }
}

/// A keeper does not run between the death of its daemon and the end of the takeover, as on a busy machine: it does not take the
/// successor for one that began anew.
#[test]
fn a_keeper_that_runs_late_keeps_what_nobody_else_has() {
    let Some((mut fixture, mut program, _)) = swapped_out("survive::late keeper", &ZRAM) else {
        return;
    };
    let keeper = fixture.status().keeper_pid;
    assert!(signal(keeper, "STOP"));
    fixture.kill_daemon();
    damage_record(&fixture, "touch");
    fixture.start_successor(&[]);
    assert_eq!(fixture.status().lost_programs, 1, "{}", fixture.log());
    assert!(signal(keeper, "CONT"));
    let gone = poll(Duration::from_secs(1), || (!is_alive(keeper)).then_some(()));
    assert!(gone.is_none(), "it has ended");
    program.kill();
    kill(keeper);
}

//! Whom `clew govern` governs and whom it answers: all of a session, nobody who has an agent, clients of its
//! socket. And what it takes when nothing happens.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clew_fixture::governed::{Ground, number, programs, touch};
use clew_fixture::touch::PAGES;
use clew_fixture::*;
use clew_live::control::client::Client;
use clew_live::control::protocol::Request;
use clew_live::control::status::AppStatus;

/// A user of whom this machine has no other programs.
const SOMEBODY: u32 = 47_110;

#[test]
fn clients_ask_a_governor_as_they_ask_a_daemon() {
    let Some(ground) = Ground::new("govern::clients", &[]) else { return };
    let (mut program, _) = ground.start("static", touch(&ground.static_touch(), PAGES));
    let (sum, pid) = (program.ask("sum"), program.pid.to_string());
    let socket = ground.dir.join("g.sock");
    let at = socket.to_str().expect("UTF-8").to_string();
    let mut governor = ground.govern("1GiB", &["--control", &at, &pid]);
    governor.wait("a program", |status| programs(status).len() == 1);
    let client = || Client::connect(&socket).expect("it answers");
    let app = || -> AppStatus { client().status().expect("a status").apps.remove(0) };
    let name = app().name;
    assert_eq!(app().processes[0].pid, program.pid);
    for (request, state) in [
        (Request::Fg { app: name.clone() }, "foreground"),
        (Request::Bg { app: pid.clone() }, "background"),
    ] {
        client().order(&request).expect("it is governed");
        assert_eq!(app().state, state);
    }
    client().order(&Request::SwapOut { app: name.clone() }).expect("it is governed");
    assert!(app().stored_pages >= PAGES / 2, "{:?}", app());
    assert_eq!(program.ask("sum"), sum);
    // What its policies count is told beside what it counts itself.
    let told = client().status().expect("a status").policies;
    for name in ["govern_kernel_out_pages", "hotness_org_hot_resident_pages"] {
        assert!(told.iter().any(|metric| metric.name == name), "{name}: {told:?}");
    }
    let verb = |words: &[&str]| run_to_end(clew().args(["--socket", &at]).args(words), LONG);
    let shown = verb(&["ps"]);
    assert!(texts(&shown).contains(&name), "{}", texts(&shown));
    let shown = verb(&["top", "--once"]);
    assert!(texts(&shown).contains(&name), "{}", texts(&shown));
    assert!(verb(&["fg", &name]).status.success());
    for (words, why) in [
        (&["fg", "nosuch"][..], "no app 'nosuch'"),
        (&["run", "--", "true"], "a governor has no agents"),
        (&["restore", &name], "by itself"),
    ] {
        let refused = verb(words);
        assert!(!refused.status.success() && texts(&refused).contains(why), "{}", texts(&refused));
    }
    // Whoever else wants this place is refused, and takes nothing from it.
    let second = run_to_end(clew().args(["govern", "--control", &at, &pid]), LONG);
    assert!(texts(&second).contains("served by somebody else"), "{}", texts(&second));
    let started = clew_live::survival::predecessor::ProcessName::of(governor.0.pid)
        .expect("it lives")
        .started;
    let over = client().order(&Request::HandOver { started }).expect_err("it is no daemon");
    assert!(over.to_string().contains("no daemon"), "{over}");
    let mode = fs::metadata(&socket).expect("its file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let open = ground.dir.join("open");
    fs::create_dir(&open).expect("a directory");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
    let there = open.join("g.sock");
    let words = ["govern", "--control", there.to_str().expect("UTF-8"), &pid];
    let refused = run_to_end(clew().args(words), LONG);
    assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
    assert!(texts(&refused).contains("no clients at"), "{}", texts(&refused));
    client().order(&Request::Stop).expect("it ends");
    governor.object();
    assert!(governor.0.wait(LONG).success(), "{}", governor.0.errors());
    assert!(!socket.exists());
    assert_eq!(program.ask("sum"), sum);
    program.quit();
}

#[test]
fn what_a_daemon_manages_is_left_to_it() {
    if !can_run("govern::daemon", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("2GiB");
    let Some(ground) = Ground::beside_a_daemon("govern::daemon") else { return };
    let mut managed = fixture.run_touch("managed", PAGES, 50, 7);
    fixture.wait_resident("managed", PAGES * 4096 / 2);
    let (mut free, _) = ground.start("static", touch(&ground.static_touch(), PAGES));
    let sums = (managed.ask("sum"), free.ask("sum"));
    let (pids, socket) = ([managed.pid, free.pid].map(|pid| pid.to_string()), &fixture.socket);
    let socket = socket.to_str().expect("UTF-8");
    let words = ["--socket", socket, "--with-daemon", &pids[0], &pids[1]];
    let mut governor = ground.govern("32MiB", &words);
    let status = governor.wait_swapped(PAGES / 2);
    let governed: Vec<u64> = programs(&status).iter().map(|p| number(p, "pid")).collect();
    assert_eq!(governed, [u64::from(free.pid)], "{status:#}");
    assert!(governor.0.errors().contains("has an agent"), "{}", governor.0.errors());
    // All that the daemon's program has counts, and so all of the other is to leave.
    let used = &status["used"];
    assert!(number(used, "daemon_bytes") >= PAGES * 4096 / 2, "{status:#}");
    assert_eq!((managed.ask("sum"), free.ask("sum")), sums);
    // Without an agent it is governed.
    fixture.order(&Request::Stop);
    governor.wait("the other program", |status| programs(status).len() == 2);
    assert_eq!((managed.ask("sum"), free.ask("sum")), sums);
    governor.end();
    managed.quit();
    free.quit();
}

/// One of root's, in a session of somebody else's.
#[test]
fn an_execve_of_somebody_elses_that_does_not_end_holds_up_no_governor() {
    let test = "govern::others_execve";
    let Some(ground) = Ground::new(test, &[]) else { return };
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "no FUSE");
    }
    let mounted = ground.dir.join("mounted");
    fs::create_dir(&mounted).expect("a directory");
    let mut slow = Command::new(compile(&ground.dir, "slow_exec.c", &[]));
    slow.arg(&mounted);
    let mut governor = ground.govern("1GiB", &[&format!("--session={SOMEBODY}")]);
    governor.status();
    let (mut slow, _) = ground.start("slow", slow);
    slow.expect("exec", "stuck");
    // Somebody has begun: all are looked at.
    let is_held_up = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            for _ in 0..20 {
                Command::new("true").status().expect("true");
                governor.status();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let answers = poll(LONG / 2, || looks.is_finished().then_some(()));
        // Whoever is held up is not any more.
        slow.send("go on");
        slow.kill();
        looks.join().expect("it answers then");
        answers.is_none()
    });
    assert!(!is_held_up);
    governor.end();
}

#[test]
fn all_of_a_session_is_governed_and_nobody_else() {
    let Some(ground) = Ground::new("govern::session", &[]) else { return };
    let binary = ground.static_touch();
    for path in [ground.dir.path(), &binary] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("ours");
    }
    let of = |user: u32, name: &str| {
        let mut command = touch(&binary, PAGES);
        command.uid(user).process_group(0);
        ground.start(name, command).0
    };
    let session = format!("--session={SOMEBODY}");
    let mut governor = ground.govern("32MiB", &[&session]);
    assert_eq!(programs(&governor.status()).len(), 0);
    let mut theirs = [of(SOMEBODY, "first"), of(SOMEBODY, "second")];
    let mut roots = of(0, "roots");
    let sums: Vec<String> = theirs.iter_mut().map(|program| program.ask("sum")).collect();
    let status = governor.wait("two programs", |status| programs(status).len() == 2);
    assert_eq!(status["apps"].as_array().map(Vec::len), Some(2), "each is an app: {status:#}");
    let mut governed: Vec<u64> = programs(&status).iter().map(|p| number(p, "pid")).collect();
    governed.sort_unstable();
    let mut wanted: Vec<u64> = theirs.iter().map(|program| u64::from(program.pid)).collect();
    wanted.sort_unstable();
    assert_eq!(governed, wanted);
    governor.wait_swapped(PAGES);
    for (program, sum) in theirs.iter_mut().zip(&sums) {
        assert_eq!(&program.ask("sum"), sum);
    }
    assert!(roots.ask("sum").ends_with(" bad 0"));
    governor.end();
    let refused = run_to_end(clew().args(["govern", "--session=0"]), LONG);
    assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
    assert!(texts(&refused).contains("name the user"), "{}", texts(&refused));
    theirs.into_iter().for_each(Program::quit);
    roots.quit();
}

/// While nothing happens it wakes up every 100 ms, and for a client now and then; 16 MiB of its own at most.
#[test]
fn an_idle_governor_takes_next_to_nothing() {
    let Some(ground) = Ground::new("govern::idle", &[]) else { return };
    let binary = ground.static_touch();
    let (first, _) = ground.start("first", touch(&binary, PAGES));
    let (second, _) = ground.start("second", touch(&binary, PAGES));
    let pids = [first.pid.to_string(), second.pid.to_string()];
    let mut governor = ground.govern("1GiB", &[&pids[0], &pids[1]]);
    governor.wait("both programs", |status| programs(status).len() == 2);
    std::thread::sleep(SECOND * 2);
    let pid = governor.0.pid;
    let (before, began) = (wakes(pid), Instant::now());
    std::thread::sleep(SECOND * 10);
    let each_second = (wakes(pid) - before) as f64 / began.elapsed().as_secs_f64();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let resident =
        resident.and_then(|kib| kib.split_ascii_whitespace().next()?.parse::<u64>().ok());
    eprintln!("idle: wakes up {each_second:.1} times a second, {resident:?} KiB");
    assert!((1.0..=15.0).contains(&each_second), "it wakes up {each_second:.1} times a second");
    assert!(resident.is_some_and(|kib| kib <= 16 << 10), "{resident:?} KiB");
    governor.end();
    first.quit();
    second.quit();
}

/// How often threads of a process have waited for something.
fn wakes(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let of_thread = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    threads.flatten().map(of_thread).sum()
}

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

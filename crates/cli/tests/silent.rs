//! Agents that are silent, because they are stopped, or frozen together with their programs, before or
//! in the middle of an order: nobody else waits for them, nothing is lost, and they go on as before
//! when they are heard again. All with one worker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use clew_fixture::*;
use clew_live::control::client::Client;
use clew_live::control::protocol::Request;

const PAGES: u64 = 6144;
const BYTES: u64 = PAGES * 4096;

/// A daemon, a program that is to be silent and another one, and what they answer to "sum".
fn two(test: &str, scheme: &str) -> Option<(Fixture, [Program; 2], [String; 2])> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    let fixture =
        Fixture::start_configured("1GiB", scheme, "workers = 1\nmax-short-lives = 1000000\n");
    let mut programs = ["frozen", "other"].map(|name| fixture.run_touch(name, PAGES, 50, 4));
    let sums = [0, 1].map(|i| programs[i].ask("sum"));
    Some((fixture, programs, sums))
}

fn tell(pids: &[u32], name: &str) {
    for pid in pids {
        assert!(signal(*pid, name), "{pid} is gone");
    }
}

/// Asks for everything of an app to be taken out, and does not wait.
fn begin_swap_out(fixture: &Fixture, app: &str) -> std::thread::JoinHandle<()> {
    let (socket, order) = (fixture.socket.clone(), Request::SwapOut { app: app.to_string() });
    std::thread::spawn(move || {
        // Nobody may be there to answer.
        let _ = Client::connect(&socket).and_then(|mut c| c.order(&order));
    })
}

/// The other program goes out and comes back.
fn other_is_served(fixture: &Fixture, other: &mut Program, sum: &str) {
    fixture.swap_out_at_least("other", BYTES * 8 / 10);
    other.expect("sum", sum);
}

fn wait_managed(fixture: &Fixture, pid: u32) {
    let heard = poll(LONG, || fixture.process("frozen", pid).filter(|p| p.managed));
    assert!(heard.is_some(), "{:?}\n{}", fixture.app("frozen"), fixture.log());
}

/// A daemon that waits for a lock says so, and who has it.
#[test]
fn who_holds_a_daemons_lock_is_named() {
    if !can_run("silent::lock", &[]) {
        return;
    }
    let dir = TempDir::new();
    let (socket, log) = (dir.join("s"), dir.join("log"));
    let lock = fs::File::create(dir.join("s.lock")).expect("a file");
    lock.lock().expect("nobody else has it");
    let written = fs::File::create(&log).expect("a log");
    let mut daemon = Command::new(binary())
        .args(["daemon", "--scheme", "zram", "--budget", "64MiB", "--socket"])
        .arg(&socket)
        .stderr(written)
        .spawn()
        .expect("clew daemon starts");
    let expected = format!("s.lock is locked by process {}: waiting", std::process::id());
    let says = || fs::read_to_string(&log).expect("it is there").contains(&expected).then_some(());
    let said = poll(LONG, says);
    let serves = || Client::connect(&socket).is_ok().then_some(());
    let is_early = serves().is_some();
    lock.unlock().expect("it was ours");
    let began = poll(LONG, serves);
    let ordered = Client::connect(&socket).and_then(|mut c| c.order(&Request::Stop));
    let ended = wait_for_end(&mut daemon, LONG);
    let log = fs::read_to_string(&log).expect("it is there");
    assert!(said.is_some() && !is_early && began.is_some() && ordered.is_ok(), "{ordered:?} {log}");
    assert!(ended.is_some_and(|status| status.success()), "{ended:?} {log}");
}

#[test]
fn a_stopped_agent_holds_up_nobody_and_takes_nothing_late() {
    let Some((mut fixture, [mut program, mut other], sums)) = two("silent::stopped", "zram") else {
        return;
    };
    let agent = program.agent();
    for round in 0..2 {
        tell(&[agent], "STOP");
        fixture.swap_out("frozen");
        let process = fixture.process("frozen", program.pid).expect("it is listed");
        assert!(!process.managed && process.reason.contains("silent"), "{process:?}");
        other_is_served(&fixture, &mut other, &sums[1]);
        // Its faults are served, and it may change its mappings: the pages that it was asked for are
        // still there when the agent goes on, and then they are elsewhere.
        program.expect("touch seq", &format!("touched {PAGES} bad 0"));
        if round == 1 {
            program.expect("move", "moved");
        }
        program.expect(&format!("drop {} 500", 5000 - round * 1000), "dropped 500");
        program.expect("write 1000 7", "wrote 1000");
        let sum = program.ask("sum");
        assert!(sum.ends_with(" bad 0"), "{sum}");
        // The order that it was given long ago is still there when it goes on.
        tell(&[agent], "CONT");
        wait_managed(&fixture, program.pid);
        program.expect("sum", &sum);
        fixture.swap_out_at_least("frozen", BYTES * 6 / 10);
        program.expect("sum", &sum);
        program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    }
    program.quit();
    other.quit();
    fixture.wait_all_freed("frozen");
    fixture.assert_daemon_lives();
}

#[test]
fn frozen_at_any_moment_it_loses_nothing() {
    let Some((mut fixture, [mut program, mut other], sums)) = two("silent::frozen", "ariadne")
    else {
        return;
    };
    let frozen = [program.agent(), program.pid];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_end = SetAtEnd(&over);
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let _ = fixture.try_swap_out("frozen"); // looked at below
            }
        });
        for round in 0..8u64 {
            program.send(&format!("touch random 20000 {round}"));
            sleep(Duration::from_millis(round * 7 % 40));
            tell(&frozen, "STOP");
            other_is_served(&fixture, &mut other, &sums[1]);
            if round == 3 {
                // Longer than anybody waits for an order that is not begun.
                sleep(Duration::from_millis(2500));
                other_is_served(&fixture, &mut other, &sums[1]);
            }
            tell(&frozen, "CONT");
            assert_eq!(program.read(LONG), "touched 20000 bad 0", "{}", program.report());
        }
    });
    program.expect("sum", &sums[0]);
    wait_managed(&fixture, program.pid);
    fixture.swap_out_at_least("frozen", BYTES * 8 / 10);
    program.expect("sum", &sums[0]);
    program.quit();
    other.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn a_successor_does_not_wait_for_the_frozen() {
    let Some((mut fixture, [mut program, mut other], sums)) = two("silent::successor", "zram")
    else {
        return;
    };
    let frozen = [program.agent(), program.pid];
    for round in 0..3u64 {
        // Without an order, with one that is not begun, with one that may be.
        match round {
            0 => tell(&frozen, "STOP"),
            1 => {
                tell(&frozen, "STOP");
                begin_swap_out(&fixture, "frozen");
                sleep(Duration::from_millis(300));
            }
            _ => {
                begin_swap_out(&fixture, "frozen");
                sleep(Duration::from_millis(round));
                tell(&frozen, "STOP");
            }
        }
        fixture.kill_daemon();
        fixture.start_successor(&[]);
        other_is_served(&fixture, &mut other, &sums[1]);
        tell(&frozen, "CONT");
        program.expect("sum", &sums[0]);
        wait_managed(&fixture, program.pid);
        fixture.swap_out_at_least("frozen", BYTES * 8 / 10);
        program.expect("sum", &sums[0]);
    }
    program.quit();
    other.quit();
    fixture.assert_daemon_lives();
}

/// So many hostile programs whose agents will begin the order that they are given, and say nothing more.
fn begin_and_never_end(fixture: &Fixture, count: usize) -> Vec<Child> {
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let steps = include_str!("../../../tests/corpus/agents/begun-order");
    let steps = steps.lines().chain(["wait 999"; 600]).collect::<Vec<_>>().join("\n");
    let script = fixture.dir.join("begun-order");
    std::fs::write(&script, steps.replace("recv 500", "recv 999") + "\n").expect("a script");
    let hostile = (0..count).map(|_| fixture.start_hostile(&binary, &script)).collect();
    let known = poll(LONG, || (fixture.app("hostile").processes.len() == count).then_some(()));
    assert!(known.is_some(), "{:?}\n{}", fixture.app("hostile"), fixture.log());
    hostile
}

#[test]
fn agents_that_begin_and_never_end_hold_up_nobody() {
    let Some((mut fixture, [program, mut other], sums)) = two("silent::begun", "zram") else {
        return;
    };
    let mut hostile = begin_and_never_end(&fixture, 4);
    let asked = begin_swap_out(&fixture, "hostile");
    // They have begun, and say nothing more.
    sleep(Duration::from_millis(2500));
    let app = fixture.app("hostile");
    assert!(app.processes.iter().any(|p| p.managed), "{app:?}\n{}", fixture.log());
    for _ in 0..3 {
        other_is_served(&fixture, &mut other, &sums[1]);
    }
    hostile.iter_mut().for_each(kill_tree);
    asked.join().expect("it is answered or refused");
    other_is_served(&fixture, &mut other, &sums[1]);
    program.quit();
    other.quit();
    fixture.wait_all_freed("hostile");
    fixture.assert_daemon_lives();
}

#[test]
fn strangers_that_say_nothing_more_hold_up_nobody() {
    let Some((mut fixture, [program, mut other], sums)) = two("silent::strangers", "zram") else {
        return;
    };
    program.quit();
    let binary = compile(&fixture.dir, "hostile.c", &[]);
    let script = fixture.dir.join("silent");
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/agents/silent-manage");
    let hello = std::fs::read_to_string(hello).expect("a script");
    std::fs::write(&script, hello + &"wait 999\n".repeat(99)).expect("a script");
    let waits = || {
        let listed = fixture.app("hostile").processes;
        listed.iter().any(|p| p.reason == "being prepared")
    };
    // Each is waited for for a while: whatever is done meanwhile does not wait for it.
    let mut silent = Vec::new();
    let mut meanwhile = |what: &mut dyn FnMut()| {
        let done = poll(LONG, || {
            silent.push(fixture.start_hostile(&binary, &script));
            poll(LONG, || waits().then_some(()))?;
            what();
            waits().then_some(())
        });
        assert!(done.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    };
    // The one worker takes pages out.
    meanwhile(&mut || other_is_served(&fixture, &mut other, &sums[1]));
    // Somebody else is managed.
    meanwhile(&mut || fixture.run_touch("late", PAGES, 50, 4).quit());
    silent.iter_mut().for_each(kill_tree);
    fixture.assert_daemon_lives();
}

/// Every page is back, and nobody is there to answer for fresh ones: its agent still has the userfaultfd.
#[test]
fn a_program_whose_agent_is_stopped_when_the_daemon_ends_waits_for_nobody() {
    let Some((mut fixture, [mut program, _other], sums)) = two("silent::stop", "zram") else {
        return;
    };
    fixture.swap_out_at_least("frozen", BYTES * 8 / 10);
    let agent = program.agent();
    tell(&[agent], "STOP");
    let stopped = fixture.verb(&["stop"]);
    assert!(stopped.status.success(), "{}", texts(&stopped));
    fixture.wait_daemon(LONG);
    program.expect("sum", &sums[0]);
    program.expect("drop 1000 500", "dropped 500");
    program.expect("write 4000 7", "wrote 4000");
    program.expect("move", "moved");
    let sum = program.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    program.expect("fork-sum", &format!("fork-{sum}"));
    // It ends when it goes on.
    tell(&[agent], "CONT");
    let ended = poll(LONG, || (!is_alive(agent)).then_some(()));
    assert!(ended.is_some(), "{}", program.report());
    program.quit();
}

/// An agent that is stopped does not see that its program has ended, and would keep its memory.
#[test]
fn a_stopped_agent_does_not_outlive_its_program() {
    let Some((mut fixture, [mut program, mut other], sums)) = two("silent::outlived", "zram")
    else {
        return;
    };
    let agent = program.agent();
    tell(&[agent], "STOP");
    tell(&[program.pid], "KILL");
    program.wait(LONG);
    let ended = poll(LONG, || (!is_alive(agent)).then_some(()));
    assert!(ended.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    fixture.wait_all_freed("frozen");
    other_is_served(&fixture, &mut other, &sums[1]);
    other.quit();
    fixture.assert_daemon_lives();
}

/// A program puts memory that is managed where its agent has its buffer. The agent waits there for a page, while the worker waits
/// for it and keeps the program's events: for ever. Neither the end of the program nor that of the daemon waits for it.
#[test]
fn an_agent_that_waits_for_its_own_page_holds_up_no_end() {
    for ends in ["program", "daemon"] {
        let Some((mut fixture, [program, mut other], sums)) = two("silent::own page", "zram")
        else {
            return;
        };
        program.quit();
        let binary = compile(&fixture.dir, "replaces.c", &[]);
        let words = [binary.to_str().expect("UTF-8")];
        let mut programs = [0; 4].map(|_| fixture.run("replaces", &words));
        programs.iter_mut().for_each(Program::wait_ready);
        // One that is not killed for what it has done to itself. Nobody waits for an order that does not end.
        let waits = poll(LONG, || {
            drop(begin_swap_out(&fixture, "replaces"));
            sleep(Duration::from_millis(100));
            programs.iter().find(|p| holds_up(p.pid)).map(|_| ())
        });
        assert!(waits.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
        other_is_served(&fixture, &mut other, &sums[1]);
        if ends == "program" {
            for program in &mut programs {
                let _ = signal(program.pid, "KILL");
                program.wait(LONG);
            }
            other_is_served(&fixture, &mut other, &sums[1]);
            other.quit();
            fixture.wait_all_freed("replaces");
            fixture.assert_daemon_lives();
        } else {
            let stopped = fixture.verb(&["stop"]);
            assert!(stopped.status.success(), "{}\n{}", texts(&stopped), fixture.log());
            fixture.wait_daemon(LONG);
            other.expect("sum", &sums[1]);
            other.quit();
        }
    }
}

/// A control group that freezes who is in it, until it is dropped.
struct Freezer(PathBuf);

impl Freezer {
    fn freeze(pids: &[u32]) -> Option<Freezer> {
        let group = format!("/sys/fs/cgroup/freezer/clew-test-{}", std::process::id());
        fs::create_dir(&group).ok()?;
        let freezer = Freezer(group.into());
        for pid in pids {
            fs::write(freezer.0.join("cgroup.procs"), pid.to_string()).expect("it lives");
        }
        fs::write(freezer.0.join("freezer.state"), "FROZEN").expect("a freezer");
        let state = || fs::read_to_string(freezer.0.join("freezer.state")).expect("a freezer");
        let frozen = poll(LONG, || (state() == "FROZEN\n").then_some(()));
        frozen.expect("it freezes");
        Some(freezer)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let _ = poll(LONG, || fs::remove_dir(&self.0).ok());
    }
}

/// An agent that was killed and cannot die yet: it is frozen. (So it is where it waits for a file system of its user's.)
#[test]
fn an_agent_that_cannot_die_holds_up_no_end() {
    let Some((mut fixture, [program, mut other], sums)) = two("silent::cannot die", "zram") else {
        return;
    };
    let mut hostile = begin_and_never_end(&fixture, 1).remove(0);
    drop(begin_swap_out(&fixture, "hostile"));
    // It has begun, and says nothing more.
    sleep(Duration::from_millis(2500));
    let Some(freezer) = Freezer::freeze(&descendants(hostile.id())) else {
        kill_tree(&mut hostile);
        skip("silent::an_agent_that_cannot_die_holds_up_no_end", "no freezer (control groups 1)");
        return;
    };
    let stopped = fixture.verb(&["stop"]);
    assert!(stopped.status.success(), "{}\n{}", texts(&stopped), fixture.log());
    fixture.wait_daemon(LONG);
    drop(freezer);
    kill_tree(&mut hostile);
    other.expect("sum", &sums[1]);
    other.quit();
    program.quit();
}

/// Whether the agent of this process waits for a page of a userfaultfd, and goes on doing so.
fn holds_up(pid: u32) -> bool {
    let waits = |agent: &u32| {
        let at = || fs::read_to_string(format!("/proc/{agent}/wchan"));
        let is_there = || at().is_ok_and(|at| at == "handle_userfault");
        is_there() && poll(Duration::from_millis(500), || (!is_there()).then_some(())).is_none()
    };
    agents_of(pid).iter().any(waits)
}

/// A daemon with one worker, and a program that serves a file itself; `None` where that cannot be tried.
fn with_fuse(test: &str, source: &str) -> Option<(Fixture, PathBuf)> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    if !Path::new("/dev/fuse").exists() {
        skip(test, "no FUSE");
        return None;
    }
    let fixture = Fixture::start_configured("1GiB", "zram", "workers = 1\n");
    let binary = compile(&fixture.dir, source, &[]);
    Some((fixture, binary))
}

/// Starts such a program. As soon as there is a file of the name that is told with it, it answers.
fn serving_itself(fixture: &Fixture, binary: &Path) -> (Program, PathBuf) {
    let (mounted, go) = (fixture.dir.join("mounted"), fixture.dir.join("go"));
    std::fs::create_dir(&mounted).expect("a directory");
    let words = [binary, &mounted, &go].map(|path| path.to_str().expect("UTF-8"));
    let mut program = fixture.run("slow", &words);
    program.wait_ready();
    (program, go)
}

/// A program with a list of robust mutexes that leads to a page of a file of its own, which a worker waits for; and another one.
struct Slow {
    fixture: Fixture,
    program: Program,
    own_sum: String,
    other: Program,
    sum: String,
    order: std::thread::JoinHandle<()>,
    /// As soon as there is such a file it answers.
    go: PathBuf,
}

impl Slow {
    /// `None` where that cannot be tried.
    fn begin(test: &str) -> Option<Slow> {
        let (fixture, binary) = with_fuse(test, "slow_list.c")?;
        let (mut program, go) = serving_itself(&fixture, &binary);
        let mut other = fixture.run_touch("other", PAGES, 50, 4);
        let (own_sum, sum) = (program.ask("sum"), other.ask("sum"));
        let order = begin_swap_out(&fixture, "slow");
        program.wait_line("stuck", LONG);
        Some(Slow { fixture, program, own_sum, other, sum, order, go })
    }

    fn other_is_served(&mut self) {
        other_is_served(&self.fixture, &mut self.other, &self.sum);
    }

    /// It answers, and everything is as it was.
    fn end(mut self) {
        std::fs::write(&self.go, "").expect("a file");
        self.order.join().expect("it asks");
        self.fixture.swap_out_at_least("slow", BYTES / 2);
        self.program.expect("sum", &self.own_sum);
        self.other.quit();
        self.program.kill();
        self.fixture.assert_daemon_lives();
    }
}

/// The daemon is killed while it waits for that memory, and does not end.
#[test]
fn a_daemon_that_waits_for_memory_that_comes_late_is_succeeded() {
    let test = "silent::a_daemon_that_waits_for_memory_that_comes_late_is_succeeded";
    let Some(mut slow) = Slow::begin(test) else { return };
    slow.fixture.swap_out_at_least("other", BYTES * 8 / 10);
    tell(&[slow.fixture.daemon_pid()], "KILL");
    let mut before = slow.fixture.start_beside(&[]);
    assert!(matches!(before.try_wait(), Ok(None)), "the last one has a thread that waits");
    slow.other.expect("sum", &slow.sum);
    slow.other_is_served();
    slow.end();
    wait_for_end(&mut before, LONG).expect("it ends now");
}

/// The daemon reads the list of what a thread has locked, and that leads to a page of a file whose server does not answer.
#[test]
fn memory_that_comes_late_holds_up_nobody() {
    let test = "silent::memory_that_comes_late_holds_up_nobody";
    let Some(mut slow) = Slow::begin(test) else { return };
    for _ in 0..2 {
        slow.other_is_served();
    }
    slow.end();
}

/// Somebody else reads, out of the memory of a program, a page of a file whose server does not answer: until then the kernel
/// has that memory locked. Whoever registers new memory of it waits, and has its space's lock meanwhile.
#[test]
fn memory_that_another_has_locked_holds_up_nobody() {
    let test = "silent::memory_that_another_has_locked_holds_up_nobody";
    let Some((mut fixture, binary)) = with_fuse(test, "locked_memory.c") else { return };
    let (mut program, go) = serving_itself(&fixture, &binary);
    // One for each fault thread at least.
    let names = ["first", "second", "third", "fourth"];
    let mut others = names.map(|name| fixture.run_touch(name, PAGES / 4, 50, 4));
    let sums = others.each_mut().map(|other| other.ask("sum"));
    fixture.swap_out_at_least("slow", BYTES / 2);
    program.send("lock");
    program.wait_line("stuck", LONG);
    program.expect("fill", "filled");
    let order = begin_swap_out(&fixture, "slow");
    let waits = || threads_that_wait_for_a_lock(fixture.daemon_pid());
    let is_worker = |name: &String| name.starts_with("worker");
    poll(LONG, || waits().iter().any(is_worker).then_some(())).expect("it is registered");
    // It faults on what is stored of it.
    program.send("sum");
    for _ in 0..3 {
        for ((name, other), sum) in names.iter().zip(&mut others).zip(&sums) {
            fixture.swap_out_at_least(name, BYTES / 5);
            other.expect("sum", sum);
        }
    }
    // Several times, as they may look at any time; "outside" reads for status alone what is not managed.
    let may_wait = |name: &String| is_worker(name) || name.starts_with("outside");
    for _ in 0..20 {
        let waits = waits();
        assert!(waits.iter().all(may_wait), "{waits:?}");
        sleep(Duration::from_millis(50));
    }
    std::fs::write(&go, "").expect("a file");
    let own_sum = program.read(LONG);
    order.join().expect("it asks");
    fixture.swap_out_at_least("slow", BYTES);
    program.expect("sum", &own_sum);
    others.into_iter().for_each(Program::quit);
    program.kill();
    fixture.assert_daemon_lives();
}

/// Threads of the daemon that wait for a lock of the kernel's, as that of a program's memory.
fn threads_that_wait_for_a_lock(daemon: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{daemon}/task")).expect("it lives");
    let name = |thread: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        read("status").contains("State:\tD").then(|| read("comm"))
    };
    threads.flatten().filter_map(name).collect()
}

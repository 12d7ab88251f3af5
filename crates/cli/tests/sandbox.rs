//! Programs that shut themselves in. The agent is a process of its own: what a program forbids
//! itself is not forbidden to it. Where there can be no agent, the program runs as without Clew.

use std::fs;
use std::process::Command;

use clew_fixture::*;

const PAGES: u64 = 6144;
const BYTES: u64 = PAGES * 4096;

/// Numbers of system calls: how an agent is started, and how it gets its userfaultfd.
const STARTS: [u32; 3] = [56, 435, 323]; // clone, clone3, userfaultfd
const IOCTL: u32 = 16;
/// How it gives up its privileges.
const CAPSET: u32 = 126;
const SECCOMP: u32 = 317;

/// What the kernel says of an agent.
const SHUT_IN: [&str; 5] = [
    "CapInh:\t0000000000000000",
    "CapPrm:\t0000000000000000",
    "CapEff:\t0000000000000000",
    "NoNewPrivs:\t1",
    "Seccomp:\t2",
];

/// A daemon that manages nothing before it is asked.
fn managing_later() -> Fixture {
    Fixture::start_configured(
        "1GiB",
        "zram",
        "min-process = \"512MiB\"
",
    )
}

fn run(fixture: &Fixture, words: &[&str]) -> Program {
    let binary = compile(&fixture.dir, "touch.c", &[]);
    let pages = PAGES.to_string();
    let mut all = words.to_vec();
    all.extend([binary.to_str().expect("UTF-8"), &pages, "50", "9"]);
    fixture.run("touch", &all)
}

fn forbid(program: &mut Program, numbers: &[u32]) {
    for number in numbers {
        program.expect(&format!("forbid {number}"), &format!("forbidden {number}"));
    }
}

/// Everything goes out and comes back right.
fn swaps(fixture: &Fixture, program: &mut Program, sum: &str) {
    for round in 0..2 {
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
        program.expect(&format!("touch random 2000 {round}"), "touched 2000 bad 0");
        fixture.swap_out("touch");
        program.expect("sum", sum);
    }
    works(program);
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    works(program);
}

/// What it writes is what it reads.
fn works(program: &mut Program) {
    program.expect("write 1000 4", "wrote 1000");
    program.expect("poke 1000 5", "poked 1000");
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
}

/// Nothing of it is out, it works, and it ends well.
fn stays_whole(fixture: &mut Fixture, mut program: Program, sum: &str) {
    assert_eq!(fixture.status().pool.stored_pages, 0);
    assert!(rss_anon(program.pid) >= BYTES, "{} resident", rss_anon(program.pid));
    program.expect("sum", sum);
    works(&mut program);
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn a_filter_of_the_program_is_none_of_its_agent() {
    if !can_run("sandbox::a_filter_of_the_program_is_none_of_its_agent", &["cc"]) {
        return;
    }
    let mut fixture = managing_later();
    // Once before the program is managed, once while its pages are out.
    for managed in [false, true] {
        let mut program = run(&fixture, &[]);
        program.wait_ready();
        let sum = program.ask("sum");
        if managed {
            fixture.swap_out_at_least("touch", BYTES * 8 / 10);
        }
        let before = fixture.process("touch", program.pid).expect("it is listed");
        assert_eq!(before.managed, managed, "{before:?}");
        forbid(&mut program, &STARTS);
        forbid(&mut program, &[IOCTL]);
        swaps(&fixture, &mut program, &sum);
        let after = fixture.process("touch", program.pid).expect("it is listed");
        assert!(after.managed && after.reason.is_empty(), "{after:?}");
        program.quit();
        fixture.wait_all_freed("touch");
    }
    fixture.assert_daemon_lives();
}

#[test]
fn under_a_filter_no_agent_starts() {
    if !can_run("sandbox::under_a_filter_no_agent_starts", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = run(&fixture, &[]);
    program.wait_ready();
    fixture.wait_resident("touch", BYTES * 9 / 10);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    forbid(&mut program, &STARTS);
    program.send("exec");
    program.wait_ready();
    // What the old image had stored is freed; of the new one nothing goes out.
    fixture.wait_all_freed("touch");
    let _ = fixture.try_swap_out("touch"); // refused: nobody said hello
    let listed = fixture.process("touch", program.pid);
    assert!(listed.is_none_or(|p| !p.managed && !p.reason.is_empty()), "{:?}", fixture.status());
    stays_whole(&mut fixture, program, &sum);
}

#[test]
fn an_agent_that_cannot_prepare_says_so() {
    if !can_run("sandbox::an_agent_that_cannot_prepare_says_so", &["cc"]) {
        return;
    }
    let mut fixture = managing_later();
    let mut program = run(&fixture, &[]);
    program.wait_ready();
    let sum = program.ask("sum");
    forbid(&mut program, &[IOCTL]);
    program.send("exec"); // its agent inherits the filter
    program.wait_ready();
    fixture.swap_out("touch");
    // What was listed of the old image goes a moment later.
    let says = "its agent says: opening a userfaultfd";
    let listed = poll(LONG, || {
        let listed = fixture.process("touch", program.pid)?;
        (!listed.managed && listed.reason.starts_with(says)).then_some(())
    });
    assert!(listed.is_some(), "{:?}", fixture.status());
    stays_whole(&mut fixture, program, &sum);
}

#[test]
fn an_agent_that_cannot_shut_itself_in_is_none() {
    if !can_run("sandbox::an_agent_that_cannot_shut_itself_in_is_none", &["cc"]) {
        return;
    }
    let mut fixture = managing_later();
    for number in [CAPSET, SECCOMP] {
        let mut program = run(&fixture, &[]);
        program.wait_ready();
        let sum = program.ask("sum");
        forbid(&mut program, &[number]);
        program.send("exec"); // its agent inherits the filter
        program.wait_ready();
        assert_eq!(agents_of(program.pid), [0; 0], "without {number}");
        stays_whole(&mut fixture, program, &sum);
    }
}

/// A program that would be killed for what it never calls itself, and what is preloaded would: by prctl(2) the kernel would
/// say whether there is a filter. So what is preloaded has to know.
#[test]
fn who_filters_its_calls_is_killed_for_none_of_ours() {
    const FSTAT: u32 = 5;
    const PRCTL: u32 = 157;
    if !can_run("sandbox::who_filters_its_calls_is_killed_for_none_of_ours", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    for number in [PRCTL, FSTAT] {
        let mut program = run(&fixture, &[]);
        program.wait_ready();
        fixture.wait_resident("touch", BYTES * 9 / 10);
        let sum = program.ask("sum");
        program.expect(&format!("deadly {number}"), &format!("deadly {number}"));
        for _ in 0..3 {
            program.expect("fork-sum", &format!("fork-{sum}"));
        }
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
        program.expect("sum", &sum);
        program.quit();
        fixture.wait_all_freed("touch");
    }
    fixture.assert_daemon_lives();
}

/// A program that has locked all that it had, the place of its agent's memory included, before it is managed: what it maps later
/// leaves, as pages move from memory that is not locked to such only.
#[test]
fn what_a_program_has_locked_before_keeps_nothing_else_from_leaving() {
    let test = "sandbox::what_a_program_has_locked_before_keeps_nothing_else_from_leaving";
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = managing_later();
    let binary = compile(&fixture.dir, "locks_all.c", &[]);
    let mut program = fixture.run("locks", &[binary.to_str().expect("UTF-8")]);
    program.wait_ready();
    fixture.swap_out_at_least("locks", BYTES * 8 / 10);
    program.expect("check", "bad 0");
    program.quit();
    fixture.wait_all_freed("locks");
    fixture.assert_daemon_lives();
}

/// In a whole session nobody has asked for an agent of this program: it begins under a filter that kills for what starting one
/// takes, and is left alone.
#[test]
fn who_begins_under_a_filter_in_a_session_is_left_alone() {
    const PIDFD_OPEN: u32 = 434;
    if !can_run("sandbox::who_begins_under_a_filter_in_a_session_is_left_alone", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let list = fixture.dir.join("except");
    fs::write(&list, "# nobody\n").expect("a list");
    let set = format!("CLEW_EXCEPT={}", list.to_str().expect("UTF-8"));
    let mut program = run(&fixture, &["env", &set]);
    program.wait_ready();
    fixture.wait_resident("touch", BYTES * 9 / 10);
    let sum = program.ask("sum");
    program.expect(&format!("deadly {PIDFD_OPEN}"), &format!("deadly {PIDFD_OPEN}"));
    program.send("exec");
    program.wait_ready();
    program.expect("sum", &sum);
    assert_eq!(agents_of(program.pid), [0; 0]);
    program.expect("fork-sum", &format!("fork-{sum}"));
    program.quit();
    fixture.assert_daemon_lives();
}

/// What an agent may do, its program may do, which can write its memory: also when it is another user's
/// by then. So there is no moment at which it has more.
#[test]
fn an_agent_is_shut_in_before_its_program_goes_on() {
    if !can_run("sandbox::an_agent_is_shut_in_before_its_program_goes_on", &["cc"]) {
        return;
    }
    // Nothing is managed, so no agent is ever asked to prepare.
    let mut fixture = managing_later();
    let mut program = run(&fixture, &[]);
    program.wait_ready();
    let shut_in = |pid: u32| {
        let agents = agents_of(pid);
        assert_eq!(agents.len(), 1, "agents of {pid}");
        let status = fs::read_to_string(format!("/proc/{}/status", agents[0])).expect("it lives");
        for line in SHUT_IN {
            assert!(status.lines().any(|found| found == line), "no {line} in\n{status}");
        }
    };
    shut_in(program.pid);
    let answer = program.ask("fork-keep");
    let child = answer.strip_prefix("child ").and_then(|pid| pid.parse().ok());
    // It goes on when its fork has returned there.
    program.ask("child sum");
    shut_in(child.unwrap_or_else(|| panic!("{answer}")));
    program.expect("child quit", "child ended");
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn an_agent_has_nothing_that_it_does_not_need() {
    if !can_run("sandbox::an_agent_has_nothing_that_it_does_not_need", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = run(&fixture, &[]);
    program.wait_ready();
    fixture.wait_resident("touch", BYTES * 9 / 10);
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    let agent = program.agent();
    let status = fs::read_to_string(format!("/proc/{agent}/status")).expect("it lives");
    // What it was prepared by it has given up, too.
    for line in SHUT_IN.into_iter().chain(["Seccomp_filters:\t2"]) {
        assert!(status.lines().any(|found| found == line), "no {line} in\n{status}");
    }
    // Its socket, its end of a pipe, its program and its userfaultfd: no memory of the daemon's.
    let files = fs::read_dir(format!("/proc/{agent}/fd")).expect("it lives").flatten();
    let files = files.map(|file| fs::read_link(file.path()).expect("it is open"));
    let mut files: Vec<String> = files.map(|to| to.to_string_lossy().into_owned()).collect();
    files.sort();
    let kinds: Vec<&str> =
        files.iter().map(|to| to.split_inclusive(':').next().expect("a kind")).collect();
    assert_eq!(kinds, ["anon_inode:", "anon_inode:", "pipe:", "socket:"], "{files:?}");
    program.quit();
    fixture.assert_daemon_lives();
}

/// What checks that nothing is preloaded before it is told not to mind.
#[test]
fn a_program_with_a_sanitizer_runs() {
    let test = "sandbox::a_program_with_a_sanitizer_runs";
    if !can_run(test, &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let source = dir.join("clean.c");
    std::fs::write(&source, "int main(void) { return 7; }\n").expect("a source");
    let binary = dir.join("clean");
    let mut cc = std::process::Command::new("cc");
    cc.arg("-fsanitize=address").arg(&source).arg("-o").arg(&binary);
    if !cc.output().is_ok_and(|output| output.status.success()) {
        return skip(test, "the compiler has no AddressSanitizer");
    }
    let fixture = Fixture::start("1GiB");
    for said in [None, Some("abort_on_error=0")] {
        let mut command = fixture.run_command("clean", &[&binary]);
        command.env_remove("ASAN_OPTIONS").envs(said.map(|said| ("ASAN_OPTIONS", said)));
        let output = run_to_end(&mut command, LONG);
        assert_eq!(output.status.code(), Some(7), "{}", texts(&output));
    }
}

#[test]
fn namespaces_of_its_own() {
    let test = "sandbox::namespaces_of_its_own";
    if !can_run(test, &["cc", "unshare"]) {
        return;
    }
    let may = run_to_end(Command::new("unshare").args(["-Urpf", "true"]), LONG);
    if !may.status.success() {
        return skip(test, &format!("it may not have namespaces: {}", texts(&may)));
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = run(&fixture, &["unshare", "-Urpf"]);
    // There it is process 1. Here that is somebody else, whom nobody here may end.
    assert_eq!(program.read(LONG), "pid 1", "{}", program.report());
    assert_eq!(program.read(LONG), "ready", "{}", program.report());
    fixture.wait_resident("touch", BYTES * 9 / 10);
    let sum = program.ask("sum");
    swaps(&fixture, &mut program, &sum);
    fixture.swap_out("touch");
    let forked = program.ask("fork-sum");
    let program_sum = program.ask("sum");
    assert_eq!(forked, format!("fork-{program_sum}"));
    // A child there has two numbers, and its agent two of its own.
    let answer = program.ask("fork-keep");
    assert!(answer.starts_with("child "), "{answer}");
    let managed = poll(LONG, || {
        fixture.swap_out("touch");
        let app = fixture.app("touch");
        let inside = app.processes.iter().filter(|p| p.command == "touch" && p.managed).count();
        (inside == 2).then_some(())
    });
    assert!(managed.is_some(), "{:?}\n{}", fixture.app("touch"), fixture.log());
    program.expect("child sum", &program_sum);
    program.expect("child quit", "child ended");
    let app = fixture.app("touch");
    // The child that has ended may not be forgotten yet.
    let living = descendants(program.pid);
    let listed = app.processes.iter().find(|p| p.command == "touch" && living.contains(&p.pid));
    let listed = listed.unwrap_or_else(|| panic!("not listed: {app:?}\n{}", fixture.log()));
    assert!(listed.managed && listed.reason.is_empty(), "{listed:?}");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// The first child of a process that has asked for a pid namespace is what keeps that alive: the agent must not be it, also where
/// there is no /proc that tells.
#[test]
fn who_forks_into_a_namespace_of_its_own_without_proc_can_go_on() {
    const TEST: &str = "sandbox::without_proc";
    if !can_run(TEST, &["cc", "unshare", "umount"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let alone = "umount -l /proc && exec unshare -p \"$@\"";
    let words = ["unshare", "-m", "--propagation", "private", "sh", "-c", alone, "sh"];
    let mut program = run(&fixture, &words);
    program.wait_ready();
    let sum = program.ask("sum");
    let child = program.ask("fork-keep");
    assert!(child.starts_with("child "), "{child}");
    program.expect("fork-sum", &format!("fork-{sum}"));
    program.expect("fork-sum", &format!("fork-{sum}"));
    program.quit();
}

/// Programs know which number the next file that they open has.
#[test]
fn who_may_have_few_descriptors_has_the_lowest_ones() {
    if !can_run("sandbox::descriptors", &["python3"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let opens = "import os; print(*[os.open('/dev/null', os.O_RDONLY) for _ in range(3)])";
    for most in ["40", "100", "400", "4000"] {
        let limited = format!("ulimit -n {most}; exec python3 -c \"$0\"");
        let mut program = fixture.run("opens", &["sh", "-c", &limited, opens]);
        assert_eq!(program.rest(LONG), ["3 4 5"], "of {most}: {}", program.errors());
    }
}

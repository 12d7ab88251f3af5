//! Programs that wait for whatever there is, debug each other, or look after orphans: nothing of
//! Clew's is among what they find.

use std::fs;

use clew_fixture::*;

/// Runs it under the daemon to its end, which must be a good one; what it printed.
fn output(fixture: &Fixture, words: &[&str]) -> String {
    let output = run_to_end(&mut fixture.run_command("waits", words), LONG);
    assert!(output.status.success(), "{words:?}: {}\n{}", texts(&output), fixture.log());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A daemon, and tests/programs/waits.c.
fn waits(test: &str) -> Option<(Fixture, String)> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    let fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "waits.c", &[]);
    let binary = binary.to_str().expect("UTF-8").to_string();
    Some((fixture, binary))
}

#[test]
fn a_parent_finds_its_children_and_no_more() {
    let Some((mut fixture, waits)) = waits("waits::a_parent_finds_its_children_and_no_more") else {
        return;
    };
    for mode in ["wall", "plain"] {
        assert_eq!(
            output(&fixture, &[&waits, mode]),
            "found 1 own 1 of 1\nsubreaper 0\n",
            "{mode}"
        );
        // It stays one over execve, and so it was when the agent was started.
        let said = output(&fixture, &[&waits, "exec", mode]);
        assert!(said.ends_with("own 1 of 1\nsubreaper 1\n"), "{mode}: {said}");
    }
    assert_eq!(output(&fixture, &[&waits, "storm"]), "found 200 own 200 of 200\nsubreaper 0\n");
    fixture.assert_daemon_lives();
}

/// The agents of its children are orphans like others: it finds them when they end, and they do.
#[test]
fn a_subreaper_comes_to_an_end() {
    let Some((mut fixture, waits)) = waits("waits::a_subreaper_comes_to_an_end") else { return };
    for words in [&[waits.as_str(), "reaper"][..], &[&waits, "exec", "reaper"]] {
        let said = output(&fixture, words);
        assert!(said.ends_with("own 8 of 8\ntold 16\nsubreaper 1\n"), "{said}");
    }
    fixture.assert_daemon_lives();
}

/// The next program says nothing to the daemon, and the agent of one of root's cannot tell by itself.
#[test]
fn an_agent_ends_when_its_program_becomes_one_without() {
    if !can_run("waits::an_agent_ends_when_its_program_becomes_one_without", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    // Names this test's in the memory that the agent shares.
    let long = format!("100000.{}", std::process::id());
    let script = format!("read go; unset LD_PRELOAD; exec sleep {long}");
    let mut program = fixture.run("sh", &["sh", "-c", &script]);
    let waits = poll(LONG, || fixture.process("sh", program.pid));
    assert!(waits.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    program.send("go");
    let of_sh = || {
        processes().into_iter().find(|pid| {
            let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            let words = format!("sh\0-c\0{script}\0");
            read("comm") == b"clew-agent\n" && read("cmdline") == words.as_bytes()
        })
    };
    let sleeps = poll(LONG, || {
        let comm = fs::read_to_string(format!("/proc/{}/comm", program.pid)).unwrap_or_default();
        (comm == "sleep\n").then_some(())
    });
    assert!(sleeps.is_some(), "{}", program.report());
    let ended = poll(LONG, || of_sh().is_none().then_some(()));
    assert!(ended.is_some(), "agent {:?}\n{}", of_sh(), fixture.log());
    assert!(program.is_running(), "{}", program.report());
    program.kill();
    fixture.assert_daemon_lives();
}

#[test]
fn an_agent_is_nobodys_child_and_ends_with_its_program() {
    let test = "waits::an_agent_is_nobodys_child_and_ends_with_its_program";
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    for way in ["quit", "kill", "exec"] {
        let mut program = fixture.run_touch("touch", 1024, 50, 3);
        let agent = program.agent();
        assert!(!descendants(program.pid).contains(&agent), "{}", program.report());
        // Whoever started the program has it no more than the program has.
        assert_ne!(parent_of(agent), Some(std::process::id()), "{}", program.report());
        match way {
            "quit" => program.quit(),
            "kill" => program.kill(),
            _ => {
                program.send("exec");
                program.wait_ready();
                let another = poll(LONG, || {
                    let agents = agents_of(program.pid);
                    (agents.len() == 1 && agents[0] != agent).then_some(())
                });
                assert!(another.is_some(), "{}", program.report());
                program.quit();
            }
        }
        let ended = poll(LONG, || (!is_alive(agent)).then_some(()));
        assert!(ended.is_some(), "agent {agent} after {way}\n{}", describe_processes(agent));
        fixture.wait_all_freed("touch");
    }
    fixture.assert_daemon_lives();
}

#[test]
fn shells_and_interpreters_wait() {
    let test = "waits::shells_and_interpreters_wait";
    if !can_run(test, &["sh", "python3"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let script =
        "for i in 1 2 3; do (exit $i) & done; wait; echo all; sleep 0.2 & wait $!; echo $?";
    assert_eq!(output(&fixture, &["sh", "-c", script]), "all\n0\n");
    let script = "\
import os, subprocess
assert subprocess.run(['sh', '-c', 'exit 3']).returncode == 3
assert subprocess.check_output(['echo', 'x']) == b'x\\n'
own = {os.fork() or os._exit(5) for _ in range(4)}
found = set()
while True:
    try: pid, status = os.wait()
    except ChildProcessError: break
    assert os.waitstatus_to_exitcode(status) == 5
    found.add(pid)
assert found == own, (found, own)
if os.fork() == 0: os._exit(0)
assert os.waitpid(-1, 0x40000000)[1] == 0
try: print(os.waitpid(-1, 0x40000000))
except ChildProcessError: print('none')
";
    assert_eq!(output(&fixture, &["python3", "-c", script]), "none\n");
    fixture.assert_daemon_lives();
}

#[test]
fn strace_under_clew_and_clew_under_strace() {
    let test = "waits::strace_under_clew_and_clew_under_strace";
    if !can_run(test, &["cc", "strace"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let log = fixture.dir.join("strace");
    let to = log.to_str().expect("UTF-8").to_string();
    let waits = compile(&fixture.dir, "waits.c", &[]);
    let waits = waits.to_str().expect("UTF-8");
    let exits = |text: &str| text.matches("+++ exited with ").count();
    output(&fixture, &["strace", "-o", &to, "true"]);
    let text = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(exits(&text), 1, "{text}");
    // The program, its child, and what begins the agents of both: not these.
    let said = output(&fixture, &["strace", "-f", "-o", &to, waits, "wall"]);
    assert_eq!(said, "found 1 own 1 of 1\nsubreaper 0\n");
    let text = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(exits(&text), 2, "{text}");
    fixture.assert_daemon_lives();
}

#[test]
fn strace_attaches_to_a_managed_program() {
    let test = "waits::strace_attaches_to_a_managed_program";
    if !can_run(test, &["cc", "strace"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = fixture.run_touch("touch", 4096, 50, 3);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", 4096 * 4096 / 2);
    let log = fixture.dir.join("strace");
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-p", &program.pid.to_string(), "-o"]).arg(&log);
    let mut strace = command.stderr(std::process::Stdio::null()).spawn().expect("strace starts");
    let traced = poll(LONG, || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid)).ok()?;
        status.contains(&format!("TracerPid:\t{}\n", strace.id())).then_some(())
    });
    assert!(traced.is_some(), "strace does not attach");
    program.expect("sum", &sum);
    let forked = program.ask("fork-sum");
    assert_eq!(forked, format!("fork-{sum}"));
    fixture.swap_out("touch");
    terminate(strace.id());
    wait_for_end(&mut strace, LONG).expect("strace ends");
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn gdb_runs_a_program() {
    let test = "waits::gdb_runs_a_program";
    if !can_run(test, &["cc", "gdb"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "waits.c", &["-g"]);
    let waits = binary.to_str().expect("UTF-8");
    let gdb = ["gdb", "--batch", "-nx", "-iex", "set debuginfod enabled off"];
    let run = ["-ex", "run", "--args", waits, "wall"];
    let said = output(&fixture, &[&gdb[..], &run].concat());
    assert!(said.contains("found 1 own 1 of 1\n"), "{said}");
    assert!(said.contains("exited normally]"), "{said}");
    // Stopped in the middle, and followed into the child.
    let stops = ["-ex", "set detach-on-fork off", "-ex", "set schedule-multiple on"];
    let run = ["-ex", "break nothing", "-ex", "run", "-ex", "bt", "-ex", "kill inferiors 1 2"];
    let with = ["--args", waits, "wall"];
    let said = output(&fixture, &[&gdb[..], &stops, &run, &with].concat());
    assert!(said.contains("#0  nothing"), "{said}");
    fixture.assert_daemon_lives();
}

/// Of a namespace that a program has made for its children, the first one is its own to start: when
/// that one ends, nobody can start there any more.
#[test]
fn the_first_process_of_a_namespace_is_the_programs() {
    let test = "waits::the_first_process_of_a_namespace_is_the_programs";
    if !can_run(test, &["unshare", "sh"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let script = "sh -c 'echo $$; exit 5'; echo $?";
    let alone = run_to_end(std::process::Command::new("unshare").args(["-p", "true"]), LONG);
    if !alone.status.success() {
        return skip(test, &format!("no namespaces here: {}", texts(&alone)));
    }
    assert_eq!(output(&fixture, &["unshare", "-p", "sh", "-c", script]), "1\n5\n");
    // One that looks after its namespace itself, with children that come and go.
    let script = "(exit 3) & wait $!; echo $?; sh -c 'exit 4'; echo $?; wait; echo $$";
    assert_eq!(output(&fixture, &["unshare", "-pf", "sh", "-c", script]), "3\n4\n1\n");
    fixture.assert_daemon_lives();
}

#[test]
fn perf_counts_a_program() {
    let test = "waits::perf_counts_a_program";
    if !can_run(test, &["perf"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let dir = fixture.dir.path().to_str().expect("UTF-8").to_string();
    let counted = ["perf", "stat", "-e", "task-clock", "true"];
    let alone = run_to_end(std::process::Command::new("perf").args(&counted[1..]), LONG);
    if !alone.status.success() {
        return skip(test, &format!("perf counts nothing here: {}", texts(&alone)));
    }
    output(&fixture, &counted);
    let to = format!("{dir}/perf.data");
    output(&fixture, &["perf", "record", "-q", "-e", "task-clock", "-o", &to, "true"]);
    assert!(std::fs::metadata(&to).is_ok_and(|file| file.len() > 0));
    fixture.assert_daemon_lives();
}

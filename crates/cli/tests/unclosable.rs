//! Files that cannot be closed, sent to the agents' socket: they keep neither a daemon nor its successor from
//! ending.

use std::fs;

use clew_fixture::*;

/// Sends one, and waits until somebody is stuck where it is closed.
fn send(fixture: &Fixture, binary: &str, name: &str) -> Program {
    let mut command = std::process::Command::new(binary);
    command.arg(fixture.socket.with_extension("agents")).env_remove("LD_PRELOAD");
    let before = stuck();
    // Its own descriptor must not be the last.
    assert!(signal(fixture.daemon_pid(), "STOP"));
    let mut program = Program::start(&fixture.dir, name, command);
    program.wait_line("sent", LONG);
    assert!(signal(fixture.daemon_pid(), "CONT"));
    program.wait_line("closed", LONG);
    let is_one_more = poll(LONG, || (stuck() > before).then_some(()));
    assert!(is_one_more.is_some(), "nobody closes it\n{}", fixture.log());
    program
}

/// Threads that no signal reaches, waiting to close a pipe.
fn stuck() -> usize {
    let is_stuck = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("wchan")).is_ok_and(|wchan| wchan == "pipe_release")
    };
    let tasks =
        |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    processes().into_iter().flat_map(tasks).filter(is_stuck).count()
}

#[test]
fn what_cannot_be_closed_keeps_no_daemon_from_ending() {
    if !can_run("unclosable::keeps_no_daemon", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "unclosable.c", &[]);
    let binary = binary.to_str().expect("UTF-8");
    let mut program = fixture.run_touch("touch", 4096, 50, 7);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", 12 << 20);
    // The second is closed beside the first, which is not over.
    let senders = ["first", "second"].map(|name| send(&fixture, binary, name));
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    let third = send(&fixture, binary, "third");
    let stopped = fixture.verb(&["stop"]);
    assert!(stopped.status.success(), "{}", texts(&stopped));
    fixture.wait_daemon(LONG);
    program.expect("sum", &sum);
    program.quit();
    drop((senders, third));
}

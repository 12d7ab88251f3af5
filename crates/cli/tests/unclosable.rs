//! Files that cannot be closed, sent to the agents' socket: they keep neither a daemon nor its successor from
//! ending.

use std::fs;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use clew_fixture::*;
use clew_live::agents::seqpacket;
use clew_live::control::client::Client;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

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

/// A client's descriptors are nothing that a daemon has a use for, nor a daemon's a client.
#[test]
fn the_control_socket_takes_no_descriptors() {
    let test = "unclosable::the_control_socket_takes_no_descriptors";
    if !can_run(test, &[]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let client = UnixStream::connect(&fixture.socket).expect("it is served");
    match sent_along(&client) {
        Err(error) if error == rustix::io::Errno::PERM => {}
        Ok(_) if !refuses_descriptors() => return skip(test, "before Linux 6.16"),
        other => panic!("a descriptor was taken: {other:?}"),
    }
    fixture.status();
    fixture.assert_daemon_lives();
    // A server's, to a client that waits for its answer.
    let path = fixture.dir.join("false.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (client, _) = listener.accept().expect("a client");
            assert_eq!(sent_along(&client), Err(rustix::io::Errno::PERM));
        });
        assert!(Client::connect(&path).and_then(|mut client| client.status()).is_err());
    });
}

/// Whether the kernel knows sockets that take none (SO_PASSRIGHTS): such a one tells who sends some.
fn refuses_descriptors() -> bool {
    let (one, other) = UnixStream::pair().expect("a pair");
    seqpacket::takes_descriptors(&other, false);
    sent_along(&one) == Err(rustix::io::Errno::PERM)
}

/// Sends a line, and a descriptor along with it.
fn sent_along(to: &UnixStream) -> rustix::io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let own = [to.as_fd()];
    assert!(along.push(SendAncillaryMessage::ScmRights(&own)));
    sendmsg(to, &[IoSlice::new(b"\n")], &mut along, SendFlags::NOSIGNAL)
}

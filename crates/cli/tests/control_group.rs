//! Programs in a memory control group (version 1) that is at its limit, where the kernel may end nobody: a stored
//! page that the group has no room for is waited for, for a bounded time, and holds up nobody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_fixture::touch::PAGES_OF_MIB;
use clew_fixture::*;

/// A group below the memory hierarchy; whoever is left in it is ended, and it is removed.
struct Group(PathBuf);

impl Group {
    /// `None`, and said, where `test` can have none.
    fn new(test: &str) -> Option<Group> {
        let memory = Path::new("/sys/fs/cgroup/memory");
        if !memory.join("memory.limit_in_bytes").exists() {
            skip(test, "no memory control groups of version 1");
            return None;
        }
        // Each test has its own.
        let name = test.replace("::", "-");
        let group = memory.join(format!("clew-test-{}-{name}", std::process::id()));
        if let Err(error) = fs::create_dir(&group) {
            skip(test, &format!("no control group can be made: {error}"));
            return None;
        }
        let group = Group(group);
        // Nothing of it goes to a swap of the machine.
        group.set("memory.swappiness", "0");
        Some(group)
    }

    fn set(&self, what: &str, value: &str) {
        let file = self.0.join(what);
        fs::write(&file, value).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }

    fn number(&self, what: &str) -> u64 {
        let text = fs::read_to_string(self.0.join(what)).expect("a number");
        text.trim().parse().expect("a number")
    }

    /// It has room for so much more than it holds, and its processes are not ended for want of it.
    fn leave_room(&self, bytes: u64) {
        self.set("memory.oom_control", "1");
        let until = Instant::now() + LONG;
        // The kernel may have to take something from it first.
        loop {
            let limit = self.number("memory.usage_in_bytes") + bytes;
            let file = self.0.join("memory.limit_in_bytes");
            if fs::write(file, limit.to_string()).is_ok() {
                return;
            }
            assert!(Instant::now() < until, "no limit can be set");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever waits for memory can end only with some.
        let _ = fs::write(self.0.join("memory.limit_in_bytes"), "-1");
        let removed = poll(LONG, || {
            let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            text.lines().filter_map(|pid| pid.parse().ok()).for_each(kill);
            fs::remove_dir(&self.0).ok()
        });
        if removed.is_none() {
            eprintln!("{} is left", self.0.display());
        }
    }
}

/// A program in the group, of which nearly all is stored, and another one outside.
fn start(test: &str) -> Option<(Fixture, Group, Program, Program)> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    let group = Group::new(test)?;
    let fixture = Fixture::start("1GiB");
    let mut inside = fixture.run_touch("inside", 32 * PAGES_OF_MIB, 50, 3);
    let outside = fixture.run_touch("outside", 8 * PAGES_OF_MIB, 50, 5);
    inside.expect("touch seq", &format!("touched {} bad 0", 32 * PAGES_OF_MIB));
    // What it gets from now on is charged there.
    group.set("cgroup.procs", &inside.pid.to_string());
    group.set("cgroup.procs", &inside.agent().to_string());
    fixture.swap_out_at_least("inside", 30 << 20);
    fixture.swap_out_at_least("outside", 7 << 20);
    group.leave_room(4 << 20);
    Some((fixture, group, inside, outside))
}

#[test]
fn a_page_that_has_no_room_in_its_group_comes_once_there_is_some() {
    let Some((mut fixture, group, mut inside, mut outside)) = start("control_group::waits") else {
        return;
    };
    inside.send("touch seq");
    assert_eq!(
        inside.read_within(Duration::from_secs(2)),
        None,
        "there is room\n{}",
        fixture.log()
    );
    // Others are answered meanwhile.
    outside.expect("touch seq", &format!("touched {} bad 0", 8 * PAGES_OF_MIB));
    group.set("memory.limit_in_bytes", "-1");
    assert_eq!(inside.read(LONG), format!("touched {} bad 0", 32 * PAGES_OF_MIB));
    fixture.assert_daemon_lives();
}

#[test]
fn a_program_whose_group_has_no_room_for_long_is_ended() {
    let Some((mut fixture, group, mut inside, mut outside)) = start("control_group::ends") else {
        return;
    };
    inside.send("touch seq");
    let ended = poll(LONG, || {
        (!is_alive(inside.pid) || fixture.log().contains("had no room")).then_some(())
    });
    assert!(ended.is_some(), "it still waits\n{}", fixture.log());
    assert!(fixture.log().contains("had no room for a page of its own"), "{}", fixture.log());
    outside.expect("touch seq", &format!("touched {} bad 0", 8 * PAGES_OF_MIB));
    // Its end needs none: it is gone from its group.
    assert!(poll(LONG, || (!is_alive(inside.pid)).then_some(())).is_some(), "{}", fixture.log());
    let gone = poll(LONG, || fixture.app("inside").processes.is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}\n{}", fixture.app("inside"), fixture.log());
    fixture.assert_daemon_lives();
    drop(group);
}

/// What has the number of a program by now is another, of another user perhaps.
#[test]
fn what_a_program_has_become_is_not_ended_for_it() {
    if !can_run("control_group::becomes", &["cc", "setpriv"]) {
        return;
    }
    let Some(group) = Group::new("control_group::becomes") else { return };
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "becomes.c", &[]);
    let bytes = 32 << 20;
    let words = [binary.to_str().expect("UTF-8"), &bytes.to_string()];
    let mut program = fixture.run("becomes", &words);
    program.wait_line("filled", LONG);
    fixture.swap_out_at_least("becomes", bytes - (2 << 20));
    group.set("cgroup.procs", &program.pid.to_string());
    group.set("cgroup.procs", &program.agent().to_string());
    group.leave_room(4 << 20);
    program.send("become");
    let ended = poll(LONG, || fixture.log().contains("a program is ended").then_some(()));
    assert!(ended.is_some(), "{}", fixture.log());
    assert!(fixture.log().contains("killed=false"), "{}", fixture.log());
    let is = fs::read_to_string(format!("/proc/{}/comm", program.pid)).unwrap_or_default();
    assert_eq!((is.as_str(), is_alive(program.pid)), ("sleep\n", true), "{}", fixture.log());
    fixture.assert_daemon_lives();
    drop(group);
}

fn fork(program: &mut Program) -> u32 {
    let answer = program.ask("fork-keep");
    answer.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("child PID")
}

/// Nobody knows which process it is, and nobody will: its program has shut itself in, so it has no agent.
#[test]
fn a_child_that_nobody_knows_is_ended_too() {
    let Some((mut fixture, group, mut inside, mut outside)) = start("control_group::child") else {
        return;
    };
    // sethostname, which it never calls.
    inside.expect("forbid 170", "forbidden 170");
    let child = fork(&mut inside);
    inside.send("child touch seq");
    let ended = poll(LONG, || (!is_alive(child)).then_some(()));
    assert!(ended.is_some(), "it still waits\n{}", fixture.log());
    assert!(fixture.log().contains("had no room for a page of its own"), "{}", fixture.log());
    outside.expect("touch seq", &format!("touched {} bad 0", 8 * PAGES_OF_MIB));
    group.set("memory.limit_in_bytes", "-1");
    inside.expect("touch seq", &format!("touched {} bad 0", 32 * PAGES_OF_MIB));
    fixture.assert_daemon_lives();
}

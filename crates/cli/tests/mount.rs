//! `clew mount` from its first word to its end.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clew_fixture::touch::{MIB, run_as};
use clew_fixture::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn a_mount_serves_says_what_it_did_and_goes() {
    let test = "a_mount_serves_says_what_it_did_and_goes";
    if !can_run(test, &["python3"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "the kernel has no FUSE");
    }
    let dir = TempDir::new();
    for name in ["lower", "mnt"] {
        fs::create_dir(dir.join(name)).expect("a directory");
    }
    let at = dir.join("mnt");
    fs::write(dir.join("lower/file"), "what is below").expect("a file");
    let mut server = clew()
        .args(["--format", "json", "mount", "--budget", "8MiB"])
        .args([dir.join("lower"), at.clone()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let until = Instant::now() + LONG;
    while !at.join("file").exists() {
        assert!(Instant::now() < until, "it does not mount");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs::read_to_string(at.join("file")).expect("it is there"), "what is below");
    fs::write(at.join("new"), "from above").expect("it can be written");
    assert_eq!(fs::read_to_string(dir.join("lower/new")).expect("it went through"), "from above");
    let asked =
        clew().args(["mount", "--format", "json", "--status"]).arg(&at).output().expect("runs");
    let status: Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    assert_eq!(status["pid"], server.id(), "{status}");

    // What somebody has written by a mapping that is there still is written before it goes.
    let script = "import mmap,sys\n\
        with open(sys.argv[1],'r+b') as f: m=mmap.mmap(f.fileno(),0)\n\
        m[:]=b'Y'*len(m)\n\
        print('written',flush=True)\n\
        sys.stdin.readline()\n";
    fs::write(dir.join("lower/mapped"), vec![b'x'; 64 << 10]).expect("a file");
    let python = Command::new("python3")
        .args(["-c", script])
        .arg(at.join("mapped"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut python = python.expect("python3 starts");
    let mut said = [0; 8];
    python.stdout.take().expect("a pipe").read_exact(&mut said).expect("it says so");

    kill_process(Pid::from_child(&server), Signal::TERM).expect("it is there");
    let ended = server.wait().expect("it ends");
    let output = server.wait_with_output().expect("it has ended");
    assert!(ended.success(), "{}", texts(&output));
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status["writes"], 1, "{status}");
    let mapped = fs::read(dir.join("lower/mapped")).expect("it is there");
    assert!(mapped == vec![b'Y'; 64 << 10], "what a mapping has written is lost");
    drop(python.stdin.take());
    python.wait().expect("it ends");
    assert!(!at.join("file").exists(), "still mounted");
    // Now there is nothing that could be asked, and nothing below is no directory.
    let asked = clew().args(["mount", "--status"]).arg(&at).output().expect("runs");
    assert_eq!(asked.status.code(), Some(2), "{}", texts(&asked));
    let refused = clew().arg("mount").arg(dir.join("nowhere")).arg(&at).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
}

/// A mount and programs, in turn, have what the other does not need of one budget.
/// In a tree of mounts of its own: what went wrong would be over everything.
#[test]
fn nothing_is_mounted_over_the_root_directory() {
    let test = "nothing_is_mounted_over_the_root_directory";
    if !can_run(test, &["unshare", "timeout"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "the kernel has no FUSE");
    }
    let dir = TempDir::new();
    for at in ["/", "/./"] {
        let mut words = Command::new("unshare");
        words.args(["--mount", "--propagation", "private", "timeout", "20"]);
        let output = words
            .args([env!("CARGO_BIN_EXE_clew"), "mount"])
            .args([dir.path(), Path::new(at)])
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{at}: {said}");
        assert!(said.contains("name another directory"), "{at}: {said}");
    }
}

#[test]
fn a_mount_shares_the_budget_of_a_daemon() {
    let test = "a_mount_shares_the_budget_of_a_daemon";
    if !can_run(test, &["cc"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "the kernel has no FUSE");
    }

    let dir = TempDir::new();
    let [lower, at] = ["lower", "mnt"].map(|name| dir.join(name));
    for directory in [&lower, &at] {
        fs::create_dir(directory).expect("a directory");
    }
    let mount = |socket: &Path| {
        let mut command = clew();
        command.arg("--socket").arg(socket).args(["--format", "json", "mount", "--with-daemon"]);
        command.args(["--budget", "64MiB", "--cache", "64KiB", "--admit", "all"]);
        command.arg(&lower).arg(&at).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let nobody = mount(&dir.join("nowhere.sock")).output().expect("runs");
    assert_eq!(nobody.status.code(), Some(1), "{}", texts(&nobody));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("sharing the daemon's budget"));

    let mut random = Random(7);
    let bytes: Vec<u8> = (0..48 * MIB).map(|at| (at % 2 * random.below(256)) as u8).collect();
    fs::write(lower.join("file"), &bytes).expect("a file");
    // Until it has settled nothing of it is kept.
    std::thread::sleep(Duration::from_millis(2_300));
    let mut fixture = Fixture::start("96MiB");
    let mut server = mount(&fixture.socket).spawn().expect("it starts");
    let status = || clew_mount::status(&at).ok();
    let until = |what: &str, is_so: &dyn Fn(&clew_mount::Status) -> bool| {
        let found = poll(LONG, || status().filter(|status| is_so(status)));
        found.unwrap_or_else(|| panic!("never: {what}: {:?}", status()))
    };
    until("it is mounted", &|status| status.memory_bytes > 0);
    // Nobody else needs the budget.
    until("it keeps what it reads", &|status| {
        assert!(fs::read(at.join("file")).expect("it is there") == bytes, "other bytes");
        status.pool_bytes > 24 * MIB
    });
    let shared = poll(LONG, || {
        let status = fixture.status();
        (status.used.mounts_bytes > 24 * MIB).then_some(status)
    });
    let shared = shared.unwrap_or_else(|| panic!("{:?}", fixture.status()));
    assert_eq!((shared.mounts.len(), shared.mounts[0].pid), (1, server.id()), "{shared:?}");
    assert!(shared.used_bytes >= shared.used.mounts_bytes, "{shared:?}");

    // A program that does not fit, and uses all that it has again and again.
    let mut program = run_as(&fixture, "greedy", 160, 50);
    let sum = program.ask("sum");
    let left = poll(LONG, || {
        program.expect("sum", &sum);
        status().filter(|status| status.memory_bytes < 4 * MIB)
    });
    let left = left.unwrap_or_else(|| panic!("{:?}\n{:?}", status(), fixture.status()));
    until("it drops what it may not keep", &|status| status.pool_bytes <= status.memory_bytes);
    assert!(left.memory_bytes > 0, "{left:?}");
    program.expect("sum", &sum);
    assert!(fs::read(at.join("file")).expect("it is there") == bytes, "other bytes");
    drop(program);
    until("it may keep more again", &|status| status.memory_bytes > 24 * MIB);

    // What was told last holds when nobody tells any more.
    fixture.kill_daemon();
    assert!(fs::read(at.join("file")).expect("it is there") == bytes, "other bytes");
    assert!(status().is_some_and(|status| status.memory_bytes > 24 * MIB), "{:?}", status());
    kill_process(Pid::from_child(&server), Signal::TERM).expect("it is there");
    assert!(server.wait().expect("it ends").success());
}

/// Nothing stays mounted there, whatever the test has found.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Whoever can change a link on the way to the directory decides what root's mount shows to all.
#[test]
fn what_root_shows_to_all_lies_behind_no_link_of_others() {
    let test = "what_root_shows_to_all_lies_behind_no_link_of_others";
    if !can_run(test, &[]) {
        return;
    }
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return skip(test, "not root, or no FUSE");
    }
    let dir = TempDir::new();
    let (users, private) = (dir.join("user"), dir.join("private"));
    for directory in [&users, &private, &dir.join("mnt")] {
        fs::create_dir(directory).expect("a directory");
    }
    std::os::unix::fs::symlink(&private, users.join("data")).expect("a link");
    std::os::unix::fs::chown(&users, Some(12345), None).expect("root may");
    let _unmounted = Unmounted(dir.join("mnt"));
    let mut command = clew();
    command.args(["mount", "--allow-other"]).args([users.join("data"), dir.join("mnt")]);
    let output = run_to_end(&mut command, LONG);
    assert!(!output.status.success(), "{}", texts(&output));
    assert!(texts(&output).contains("a link leads there"), "{}", texts(&output));
}

//! `clew mount` from its first word to its end.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

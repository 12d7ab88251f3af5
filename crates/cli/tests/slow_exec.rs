//! A program in the middle of an execve that takes as long as it likes: the kernel lets nobody ask what
//! memory it has meanwhile, and nobody waits for who asks.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clew_fixture::*;

#[test]
fn an_execve_that_does_not_end_holds_up_nobody() {
    let test = "slow_exec::holds_up_nobody";
    if !can_run(test, &["cc"]) {
        return;
    }
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return skip(test, "no FUSE");
    }
    // It is too small to be managed; those that wait to be are asked about, too.
    let mut fixture = Fixture::start_configured("1GiB", "zram", "min-process = \"6MiB\"\n");
    let binary = compile(&fixture.dir, "slow_exec.c", &[]);
    let mounted = fixture.dir.join("mounted");
    fs::create_dir(&mounted).expect("a directory");
    let words = [binary.to_str().expect("UTF-8"), mounted.to_str().expect("UTF-8")];
    let mut program = fixture.run("slow", &words);
    program.wait_ready();
    let listed = poll(LONG, || fixture.process("slow", program.pid));
    assert!(listed.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    program.expect("exec", "stuck");
    // It is asked about every two seconds.
    for _ in 0..50 {
        fixture.status();
        std::thread::sleep(Duration::from_millis(100));
    }
    // Others are heard, and managed.
    fixture.run_touch("touch", 4096, 50, 3).quit();
    program.send("go on");
    let is_another = poll(LONG, || {
        fixture.process("slow", program.pid).filter(|process| process.command == "sleep")
    });
    assert!(is_another.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
    program.kill();
    fixture.assert_daemon_lives();
}

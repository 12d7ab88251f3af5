//! fio with io_uring: the kernel reads and writes a program's memory at any time, for fixed buffers
//! without asking for the page again. fio finds each byte that it did not write.

use std::path::Path;
use std::process::Command;

use clew_fixture::storm::{CONFIG, LIMIT, Storm, rounds};
use clew_fixture::*;

fn words(dir: &Path, fixed: bool, loops: u64) -> Vec<String> {
    let mut words: Vec<String> = [
        "fio",
        "--name=verified",
        "--ioengine=io_uring",
        "--rw=randwrite",
        // All buffers together are 16 MiB.
        "--bs=64k",
        "--iodepth=256",
        "--size=24m",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
        "--verify_state_save=0",
        // A loop takes half a second.
        "--rate_iops=800",
    ]
    .map(String::from)
    .into();
    words.push(format!("--loops={loops}"));
    words.push(format!("--directory={}", dir.display()));
    words.extend(fixed.then(|| "--fixedbufs".to_string()));
    words
}

fn verifies(test: &str, fixed: bool) {
    if !can_run(test, &["fio"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", CONFIG);
    let alone = words(fixture.dir.path(), fixed, 1);
    let probe = run_to_end(Command::new(&alone[0]).args(&alone[1..]), LIMIT);
    if !probe.status.success() {
        let said = texts(&probe);
        assert!(said.contains("not permitted") || said.contains("not implemented"), "{said}");
        return skip(test, "io_uring is not allowed here");
    }
    let words = words(fixture.dir.path(), fixed, 10 * rounds());
    let mut fio = [fixture.run("fio", &words)];
    let storm = Storm::over(&mut fixture, &mut fio, 5 * rounds());
    let status = fio[0].wait(LONG);
    let said = fio[0].rest(LONG).join("\n");
    assert!(status.success() && said.contains("err= 0"), "{said}\n{}", fio[0].report());
    storm.was_one(test, 500);
    fixture.wait_all_freed("fio");
}

#[test]
fn fixed_buffers_are_verified() {
    verifies("io_uring::fixed_buffers_are_verified", true);
}

#[test]
fn buffers_of_a_request_are_verified() {
    verifies("io_uring::buffers_of_a_request_are_verified", false);
}

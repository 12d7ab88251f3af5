//! Programs that read all of their own memory, what Clew has put there included.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use clew_fixture::*;
use clew_live::control::protocol::Request;

#[test]
fn who_reads_all_of_its_own_memory_waits_for_nothing() {
    let test = "who_reads_all_of_its_own_memory_waits_for_nothing";
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "walks.c", &[]);
    let mut program = fixture.run("walks", &[binary]);
    program.wait_ready();
    fixture.wait_resident("walks", 14 << 20);
    // Its pages leave by way of the buffer that it reads, too.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        fixture.swap_out("walks");
    }
    program.send("end");
    program.wait_line("walked all", LONG);
    assert!(program.wait(LONG).success(), "{}", fixture.log());
    fixture.assert_daemon_lives();
}

/// As gdb and gcore do, which give up a whole piece of memory for one page that cannot be read.
#[test]
fn who_reads_a_program_from_outside_after_a_restore_finds_all_of_it() {
    let test = "who_reads_a_program_from_outside_after_a_restore_finds_all_of_it";
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "beside.c", &[]);
    let mut program = fixture.run("beside", &[binary]);
    program.wait_ready();
    fixture.wait_resident("beside", 15 << 20);
    fixture.swap_out_at_least("beside", 15 << 20);
    let pid = program.pid;
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let managed = managed_ranges(&maps);
    let memory = File::open(format!("/proc/{pid}/mem")).expect("it lives");
    let read = |(start, end): &(u64, u64)| {
        let mut bytes = vec![1; (end - start) as usize];
        memory.read_exact_at(&mut bytes, *start).map(|()| bytes)
    };
    assert!(managed.iter().any(|range| read(range).is_err()), "nothing is out: {managed:?}");
    fixture.order(&Request::Restore { app: "beside".into() });
    for range in &managed {
        let bytes = read(range).unwrap_or_else(|error| panic!("{range:x?}: {error}\n{maps}"));
        // Behind what it has filled there is a MiB where it has never been.
        let at_the_end = &bytes[bytes.len().saturating_sub(64 << 10)..];
        assert!(bytes.len() < 16 << 20 || at_the_end.iter().all(|byte| *byte == 0), "{range:x?}");
    }
    program.expect("read", "bad 0");
    fixture.swap_out_at_least("beside", 15 << 20);
    program.expect("read", "bad 0");
    program.quit();
    fixture.wait_all_freed("beside");
    fixture.assert_daemon_lives();
}

/// Where a program's mappings are that a userfaultfd is told of and that may be written, but for what is the agent's.
fn managed_ranges(smaps: &str) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut range = None;
    for line in smaps.lines() {
        let Some(flags) = line.strip_prefix("VmFlags:") else {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let found = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            range = found.and_then(|(a, b)| Some((address(a)?, address(b)?))).or(range);
            continue;
        };
        let has = |flag: &str| flags.split(' ').any(|found| found == flag);
        let is_programs = has("um") && has("wr") && !has("dc") && !has("wf");
        ranges.extend(range.filter(|_| is_programs));
    }
    ranges
}

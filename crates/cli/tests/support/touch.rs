//! Programs of tests/programs/touch.c that several test files start alike.

use std::fs;

use super::{Fixture, Program, can_run, compile};

/// A daemon's scheme, where a test has more to say than the budget.
pub const ZRAM: [&str; 2] = ["--scheme", "zram"];

/// 64 MiB of pages that compress to about half.
pub const PAGES: u64 = 16384;
/// The same in bytes.
pub const BYTES: u64 = PAGES * 4096;

/// A daemon with room for several of them, a program of which most is stored, and the right answer
/// to "sum". `None` where `test` cannot run.
pub fn swapped_out(test: &str, arguments: &[&str]) -> Option<(Fixture, Program, String)> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    let fixture = Fixture::start_with("2GiB", arguments);
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    let sum = program.ask("sum");
    assert!(sum.starts_with("sum ") && sum.ends_with(" bad 0"), "{sum}");
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    Some((fixture, program, sum))
}

/// One MiB.
pub const MIB: u64 = 1 << 20;
/// Pages of it.
pub const PAGES_OF_MIB: u64 = MIB / 4096;

/// Starts one with pages of so many MiB, `percent` of each of which repeats, under a command name
/// of its own.
pub fn run_as(fixture: &Fixture, command: &str, mib: u64, percent: u32) -> Program {
    let binary = fixture.dir.join(command);
    fs::rename(compile(&fixture.dir, "touch.c", &[]), &binary).expect("another name");
    let (pages, percent) = ((mib * PAGES_OF_MIB).to_string(), percent.to_string());
    let words = [binary.to_str().expect("UTF-8"), &pages, &percent, "3"];
    let mut program = fixture.run(command, &words);
    program.wait_ready();
    program
}

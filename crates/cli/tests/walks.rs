//! Programs that read all of their own memory, what Clew has put there included.

use std::time::{Duration, Instant};

use clew_fixture::*;

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

//! Memory at places where few programs have any holds what it held.

use clew_fixture::*;

const BYTES: u64 = 4 << 20;

/// What the daemon asks the kernel about a program is done to no memory of it.
#[test]
fn memory_at_the_lowest_addresses_is_what_it_was() {
    if !can_run("places::low", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "places.c", &[]);
    let mut program = fixture.run("places", &[binary.to_str().expect("UTF-8"), "low"]);
    program.wait_ready();
    fixture.wait_resident("places", BYTES * 9 / 10);
    fixture.swap_out_at_least("places", BYTES * 9 / 10);
    // Whether it lives, and changes its memory, is asked time and again.
    std::thread::sleep(std::time::Duration::from_secs(2));
    program.expect("check", "right");
    fixture.wait_all_freed("places");
    fixture.assert_daemon_lives();
}

/// Of memory that was moved away and left mapped the kernel tells no unmapping; what came to its place later has one of
/// its own.
#[test]
fn what_took_the_place_of_memory_that_was_left_mapped_can_be_unmapped() {
    if !can_run("places::left", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "places.c", &[]);
    let mut program = fixture.run("places", &[binary.to_str().expect("UTF-8"), "left"]);
    program.wait_ready();
    fixture.wait_resident("places", 3 * BYTES * 9 / 10);
    fixture.swap_out_at_least("places", 3 * BYTES * 9 / 10);
    program.expect("move", "move");
    fixture.swap_out("places");
    program.expect("grow", "right");
    fixture.wait_all_freed("places");
    fixture.assert_daemon_lives();
}

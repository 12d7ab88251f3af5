//! Memory that a program keeps out of its forked children: they have none of it, and nor has what they
//! map in its place.

use clew_fixture::*;

const BYTES: u64 = 16 << 20;

/// A child that maps other memory where its parent has some that is stored: at once, or when it is managed and all it has is
/// stored.
fn keeps_out(test: &str, when: &[&str]) {
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "nofork.c", &[]);
    let words = [&[binary.to_str().expect("UTF-8")][..], when].concat();
    let mut program = fixture.run("nofork", &words);
    program.wait_ready();
    fixture.wait_resident("nofork", BYTES * 9 / 10);
    fixture.swap_out_at_least("nofork", BYTES * 8 / 10);
    let said = program.ask("fork");
    let child = said.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("child PID");
    let listed = poll(LONG, || fixture.process("nofork", child));
    let listed = listed.unwrap_or_else(|| panic!("{:?}\n{}", fixture.app("nofork"), fixture.log()));
    assert!(listed.stored_pages * 4096 < BYTES / 8, "its parent's: {listed:?}");
    // Its own memory, at the same place, is taken out and comes back.
    let out = poll(LONG, || {
        fixture.swap_out("nofork");
        fixture.process("nofork", child).filter(|p| p.stored_pages * 4096 >= BYTES * 3 / 8)
    });
    assert!(out.is_some(), "{:?}\n{}", fixture.app("nofork"), fixture.log());
    for _ in 0..2 {
        program.expect("child", "bad 0");
        fixture.swap_out("nofork");
    }
    program.expect("check", "bad 0");
    program.quit();
    fixture.wait_all_freed("nofork");
    fixture.assert_daemon_lives();
}

#[test]
fn what_was_kept_out_after_it_was_taken_out() {
    keeps_out("not_inherited::late", &["late"]);
}

#[test]
fn what_was_kept_out_from_the_start() {
    keeps_out("not_inherited::early", &["early"]);
}

/// Nothing of Clew's is there either: a child whose agent has mapped all that it needs finds the place as it would be
/// without one.
#[test]
fn nothing_is_mapped_where_a_child_may_map_at_any_time() {
    keeps_out("not_inherited::later", &["early", "later"]);
}

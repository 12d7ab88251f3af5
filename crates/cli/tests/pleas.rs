//! Programs that ask to be let go again and again, while that cannot begin: they hold nobody up, and the
//! daemon keeps no more of them than it has to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clew_fixture::hostile::*;
use clew_fixture::*;

const PAGES: u64 = 4096;
/// Pleas of one program.
const PLEAS: usize = 60;
/// How many of them wait, and what else there may be open at a moment.
const KEPT: usize = 16;
const BESIDES: usize = 8;

/// The plea of a program for the first page of its memory.
fn plea() -> String {
    let range = "MEMORY**********NEXT************".to_string() + &"00".repeat(48);
    format!("asks 434c45570c000000VERSION*10000000{range}{SAYS_NOTHING}")
}

#[test]
fn those_that_cannot_begin_are_a_few_descriptors_and_no_worker() {
    if !can_run("pleas::bounded", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_configured("1GiB", "zram", SMALL);
    let mut program = fixture.run_touch("touch", PAGES, 50, 3);
    let sum = program.ask("sum");
    let (hello, plea) = (hello(SAYS_NOTHING), plea());
    let held = fixture.dir.join("held");
    let mark = format!("mark {}", held.display());
    // Its agent has begun an order, and does not end it.
    let mut steps = vec![hello.as_str(), "await", READY, "hold", &mark, "wait 999", "wait 999"];
    steps.extend([plea.as_str(); PLEAS]);
    let mut hostile = Hostile::start(&fixture, "asks", &steps);
    // Whoever orders its pages out waits until it has ended.
    let is_over = Arc::new(AtomicBool::new(false));
    let (socket, until) = (fixture.socket.clone(), is_over.clone());
    let orders = std::thread::spawn(move || swap_out_hostile(&socket, &until));
    let is_held = poll(LONG, || held.exists().then_some(()));
    assert!(is_held.is_some(), "not that far\n{}", fixture.log());
    let before = fixture.daemon_descriptors();
    hostile.wait_done();
    // Those that wait are answered after 25 s; before that, so many are kept and no more.
    let kept = before + KEPT..=before + KEPT + BESIDES;
    let bounded = poll(LONG / 12, || kept.contains(&fixture.daemon_descriptors()).then_some(()));
    let now = fixture.daemon_descriptors();
    assert!(bounded.is_some(), "{before} descriptors before, {now} now\n{}", fixture.log());
    // There are more of them than workers.
    for _ in 0..3 {
        fixture.swap_out_at_least("touch", PAGES * 4096 / 2);
        program.expect("sum", &sum);
    }
    assert!(hostile.is_running(), "it waits\n{}", fixture.log());
    is_over.store(true, Ordering::SeqCst);
    drop(hostile);
    orders.join().expect("no panic");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

//! Copies that are kept of pages that came back, under fork: what a page was before it was written
//! must never show in the parent, its child, or the child of that.

use clew_fixture::*;
use clew_live::control::protocol::Request;

const PAGES: u64 = 3072;
const BYTES: u64 = PAGES * 4096;

/// A sum of pages that all hold what was written to them.
fn sum(program: &mut Program, whose: &str) -> String {
    let answer = program.ask(&format!("{whose}sum"));
    assert!(answer.starts_with("sum "), "{whose}: {answer}\n{}", program.report());
    assert!(answer.ends_with(" bad 0"), "{whose}: {answer}\n{}", program.report());
    answer
}

/// Rounds of: all out, back by reads alone, a fork and one more, everybody writes, all verify, all
/// out again, all verify again. Where a storm takes everything out anyhow, nobody else does.
fn rounds(fixture: &Fixture, program: &mut Program, storm: bool) {
    let out = || {
        if !storm {
            fixture.swap_out_at_least("touch", BYTES * 8 / 10);
        }
    };
    let everybody = ["", "child ", "child child "];
    for round in 0..6 {
        // Forked with all pages kept, with some of them, with none.
        out();
        let before = match round % 3 {
            0 => Some(sum(program, "")),
            1 => {
                program.expect(&format!("touch random 2000 {round}"), "touched 2000 bad 0");
                None
            }
            _ => None,
        };
        for parent in &everybody[..2] {
            let answer = program.ask(&format!("{parent}fork-keep"));
            assert!(answer.starts_with("child "), "{answer}");
            out();
        }
        let same = everybody.map(|who| sum(program, who));
        assert!(same.iter().all(|sum| *sum == same[0]), "{same:?}");
        assert!(before.is_none_or(|sum| sum == same[0]), "{same:?}");

        // Pages written as a whole, and by one word; some by several of them.
        let mut sums = same;
        for again in 0..2 {
            for (i, who) in everybody.iter().enumerate() {
                let seed = round * 100 + again * 10 + i;
                program.expect(&format!("{who}poke 1000 {seed}"), "poked 1000");
                program.expect(&format!("{who}write 500 {seed}"), "wrote 500");
                out();
                let new = sum(program, who);
                assert_ne!(new, sums[i], "{who}");
                sums[i] = new;
            }
            // What one wrote is nobody else's; all out, and back by reads, or by the daemon.
            out();
            assert_eq!(everybody.map(|who| sum(program, who)), sums);
            out();
            fixture.order(&Request::Restore { app: "touch".to_string() });
            assert_eq!(everybody.map(|who| sum(program, who)), sums);
        }
        program.expect("child child quit", "child ended");
        program.expect("child quit", "child ended");
    }
}

fn start(test: &str) -> Option<(Fixture, Program)> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    let fixture = Fixture::start("1GiB");
    let program = fixture.run_touch("touch", PAGES, 50, 17);
    Some((fixture, program))
}

#[test]
fn copies_kept_across_a_fork_are_never_stale() {
    let Some((mut fixture, mut program)) = start("kept::across_a_fork") else { return };
    rounds(&fixture, &mut program, false);
    let reused = fixture.status().pool.reused_pages;
    assert!(reused >= 5 * PAGES, "only {reused} kept copies were of use");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn copies_kept_in_a_storm_are_never_stale() {
    let Some((mut fixture, mut program)) = start("kept::in_a_storm") else { return };
    std::thread::scope(|scope| {
        let all = scope.spawn(|| rounds(&fixture, &mut program, true));
        while !all.is_finished() {
            fixture.swap_out("touch");
        }
    });
    assert!(fixture.status().pool.reused_pages > 0, "{:?}", fixture.status());
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

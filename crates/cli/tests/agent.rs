//! Agents that are killed in the middle of an order: their programs go on with the right data, and
//! `clew ps` says that nothing more is taken out of them.

use std::thread::sleep;
use std::time::Duration;

use clew_fixture::*;

const PAGES: u64 = 5120;
const BYTES: u64 = PAGES * 4096;
const ROUNDS: u64 = 12;

/// Kills the agents of programs one after the other while they work and swap-outs storm. With
/// `forked` a child shares the pages, so that the agent is told to unshare them, too.
fn kill_agents(test: &str, forked: bool) {
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "touch.c", &[]);
    let binary = binary.to_str().expect("UTF-8");
    for round in 0..ROUNDS {
        let words = [binary, &PAGES.to_string(), "50", &round.to_string()];
        let mut program = fixture.run("touch", &words);
        program.wait_ready();
        fixture.wait_resident("touch", BYTES * 9 / 10);
        let sum = program.ask("sum");
        let agent = program.agent();
        if forked {
            let answer = program.ask("fork-keep");
            assert!(answer.starts_with("child "), "{answer}");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while is_alive(agent) {
                    let _ = fixture.try_swap_out("touch"); // looked at below
                }
            });
            program.send(&format!("touch random 30000 {round}"));
            program.send("sum");
            sleep(Duration::from_millis(round * 13 % 60));
            kill(agent);
            let touched = program.read(LONG);
            assert_eq!(touched, "touched 30000 bad 0", "{}", program.report());
            assert_eq!(program.read(LONG), sum, "{}", program.report());
        });

        // What is out comes back, what is in stays, and that is said.
        fixture.swap_out("touch");
        let said = poll(LONG, || {
            let app = fixture.app("touch");
            let process = app.processes.into_iter().find(|p| p.pid == program.pid)?;
            (!process.managed).then_some(process.reason)
        });
        let app = fixture.app("touch");
        let reason = said.unwrap_or_else(|| panic!("still managed: {app:?}\n{}", fixture.log()));
        assert!(reason.starts_with("its agent is gone"), "{reason}");
        let stored = || {
            let app = fixture.app("touch");
            app.processes.iter().find(|p| p.pid == program.pid).map(|p| p.stored_pages)
        };
        let before = stored();
        fixture.swap_out("touch");
        assert_eq!(stored(), before, "without an agent");
        program.expect("sum", &sum);
        if forked {
            program.expect("child sum", &sum);
            program.expect("child write 1000 5", "wrote 1000");
        }
        program.expect("write 1000 7", "wrote 1000");
        program.expect("move", "moved");
        program.expect("drop 100 500", "dropped 500");
        program.expect("touch seq", &format!("touched {PAGES} bad 0"));
        if forked {
            program.expect("child touch seq", &format!("touched {PAGES} bad 0"));
            program.expect("child quit", "child ended");
        } else {
            let forked = program.ask("fork-sum");
            assert_eq!(forked, format!("fork-{}", program.ask("sum")));
        }
        program.quit();
        fixture.wait_all_freed("touch");
        fixture.assert_daemon_lives();
    }
}

#[test]
fn killed_in_the_middle_of_an_order() {
    kill_agents("agent::killed_in_the_middle_of_an_order", false);
}

#[test]
fn killed_while_pages_are_shared() {
    kill_agents("agent::killed_while_pages_are_shared", true);
}

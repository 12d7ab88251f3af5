//! tests/programs/shadow.c under a storm of swap-outs: eight threads that know what every page of
//! theirs must hold. `CLEW_SHADOW_SECONDS` sets how long each variant runs at least (20); it goes on
//! until twice its size has gone out.

use std::time::{Duration, Instant};

use clew_fixture::*;

fn storm(test: &str, flags: &[&str]) {
    if !can_run(test, &["cc"]) {
        return;
    }
    let seconds = number_from_env("CLEW_SHADOW_SECONDS", 20);
    let seed = std::env::var("CLEW_SHADOW_SEED").unwrap_or_else(|_| "1".to_string());
    let mut fixture = Fixture::start("2GiB");
    let binary = compile(&fixture.dir, "shadow.c", &[]);
    let mut words = vec![binary.to_str().expect("UTF-8").to_string()];
    // It is told when to end.
    words.extend(["--seconds".into(), "86400".into(), "--seed".into(), seed]);
    words.extend(flags.iter().map(|flag| flag.to_string()));
    let mut program = fixture.run("shadow", &words);
    program.wait_line("running", LONG);
    fixture.wait_resident("shadow", 8 << 20);

    // Every round waits a little longer than the one before, up to a limit, then shortly again: the
    // program is met in the middle of restoring as well as when all is restored.
    let limit = Duration::from_secs(seconds * 3) + 5 * LONG;
    let began = Instant::now();
    let (mut rounds, mut refused, mut told) = (0u64, None, false);
    let mut last = clew_live::control::status::AppStatus::default();
    while program.is_running() {
        if began.elapsed() > limit {
            let report = program.report();
            panic!(
                "shadow did not end within {limit:?}, {rounds} swap-outs\n{report}{}",
                fixture.log()
            );
        }
        match fixture.try_swap_out("shadow") {
            Ok(()) => {
                rounds += 1;
                let status = fixture.app("shadow");
                if status.swapped_out_pages >= last.swapped_out_pages {
                    last = status;
                }
            }
            // Right once the program has ended; looked at below.
            Err(error) => {
                refused = Some(error.to_string());
                std::thread::sleep(Duration::from_millis(100));
                if program.is_running() {
                    panic!("swap-out refused: {refused:?}\n{}{}", program.report(), fixture.log());
                }
            }
        }
        // A storm, not a breeze.
        let enough = rounds >= 3 && last.swapped_out_pages * page_size() >= 256 << 20;
        if enough && began.elapsed().as_secs() >= seconds && !told {
            terminate(program.pid);
            told = true;
        }
        std::thread::sleep(Duration::from_millis(rounds % 8 * 25));
    }
    let status = program.wait(LONG);
    let lines = program.rest(LONG);
    let message = || {
        format!(
            "{status}, {rounds} swap-outs, {last:?}, {refused:?}\n{}\n{}{}",
            lines.join("\n"),
            program.report(),
            fixture.log()
        )
    };
    assert!(status.success(), "{}", message());
    assert!(lines.last().is_some_and(|line| line.starts_with("OK ")), "{}", message());
    assert!(told, "it ended before it was told to: {}", message());
    // A mapping is in two parts only while it is being registered, and nobody gets the CPU meanwhile.
    let cut = lines.iter().find_map(|line| number_behind(line, "mremap-cut="));
    assert!(cut.is_some_and(|cut| cut <= 1), "{cut:?}: {}", message());
    println!(
        "{test}: {rounds} swap-outs, {} pages out, {} restored, {} faults\n{}",
        last.swapped_out_pages,
        last.restored_pages,
        last.faults,
        lines.join("\n")
    );
    fixture.wait_all_freed("shadow");
    fixture.assert_daemon_lives();
}

fn number_behind(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name))?.parse().ok()
}

#[test]
fn small_pages() {
    storm("shadow::small_pages", &[]);
}

#[test]
fn huge_pages() {
    storm("shadow::huge_pages", &["--hugepage"]);
}

#[test]
fn mremap_that_leaves_the_old_range() {
    storm("shadow::mremap_that_leaves_the_old_range", &["--dontunmap", "--threads", "4"]);
}

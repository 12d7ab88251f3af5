//! `clew simulate`: many machines that lend each other memory. `CLEW_SIMULATED_MINUTES` says for how long a thousand of them
//! are simulated (9).

use std::process::Output;

use clew_fixture::*;
use serde_json::Value;

fn simulate(words: &[&str]) -> Output {
    run_to_end(clew().arg("simulate").args(words), 20 * LONG)
}

fn outcome(words: &[&str]) -> Value {
    let output = simulate(&[words, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", texts(&output));
    serde_json::from_slice(&output.stdout).expect("an outcome")
}

#[test]
fn machines_lend_and_leave_and_the_same_seed_gives_the_same() {
    let few = ["--clients", "12", "--donors", "6", "--hours", "0.3", "--churn", "60"];
    let two = [&few[..], &["--copies", "2", "--seed", "5"]].concat();
    let once = outcome(&two);
    assert_eq!(once, outcome(&two));
    assert_eq!(once["kind"], "simulated");
    for count in ["launches", "relaunches", "pages_out", "pages_back", "mended_pages", "left"] {
        assert!(once[count].as_u64() > Some(0), "{count} in {once}");
    }
    let shown = simulate(&two);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.starts_with("simulated: 12 machines that borrow, 6 that lend"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (words, said) in [
        (&["--clients", "0"][..], "machines"),
        (&["--copies", "3"], "copies"),
        (&["--known", "32"], "known"),
        (&["--hours=-1"], "hours"),
        (&["--churn", "0"], "churn"),
        (&["--scheme", "zram"], "other places"),
        (&["--scheme", "nobody"], "nobody"),
    ] {
        let output = simulate(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", texts(&output));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{words:?} '{said}': {errors}");
    }
}

/// 1,000 that borrow and 100 that lend.
#[test]
fn a_thousand_machines_use_a_hundred_donors_evenly() {
    let hours = number_from_env("CLEW_SIMULATED_MINUTES", 9) as f64 / 60.0;
    for copies in ["1", "2"] {
        let whole = outcome(&["--copies", copies, "--hours", &hours.to_string()]);
        let worst = whole["balance"]["worst"].as_f64().expect("a ratio");
        assert!(worst > 1.0 && worst <= 1.3, "{whole}");
    }
}

//! `clew replay --donors`: what lends memory in a replay, and is lost.

use std::process::Output;

use clew_fixture::*;
use serde_json::Value;

fn run(words: &[&str]) -> Output {
    run_to_end(clew().args(words), LONG)
}

#[test]
fn donors_lend_and_are_lost_and_senseless_ones_refused() {
    let dir = TempDir::new();
    let trace = dir.join("apps.trace").to_str().expect("UTF-8").to_string();
    let generated = ["gen", "mobileswap", "--no-contents", "--scale", "0.02", "--apps", "6"];
    let output = run(&[&generated[..], &["--events", "60000", "-o", &trace]].concat());
    assert!(output.status.success(), "{}", texts(&output));
    let replay = |more: &[&str]| {
        let words = ["replay", &trace, "--policy-only", "--budget", "40%", "--format", "json"];
        run(&[&words[..], more].concat())
    };
    let of = |scheme: &str, donors: &str| -> Value {
        let output = replay(&["--scheme", scheme, "--donors", donors]);
        assert!(output.status.success(), "{}", texts(&output));
        let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
        result["points"][0]["arms"][0]["replay"].clone()
    };
    for scheme in ["mobileswap", "remoteswap"] {
        let whole = of(scheme, "64MiB,64MiB");
        let sent = whole["link_written_bytes"].as_u64().expect("a count");
        assert!(sent > 1 << 20 && whole["link_read_bytes"].as_u64() > Some(1 << 20), "{whole}");
        let count = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
        assert_eq!(count(&whole, "crashes"), 0, "{whole}");
        // One donor is lost at once, and the other one in the middle.
        let lost = of(scheme, "64MiB@0,64MiB@200s");
        let (ended, crashed) = (count(&lost, "kills") > 0, count(&lost, "crashes") > 0);
        assert!(crashed != (scheme == "mobileswap") && (ended || crashed), "{lost}");
    }
    for (words, said) in [
        (&["--scheme", "mobileswap"][..], "--donors"),
        (&["--donors", "much"], "much"),
        (&["--donors", "64MiB@soon"], "seconds"),
        (&["--donors", "64MiB", "--link", "0"], "--link"),
        (&["--donors", "64MiB", "--round-trip", "NaN"], "--round-trip"),
        (&["--link", "920"], "--donors"),
    ] {
        let output = replay(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", texts(&output));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{words:?} '{said}': {errors}");
    }
}

//! `clew reproduce`: what it prints and writes, and what it refuses.

use clew_fixture::*;
use serde_json::Value;

fn reproduce(words: &[&str]) -> std::process::Output {
    run_to_end(clew().arg("reproduce").args(words), 2 * LONG)
}

#[test]
fn a_figure_is_printed_and_written() {
    let dir = TempDir::new();
    let out = dir.join("out");
    let words = ["ariadne", "--quick", "--figure", "5", "--output", out.to_str().expect("UTF-8")];
    let output = reproduce(&words);
    assert!(output.status.success(), "{}", texts(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for word in ["CLAIM", "70.0", "computed", "claims that could be run hold", "ariadne-5.html"] {
        assert!(text.contains(word), "'{word}' is not in it:\n{text}");
    }
    let json = reproduce(&[&words[..], &["--format", "json"]].concat());
    assert!(json.status.success(), "{}", texts(&json));
    let printed: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let written = std::fs::read(out.join("ariadne-5.json")).expect("it was written");
    assert_eq!(printed, serde_json::from_slice::<Value>(&written).expect("JSON"));
    let claim = &printed[0];
    for field in [
        "figure",
        "claim",
        "paper",
        "measured",
        "unit",
        "kind",
        "trace",
        "tolerance",
        "holds",
        "note",
    ] {
        assert!(!claim[field].is_null(), "{field}: {claim}");
    }
}

#[test]
fn what_is_not_there_is_refused_and_told() {
    let dir = TempDir::new();
    let at = |name: &str| dir.join(name).to_str().expect("UTF-8").to_string();
    let out = at("out");
    for (words, expected) in [
        (&["zswapped"][..], &["zswapped", "archer, ariadne, elasticzram, ezswap, mobileswap"][..]),
        (&["archer", "--figure", "6"], &["'6'", "1, 2, 3, 7, 8, 9, 10, text"]),
        (&["archer", "--jobs", "0"], &["--jobs"]),
        (&["archer", "--trace", &at("none.trace")], &["none.trace"]),
    ] {
        let output = reproduce(&[words, &["--quick", "--output", &out]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", texts(&output));
        for word in expected {
            assert!(errors.contains(word), "{words:?} '{word}': {errors}");
        }
    }
    std::fs::write(dir.join("file"), "x").expect("it can be written");
    let output = reproduce(&["archer", "--quick", "--figure", "3", "--output", &at("file")]);
    assert_eq!(output.status.code(), Some(2), "{}", texts(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("file"), "{}", texts(&output));
}

//! Papers, run again as small as they can be: every claim says what it is, what is modelled repeats to the
//! byte, and what is there is not run again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use clew_lab::LabError;
use clew_lab::reproduce::{Asked, Claim, Kind, PAPERS, Paper, Reproduced, Tolerance, reproduce};

fn asked<'a>(paper: &'a str, figure: Option<&'a str>, directory: &'a Path) -> Asked<'a> {
    let paper = Paper::named(paper).unwrap_or_else(|error| panic!("{error}"));
    Asked { paper, figure, quick: true, trace: None, directory, jobs: 2 }
}

fn run(asked: &Asked<'_>) -> Reproduced {
    let found = reproduce(asked, &|_, part| {
        assert!((0.0..=1.0).contains(&part), "{part}");
        ControlFlow::Continue(())
    });
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// Every file below `directory`, and when it was written.
fn files(directory: &Path) -> BTreeMap<String, std::time::SystemTime> {
    let read = |name: &str| std::fs::read_dir(directory.join(name)).expect("a directory");
    let entries = read("runs").chain(read("traces")).map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            let written = entry.metadata().and_then(|data| data.modified()).expect("a time");
            (entry.file_name().to_string_lossy().into_owned(), written)
        })
        .collect()
}

fn check(claim: &Claim) {
    let shown = format!("{claim:?}");
    assert!(!claim.claim.is_empty() && !claim.unit.is_empty(), "{shown}");
    match claim.measured {
        None => {
            assert_eq!(claim.holds, None, "{shown}");
            assert!(claim.note.starts_with("not run: "), "{shown}");
        }
        Some(here) => {
            // Nothing here is timed.
            assert_ne!(claim.kind, Kind::Measured, "{shown}");
            assert!(here.is_finite() && !claim.trace.is_empty(), "{shown}");
            assert_eq!(claim.holds, Some(claim.tolerance.holds(claim.paper, here)), "{shown}");
        }
    }
    // A claim without a number of the paper has a direction.
    let has_direction =
        matches!(claim.tolerance, Tolerance::Above { .. } | Tolerance::Below { .. });
    assert!(claim.paper.is_some() || has_direction, "{shown}");
}

#[test]
fn every_paper_runs_and_every_claim_says_what_it_is() {
    for paper in PAPERS {
        let directory = tempfile::tempdir().expect("a directory");
        let found = run(&asked(paper.name, None, directory.path()));
        found.claims.iter().for_each(check);
        for figure in paper.figures {
            // Parts of a figure are 7a and 7b.
            let of_it = |claim: &&Claim| claim.figure.starts_with(figure.number);
            assert!(
                found.claims.iter().any(|claim| of_it(&claim)),
                "{} {}",
                paper.name,
                figure.number
            );
        }
        let ran = found.claims.iter().filter(|claim| claim.holds.is_some()).count();
        let expected = match paper.name {
            "elasticzram" => 0,
            "mobileswap" => 20,
            _ => 40,
        };
        assert!(ran >= expected, "{}: {ran} claims were run", paper.name);
        let written = found.write(directory.path()).expect("a directory of ours");
        let read = |at: usize| std::fs::read_to_string(&written[at]).expect("what was written");
        let back: Vec<Claim> = serde_json::from_str(&read(0)).expect("claims");
        assert_eq!(back, found.claims);
        let page = read(1);
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for forbidden in ["http:", "https:", "src=", "href=", "<script", "{{", "NaN"] {
            assert!(!outside.contains(forbidden), "{}: {forbidden}", paper.name);
        }
        for figure in paper.figures {
            assert!(page.contains(&figure.title.replace('&', "&amp;")), "{}", figure.title);
        }
    }
}

#[test]
fn the_same_gives_the_same_bytes_and_nothing_is_run_twice() {
    let (one, two) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let figure = |directory| run(&asked("ariadne", Some("14"), directory)).json().expect("claims");
    let first = figure(one.path());
    assert_eq!(figure(two.path()), first, "another directory");
    let before = files(one.path());
    assert!(before.len() > 3, "{before:?}");
    assert_eq!(figure(one.path()), first, "the same directory");
    assert_eq!(files(one.path()), before, "something was made anew");
    // A run that is no run is made again.
    let broken = one
        .path()
        .join("runs")
        .join(before.keys().find(|name| name.ends_with(".json")).expect("a run"));
    std::fs::write(&broken, "{").expect("it is ours");
    assert_eq!(figure(one.path()), first, "after damage");
    assert_eq!(files(one.path()).len(), before.len());
}

#[test]
fn what_there_is_not_is_told_with_what_there_is() {
    let unknown = Paper::named("zswapped").err().expect("there is none");
    assert!(unknown.is_bad_input());
    let text = unknown.to_string();
    assert!(
        text.contains("zswapped")
            && text.contains("archer, ariadne, elasticzram, ezswap, mobileswap"),
        "{text}"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let asked = asked("archer", Some("4"), directory.path());
    let error = reproduce(&asked, &|_, _| ControlFlow::Continue(())).err().expect("no such figure");
    let text = error.to_string();
    assert!(error.is_bad_input() && text.contains("'4'") && text.contains("10, text"), "{text}");
    assert!(!directory.path().join("runs").exists(), "something was begun");
}

#[test]
fn an_interruption_ends_it_and_leaves_whole_files_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let asked = asked("ariadne", Some("14"), directory.path());
    let error = reproduce(&asked, &|_, _| ControlFlow::Break(())).err().expect("it was stopped");
    assert!(matches!(error, LabError::Generate(_)), "{error}");
    assert_eq!(files(directory.path()).len(), 0);
}

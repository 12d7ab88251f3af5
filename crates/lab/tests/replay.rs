//! Traces through the real engine and the weightless one.

mod support;

use clew_lab::{Lookahead, Outcome, Pages, Settings, replay};
use clew_policy::Scheme;
use clew_trace::{ContentsKind, Trace};
use support::{Plan, trace};

const BUDGET: u64 = 24 << 20;

fn settings(scheme: &str, pages: Pages) -> Settings {
    let scheme = Scheme::preset(scheme).expect("a preset");
    Settings { pages, ..Settings::new(scheme, BUDGET) }
}

fn run(trace: &Trace, settings: &Settings) -> Outcome {
    let lookahead = Lookahead::of(trace).expect("a good trace");
    replay(trace, &lookahead, settings, &mut |_, _| {}).expect("a replay")
}

#[test]
fn every_scheme_brings_back_what_it_took() {
    let directory = tempfile::tempdir().expect("a directory");
    for seed in 1..=3 {
        let trace = trace(&directory.path().join("t.clew"), Plan::small(seed));
        for scheme in clew_policy::schemes::all() {
            let outcome = run(&trace, &settings(&scheme.name, Pages::Real));
            println!("{}", serde_json::to_string(&outcome).unwrap());
            let _ = outcome;
        }
    }
}

#[test]
fn weightless() {
    let directory = tempfile::tempdir().expect("a directory");
    for contents in [ContentsKind::None, ContentsKind::Stats] {
        let plan = Plan { contents, ..Plan::small(1) };
        let trace = trace(&directory.path().join("t.clew"), plan);
        for scheme in clew_policy::schemes::all() {
            let outcome = run(&trace, &settings(&scheme.name, Pages::Weightless { ratio: None }));
            println!("{}", serde_json::to_string(&outcome).unwrap());
        }
    }
}

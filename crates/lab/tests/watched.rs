//! A replay that is watched launch by launch decides as one that is not.

use std::ops::ControlFlow;

use clew_lab::{Input, Memory, Pages, Settings, replay, watched};
use clew_policy::Scheme;
use clew_trace::Draft;
use clew_trace::generate::profile::{ARCHER, Profile};
use clew_trace::generate::{Workload, generate};

fn input(directory: &tempfile::TempDir, profile: &'static Profile) -> Input {
    let path = directory.path().join("t.trace");
    let workload = Workload {
        scale: 0.01,
        events: Some(80_000),
        contents: false,
        ..Workload::new(profile, 3)
    };
    let draft = Draft::new(&path, false).expect("a file");
    let made = generate(&workload, draft, &mut |_| ControlFlow::Continue(())).expect("a trace");
    made.0.commit().expect("a file");
    Input::open(&path).expect("a good trace")
}

fn settings(input: &Input, scheme: &str) -> Settings {
    let scheme = Scheme::preset(scheme).expect("a preset");
    let budget = Memory::Percent(50.0).bytes(input).expect("enough");
    Settings { pages: Pages::Weightless { ratio: None }, ..Settings::new(scheme, budget) }
}

#[test]
fn who_watches_changes_nothing_that_is_decided() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = input(&directory, &ARCHER);
    for scheme in ["zram", "archer", "ariadne-paper"] {
        let settings = settings(&input, scheme);
        let plain = replay(&input.trace, &input.lookahead, &settings, &mut |_, _| {});
        let plain = plain.expect("a replay").replay.expect("it was replayed");
        let seen = watched(&input.trace, &input.lookahead, &settings, &mut |_, _| {});
        let (arm, found) = seen.expect("a replay");
        let counted = arm.replay.expect("it was replayed");
        assert_eq!(counted.decisions, plain.decisions, "{scheme}");
        assert_eq!(counted.swapped_out_pages, plain.swapped_out_pages, "{scheme}");
        let (cold, hot): (Vec<&_>, Vec<&_>) = found.switches.iter().partition(|one| one.cold);
        assert_eq!(cold.len() as u64, plain.launches, "{scheme}");
        assert_eq!(hot.len(), arm.relaunch_ms.n, "{scheme}");
        assert!(found.switches.iter().all(|one| one.took_ms >= one.own_ms), "{scheme}");
        let left: u64 = found.apps.values().map(|app| app.out_pages).sum();
        assert!(left > 0 && left <= plain.swapped_out_pages, "{scheme}: {left}");
    }
}

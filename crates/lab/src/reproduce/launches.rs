//! What runs say of launches, app by app.

use std::collections::BTreeMap;

use crate::replay::Switch;

use super::desk::Run;

/// Launches of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// The app was started.
    Cold,
    /// It was brought back.
    Hot,
}

/// The switches of `run` of that kind, of apps below `below`.
pub fn of(run: &Run, kind: Launch, below: u32) -> impl Iterator<Item = &Switch> {
    let wanted =
        move |switch: &&Switch| switch.cold == (kind == Launch::Cold) && switch.app < below;
    run.watched.switches.iter().filter(wanted)
}

/// Of each app: what `each` says of its switches, put together by `put`.
fn by_app(
    run: &Run,
    kind: Launch,
    below: u32,
    each: fn(&Switch) -> f64,
    put: fn(&[f64]) -> f64,
) -> BTreeMap<u32, f64> {
    let mut all: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for switch in of(run, kind, below) {
        all.entry(switch.app).or_default().push(each(switch));
    }
    all.into_iter().map(|(app, values)| (app, put(&values))).collect()
}

/// The mean of some numbers.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Mean time of each app's launches, milliseconds.
pub fn mean_ms(run: &Run, kind: Launch, below: u32) -> BTreeMap<u32, f64> {
    by_app(run, kind, below, |switch| switch.took_ms, mean)
}

/// The same without any swapping.
pub fn own_ms(run: &Run, kind: Launch, below: u32) -> BTreeMap<u32, f64> {
    by_app(run, kind, below, |switch| switch.own_ms, mean)
}

/// The longest of each app's launches, milliseconds.
pub fn worst_ms(run: &Run, kind: Launch, below: u32) -> BTreeMap<u32, f64> {
    by_app(run, kind, below, |switch| switch.took_ms, worst)
}

/// Mean, over the apps that both have, of `one`'s part of `other`.
pub fn ratio(one: &BTreeMap<u32, f64>, other: &BTreeMap<u32, f64>) -> Option<f64> {
    let both: Vec<f64> =
        one.iter().filter_map(|(app, value)| Some(value / other.get(app)?)).collect();
    (!both.is_empty()).then(|| mean(&both))
}

/// How much longer launches take than without any swapping: 1 for not at all.
pub fn slowdown(run: &Run, kind: Launch, below: u32) -> Option<f64> {
    ratio(&mean_ms(run, kind, below), &own_ms(run, kind, below))
}

/// The mean, over launches, of what `each` says.
pub fn each(run: &Run, kind: Launch, below: u32, each: fn(&Switch) -> f64) -> Option<f64> {
    let values: Vec<f64> = of(run, kind, below).map(each).collect();
    (!values.is_empty()).then(|| mean(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Watched;

    fn run() -> Run {
        let switch =
            |app, cold, own_ms, took_ms| Switch { app, cold, own_ms, took_ms, ..Switch::default() };
        let switches = vec![
            switch(0, false, 10.0, 20.0),
            switch(0, false, 10.0, 40.0),
            switch(1, false, 10.0, 10.0),
            switch(1, true, 90.0, 100.0),
            switch(9, false, 10.0, 1000.0),
        ];
        let watched = Watched { switches, ..Watched::default() };
        Run { arm: clew_report::Arm::default(), watched }
    }

    #[test]
    fn launches_are_taken_by_app_and_kind() {
        let run = run();
        assert_eq!(mean_ms(&run, Launch::Hot, 8), BTreeMap::from([(0, 30.0), (1, 10.0)]));
        assert_eq!(worst_ms(&run, Launch::Hot, 8), BTreeMap::from([(0, 40.0), (1, 10.0)]));
        // Each app counts alike: 3 and 1.
        assert_eq!(slowdown(&run, Launch::Hot, 8), Some(2.0));
        assert_eq!(slowdown(&run, Launch::Cold, 8), Some(100.0 / 90.0));
        assert_eq!(slowdown(&run, Launch::Cold, 1), None);
    }
}

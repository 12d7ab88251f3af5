//! Several schemes on one trace, in equal memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use clew_policy::Scheme;
use serde::Serialize;

use crate::belady::belady;
use crate::costs::Clock;
use crate::error::LabError;
use crate::input::Input;
use crate::replay::{Outcome, Pages, Settings, replay};

/// Schemes side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The trace's file name.
    pub trace: String,
    /// Where the trace comes from.
    pub source: String,
    /// Memory for each.
    pub budget_bytes: u64,
    /// Memory that the trace's pages take together.
    pub footprint_bytes: u64,
    /// One a scheme, in the order asked for.
    pub outcomes: Vec<Outcome>,
}

/// Runs `work` for each of `count` things on `jobs` threads; results in their order, or the error of
/// the first that has one.
pub(crate) fn in_parallel<T: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<T, LabError> + Sync,
) -> Result<Vec<T>, LabError> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let done: Mutex<Vec<Option<Result<T, LabError>>>> =
        Mutex::new((0..count).map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                while !failed.load(Relaxed) {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= count {
                        return;
                    }
                    let result = work(at);
                    if result.is_err() {
                        failed.store(true, Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done[at] = Some(result);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.into_iter().flatten().collect()
}

/// One replay, with everything that its outcome says about itself.
pub(crate) fn one(
    input: &Input,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, LabError> {
    let Input { trace, lookahead } = input;
    let mut outcome = replay(trace, lookahead, settings, progress)?;
    outcome.trace = input.name();
    if let Pages::Weightless { ratio: Some(ratio) } = settings.pages {
        outcome.belady = Some(belady(trace, settings.budget_bytes, ratio)?);
    }
    Ok(outcome)
}

/// Replays `input` under each of `schemes`, on `jobs` threads; with measured time on one, so that
/// they do not disturb each other. `progress` hears of a scheme, by its position.
pub fn compare(
    input: &Input,
    schemes: &[Scheme],
    settings: &Settings,
    jobs: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> Result<Comparison, LabError> {
    let jobs = if matches!(settings.clock, Clock::Measured(_)) { 1 } else { jobs };
    let outcomes = in_parallel(schemes.len(), jobs, |at| {
        let settings = Settings { scheme: schemes[at].clone(), ..settings.clone() };
        one(input, &settings, &mut |done, of| progress(at, done, of))
    })?;
    let provenance = &input.trace.header().provenance;
    let seed = provenance.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    Ok(Comparison {
        trace: input.name(),
        source: format!("{:?} by {}{seed}", provenance.source, provenance.tool).to_lowercase(),
        budget_bytes: settings.budget_bytes,
        footprint_bytes: input.footprint_bytes(),
        outcomes,
    })
}

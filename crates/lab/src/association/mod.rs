//! What is used together in a trace, by what it would save: the same replay again and again, in which only what
//! comes along with a fault is another each time.
//!
//! Reclaim is an LRU, pages are compressed one by one into one pool, nothing is restored ahead. In a recording
//! with windows everything of an app leaves where it did there, so that each return finds nothing in memory; beside
//! that, what the budget asks for. Sizes are by the trace's statistics, or by the table of costs.
//!
//! Counts are of the whole trace, the first use of everything included, of which nobody can know anything. They are
//! the same at every run. What learning takes of the processor is measured, and is not.

mod metered;
mod ways;

use std::collections::BTreeMap;
use std::sync::Arc;

use clew_policy::Scheme;
use serde::Serialize;

use crate::compare::in_parallel;
use crate::error::LabError;
use crate::input::Input;
use crate::replay::{Pages, Settings, replay};
pub use metered::CpuClock;
use metered::{Meter, Metered};

/// What came of one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Way {
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Pages that programs asked for and waited for.
    pub faults: u64,
    /// These, as a part of those where nothing comes along.
    pub faults_left: Option<f64>,
    /// Pages that came along.
    pub along_pages: u64,
    /// Of these, used before they left again.
    pub along_used: u64,
    /// All pages that came back / those that were used.
    pub loaded_for_used: Option<f64>,
    /// What it held at most to know what it knows.
    pub metadata_bytes: u64,
    /// What its learning and its choices took of a processor, measured.
    pub learning_ms: f64,
    /// That, as a part of the time that the trace takes.
    pub learning_part: Option<f64>,
    /// What it has counted itself.
    pub counted: BTreeMap<String, f64>,
}

/// What came of all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Association {
    /// The trace's file name.
    pub trace: String,
    /// How long it takes, seconds.
    pub seconds: f64,
    /// Memory of the replays.
    pub budget_bytes: u64,
    /// Memory of all pages.
    pub footprint_bytes: u64,
    /// Everything of an app left where it did in the recording.
    pub windows: bool,
    /// Times that an app came back.
    pub returns: u64,
    /// In the order in which they are listed.
    pub ways: Vec<Way>,
}

/// How the names of what prefetchers count begin.
const OWN: [&str; 4] = ["associated_", "successors_", "runs_", "cluster_"];

/// How many ways there are.
pub fn count() -> usize {
    ways::all().len()
}

/// Whether `input` is a recording in which everything leaves from time to time.
pub fn has_windows(input: &Input) -> bool {
    let notes = &input.trace.header().provenance.notes;
    notes.get("windows").is_some_and(|windows| windows != "none")
}

/// Replays `input` in `budget_bytes`, once for each way, `jobs` at once. `progress` hears of a way, by its
/// position, how far it is.
pub fn association(
    input: &Input,
    budget_bytes: u64,
    jobs: usize,
    clock: CpuClock,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> Result<Association, LabError> {
    let windows = has_windows(input);
    let zram = Scheme::preset("zram")?;
    let totals = input.trace.totals();
    let seconds = totals.last.since(totals.first).0 as f64 / 1e9;
    let ways = ways::all();
    let runs = in_parallel(ways.len(), jobs, |at| {
        let (way, meter) = (&ways[at], Arc::new(Meter::default()));
        let inner = Arc::clone(&way.prefetch);
        let prefetch = Arc::new(Metered { inner, meter: Arc::clone(&meter), clock });
        let scheme = Scheme { prefetch, name: way.name.to_string(), ..zram.clone() };
        let settings = Settings {
            pages: Pages::Weightless { ratio: None },
            windows,
            ..Settings::new(scheme, budget_bytes)
        };
        let Input { trace, lookahead } = input;
        let arm = replay(trace, lookahead, &settings, &mut |done, of| progress(at, done, of))?;
        Ok((arm, meter))
    })?;
    let mut found = Association {
        trace: input.name(),
        seconds,
        budget_bytes,
        footprint_bytes: input.footprint_bytes(),
        windows,
        returns: 0,
        ways: Vec::new(),
    };
    let part = |part: f64, of: f64| (of > 0.0).then(|| part / of);
    let plain = runs.first().map_or(0, |(arm, _)| arm.faults);
    for (way, (arm, meter)) in ways.iter().zip(&runs) {
        let Some(replay) = &arm.replay else { continue };
        found.returns = replay.own_ms.n as u64;
        let is_own = |name: &str| OWN.iter().any(|own| name.starts_with(own));
        let counted = replay.policies.iter().filter(|(name, _)| is_own(name));
        let learning_ms = meter.spent().as_secs_f64() * 1e3;
        found.ways.push(Way {
            name: way.name,
            about: way.about,
            faults: arm.faults,
            faults_left: part(arm.faults as f64, plain as f64),
            along_pages: replay.prefetch.pages,
            along_used: replay.prefetch.used,
            loaded_for_used: replay.read_amplification,
            metadata_bytes: meter.held_bytes(),
            counted: counted.map(|(name, value)| (name.clone(), *value)).collect(),
            learning_ms,
            learning_part: part(learning_ms, seconds * 1e3),
        });
    }
    Ok(found)
}

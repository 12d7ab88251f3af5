//! Several schemes on one trace, in equal memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Instant;

use clew_core::ByteSize;
use clew_policy::Scheme;
use clew_report::{Arm, Machine, Point, PointResult, Replay, Results};

use crate::belady::belady;
use crate::costs::Clock;
use crate::error::LabError;
use crate::input::Input;
use crate::replay::{Pages, Settings, replay};

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
    let take_part = || {
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
    };
    std::thread::scope(|scope| {
        // Where the system has no more threads, it is done by those that there are.
        for _ in 1..jobs.clamp(1, count.max(1)) {
            if Builder::new().spawn_scoped(scope, take_part).is_err() {
                break;
            }
        }
        take_part();
    });
    let done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.into_iter().flatten().collect()
}

/// One replay, with everything that it says about itself.
pub(crate) fn one(
    input: &Input,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Arm, LabError> {
    let Input { trace, lookahead } = input;
    let mut arm = replay(trace, lookahead, settings, progress)?;
    if let (Pages::Weightless { ratio: Some(ratio) }, Some(one)) = (settings.pages, &mut arm.replay)
    {
        one.belady = Some(belady(trace, settings.budget_bytes, ratio)?);
    }
    Ok(arm)
}

/// Replays `input` under each of `schemes`, on `jobs` threads; with measured time on one, so that
/// they do not disturb each other. `progress` hears of a scheme, by its position.
pub fn compare(
    input: &Input,
    schemes: &[Scheme],
    settings: &Settings,
    jobs: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> Result<Results, LabError> {
    let is_measured = matches!(settings.clock, Clock::Measured(_));
    let jobs = if is_measured { 1 } else { jobs };
    let began = Instant::now();
    let arms = in_parallel(schemes.len(), jobs, |at| {
        let settings = Settings { scheme: schemes[at].clone(), ..settings.clone() };
        one(input, &settings, &mut |done, of| progress(at, done, of))
    })?;
    let provenance = &input.trace.header().provenance;
    let seed = provenance.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let source = format!("{:?} by {}{seed}", provenance.source, provenance.tool).to_lowercase();
    let (budget, footprint) = (settings.budget_bytes, input.footprint_bytes());
    let similarity =
        arms.iter().find_map(|arm| arm.replay.as_ref().map(|one| one.hot_sets.similarity));
    let mut notes = vec![format!(
        "{} ({source}): {} of memory for {} of pages",
        input.name(),
        ByteSize(budget),
        ByteSize(footprint)
    )];
    notes.extend(arms.first().map(about_all).unwrap_or_default());
    let unseen =
        arms.iter().filter_map(|arm| Some(arm.replay.as_ref()?.unseen_writes)).sum::<u64>();
    if unseen > 0 {
        notes.push(format!(
            "{unseen} writes that the trace's source could not see were played when their contents \
             were told"
        ));
    }
    let asked = [
        ("trace", input.name().into()),
        ("source", source.into()),
        ("budget_bytes", budget.into()),
        ("footprint_bytes", footprint.into()),
    ];
    Ok(Results {
        title: format!("Schemes on {}", input.name()),
        machine: is_measured.then(Machine::here),
        seed: provenance.seed,
        duration_seconds: is_measured.then(|| began.elapsed().as_secs_f64()),
        settings: asked.map(|(name, value)| (name.to_string(), value)).into(),
        points: vec![PointResult {
            point: Point {
                total_part: (footprint > 0).then(|| budget as f64 / footprint as f64),
                similarity: similarity.flatten(),
            },
            total_bytes: budget,
            arms,
        }],
        notes,
        method: METHOD.map(str::to_string).to_vec(),
        ..Results::default()
    })
}

/// What holds for every replay.
const METHOD: [&str; 3] = [
    "A trace is played to the engine that serves live programs, with a recorded program in place of a \
     real one, in equal memory for every scheme: resident and parked pages, pool and page tables.",
    "Time is modelled by a table of costs, or that of the work on this machine; the table above says \
     which. What programs do themselves takes the trace's time.",
    "Every page that comes back is compared with what it held; a replay ends at the first that is wrong.",
];

/// What is the same under every scheme.
fn about_all(arm: &Arm) -> Vec<String> {
    let Some(Replay { costs, pages, own_ms, .. }) = &arm.replay else { return Vec::new() };
    let sizes = match pages.as_str() {
        "real" => "real codecs on the trace's bytes".to_string(),
        other => format!("no contents: sizes by {other}"),
    };
    vec![
        format!("time {} (costs: {costs}); {sizes}", arm.time),
        format!(
            "relaunches in ms, of which the programs themselves take {:.2} at the median; cold: \
             launched cold / ended; hits: of accesses to pages that held something",
            own_ms.p50
        ),
    ]
}

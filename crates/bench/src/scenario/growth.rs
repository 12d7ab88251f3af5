//! *Growth*: one program after the other is started under the same total, and after each start every one
//! is visited four times in turn, until something has to give. How many stay usable?
//!
//! A program is usable if swapping adds at most a fifth to what its visit takes in memory, or at most what
//! a person does not notice, in at least two of the last three visits: a collection of garbage, which falls into one or into
//! none, takes longer than that.

use std::time::{Duration, Instant};

use clew_report::{Machine, Skipped};
use serde::Serialize;

use super::ScenarioConfig;
use super::paired::differing;
use crate::arms::{self, Arm, ArmKind, Ground};
use crate::demo::total_bytes;
use crate::error::BenchError;
use crate::interrupt::{self, InterruptGuard};
use crate::preparation::{installed, rehearse};
use crate::programs::Kind;
use crate::progress::Progress;
use crate::run::{self, Turn, Work};
use crate::scratch::Scratch;
use crate::session::Session;
use crate::totals::Watch;

/// What swapping may add to a visit of a usable program, as a part of the visit in memory.
const ADDED_PART: f64 = 0.2;
/// What it may always add: answers within 0.1 s are felt as immediate (Miller, "Response time in man-computer
/// conversational transactions", 1968).
const UNNOTICED_MS: f64 = 100.0;

/// Among fewer programs nothing has given yet: what a program that has just begun takes differs from run to run.
const FEW: usize = 3;

/// Visits of each program after each start; all but the first tell whether it is usable, when what the new
/// program displaced has settled. So many tell that there is one in the middle.
const ROUNDS: u32 = 4;

/// What *growth* gave.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthResult {
    pub scenario: super::Scenario,
    pub commit: Option<String>,
    pub seed: u64,
    pub machine: Machine,
    /// In the order in which they were started.
    pub programs: Vec<String>,
    /// The most that all of them used in memory, and what each other arm had.
    pub need_bytes: u64,
    pub total_bytes: u64,
    /// `dram` first.
    pub arms: Vec<GrowthArm>,
    pub skipped: Vec<Skipped>,
}

/// One arm of it.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthArm {
    pub name: String,
    pub scheme: String,
    /// After each start.
    pub steps: Vec<GrowthStep>,
    /// Why no more programs were started, if not all were.
    pub gave: Option<String>,
    /// The most programs that ran with each of them usable, then and before.
    pub all_usable: usize,
    /// The most programs that were usable at once.
    pub most_usable: usize,
    pub total_bytes_peak: u64,
    pub answers: u64,
    /// Those that differ from the model's, or from those in memory.
    pub wrong_answers: u64,
}

/// What was so after one more program had been started and all were visited.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GrowthStep {
    /// The program that was started.
    pub program: String,
    /// From its start until its user has it all day.
    pub start_ms: f64,
    /// Programs that ran, and how many of them were usable.
    pub running: usize,
    pub usable: usize,
    /// What swapping added to the visits of each but the first, the one in the middle, in the order of their starts.
    pub added_ms: Vec<f64>,
    /// Memory in use after the visits.
    pub used_bytes: u64,
}

impl GrowthResult {
    /// Wrong answers in all arms.
    pub fn wrong_answers(&self) -> u64 {
        self.arms.iter().map(|arm| arm.wrong_answers).sum()
    }
}

/// What was seen after a start: of each program, how long its visits but the first took, and what they gave.
struct Seen {
    start: Duration,
    visits: Vec<Vec<(Duration, Vec<u32>)>>,
    used_bytes: u64,
}

/// What one arm gave, beside nothing yet.
struct Grown {
    scheme: String,
    seen: Vec<Seen>,
    gave: Option<String>,
    peak_bytes: u64,
    answers: u64,
    wrong: u64,
}

/// Runs it. What cannot run is named in the result, with the reason.
///
/// # Errors
/// If nothing can run: no program, or not in memory either.
pub fn growth(
    config: &ScenarioConfig,
    progress: &dyn Progress,
) -> Result<GrowthResult, BenchError> {
    config.check()?;
    let _interrupts = InterruptGuard::new();
    let scratch = Scratch::new("clew-demo-")?;
    let mut skipped = Vec::new();
    let mut parts = config.scenario.parts();
    let mut part = parts.swap_remove(0);
    part.programs.retain(|kind| config.programs.is_empty() || config.programs.contains(kind));
    part.programs = installed(&part.programs, &mut skipped)?;
    let work = config.work(&part);
    rehearse(&work, scratch.path(), progress)?;
    let settings = config.settings();
    let run = |kind, total, memory: Option<&Grown>| {
        let arm = arms::make(kind, &settings)?;
        let ground =
            run::ground(&*arm, total, config.headroom_bytes, work.fills_freely, scratch.path())?;
        grow(arm, &ground, &work, memory, progress)
    };
    let memory = run(ArmKind::Dram, None, None)?;
    if let Some(reason) = &memory.gave {
        return Err(BenchError::Unavailable { what: "dram", reason: reason.clone() });
    }
    let need_bytes = memory.peak_bytes;
    let total_bytes =
        config.total_bytes.unwrap_or_else(|| total_bytes(need_bytes, config.fraction));
    let mut arms = vec![beside(ArmKind::Dram, &work, &memory, &memory)];
    for &kind in config.arms.iter().filter(|&&kind| kind != ArmKind::Dram) {
        match run(kind, Some(total_bytes), Some(&memory)) {
            Ok(grown) => arms.push(beside(kind, &work, &memory, &grown)),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                progress.done(&format!("{kind} did not run: {error}"));
                skipped.push(Skipped { name: kind.to_string(), reason: error.to_string() });
            }
        }
    }
    Ok(GrowthResult {
        scenario: config.scenario,
        commit: config.commit.clone(),
        seed: config.seed,
        machine: Machine::here(),
        programs: work.programs.iter().map(Kind::to_string).collect(),
        need_bytes,
        total_bytes,
        arms,
        skipped,
    })
}

/// One arm, until something gives or all programs run. Guards end in the reverse order of their making.
fn grow(
    mut arm: Box<dyn Arm>,
    ground: &Ground,
    work: &Work,
    memory: Option<&Grown>,
    progress: &dyn Progress,
) -> Result<Grown, BenchError> {
    let name = arm.kind();
    progress.begin(&format!("{name}: growing"), work.programs.len() as u64);
    arm.begin(ground)?;
    let watch = Watch::start(ground.group.usage_file(), arm.kernel_pool());
    let mut grown = Grown {
        scheme: arm.scheme(),
        seen: Vec::new(),
        gave: None,
        peak_bytes: 0,
        answers: 0,
        wrong: 0,
    };
    let mut sessions: Vec<Session> = Vec::new();
    for (app, &kind) in work.programs.iter().enumerate() {
        match one_more(&mut *arm, ground, work, &mut sessions, &mut grown) {
            Ok(seen) => grown.seen.push(seen),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                let kills = ground.group.out_of_memory_kills().unwrap_or_default();
                grown.gave = Some(match kills {
                    0 => format!("{kind}: {error}"),
                    _ => format!("{kind}: the kernel ended {kills} processes for want of memory"),
                });
                break;
            }
        }
        let step = memory.map(|memory| step_of(work, app, memory, &grown.seen[app]));
        progress.step(&match &step {
            Some(step) => format!("{kind}: {} of {} usable", step.usable, step.running),
            None => format!("{kind} runs"),
        });
        if let Some(step) = step
            && step.running >= FEW
            && step.usable * 2 < step.running
        {
            grown.gave = Some(format!("{} of {} were usable", step.usable, step.running));
            break;
        }
    }
    let totals = watch.finish();
    grown.peak_bytes = totals.peak_bytes;
    sessions.into_iter().for_each(Session::end);
    progress.done(&format!("{name}: {} programs ran", grown.seen.len()));
    Ok(grown)
}

/// Starts the next program, then visits all in the order of their starts.
fn one_more(
    arm: &mut dyn Arm,
    ground: &Ground,
    work: &Work,
    sessions: &mut Vec<Session>,
    grown: &mut Grown,
) -> Result<Seen, BenchError> {
    let kind = work.programs[sessions.len()];
    let since = Instant::now();
    sessions.push(run::start_one(arm, ground, kind, work.load, since)?);
    let start = since.elapsed();
    let apps: Vec<(Kind, u32)> = work
        .programs
        .iter()
        .zip(&*sessions)
        .map(|(&kind, session)| (kind, session.pid()))
        .collect();
    arm.filled(&apps)?;
    let mut visits = vec![Vec::new(); sessions.len()];
    for round in 0..ROUNDS {
        let last = sessions.len();
        for (app, session) in sessions.iter_mut().enumerate() {
            interrupt::sleep(work.pause)?;
            // The first visits of each are right after its start.
            let mut number = (last - app - 1) as u32 * ROUNDS + round;
            let visit = run::visit(arm, session, &mut number, Turn::BOTH)?;
            grown.answers += visit.answers.count;
            grown.wrong += visit.answers.wrong;
            if round > 0 {
                visits[app].push((visit.time, visit.answers.digests));
            }
        }
    }
    let in_pool = arm.kernel_pool().map_or(0, |pool| pool.now().used_bytes);
    Ok(Seen { start, visits, used_bytes: ground.group.usage_bytes()? + in_pool })
}

/// What swapping added after the start of that program.
fn step_of(work: &Work, app: usize, memory: &Grown, seen: &Seen) -> GrowthStep {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let own = &memory.seen[app].visits;
    // Of each program, what its visit in the middle took in memory, and what swapping added to the visits, that in the middle.
    let in_middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let of_program = |(own, visits): (&Vec<(Duration, _)>, &Vec<(Duration, _)>)| {
        let added = own.iter().zip(visits).map(|(own, visit)| ms(visit.0) - ms(own.0)).collect();
        (in_middle(own.iter().map(|visit| ms(visit.0)).collect()), in_middle(added))
    };
    let pairs: Vec<(f64, f64)> = own.iter().zip(&seen.visits).map(of_program).collect();
    GrowthStep {
        program: work.programs[app].to_string(),
        start_ms: ms(seen.start),
        running: seen.visits.len(),
        usable: pairs.iter().filter(|(own, added)| is_usable(*own, *added)).count(),
        added_ms: pairs.iter().map(|(_, added)| *added).collect(),
        used_bytes: seen.used_bytes,
    }
}

/// Whether who waits `added` ms more for what takes `own` in memory can work with it.
fn is_usable(own: f64, added: f64) -> bool {
    added <= (own * ADDED_PART).max(UNNOTICED_MS)
}

/// An arm beside the one in memory.
fn beside(kind: ArmKind, work: &Work, memory: &Grown, grown: &Grown) -> GrowthArm {
    let seen = grown.seen.iter().enumerate();
    let steps: Vec<GrowthStep> = seen.map(|(app, seen)| step_of(work, app, memory, seen)).collect();
    let digests = |of: &Grown| -> Vec<Vec<u32>> {
        let seen = of.seen.iter().take(grown.seen.len());
        seen.flat_map(|seen| seen.visits.iter().flatten().map(|visit| visit.1.clone())).collect()
    };
    GrowthArm {
        name: kind.to_string(),
        scheme: grown.scheme.clone(),
        all_usable: steps.iter().take_while(|step| step.usable == step.running).count(),
        most_usable: steps.iter().map(|step| step.usable).max().unwrap_or_default(),
        steps,
        gave: grown.gave.clone(),
        total_bytes_peak: grown.peak_bytes,
        answers: grown.answers,
        wrong_answers: grown.wrong + differing(&digests(memory), &digests(grown)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;

    /// One visit of each takes that long, one longer, one is quick.
    fn grown(times: &[&[u64]], digest: u32) -> Grown {
        let visits = |ms: &u64| {
            [ms * 2, *ms, ms / 2].map(|ms| (Duration::from_millis(ms), vec![digest])).to_vec()
        };
        let seen = |times: &&[u64]| Seen {
            start: Duration::from_secs(1),
            visits: times.iter().map(visits).collect(),
            used_bytes: 7,
        };
        Grown {
            scheme: "s".to_string(),
            seen: times.iter().map(seen).collect(),
            gave: None,
            peak_bytes: 9,
            answers: 3,
            wrong: 0,
        }
    }

    #[test]
    fn a_program_is_usable_with_a_fifth_more_or_what_nobody_notices() {
        assert!(is_usable(1000.0, 200.0) && !is_usable(1000.0, 201.0));
        assert!(is_usable(5.0, 100.0) && !is_usable(5.0, 101.0));
        assert!(is_usable(5.0, -4.0));
    }

    #[test]
    fn steps_are_compared_with_the_same_ones_in_memory() {
        let config = ScenarioConfig::new(Scenario::Growth);
        let work = config.work(&Scenario::Growth.parts()[0]);
        let memory = grown(&[&[1000], &[1000, 1000], &[1000, 1000, 1000]], 1);
        let arm = grown(&[&[1100], &[1500, 1000], &[1000, 9000, 1000]], 1);
        let arm = beside(ArmKind::Clew, &work, &memory, &arm);
        let usable: Vec<(usize, usize)> =
            arm.steps.iter().map(|step| (step.usable, step.running)).collect();
        assert_eq!(usable, [(1, 1), (1, 2), (2, 3)]);
        assert_eq!((arm.all_usable, arm.most_usable, arm.wrong_answers), (1, 2, 0));
        assert_eq!(arm.steps[2].added_ms, [0.0, 8000.0, 0.0]);
        assert_eq!(arm.steps[1].program, "jupyter");
        // An arm that gave earlier is compared as far as it came, and answers that differ are wrong.
        let short = beside(ArmKind::Clew, &work, &memory, &grown(&[&[1000], &[1, 1]], 2));
        assert_eq!((short.all_usable, short.wrong_answers), (2, 9));
    }
}

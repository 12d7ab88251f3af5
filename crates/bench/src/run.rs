//! One arm from its beginning to its end: programs are started and filled, visited once each, then
//! switched between, with the clock running from the switch to the last answer.
//!
//! Guards end in the reverse order of their making, on errors too: programs, then the watch, then
//! the arm with its group.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_report::{Memory, ProgramResult, Sample, Summary};

use crate::arms::wait::{self, Wait};
use crate::arms::{self, Arm, ArmKind, ArmSettings, Ground, Look};
use crate::cgroup::Cgroup;
use crate::cpu_time;
use crate::error::BenchError;
use crate::interrupt;
use crate::kernel_pool::KernelPool;
use crate::process_memory::{ProgramMemory, clear_referenced, filled_bytes, referenced_bytes};
use crate::programs::{Answers, Kind, Load};
use crate::progress::Progress;
use crate::session::{Launch, Session};
use crate::totals::Watch;

/// A fill that has to wait longer for memory than this has failed.
const FILL_PATIENCE: Duration = Duration::from_secs(30);
/// Programs that are not filled by then: pages go round in circles.
const FILL_LIMIT: Duration = Duration::from_secs(180);

/// The work, equal in all arms.
#[derive(Clone, Debug)]
pub struct Work {
    pub programs: Vec<Kind>,
    pub load: Load,
    /// The program of each measured visit, as its place among `programs`. Who is asked twice in a row
    /// stays in the foreground.
    pub sequence: Vec<usize>,
    /// Which of them works in front ([`Load::is_front`]), if any.
    pub front: Option<usize>,
    pub pause: Duration,
    /// Whether programs are filled before they are limited: those that ask for hundreds of MiB while
    /// they get ready, and that nobody can have wait. What is used counts from then on, and Clew has
    /// no hard limit but its budget.
    pub fills_freely: bool,
}

impl Work {
    /// What that program is asked for.
    fn load_of(&self, app: usize) -> Load {
        match self.front == Some(app) {
            // What it goes over again and again should be much of all memory.
            true => Load { is_front: true, data_bytes: self.load.data_bytes * 2, ..self.load },
            false => self.load,
        }
    }
}

/// What one arm gave.
pub struct Outcome {
    pub result: clew_report::Arm,
    /// Memory of each program, in the order of [`Work::programs`].
    pub memory: Vec<ProgramMemory>,
    /// Digests of the answers of each visit, the first ones included ([`Answers::digests`]).
    pub digests: Vec<Vec<u32>>,
    /// The mean of what was used in total.
    pub total_bytes_mean: u64,
    /// What faults waited for after the fill, where the arm knows it.
    pub waits: Vec<Wait>,
}

/// Runs `work` on `arm`, whose group is that of `ground`.
fn run_arm(
    mut arm: Box<dyn Arm>,
    ground: &Ground,
    work: &Work,
    progress: &dyn Progress,
) -> Result<Outcome, BenchError> {
    let kind = arm.kind();
    let steps = (work.programs.len() * 2 + work.sequence.len()) as u64;
    progress.begin(&format!("{kind}: filling and switching"), steps);
    arm.begin(ground)?;
    let watch = Watch::start(ground.group.usage_file(), arm.kernel_pool());
    let outcome = switch_through(&mut *arm, ground, work, progress, watch);
    // What a program or the daemon died of is the better reason.
    let kills = ground.group.out_of_memory_kills().unwrap_or_default();
    let outcome = match outcome {
        Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
        Err(error) if kills == 0 => return Err(error),
        _ if kills > 0 => {
            let limit_mib = ground.total_bytes.unwrap_or_default() >> 20;
            return Err(BenchError::OutOfMemory { limit_mib, kills });
        }
        other => other?,
    };
    let relaunch = outcome.result.relaunch_ms;
    progress.done(&format!(
        "{kind}: {} switches, p50 {:.0} ms, p95 {:.0} ms, {} wrong answers",
        relaunch.n, relaunch.p50, relaunch.p95, outcome.result.wrong_answers
    ));
    Ok(outcome)
}

fn switch_through(
    arm: &mut dyn Arm,
    ground: &Ground,
    work: &Work,
    progress: &dyn Progress,
    mut watch: Watch,
) -> Result<Outcome, BenchError> {
    let since = Instant::now();
    let kernel_before = cpu_time::kernel_swap_threads();
    let cpu = |arm: &dyn Arm| -> Result<Duration, BenchError> {
        let kernel = cpu_time::kernel_swap_threads().saturating_sub(kernel_before);
        Ok(ground.group.cpu_time()? + arm.outside_cpu() + kernel)
    };
    let mut sessions = start_and_fill(arm, ground, work, progress)?;
    let apps: Vec<(Kind, u32)> =
        work.programs.iter().zip(&sessions).map(|(&kind, session)| (kind, session.pid())).collect();
    let mut memory: Vec<ProgramMemory> = sessions
        .iter()
        .map(|session| ProgramMemory {
            filled_bytes: filled_bytes(session.pid()),
            touched_bytes: None,
        })
        .collect();
    arm.filled(&apps)?;
    arm.make_room()?;
    if work.fills_freely {
        watch = Watch::start(ground.group.usage_file(), arm.kernel_pool());
    }
    let fill_cpu = cpu(arm)?;
    let fill_seconds = since.elapsed().as_secs_f64();

    let mut visits = vec![0; sessions.len()];
    let mut answers = 0;
    let mut wrong_before = 0;
    let mut digests = Vec::new();
    for app in 0..sessions.len() {
        // Marks are cleared only where they mislead no reclaim.
        let marked = arm.kind() == ArmKind::Dram && clear_referenced(sessions[app].pid());
        interrupt::sleep(work.pause)?;
        let visit = visit(arm, &mut sessions[app], &mut visits[app], Turn::BOTH)?;
        answers += visit.answers.count;
        wrong_before += visit.answers.wrong;
        digests.push(visit.answers.digests);
        if marked {
            memory[app].touched_bytes = referenced_bytes(sessions[app].pid());
        }
        progress.step(&format!("{}: first visit", work.programs[app]));
    }

    let before = arm.tally()?;
    let mut samples: Vec<Sample> = Vec::with_capacity(work.sequence.len());
    let mut kept = Vec::with_capacity(work.sequence.len());
    let mut last: Option<(usize, Look, Duration)> = None;
    for (switch, &app) in work.sequence.iter().enumerate() {
        let program = work.programs[app];
        interrupt::sleep(work.pause)?;
        let (look, used) = (arm.look(&apps)?, cpu(arm)?);
        if let (Some(last), Some(sample)) = (last, samples.last_mut()) {
            account(sample, &last, &look, used);
        }
        kept.push(look.kept);
        let turn = Turn::of(&work.sequence, switch);
        let visit = visit(arm, &mut sessions[app], &mut visits[app], turn)?;
        answers += visit.answers.count;
        digests.push(visit.answers.digests);
        let relaunch_ms = visit.time.as_secs_f64() * 1e3;
        samples.push(Sample {
            switch,
            program: program.to_string(),
            relaunch_ms,
            call_ms: visit.call.as_secs_f64() * 1e3,
            wrong_answers: visit.answers.wrong,
            ..Sample::default()
        });
        last = Some((app, look, used));
        progress.step(&format!("{program}: back in {relaunch_ms:.0} ms"));
    }
    interrupt::sleep(work.pause)?;
    let look = arm.look(&apps)?;
    if let (Some(last), Some(sample)) = (last, samples.last_mut()) {
        account(sample, &last, &look, cpu(arm)?);
    }
    let after = arm.tally()?;
    let cpu = cpu(arm)?;
    let disk_bytes_written = arm.swap_bytes_written()?;
    let totals = watch.finish();
    sessions.into_iter().for_each(Session::end);

    let pool = totals.pool_peak;
    let pool_ratio =
        (pool.used_bytes > 0).then(|| pool.original_bytes as f64 / pool.used_bytes as f64);
    let measured_wrong: u64 = samples.iter().map(|sample| sample.wrong_answers).sum();
    let (kind, ms) = (arm.kind(), |time: Duration| time.as_secs_f64() * 1e3);
    let result = clew_report::Arm {
        name: kind.to_string(),
        role: kind.role(),
        scheme: arm.scheme(),
        relaunch_ms: Summary::of(&times(&samples, None)),
        per_program: work.programs.iter().map(|&kind| program_result(kind, &samples)).collect(),
        cpu_ms: Some(ms(cpu)),
        fill_cpu_ms: Some(ms(fill_cpu)),
        total_bytes_peak: totals.peak_bytes,
        kept: Some(Memory::mean_of(&kept)),
        ratio: after.ratio.or(pool_ratio),
        disk_bytes_written,
        faults: after.faults.saturating_sub(before.faults),
        wrong_answers: wrong_before + measured_wrong,
        answers,
        samples,
        totals: totals.curve,
        fill_seconds: Some(fill_seconds),
        ..clew_report::Arm::default()
    };
    let waits = wait::between(&before.waits, &after.waits);
    Ok(Outcome { result, memory, digests, total_bytes_mean: totals.mean_bytes, waits })
}

/// Starts and fills the programs one after the other, as a user starts them. All at once, at a
/// limit, make the kernel kill for lack of memory where there is enough to reclaim.
fn start_and_fill(
    arm: &mut dyn Arm,
    ground: &Ground,
    work: &Work,
    progress: &dyn Progress,
) -> Result<Vec<Session>, BenchError> {
    let since = Instant::now();
    let mut sessions = Vec::with_capacity(work.programs.len());
    for (app, &kind) in work.programs.iter().enumerate() {
        sessions.push(start_one(arm, ground, kind, work.load_of(app), since)?);
        progress.step(&format!("{kind}: filled"));
    }
    Ok(sessions)
}

/// Starts and fills one program, in what is left of the time for filling since `since`, and has room made.
pub(crate) fn start_one(
    arm: &mut dyn Arm,
    ground: &Ground,
    kind: Kind,
    load: Load,
    since: Instant,
) -> Result<Session, BenchError> {
    let launch = Launch {
        entrances: ground.group.entrances(),
        launcher: arm.launcher(kind),
        scratch: ground.scratch.clone(),
    };
    arm.filling();
    let (ceiling, pool) = (arm.fill_ceiling_bytes(), arm.kernel_pool());
    let mut session = Session::start(kind.with(load), &launch)?;
    session.fill(&|| {
        within(FILL_LIMIT, since, "filling the programs")?;
        pace(&ground.group, pool.as_ref(), ceiling)
    })?;
    arm.make_room()?;
    Ok(session)
}

/// An error if what began at `since` takes longer than `limit`.
fn within(limit: Duration, since: Instant, what: &str) -> Result<(), BenchError> {
    if since.elapsed() <= limit {
        return Ok(());
    }
    Err(BenchError::Unavailable {
        what: "the limit",
        reason: format!("{what} takes more than {} s: pages go round in circles", limit.as_secs()),
    })
}

/// Waits while the group and the kernel's pool use more than `ceiling`.
fn pace(group: &Cgroup, pool: Option<&KernelPool>, ceiling: Option<u64>) -> Result<(), BenchError> {
    interrupt::check()?;
    let Some(ceiling) = ceiling else { return Ok(()) };
    let since = Instant::now();
    let in_pool = || pool.map_or(0, |pool| pool.now().used_bytes);
    // What the kernel gives up for the asking fills nothing.
    let used =
        || Ok::<_, BenchError>(group.usage_bytes()?.saturating_sub(group.idle_file_bytes()?));
    while used()? + in_pool() > ceiling {
        interrupt::sleep(Duration::from_millis(2))?;
        // Nobody makes room any more for what was killed; the caller finds out why.
        let killed = group.out_of_memory_kills()? > 0;
        if killed {
            break;
        }
        if since.elapsed() > FILL_PATIENCE {
            return Err(BenchError::Unavailable {
                what: "the limit",
                reason: format!("more than {} MiB stay in use", ceiling >> 20),
            });
        }
    }
    Ok(())
}

/// What a visit took and gave.
pub(crate) struct Visit {
    /// From the switch to the last answer; of it, until the program could be asked.
    pub(crate) time: Duration,
    call: Duration,
    pub(crate) answers: Answers,
}

/// Whether a program comes to the foreground with a visit, and goes after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turn {
    comes: bool,
    goes: bool,
}

impl Turn {
    pub(crate) const BOTH: Turn = Turn { comes: true, goes: true };

    /// Of that visit of a sequence.
    fn of(sequence: &[usize], position: usize) -> Turn {
        let here = sequence[position];
        let is_here = |other: Option<&usize>| other == Some(&here);
        let before = position.checked_sub(1).and_then(|before| sequence.get(before));
        Turn { comes: !is_here(before), goes: !is_here(sequence.get(position + 1)) }
    }
}

/// One visit: requests are made, the clock runs from the switch to the last answer, then the app
/// goes back and room is made for the next one.
pub(crate) fn visit(
    arm: &mut dyn Arm,
    session: &mut Session,
    visits: &mut u32,
    turn: Turn,
) -> Result<Visit, BenchError> {
    let (kind, patience) = (session.program().kind(), session.program().patience());
    session.prepare(*visits)?;
    *visits += 1;
    if turn.comes {
        arm.before_foreground(kind)?;
    }
    let clock = Instant::now();
    if turn.comes {
        arm.to_foreground(kind)?;
    }
    let call = clock.elapsed();
    let answers = session.visit()?;
    let time = clock.elapsed();
    within(patience / 2, clock, "a relaunch")?;
    if turn.comes {
        arm.responded(kind, time)?;
    }
    if turn.goes {
        arm.to_background(kind)?;
        arm.make_room()?;
    }
    Ok(Visit { time, call, answers })
}

/// Adds what came back since the look before this switch, and what it cost.
fn account(sample: &mut Sample, last: &(usize, Look, Duration), look: &Look, used: Duration) {
    let (app, before, used_before) = last;
    let (before, after) = (before.moved[*app], look.moved[*app]);
    sample.cpu_ms = used.saturating_sub(*used_before).as_secs_f64() * 1e3;
    sample.faulted_pages = after.faulted_pages.saturating_sub(before.faulted_pages);
    sample.restored_pages = after.restored_pages.saturating_sub(before.restored_pages);
    let ms =
        |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?) as f64 / 1e6);
    sample.fault_ms = ms(after.fault_ns, before.fault_ns);
    sample.fault_codec_ms = ms(after.fault_codec_ns, before.fault_codec_ns);
}

/// Times of all relaunches, or of one program's.
pub fn times(samples: &[Sample], kind: Option<Kind>) -> Vec<f64> {
    let wanted = |one: &&Sample| kind.is_none_or(|kind| one.program == kind.name());
    samples.iter().filter(wanted).map(|sample| sample.relaunch_ms).collect()
}

/// One program's part in `samples`.
pub fn program_result(kind: Kind, samples: &[Sample]) -> ProgramResult {
    let of_kind = samples.iter().filter(|sample| sample.program == kind.name());
    ProgramResult {
        name: kind.to_string(),
        layout: kind.layout(),
        relaunch_ms: Summary::of(&times(samples, Some(kind))),
        wrong_answers: of_kind.map(|sample| sample.wrong_answers).sum(),
    }
}

/// Runs `work` on that arm, in a fresh group.
pub fn one(
    kind: ArmKind,
    settings: &ArmSettings,
    total_bytes: Option<u64>,
    headroom_bytes: u64,
    work: &Work,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Outcome, BenchError> {
    let total_bytes = match (kind, total_bytes) {
        (ArmKind::Dram, _) => None,
        (_, None) => return Err(BenchError::NoTotal),
        (_, some) => some,
    };
    let arm = arms::make(kind, settings)?;
    let ground = ground(&*arm, total_bytes, headroom_bytes, work.fills_freely, scratch)?;
    run_arm(arm, &ground, work, progress)
}

/// A fresh group for an arm.
pub(crate) fn ground(
    arm: &dyn Arm,
    total_bytes: Option<u64>,
    headroom_bytes: u64,
    fills_freely: bool,
    scratch: &Path,
) -> Result<Ground, BenchError> {
    let scratch = scratch.join(arm.kind().name());
    fs::create_dir_all(&scratch).map_err(crate::error::file_error("create", &scratch))?;
    let group = Arc::new(Cgroup::create(arm.kind().name())?);
    Ok(Ground { group, total_bytes, headroom_bytes, fills_freely, scratch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_an_error_that_says_so() {
        let minute_ago = Instant::now() - Duration::from_secs(60);
        assert!(within(Duration::from_secs(90), minute_ago, "a relaunch").is_ok());
        let limit = Duration::from_secs(30);
        let error = within(limit, minute_ago, "a relaunch").expect_err("too long");
        assert!(error.to_string().contains("a relaunch takes more than 30 s"), "{error}");
    }
    #[test]
    fn who_is_asked_twice_stays_in_the_foreground() {
        let turn = |position| Turn::of(&[0, 0, 0, 1, 0], position);
        assert_eq!(turn(0), Turn { comes: true, goes: false });
        assert_eq!(turn(1), Turn { comes: false, goes: false });
        assert_eq!(turn(2), Turn { comes: false, goes: true });
        assert_eq!((turn(3), turn(4)), (Turn::BOTH, Turn::BOTH));
    }
}

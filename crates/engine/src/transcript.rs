//! A transcript: what a driver heard and decided ([`crate::driver::Listener`]), one line of JSON for each
//! input of its engine, its budget and its kept copies, with what page tables said meanwhile.
//!
//! Played to the same code it gives the same decisions, to the last page, whatever threads did when
//! it was taken: the *golden* transcripts in `tests/golden` hold changes of the code to that.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use clew_core::{Event, FrameFacts, PageCounts, PageFacts, PageId, SpaceId, Tier};
use clew_policy::Scheme;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::{Budget, WATERMARKS};
use crate::decide::Engine;
use crate::driver::{Answer, Call, Command, Driver, Fact, Listener};

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    call: Call,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    facts: Vec<Fact>,
    /// What was decided, where it is a question.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    answer: Value,
}

/// Where a transcript is written: by whoever puts things to the driver, so a slow disk holds that up.
pub struct Transcript {
    to: Box<dyn Write + Send>,
}

impl Transcript {
    /// Begins one of a driver of `scheme` that has seen nothing.
    pub fn new(to: Box<dyn Write + Send>, scheme: &Scheme) -> Transcript {
        let mut transcript = Transcript { to };
        transcript.write(&Call::Begin(scheme.to_toml()), &[], Answer::Nothing);
        transcript
    }

    /// What cannot be written is missing, and playing it says so.
    fn write(&mut self, call: &Call, facts: &[Fact], answer: Answer<'_>) {
        let (call, facts) = (call.clone(), facts.to_vec());
        let line = serde_json::to_value(answer)
            .and_then(|answer| serde_json::to_string(&Entry { call, facts, answer }));
        if let Ok(line) = line {
            let _ = writeln!(self.to, "{line}");
        }
    }
}

impl Listener for Transcript {
    fn heard(&mut self, _: &Engine, call: &Call, facts: &[Fact], answer: Answer<'_>) {
        self.write(call, facts, answer);
    }
}

/// What playing a transcript came to, if everything was decided as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Inputs of engine, budget and kept copies.
    pub inputs: u64,
    /// Of these, questions.
    pub questions: u64,
}

/// Plays a transcript to a new driver.
///
/// # Errors
/// The first line that cannot be read, or where the driver does or decides something else.
pub fn play(transcript: impl BufRead + Send + 'static) -> Result<Played, String> {
    let mut lines = Lines { from: Box::new(transcript.lines()), ahead: VecDeque::new(), number: 0 };
    let Some(Entry { call: Call::Begin(scheme), .. }) = lines.next()? else {
        return Err("it does not say of which scheme it is".to_string());
    };
    let scheme = Scheme::from_toml(&scheme).map_err(|error| error.to_string())?;
    // Its budget is what the first question about it says.
    let mut budget = None;
    while budget.is_none()
        && let Some(entry) = lines.look(lines.ahead.len())?
    {
        budget = match entry.call {
            Call::Shortage(_, budget, _) | Call::EarlyPages(budget, _) => Some(budget),
            _ => None,
        };
    }
    let budget = budget.unwrap_or(Budget::new(u64::MAX / 2, WATERMARKS.0, WATERMARKS.1, 4096));
    let mut driver = Driver::new(Engine::new(&scheme), budget, scheme.on_full);
    let checked = Arc::new(Mutex::new(Checked { lines, played: Played::default(), facts: 0 }));
    driver.listen(Box::new(Checker(checked.clone())));
    let said = Said(checked.clone());
    loop {
        let Some(call) = lock(&checked).lines.look(0)?.map(|entry| entry.call.clone()) else {
            return Ok(lock(&checked).played);
        };
        let inputs = lock(&checked).played.inputs;
        put(&mut driver, &call, &said);
        while let Some(command) = driver.next_command() {
            let wanted_bytes = match command {
                Command::GiveUp { wanted_bytes } => wanted_bytes,
                // When it was done is in the transcript; what it found is not.
                Command::Run(job) => {
                    (job.run)();
                    continue;
                }
                _ => continue,
            };
            let next = lock(&checked).lines.look(0)?.map(|entry| entry.call.clone());
            let mut freed = match next {
                Some(Call::GiveUp(_, freed)) => freed.into_iter(),
                _ => Vec::new().into_iter(),
            };
            let dropped = driver.give_up_kept(wanted_bytes, |_| freed.next().flatten());
            let pool = driver.facts().tiers.get(&Tier::Pool).copied().unwrap_or_default();
            driver.gave_up(dropped, pool, &said);
        }
        let checked = lock(&checked);
        checked.lines.failed()?;
        if checked.played.inputs == inputs {
            let number = checked.lines.number + 1;
            return Err(format!("line {number}, {call:?}: the driver does not do this by itself"));
        }
    }
}

/// Puts what came from outside to the driver.
fn put(driver: &mut Driver, call: &Call, pages: &dyn PageFacts) {
    match call {
        Call::Name(app, name) => driver.name(*app, name),
        Call::Know(app, profile) => driver.know(*app, profile.clone()),
        Call::IsOf(app, user) => driver.is_of(*app, *user),
        Call::Window(app) => driver.window(*app),
        Call::Tell(now, Event::Tick) => driver.tick(*now, pages),
        Call::Tell(now, event) => driver.tell(*now, event, pages),
        Call::SetTier(tier, facts) => driver.set_tier(*tier, *facts),
        Call::CpuLoad(load) => driver.set_cpu_load(*load),
        Call::Spare(app) => driver.spare(*app),
        Call::AppOut(app) => driver.take_out_app(*app, pages),
        Call::Prefetch(trigger) => drop(driver.pick_early(*trigger, pages)),
        Call::Samples(wanted) => drop(driver.pick_samples(*wanted, pages)),
        Call::Admit(group, samples) => {
            let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
            drop(driver.admit(group, &samples, pages));
        }
        Call::Keep(page) => driver.keep_copy(*page),
        Call::Shortage(now, _, used) => driver.weigh(*now, *used, pages),
        Call::EarlyPages(_, used) => {
            driver.early_pages(*used);
        }
        // These a driver does by itself.
        Call::Begin(_)
        | Call::SwapOut(_)
        | Call::Moves(_)
        | Call::Repacks(_)
        | Call::Tidy
        | Call::GiveUp(..)
        | Call::Demand(..) => {}
    }
}

/// The lines that are left.
struct Lines {
    from: Box<dyn Iterator<Item = io::Result<String>> + Send>,
    /// Read already.
    ahead: VecDeque<Result<Entry, String>>,
    /// Of the last line that was taken.
    number: usize,
}

impl Lines {
    /// The line `ahead` of the next one, if there are so many.
    fn look(&mut self, ahead: usize) -> Result<Option<&Entry>, String> {
        while self.ahead.len() <= ahead
            && let Some(line) = self.from.next()
        {
            let number = self.number + self.ahead.len() + 1;
            let entry = line
                .map_err(|error| error.to_string())
                .and_then(|line| serde_json::from_str(&line).map_err(|error| error.to_string()));
            self.ahead.push_back(entry.map_err(|error| format!("line {number}: {error}")));
        }
        self.ahead.get(ahead).map(|entry| entry.as_ref().map_err(String::clone)).transpose()
    }

    fn next(&mut self) -> Result<Option<Entry>, String> {
        self.look(0)?;
        self.number += 1;
        self.ahead.pop_front().transpose()
    }

    /// From now on there is only this.
    fn fail(&mut self, why: String) {
        self.ahead.push_front(Err(why));
    }

    fn failed(&self) -> Result<(), String> {
        match self.ahead.front() {
            Some(Err(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

/// A transcript, as far as it was played.
struct Checked {
    lines: Lines,
    played: Played,
    /// Facts of the next line that were asked for.
    facts: usize,
}

fn lock(checked: &Mutex<Checked>) -> MutexGuard<'_, Checked> {
    checked.lock().expect("nobody else")
}

fn said(what: impl Serialize) -> Value {
    serde_json::to_value(what).expect("plain data")
}

/// Compares what a driver does with the next line.
struct Checker(Arc<Mutex<Checked>>);

impl Listener for Checker {
    fn heard(&mut self, _: &Engine, call: &Call, facts: &[Fact], answer: Answer<'_>) {
        let mut checked = lock(&self.0);
        checked.facts = 0;
        let entry = match checked.lines.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return checked.lines.fail(format!("at its end: {call:?}")),
            Err(why) => return checked.lines.fail(why),
        };
        let number = checked.lines.number;
        let why = if said(call) != said(&entry.call) {
            format!("the driver did {call:?}")
        } else if facts != entry.facts {
            format!("page tables were asked {facts:?}, then {:?}", entry.facts)
        } else if said(answer) != entry.answer {
            format!("decided {}, then it was {}", said(answer), entry.answer)
        } else {
            checked.played.inputs += 1;
            checked.played.questions += u64::from(!entry.answer.is_null());
            return;
        };
        checked.lines.fail(format!("line {number}, {:?}: {why}", entry.call));
    }
}

/// Page tables that say what they said when the transcript was taken.
struct Said(Arc<Mutex<Checked>>);

impl Said {
    fn next<T: Default>(&self, is: impl FnOnce(&Fact) -> Option<T>) -> T {
        let mut checked = lock(&self.0);
        let number = checked.facts;
        checked.facts += 1;
        let entry = checked.lines.look(0).ok().flatten();
        entry.and_then(|entry| entry.facts.get(number)).and_then(is).unwrap_or_default()
    }
}

impl PageFacts for Said {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.next(|fact| match fact {
            Fact::Tier(of, tier) if *of == page => Some(*tier),
            _ => None,
        })
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        self.next(|fact| match fact {
            Fact::Counts(of, counts) if *of == space => Some(*counts),
            _ => None,
        })
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let pages = self.next(|fact| match fact {
            Fact::Pages(of, pages) if *of == space => Some(pages.clone()),
            _ => None,
        });
        pages.into_iter().for_each(|(page, tier)| visit(page, tier));
    }

    fn may_have_copy(&self, page: PageId) -> bool {
        self.next(|fact| match fact {
            Fact::Copy(of, may) if *of == page => Some(*may),
            _ => None,
        })
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        self.next(|fact| match fact {
            Fact::Frame(of, frame) if *of == page => Some(*frame),
            _ => None,
        })
    }
}

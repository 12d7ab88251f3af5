//! A transcript: every input of an engine, of its budget and of its kept copies, with each answer that
//! page tables gave meanwhile, and what was decided. One line of JSON each.
//!
//! Played to the same code it gives the same decisions, to the last page, whatever threads did when
//! it was taken: the *golden* transcripts in `tests/golden` hold changes of the code to that.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, BufRead, Write};

use clew_core::{
    AppId, Demand, Event, Ns, PageCounts, PageFacts, PageId, PageRun, SpaceId, Tier, TierFacts,
    Trigger,
};
use clew_policy::Scheme;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::{Budget, KeptCopies, Shortage, Use};
use crate::decide::Engine;

/// One input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// The first: an engine of this scheme, as TOML.
    Begin(String),
    /// [`Engine::tell`].
    Tell(Ns, Event),
    /// [`Engine::set_tier`].
    SetTier(Tier, TierFacts),
    /// [`Engine::spare`].
    Spare(AppId),
    /// [`Engine::plan_swap_out`].
    SwapOut(Demand),
    /// [`Engine::plan_app_out`].
    AppOut(AppId),
    /// [`Engine::plan_moves`].
    Moves(usize),
    /// [`Engine::plan_prefetch`].
    Prefetch(Trigger),
    /// [`Engine::plan_samples`]: the app, pages, pages of a run.
    Samples(AppId, usize, u32),
    /// [`KeptCopies::push`].
    Keep(PageId),
    /// [`KeptCopies::tidy`], and which of the pages that it asked about may have a copy.
    Tidy(Vec<bool>),
    /// [`KeptCopies::give_up`]: bytes wanted, and what each copy freed.
    GiveUp(u64, Vec<Option<u64>>),
    /// [`Budget::shortage`].
    Shortage(Budget, Use),
    /// [`Budget::demand`]: a shortage, and bytes freed otherwise.
    Demand(Budget, Shortage, u64),
    /// [`Budget::early_pages`].
    EarlyPages(Budget, Use),
}

/// A question to the page tables, and what they said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Fact {
    Tier(PageId, Option<Tier>),
    Counts(SpaceId, PageCounts),
    Pages(SpaceId, Vec<(PageId, Option<Tier>)>),
}

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

/// Where a transcript is written.
pub struct Transcript {
    to: Box<dyn Write + Send>,
    /// After an error nothing more is written.
    failed: Option<io::Error>,
}

impl Transcript {
    /// Begins one of an engine of `scheme` that has seen nothing.
    pub fn new(to: Box<dyn Write + Send>, scheme: &Scheme) -> Transcript {
        let mut transcript = Transcript { to, failed: None };
        transcript.note(Call::Begin(scheme.to_toml()), &());
        transcript
    }

    /// An input that asks no page table, and the answer.
    pub fn note(&mut self, call: Call, answer: &impl Serialize) {
        self.write(call, Vec::new(), answer);
    }

    /// An input that is answered by `ask` out of page tables.
    pub fn listen<T: Serialize>(
        &mut self,
        call: Call,
        pages: &dyn PageFacts,
        ask: impl FnOnce(&dyn PageFacts) -> T,
    ) -> T {
        let listening = Listening { pages, said: RefCell::default() };
        let answer = ask(&listening);
        self.write(call, listening.said.into_inner(), &answer);
        answer
    }

    fn write(&mut self, call: Call, facts: Vec<Fact>, answer: &impl Serialize) {
        if self.failed.is_some() {
            return;
        }
        let line = serde_json::to_value(answer)
            .and_then(|answer| serde_json::to_string(&Entry { call, facts, answer }))
            .map_err(io::Error::from);
        let written = line.and_then(|line| writeln!(self.to, "{line}"));
        self.failed = written.err();
    }

    /// Ends it.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn finish(mut self) -> io::Result<()> {
        self.failed.map_or_else(|| self.to.flush(), Err)
    }
}

/// Page tables, and what they said.
struct Listening<'a> {
    pages: &'a dyn PageFacts,
    said: RefCell<Vec<Fact>>,
}

impl Listening<'_> {
    fn said(&self, fact: Fact) {
        self.said.borrow_mut().push(fact);
    }
}

impl PageFacts for Listening<'_> {
    fn tier(&self, page: PageId) -> Option<Tier> {
        let tier = self.pages.tier(page);
        self.said(Fact::Tier(page, tier));
        tier
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let counts = self.pages.counts(space);
        self.said(Fact::Counts(space, counts));
        counts
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let mut pages = Vec::new();
        self.pages.for_each(space, &mut |page, tier| pages.push((page, tier)));
        pages.iter().for_each(|(page, tier)| visit(*page, *tier));
        self.said(Fact::Pages(space, pages));
    }
}

/// Page tables that say what they said when the transcript was taken.
struct Saying {
    facts: RefCell<VecDeque<Fact>>,
    /// The first question that was another one then.
    otherwise: RefCell<Option<String>>,
}

impl Saying {
    fn next<T: Default>(&self, asked: &str, said: impl FnOnce(Fact) -> Result<T, Fact>) -> T {
        let next = self.facts.borrow_mut().pop_front();
        let was = match next.map(said) {
            Some(Ok(answer)) => return answer,
            Some(Err(other)) => format!("{other:?}"),
            None => "nothing".to_string(),
        };
        let told = || format!("the page tables are asked for {asked}, then it was {was}");
        self.otherwise.borrow_mut().get_or_insert_with(told);
        T::default()
    }

    /// Whether just the same was asked.
    fn finish(self) -> Result<(), String> {
        let left = self.facts.into_inner();
        match self.otherwise.into_inner() {
            Some(otherwise) => Err(otherwise),
            None if left.is_empty() => Ok(()),
            None => Err(format!("the page tables were asked for {left:?} too")),
        }
    }
}

impl PageFacts for Saying {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.next(&format!("the tier of {page:?}"), |fact| match fact {
            Fact::Tier(of, tier) if of == page => Ok(tier),
            other => Err(other),
        })
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        self.next(&format!("the counts of {space:?}"), |fact| match fact {
            Fact::Counts(of, counts) if of == space => Ok(counts),
            other => Err(other),
        })
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let pages = self.next(&format!("the pages of {space:?}"), |fact| match fact {
            Fact::Pages(of, pages) if of == space => Ok(pages),
            other => Err(other),
        });
        pages.into_iter().for_each(|(page, tier)| visit(page, tier));
    }
}

/// What playing a transcript came to, if everything was decided as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Inputs.
    pub inputs: u64,
    /// Of these, questions.
    pub questions: u64,
}

/// Plays a transcript to a new engine.
///
/// # Errors
/// The first line that cannot be read, or that is decided otherwise.
pub fn play(transcript: impl BufRead) -> Result<Played, String> {
    let mut played = Played::default();
    let mut lines = transcript.lines().enumerate();
    let mut next = || -> Result<Option<(usize, Entry)>, String> {
        let Some((number, line)) = lines.next() else { return Ok(None) };
        let line = line.map_err(|error| format!("line {}: {error}", number + 1))?;
        let entry = serde_json::from_str(&line);
        entry
            .map(|entry| Some((number + 1, entry)))
            .map_err(|error| format!("line {}: {error}", number + 1))
    };
    let Some((_, Entry { call: Call::Begin(scheme), .. })) = next()? else {
        return Err("it does not say of which scheme it is".to_string());
    };
    let scheme = Scheme::from_toml(&scheme).map_err(|error| error.to_string())?;
    let (mut engine, mut kept) = (Engine::new(&scheme), KeptCopies::default());
    while let Some((number, entry)) = next()? {
        let facts = entry.facts.into();
        let saying = Saying { facts: RefCell::new(facts), otherwise: RefCell::default() };
        let answer = entry.call.put(&mut engine, &mut kept, &saying);
        let placed = |why: String| format!("line {number}, {:?}: {why}", entry.call);
        saying.finish().map_err(placed)?;
        if answer != entry.answer {
            return Err(placed(format!("decided {answer}, then it was {}", entry.answer)));
        }
        played.inputs += 1;
        played.questions += u64::from(!answer.is_null());
    }
    Ok(played)
}

impl Call {
    /// Puts it to engine and kept copies. The answer as a transcript has it.
    fn put(&self, engine: &mut Engine, kept: &mut KeptCopies, pages: &dyn PageFacts) -> Value {
        fn said(answer: impl Serialize) -> Value {
            serde_json::to_value(answer).expect("answers have no maps with odd keys")
        }
        let mut orders = Vec::new();
        match *self {
            Call::Begin(_) => said("begun already"),
            Call::Tell(now, ref event) => {
                engine.tell(now, event, pages);
                Value::Null
            }
            Call::SetTier(tier, facts) => {
                engine.set_tier(tier, facts);
                Value::Null
            }
            Call::Spare(app) => {
                engine.spare(app);
                Value::Null
            }
            Call::SwapOut(demand) => {
                engine.plan_swap_out(demand, pages, &mut orders);
                said(orders)
            }
            Call::AppOut(app) => {
                engine.plan_app_out(app, pages, &mut orders);
                said(orders)
            }
            Call::Moves(wanted) => {
                engine.plan_moves(wanted, pages, &mut orders);
                said(orders)
            }
            Call::Prefetch(trigger) => {
                let mut picked: Vec<PageId> = Vec::new();
                engine.plan_prefetch(trigger, pages, &mut picked);
                said(picked)
            }
            Call::Samples(app, wanted, run_pages) => {
                let runs: Vec<PageRun> = engine.plan_samples(app, wanted, run_pages, pages);
                said(runs)
            }
            Call::Keep(page) => {
                kept.push(page);
                Value::Null
            }
            Call::Tidy(ref may_have) => {
                let mut may_have = may_have.iter();
                kept.tidy(|_| may_have.next() == Some(&true));
                Value::Null
            }
            Call::GiveUp(wanted_bytes, ref freed) => {
                let (mut freed, mut tried) = (freed.iter(), Vec::new());
                let dropped = kept.give_up(wanted_bytes, |page| {
                    tried.push(page);
                    freed.next().copied().flatten()
                });
                said((dropped, tried))
            }
            Call::Shortage(budget, used) => said(budget.shortage(used)),
            Call::Demand(budget, shortage, freed_bytes) => {
                said(budget.demand(shortage, freed_bytes))
            }
            Call::EarlyPages(budget, used) => said(budget.early_pages(used)),
        }
    }
}

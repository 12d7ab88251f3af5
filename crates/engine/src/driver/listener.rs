//! Who listens to a driver: each input, what the page tables said meanwhile, and what was decided.

use std::cell::RefCell;

use clew_core::{
    AppId, Demand, Event, FrameFacts, Group, Ns, Order, PageCounts, PageFacts, PageId, PageRun,
    Profile, SampleDemand, SpaceId, Tier, TierFacts, Trigger,
};
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Dropped, Shortage, Use};
use crate::decide::{Admitted, Engine};

/// An input of the engine, the budget or the kept copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// The first of a transcript: a driver of this scheme, as TOML.
    Begin(String),
    /// What an app is called, before its first event.
    Name(AppId, String),
    /// [`Engine::know`], before the app's first event.
    Know(AppId, Profile),
    /// [`Engine::is_of`], before the app's first event.
    IsOf(AppId, u32),
    /// Everything of an app has been taken out (a window of a recording).
    Window(AppId),
    /// [`Engine::tell`].
    Tell(Ns, Event),
    /// [`Engine::set_tier`].
    SetTier(Tier, TierFacts),
    /// [`Engine::set_cpu_load`].
    CpuLoad(f32),
    /// [`Engine::spare`].
    Spare(AppId),
    /// [`Engine::plan_swap_out`].
    SwapOut(Demand),
    /// [`Engine::plan_app_out`].
    AppOut(AppId),
    /// [`Engine::plan_moves`].
    Moves(usize),
    /// [`Engine::plan_repacks`].
    Repacks(usize),
    /// [`Engine::plan_prefetch`].
    Prefetch(Trigger),
    /// [`Engine::admit`]: a group, and the beginning of each of its pages.
    Admit(Group, Vec<Vec<u8>>),
    /// [`Engine::plan_samples`].
    Samples(SampleDemand),
    /// [`crate::budget::KeptCopies::push`].
    Keep(PageId),
    /// [`crate::budget::KeptCopies::tidy`].
    Tidy,
    /// [`crate::budget::KeptCopies::give_up`]: bytes wanted, and what each copy freed.
    GiveUp(u64, Vec<Option<u64>>),
    /// [`Budget::shortage`], at this time.
    Shortage(Ns, Budget, Use),
    /// [`Budget::demand`]: a shortage, and bytes freed otherwise.
    Demand(Budget, Shortage, u64),
    /// [`Budget::early_pages`].
    EarlyPages(Budget, Use),
}

/// What was decided.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Answer<'a> {
    /// It was no question.
    Nothing,
    /// What is to leave, and who is to end.
    Orders(&'a [Order]),
    /// What may enter the pool.
    Admitted(&'a Admitted),
    /// What is to come back.
    Pages(&'a [PageId]),
    /// What is to be watched.
    Runs(&'a [PageRun]),
    /// What is short.
    Shortage(Option<Shortage>),
    /// What is asked of the policies for it.
    Demand(Option<Demand>),
    /// So many.
    Count(usize),
    /// What was given up, of these.
    GaveUp(Dropped, &'a [PageId]),
}

/// A question to the page tables, and what they said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// [`PageFacts::tier`].
    Tier(PageId, Option<Tier>),
    /// [`PageFacts::counts`].
    Counts(SpaceId, PageCounts),
    /// [`PageFacts::for_each`].
    Pages(SpaceId, Vec<(PageId, Option<Tier>)>),
    /// [`PageFacts::may_have_copy`].
    Copy(PageId, bool),
    /// [`PageFacts::frame`].
    Frame(PageId, Option<FrameFacts>),
}

/// Somebody who listens.
pub trait Listener: Send {
    /// This was put to `engine`, or to the budget or the kept copies beside it; page tables said
    /// `facts` meanwhile.
    fn heard(&mut self, engine: &Engine, call: &Call, facts: &[Fact], answer: Answer<'_>);

    /// Between inputs: what takes longer may be done now.
    fn rest(&mut self) {}
}

/// Page tables, and what they said.
pub(super) struct Listening<'a> {
    pub pages: &'a dyn PageFacts,
    pub said: RefCell<Vec<Fact>>,
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

    fn may_have_copy(&self, page: PageId) -> bool {
        let may = self.pages.may_have_copy(page);
        self.said(Fact::Copy(page, may));
        may
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        let frame = self.pages.frame(page);
        self.said(Fact::Frame(page, frame));
        frame
    }
}

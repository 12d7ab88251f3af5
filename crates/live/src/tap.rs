//! The engine and the copies that are kept of resident pages, with who listens beside them: a recorder
//! hears what it is told, asked and answers; a transcript has every input of both and of the budget,
//! and what the page tables said. Without either it is the engine.
//!
//! Invariant: who holds it can look at the engine, and change it only by what is here. Each of that is
//! written down where it changes what policies answer later: what is asked does too, as pages that were
//! picked have their turn last the next time.

use std::ops::Deref;

use clew_core::{
    AppId, Demand, Event, Ns, PageFacts, PageId, PageRun, Place, Tier, TierFacts, Trigger,
};
use clew_engine::budget::{Budget, Dropped, KeptCopies, Shortage, Use};
use clew_engine::decide::{Engine, Order};
use clew_engine::transcript::{Call, Transcript};
use clew_trace::{Note, Record};
use serde::Serialize;

use crate::record::Recorder;

/// An engine, its kept copies, and who listens.
pub struct TappedEngine {
    engine: Engine,
    kept: KeptCopies,
    recorder: Option<Recorder>,
    transcript: Option<Transcript>,
}

impl Deref for TappedEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl TappedEngine {
    /// `engine`, which has seen nothing, with a recorder and a transcript if there are any.
    pub fn new(
        engine: Engine,
        recorder: Option<Recorder>,
        transcript: Option<Transcript>,
    ) -> TappedEngine {
        TappedEngine { engine, kept: KeptCopies::default(), recorder, transcript }
    }

    /// Puts something to the engine; `call` is what a transcript calls it.
    fn put<T: Serialize>(
        &mut self,
        call: impl FnOnce() -> Call,
        pages: &dyn PageFacts,
        put: impl FnOnce(&mut Engine, &dyn PageFacts) -> T,
    ) -> T {
        let engine = &mut self.engine;
        match &mut self.transcript {
            Some(transcript) => transcript.listen(call(), pages, |pages| put(engine, pages)),
            None => put(engine, pages),
        }
    }

    /// Writes down what asked no page table.
    fn note<T: Serialize>(&mut self, call: impl FnOnce() -> Call, answer: T) -> T {
        if let Some(transcript) = &mut self.transcript {
            transcript.note(call(), &answer);
        }
        answer
    }

    /// A new app's name; before its first event.
    pub fn name(&mut self, app: AppId, name: &str) {
        if let Some(recorder) = &mut self.recorder {
            recorder.name(app, name);
        }
    }

    /// As [`Engine::tell`].
    pub fn tell(&mut self, now: Ns, event: &Event, pages: &dyn PageFacts) {
        if let Some(recorder) = &mut self.recorder {
            if let Some(record) = Record::of_event(event) {
                recorder.record(now, record);
            }
            // What left is what the scheme took: a candidate for whoever reads the trace.
            if let Event::Stored { page, .. } = event {
                recorder.record(now, Record::Candidate { page: *page });
            }
        }
        let call = || Call::Tell(now, event.clone());
        self.put(call, pages, |engine, pages| engine.tell(now, event, pages));
    }

    /// Everything of `app` has been taken out.
    pub fn window(&mut self, app: AppId) {
        self.note_all([Record::Window { app }]);
    }

    /// As [`Engine::plan_swap_out`].
    pub fn plan_swap_out(&mut self, demand: Demand, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        if self.recorder.is_some() {
            self.note_tiers();
            let Demand { pages, urgent } = demand;
            let asked = Note::AskedPages { pages: pages as u64, urgent };
            self.note_all([Record::Note(asked)]);
        }
        let before = out.len();
        out.extend(self.put(
            || Call::SwapOut(demand),
            pages,
            |engine, pages| {
                let mut orders = Vec::new();
                engine.plan_swap_out(demand, pages, &mut orders);
                orders
            },
        ));
        self.note_orders(&out[before..]);
    }

    /// As [`Engine::plan_app_out`].
    pub fn plan_app_out(&mut self, app: AppId, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        if self.recorder.is_some() {
            self.note_tiers();
            self.note_all([Record::Note(Note::AskedApp { app })]);
        }
        let before = out.len();
        out.extend(self.put(
            || Call::AppOut(app),
            pages,
            |engine, pages| {
                let mut orders = Vec::new();
                engine.plan_app_out(app, pages, &mut orders);
                orders
            },
        ));
        self.note_orders(&out[before..]);
    }

    /// As [`Engine::plan_prefetch`]. After a fault or a hit it is noted only if there is something
    /// to bring back.
    pub fn plan_prefetch(
        &mut self,
        trigger: Trigger,
        pages: &dyn PageFacts,
        out: &mut Vec<PageId>,
    ) {
        let before = out.len();
        out.extend(self.put(
            || Call::Prefetch(trigger),
            pages,
            |engine, pages| {
                let mut picked = Vec::new();
                engine.plan_prefetch(trigger, pages, &mut picked);
                picked
            },
        ));
        let picked = &out[before..];
        if !picked.is_empty() || matches!(trigger, Trigger::Relaunch(_)) {
            let asked = Record::Note(Note::AskedPrefetch { trigger });
            let picked = picked.iter().map(|page| Record::Note(Note::Prefetch { page: *page }));
            self.note_all([asked].into_iter().chain(picked));
        }
    }

    /// As [`Engine::plan_samples`].
    pub fn plan_samples(
        &mut self,
        app: AppId,
        pages_wanted: usize,
        run_pages: u32,
        pages: &dyn PageFacts,
    ) -> Vec<PageRun> {
        let call = || Call::Samples(app, pages_wanted, run_pages);
        let runs = self.put(call, pages, |engine, pages| {
            engine.plan_samples(app, pages_wanted, run_pages, pages)
        });
        let asked = Note::AskedSamples { app, pages: pages_wanted as u64, run_pages };
        let sampled = runs.iter().map(|run| Note::Sample { run: *run });
        self.note_all([asked].into_iter().chain(sampled).map(Record::Note));
        runs
    }

    /// As [`Engine::plan_moves`]; nothing while a trace is recorded: then no page is lent to the
    /// kernel's zram, and none has to move from there.
    pub fn plan_moves(&mut self, pages_wanted: usize, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        if self.recorder.is_none() {
            out.extend(self.put(
                || Call::Moves(pages_wanted),
                pages,
                |engine, pages| {
                    let mut orders = Vec::new();
                    engine.plan_moves(pages_wanted, pages, &mut orders);
                    orders
                },
            ));
        }
    }

    /// As [`Engine::spare`].
    pub fn spare(&mut self, app: AppId) {
        self.engine.spare(app);
        self.note(|| Call::Spare(app), ());
        self.note_all([Record::Note(Note::Spared { app })]);
    }

    /// As [`Engine::set_tier`]. It is written down before the next question that it matters for.
    pub fn set_tier(&mut self, tier: Tier, facts: TierFacts) {
        self.engine.set_tier(tier, facts);
        self.note(|| Call::SetTier(tier, facts), ());
    }

    /// As [`Budget::shortage`].
    pub fn shortage(&mut self, budget: Budget, used: Use) -> Option<Shortage> {
        self.note(|| Call::Shortage(budget, used), budget.shortage(used))
    }

    /// As [`Budget::demand`].
    pub fn demand(&mut self, budget: Budget, short: Shortage, freed_bytes: u64) -> Option<Demand> {
        let demand = budget.demand(short, freed_bytes);
        self.note(|| Call::Demand(budget, short, freed_bytes), demand)
    }

    /// As [`Budget::early_pages`].
    pub fn early_pages(&mut self, budget: Budget, used: Use) -> usize {
        self.note(|| Call::EarlyPages(budget, used), budget.early_pages(used))
    }

    /// As [`KeptCopies::push`].
    pub fn keep(&mut self, page: PageId) {
        self.kept.push(page);
        self.note(|| Call::Keep(page), ());
    }

    /// As [`KeptCopies::tidy`].
    pub fn tidy_kept(&mut self, mut may_have: impl FnMut(PageId) -> bool) {
        let mut said = Vec::new();
        self.kept.tidy(|page| {
            let may = may_have(page);
            said.push(may);
            may
        });
        if !said.is_empty() {
            self.note(|| Call::Tidy(said), ());
        }
    }

    /// As [`KeptCopies::give_up`].
    pub fn give_up_kept(
        &mut self,
        wanted_bytes: u64,
        mut give_up: impl FnMut(PageId) -> Option<u64>,
    ) -> Dropped {
        let (mut freed, mut tried) = (Vec::new(), Vec::new());
        let dropped = self.kept.give_up(wanted_bytes, |page| {
            let bytes = give_up(page);
            freed.push(bytes);
            tried.push(page);
            bytes
        });
        self.note(|| Call::GiveUp(wanted_bytes, freed), (dropped, tried)).0
    }

    fn note_tiers(&mut self) {
        let note = |(tier, facts): (&Tier, &TierFacts)| {
            let TierFacts { used_bytes, pages, .. } = *facts;
            Record::Note(Note::TierUse { tier: *tier, used_bytes, pages })
        };
        let notes: Vec<Record> = self.engine.facts().tiers.iter().map(note).collect();
        self.note_all(notes);
    }

    fn note_orders(&mut self, orders: &[Order]) {
        if self.recorder.is_none() {
            return;
        }
        for order in orders {
            match order {
                Order::SwapOut { groups, place, .. } => {
                    let Place::Tier { tier, .. } = *place else { continue };
                    for group in groups {
                        self.note_all(Note::of_group(group, tier).map(Record::Note));
                    }
                }
                Order::EndApp { app, .. } => {
                    self.note_all([Record::Note(Note::EndApp { app: *app })]);
                }
                Order::Evict { .. } => {}
            }
        }
    }

    fn note_all(&mut self, records: impl IntoIterator<Item = Record>) {
        let now = self.engine.facts().now;
        if let Some(recorder) = &mut self.recorder {
            records.into_iter().for_each(|record| recorder.record(now, record));
        }
    }

    /// The end; the file of a transcript is complete.
    pub fn finish(&mut self) {
        if let Some(Err(error)) = self.transcript.take().map(Transcript::finish) {
            tracing::error!("the transcript ends here: {error}");
        }
    }

    /// Hands on what has been recorded; waits for nobody.
    pub fn hand_on(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.hand_on();
        }
    }
}

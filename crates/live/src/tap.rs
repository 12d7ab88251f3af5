//! The engine, with a recorder beside it: what it is told, asked and answers goes to both. Without
//! a recorder it is the engine.
//!
//! Invariant: who holds it can look at the engine, and change it only by what is here. Each of that is
//! written down where it changes what policies answer later: what is asked does too, as pages that were
//! picked have their turn last the next time.

use std::ops::Deref;

use clew_core::{
    AppId, Demand, Event, Ns, PageFacts, PageId, PageRun, Place, Tier, TierFacts, Trigger,
};
use clew_engine::decide::{Engine, Order};
use clew_trace::{Note, Record};

use crate::record::Recorder;

/// An engine, and who listens.
pub struct TappedEngine {
    engine: Engine,
    recorder: Option<Recorder>,
}

impl Deref for TappedEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl TappedEngine {
    /// `engine`, with a recorder if there is one.
    pub fn new(engine: Engine, recorder: Option<Recorder>) -> TappedEngine {
        TappedEngine { engine, recorder }
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
        self.engine.tell(now, event, pages);
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
        self.engine.plan_swap_out(demand, pages, out);
        self.note_orders(&out[before..]);
    }

    /// As [`Engine::plan_app_out`].
    pub fn plan_app_out(&mut self, app: AppId, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        if self.recorder.is_some() {
            self.note_tiers();
            self.note_all([Record::Note(Note::AskedApp { app })]);
        }
        let before = out.len();
        self.engine.plan_app_out(app, pages, out);
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
        self.engine.plan_prefetch(trigger, pages, out);
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
        let runs = self.engine.plan_samples(app, pages_wanted, run_pages, pages);
        let asked = Note::AskedSamples { app, pages: pages_wanted as u64, run_pages };
        let sampled = runs.iter().map(|run| Note::Sample { run: *run });
        self.note_all([asked].into_iter().chain(sampled).map(Record::Note));
        runs
    }

    /// As [`Engine::plan_moves`]; nothing while a trace is recorded: then no page is lent to the
    /// kernel's zram, and none has to move from there.
    pub fn plan_moves(&mut self, pages_wanted: usize, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        if self.recorder.is_none() {
            self.engine.plan_moves(pages_wanted, pages, out);
        }
    }

    /// As [`Engine::spare`].
    pub fn spare(&mut self, app: AppId) {
        self.engine.spare(app);
        self.note_all([Record::Note(Note::Spared { app })]);
    }

    /// As [`Engine::set_tier`]. It is written down before the next question that it matters for.
    pub fn set_tier(&mut self, tier: Tier, facts: TierFacts) {
        self.engine.set_tier(tier, facts);
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

    /// Hands on what has been recorded; waits for nobody.
    pub fn hand_on(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.hand_on();
        }
    }
}

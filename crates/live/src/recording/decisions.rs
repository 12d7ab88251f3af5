//! The recorder's ear: what the engine is told and asked, and what it answers, as the records of a
//! trace. What is asked is written down too, as pages that were picked have their turn last the next
//! time.

use clew_core::{Demand, Event, PageId, SampleDemand, Tier, TierFacts, Trigger};
use clew_engine::decide::Engine;
use clew_engine::driver::{Answer, Call, Fact, Listener};
use clew_trace::{Note, Record};

use crate::recording::recorder::Recorder;

/// Listens for a recorder.
pub struct Tap(pub Recorder);

impl Listener for Tap {
    fn heard(&mut self, engine: &Engine, call: &Call, _: &[Fact], answer: Answer<'_>) {
        let now = engine.facts().now;
        let note = |note| Record::Note(note);
        let mut records: Vec<Record> = Vec::new();
        match *call {
            Call::Name(app, ref name) => self.0.name(app, name),
            Call::Tell(_, ref event) => {
                records.push(Record::of_event(event));
                // What left is what the scheme took: a candidate for whoever reads the trace.
                if let Event::Stored { page, .. } = event {
                    records.push(Record::Candidate { page: *page });
                }
            }
            Call::Window(app) => records.push(Record::Window { app }),
            Call::Spare(app) => records.push(note(Note::Spared { app })),
            Call::SwapOut(Demand { pages, urgent }) => {
                records.extend(tiers(engine));
                records.push(note(Note::AskedPages { pages: pages as u64, urgent }));
            }
            Call::AppOut(app) => {
                records.extend(tiers(engine));
                records.push(note(Note::AskedApp { app }));
            }
            Call::Prefetch(trigger) if is_noted(trigger, answer) => {
                records.push(note(Note::AskedPrefetch { trigger }));
            }
            Call::Samples(SampleDemand { app, pages, run_pages }) => {
                records.push(note(Note::AskedSamples { app, pages: pages as u64, run_pages }));
            }
            // While a trace is recorded no page is lent to the kernel's zram, and none has to move
            // from there. Tiers are written down before the next question that they matter for.
            // Replays begin knowing nothing of apps, which one user has all of. Where pages of the pool are stored anew nobody hears of it.
            Call::Know(..)
            | Call::IsOf(..)
            | Call::Begin(_)
            | Call::Prefetch(_)
            | Call::Moves(_)
            | Call::Repacks(_)
            | Call::SetTier(..)
            | Call::CpuLoad(_)
            | Call::Admit(..)
            | Call::Keep(_)
            | Call::Tidy
            | Call::GiveUp(..)
            | Call::Shortage(..)
            | Call::Demand(..)
            | Call::EarlyPages(..) => {}
        }
        match answer {
            Answer::Orders(orders) => {
                records.extend(orders.iter().flat_map(Note::of_order).map(note))
            }
            Answer::Pages(pages) => {
                let picked = |page: &PageId| note(Note::Prefetch { page: *page });
                records.extend(pages.iter().map(picked));
            }
            Answer::Runs(runs) => {
                records.extend(runs.iter().map(|run| note(Note::Sample { run: *run })));
            }
            Answer::Nothing
            | Answer::Admitted(_)
            | Answer::Shortage(_)
            | Answer::Demand(_)
            | Answer::Count(_)
            | Answer::GaveUp(..) => {}
        }
        records.into_iter().for_each(|record| self.0.record(now, record));
    }

    /// Hands on what has been recorded; waits for nobody.
    fn rest(&mut self) {
        self.0.hand_on();
    }
}

/// After a fault or a hit it is noted only if there is something to bring back.
fn is_noted(trigger: Trigger, answer: Answer<'_>) -> bool {
    matches!(trigger, Trigger::Relaunch(_))
        || matches!(answer, Answer::Pages(pages) if !pages.is_empty())
}

fn tiers(engine: &Engine) -> impl Iterator<Item = Record> {
    let note = |(tier, facts): (&Tier, &TierFacts)| {
        let TierFacts { used_bytes, pages, .. } = *facts;
        Record::Note(Note::TierUse { tier: *tier, used_bytes, pages })
    };
    engine.facts().tiers.iter().map(note)
}

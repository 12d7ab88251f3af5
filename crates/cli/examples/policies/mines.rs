//! Asks for a job at the first tick, and counts what the job has found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clew_core::{Event, Job, Metric, Observe, PageId, Prefetch, Trigger, View};
use clew_policy::plain;
use clew_policy::schemes::About;

#[derive(Default)]
struct Mines {
    asked: bool,
    ticked: bool,
    result: Arc<AtomicU64>,
    done: f64,
}

plain!(Mines as dyn Prefetch, About::of("mines", "nothing; it counts"));

impl Observe for Mines {
    fn on_event(&mut self, event: &Event, _: &View<'_>) {
        match event {
            Event::Tick => self.ticked = true,
            Event::JobDone { job: 7 } => self.done = self.result.load(Ordering::SeqCst) as f64,
            _ => {}
        }
    }
    fn take_job(&mut self) -> Option<Job> {
        if !self.ticked || std::mem::replace(&mut self.asked, true) {
            return None;
        }
        let result = self.result.clone();
        let run = Box::new(move || result.store((1..=100).sum(), Ordering::SeqCst));
        Some(Job { id: 7, run })
    }
    fn metrics(&self) -> Vec<Metric> {
        vec![Metric { name: "mined", value: self.done, help: "what the job has found" }]
    }
}

impl Prefetch for Mines {
    fn pick_prefetch(&mut self, _: Trigger, _: &View<'_>, _: &mut Vec<PageId>) {}
}

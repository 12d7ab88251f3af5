//! Two prefetchers: one answers relaunches, the other faults and hits.

use std::sync::Arc;

use clew_core::{Arrival, Event, Metric, Observe, PageId, Prefetch, RunAhead, Trigger, View};
use serde::Serialize;
use toml::Table;

use crate::schemes::{About, Answer, Choice, Kinds, SchemeError};

/// Parameters.
#[derive(Debug, Serialize)]
pub struct Params {
    /// Answers relaunches.
    pub relaunch: Choice<dyn Prefetch>,
    /// Answers faults and hits.
    pub fault: Choice<dyn Prefetch>,
}

/// What schemes call it.
pub const KIND: &str = "by-trigger";

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let (relaunch, fault) = (self.relaunch.about(), self.fault.about());
        let needs_hot_list = relaunch.needs_hot_list || fault.needs_hot_list;
        let shown = format!("{}; {}", relaunch.shown, fault.shown);
        About { needs_hot_list, ..About::of(KIND, shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(ByTrigger::new(self.relaunch.build(), self.fault.build()))
    }
}

/// Reads the parameters, which are prefetchers of `kinds`.
pub fn read(
    mut table: Table,
    kinds: &Kinds<dyn Prefetch>,
) -> Result<Choice<dyn Prefetch>, SchemeError> {
    let relaunch = kinds.read("relaunch", table.remove("relaunch"), |about| about.at_relaunch)?;
    let fault = kinds.read("fault", table.remove("fault"), |about| about.at_fault)?;
    match table.iter().next() {
        None => Ok(Arc::new(Params { relaunch, fault })),
        Some((field, found)) => {
            let why = "unknown field, expected kind, relaunch or fault".to_string();
            Err(SchemeError::field(field, Some(found), why))
        }
    }
}

/// The policy. See the module.
pub struct ByTrigger {
    relaunch: Box<dyn Prefetch>,
    fault: Box<dyn Prefetch>,
}

impl ByTrigger {
    /// `relaunch` answers relaunches, `fault` all else. Neither may ask for long work.
    pub fn new(relaunch: Box<dyn Prefetch>, fault: Box<dyn Prefetch>) -> ByTrigger {
        ByTrigger { relaunch, fault }
    }
}

impl Observe for ByTrigger {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.relaunch.on_event(event, view);
        self.fault.on_event(event, view);
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.relaunch.metrics();
        metrics.extend(self.fault.metrics());
        metrics
    }
}

impl Prefetch for ByTrigger {
    fn arrival(&self) -> Arrival {
        self.fault.arrival()
    }

    fn run_ahead(&self) -> Option<RunAhead> {
        self.fault.run_ahead()
    }

    fn brings_all(&self) -> bool {
        self.relaunch.brings_all()
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        match trigger {
            Trigger::Relaunch(_) => self.relaunch.pick_prefetch(trigger, view, out),
            Trigger::Fault(_) | Trigger::Hit(_) => self.fault.pick_prefetch(trigger, view, out),
        }
    }
}

//! Two prefetchers: one answers relaunches, the other faults and hits.

use clew_core::{Arrival, Event, Metric, Observe, PageId, Prefetch, RunAhead, Trigger, View};

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

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        match trigger {
            Trigger::Relaunch(_) => self.relaunch.pick_prefetch(trigger, view, out),
            Trigger::Fault(_) | Trigger::Hit(_) => self.fault.pick_prefetch(trigger, view, out),
        }
    }
}

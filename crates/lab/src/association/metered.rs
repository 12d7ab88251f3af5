//! A prefetcher with a meter: what it does is its own, and what that takes of the processor is added up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clew_core::{
    Arrival, Ending, Event, Job, Metric, Observe, PageId, Prefetch, RunAhead, Trigger, View,
};
use clew_policy::schemes::{About, Answer, Choice};
use serde::Serialize;

/// What the calling thread has used of a processor so far.
pub type CpuClock = fn() -> Duration;

/// Events of single pages are many and alike: one in so many is metered. No small factor of what a trace does in turn.
const ONE_IN: u64 = 13;

/// What was metered.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Nanoseconds of it, those of reading the clock taken off: a sum of differences, of which a single one may be
    /// below nothing.
    spent_ns: AtomicI64,
    /// The most that it held to know what it knows, as far as it counts that itself.
    held_bytes: AtomicU64,
    /// The clock is not to be read.
    is_off: AtomicBool,
}

impl Meter {
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Relaxed).max(0) as u64)
    }

    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Does `work`, which stands for `times` such pieces. What reading the clock takes is read right after, and
    /// taken off.
    fn take<T>(&self, clock: CpuClock, times: i64, work: impl FnOnce() -> T) -> T {
        if self.is_off.load(Relaxed) {
            return work();
        }
        let began = clock();
        let done = work();
        let ended = clock();
        let nanos = |from: Duration, to: Duration| to.saturating_sub(from).as_nanos() as i64;
        let spent_ns = nanos(began, ended) - nanos(ended, clock());
        self.spent_ns.fetch_add(spent_ns * times, Relaxed);
        done
    }
}

/// The answer `inner` with a meter.
#[derive(Serialize)]
pub(super) struct Metered {
    #[serde(skip)]
    pub inner: Choice<dyn Prefetch>,
    #[serde(skip)]
    pub meter: Arc<Meter>,
    #[serde(skip)]
    pub clock: CpuClock,
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metered").field(&self.inner).finish()
    }
}

impl Answer<dyn Prefetch> for Metered {
    fn about(&self) -> About {
        self.inner.about()
    }

    fn build(&self) -> Box<dyn Prefetch> {
        // What does nothing takes nothing.
        self.meter.is_off.store(self.inner.about().kind == "none", Relaxed);
        let (meter, clock) = (Arc::clone(&self.meter), self.clock);
        Box::new(MeteredPrefetch { inner: self.inner.build(), meter, clock, of_pages: 0 })
    }
}

struct MeteredPrefetch {
    inner: Box<dyn Prefetch>,
    meter: Arc<Meter>,
    clock: CpuClock,
    /// Events of pages so far.
    of_pages: u64,
}

impl Observe for MeteredPrefetch {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        let MeteredPrefetch { inner, meter, clock, of_pages } = self;
        if let Event::Background { .. } | Event::Exit { .. } = event {
            let metrics = inner.metrics();
            let held = metrics.iter().filter(|metric| metric.name.ends_with("_tracking_bytes"));
            let held: f64 = held.map(|metric| metric.value).sum();
            meter.held_bytes.fetch_max(held as u64, Relaxed);
        }
        let is_of_page = matches!(
            event,
            Event::Access { .. }
                | Event::PageIn { .. }
                | Event::Stored { .. }
                | Event::PrefetchUsed { .. }
        );
        if !is_of_page {
            return meter.take(*clock, 1, || inner.on_event(event, view));
        }
        *of_pages += 1;
        match of_pages.is_multiple_of(ONE_IN) {
            true => meter.take(*clock, ONE_IN as i64, || inner.on_event(event, view)),
            false => inner.on_event(event, view),
        }
    }

    fn take_job(&mut self) -> Option<Job> {
        let Job { id, run } = self.inner.take_job()?;
        let (meter, clock) = (Arc::clone(&self.meter), self.clock);
        Some(Job { id, run: Box::new(move || meter.take(clock, 1, run)) })
    }

    fn take_ending(&mut self) -> Option<Ending> {
        self.inner.take_ending()
    }

    fn metrics(&self) -> Vec<Metric> {
        self.inner.metrics()
    }
}

impl Prefetch for MeteredPrefetch {
    /// The same for all: what comes stays until it leaves with the rest, and its use is heard of.
    fn arrival(&self) -> Arrival {
        Arrival::Resident
    }

    fn run_ahead(&self) -> Option<RunAhead> {
        self.inner.run_ahead()
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let MeteredPrefetch { inner, meter, clock, .. } = self;
        meter.take(*clock, 1, || inner.pick_prefetch(trigger, view, out));
    }
}

//! Runs: a fault brings as many of the pages behind it as its space's faults have run on before.
//!
//! Ours. Linux (`mm/swap_state.c`, `swap_vma_readahead`) opens a window where the last one was used,
//! which it sees in accessed bits. Here a page that came along is never heard of again; but a run that
//! goes on faults on the first page that did not come. So:
//! - A fault that follows one of the last [`STREAMS`] runs brings half as many pages as that run has
//!   already, up to `max_pages`.
//! - Another begins a run. Of these, one in `probe_one_in` brings nothing: how far it then runs on
//!   says how long runs are. The rest bring as many pages as half of those had.
//!
//! Where memory is used at random that is none, and where it is used in long pieces nearly all of
//! them. What is stored of the block around the fault comes as well where that pays ([`super::around`]). It must be asked where faults are answered, once for each fault of a space.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use clew_core::{
    Event, Metric, Observe, PageId, Prefetch, RunAhead, SpaceId, Trigger, View, Vpn, Whole,
};
use serde::{Deserialize, Serialize};

use super::around::{self, Around, Near};
use crate::schemes::{About, Answer};

/// Runs of a space that are followed at once: what several threads do, or one that copies.
const STREAMS: usize = 4;
/// Pages that may lie between a run and the fault that follows it: they were there.
const GAP: u64 = 4;
/// Probes that are remembered.
const PROBES: usize = 15;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    /// Its first page.
    first: u64,
    /// The page behind all that came.
    next: u64,
    /// What came with its last fault.
    window: u32,
    /// Nothing came with its first one.
    probe: bool,
}

/// What is to come with a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The run behind it.
    pub run: Range<u64>,
    /// Of the block around it.
    pub near: Near,
}

impl Ahead {
    /// Each page once, ascending; not the one that is asked for.
    pub fn vpns(self) -> impl Iterator<Item = u64> {
        let Ahead { run, near } = self;
        let before = near.vpns().filter(move |vpn| *vpn < run.start);
        let behind = near.vpns().filter(move |vpn| *vpn >= run.end);
        before.chain(run.clone()).chain(behind)
    }
}

/// The runs of one space.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    around: Around,
    /// The last ones, the latest in front.
    runs: Vec<Run>,
    /// How many pages the last probes had behind the first one.
    lengths: VecDeque<u32>,
    /// The pages behind the first one that half of them had: faults should not have to sort.
    usual: u32,
    begun: u32,
}

impl Runs {
    /// Memory that it holds, about, bytes.
    pub fn bytes(&self) -> usize {
        let streams = (self.runs.capacity() * size_of::<Run>(), self.lengths.capacity());
        size_of::<Runs>() + streams.0 + streams.1 * size_of::<u32>() + self.around.bytes()
    }

    /// A fault at `vpn`; which pages are to come with it, of those that are stored. `stored` counts those
    /// of some pages that are.
    pub fn fault(&mut self, vpn: Vpn, params: RunAhead, stored: impl Fn(Near) -> u32) -> Ahead {
        let follows = |run: &Run| (run.next..run.next + GAP).contains(&vpn.0);
        let (first, window, probe) = match self.runs.iter().position(follows) {
            Some(at) => {
                let run = self.runs.remove(at);
                let so_far = ((vpn.0 - run.first) / 2).clamp(1, u64::from(u32::MAX));
                (run.first, so_far as u32, run.probe)
            }
            None => {
                if self.runs.len() == STREAMS
                    && let Some(run) = self.runs.pop()
                    && run.probe
                {
                    self.ended(run);
                }
                self.begun = self.begun.wrapping_add(1);
                let probes = self.begun.is_multiple_of(params.probe_one_in.max(1));
                let window = if probes { 0 } else { self.usual };
                (vpn.0, window, window == 0)
            }
        };
        let window = window.min(params.max_pages);
        let near = self.around.fault(vpn, params, stored);
        let run = vpn.0 + 1..vpn.0 + 1 + u64::from(window);
        let mut next = run.end;
        while near.has(next) {
            next += 1;
        }
        self.runs.insert(0, Run { first, next, window, probe });
        Ahead { run, near }
    }

    /// A probe is over. How much of what came last was used is not known: half of it.
    fn ended(&mut self, run: Run) {
        let length = (run.next - 1 - run.first).saturating_sub(u64::from(run.window.div_ceil(2)));
        self.lengths.truncate(PROBES - 1);
        self.lengths.push_front(length.min(u32::MAX.into()) as u32);
        let mut lengths: Vec<u32> = self.lengths.iter().copied().collect();
        lengths.sort_unstable();
        self.usual = lengths[lengths.len() / 2];
    }
}

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages that come with a fault, at most.
    pub max_pages: Whole<1, 512, 32>,
    /// One fault in so many that begin a run brings nothing, to see whether the run goes on.
    pub probe_one_in: Whole<2, 1024, 8>,
    /// Pages of the aligned block around a fault that may come with it; 0: none.
    pub around_pages: Whole<0, { around::MOST_PAGES }, 0>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        About { at_fault: true, ..About::of("runs", "the run that a fault begins") }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        let (max_pages, probe_one_in) = (self.max_pages.get(), self.probe_one_in.get());
        let around_pages = self.around_pages.get();
        Box::new(RunsPrefetch::new(RunAhead { max_pages, probe_one_in, around_pages }))
    }
}

/// The policy for replays, where faults are answered by who asks it. Live, the fault path has [`Runs`]
/// itself ([`Prefetch::run_ahead`]). See the module.
pub struct RunsPrefetch {
    params: RunAhead,
    spaces: HashMap<SpaceId, Runs>,
    picked: u64,
}

impl RunsPrefetch {
    /// Knows no runs yet.
    pub fn new(params: RunAhead) -> RunsPrefetch {
        RunsPrefetch { params, spaces: HashMap::new(), picked: 0 }
    }
}

impl Observe for RunsPrefetch {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        if let Event::SpaceStart { space, .. } | Event::SpaceEnd { space } = event {
            self.spaces.remove(space);
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let bytes: usize = self.spaces.values().map(Runs::bytes).sum();
        [
            ("runs_picked_pages", self.picked, "pages asked for with one that was demanded"),
            ("runs_tracking_bytes", bytes as u64, "memory held for what was asked for, about"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for RunsPrefetch {
    fn run_ahead(&self) -> Option<RunAhead> {
        Some(self.params)
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let runs = self.spaces.entry(page.space()).or_default();
        let is_stored = |page: &PageId| view.pages.tier(*page).is_some();
        let first = page.raw() - page.vpn().0;
        let pages = |vpns: &mut dyn Iterator<Item = u64>| -> Vec<PageId> {
            let pages = vpns.map_while(|vpn| first.checked_add(vpn).map(PageId::from_raw));
            pages.take_while(|other| other.space() == page.space()).filter(is_stored).collect()
        };
        let stored = |near: Near| pages(&mut near.vpns()).len() as u32;
        let ahead = runs.fault(page.vpn(), self.params, stored);
        let before = out.len();
        out.extend(pages(&mut ahead.vpns()));
        self.picked += (out.len() - before) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: RunAhead = RunAhead { max_pages: 32, probe_one_in: 8, around_pages: 0 };

    /// How many pages behind a fault are to come.
    fn behind(runs: &mut Runs, vpn: u64) -> u64 {
        let Ahead { run, near } = runs.fault(Vpn(vpn), PARAMS, |_| 0);
        assert_eq!((run.start, near.pages), (vpn + 1, 0), "nothing comes that lies before it");
        run.end - run.start
    }

    /// Faults of pieces of `pages` pages, far apart; how many pages were asked for that were not used,
    /// and how many faults there were, of the last half.
    fn pieces(pages: u64, count: u64) -> (u64, u64) {
        let mut runs = Runs::default();
        let (mut wasted, mut faults) = (0, 0);
        for piece in 0..count {
            let first = piece * 7919 % 100_000 * 1000;
            let mut at = 0;
            while at < pages {
                let with = behind(&mut runs, first + at);
                at += 1 + with;
                if piece >= count / 2 {
                    faults += 1;
                    wasted += at.saturating_sub(pages);
                }
            }
        }
        (wasted, faults)
    }

    #[test]
    fn nothing_comes_with_faults_at_random() {
        assert_eq!(pieces(1, 1000), (0, 500));
    }

    #[test]
    fn pieces_of_many_pages_come_with_few_faults() {
        let (wasted, faults) = pieces(10, 1000);
        assert!(faults <= 500 * 2, "{faults} faults for 500 pieces");
        assert!(wasted <= 500 * 4, "{wasted} pages wasted");
        let (_, faults) = pieces(64, 1000);
        assert!(faults <= 500 * 5, "{faults} faults for 500 pieces of 64 pages");
    }

    #[test]
    fn what_is_learned_is_forgotten_when_it_is_no_longer_true() {
        let mut runs = Runs::default();
        for page in 0..2000 {
            behind(&mut runs, page / 10 * 1000 + page % 10);
        }
        assert!(runs.usual > 0, "{runs:?}");
        for page in 0..2000 {
            behind(&mut runs, (1 << 30) + page * 1000);
        }
        assert_eq!(runs.usual, 0, "{runs:?}");
    }

    #[test]
    fn what_comes_is_named_once_and_in_order() {
        let ahead = |run: Range<u64>, pages| Ahead { run, near: Near { first: 16, pages } }.vpns();
        assert_eq!(ahead(21..24, 0b1110_0011).collect::<Vec<_>>(), [16, 17, 21, 22, 23]);
        assert_eq!(ahead(21..21, 0b1100_0011).collect::<Vec<_>>(), [16, 17, 22, 23]);
        assert_eq!(ahead(40..42, 0b1).collect::<Vec<_>>(), [16, 40, 41]);
    }

    #[test]
    fn runs_that_are_read_in_turns_are_told_apart() {
        let mut runs = Runs::default();
        let mut at = [0u64, 1 << 20, 2 << 20];
        let mut last = [0; 3];
        for _ in 0..16 {
            for (stream, at) in at.iter_mut().enumerate() {
                last[stream] = behind(&mut runs, *at);
                *at += 1 + last[stream];
            }
        }
        assert_eq!(last, [32; 3]);
    }
}

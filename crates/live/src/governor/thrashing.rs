//! Thrashing: what an app needs does not fit, so its pages leave, come back at once and leave again.
//!
//! As the kernel does (mm/workingset.c), a page that comes back by a fault is asked how many pages
//! have left since it did: so many more would have had to be resident for it to stay. Of one page in
//! [`SAMPLE`] this is looked at. A page that came back once counts only when it comes back again
//! within [`AGAIN`] seconds: a relaunch, or one pass over everything, brings pages back once. And only
//! while others leave: where there is room, pages come back and stay.
//!
//! Time is what it costs: an app thrashes when in [`WINDOW`] seconds such faults took [`LOST`] of the
//! time, in [`BUSY`] of these seconds at least. Pure: told of pages and seconds, it reads no clock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AppId, PageId, SpaceId};

use super::Governor;
use crate::control::status::ThrashingStatus;

/// One page in so many is looked at; a power of two.
const SAMPLE: u64 = 32;
/// A page that comes back again after more seconds was not needed meanwhile.
const AGAIN: u32 = 60;
/// Seconds that are looked at together.
const WINDOW: usize = 5;
/// Seconds among them in which it happened.
const BUSY: usize = 3;
/// Share of the time.
const LOST: f64 = 0.05;
/// Samples of one second that are kept: more would say the same.
const KEPT: usize = 256;
/// Fewer say nothing.
const FEWEST: usize = 4;

/// What is known of the pages that are looked at.
#[derive(Debug, Default)]
pub(super) struct Thrashing {
    /// Seconds so far.
    second: u32,
    /// Pages that left, so far and when this second began.
    left: u64,
    left_before: u64,
    /// Those that came back within [`AGAIN`].
    pages: HashMap<PageId, Seen>,
    apps: BTreeMap<AppId, Window>,
}

#[derive(Debug)]
struct Seen {
    /// The second in which it last came back.
    back: u32,
    /// Pages that had left when it left since.
    left: Option<u64>,
}

#[derive(Debug, Default)]
struct Window {
    /// Time that its faults had taken before this second.
    waited: Option<Duration>,
    now: Second,
    /// The last ones, the oldest first.
    past: VecDeque<Second>,
}

/// What one second brought.
#[derive(Debug, Default)]
struct Second {
    /// Samples that came back, and those of them that had just been here.
    back: u64,
    again: u64,
    /// Of these, pages that had left meanwhile.
    distances: Vec<u64>,
    /// How long it was, and how much of it was lost.
    took: Duration,
    lost: Duration,
}

/// An app thrashes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Share of the time that it waits for pages that had just been there. Of an app with several
    /// threads it can be more than 1.
    pub lost: f64,
    /// Pages that would have to be resident besides.
    pub missing_pages: u64,
}

impl Thrashing {
    /// A page left.
    pub(super) fn left(&mut self, page: PageId) {
        self.left += 1;
        if is_sample(page)
            && let Some(seen) = self.pages.get_mut(&page)
        {
            seen.left = Some(self.left);
        }
    }

    /// A fault of `app` brought a page back.
    pub(super) fn back(&mut self, page: PageId, app: AppId) {
        if !is_sample(page) {
            return;
        }
        let now = &mut self.apps.entry(app).or_default().now;
        now.back += 1;
        let seen = self.pages.insert(page, Seen { back: self.second, left: None });
        let Some(Seen { back, left: Some(left) }) = seen else { return };
        if self.second - back <= AGAIN {
            now.again += 1;
            if now.distances.len() < KEPT {
                now.distances.push(self.left - left);
            }
        }
    }

    /// A second is over. It took so long, and by now the faults of these apps took so long since
    /// each began. Others are forgotten.
    pub(super) fn second(&mut self, took: Duration, apps: impl Iterator<Item = (AppId, Duration)>) {
        let left = self.left - self.left_before;
        self.left_before = self.left;
        self.second += 1;
        let mut others = std::mem::take(&mut self.apps);
        for (app, waited) in apps {
            let mut window = others.remove(&app).unwrap_or_default();
            window.close(took, waited, left);
            self.apps.insert(app, window);
        }
        let (second, pages) = (self.second, &mut self.pages);
        if second.is_multiple_of(AGAIN / 4) {
            pages.retain(|_, seen| second - seen.back <= AGAIN);
        }
    }

    /// These pages are gone for good.
    pub(super) fn end(&mut self, space: SpaceId) {
        self.pages.retain(|page, _| page.space() != space);
    }

    /// Whether an app thrashes, when so many pages are stored.
    pub(super) fn of(&self, app: AppId, stored_pages: u64) -> Option<Verdict> {
        let past = &self.apps.get(&app)?.past;
        let lost: Duration = past.iter().map(|second| second.lost).sum();
        let took: Duration = past.iter().map(|second| second.took).sum();
        let busy = past.iter().filter(|second| !second.lost.is_zero()).count();
        let share = lost.as_secs_f64() / took.as_secs_f64().max(1e-3);
        let mut distances: Vec<u64> =
            past.iter().flat_map(|second| second.distances.iter().copied()).collect();
        if share < LOST || busy < BUSY || distances.len() < FEWEST {
            return None;
        }
        // With so many more, 19 of 20 of these faults would not have been. Where memory is very short a page leaves
        // and comes back several times between two uses of another, and counts each time; but with room for all
        // that is stored nothing is missing.
        let at = distances.len() * 19 / 20;
        let (_, missing, _) = distances.select_nth_unstable(at);
        Some(Verdict { lost: share, missing_pages: (*missing).min(stored_pages) })
    }
}

impl Window {
    fn close(&mut self, took: Duration, waited: Duration, left: u64) {
        let before = self.waited.replace(waited).unwrap_or(waited);
        let mut now = std::mem::take(&mut self.now);
        now.took = took;
        // Where nothing else had to leave, there is room.
        if now.again > 0 && left >= now.again * SAMPLE / 4 {
            let part = now.again as f64 / now.back as f64;
            now.lost = waited.saturating_sub(before).mul_f64(part);
        }
        self.past.push_back(now);
        self.past.drain(..self.past.len().saturating_sub(WINDOW));
    }
}

/// What a fault takes that the kernel answers itself, of a lent page: nobody measures it.
const LENT_FAULT: Duration = Duration::from_micros(15);

impl Governor {
    /// Once a second.
    pub(super) fn look_for_thrashing(&mut self) {
        let took = self.last_second.elapsed();
        if took < Duration::from_secs(1) {
            return;
        }
        self.last_second = Instant::now();
        let waited = |(id, app): (&AppId, &super::App)| {
            let (mut ns, mut lent) = (app.past_fault_ns, app.past_lent_back);
            for process in self.shared.of_app(*id) {
                ns += process.fault_ns.load(Ordering::Relaxed);
                lent += process.lent_back.load(Ordering::Relaxed);
            }
            (*id, Duration::from_nanos(ns) + LENT_FAULT * lent.min(u32::MAX.into()) as u32)
        };
        self.thrashing.second(took, self.apps.iter().map(waited));
    }

    /// What is said of an app that thrashes, whose stored pages compress so well.
    pub(super) fn thrashing_of(&self, app: AppId, ratio: f64) -> Option<ThrashingStatus> {
        let verdict = self.thrashing.of(app, self.shared.mover.store.facts().pages)?;
        let missing_bytes = verdict.missing_pages * self.shared.page_bytes;
        // It may use more than it should: that is missing too.
        let budget = self.config.budget.0.max(self.used_bytes);
        let kept_free = self.config.watermark_high / 100.0;
        Some(ThrashingStatus {
            lost_percent: verdict.lost * 100.0,
            missing_pages: verdict.missing_pages,
            enough_budget_bytes: enough_bytes(budget, missing_bytes, ratio, kept_free),
        })
    }
}

fn is_sample(page: PageId) -> bool {
    let mixed =
        (page.vpn().0 ^ u64::from(page.space().0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 59 == 0
}

/// The budget that would end it: the pages that are `missing` come in, and what is stored of them
/// goes, where `ratio` is original bytes / stored bytes (0: not known); `kept_free` is the share of
/// the budget that reclaim keeps free. An eighth is added for what else moves meanwhile. Whole MiB.
pub(super) fn enough_bytes(budget: u64, missing: u64, ratio: f64, kept_free: f64) -> u64 {
    let stored = if ratio > 0.0 { (1.0 / ratio).min(0.75) } else { 0.0 };
    let more = missing as f64 * (1.0 - stored) / (1.0 - kept_free.clamp(0.0, 0.5)) * 9.0 / 8.0;
    (budget + more.ceil() as u64).next_multiple_of(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::Vpn;

    const APP: AppId = AppId(1);

    /// An app with room for so many pages, of which the one used longest ago leaves.
    struct Memory {
        room: usize,
        /// Pages, and those by when they were used last.
        resident: HashMap<u64, u64>,
        order: BTreeMap<u64, u64>,
        touches: u64,
        stored: std::collections::HashSet<u64>,
        thrashing: Thrashing,
        waited: Duration,
        faults: u64,
    }

    impl Memory {
        fn new(room: usize) -> Memory {
            Memory {
                room,
                resident: HashMap::new(),
                order: BTreeMap::new(),
                touches: 0,
                stored: Default::default(),
                thrashing: Thrashing::default(),
                waited: Duration::ZERO,
                faults: 0,
            }
        }

        /// Touches a page, which takes 20 us if it is stored.
        fn touch(&mut self, vpn: u64) {
            let page = |vpn| PageId::new(SpaceId(1), Vpn(vpn));
            self.touches += 1;
            if let Some(when) = self.resident.insert(vpn, self.touches) {
                self.order.remove(&when);
            } else if self.stored.remove(&vpn) {
                self.waited += Duration::from_micros(20);
                self.faults += 1;
                self.thrashing.back(page(vpn), APP);
            }
            self.order.insert(self.touches, vpn);
            if self.resident.len() > self.room {
                let (_, out) = self.order.pop_first().expect("there are some");
                self.resident.remove(&out);
                self.stored.insert(out);
                self.thrashing.left(page(out));
            }
        }

        fn swap_out(&mut self) {
            self.resident.clear();
            for vpn in std::mem::take(&mut self.order).into_values() {
                self.stored.insert(vpn);
                self.thrashing.left(PageId::new(SpaceId(1), Vpn(vpn)));
            }
        }

        fn second(&mut self) -> Option<Verdict> {
            let apps = [(APP, self.waited)].into_iter();
            self.thrashing.second(Duration::from_secs(1), apps);
            self.thrashing.of(APP, self.stored.len() as u64)
        }
    }

    #[test]
    fn a_sweep_that_does_not_fit_thrashes_and_what_is_missing_is_said() {
        for (pages, room) in [(6000, 4000), (6000, 5500), (6000, 1500)] {
            let mut memory = Memory::new(room);
            let mut said = Vec::new();
            for second in 0..12 {
                (0..pages).for_each(|vpn| memory.touch(vpn));
                said.push(memory.second());
                assert!(second > 3 || said[second].is_none(), "too early: {said:?}");
            }
            let verdict = said[11].unwrap_or_else(|| panic!("{pages} in {room}: {said:?}"));
            let missing = pages - room as u64;
            assert!(verdict.missing_pages.abs_diff(missing) <= 2, "{missing}: {verdict:?}");
            assert!((0.1..0.2).contains(&verdict.lost), "{verdict:?}");
            // With so many more it is over at once, and not said any more after a while.
            memory.room += verdict.missing_pages as usize + 1;
            (0..pages).for_each(|vpn| memory.touch(vpn));
            let faults = memory.faults;
            for _ in 0..6 {
                (0..pages).for_each(|vpn| memory.touch(vpn));
                memory.second();
            }
            assert_eq!(memory.faults, faults);
            assert_eq!(memory.thrashing.of(APP, memory.stored.len() as u64), None);
        }
    }

    #[test]
    fn no_more_is_missing_than_is_stored() {
        let mut memory = Memory::new(4000);
        let mut said = None;
        for _ in 0..12 {
            for vpn in 0..6000 {
                memory.touch(vpn);
                // One that nobody touches is brought along, and leaves again.
                let along = PageId::new(SpaceId(1), Vpn(9000));
                memory.thrashing.left(along);
            }
            said = memory.second();
        }
        let missing = said.expect("it thrashes").missing_pages;
        assert!((1900..=2000).contains(&missing), "{missing}");
    }

    #[test]
    fn what_fits_does_not_thrash() {
        let mut memory = Memory::new(6000);
        for _ in 0..12 {
            (0..6000).for_each(|vpn| memory.touch(vpn));
            assert_eq!(memory.second(), None);
        }
        assert_eq!(memory.faults, 0);
    }

    #[test]
    fn one_pass_over_everything_does_not() {
        let mut memory = Memory::new(4000);
        (0..40_000).for_each(|vpn| memory.touch(vpn));
        memory.second();
        // All of it is stored or leaves again, and comes back once, for ten seconds.
        for second in 0..10 {
            (second * 4000..(second + 1) * 4000).for_each(|vpn| memory.touch(vpn));
            assert_eq!(memory.second(), None);
        }
        assert!(memory.faults > 30_000, "{}", memory.faults);
    }

    #[test]
    fn relaunches_do_not() {
        // Where there is room, however often and however long each takes.
        let mut memory = Memory::new(8000);
        (0..8000).for_each(|vpn| memory.touch(vpn));
        for _ in 0..4 {
            memory.swap_out();
            for second in 0..5 {
                (second * 1600..(second + 1) * 1600).for_each(|vpn| memory.touch(vpn));
                assert_eq!(memory.second(), None);
            }
        }
        assert_eq!(memory.faults, 4 * 8000);
        // And where the next app's pages drive this one's out: a second of faults in four.
        let mut memory = Memory::new(8000);
        for round in 0..10 {
            let first = round % 2 * 8000;
            for second in 0..4 {
                (first..first + 8000).for_each(|vpn| memory.touch(vpn));
                assert_eq!(memory.second(), None, "round {round}, second {second}");
            }
        }
        assert!(memory.faults >= 8 * 8000);
    }

    #[test]
    fn an_app_that_loses_little_time_does_not() {
        let mut memory = Memory::new(4000);
        (0..6000).for_each(|vpn| memory.touch(vpn));
        // 1500 faults a second: 3 % of it.
        for step in 0..24 {
            (0..1500).for_each(|vpn| memory.touch((step * 1500 + vpn) % 6000));
            assert_eq!(memory.second(), None);
        }
        assert!(memory.faults > 24_000);
    }

    #[test]
    fn little_is_remembered() {
        let mut memory = Memory::new(4000);
        for _ in 0..3 {
            (0..6000).for_each(|vpn| memory.touch(vpn));
            memory.second();
        }
        let sampled = memory.thrashing.pages.len() as u64;
        assert!((6000 / SAMPLE / 2..6000 / SAMPLE * 2).contains(&sampled), "{sampled}");
        for _ in 0..2 * AGAIN {
            memory.second();
        }
        assert!(memory.thrashing.pages.is_empty());
        (0..6000).for_each(|vpn| memory.touch(vpn));
        memory.thrashing.end(SpaceId(1));
        assert!(memory.thrashing.pages.is_empty());
        memory.thrashing.second(Duration::from_secs(1), std::iter::empty());
        assert!(memory.thrashing.apps.is_empty(), "an app that is gone is forgotten");
    }

    #[test]
    fn the_budget_that_ends_it_counts_what_is_stored_of_the_missing_pages() {
        const MIB: u64 = 1 << 20;
        let enough = |ratio, kept_free| enough_bytes(64 * MIB, 32 * MIB, ratio, kept_free);
        assert_eq!(enough(0.0, 0.0), 100 * MIB);
        assert_eq!(enough(2.0, 0.0), 82 * MIB);
        assert_eq!(enough(2.0, 0.1), 84 * MIB);
        assert_eq!(enough(1.0, 0.0), 73 * MIB, "what does not compress wants some more at least");
    }
}

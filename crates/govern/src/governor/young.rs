//! Keeping pages young: while the kernel takes pages by itself, those that programs in the background are to keep
//! (their share, what they used lately first) are touched from outside, so that the kernel does not choose them.
//!
//! The kernel knows that a page was used lately, and not that it will be: what a program uses at each of its returns
//! looks old in between. Only pages that are there are touched, twice each, and only as many as take [`SHARE`] of a CPU.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use clew_core::{AppId, AppState, Hotness, PageFacts, PageId};
use clew_live::programs::pagemap::PageIs;

use crate::governor::Governor;
use crate::program::Program;

/// How often it is looked whether the kernel reclaims, and pages are touched while it does.
const PERIOD: Duration = Duration::from_millis(100);
/// How long the kernel counts as reclaiming after it was seen to.
const RECLAIMS_FOR: Duration = Duration::from_secs(3);
/// Pages that it takes by itself within a period before it counts: a few always leave.
const RECLAIMS_PAGES: u64 = 64;
/// One part of a CPU in so many, and how long what was not used of it is good for: when the kernel begins, it begins with
/// what was used longest ago.
const SHARE: u32 = 50;
const SAVED: Duration = Duration::from_secs(1);
/// Pages touched between two looks at the clock.
const AT_ONCE: usize = 32;

/// What is known of the kernel's reclaim, and where touching is to go on.
#[derive(Default)]
pub struct Young {
    /// Pages swapped out by the machine, and by us of them, at the last look.
    last: Option<(u64, u64)>,
    looked: Option<Instant>,
    reclaims: Option<Instant>,
    /// Time that touching may take now.
    credit: Duration,
    /// What is still to be touched in this round, the next one last.
    round: Vec<PageId>,
    /// Pages touched so far, and the time that took.
    pub touched: u64,
    pub spent: Duration,
}

impl Young {
    /// Whether the kernel reclaims: `swapped` of all pages that this machine swapped out since it started, `ours` of
    /// those that it swapped out because it was told to.
    fn reclaims(&mut self, swapped: u64, ours: u64, now: Instant) -> bool {
        let (before, ours_before) = self.last.replace((swapped, ours)).unwrap_or((swapped, ours));
        let by_itself = (swapped - before.min(swapped)).saturating_sub(ours - ours_before);
        if by_itself >= RECLAIMS_PAGES {
            self.reclaims = Some(now);
        }
        self.reclaims.is_some_and(|when| now.duration_since(when) < RECLAIMS_FOR)
    }
}

impl Governor {
    /// Touches what is to stay, if it is time and the kernel reclaims.
    pub(super) fn keep_young(&mut self) {
        let now = Instant::now();
        let since = self.young.looked.map_or(SAVED, |when| now.duration_since(when));
        if since < PERIOD {
            return;
        }
        self.young.looked = Some(now);
        self.young.credit = (self.young.credit + since / SHARE).min(SAVED / SHARE);
        let ours = self.counts.paged_out + self.counts.expired;
        if !self.young.reclaims(pages_swapped_out(), ours, now) {
            self.young.round.clear();
            return;
        }
        if self.young.round.is_empty() {
            self.young.round = self.kept_in_background();
        }
        while now.elapsed() < self.young.credit && !self.young.round.is_empty() {
            let left = self.young.round.len().saturating_sub(AT_ONCE);
            let mut at_once = self.young.round.split_off(left);
            at_once.sort_unstable();
            self.young.touched += self.touch_twice(&at_once);
        }
        let spent = now.elapsed();
        self.young.credit = self.young.credit.saturating_sub(spent);
        self.young.spent += spent;
    }

    /// What programs in the background are to keep, as far as it is in memory, the most important last.
    fn kept_in_background(&self) -> Vec<PageId> {
        let resident = |program: &Program| self.pages.counts(program.space).resident;
        let all: u64 = self.programs.values().map(resident).sum();
        let behind: Vec<AppId> = self
            .apps
            .iter()
            .filter(|(_, app)| app.state == AppState::Background)
            .map(|(id, _)| *id)
            .collect();
        let of_app = |app: AppId| self.programs.values().filter(move |p| p.app == app);
        let has: Vec<u64> = behind.iter().map(|app| of_app(*app).map(resident).sum()).collect();
        let mut kept: Vec<(Hotness, PageId)> = Vec::new();
        for (app, may) in behind.iter().zip(shares(&has, all * u64::from(self.kept_pct) / 100)) {
            let mut pages: Vec<(Hotness, PageId)> = Vec::new();
            for program in of_app(*app) {
                self.pages.for_each(program.space, &mut |page, tier| {
                    if tier.is_none() {
                        pages.push((self.driver.class(page).unwrap_or(Hotness::Cold), page));
                    }
                });
            }
            pages.sort_unstable_by_key(|(class, page)| (coldness(*class), *page));
            pages.truncate(may as usize);
            kept.append(&mut pages);
        }
        kept.sort_unstable_by_key(|(class, page)| (Reverse(coldness(*class)), *page));
        kept.into_iter().map(|(_, page)| page).collect()
    }

    /// The first touch marks a page as used, the second makes it active; how many were touched. Those that the kernel
    /// has taken meanwhile are left out.
    fn touch_twice(&self, pages: &[PageId]) -> u64 {
        let mut touched = 0;
        for of_space in pages.chunk_by(|a, b| a.space() == b.space()) {
            let Some(program) = self.programs.get(&of_space[0].space()) else { continue };
            let there = of_space.iter().zip(program.states(of_space));
            for (page, _) in there.filter(|(_, is)| *is == PageIs::Present) {
                let twice =
                    program.touch(*page, self.page_bytes) && program.touch(*page, self.page_bytes);
                touched += u64::from(twice);
            }
        }
        touched
    }
}

fn coldness(class: Hotness) -> u8 {
    match class {
        Hotness::Hot => 0,
        Hotness::Warm => 1,
        Hotness::Cold => 2,
    }
}

/// What each may keep of `all`, who have so much: the largest gives first.
fn shares(has: &[u64], all: u64) -> Vec<u64> {
    let mut by_size: Vec<usize> = (0..has.len()).collect();
    by_size.sort_unstable_by_key(|place| has[*place]);
    let (mut left, mut shares) = (all, vec![0; has.len()]);
    for (at, place) in by_size.iter().enumerate() {
        shares[*place] = has[*place].min(left / (has.len() - at) as u64);
        left -= shares[*place];
    }
    shares
}

/// Pages that this machine has swapped out since it started.
fn pages_swapped_out() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("pswpout "));
    line.and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reclaims_when_more_leaves_than_was_told_to() {
        let (mut young, now) = (Young::default(), Instant::now());
        assert!(!young.reclaims(10_000, 500, now), "what was before is not known");
        assert!(!young.reclaims(10_400, 900, now), "all of it was told to leave");
        assert!(!young.reclaims(10_463, 900, now));
        let then = now + Duration::from_secs(1);
        assert!(young.reclaims(10_800, 1100, then));
        assert!(young.reclaims(10_800, 1100, then + Duration::from_secs(2)), "for a while");
        assert!(!young.reclaims(10_800, 1100, then + Duration::from_secs(4)));
        // What was clean left without being written.
        assert!(!young.reclaims(10_810, 9000, then + Duration::from_secs(5)));
    }

    #[test]
    fn the_largest_gives_first() {
        assert_eq!(shares(&[10, 100, 30], 200), [10, 100, 30]);
        assert_eq!(shares(&[10, 100, 30], 80), [10, 40, 30]);
        assert_eq!(shares(&[10, 100, 30], 50), [10, 20, 20]);
        assert_eq!(shares(&[10, 100, 30], 0), [0; 3]);
        assert!(shares(&[], 9).is_empty());
    }
}

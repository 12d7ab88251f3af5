//! Keeping recurring pages young: while the kernel takes pages by itself, those that the last relaunches of a program in
//! the background used again and again are touched from outside, so that the kernel does not choose them.
//!
//! The kernel knows that a page was used lately, and not that it will be: what a program uses at each of its returns
//! looks old in between. Only pages that are there are touched, twice each, and only as many as take [`SHARE`] of a CPU.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use clew_core::{AppState, PageId};

use crate::governor::Governor;
use crate::pages::Where;

/// How often pages are touched while the kernel reclaims.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the kernel counts as reclaiming after it was seen to.
const RECLAIMS_FOR: Duration = Duration::from_secs(3);
/// Pages that it takes by itself within a period before it counts: a few always leave.
const RECLAIMS_PAGES: u64 = 64;
/// One part of a CPU in so many.
const SHARE: u32 = 50;
/// Relaunches of the last ones, of which as many as are kept are looked at, that make a page recurring.
const RECURS: u32 = 2;
/// Pages touched between two looks at the clock.
const AT_ONCE: usize = 32;

/// What is known of the kernel's reclaim, and where touching is to go on.
#[derive(Default)]
pub struct Young {
    /// Pages swapped out by the machine, and by us of them, at the last look.
    last: Option<(u64, u64)>,
    looked: Option<Instant>,
    reclaims: Option<Instant>,
    /// The last page touched: with too little time for all, it goes on behind it.
    last_page: Option<PageId>,
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

/// Pages that at least [`RECURS`] of the relaunches used, ascending.
fn recurring(launch_sets: &[Vec<PageId>]) -> Vec<PageId> {
    let mut uses: HashMap<PageId, u32> = HashMap::new();
    for page in launch_sets.iter().flatten() {
        *uses.entry(*page).or_default() += 1;
    }
    let mut found: Vec<PageId> =
        uses.into_iter().filter(|(_, uses)| *uses >= RECURS).map(|(page, _)| page).collect();
    found.sort_unstable();
    found
}

impl Governor {
    /// Touches what recurs, if it is time and the kernel reclaims.
    pub(super) fn keep_young(&mut self) {
        let now = Instant::now();
        if self.young.looked.is_some_and(|when| now.duration_since(when) < PERIOD) {
            return;
        }
        self.young.looked = Some(now);
        let ours = self.counts.paged_out + self.counts.expired;
        if !self.young.reclaims(pages_swapped_out(), ours, now) {
            return;
        }
        let pages = self.recurring_in_background();
        let behind = self.young.last_page.take();
        let from = pages.partition_point(|page| Some(*page) <= behind);
        let (first, rest) = (&pages[from..], &pages[..from]);
        let allowed = PERIOD / SHARE;
        for at_once in first.chunks(AT_ONCE).chain(rest.chunks(AT_ONCE)) {
            if now.elapsed() >= allowed {
                break;
            }
            for page in at_once {
                if self.touch_twice(*page) {
                    self.young.touched += 1;
                }
                self.young.last_page = Some(*page);
            }
        }
        self.young.spent += now.elapsed();
    }

    /// Of apps in the background, those that are in memory as far as is known.
    fn recurring_in_background(&self) -> Vec<PageId> {
        let facts = self.driver.facts();
        let is_behind = |app| facts.apps.get(app).is_some_and(|a| a.state == AppState::Background);
        let sets: BTreeMap<_, _> =
            facts.launch_sets.iter().filter(|(app, _)| is_behind(app)).collect();
        let mut pages: Vec<PageId> = sets.values().flat_map(|sets| recurring(sets)).collect();
        pages.retain(|page| self.pages.get(*page) == Where::Resident);
        pages.sort_unstable();
        pages
    }

    /// The first touch marks a page as used, the second makes it active. One that the kernel has taken meanwhile is
    /// left out.
    fn touch_twice(&self, page: PageId) -> bool {
        use clew_live::programs::mappings::PageIs;
        let Some(program) = self.programs.get(&page.space()) else { return false };
        program.states(&[page]) == [PageIs::Present]
            && program.touch(page, self.page_bytes)
            && program.touch(page, self.page_bytes)
    }
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
    use clew_core::{SpaceId, Vpn};

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
    fn what_recurs_was_used_twice() {
        let page = |vpn| PageId::new(SpaceId(1), Vpn(vpn));
        let sets = [vec![page(1), page(9)], vec![page(9), page(2)], vec![page(3), page(1)]];
        assert_eq!(recurring(&sets), [page(1), page(9)]);
        assert!(recurring(&sets[..1]).is_empty());
    }
}

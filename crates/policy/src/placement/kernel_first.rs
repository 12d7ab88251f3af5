//! To the kernel's zram what nobody can foresee the use of, to the pool what is brought back in time
//! and what there is no room for otherwise.
//!
//! A page of the pool takes less memory, but who touches one waits for a message to the daemon and
//! back; one in the kernel's zram comes back at the price of the kernel's own fault. What relaunches
//! are known to use is restored before it is touched, and is no worse off in the pool.
//!
//! What is saved by the one is paid for by the other: memory that lent pages take could hold pages
//! that are used again and again. So pages are lent as long as a *floor* of the apps' memory stays
//! resident: a fifth at first, more after relaunches for which hot pages had to leave. Below it,
//! victims go to the pool, and with each of them some of what was lent longest ago.

use std::collections::{HashSet, VecDeque};

use clew_core::{
    AppId, Cause, Event, Group, Hotness, Metric, Observe, PageId, Place, Placement, Tier, View,
    Whole,
};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// The floor at first and at least, and at most, in per cent of the apps' memory.
const FLOOR_PCT: u64 = 20;
const HIGHEST_FLOOR_PCT: u64 = 60;
/// Hot pages that may leave between two apps that go back without raising it.
const TOLERATED_PAGES: u64 = 64;
/// Pages that move to the pool with each victim below the floor: about as many as make room for one,
/// where a page takes 0.4 of one in the kernel's zram and 0.25 in the pool.
const MOVED_WITH_ONE: u64 = 6;

/// Notes of lent pages among which nobody looks for old ones.
const UNTIDY: usize = 1 << 14;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What the kernel's zram may take of the budget at most, in per cent.
    pub share_pct: Whole<1, 100, 100>,
}

impl Answer<dyn Placement> for Params {
    fn about(&self) -> About {
        let shown = "the kernel's zram where there is one, pool";
        let (tiers, kernel_share_pct) = (&[Tier::Pool], self.share_pct.get());
        About { tiers, kernel_share_pct, ..About::of("kernel-first", shown) }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(KernelFirst::default())
    }
}

/// The policy. See the module.
pub struct KernelFirst {
    floor_pct: u64,
    /// Hot pages that left since an app last went back.
    hot_pages: u64,
    /// Pages that may move to the pool.
    to_move: u64,
    /// Lent pages, the oldest first; some are back by now.
    lent: VecDeque<PageId>,
    /// Notes that the last tidying left.
    tidied: usize,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    lent: u64,
    moved: u64,
    hot: u64,
}

impl Default for KernelFirst {
    fn default() -> KernelFirst {
        KernelFirst {
            floor_pct: FLOOR_PCT,
            hot_pages: 0,
            to_move: 0,
            lent: VecDeque::new(),
            tidied: 0,
            counted: Counted::default(),
        }
    }
}

impl KernelFirst {
    fn is_above_floor(&self, view: &View<'_>) -> bool {
        let (mut resident, mut all) = (0, 0);
        for pages in view.facts.app_pages.values() {
            resident += pages.resident;
            all += pages.resident + pages.stored_total();
        }
        resident * 100 >= all * self.floor_pct
    }

    /// Notes of pages that came back, or were lent again since, go in passing, or here, when they may
    /// have become the most of it.
    fn tidy(&mut self, view: &View<'_>) {
        if self.lent.len() < UNTIDY.max(2 * self.tidied) {
            return;
        }
        let mut seen = HashSet::new();
        let is_latest =
            |page: &PageId| view.pages.tier(*page) == Some(Tier::Kernel) && seen.insert(*page);
        let latest_first: Vec<PageId> = self.lent.drain(..).rev().filter(is_latest).collect();
        self.lent = latest_first.into_iter().rev().collect();
        self.tidied = self.lent.len();
    }
}

impl Observe for KernelFirst {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier: Tier::Kernel, .. } => {
                self.lent.push_back(page);
                self.counted.lent += 1;
                self.tidy(view);
            }
            Event::Background { .. } => {
                self.floor_pct = match self.hot_pages > TOLERATED_PAGES {
                    true => (self.floor_pct + 1).min(HIGHEST_FLOOR_PCT),
                    false => (self.floor_pct - 1).max(FLOOR_PCT),
                };
                self.hot_pages = 0;
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let c = &self.counted;
        [
            (
                "kernel_first_floor_percent",
                self.floor_pct,
                "apps' memory that stays before any is lent",
            ),
            ("kernel_first_lent_pages", c.lent, "pages given to the kernel's zram"),
            ("kernel_first_moved_pages", c.moved, "pages moved from there to the pool"),
            ("kernel_first_hot_pages", c.hot, "hot pages that had to leave"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

fn has_room(view: &View<'_>, tier: Tier) -> bool {
    view.facts.tiers.get(&tier).is_some_and(|facts| facts.has_part_free(32))
}

impl Placement for KernelFirst {
    fn place(&mut self, group: &Group, _app: AppId, cause: Cause, view: &View<'_>) -> Place {
        let tier = match cause {
            Cause::Rejected => return Place::Stay,
            Cause::Evicted => Tier::Pool,
            Cause::SwapOut => {
                let pages = group.pages.len() as u64;
                let is_hot = group.hotness == Some(Hotness::Hot);
                if is_hot {
                    self.hot_pages += pages;
                    self.counted.hot += pages;
                }
                let is_above = self.is_above_floor(view);
                let pool_has_room = has_room(view, Tier::Pool);
                if !is_above && pool_has_room {
                    self.to_move += pages * MOVED_WITH_ONE;
                }
                let lends = !is_hot && is_above || !pool_has_room;
                if lends && has_room(view, Tier::Kernel) { Tier::Kernel } else { Tier::Pool }
            }
        };
        Place::Tier(tier)
    }

    fn pick_moves(&mut self, pages: usize, view: &View<'_>, out: &mut Vec<PageId>) {
        if self.to_move == 0 || self.is_above_floor(view) {
            self.to_move = 0;
            return;
        }
        let mut wanted = self.to_move.min(pages as u64);
        // Of a page that was lent twice there may be two notes.
        let mut seen = HashSet::new();
        while wanted > 0 {
            let Some(page) = self.lent.pop_front() else {
                self.to_move = 0;
                return;
            };
            if view.pages.tier(page) == Some(Tier::Kernel) && seen.insert(page) {
                out.push(page);
                self.counted.moved += 1;
                self.to_move -= 1;
                wanted -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clew_core::view::PageCounts;
    use clew_core::{CodecKind, Facts, PageFacts, SpaceId, TierFacts, Vpn};

    use super::*;

    /// Every page is where it was put: lent, but for those that are back.
    #[derive(Default)]
    struct Pages {
        back: Vec<PageId>,
    }

    impl PageFacts for Pages {
        fn tier(&self, page: PageId) -> Option<Tier> {
            (!self.back.contains(&page)).then_some(Tier::Kernel)
        }

        fn counts(&self, _space: SpaceId) -> PageCounts {
            PageCounts::default()
        }

        fn for_each(&self, _space: SpaceId, _visit: &mut dyn FnMut(PageId, Option<Tier>)) {}
    }

    /// Of 1000 pages so many are resident.
    fn facts(resident: u64) -> Facts {
        let pages = 1000 - resident;
        let (used_bytes, limit_bytes, limit_pages) = (pages * 1600, 10_000_000, 1 << 20);
        let kernel =
            TierFacts { used_bytes, limit_bytes, pages, limit_pages, ..TierFacts::default() };
        let mut counts = PageCounts { resident, ..PageCounts::default() };
        counts.stored[Tier::Kernel.index()] = pages;
        let pool = TierFacts { limit_bytes, limit_pages, ..TierFacts::default() };
        Facts {
            tiers: [(Tier::Kernel, kernel), (Tier::Pool, pool)].into(),
            app_pages: [(AppId(1), counts)].into(),
            ..Facts::default()
        }
    }

    fn page(n: u64) -> PageId {
        PageId::new(SpaceId(1), Vpn(n))
    }

    fn group(pages: u64, hotness: Option<Hotness>) -> Group {
        let pages = (0..pages).map(page).collect();
        let (codec, chunk_bytes) = (CodecKind::Lz4, 4096);
        Group { pages, hotness, codec, chunk_bytes, park_siblings: false }
    }

    fn tier_of(policy: &mut KernelFirst, group: &Group, cause: Cause, facts: &Facts) -> Tier {
        let view = View { facts, pages: &Pages::default(), classes: None };
        match policy.place(group, AppId(1), cause, &view) {
            Place::Tier(tier) => tier,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_foreseen_goes_to_the_pool_and_the_rest_while_a_fifth_stays() {
        let (mut policy, cold) = (KernelFirst::default(), group(1, Some(Hotness::Cold)));
        let to = |policy: &mut KernelFirst, group: &Group, facts: &Facts| {
            tier_of(policy, group, Cause::SwapOut, facts)
        };
        assert_eq!(to(&mut policy, &cold, &facts(200)), Tier::Kernel);
        assert_eq!(to(&mut policy, &cold, &facts(199)), Tier::Pool);
        assert_eq!(to(&mut policy, &group(1, None), &facts(900)), Tier::Kernel);
        assert_eq!(to(&mut policy, &group(1, Some(Hotness::Hot)), &facts(900)), Tier::Pool);
        assert_eq!(tier_of(&mut policy, &cold, Cause::Evicted, &facts(900)), Tier::Pool);
        let mut full = facts(900);
        full.tiers.get_mut(&Tier::Kernel).expect("a tier").limit_bytes = 160_000;
        assert_eq!(to(&mut policy, &cold, &full), Tier::Pool);
        let mut no_pool = facts(100);
        no_pool.tiers.get_mut(&Tier::Pool).expect("a tier").used_bytes = 10_000_000;
        assert_eq!(to(&mut policy, &cold, &no_pool), Tier::Kernel, "better than nowhere");
        assert_eq!(to(&mut policy, &group(1, Some(Hotness::Hot)), &no_pool), Tier::Kernel);
        assert_eq!(to(&mut policy, &cold, &Facts::default()), Tier::Pool, "there is no such tier");
    }

    #[test]
    fn below_the_floor_what_was_lent_longest_ago_moves_with_each_victim() {
        let (mut policy, below) = (KernelFirst::default(), facts(150));
        let pages = Pages { back: vec![page(1)] };
        let view = View { facts: &below, pages: &pages, classes: None };
        for n in 0..800 {
            let event = Event::Stored { page: page(n), tier: Tier::Kernel, bytes: 1600 };
            policy.on_event(&event, &view);
        }
        let moves = |policy: &mut KernelFirst, view: &View<'_>| {
            let mut out = Vec::new();
            policy.pick_moves(4, view, &mut out);
            out
        };
        assert!(moves(&mut policy, &view).is_empty(), "nothing had to leave");
        tier_of(&mut policy, &group(1, None), Cause::SwapOut, &below);
        // Six, four at a time; one of the oldest is back.
        assert_eq!(moves(&mut policy, &view), [0, 2, 3, 4].map(page));
        assert_eq!(moves(&mut policy, &view), [5, 6].map(page));
        assert!(moves(&mut policy, &view).is_empty());
        tier_of(&mut policy, &group(1, None), Cause::SwapOut, &below);
        let above = View { facts: &facts(300), ..view };
        assert!(moves(&mut policy, &above).is_empty(), "it has helped already");
        assert!(moves(&mut policy, &view).is_empty());
    }

    #[test]
    fn hot_pages_that_leave_raise_the_floor_and_calm_lowers_it() {
        let (mut policy, facts) = (KernelFirst::default(), facts(900));
        let view = View { facts: &facts, pages: &Pages::default(), classes: None };
        let background = Event::Background { app: AppId(1) };
        let mut after = |hot: u64| {
            tier_of(&mut policy, &group(hot, Some(Hotness::Hot)), Cause::SwapOut, &facts);
            policy.on_event(&background, &view);
            policy.floor_pct
        };
        assert_eq!(after(TOLERATED_PAGES), FLOOR_PCT);
        assert_eq!(after(TOLERATED_PAGES + 1), FLOOR_PCT + 1);
        assert_eq!(after(0), FLOOR_PCT);
        assert_eq!(after(0), FLOOR_PCT);
        for _ in 0..100 {
            after(TOLERATED_PAGES + 1);
        }
        assert_eq!(after(TOLERATED_PAGES + 1), HIGHEST_FLOOR_PCT);
    }
}

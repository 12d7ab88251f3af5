//! Oldest first: what leaves the pool is what entered it longest ago.
//!
//! Source: ElasticZRAM 2.1 and 2.2.1, the two-level swapping that it is compared with: "when ZRAM is almost
//! full, the victim pages are written back to the underlying storage device", the earliest swapped out first.
//! How many pages the wanted bytes are is reckoned from what a page takes in the pool on average. Pages of one
//! space that follow each other are one unit.
//!
//! A page that was answered is off the list until it is told where it is. One that stayed in the pool (nothing is
//! gained by moving it, or there was no room for it just then) is among the oldest again after ten seconds. Memory: [`page_lists`](crate::reclaim::page_lists), 9.5 bytes a page of the pool.

use clew_core::{Event, Eviction, Metric, Ns, Observe, PageId, PageRun, Tier, Unit, View};

use crate::plain;
use crate::reclaim::page_lists::{ListId, PageLists};
use crate::schemes::About;

/// Pages of the pool, the last one that entered it in front.
const IN_POOL: ListId = ListId(0);
/// Those that were answered and stayed.
const REFUSED: ListId = ListId(1);
/// So long they are not answered again, at most.
const REFUSED_FOR: Ns = Ns(10_000_000_000);

/// The policy. See the module.
#[derive(Default)]
pub struct OldestFirst {
    /// Pages that are under way count as gone.
    lists: PageLists,
    /// When those that were refused were offered again last.
    offered: Ns,
    evicted: u64,
}

plain!(OldestFirst as dyn Eviction, About::of("oldest-first", "what entered it longest ago"));

impl OldestFirst {
    fn forget(&mut self, page: PageId) {
        if let Some(slot) = self.lists.find(page) {
            self.lists.forget(slot);
        }
    }

    fn stored(&mut self, page: PageId, tier: Tier) {
        let slot = self.lists.find(page);
        let list =
            if slot.and_then(|slot| self.lists.stamp(slot)).is_some() { REFUSED } else { IN_POOL };
        self.forget(page);
        if tier == Tier::Pool {
            let slot = self.lists.slot(page);
            self.lists.push_front(list, slot);
        }
    }

    fn forget_run(&mut self, run: PageRun) {
        self.lists.forget_run(run, |_, _| {});
    }
}

impl Observe for OldestFirst {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier, .. } => self.stored(page, tier),
            Event::PageIn { page, .. } | Event::Stayed { page } => self.forget(page),
            Event::Freed { run } => self.forget_run(run),
            Event::Moved { from, to } => self.lists.move_run(from, to, |_, _| {}),
            Event::SpaceEnd { space } => self.lists.forget_space(space, |_, _| {}),
            Event::Exit { app } => {
                for space in view.facts.spaces_of(app) {
                    self.lists.forget_space(space, |_, _| {});
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("oldest_first_pages", self.evicted, "pages chosen to leave the pool"),
            (
                "oldest_first_tracking_bytes",
                self.lists.tracking_bytes(),
                "memory held for the order in which pages entered the pool",
            ),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Eviction for OldestFirst {
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        let Some(pool) = view.facts.tiers.get(&Tier::Pool) else { return };
        let now = view.facts.now;
        if now.0.saturating_sub(self.offered.0) >= REFUSED_FOR.0 {
            self.lists.append(REFUSED, IN_POOL);
            self.offered = now;
        }
        let average = pool.used_bytes.checked_div(pool.pages).unwrap_or(0).max(1);
        let mut wanted = bytes.div_ceil(average);
        let mut pages: Vec<PageId> = Vec::new();
        while wanted > 0
            && let Some(slot) = self.lists.tail(IN_POOL)
        {
            let page = self.lists.page(slot);
            if view.pages.tier(page) == Some(Tier::Pool) {
                self.lists.set_gone(slot, 0);
                pages.push(page);
                wanted -= 1;
            } else {
                self.lists.forget(slot);
            }
        }
        self.evicted += pages.len() as u64;
        let units = pages.chunk_by(|a, b| a.space() == b.space());
        out.extend(units.map(|pages| Unit::Pages(pages.to_vec())));
    }
}

//! Cold first: what leaves the pool for flash are pages that are cold now.
//!
//! Source: Ariadne 4.2, data eviction ("following a policy that ensures cold data is swapped out
//! first"). The class asked for is the page's present one, as the keeper of the lists has it
//! ([`clew_core::Classes`]): cold pages of all apps, then warm, then hot ones, in the order in which
//! HotnessOrg takes them from DRAM. How many pages the wanted bytes are is reckoned from what a page
//! takes in the pool on average. Pages of one space that follow each other are one unit.
//!
//! What was answered is not answered again at once: `answered`.

use std::ops::ControlFlow;

use clew_core::{Event, Eviction, Hotness, Metric, Observe, Out, PageId, Tier, Unit, View};

use super::answered::Answered;
use crate::plain;
use crate::reclaim::hotness_org::in_lru_order;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct ColdFirst {
    answered: Answered,
    /// By class, cold, warm, hot.
    evicted: [u64; 3],
}

plain!(ColdFirst as dyn Eviction, About::of("cold-first", "cold first"));

impl ColdFirst {
    /// Has evicted nothing yet.
    pub fn new() -> ColdFirst {
        ColdFirst::default()
    }
}

impl Observe for ColdFirst {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.answered.on_event(event, view);
    }

    fn metrics(&self) -> Vec<Metric> {
        let [cold, warm, hot] = self.evicted;
        [
            ("cold_first_cold_pages", cold, "cold pages chosen to leave the pool"),
            ("cold_first_warm_pages", warm, "warm pages chosen to leave the pool"),
            ("cold_first_hot_pages", hot, "hot pages chosen to leave the pool"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Eviction for ColdFirst {
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        let (Some(classes), Some(pool)) = (view.classes, view.facts.tiers.get(&Tier::Pool)) else {
            return;
        };
        self.answered.asked(view.facts.now);
        let average = pool.used_bytes.checked_div(pool.pages).unwrap_or(0).max(1);
        let mut wanted = bytes.div_ceil(average);
        let apps = in_lru_order(view.facts.apps.keys().copied(), view.facts);
        let mut pages: Vec<PageId> = Vec::new();
        for (rank, class) in [Hotness::Cold, Hotness::Warm, Hotness::Hot].into_iter().enumerate() {
            for app in &apps {
                classes.for_each_out(*app, class, Out::Pool, &mut |page| {
                    if wanted == 0 {
                        return ControlFlow::Break(());
                    }
                    if view.pages.tier(page) == Some(Tier::Pool) && self.answered.answer(page) {
                        self.evicted[rank] += 1;
                        wanted -= 1;
                        pages.push(page);
                    }
                    ControlFlow::Continue(())
                });
            }
        }
        let units = pages.chunk_by(|a, b| a.space() == b.space());
        out.extend(units.map(|pages| Unit::Pages(pages.to_vec())));
    }
}

//! By app: what leaves the pool is all that the least used app has there.
//!
//! Source: ElasticZRAM 3.3, algorithm 1, lines 13 to 17 (path 3): when the pool is full, "the usage frequency of
//! applications that has been cached in the ZRAM is compared again and the application with the smallest
//! frequency is swapped out", among equals the one with the largest footprint, as long as the device is in its
//! first period. The app in front comes last. What the pages take is reckoned from what a page takes in the pool
//! on average; apps are answered whole until that is enough.
//!
//! What was answered is not answered again at once: `answered`.

use clew_core::{AppId, ByteSize, Event, Eviction, Metric, Observe, PageId, Tier, Unit, View};
use serde::{Deserialize, Serialize};

use super::answered::Answered;
use crate::elastic_zram::{Period, Periods, U1, U2, least_used_first};
use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Nothing is evicted when so much of the device is used, per cent.
    pub u1_pct: U1,
    /// Nor when so much was written to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<ByteSize>,
}

impl Answer<dyn Eviction> for Params {
    fn about(&self) -> About {
        About::of("by-app", "all of the least used app")
    }

    fn build(&self) -> Box<dyn Eviction> {
        let (u1_pct, u2_pct) = (self.u1_pct.get(), U2::default().get().max(self.u1_pct.get()));
        let periods = Periods { u1_pct, u2_pct, life: self.life };
        Box::new(ByApp { periods, answered: Answered::default(), apps: 0, pages: 0 })
    }
}

/// The policy. See the module.
pub struct ByApp {
    periods: Periods,
    answered: Answered,
    apps: u64,
    pages: u64,
}

impl ByApp {
    /// What `app` has in the pool and was not answered yet.
    fn pages_of(&mut self, app: AppId, view: &View<'_>) -> Vec<PageId> {
        let mut pages = Vec::new();
        for space in view.facts.spaces_of(app) {
            view.pages.for_each(space, &mut |page, tier| {
                if tier == Some(Tier::Pool) && self.answered.answer(page) {
                    pages.push(page);
                }
            });
        }
        pages
    }
}

impl Observe for ByApp {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.answered.on_event(event, view);
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            (
                "by_app_evicted_apps",
                self.apps,
                "times that all of an app was chosen to leave the pool",
            ),
            ("by_app_evicted_pages", self.pages, "pages chosen to leave the pool"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Eviction for ByApp {
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        let Some(pool) = view.facts.tiers.get(&Tier::Pool) else { return };
        if self.periods.now(view.facts) != Period::Stable {
            return;
        }
        self.answered.asked(view.facts.now);
        let average = pool.used_bytes.checked_div(pool.pages).unwrap_or(0).max(1);
        let wanted = bytes.div_ceil(average);
        let in_pool = view.facts.app_pages.iter();
        let mut apps: Vec<AppId> = in_pool
            .filter(|(app, pages)| {
                pages.stored_in(Tier::Pool) > 0 && !view.facts.is_in_front(**app)
            })
            .map(|(app, _)| *app)
            .collect();
        least_used_first(&mut apps, view.facts);
        apps.extend(&view.facts.fronts);
        let mut found = 0;
        for app in apps {
            if found >= wanted {
                return;
            }
            let pages = self.pages_of(app, view);
            if !pages.is_empty() {
                found += pages.len() as u64;
                self.apps += 1;
                self.pages += pages.len() as u64;
                out.push(Unit::Pages(pages));
            }
        }
    }
}

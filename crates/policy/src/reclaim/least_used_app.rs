//! Least used app: who leaves DRAM next is all of the background app that was opened least often.
//!
//! Source: ElasticZRAM 3.3 and 3.5, algorithm 1, lines 3 to 11: "the original LRU-based memory swapping policy is
//! modified to be based on application-specific memory swapping". The victim is the app with the lowest usage
//! rate, among equals the one with the largest footprint; it leaves as a whole, page by page in the answer, so
//! that what is in nobody's hands is answered and nothing else. Where it goes, placement says.
//!
//! The paper says nothing of the app in front. When no other has anything left, its pages leave in the order of
//! the LRU lists ([`super::lru`]), which are kept for that.
//!
//! Memory: as [`super::lru`].

use clew_core::{
    AppId, Classes, Demand, Event, Hotness, Metric, Observe, PageId, Reclaim, Verdict, View,
};

use super::lru::Lru;
use crate::elastic_zram::least_used_first;
use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct LeastUsedApp {
    lru: Lru,
    apps: u64,
    pages: u64,
}

plain!(
    LeastUsedApp as dyn Reclaim,
    About::of("least-used-app", "all of the least used app, the largest of equals")
);

impl Observe for LeastUsedApp {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.lru.on_event(event, view);
    }

    fn metrics(&self) -> Vec<Metric> {
        let own = [
            ("least_used_app_apps", self.apps, "times that all of an app was handed out"),
            ("least_used_app_pages", self.pages, "pages handed out with their app"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        own.into_iter().chain(self.lru.metrics()).collect()
    }
}

impl Classes for LeastUsedApp {
    fn class(&self, _page: PageId) -> Option<Hotness> {
        None
    }
}

impl Reclaim for LeastUsedApp {
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        let apps = view.facts.apps.keys().copied();
        let mut apps: Vec<AppId> = apps.filter(|app| !view.facts.is_in_front(*app)).collect();
        least_used_first(&mut apps, view.facts);
        let before = out.len();
        for app in apps {
            if out.len() - before >= demand.pages {
                return;
            }
            let so_far = out.len();
            self.lru.pick_app(app, view, out);
            self.apps += u64::from(out.len() > so_far);
            self.pages += (out.len() - so_far) as u64;
        }
        let left = demand.pages.saturating_sub(out.len() - before);
        if left > 0 && (demand.urgent || out.len() == before) {
            self.lru.pick_victims(Demand { pages: left, ..demand }, view, out);
        }
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        self.lru.pick_app(app, view, out);
    }
}

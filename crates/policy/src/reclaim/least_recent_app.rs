//! Least recently used app: who leaves DRAM next is all of the background app that was in front longest ago.
//!
//! Source: MobileSwap III-C, app-aware swapping: "MobileSwap maintains an LRU to help determine which app to
//! swap", and "in the case of huge apps" no more than the peak size P_s of each is out at a time. An app is handed
//! out as a whole, up to that: the swapping of one app is one swapping cycle (III-B). The app in front stays where
//! it is, whatever is wanted: all of its pages were swapped back when it came there.
//!
//! Its pages are answered in the order of the LRU lists ([`super::lru`]), which are kept for that and know which
//! of them are in nobody's hands.
//!
//! Memory: as [`super::lru`].

use clew_core::{
    AppId, ByteSize, Classes, Demand, Event, Hotness, Metric, Observe, PageId, Reclaim, Verdict,
    View,
};
use serde::{Deserialize, Serialize};

use super::lru::Lru;
use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// How much of an app may be out of DRAM, before compression: P_s.
    #[serde(deserialize_with = "crate::schemes::size::<65536, _, _>")]
    pub peak: ByteSize,
}

impl Default for Params {
    /// 128 MiB (III-C, figure 9).
    fn default() -> Params {
        Params { peak: ByteSize(128 << 20) }
    }
}

impl Answer<dyn Reclaim> for Params {
    fn about(&self) -> About {
        let shown = format!("up to {} of the least recently used app", self.peak);
        About::of("least-recent-app", shown)
    }

    fn build(&self) -> Box<dyn Reclaim> {
        Box::new(LeastRecentApp::new(*self))
    }
}

/// The policy. See the module.
pub struct LeastRecentApp {
    lru: Lru,
    peak: ByteSize,
    apps: u64,
    pages: u64,
}

impl LeastRecentApp {
    /// Has handed out nothing yet.
    pub fn new(params: Params) -> LeastRecentApp {
        LeastRecentApp { lru: Lru::new(), peak: params.peak, apps: 0, pages: 0 }
    }

    /// Hands out what of `app` may still leave; how many pages.
    fn hand_out(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) -> usize {
        let stored = view.facts.app_pages.get(&app).map_or(0, |pages| pages.stored_total());
        let peak = self.peak.0 / u64::from(view.facts.page_bytes);
        let may_leave = peak.saturating_sub(stored) as usize;
        let before = out.len();
        self.lru.pick_some_of_app(app, may_leave, view, out);
        let handed_out = out.len() - before;
        self.apps += u64::from(handed_out > 0);
        self.pages += handed_out as u64;
        handed_out
    }
}

impl Observe for LeastRecentApp {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.lru.on_event(event, view);
    }

    fn metrics(&self) -> Vec<Metric> {
        let own = [
            ("least_recent_app_apps", self.apps, "times that an app was handed out"),
            ("least_recent_app_pages", self.pages, "pages handed out with their app"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        own.into_iter().chain(self.lru.metrics()).collect()
    }
}

impl Classes for LeastRecentApp {
    fn class(&self, _page: PageId) -> Option<Hotness> {
        None
    }
}

impl Reclaim for LeastRecentApp {
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        let background = |app: &AppId| !view.facts.is_in_front(*app);
        let mut apps: Vec<AppId> = view.facts.apps.keys().copied().filter(background).collect();
        apps.sort_by_key(|app| (view.facts.apps[app].last_foreground, *app));
        let mut handed_out = 0;
        for app in apps {
            if handed_out >= demand.pages {
                return;
            }
            handed_out += self.hand_out(app, view, out);
        }
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        self.hand_out(app, view, out);
    }
}

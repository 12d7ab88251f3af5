//! Adaptive paths and an elastic share: which part of an app goes to the pool, and which to flash.
//!
//! Source: ElasticZRAM 3.3 (process path selection, algorithm 1) and 3.4 (elastic ZRAM resizing).
//!
//! *Paths.* What leaves DRAM takes path 2, split between pool and flash; in the last period of the device all of
//! it goes to the pool. What eviction takes out of a full pool takes path 3, to flash, in the first period only. An
//! app that nobody takes out takes path 1.
//!
//! *Share.* Each app has a share of its pages that may be in the pool. It is moved after each relaunch: up by
//! delta when the response was slower than the mean of the last N, this one among them, down when it was faster;
//! never below nothing or above all. N is how often the app was opened, as far as responses are kept; with one
//! there is nothing to compare. Launch pages come first: as long as some of them are resident, their part of the
//! share is kept for them.
//!
//! *Counting.* The plan for an app begins when its first group is placed after something happened: then its pages
//! are counted, in the pool and everywhere, and its launch pages that are still resident. Until something happens
//! again, what is placed is counted along.

use std::collections::{BTreeMap, HashSet};

use clew_core::{
    AppId, ByteSize, Cause, Event, Group, Metric, Observe, PageId, Place, Placement, Tier, View,
    Whole,
};
use serde::{Deserialize, Serialize};

use super::flash::to_flash;
use super::launch_pages::LaunchPages;
use crate::elastic_zram::{Period, Periods, U1, U2};
use crate::schemes::{About, Answer};

/// The pool has room as long as more than one part in so many is free.
const NO_ROOM: u64 = 32;
/// Shares kept; apps that ended keep theirs for their next launch.
const SHARES: usize = 4096;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// From here on the device is slower: U1, per cent of it that are used.
    pub u1_pct: U1,
    /// From here on it is of no use: U2, per cent.
    pub u2_pct: U2,
    /// When so much was written to the device it is of no use either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<ByteSize>,
    /// The share of an app's pages that may be in the pool, before anything is known: per cent.
    pub share_pct: Whole<0, 100, 40>,
    /// How much it moves at once: delta, per cent.
    pub delta_pct: Whole<0, 100, 20>,
    /// Responses that are compared, at most; the engine keeps 32.
    pub responses: Whole<1, 32, 32>,
    /// What goes to flash is compressed there.
    pub compressed: bool,
    /// How often the device is looked at, seconds.
    pub sample_s: Whole<1, 31_536_000, 86_400>,
}

impl Answer<dyn Placement> for Params {
    fn about(&self) -> About {
        let (u1, u2) = (self.u1_pct.get(), self.u2_pct.get());
        let shown = format!(
            "pool and flash by an elastic share, below {u1} % of the device path 3, from {u2} % on the pool only"
        );
        About {
            tiers: &[Tier::Pool],
            may_use: &[Tier::Flash],
            device_sample_s: Some(self.sample_s.get()),
            ..About::of("adaptive-path", shown)
        }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(AdaptivePath::new(*self))
    }

    fn validate(&self) -> Result<(), String> {
        let why =
            "u1_pct and u2_pct contradict each other: the first period ends before the second";
        (self.u1_pct.get() <= self.u2_pct.get()).then_some(()).ok_or_else(|| why.to_string())
    }
}

/// The share of an app after a response: 3.4's formula, in per cent. `responses` are its last ones, the newest
/// last.
fn moved_share(share_pct: u32, delta_pct: u32, responses: &[u64]) -> u32 {
    let Some(latest) = responses.last() else { return share_pct };
    let sum: u128 = responses.iter().map(|response| u128::from(*response)).sum();
    match (u128::from(*latest) * responses.len() as u128).cmp(&sum) {
        std::cmp::Ordering::Less => share_pct.saturating_sub(delta_pct),
        std::cmp::Ordering::Equal => share_pct,
        std::cmp::Ordering::Greater => (share_pct + delta_pct).min(100),
    }
}

/// What is known of an app while its pages are placed.
struct Plan {
    launch: HashSet<PageId>,
    /// Launch pages that are resident and not placed yet.
    waiting: u64,
    in_pool: u64,
    /// How many may be there.
    quota: u64,
    /// The pool has room, where it began.
    has_room: bool,
}

/// The policy. See the module.
pub struct AdaptivePath {
    params: Params,
    periods: Periods,
    shares: BTreeMap<AppId, u32>,
    /// Launched, and not answering yet: nothing of it was swapped.
    cold: Option<AppId>,
    launch_pages: LaunchPages,
    /// Of apps whose pages were placed since something happened.
    plans: BTreeMap<AppId, Plan>,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    path2_pool: u64,
    path2_flash: u64,
    path3: u64,
    pool_only: u64,
    grown: u64,
    shrunk: u64,
}

impl AdaptivePath {
    /// Has placed nothing yet.
    pub fn new(params: Params) -> AdaptivePath {
        let (u1_pct, u2_pct) = (params.u1_pct.get(), params.u2_pct.get());
        AdaptivePath {
            params,
            periods: Periods { u1_pct, u2_pct, life: params.life },
            shares: BTreeMap::new(),
            cold: None,
            launch_pages: LaunchPages::default(),
            plans: BTreeMap::new(),
            counted: Counted::default(),
        }
    }

    /// The share of `app`, per cent.
    pub fn share_pct(&self, app: AppId) -> u32 {
        self.shares.get(&app).copied().unwrap_or(self.params.share_pct.get())
    }

    fn responded(&mut self, app: AppId, view: &View<'_>) {
        let Some(stats) = view.facts.apps.get(&app) else { return };
        let known = &stats.responses_ns;
        let compared = known.len().min(self.params.responses.get() as usize);
        let before = self.share_pct(app);
        let responses = &known[known.len() - compared..];
        let after = moved_share(before, self.params.delta_pct.get(), responses);
        self.counted.grown += u64::from(after > before);
        self.counted.shrunk += u64::from(after < before);
        if self.shares.len() >= SHARES && !self.shares.contains_key(&app) {
            self.shares.pop_first();
        }
        self.shares.insert(app, after);
    }

    fn plan(&mut self, app: AppId, view: &View<'_>) -> &mut Plan {
        let share = u64::from(self.share_pct(app));
        let launch_pages = &mut self.launch_pages;
        self.plans.entry(app).or_insert_with(|| {
            let launch = launch_pages.of(app, view).clone();
            let waiting = launch.iter().filter(|page| view.pages.tier(**page).is_none()).count();
            let pages = view.facts.app_pages.get(&app).copied().unwrap_or_default();
            let pool = view.facts.tiers.get(&Tier::Pool);
            Plan {
                waiting: waiting as u64,
                launch,
                in_pool: pages.stored_in(Tier::Pool),
                quota: (pages.resident + pages.stored_total()) * share / 100,
                has_room: pool.is_some_and(|pool| pool.has_part_free(NO_ROOM)),
            }
        })
    }

    /// Path 2: the group's part of its app's share. True for the pool.
    fn shares_pool(&mut self, group: &Group, app: AppId, view: &View<'_>) -> bool {
        let plan = self.plan(app, view);
        let pages = group.pages.len() as u64;
        let of_launch = group.pages.iter().filter(|page| plan.launch.contains(page)).count() as u64;
        plan.waiting = plan.waiting.saturating_sub(of_launch);
        let kept = if of_launch > 0 { 0 } else { plan.waiting };
        let fits = plan.in_pool + pages + kept <= plan.quota;
        if fits {
            plan.in_pool += pages;
        }
        fits
    }
}

impl Observe for AdaptivePath {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.launch_pages.on_event(event);
        self.plans.clear();
        match *event {
            Event::Launch { app } => self.cold = Some(app),
            Event::Relaunch { .. } => self.cold = None,
            Event::ResponseComplete { app, .. } if self.cold == Some(app) => self.cold = None,
            Event::ResponseComplete { app, .. } => self.responded(app, view),
            Event::Background { app } | Event::Exit { app } => {
                self.cold.take_if(|cold| *cold == app);
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let c = &self.counted;
        let sum: u64 = self.shares.values().map(|share| u64::from(*share)).sum();
        let mean = sum.checked_div(self.shares.len() as u64);
        let mean = mean.unwrap_or(self.params.share_pct.get().into());
        [
            ("elastic_zram_path2_pool_pages", c.path2_pool, "pages of path 2 placed in the pool"),
            ("elastic_zram_path2_flash_pages", c.path2_flash, "pages of path 2 placed on flash"),
            ("elastic_zram_path3_pages", c.path3, "pages evicted to flash by path 3"),
            ("elastic_zram_pool_only_pages", c.pool_only, "pages placed while flash was of no use"),
            ("elastic_zram_share_percent", mean, "mean share of an app that may be in the pool"),
            ("elastic_zram_grown", c.grown, "times that a share grew after a slow response"),
            ("elastic_zram_shrunk", c.shrunk, "times that a share shrank after a fast response"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Placement for AdaptivePath {
    fn place(&mut self, group: &Group, app: AppId, cause: Cause, view: &View<'_>) -> Place {
        let pages = group.pages.len() as u64;
        let flash = to_flash(self.params.compressed);
        match (cause, self.periods.now(view.facts)) {
            (Cause::SwapOut, Period::Ended) => {
                self.counted.pool_only += pages;
                Place::Tier(Tier::Pool)
            }
            (Cause::SwapOut, period) => {
                let shared = self.shares_pool(group, app, view);
                // In the first period eviction makes room; in the second nobody does.
                let has_room = period == Period::Stable
                    || self.plans.get(&app).is_some_and(|plan| plan.has_room);
                if shared && has_room {
                    self.counted.path2_pool += pages;
                    return Place::Tier(Tier::Pool);
                }
                self.counted.path2_flash += pages;
                flash
            }
            (Cause::Evicted, Period::Stable) => {
                self.counted.path3 += pages;
                flash
            }
            (Cause::Rejected, Period::Stable | Period::Degraded) => flash,
            (Cause::Evicted | Cause::Rejected, _) => Place::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of 3.4, with R = 0.4 and delta = 0.2.
    #[test]
    fn the_share_moves_as_the_formula_says() {
        let moved = |responses: &[u64]| moved_share(40, 20, responses);
        assert_eq!(moved(&[100, 100, 130]), 60);
        assert_eq!(moved(&[130, 100, 70]), 20);
        assert_eq!(moved(&[100, 100, 100]), 40);
        assert_eq!(moved(&[100]), 40);
        assert_eq!(moved(&[]), 40, "N = 0");
        assert_eq!((moved_share(90, 20, &[1, 2]), moved_share(10, 20, &[2, 1])), (100, 0));
        let (most, least) = ([0, u64::MAX], [u64::MAX, 0]);
        assert_eq!((moved(&most), moved(&least)), (60, 20));
    }
}

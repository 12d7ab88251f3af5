//! HotnessOrg: a hot, a warm and a cold list of each app, and who leaves in which order.
//!
//! Source: Ariadne 4.2 and figure 8; 5 for EHL and AL. What the paper says, and what is done here:
//! - *Initialisation.* While an app is launched, pages used enter its hot list up to a size profiled
//!   during a relaunch of that app (`initial_hot` as long as there was none); later pages are cold.
//!   A cold page that is used moves to the warm list. Use of a warm or hot page moves it to the
//!   front of its list.
//! - *Update.* Pages used in a relaunch are hot. When the relaunch is over, what is left of the old
//!   hot list moves to the front of the warm list, in order.
//! - *Eviction.* Cold pages of all apps leave first, then warm ones, then hot ones, each from the
//!   tail of their list. With [`Lists::ExcludeHot`] (EHL) hot pages leave only when the demand is
//!   urgent and nothing else is left ("if absolutely necessary").
//! - *Across apps.* Apps in the order of their most recently used page, longest ago first, the app in
//!   front last within its class. With [`Front::AfterWarm`], which is ours, its cold and warm pages leave
//!   behind the warm ones of all others, a quarter of what it has of each behind what is hot, and where it is urgent all of its pages behind all of theirs. With [`Front::ToKernel`], ours too, all of it stays
//!   unless it is urgent, and so does what those behind have, up to a share of what is resident, what they used lately last of
//!   all: who returns finds it, and who is in front waits more ([`picks`]).
//! - A page that has left keeps its place among those of its class that have left, and ages like
//!   the others: what is answered to [`Classes`] is its present class, never one from swap-out.
//!
//! Where touches of resident pages cannot be seen ([`clew_core::Facts::all_touches_seen`] is false),
//! a page of the old hot list that stayed resident through a relaunch may have been used in it or
//! not. It stays hot ([`Unseen::Keep`]), behind those that are known to have been used, until a
//! sample says otherwise ([`Event::Unused`]) or it leaves: from then on it is known, for its use
//! would be a fault. That is ours: the paper moves *all* old hot data to the warm list, which is
//! [`Unseen::Warm`], and lets the hot set forget itself every other relaunch where uses are not seen. [`Reclaim::pick_samples`] answers hot pages of which nothing was heard for
//! longest. A relaunch in which no use at all was seen changes nothing.
//!
//! The paper makes a page hot that a relaunch uses ([`HotAfter::FirstUse`]). Of what a relaunch uses a
//! third is used that time only; with [`HotAfter::SecondUse`] it must have been used before, and is
//! warm until then: 2Q's idea (Johnson and Shasha, VLDB 1994).
//!
//! The paper knows no way from warm back to cold, and there is none here; nor one from cold to warm but
//! use: a page that was picked and could not leave stays in its class. Whoever carries orders out sees
//! to it that it is not picked again at once.
//!
//! Invariants: a page of an app that was told of is on exactly one of that app's lists, resident or
//! out (handed out or in the pool) or beyond the pool; counts are those of the lists. Every step takes constant time, the
//! end of a relaunch amortised: what it relabels was used since the last one. Memory: see
//! [`super::page_lists`], 9.5 bytes a page, resident or stored, where neighbours are known too, and
//! some hundred bytes an app.

mod members;
mod params;
mod picks;

use std::collections::BTreeMap;

use clew_core::{
    AccessKind, AppId, ClassCounts, Classes, Event, Hotness, Metric, Observe, PageId, PageRun,
    Starting, Tier, View,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::page_lists::PageLists;
use members::{App, BEYOND, COLD, HOT, IN, IS_OUT, OUT, SIDES, USED, WARM};
pub use params::{Front, HotAfter, Lists, Params, Unseen};
pub use picks::in_lru_order;

/// Profiles kept; apps that ended keep theirs for their next launch.
const PROFILES: usize = 4096;

/// The policy. See the module.
pub struct HotnessOrg {
    params: Params,
    lists: PageLists,
    /// By number; `None` where an app has ended.
    apps: Vec<Option<App>>,
    numbers: HashMap<AppId, u32, FixedState>,
    /// Number of the app that owns each space, [`NOBODY`] where no page of it is known.
    owners: Vec<u32>,
    /// Hot pages of each app at the end of its last relaunch.
    profiles: BTreeMap<AppId, u64>,
    starting: Option<Starting>,
    /// Pages that the present launch has put on the hot list.
    launched_hot: u64,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    /// By class.
    picked: [u64; 4],
    cold_to_warm: u64,
    hot_to_warm: u64,
    kept_unseen: u64,
    sampled: u64,
    sampled_unused: u64,
    relaunches: u64,
}

impl HotnessOrg {
    /// Empty lists.
    pub fn new(params: Params) -> HotnessOrg {
        HotnessOrg {
            params,
            lists: PageLists::new(),
            apps: Vec::new(),
            numbers: HashMap::with_hasher(FixedState::default()),
            owners: Vec::new(),
            profiles: BTreeMap::new(),
            starting: None,
            launched_hot: 0,
            counted: Counted::default(),
        }
    }

    /// Hot pages that the present launch may still add.
    fn launch_room(&self, app: AppId, page_bytes: u32) -> u64 {
        let initial = self.params.initial_hot.0 / u64::from(page_bytes);
        let size = self.profiles.get(&app).copied().unwrap_or(initial);
        size.saturating_sub(self.launched_hot)
    }

    /// The page was used. Where it is does not change by that.
    fn used(&mut self, page: PageId, view: &View<'_>) {
        let Some(number) = self.app_of(page, view) else { return };
        let id = self.app(number).id;
        let starting = self.starting.filter(|starting| starting.app == id);
        let slot = self.lists.find(page);
        let before = slot.map(|slot| self.place(slot));
        let class = before.map(|(_, class)| class);
        let becomes = match (starting, class) {
            (Some(Starting { relaunch: true, .. }), None | Some(COLD))
                if self.params.hot_after == HotAfter::SecondUse =>
            {
                WARM
            }
            (Some(Starting { relaunch: true, .. }), _) => USED,
            (_, Some(class @ (HOT | USED))) => class,
            (Some(_), _) if self.launch_room(id, view.facts.page_bytes) > 0 => {
                self.launched_hot += 1;
                HOT
            }
            (_, None) => COLD,
            (_, Some(_)) => WARM,
        };
        self.counted.cold_to_warm += u64::from(class == Some(COLD) && becomes == WARM);
        match (slot, before) {
            (Some(slot), Some((side, _))) => self.move_to(slot, side, becomes),
            _ => self.enter(page, number, IN, becomes),
        }
    }

    /// The page came back with another that was asked for. If it is used too, nobody will hear of it:
    /// where a page must be used twice to be hot, it counts as used, unless it is hot already.
    fn came_along(&mut self, page: PageId, view: &View<'_>) {
        let relaunched = self.starting.filter(|starting| starting.relaunch);
        let is_hot = |slot| matches!(self.place(slot).1, HOT | USED);
        if self.params.hot_after == HotAfter::SecondUse
            && relaunched.is_some_and(|starting| view.app_of(page) == Some(starting.app))
            && !self.lists.find(page).is_some_and(is_hot)
        {
            self.used(page, view);
        }
    }

    /// The page is at this side now; one that is not known is cold.
    fn is_at(&mut self, page: PageId, side: usize, view: &View<'_>) {
        match self.lists.find(page) {
            Some(slot) => {
                let (old_side, class) = self.place(slot);
                if old_side != side {
                    self.move_to(slot, side, class);
                }
            }
            None => {
                if let Some(number) = self.app_of(page, view) {
                    self.enter(page, number, side, COLD);
                }
            }
        }
    }

    /// Of the pages that are there, those that were out enter before those that were not known.
    fn resident(&mut self, run: PageRun, view: &View<'_>) {
        let Some(number) = self.app_of(run.first, view) else { return };
        for slot in self.lists.listed_with(run, IS_OUT) {
            let (_, class) = self.place(slot);
            self.move_to(slot, IN, class);
        }
        // Pages that are not known have no flag, which says cold and in.
        let list = self.app(number).lists[IN][COLD];
        let new = self.lists.push_run(list, run);
        self.app_mut(number).pages[IN][COLD] += new;
    }

    /// The page was used at some time; of pages that have left meanwhile that is known already, or too late.
    fn used_unseen(&mut self, page: PageId, view: &View<'_>) {
        let is_in = |slot| self.place(slot).0 == IN;
        if self.lists.find(page).is_some_and(is_in) {
            self.used(page, view);
        }
    }

    fn unused(&mut self, run: PageRun) {
        for page in run.pages() {
            let Some(slot) = self.lists.find(page) else { continue };
            let (side, class) = self.place(slot);
            if class == HOT {
                self.counted.sampled_unused += 1;
                self.move_to(slot, side, WARM);
            }
        }
    }

    /// Notices that a launch or relaunch began or is over.
    fn follow(&mut self, event: &Event, view: &View<'_>) {
        let began = matches!(event, Event::Launch { .. } | Event::Relaunch { .. });
        if began || self.starting != view.facts.starting {
            if let Some(over) = self.starting.filter(|starting| starting.relaunch) {
                self.end_relaunch(over.app, view.facts.all_touches_seen);
            }
            self.starting = view.facts.starting;
            self.launched_hot = 0;
        }
    }

    fn end_relaunch(&mut self, app: AppId, all_touches_seen: bool) {
        let Some(number) = self.numbers.get(&app).map(|number| *number as usize) else { return };
        if self.app(number).pages.iter().all(|pages| pages[USED] == 0) {
            return;
        }
        self.counted.relaunches += 1;
        let mut hot_pages = 0;
        for side in SIDES {
            let [_, _, hot, used] = self.app(number).lists[side];
            if side != IN || all_touches_seen || self.params.unseen == Unseen::Warm {
                while let Some(slot) = self.lists.tail(hot) {
                    self.move_to(slot, side, WARM);
                    self.counted.hot_to_warm += 1;
                }
            }
            let mut at = self.lists.tail(used);
            while let Some(slot) = at {
                self.label(slot, side, HOT);
                at = self.lists.newer(used, slot);
            }
            // What was not seen is less recent than all that was.
            self.lists.append(hot, used);
            let app = self.app_mut(number);
            app.lists[side].swap(HOT, USED);
            let kept = app.pages[side][HOT];
            app.pages[side][HOT] += std::mem::take(&mut app.pages[side][USED]);
            hot_pages += app.pages[side][HOT];
            self.counted.kept_unseen += kept;
        }
        self.profiles.insert(app, hot_pages);
        if self.profiles.len() > PROFILES {
            self.profiles.pop_first();
        }
    }
}

impl Observe for HotnessOrg {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.follow(event, view);
        match *event {
            Event::Resident { run } => self.resident(run, view),
            Event::Access { page, kind, .. } => {
                self.used(page, view);
                if kind == AccessKind::Fresh {
                    self.is_at(page, IN, view);
                }
            }
            Event::PageIn { page, demand, .. } => {
                self.is_at(page, IN, view);
                if !demand {
                    self.came_along(page, view);
                }
            }
            // It keeps its class, at the front of its list: only use makes a page warmer.
            Event::Stayed { page } => self.is_at(page, IN, view),
            Event::Stored { page, tier, .. } => {
                let side = if tier == Tier::Pool { OUT } else { BEYOND };
                self.is_at(page, side, view);
            }
            Event::Used { run } => run.pages().for_each(|page| self.used_unseen(page, view)),
            Event::Unused { run } => self.unused(run),
            Event::Freed { run } => self.forget_run(run),
            Event::Moved { from, to } => self.moved(from, to),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.forget_space(space);
            }
            Event::Exit { app } => self.forget_app(app),
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let counts = |class| {
            let ids = self.apps().map(|app| self.class_counts(app.id, class));
            ids.fold(ClassCounts::default(), |sum, of_app| ClassCounts {
                resident: sum.resident + of_app.resident,
                out: sum.out + of_app.out,
            })
        };
        let [hot, warm, cold] = [Hotness::Hot, Hotness::Warm, Hotness::Cold].map(counts);
        let c = &self.counted;
        [
            ("hotness_org_hot_resident_pages", hot.resident, "hot pages in DRAM"),
            ("hotness_org_warm_resident_pages", warm.resident, "warm pages in DRAM"),
            ("hotness_org_cold_resident_pages", cold.resident, "cold pages in DRAM"),
            ("hotness_org_hot_out_pages", hot.out, "hot pages out of DRAM"),
            ("hotness_org_warm_out_pages", warm.out, "warm pages out of DRAM"),
            ("hotness_org_cold_out_pages", cold.out, "cold pages out of DRAM"),
            (
                "hotness_org_hot_picked_pages",
                c.picked[HOT] + c.picked[USED],
                "hot victims handed out",
            ),
            ("hotness_org_warm_picked_pages", c.picked[WARM], "warm victims handed out"),
            ("hotness_org_cold_picked_pages", c.picked[COLD], "cold victims handed out"),
            ("hotness_org_warmed_pages", c.cold_to_warm, "cold pages that became warm by use"),
            ("hotness_org_cooled_pages", c.hot_to_warm, "hot pages that a relaunch did not use"),
            (
                "hotness_org_kept_unseen_pages",
                c.kept_unseen,
                "hot pages kept as nobody could see whether a relaunch used them",
            ),
            ("hotness_org_sampled_pages", c.sampled, "hot pages offered to be watched"),
            (
                "hotness_org_sampled_unused_pages",
                c.sampled_unused,
                "watched hot pages that a relaunch did not use",
            ),
            ("hotness_org_relaunches", c.relaunches, "relaunches that renewed a hot list"),
            (
                "hotness_org_tracking_bytes",
                self.lists.tracking_bytes(),
                "memory held for tracking pages",
            ),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

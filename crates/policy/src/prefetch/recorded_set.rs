//! Recorded set: at a relaunch, what the last relaunches of the app used and has left DRAM comes
//! back.
//!
//! Source: Ariadne 3, insight 1; ASAP and REAP record and restore working sets in this way. A page is
//! in the set of its app from the relaunch that was seen to use it, until `relaunches` of them are
//! known not to have used it. Known is: every touch is told, or the page was still stored at the
//! relaunch's end, or it was watched ([`Event::Unused`]). A page that was resident without being
//! seen keeps its place, and [`super::leave_out`] has it asked now and then.
//!
//! Restored is exactly what of the set is stored, in the order of its first use in the newest
//! relaunch, then of older ones, in batches that are in the order of their addresses: neighbours are
//! cheaper to put back together.
//!
//! Memory: about 30 bytes a page of a set.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use clew_core::{
    AppId, Event, Metric, Observe, PageId, PageRun, Prefetch, SpaceId, Starting, Trigger, View,
    Vpn, Whole,
};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

use super::hot_list::sort_batches;
use super::leave_out::{OneIn, is_left_out, one_in};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// A page is of the set until so many relaunches are known not to have used it.
    pub relaunches: Whole<1, 16, 1>,
    /// Pages restored in the order of their addresses before the next ones come.
    pub batch_pages: Whole<1, { 1 << 20 }, 512>,
    /// One run in so many is left out of each restore; none, if 0 or if every touch is told.
    #[serde(deserialize_with = "one_in")]
    pub leave_out_one_in: OneIn,
    /// An app that used less than so much of what a relaunch restored, per cent, has nothing restored at its next four, after
    /// the next such one at eight, and so on to 32. 0: whatever it used.
    pub pays_pct: Whole<0, 100, 0>,
}

/// Relaunches at which nothing is restored, after one that did not pay; at first, and at most.
const FIRST_RESTS: u32 = 4;
const MOST_RESTS: u32 = 32;

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let shown = "recorded set at relaunch";
        About { at_relaunch: true, ..About::of("recorded-set", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(RecordedSet::new(*self))
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// Place in the order of first uses.
    rank: u32,
    /// Relaunches that are known not to have used it, since one did.
    unused: u32,
}

#[derive(Default)]
struct Set {
    members: BTreeMap<PageId, Member>,
    relaunches: u32,
    trial: Trial,
}

/// Whether restoring pays.
#[derive(Default)]
struct Trial {
    /// Pages of which it is known since the last relaunch that they were used, and that they were not.
    used: u64,
    unused: u64,
    /// Relaunches at which nothing is to be restored any more, of so many.
    left: u32,
    rests: u32,
}

impl Trial {
    /// Whether nothing is to be restored at the relaunch that begins.
    fn rests(&mut self, pays_pct: u32) -> bool {
        let known = std::mem::take(&mut self.unused) + self.used;
        let used = std::mem::take(&mut self.used);
        if known > 0 {
            let pays = used * 100 >= known * u64::from(pays_pct);
            self.rests = if pays { 0 } else { (self.rests * 2).clamp(FIRST_RESTS, MOST_RESTS) };
            self.left = self.rests;
        }
        let rests = self.left > 0;
        self.left = self.left.saturating_sub(1);
        rests
    }
}

/// The policy. See the module.
pub struct RecordedSet {
    params: Params,
    sets: BTreeMap<AppId, Set>,
    starting: Option<Starting>,
    restored: u64,
    left_out: u64,
    dropped: u64,
}

impl RecordedSet {
    /// Has recorded nothing yet.
    pub fn new(params: Params) -> RecordedSet {
        RecordedSet {
            params,
            sets: BTreeMap::new(),
            starting: None,
            restored: 0,
            left_out: 0,
            dropped: 0,
        }
    }

    /// A relaunch of `app` is over; what it was seen to use is in the facts. One of which nothing
    /// was seen tells nothing.
    fn end_relaunch(&mut self, app: AppId, view: &View<'_>) {
        let newest = view.facts.launch_sets.get(&app).and_then(|sets| sets.last());
        let Some(seen) = newest.filter(|seen| !seen.is_empty()) else { return };
        let set = self.sets.entry(app).or_default();
        for (page, member) in &mut set.members {
            member.rank = member.rank.saturating_add(seen.len() as u32);
            let known = view.facts.all_touches_seen || view.pages.tier(*page).is_some();
            member.unused += u32::from(known);
        }
        for (rank, page) in seen.iter().enumerate() {
            set.members.insert(*page, Member { rank: rank as u32, unused: 0 });
        }
        let before = set.members.len();
        set.members.retain(|_, member| member.unused < self.params.relaunches.get());
        self.dropped += (before - set.members.len()) as u64;
    }

    fn unused(&mut self, run: PageRun, view: &View<'_>) {
        let Some(app) = view.app_of(run.first) else { return };
        let Some(set) = self.sets.get_mut(&app) else { return };
        // Such runs are short, and there are many of them: the set is not gone through for each.
        for page in run.pages() {
            let Entry::Occupied(mut member) = set.members.entry(page) else { continue };
            member.get_mut().unused += 1;
            if member.get().unused >= self.params.relaunches.get() {
                member.remove();
                self.dropped += 1;
            }
        }
    }

    fn trial(&mut self, page: PageId, view: &View<'_>) -> Option<&mut Trial> {
        let app = view.app_of(page)?;
        self.sets.get_mut(&app).map(|set| &mut set.trial)
    }

    fn forget(&mut self, first: PageId, last: PageId) {
        for set in self.sets.values_mut() {
            set.members.extract_if(first..=last, |_, _| true).for_each(drop);
        }
    }

    fn forget_space(&mut self, space: SpaceId) {
        let last = PageId::from_raw(PageId::new(space, Vpn(0)).raw() | ((1 << 45) - 1));
        self.forget(PageId::new(space, Vpn(0)), last);
    }

    /// What was at the new place is gone.
    fn moved(&mut self, from: PageRun, to: PageId) {
        let last = u64::from(from.count) - 1;
        for set in self.sets.values_mut() {
            let moved: Vec<(PageId, Member)> = set
                .members
                .extract_if(from.first..=from.first.plus(last), |_, _| true)
                .map(|(page, member)| (to.plus(page.raw() - from.first.raw()), member))
                .collect();
            set.members.extract_if(to..=to.plus(last), |_, _| true).for_each(drop);
            set.members.extend(moved);
        }
    }
}

impl Observe for RecordedSet {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        let began = matches!(event, Event::Launch { .. } | Event::Relaunch { .. });
        if began || self.starting != view.facts.starting {
            if let Some(over) = self.starting.filter(|starting| starting.relaunch) {
                self.end_relaunch(over.app, view);
            }
            self.starting = view.facts.starting;
        }
        match *event {
            Event::Unused { run } => self.unused(run, view),
            Event::PrefetchUsed { page } => {
                if let Some(trial) = self.trial(page, view) {
                    trial.used += 1;
                }
            }
            Event::PrefetchExpired { page } => {
                if let Some(trial) = self.trial(page, view) {
                    trial.unused += 1;
                }
            }
            Event::Freed { run } => {
                self.forget(run.first, run.first.plus(u64::from(run.count) - 1));
            }
            Event::Moved { from, to } => {
                self.moved(from, to);
            }
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.forget_space(space);
            }
            Event::Exit { app } => {
                self.sets.remove(&app);
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let pages: usize = self.sets.values().map(|set| set.members.len()).sum();
        [
            ("recorded_set_pages", pages as u64, "pages in the sets of all apps"),
            ("recorded_set_restored_pages", self.restored, "pages asked for at relaunches"),
            (
                "recorded_set_left_out_pages",
                self.left_out,
                "predicted pages left stored, to learn whether they are used",
            ),
            ("recorded_set_dropped_pages", self.dropped, "pages that relaunches no longer used"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for RecordedSet {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Relaunch(app) = trigger else { return };
        let Some(set) = self.sets.get_mut(&app) else { return };
        set.relaunches = set.relaunches.wrapping_add(1);
        if set.trial.rests(self.params.pays_pct.get()) {
            return;
        }
        let one_in =
            if view.facts.all_touches_seen { 0 } else { self.params.leave_out_one_in.get() };
        let mut stored: Vec<(u32, PageId)> = Vec::new();
        for (page, member) in &set.members {
            if view.pages.tier(*page).is_none() {
                continue;
            }
            if is_left_out(*page, set.relaunches, one_in) {
                self.left_out += 1;
            } else {
                stored.push((member.rank, *page));
            }
        }
        stored.sort_unstable();
        let mut pages: Vec<PageId> = stored.into_iter().map(|(_, page)| page).collect();
        sort_batches(&mut pages, self.params.batch_pages.get());
        self.restored += pages.len() as u64;
        out.append(&mut pages);
    }
}

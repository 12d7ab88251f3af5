//! The hot list: at a relaunch, what HotnessOrg calls hot and has left DRAM comes back.
//!
//! Source: Ariadne 3, insight 1 (what a relaunch uses is what the last one used), as a prefetcher:
//! the paper keeps the hot list in DRAM; under pressure it leaves too, and this brings it back. The
//! most recently used pages come first, those in the pool before those in slower tiers, in batches that are in the order of their addresses. Where
//! touches of resident pages cannot be seen, [`super::leave_out`] has some of them asked each time:
//! a hot page that a relaunch leaves stored is warm afterwards, and not restored again.
//!
//! Of real programs half of the hot list may be unused at a return, and each page too many costs its
//! decompression and another page's place. What is left out is a sample of it: where less than
//! `min_used_pct` of those were used of late, nothing is restored, only watched (ours).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use clew_core::{
    AccessKind, AppId, Event, Hotness, Metric, Observe, Out, PageId, Prefetch, Trigger, View, Whole,
};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

use super::leave_out::{OneIn, is_left_out, one_in};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages restored in the order of their addresses before the next ones come.
    pub batch_pages: Whole<1, { 1 << 20 }, 512>,
    /// In so many first relaunches of an app warm pages come too, behind the hot ones: as long as a
    /// page is hot only after its second use, nothing is hot before.
    pub warm_relaunches: Whole<0, 1000000, 0>,
    /// One run in so many is left out of each restore; none, if 0 or if every touch is told.
    #[serde(deserialize_with = "one_in")]
    pub leave_out_one_in: OneIn,
    /// Nothing is restored where of the pages left out a smaller part than this was used, per cent; unused
    /// where none are left out.
    pub min_used_pct: Whole<0, 100, 0>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let about = About::of("hot-list", "hot list at relaunch");
        About { needs_hot_list: true, at_relaunch: true, ..about }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(HotList::new(*self))
    }
}

/// The policy. See the module.
pub struct HotList {
    params: Params,
    apps: BTreeMap<AppId, App>,
    /// Who was relaunched last, and which of the pages left out then were not used so far.
    watched: Option<(AppId, BTreeSet<PageId>)>,
    restored: u64,
    left_out: u64,
    withheld: u64,
}

/// What is known of one app.
#[derive(Clone, Copy, Default)]
struct App {
    relaunches: u32,
    /// Pages that were left out and those of them that were used; the last relaunch counts most.
    left_out: u32,
    used: u32,
}

impl HotList {
    /// Has restored nothing yet.
    pub fn new(params: Params) -> HotList {
        let (apps, watched) = Default::default();
        HotList { params, apps, watched, restored: 0, left_out: 0, withheld: 0 }
    }

    /// Begins to watch what was left out for `app`; what was watched before is counted.
    fn watch(&mut self, app: AppId, pages: BTreeSet<PageId>) {
        if let Some((last, unused)) = self.watched.take()
            && let Some(known) = self.apps.get_mut(&last)
        {
            known.used -= unused.len() as u32;
        }
        if let Some(known) = self.apps.get_mut(&app)
            && !pages.is_empty()
        {
            let added = pages.len() as u32;
            (known.left_out, known.used) = (known.left_out / 2 + added, known.used / 2 + added);
            self.watched = Some((app, pages));
        }
    }
}

/// Pages that are watched at once, at most.
const WATCHED: usize = 4096;

/// Sorts each batch of `batch_pages` by address.
pub(super) fn sort_batches(pages: &mut [PageId], batch_pages: u32) {
    pages.chunks_mut(batch_pages.max(1) as usize).for_each(|batch| batch.sort_unstable());
}

impl Observe for HotList {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        match event {
            Event::Exit { app } => {
                self.apps.remove(app);
                self.watched.take_if(|(watched, _)| watched == app);
            }
            Event::Access { page, kind: AccessKind::Fault, .. } => {
                if let Some((_, unused)) = &mut self.watched {
                    unused.remove(page);
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("hot_list_restored_pages", self.restored, "pages asked for at relaunches"),
            (
                "hot_list_left_out_pages",
                self.left_out,
                "hot pages left stored, to learn whether they are used",
            ),
            (
                "hot_list_withheld_pages",
                self.withheld,
                "hot pages not restored, as too few of those left out were used",
            ),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for HotList {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let (Trigger::Relaunch(app), Some(classes)) = (trigger, view.classes) else { return };
        self.watch(app, BTreeSet::new());
        let known = self.apps.entry(app).or_default();
        known.relaunches = known.relaunches.wrapping_add(1);
        let (relaunch, known) = (known.relaunches, *known);
        let one_in =
            if view.facts.all_touches_seen { 0 } else { self.params.leave_out_one_in.get() };
        let warm = (relaunch <= self.params.warm_relaunches.get()).then_some(Hotness::Warm);
        let (mut picked, mut left_out) = (Vec::new(), Vec::new());
        for class in [Some(Hotness::Hot), warm].into_iter().flatten() {
            let mut of_class = Vec::new();
            for place in [Out::Beyond, Out::Pool] {
                classes.for_each_out(app, class, place, &mut |page| {
                    if view.pages.tier(page).is_some() {
                        if is_left_out(page, relaunch, one_in) {
                            left_out.push(page);
                        } else {
                            of_class.push(page);
                        }
                    }
                    ControlFlow::Continue(())
                });
            }
            picked.extend(of_class.into_iter().rev());
        }
        self.left_out += left_out.len() as u64;
        let min_used_pct = u64::from(self.params.min_used_pct.get());
        if one_in != 0 && min_used_pct > 0 {
            left_out.truncate(WATCHED);
            self.watch(app, left_out.into_iter().collect());
            let (asked, used) = (u64::from(known.left_out), u64::from(known.used));
            if asked == 0 || used * 100 < asked * min_used_pct {
                self.withheld += picked.len() as u64;
                return;
            }
        }
        sort_batches(&mut picked, self.params.batch_pages.get());
        self.restored += picked.len() as u64;
        out.append(&mut picked);
    }
}

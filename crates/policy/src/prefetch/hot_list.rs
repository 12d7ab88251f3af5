//! The hot list: at a relaunch, what HotnessOrg calls hot and has left DRAM comes back.
//!
//! Source: Ariadne 3, insight 1 (what a relaunch uses is what the last one used), as a prefetcher:
//! the paper keeps the hot list in DRAM; under pressure it leaves too, and this brings it back. The
//! most recently used pages come first, those in the pool before those in slower tiers, in batches that are in the order of their addresses. Where
//! touches of resident pages cannot be seen, [`super::leave_out`] has some of them asked each time:
//! a hot page that a relaunch leaves stored is warm afterwards, and not restored again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use clew_core::{
    AppId, Event, Hotness, Metric, Observe, Out, PageId, Prefetch, Trigger, View, Whole,
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
    /// Relaunches so far.
    relaunches: BTreeMap<AppId, u32>,
    restored: u64,
    left_out: u64,
}

impl HotList {
    /// Has restored nothing yet.
    pub fn new(params: Params) -> HotList {
        HotList { params, relaunches: BTreeMap::new(), restored: 0, left_out: 0 }
    }
}

/// Sorts each batch of `batch_pages` by address.
pub(super) fn sort_batches(pages: &mut [PageId], batch_pages: u32) {
    pages.chunks_mut(batch_pages.max(1) as usize).for_each(|batch| batch.sort_unstable());
}

impl Observe for HotList {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        if let Event::Exit { app } = event {
            self.relaunches.remove(app);
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
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for HotList {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let (Trigger::Relaunch(app), Some(classes)) = (trigger, view.classes) else { return };
        let relaunch = self.relaunches.entry(app).or_default();
        *relaunch = relaunch.wrapping_add(1);
        let one_in =
            if view.facts.all_touches_seen { 0 } else { self.params.leave_out_one_in.get() };
        let warm = (*relaunch <= self.params.warm_relaunches.get()).then_some(Hotness::Warm);
        let (mut picked, mut left_out) = (Vec::new(), 0);
        for class in [Some(Hotness::Hot), warm].into_iter().flatten() {
            let mut of_class = Vec::new();
            for place in [Out::Beyond, Out::Pool] {
                classes.for_each_out(app, class, place, &mut |page| {
                    if view.pages.tier(page).is_some() {
                        if is_left_out(page, *relaunch, one_in) {
                            left_out += 1;
                        } else {
                            of_class.push(page);
                        }
                    }
                    ControlFlow::Continue(())
                });
            }
            picked.extend(of_class.into_iter().rev());
        }
        sort_batches(&mut picked, self.params.batch_pages.get());
        self.restored += picked.len() as u64;
        self.left_out += left_out;
        out.append(&mut picked);
    }
}

//! Who leaves, what is watched, and what others are told of classes.

use std::collections::HashSet;
use std::ops::ControlFlow;

use clew_core::{
    AppId, ClassCounts, Classes, Demand, Facts, Hotness, Out, PageId, PageRun, Reclaim,
    SampleDemand, Unit, Verdict, Victim, View,
};

use super::members::{BEYOND, CLASSES, COLD, HOT, IN, OUT, USED, WARM};
use super::{Front, HotnessOrg, Lists};
use crate::reclaim::page_lists::Slot;

/// `apps` in the order in which they give pages: that of their most recently used page, longest
/// ago first, those in front last (Ariadne 4.2, across applications).
pub fn in_lru_order(apps: impl Iterator<Item = AppId>, facts: &Facts) -> Vec<AppId> {
    let mut apps: Vec<AppId> = apps.collect();
    apps.sort_unstable_by_key(|app| {
        let last_access = facts.apps.get(app).map(|stats| stats.last_access);
        (facts.is_in_front(*app), last_access, *app)
    });
    apps
}

fn hotness(class: usize) -> Hotness {
    match class {
        COLD => Hotness::Cold,
        WARM => Hotness::Warm,
        _ => Hotness::Hot,
    }
}

/// The lists that make up a class, least recently used pages first.
fn lists_of(class: Hotness) -> &'static [usize] {
    match class {
        Hotness::Cold => &[COLD],
        Hotness::Warm => &[WARM],
        Hotness::Hot => &[HOT, USED],
    }
}

impl HotnessOrg {
    /// The order of [`Front::ToKernel`]: what others have beyond their share; and, only where the demand is urgent, all
    /// of the app in front, then the rest. Of others, the app that has most gives first, so who needs little to return
    /// keeps it; of each, what is cold, then warm, then hot.
    fn pick_with_share(
        &mut self,
        demand: Demand,
        others: &[AppId],
        front: &[AppId],
        out: &mut Vec<Verdict>,
    ) {
        let may_take_hot = self.params.lists == Lists::All || demand.urgent;
        let classes: &[usize] = if may_take_hot { &CLASSES } else { &CLASSES[..2] };
        let resident: u64 = self.apps().flat_map(|app| app.pages[IN]).sum();
        let share = resident * u64::from(self.params.others_kept_pct.get()) / 100;
        let number = |app: &AppId| self.numbers[app] as usize;
        let others: Vec<usize> = others.iter().map(number).collect();
        let front: Vec<usize> = front.iter().map(number).collect();
        let mut wanted = demand.pages;
        self.take_of_largest(&others, classes, share, &mut wanted, out);
        if !demand.urgent {
            return;
        }
        for app in front {
            self.take_of(app, classes, &mut wanted, out);
        }
        self.take_of_largest(&others, classes, 0, &mut wanted, out);
    }

    /// Hands out up to `wanted` pages of an app, of one class after the other.
    fn take_of(
        &mut self,
        app: usize,
        classes: &[usize],
        wanted: &mut usize,
        out: &mut Vec<Verdict>,
    ) {
        for class in classes {
            let list = self.app(app).lists[IN][*class];
            while *wanted > 0
                && let Some(slot) = self.lists.tail(list)
            {
                self.take(slot, *class, out);
                *wanted -= 1;
            }
        }
    }

    /// Hands out up to `wanted` pages of these apps, of one class after the other.
    fn take_by_class(
        &mut self,
        classes: &[usize],
        apps: &[AppId],
        wanted: &mut usize,
        out: &mut Vec<Verdict>,
    ) {
        for class in classes {
            for app in apps {
                self.take_of(self.numbers[app] as usize, &[*class], wanted, out);
            }
        }
    }

    /// Hands out up to `wanted` pages of the app in front: cold ones while more than a quarter of what it has resident is cold,
    /// else warm ones while more than a quarter is. What comes along with a fault is of the class that it had, and would
    /// leave before it is used where hot pages have all the rest.
    fn take_beyond_a_quarter(
        &mut self,
        front: &[AppId],
        wanted: &mut usize,
        out: &mut Vec<Verdict>,
    ) {
        for app in front {
            let number = self.numbers[app] as usize;
            while *wanted > 0 {
                let pages = self.app(number).pages[IN];
                let all = pages.iter().sum::<u64>();
                let beyond = [COLD, WARM].into_iter().find(|class| pages[*class] * 4 > all);
                let Some(class) = beyond else { break };
                let mut one = 1;
                self.take_of(number, &[class], &mut one, out);
                *wanted -= 1;
            }
        }
    }

    /// Hands out up to `wanted` pages of these classes until the apps together have no more than `share`.
    fn take_of_largest(
        &mut self,
        apps: &[usize],
        classes: &[usize],
        share: u64,
        wanted: &mut usize,
        out: &mut Vec<Verdict>,
    ) {
        let all = |org: &HotnessOrg, app: usize| org.app(app).pages[IN].iter().sum::<u64>();
        let mut beyond = apps.iter().map(|app| all(self, *app)).sum::<u64>().saturating_sub(share);
        let may = |org: &HotnessOrg, app: usize| {
            classes.iter().any(|class| org.app(app).pages[IN][*class] > 0)
        };
        while *wanted > 0 && beyond > 0 {
            let able = apps.iter().copied().filter(|app| may(self, *app));
            let Some(largest) = able.max_by_key(|app| all(self, *app)) else { return };
            let mut one = 1;
            self.take_of(largest, classes, &mut one, out);
            *wanted -= 1;
            beyond -= 1;
        }
    }

    /// Hands out the page at `slot`.
    fn take(&mut self, slot: Slot, class: usize, out: &mut Vec<Verdict>) {
        let unit = Unit::Page(self.lists.page(slot));
        out.push(Verdict::Take(Victim { unit, hotness: Some(hotness(class)) }));
        self.move_to(slot, OUT, class);
        self.counted.picked[class] += 1;
    }
}

impl Classes for HotnessOrg {
    fn class(&self, page: PageId) -> Option<Hotness> {
        self.lists.find(page).map(|slot| hotness(self.place(slot).1))
    }

    fn class_counts(&self, app: AppId, class: Hotness) -> ClassCounts {
        let Some(number) = self.numbers.get(&app) else { return ClassCounts::default() };
        let app = self.app(*number as usize);
        let count =
            |side: usize| lists_of(class).iter().map(|list| app.pages[side][*list]).sum::<u64>();
        ClassCounts { resident: count(IN), out: count(OUT) + count(BEYOND) }
    }

    fn for_each_out(
        &self,
        app: AppId,
        class: Hotness,
        place: Out,
        visit: &mut dyn FnMut(PageId) -> ControlFlow<()>,
    ) {
        let Some(number) = self.numbers.get(&app) else { return };
        let app = self.app(*number as usize);
        for list in lists_of(class) {
            let list = app.lists[if place == Out::Pool { OUT } else { BEYOND }][*list];
            let mut at = self.lists.tail(list);
            while let Some(slot) = at {
                if visit(self.lists.page(slot)).is_break() {
                    return;
                }
                at = self.lists.newer(list, slot);
            }
        }
    }
}

impl Reclaim for HotnessOrg {
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        let order = in_lru_order(self.apps().map(|app| app.id), view.facts);
        let in_front = order.partition_point(|app| !view.facts.is_in_front(*app));
        let (others, front) = order.split_at(in_front);
        let mut wanted = demand.pages;
        let may_take_hot = self.params.lists == Lists::All || demand.urgent;
        let hot: &[usize] = if may_take_hot { &[HOT, USED] } else { &[] };
        match self.params.front {
            Front::ToKernel => self.pick_with_share(demand, others, front, out),
            Front::InClass => {
                self.take_by_class(&[COLD, WARM], &order, &mut wanted, out);
                self.take_by_class(hot, &order, &mut wanted, out);
            }
            Front::AfterWarm => {
                let first: &[usize] = if demand.urgent { &CLASSES } else { &[COLD, WARM] };
                self.take_by_class(first, others, &mut wanted, out);
                self.take_beyond_a_quarter(front, &mut wanted, out);
                self.take_by_class(hot, &order, &mut wanted, out);
                self.take_by_class(&[COLD, WARM], front, &mut wanted, out);
            }
        }
    }

    fn pick_app(&mut self, app: AppId, _view: &View<'_>, out: &mut Vec<Verdict>) {
        let Some(number) = self.numbers.get(&app) else { return };
        let lists = self.app(*number as usize).lists[IN];
        for class in CLASSES {
            while let Some(slot) = self.lists.tail(lists[class]) {
                self.take(slot, class, out);
            }
        }
    }

    fn pick_samples(&mut self, wanted: SampleDemand, _: &View<'_>, out: &mut Vec<PageRun>) {
        let SampleDemand { app, pages, run_pages } = wanted;
        let Some(number) = self.numbers.get(&app) else { return };
        let hot = self.app(*number as usize).lists[IN][HOT];
        let mut picked = HashSet::new();
        while picked.len() < pages {
            let Some(slot) = self.lists.tail(hot) else { break };
            let page = self.lists.page(slot);
            if picked.contains(&page) {
                break;
            }
            let room = u64::from(run_pages.max(1)).min((pages - picked.len()) as u64);
            let fits = |n: &u64| {
                let next = PageId::from_raw(page.raw().wrapping_add(*n));
                let same_space = next.space() == page.space() && !picked.contains(&next);
                let slot = self.lists.find(next).filter(|_| same_space);
                slot.is_some_and(|slot| self.place(slot) == (IN, HOT))
            };
            let more = (1..room).take_while(fits).count() as u32;
            let run = PageRun { first: page, count: 1 + more };
            for page in run.pages() {
                picked.insert(page);
                let slot = self.lists.find(page).expect("a page of a run is listed");
                self.move_to(slot, IN, HOT);
            }
            out.push(run);
        }
        self.counted.sampled += picked.len() as u64;
    }
}

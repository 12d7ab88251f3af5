//! HotnessOrg against a naive transcription of Ariadne 4.2 and of what its module adds, over random
//! sequences of events; and the paper's sentences one by one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use clew_core::{
    AccessKind, AppId, ByteSize, Classes, Demand, Event, Hotness, Observe, Out, PageId, PageRun,
    Reclaim, SampleDemand, SpaceId, Tier, Unit, Verdict, View, Whole,
};
use clew_policy::reclaim::hotness_org::{Front, HotAfter, HotnessOrg, Lists, Params, Unseen};
use proptest::prelude::*;

use clew_conformance::{World, page, run};

const CLASSES: [Hotness; 3] = [Hotness::Cold, Hotness::Warm, Hotness::Hot];

/// Where a page is: in DRAM, or out of it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Side {
    In,
    Pool,
    Beyond,
}

/// Where a page is on the lists, and of which class.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Known {
    side: Side,
    class: Hotness,
    /// Used in the relaunch that is going on.
    used: bool,
}

/// The paper's lists as one vector of pages a space owner, newest first, searched from end to end.
struct Naive {
    params: Params,
    /// All pages of all apps in the order of their last move to a front.
    order: Vec<PageId>,
    known: BTreeMap<PageId, Known>,
    starting: Option<clew_core::Starting>,
    launched_hot: u64,
    profiles: BTreeMap<AppId, u64>,
}

impl Naive {
    fn new(params: Params) -> Naive {
        Naive {
            params,
            order: Vec::new(),
            known: BTreeMap::new(),
            starting: None,
            launched_hot: 0,
            profiles: BTreeMap::new(),
        }
    }

    fn put_first(&mut self, page: PageId, known: Known) {
        self.order.retain(|listed| *listed != page);
        self.order.insert(0, page);
        self.known.insert(page, known);
    }

    fn forget(&mut self, which: impl Fn(PageId) -> bool) {
        self.order.retain(|page| !which(*page));
        self.known.retain(|page, _| !which(*page));
    }

    /// Pages of a class and side, oldest first; used hot pages count as newer than all others.
    fn listed(&self, app: AppId, side: Side, class: Hotness, view: &View<'_>) -> Vec<PageId> {
        let of = |page: &&PageId| {
            let known = self.known[page];
            view.app_of(**page) == Some(app) && (known.side, known.class) == (side, class)
        };
        let mut pages: Vec<PageId> = self.order.iter().rev().filter(of).copied().collect();
        pages.sort_by_key(|page| self.known[page].used);
        pages
    }

    fn end_relaunch(&mut self, app: AppId, view: &View<'_>) {
        let mine = |page: PageId| view.app_of(page) == Some(app);
        if !self.known.iter().any(|(page, known)| mine(*page) && known.used) {
            return;
        }
        for side in [Side::In, Side::Pool, Side::Beyond] {
            let hot = self.listed(app, side, Hotness::Hot, view);
            let (used, old): (Vec<PageId>, Vec<PageId>) =
                hot.into_iter().partition(|page| self.known[page].used);
            let seen = side != Side::In
                || view.facts.all_touches_seen
                || self.params.unseen == Unseen::Warm;
            for page in old.into_iter().filter(|_| seen) {
                self.put_first(page, Known { side, class: Hotness::Warm, used: false });
            }
            for page in used {
                self.put_first(page, Known { side, class: Hotness::Hot, used: false });
            }
        }
        let hot = self.known.iter().filter(|(p, known)| mine(**p) && known.class == Hotness::Hot);
        self.profiles.insert(app, hot.count() as u64);
    }

    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        let began = matches!(event, Event::Launch { .. } | Event::Relaunch { .. });
        if began || self.starting != view.facts.starting {
            if let Some(over) = self.starting.filter(|over| over.relaunch) {
                self.end_relaunch(over.app, view);
            }
            self.starting = view.facts.starting;
            self.launched_hot = 0;
        }
        match *event {
            Event::Resident { run } => {
                // Pages that were out come first, as they are older than new ones.
                let (back, new): (Vec<PageId>, Vec<PageId>) =
                    run.pages().partition(|page| self.known.contains_key(page));
                back.into_iter().chain(new).for_each(|page| self.is_at(page, Side::In, view));
            }
            Event::Access { page, kind, .. } => {
                self.used(page, view);
                if kind == AccessKind::Fresh {
                    self.is_at(page, Side::In, view);
                }
            }
            Event::PageIn { page, demand, .. } => {
                self.is_at(page, Side::In, view);
                let relaunched = self.starting.filter(|starting| starting.relaunch);
                let is_hot = self.known.get(&page).is_some_and(|k| k.class == Hotness::Hot);
                if !demand
                    && self.params.hot_after == HotAfter::SecondUse
                    && relaunched.map(|starting| starting.app) == view.app_of(page)
                    && relaunched.is_some()
                    && !is_hot
                {
                    self.used(page, view);
                }
            }
            Event::Stayed { page } => self.is_at(page, Side::In, view),
            Event::Stored { page, tier: Tier::Pool, .. } => self.is_at(page, Side::Pool, view),
            Event::Stored { page, .. } => self.is_at(page, Side::Beyond, view),
            Event::Used { run } => {
                let is_in =
                    |page: &PageId| self.known.get(page).is_some_and(|k| k.side == Side::In);
                run.pages()
                    .filter(is_in)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|page| self.used(page, view));
            }
            Event::Unused { run } => {
                for page in run.pages() {
                    match self.known.get(&page).copied() {
                        Some(known) if known.class == Hotness::Hot && !known.used => {
                            self.put_first(page, Known { class: Hotness::Warm, ..known });
                        }
                        _ => {}
                    }
                }
            }
            Event::Freed { run } => self.forget(|page| run.contains(page)),
            Event::Moved { from, to } => {
                let sources: Vec<PageId> =
                    self.order.iter().copied().filter(|page| from.contains(*page)).collect();
                let over = PageRun { first: to, ..from };
                self.forget(|page| over.contains(page) && !from.contains(page));
                let shift = |page: PageId| to.plus(page.raw() - from.first.raw());
                let old = std::mem::take(&mut self.known);
                let renamed =
                    |page: PageId| if sources.contains(&page) { shift(page) } else { page };
                self.order.iter_mut().for_each(|page| *page = renamed(*page));
                self.known = old.into_iter().map(|(page, known)| (renamed(page), known)).collect();
            }
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.forget(|page| page.space() == space);
            }
            Event::Exit { app } => self.forget(|page| view.app_of(page) == Some(app)),
            _ => {}
        }
    }

    fn used(&mut self, page: PageId, view: &View<'_>) {
        let Some(app) = view.app_of(page) else { return };
        let known = self.known.get(&page).copied();
        let side = known.map_or(Side::In, |known| known.side);
        let starting = self.starting.filter(|starting| starting.app == app);
        let initial = self.params.initial_hot.0 / u64::from(view.facts.page_bytes);
        let hot_size = self.profiles.get(&app).copied().unwrap_or(initial);
        let class = known.map_or(Hotness::Cold, |known| known.class);
        let relaunched = starting.is_some_and(|starting| starting.relaunch);
        let again = self.params.hot_after == HotAfter::FirstUse || class != Hotness::Cold;
        let new = if relaunched && !again {
            Known { side, class: Hotness::Warm, used: false }
        } else if relaunched {
            Known { side, class: Hotness::Hot, used: true }
        } else if known.is_some_and(|known| known.class == Hotness::Hot) {
            known.unwrap()
        } else if starting.is_some() && self.launched_hot < hot_size {
            self.launched_hot += 1;
            Known { side, class: Hotness::Hot, used: false }
        } else {
            let class = if known.is_some() { Hotness::Warm } else { Hotness::Cold };
            Known { side, class, used: false }
        };
        self.put_first(page, new);
    }

    fn is_at(&mut self, page: PageId, side: Side, view: &View<'_>) {
        let known = self.known.get(&page).copied();
        if view.app_of(page).is_some() && known.is_none_or(|known| known.side != side) {
            let known = known.unwrap_or(Known { side, class: Hotness::Cold, used: false });
            self.put_first(page, Known { side, ..known });
        }
    }

    fn pick(&mut self, demand: Demand, view: &View<'_>) -> Vec<(PageId, Hotness)> {
        let picked = match self.params.front {
            Front::ToKernel => self.with_share(demand, view),
            Front::InClass => self.in_order(demand, view),
            Front::AfterWarm => self.after_warm(demand, view),
        };
        for (page, _) in &picked {
            let known = self.known[page];
            self.put_first(*page, Known { side: Side::Pool, ..known });
        }
        picked
    }

    /// Page by page: who is next, as the parameter says it.
    fn with_share(&self, demand: Demand, view: &View<'_>) -> Vec<(PageId, Hotness)> {
        let mut apps: Vec<AppId> = view.facts.apps.keys().copied().collect();
        apps.sort_by_key(|app| view.facts.apps[app].last_access);
        let is_front = |app: &AppId| view.facts.fronts.contains(app);
        let mut left: BTreeMap<AppId, Vec<(PageId, Hotness)>> = BTreeMap::new();
        for app in &apps {
            let mut pages = Vec::new();
            for class in CLASSES {
                let of_class = self.listed(*app, Side::In, class, view);
                pages.extend(of_class.into_iter().map(|page| (page, class)));
            }
            left.insert(*app, pages);
        }
        let pct = u64::from(self.params.others_kept_pct.get());
        let share = left.values().map(|pages| pages.len() as u64).sum::<u64>() * pct / 100;
        let excluded = self.params.lists == Lists::ExcludeHot && !demand.urgent;
        let may = |class: Hotness| class != Hotness::Hot || !excluded;
        let mut picked = Vec::new();
        while picked.len() < demand.pages {
            let has = |app: &AppId| left[app].len() as u64;
            let is_next = |app: &AppId| left[app].first().is_some_and(|(_, class)| may(*class));
            let others = || apps.iter().filter(|app| !is_front(app));
            let largest = others().filter(|app| is_next(app)).max_by_key(|app| has(app));
            let beyond = others().map(has).sum::<u64>() > share;
            let front = apps.iter().find(|app| is_front(app) && is_next(app));
            let next = largest.filter(|_| beyond);
            let next = next.or(front.or(largest).filter(|_| demand.urgent));
            let Some(next) = next.copied() else { break };
            picked.push(left.get_mut(&next).expect("known").remove(0));
        }
        picked
    }

    fn in_order(&self, demand: Demand, view: &View<'_>) -> Vec<(PageId, Hotness)> {
        let mut apps: Vec<AppId> = view.facts.apps.keys().copied().collect();
        apps.sort_by_key(|app| view.facts.apps[app].last_access);
        apps.sort_by_key(|app| view.facts.fronts.contains(app));
        let mut all = Vec::new();
        for class in CLASSES {
            let excluded = self.params.lists == Lists::ExcludeHot && !demand.urgent;
            if class == Hotness::Hot && excluded {
                break;
            }
            // Hot pages that the present relaunch used leave after the hot pages of all apps.
            for used in [false, true] {
                for app in &apps {
                    for page in self.listed(*app, Side::In, class, view) {
                        if self.known[&page].used == used {
                            all.push((page, class));
                        }
                    }
                }
            }
        }
        all.into_iter().take(demand.pages).collect()
    }

    /// Page by page: who is next, as the parameter says it.
    fn after_warm(&self, demand: Demand, view: &View<'_>) -> Vec<(PageId, Hotness)> {
        let everything = Demand { pages: usize::MAX, ..demand };
        let in_front =
            |page: &PageId| view.app_of(*page).is_some_and(|app| view.facts.fronts.contains(&app));
        let (mut front, mut others): (Vec<_>, Vec<_>) =
            self.in_order(everything, view).into_iter().partition(|(page, _)| in_front(page));
        let resident = self.known.iter().filter(|(_, known)| known.side == Side::In);
        let mut all = resident.filter(|(page, _)| in_front(page)).count();
        let (mut picked, mut looked) = (Vec::new(), false);
        while picked.len() < demand.pages {
            let of = |class: Hotness| front.iter().filter(|(_, c)| *c == class).count();
            let beyond = [Hotness::Cold, Hotness::Warm].into_iter().find(|c| of(*c) * 4 > all);
            let is_hot = |(_, class): &(PageId, Hotness)| *class == Hotness::Hot;
            // Looked at until once neither is beyond; in an urgent demand what is hot of others leaves before.
            let beyond = beyond.filter(|_| !looked);
            let theirs = others.first().is_some_and(|next| demand.urgent || !is_hot(next));
            looked |= !theirs && beyond.is_none();
            let next = if theirs {
                others.remove(0)
            } else if let Some(class) = beyond {
                front.remove(front.iter().position(|(_, c)| *c == class).expect("counted"))
            } else if let Some(is_other) = self.hot_place(&others, &front) {
                if is_other {
                    others.remove(0)
                } else {
                    front.remove(front.iter().position(is_hot).expect("seen"))
                }
            } else if !front.is_empty() {
                front.remove(0)
            } else {
                break;
            };
            all -= usize::from(in_front(&next.0));
            picked.push(next);
        }
        picked
    }

    /// Where the next hot page is, where there is one: those that the present relaunch used come last, and of alike ones
    /// those of the app in front. Whether it is one of the others.
    fn hot_place(&self, others: &[(PageId, Hotness)], front: &[(PageId, Hotness)]) -> Option<bool> {
        let hot = |pages: &[(PageId, Hotness)]| {
            let first = pages.iter().find(|(_, class)| *class == Hotness::Hot);
            first.map(|(page, _)| self.known[page].used)
        };
        match (hot(others), hot(front)) {
            (Some(theirs), Some(ours)) => Some(theirs <= ours),
            (theirs, ours) => ours.or(theirs).map(|_| theirs.is_some()),
        }
    }
}

fn picked_of(verdicts: &[Verdict]) -> Vec<(PageId, Hotness)> {
    let picked = |verdict: &Verdict| match verdict {
        Verdict::Take(victim) => match (&victim.unit, victim.hotness) {
            (Unit::Page(page), Some(hotness)) => (*page, hotness),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    verdicts.iter().map(picked).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Tell(Event),
    /// Uses every page of a run.
    Work(PageRun),
    Pick(Demand),
    PickApp(AppId),
    Sample(AppId, usize, u32),
}

const SPACES: u32 = 4;

fn step() -> impl Strategy<Value = Step> {
    let app = || (0u32..3).prop_map(AppId);
    let space = || (0..SPACES).prop_map(SpaceId);
    let any_page = || (0..SPACES, 30u64..90).prop_map(|(space, vpn)| page(space, vpn));
    let any_run = || (0..SPACES, 30u64..90, 1u32..40).prop_map(|(s, v, n)| run(s, v, n));
    let kind =
        prop_oneof![Just(AccessKind::Fault), Just(AccessKind::Fresh), Just(AccessKind::Seen)];
    let tell = |event: BoxedStrategy<Event>| event.prop_map(Step::Tell);
    prop_oneof![
        3 => tell(any_run().prop_map(|run| Event::Resident { run }).boxed()),
        8 => tell((any_page(), kind)
            .prop_map(|(page, kind)| Event::Access { page, kind, write: false })
            .boxed()),
        3 => tell((any_page(), prop_oneof![Just(Tier::Pool), Just(Tier::Kernel)])
            .prop_map(|(page, tier)| Event::Stored { page, tier, bytes: 9 })
            .boxed()),
        2 => tell(any_page().prop_map(|page| Event::Stayed { page }).boxed()),
        5 => tell((any_page(), any::<bool>())
            .prop_map(|(page, demand)| Event::PageIn { page, tier: Tier::Pool, demand })
            .boxed()),
        2 => tell(any_run().prop_map(|run| Event::Used { run }).boxed()),
        2 => tell(any_run().prop_map(|run| Event::Unused { run }).boxed()),
        1 => tell(any_run().prop_map(|run| Event::Freed { run }).boxed()),
        1 => tell((any_run(), 30u64..90)
            .prop_map(|(from, vpn)| Event::Moved { from, to: page(from.first.space().0, vpn) })
            .boxed()),
        1 => tell((space(), app())
            .prop_map(|(space, app)| Event::SpaceStart { space, app, file: false })
            .boxed()),
        1 => tell(space().prop_map(|space| Event::SpaceEnd { space }).boxed()),
        1 => tell(app().prop_map(|app| Event::Exit { app }).boxed()),
        2 => tell(app().prop_map(|app| Event::Launch { app }).boxed()),
        4 => tell(app().prop_map(|app| Event::Relaunch { app }).boxed()),
        3 => tell(app()
            .prop_map(|app| Event::ResponseComplete { app, response_ns: 1 })
            .boxed()),
        1 => tell(app().prop_map(|app| Event::Background { app }).boxed()),
        6 => any_run().prop_map(Step::Work),
        6 => (0usize..60, any::<bool>())
            .prop_map(|(pages, urgent)| Step::Pick(Demand { pages, urgent })),
        1 => app().prop_map(Step::PickApp),
        2 => (app(), 0usize..20, 1u32..9).prop_map(|(app, n, run)| Step::Sample(app, n, run)),
    ]
}

fn check(org: &HotnessOrg, naive: &Naive, view: &View<'_>) -> Result<(), TestCaseError> {
    for space in 0..SPACES {
        for vpn in 30..180 {
            let page = page(space, vpn);
            prop_assert_eq!(org.class(page), naive.known.get(&page).map(|known| known.class));
        }
    }
    for app in view.facts.apps.keys() {
        for class in CLASSES {
            let counts = org.class_counts(*app, class);
            let [resident, pool, beyond] = [Side::In, Side::Pool, Side::Beyond]
                .map(|side| naive.listed(*app, side, class, view));
            prop_assert_eq!(
                (counts.resident, counts.out),
                (resident.len() as u64, (pool.len() + beyond.len()) as u64)
            );
            for (place, expected) in [(Out::Pool, pool), (Out::Beyond, beyond)] {
                let mut visited = Vec::new();
                org.for_each_out(*app, class, place, &mut |page| {
                    visited.push(page);
                    ControlFlow::Continue(())
                });
                prop_assert_eq!(visited, expected);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_lists_agree_with_a_naive_transcription(
        lists in prop_oneof![Just(Lists::All), Just(Lists::ExcludeHot)],
        unseen in prop_oneof![Just(Unseen::Keep), Just(Unseen::Warm)],
        again in any::<bool>(),
        front in prop_oneof![
            Just(Front::InClass),
            Just(Front::AfterWarm),
            Just(Front::ToKernel)
        ],
        share in 0u32..101,
        initial_pages in 0u64..50,
        all_touches_seen: bool,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let hot_after = if again { HotAfter::SecondUse } else { HotAfter::FirstUse };
        let initial_hot = ByteSize(initial_pages * 4096);
        let others_kept_pct = Whole::of(share);
        let params = Params { lists, initial_hot, unseen, hot_after, front, others_kept_pct };
        let mut org = HotnessOrg::new(params);
        let mut naive = Naive::new(params);
        let mut world = World::new(&[0, 0, 1, 2]);
        world.facts.all_touches_seen = all_touches_seen;
        for step in steps {
            let events: Vec<Event> = match &step {
                Step::Tell(event) => vec![event.clone()],
                Step::Work(run) => run
                    .pages()
                    .map(|page| Event::Access { page, kind: AccessKind::Seen, write: false })
                    .collect(),
                _ => Vec::new(),
            };
            for event in &events {
                world.before(event);
                org.on_event(event, &world.view());
                naive.on_event(event, &world.view());
                world.after(event);
            }
            let view = world.view();
            match step {
                Step::Pick(demand) => {
                    let mut out = Vec::new();
                    org.pick_victims(demand, &view, &mut out);
                    prop_assert_eq!(picked_of(&out), naive.pick(demand, &view));
                }
                Step::PickApp(app) => {
                    let mut out = Vec::new();
                    org.pick_app(app, &view, &mut out);
                    let picked = picked_of(&out);
                    let resident = CLASSES.iter().flat_map(|c| naive.listed(app, Side::In, *c, &view));
                    let mut resident: Vec<PageId> = resident.collect();
                    for (page, hotness) in &picked {
                        let known = naive.known[page];
                        prop_assert_eq!(*hotness, known.class);
                        naive.put_first(*page, Known { side: Side::Pool, ..known });
                    }
                    let mut pages: Vec<PageId> = picked.into_iter().map(|(page, _)| page).collect();
                    pages.sort();
                    resident.sort();
                    prop_assert_eq!(pages, resident);
                }
                Step::Sample(app, pages, run_pages) => {
                    let hot = naive.listed(app, Side::In, Hotness::Hot, &view);
                    let unsure = hot.iter().filter(|page| !naive.known[page].used).count();
                    let mut runs = Vec::new();
                    org.pick_samples(SampleDemand { app, pages, run_pages }, &view, &mut runs);
                    let sampled: Vec<PageId> = runs.iter().flat_map(|run| run.pages()).collect();
                    prop_assert_eq!(sampled.len(), pages.min(unsure));
                    prop_assert!(runs.iter().all(|run| run.count <= run_pages));
                    for page in &sampled {
                        let known = naive.known[page];
                        prop_assert!(hot.contains(page) && !known.used);
                        naive.put_first(*page, known);
                    }
                    prop_assert!(sampled.iter().all(|p| sampled.iter().filter(|q| *q == p).count() == 1));
                }
                Step::Tell(_) | Step::Work(_) => {}
            }
            check(&org, &naive, &view)?;
        }
    }
}

// ---- the paper, sentence by sentence -------------------------------------------------------------

const PAPER: Params = Params {
    lists: Lists::All,
    initial_hot: ByteSize(0),
    unseen: Unseen::Warm,
    hot_after: HotAfter::FirstUse,
    front: Front::InClass,
    others_kept_pct: Whole::of(0),
};

/// HotnessOrg in a world of two apps with a space each, of the same numbers.
struct Machine {
    org: HotnessOrg,
    world: World,
}

impl Machine {
    fn new(params: Params, all_touches_seen: bool) -> Machine {
        let mut world = World::new(&[0, 1]);
        world.facts.all_touches_seen = all_touches_seen;
        Machine { org: HotnessOrg::new(params), world }
    }

    fn tell(&mut self, event: Event) {
        self.world.before(&event);
        self.org.on_event(&event, &self.world.view());
        self.world.after(&event);
    }

    fn use_pages(&mut self, kind: AccessKind, run: PageRun) {
        for page in run.pages() {
            self.tell(Event::Access { page, kind, write: false });
        }
    }

    fn relaunch(&mut self, app: u32, uses: &[PageRun]) {
        self.tell(Event::Relaunch { app: AppId(app) });
        uses.iter().for_each(|run| self.use_pages(AccessKind::Seen, *run));
        self.tell(Event::ResponseComplete { app: AppId(app), response_ns: 1 });
    }

    fn classes(&self, run: PageRun) -> Vec<Hotness> {
        run.pages().map(|page| self.org.class(page).unwrap()).collect()
    }

    fn pick(&mut self, pages: usize, urgent: bool) -> Vec<(PageId, Hotness)> {
        let mut out = Vec::new();
        self.org.pick_victims(Demand { pages, urgent }, &self.world.view(), &mut out);
        picked_of(&out)
    }
}

use Hotness::{Cold, Hot, Warm};

#[test]
fn a_launch_fills_hot_up_to_the_profiled_size_and_the_rest_is_cold() {
    let mut m = Machine::new(Params { initial_hot: ByteSize(3 * 4096), ..PAPER }, true);
    m.tell(Event::Launch { app: AppId(0) });
    m.use_pages(AccessKind::Fresh, run(0, 10, 5));
    assert_eq!(m.classes(run(0, 10, 5)), [Hot, Hot, Hot, Cold, Cold]);
    m.tell(Event::ResponseComplete { app: AppId(0), response_ns: 1 });
    m.use_pages(AccessKind::Fresh, run(0, 20, 1));
    m.use_pages(AccessKind::Seen, run(0, 14, 1));
    assert_eq!(m.classes(run(0, 13, 2)), [Cold, Warm], "a cold page that is used is warm");
    assert_eq!(m.classes(run(0, 20, 1)), [Cold], "made during execution");
    // A relaunch that uses two pages is a profile; it outlives the app.
    m.relaunch(0, &[run(0, 10, 2)]);
    m.tell(Event::Exit { app: AppId(0) });
    m.tell(Event::SpaceStart { space: SpaceId(0), app: AppId(0), file: false });
    m.tell(Event::Launch { app: AppId(0) });
    m.use_pages(AccessKind::Fresh, run(0, 10, 4));
    assert_eq!(m.classes(run(0, 10, 4)), [Hot, Hot, Cold, Cold]);
}

#[test]
fn after_a_relaunch_its_pages_are_hot_and_the_old_hot_ones_warm_stored_or_not() {
    let mut m = Machine::new(PAPER, true);
    m.tell(Event::Resident { run: run(0, 10, 6) });
    m.relaunch(0, &[run(0, 10, 4)]);
    assert_eq!(m.classes(run(0, 10, 6)), [Hot, Hot, Hot, Hot, Cold, Cold]);
    m.tell(Event::Stored { page: page(0, 10), tier: Tier::Pool, bytes: 1 });
    m.tell(Event::Stored { page: page(0, 13), tier: Tier::Pool, bytes: 1 });
    m.tell(Event::Relaunch { app: AppId(0) });
    m.use_pages(AccessKind::Fault, run(0, 13, 2));
    assert_eq!(m.classes(run(0, 10, 6)), [Hot, Hot, Hot, Hot, Hot, Cold], "not over yet");
    m.tell(Event::Background { app: AppId(0) });
    assert_eq!(m.classes(run(0, 10, 6)), [Warm, Warm, Warm, Hot, Hot, Cold]);
    m.relaunch(0, &[]);
    assert_eq!(m.classes(run(0, 13, 2)), [Hot, Hot], "a relaunch without a use tells nothing");
}

#[test]
fn cold_pages_of_all_apps_leave_first_then_warm_then_hot_the_foreground_last() {
    let mut m = Machine::new(PAPER, true);
    for app in [0, 1] {
        m.tell(Event::Resident { run: run(app, 10, 6) });
        m.relaunch(app, &[run(app, 10, 2)]);
        m.use_pages(AccessKind::Seen, run(app, 12, 2));
    }
    m.tell(Event::Background { app: AppId(1) });
    // App 1 used a page last, so app 0 is first in each class.
    let order: Vec<(PageId, Hotness)> = [(14, Cold), (12, Warm), (10, Hot)]
        .into_iter()
        .flat_map(|(vpn, class)| [0, 1].map(|app| (app, vpn, class)))
        .flat_map(|(app, vpn, class)| run(app, vpn, 2).pages().map(move |page| (page, class)))
        .collect();
    m.use_pages(AccessKind::Seen, run(1, 13, 1));
    assert_eq!(m.pick(5, false), order[..5]);
    m.tell(Event::Relaunch { app: AppId(0) });
    m.tell(Event::Background { app: AppId(1) });
    let rest = m.pick(100, false);
    let apps: Vec<(u32, Hotness)> = rest.iter().map(|(page, c)| (page.space().0, *c)).collect();
    let expected = [(1, Warm), (1, Warm), (0, Warm), (1, Hot), (1, Hot), (0, Hot), (0, Hot)];
    assert_eq!(apps, expected, "the app in front is last within each class");
}

/// Who gives its pages, of what class, where two apps have two of each and the first is in front.
fn picked_after_warm(urgent: bool) -> Vec<(u32, Hotness)> {
    let mut m = Machine::new(Params { front: Front::AfterWarm, ..PAPER }, true);
    for app in [0, 1] {
        m.tell(Event::Resident { run: run(app, 10, 6) });
        m.relaunch(app, &[run(app, 10, 2)]);
        m.use_pages(AccessKind::Seen, run(app, 12, 2));
    }
    m.tell(Event::Relaunch { app: AppId(0) });
    let picked = m.pick(100, urgent);
    picked.iter().map(|(page, c)| (page.space().0, *c)).collect()
}

/// So many of each.
fn each(of: &[(usize, u32, Hotness)]) -> Vec<(u32, Hotness)> {
    of.iter().flat_map(|(count, app, class)| vec![(*app, *class); *count]).collect()
}

/// Not the paper's: what is in front leaves only once others have nothing but what is hot. Of six pages in front one
/// cold and one warm one stay until nothing is hot, as one of five, and of four, is not more than a quarter.
#[test]
fn after_warm_keeps_the_cold_and_warm_pages_in_front_until_others_have_only_hot_ones() {
    let expected =
        [(2, 1, Cold), (2, 1, Warm), (1, 0, Cold), (1, 0, Warm), (2, 1, Hot), (2, 0, Hot)];
    let rest = [(1, 0, Cold), (1, 0, Warm)];
    assert_eq!(picked_after_warm(false), [each(&expected), each(&rest)].concat());
}

/// What came along with a fault of the app in front is cold: it is among the last to leave of a quarter.
#[test]
fn what_comes_along_in_front_leaves_behind_the_cold_pages_before_it() {
    let mut m = Machine::new(Params { front: Front::AfterWarm, ..PAPER }, true);
    m.tell(Event::Resident { run: run(0, 100, 40) });
    m.relaunch(0, &[run(0, 100, 36)]);
    m.tell(Event::Relaunch { app: AppId(0) });
    // 4 cold pages of 40: less than a quarter, so hot ones leave, and the cold ones come last.
    assert_eq!(m.pick(30, false), m_hot(100, 30));
    let rest: Vec<Hotness> = m.pick(100, false).iter().map(|(_, class)| *class).collect();
    // Of ten pages four are cold: two leave, then 2 of 8 are a quarter.
    assert_eq!(rest, [vec![Cold; 2], vec![Hot; 6], vec![Cold; 2]].concat());
}

fn m_hot(first: u64, count: u64) -> Vec<(PageId, Hotness)> {
    run(0, first, count as u32).pages().map(|page| (page, Hot)).collect()
}

/// Not the paper's: what is in front is in use, so where memory is all but gone it leaves behind all that others have.
#[test]
fn after_warm_has_all_of_the_others_leave_first_where_it_is_urgent() {
    let others = [(2, 1, Cold), (2, 1, Warm), (2, 1, Hot)];
    let front = [(1, 0, Cold), (1, 0, Warm), (2, 0, Hot), (1, 0, Cold), (1, 0, Warm)];
    assert_eq!(picked_after_warm(true), [each(&others), each(&front)].concat());
}

/// Not the paper's: what those behind have stays up to a share, what is hot longest. (That the largest gives first is
/// drawn above.)
#[test]
fn a_share_of_what_others_have_stays_until_all_in_front_has_left() {
    let others_kept_pct = Whole::of(25);
    let mut m = Machine::new(Params { front: Front::ToKernel, others_kept_pct, ..PAPER }, true);
    for (app, has, used) in [(0, 16, 10), (1, 10, 4)] {
        m.tell(Event::Resident { run: run(app, 10, has) });
        m.relaunch(app, &[run(app, 10, used)]);
    }
    m.tell(Event::Relaunch { app: AppId(0) });
    let of = |picked: Vec<(PageId, Hotness)>| -> Vec<(u32, Hotness)> {
        picked.iter().map(|(page, class)| (page.space().0, *class)).collect()
    };
    // 6 of 26 may be the other's, which has 10; then 5 of 22.
    assert_eq!(of(m.pick(100, false)), [(1, Cold); 4]);
    assert_eq!(of(m.pick(100, false)), [(1, Cold)]);
    assert_eq!(m.pick(100, false), []);
    assert_eq!(of(m.pick(16, true)), [vec![(0, Cold); 6], vec![(0, Hot); 10]].concat());
    assert_eq!(of(m.pick(100, true)), [vec![(1, Cold)], vec![(1, Hot); 4]].concat());
}

/// "If the application accesses data in the cold list during execution, the system moves the data to the
/// warm list": nothing else does.
#[test]
fn what_could_not_leave_stays_in_its_class_and_is_not_the_next_to_be_picked() {
    let mut m = Machine::new(PAPER, true);
    m.tell(Event::Resident { run: run(0, 10, 6) });
    m.relaunch(0, &[run(0, 10, 2)]);
    m.use_pages(AccessKind::Seen, run(0, 12, 1));
    let cold = |vpn| (page(0, vpn), Cold);
    assert_eq!(m.pick(1, false), [cold(13)]);
    m.tell(Event::Stayed { page: page(0, 13) });
    assert_eq!(m.classes(run(0, 13, 1)), [Cold]);
    assert_eq!(m.pick(2, false), [14, 15].map(cold), "others first");
    assert_eq!(m.pick(2, false), [cold(13), (page(0, 12), Warm)], "but before what is warm");
    // Warm and hot ones stay what they are too.
    assert_eq!(m.pick(1, true), [(page(0, 10), Hot)]);
    for vpn in [10, 12] {
        m.tell(Event::Stayed { page: page(0, vpn) });
    }
    assert_eq!(m.classes(run(0, 10, 3)), [Hot, Hot, Warm]);
}

#[test]
fn ehl_keeps_hot_pages_until_nothing_else_is_left_and_the_demand_urgent() {
    let mut m = Machine::new(Params { lists: Lists::ExcludeHot, ..PAPER }, true);
    m.tell(Event::Resident { run: run(0, 10, 4) });
    m.relaunch(0, &[run(0, 10, 2)]);
    assert_eq!(m.pick(10, false).len(), 2);
    assert_eq!(m.pick(10, false), []);
    assert_eq!(m.pick(1, true), [(page(0, 10), Hot)]);
}

#[test]
fn what_nobody_could_see_stays_hot_until_it_leaves_or_a_sample_says_otherwise() {
    for unseen in [Unseen::Keep, Unseen::Warm] {
        let mut m = Machine::new(Params { unseen, ..PAPER }, false);
        m.tell(Event::Resident { run: run(0, 10, 6) });
        m.relaunch(0, &[run(0, 10, 4)]);
        m.tell(Event::Stored { page: page(0, 10), tier: Tier::Pool, bytes: 1 });
        m.relaunch(0, &[run(0, 15, 1)]);
        let kept = if unseen == Unseen::Keep { Hot } else { Warm };
        assert_eq!(m.classes(run(0, 10, 6)), [Warm, kept, kept, kept, Cold, Hot]);
        m.tell(Event::Unused { run: run(0, 12, 1) });
        assert_eq!(m.classes(run(0, 11, 2)), [kept, Warm]);
        if unseen == Unseen::Keep {
            let hot: Vec<_> = m.pick(10, false).into_iter().filter(|(_, c)| *c == Hot).collect();
            let unseen_first = [11, 13, 15].map(|vpn| (page(0, vpn), Hot));
            assert_eq!(hot, unseen_first, "what was seen leaves last");
        }
    }
}

/// Ours: what is used once leaves before what is used each time.
#[test]
fn after_its_second_use_a_page_is_hot() {
    let (hot_after, unseen) = (HotAfter::SecondUse, Unseen::Keep);
    let mut m = Machine::new(Params { hot_after, unseen, ..PAPER }, false);
    m.tell(Event::Resident { run: run(0, 10, 4) });
    m.relaunch(0, &[run(0, 10, 2)]);
    assert_eq!(m.classes(run(0, 10, 3)), [Warm, Warm, Cold]);
    m.relaunch(0, &[run(0, 10, 1), run(0, 12, 1)]);
    assert_eq!(m.classes(run(0, 10, 3)), [Hot, Warm, Warm]);
    let left: Vec<PageId> = m.pick(10, false).into_iter().map(|(page, _)| page).collect();
    assert_eq!(left, [13, 11, 12, 10].map(|vpn| page(0, vpn)));
    // What comes along in a relaunch counts, but for what is hot; what comes otherwise does not.
    m.tell(Event::PageIn { page: page(0, 13), tier: Tier::Pool, demand: false });
    assert_eq!(m.classes(run(0, 13, 1)), [Cold]);
    m.tell(Event::Relaunch { app: AppId(0) });
    for vpn in [10, 11, 13] {
        let page = page(0, vpn);
        m.tell(Event::Stored { page, tier: Tier::Pool, bytes: 1 });
        m.tell(Event::PageIn { page, tier: Tier::Pool, demand: false });
    }
    m.tell(Event::ResponseComplete { app: AppId(0), response_ns: 1 });
    assert_eq!(m.classes(run(0, 10, 4)), [Hot, Hot, Warm, Warm]);
}

#[test]
fn samples_are_runs_of_hot_neighbours_and_take_turns() {
    let mut m = Machine::new(PAPER, false);
    m.tell(Event::Resident { run: run(0, 100, 64) });
    m.relaunch(0, &[run(0, 100, 20), run(0, 130, 20)]);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let mut runs = Vec::new();
        let wanted = SampleDemand { app: AppId(0), pages: 8, run_pages: 4 };
        m.org.pick_samples(wanted, &m.world.view(), &mut runs);
        assert_eq!(runs.iter().map(|run| run.count).collect::<Vec<_>>(), [4, 4]);
        seen.extend(runs.iter().flat_map(|run| run.pages()));
    }
    seen.sort();
    let hot: Vec<PageId> = run(0, 100, 20).pages().chain(run(0, 130, 20).pages()).collect();
    assert_eq!(seen, hot, "each hot page once in five turns of 8");
    assert_eq!(m.classes(run(0, 100, 20)), [Hot; 20], "sampling moves nothing");
}

#[test]
fn ten_million_pages_cost_less_than_24_bytes_each_resident_and_out() {
    let mut m = Machine::new(PAPER, true);
    let all = PageRun { first: page(0, 0x7f00), count: 10_000_000 };
    m.tell(Event::Resident { run: all });
    m.pick(500_000, false);
    let metrics = m.org.metrics();
    let metric = |name: &str| metrics.iter().find(|m| m.name == name).unwrap().value;
    assert_eq!(metric("hotness_org_cold_out_pages"), 5e5);
    let bytes = metric("hotness_org_tracking_bytes");
    assert!(bytes / 1e7 < 24.0, "{} bytes a page", bytes / 1e7);
}

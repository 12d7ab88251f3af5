//! The LRU against a naive transcription of what its module says, over random sequences of events.

use std::collections::BTreeMap;

use clew_core::{
    AccessKind, AppId, Demand, Event, Facts, Observe, PageCounts, PageFacts, PageId, PageRun,
    Reclaim, SpaceId, Tier, Unit, Verdict, View, Vpn,
};
use clew_policy::reclaim::lru::Lru;
use proptest::prelude::*;

/// Page tables do not matter to an LRU.
struct NoPages;

impl PageFacts for NoPages {
    fn tier(&self, _: PageId) -> Option<Tier> {
        None
    }
    fn counts(&self, _: SpaceId) -> PageCounts {
        PageCounts::default()
    }
    fn for_each(&self, _: SpaceId, _: &mut dyn FnMut(PageId, Option<Tier>)) {}
}

/// Vectors, newest first, searched from end to end.
#[derive(Default)]
struct Naive {
    active: Vec<PageId>,
    inactive: Vec<PageId>,
    spared: Vec<PageId>,
    young: Vec<PageId>,
    referenced: Vec<PageId>,
    gone: BTreeMap<PageId, u64>,
    age: u64,
    spared_for: Option<AppId>,
    /// By the names of metrics.
    counted: BTreeMap<&'static str, usize>,
}

fn remove(list: &mut Vec<PageId>, page: PageId) -> bool {
    let before = list.len();
    list.retain(|listed| *listed != page);
    before != list.len()
}

impl Naive {
    fn inactive_pages(&self) -> usize {
        self.inactive.len() + self.spared.len()
    }

    fn count(&mut self, name: &'static str) {
        *self.counted.entry(name).or_default() += 1;
    }

    fn is_inactive(&self, page: PageId) -> bool {
        self.inactive.contains(&page) || self.spared.contains(&page)
    }

    fn delist(&mut self, page: PageId) {
        remove(&mut self.active, page);
        remove(&mut self.inactive, page);
        remove(&mut self.spared, page);
        remove(&mut self.young, page);
        remove(&mut self.referenced, page);
    }

    fn forget(&mut self, page: PageId) {
        self.delist(page);
        self.gone.remove(&page);
    }

    fn enter(&mut self, page: PageId) {
        if !self.is_inactive(page) && !self.active.contains(&page) {
            self.gone.remove(&page);
            self.inactive.insert(0, page);
        }
    }

    fn activate(&mut self, page: PageId) {
        self.forget(page);
        self.active.insert(0, page);
        self.age += 1;
    }

    fn leave(&mut self, page: PageId) {
        self.delist(page);
        self.gone.insert(page, self.age);
        self.age += 1;
    }

    fn everything(&self) -> Vec<PageId> {
        let lists = [&self.active, &self.inactive, &self.spared];
        lists.into_iter().flatten().chain(self.gone.keys()).copied().collect()
    }

    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Resident { run } => run.pages().for_each(|page| self.enter(page)),
            Event::Access { page, kind: AccessKind::Fresh, .. } => self.enter(page),
            Event::Access { page, kind: AccessKind::Seen, .. } => {
                if self.is_inactive(page) {
                    if self.young.contains(&page) || self.referenced.contains(&page) {
                        self.activate(page);
                        self.count("lru_activated_pages");
                    } else {
                        self.young.push(page);
                    }
                } else if !self.gone.contains_key(&page) {
                    self.enter(page);
                }
            }
            Event::Stored { page, .. } if !self.gone.contains_key(&page) => self.leave(page),
            Event::Stayed { page } if !self.is_inactive(page) && !self.active.contains(&page) => {
                self.gone.remove(&page);
                self.active.insert(0, page);
            }
            Event::PageIn { page, demand, .. } => match self.gone.get(&page) {
                Some(then) if demand && self.age - then <= self.active.len() as u64 => {
                    self.activate(page);
                    self.count("lru_refault_active_pages");
                }
                Some(_) if demand => {
                    self.enter(page);
                    self.count("lru_refault_inactive_pages");
                }
                _ => self.enter(page),
            },
            Event::Freed { run } => run.pages().for_each(|page| self.forget(page)),
            Event::Moved { from, to } => {
                let before = self.everything();
                let shifted = |page: PageId| to.raw() + (page.raw() - from.first.raw());
                let sources: Vec<PageId> =
                    from.pages().filter(|page| before.contains(page)).collect();
                for page in (PageRun { first: to, count: from.count }).pages() {
                    if !from.pages().any(|source| source == page) {
                        self.forget(page);
                    }
                }
                let rename = |page: &mut PageId| {
                    if sources.contains(page) {
                        *page = PageId::from_raw(shifted(*page));
                    }
                };
                let Naive { active, inactive, spared, young, referenced, gone, .. } = self;
                for list in [active, inactive, spared, young, referenced] {
                    list.iter_mut().for_each(rename);
                }
                let renamed = std::mem::take(gone).into_iter().map(|(mut page, age)| {
                    rename(&mut page);
                    (page, age)
                });
                *gone = renamed.collect();
            }
            Event::SpaceEnd { space } => {
                for page in self.everything() {
                    if page.space() == space {
                        self.forget(page);
                    }
                }
            }
            Event::Exit { app } => {
                for page in self.everything() {
                    if view.app_of(page) == Some(app) {
                        self.forget(page);
                    }
                }
            }
            _ => {}
        }
    }

    fn pick(&mut self, demand: Demand, view: &View<'_>) -> Vec<PageId> {
        if demand.urgent || self.spared_for.as_ref() != view.facts.fronts.first() {
            self.inactive.append(&mut self.spared);
            self.spared_for = view.facts.fronts.first().copied();
        }
        let mut picked = Vec::new();
        let mut looked = 0;
        while picked.len() < demand.pages {
            if looked % 32 == 0 || self.inactive.is_empty() {
                looked = 0;
                let all = (self.active.len() + self.inactive_pages()) as u64;
                let gib = all * u64::from(view.facts.page_bytes) / (1 << 30);
                let ratio = if gib == 0 { 1.0 } else { (10.0 * gib as f64).sqrt().floor() };
                if self.inactive.is_empty()
                    || self.inactive_pages() as f64 * ratio < self.active.len() as f64
                {
                    for page in self
                        .active
                        .split_off(self.active.len().saturating_sub(32))
                        .into_iter()
                        .rev()
                    {
                        self.delist(page);
                        self.inactive.insert(0, page);
                        self.count("lru_deactivated_pages");
                    }
                }
            }
            let sparing = self.inactive.is_empty();
            let list = if sparing { &mut self.spared } else { &mut self.inactive };
            let Some(page) = list.pop() else { break };
            if !sparing {
                looked += 1;
                if !demand.urgent && view.is_foreground(page) {
                    self.spared.insert(0, page);
                    self.count("lru_spared_pages");
                    continue;
                }
            }
            if self.young.contains(&page) {
                let list = if sparing { &mut self.spared } else { &mut self.inactive };
                list.insert(0, page);
                remove(&mut self.young, page);
                self.referenced.push(page);
                self.count("lru_second_lap_pages");
            } else {
                self.leave(page);
                picked.push(page);
                self.count("lru_picked_pages");
            }
        }
        picked
    }
}

#[derive(Clone, Debug)]
enum Step {
    Tell(Event),
    /// Uses every page of a run twice, so that many become active.
    Work(PageRun),
    /// Demands the page back that was picked so many picks ago.
    Refault(usize),
    Foreground(Option<AppId>),
    Pick(Demand),
    PickApp(AppId),
}

const SPACES: u32 = 3;

const COUNTED: [&str; 7] = [
    "lru_picked_pages",
    "lru_activated_pages",
    "lru_deactivated_pages",
    "lru_second_lap_pages",
    "lru_spared_pages",
    "lru_refault_active_pages",
    "lru_refault_inactive_pages",
];

fn page() -> impl Strategy<Value = PageId> {
    (0..SPACES, 30u64..100).prop_map(|(space, vpn)| PageId::new(SpaceId(space), Vpn(vpn)))
}

fn run() -> impl Strategy<Value = PageRun> {
    (page(), 1u32..90).prop_map(|(first, count)| PageRun { first, count })
}

/// Spaces 0 and 1 are of app 0, space 2 is of app 1.
fn app_of(space: u32) -> AppId {
    AppId(space / 2)
}

fn step() -> impl Strategy<Value = Step> {
    let seen = |page| Event::Access { page, kind: AccessKind::Seen, write: false };
    let fresh = |page| Event::Access { page, kind: AccessKind::Fresh, write: true };
    let app = (0u32..2).prop_map(AppId);
    prop_oneof![
        2 => run().prop_map(|run| Step::Tell(Event::Resident { run })),
        12 => page().prop_map(move |page| Step::Tell(seen(page))),
        3 => page().prop_map(move |page| Step::Tell(fresh(page))),
        3 => page().prop_map(|page| Step::Tell(Event::Stored { page, tier: Tier::Pool, bytes: 9 })),
        2 => page().prop_map(|page| Step::Tell(Event::Stayed { page })),
        6 => (page(), any::<bool>()).prop_map(|(page, demand)| {
            Step::Tell(Event::PageIn { page, tier: Tier::Pool, demand })
        }),
        1 => run().prop_map(|run| Step::Tell(Event::Freed { run })),
        1 => (run(), page()).prop_map(|(from, to)| Step::Tell(Event::Moved { from, to })),
        1 => (0..SPACES).prop_map(|space| Step::Tell(Event::SpaceEnd { space: SpaceId(space) })),
        1 => app.clone().prop_map(|app| Step::Tell(Event::Exit { app })),
        3 => run().prop_map(Step::Work),
        12 => (0usize..40).prop_map(Step::Refault),
        2 => proptest::option::of(app.clone()).prop_map(Step::Foreground),
        8 => (0usize..60, any::<bool>())
            .prop_map(|(pages, urgent)| Step::Pick(Demand { pages, urgent })),
        1 => app.prop_map(Step::PickApp),
    ]
}

fn pages_of(verdicts: &[Verdict]) -> Vec<PageId> {
    let page = |verdict: &Verdict| match verdict {
        Verdict::Take(victim) => match victim.unit {
            Unit::Page(page) => page,
            ref other => panic!("an LRU picked {other:?}"),
        },
        other => panic!("an LRU answered {other:?}"),
    };
    verdicts.iter().map(page).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_lists_agree_with_a_naive_transcription(
        // Pages so large that a few are some GiB, for the ratio of the lists.
        page_bytes in prop_oneof![Just(4096u32), Just(1 << 26)],
        steps in proptest::collection::vec(step(), 1..120)) {
        let mut lru = Lru::new();
        let mut naive = Naive::default();
        let mut facts = Facts {
            page_bytes,
            space_app: (0..SPACES).map(|space| Some(app_of(space))).collect(),
            ..Facts::default()
        };
        let mut out = Vec::new();
        let mut history: Vec<PageId> = Vec::new();
        for step in steps {
            if let Step::Foreground(app) = step {
                facts.fronts = app.into_iter().collect();
                continue;
            }
            let view = View { facts: &facts, pages: &NoPages, classes: None };
            match step {
                Step::Tell(event) => {
                    lru.on_event(&event, &view);
                    naive.on_event(&event, &view);
                }
                Step::Work(run) => {
                    for page in run.pages().chain(run.pages()) {
                        let event = Event::Access { page, kind: AccessKind::Seen, write: false };
                        lru.on_event(&event, &view);
                        naive.on_event(&event, &view);
                    }
                }
                Step::Refault(ago) => {
                    if let Some(page) = history.iter().rev().nth(ago).copied() {
                        let event = Event::PageIn { page, tier: Tier::Pool, demand: true };
                        lru.on_event(&event, &view);
                        naive.on_event(&event, &view);
                    }
                }
                Step::Pick(demand) => {
                    out.clear();
                    lru.pick_victims(demand, &view, &mut out);
                    let picked = pages_of(&out);
                    prop_assert_eq!(&picked, &naive.pick(demand, &view));
                    history.extend(picked);
                }
                Step::PickApp(app) => {
                    out.clear();
                    lru.pick_app(app, &view, &mut out);
                    let picked = pages_of(&out);
                    let resident = naive.active.len() + naive.inactive_pages();
                    for page in &picked {
                        naive.leave(*page);
                    }
                    let left = naive.active.len() + naive.inactive_pages();
                    prop_assert_eq!(resident - left, picked.len(), "picked what is not listed");
                    let lists = [&naive.active, &naive.inactive, &naive.spared];
                    let of_app = |page: &&PageId| view.app_of(**page) == Some(app);
                    prop_assert_eq!(lists.into_iter().flatten().find(of_app), None);
                }
                Step::Foreground(_) => unreachable!(),
            }
            let metric = |name| lru.metrics().iter().find(|m| m.name == name).unwrap().value as usize;
            prop_assert_eq!(metric("lru_active_pages"), naive.active.len());
            prop_assert_eq!(metric("lru_inactive_pages"), naive.inactive_pages());
            for name in COUNTED {
                prop_assert_eq!(metric(name), naive.counted.get(name).copied().unwrap_or(0), "{}", name);
            }
        }
    }
}

#[test]
fn ten_million_pages_cost_less_than_24_bytes_each() {
    let mut lru = Lru::new();
    let facts = Facts::default();
    let view = View { facts: &facts, pages: &NoPages, classes: None };
    let first = PageId::new(SpaceId(0), Vpn(0x7f00));
    let run = PageRun { first, count: 10_000_000 };
    lru.on_event(&Event::Resident { run }, &view);
    let metrics = lru.metrics();
    let bytes = metrics.iter().find(|m| m.name == "lru_tracking_bytes").unwrap().value;
    assert!(bytes / 1e7 < 24.0, "{} bytes a page", bytes / 1e7);
}

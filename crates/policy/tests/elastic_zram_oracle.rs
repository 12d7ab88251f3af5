//! ElasticZRAM's algorithm 1 and the formula of its 3.4, transcribed once more, naively and from nothing but the
//! paper, and compared with the policies over random histories of apps.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    AppId, ByteSize, Cause, CodecKind, Demand, DeviceFacts, Event, Facts, Group, Observe,
    PageCounts, PageFacts, PageId, PageRun, Place, Placement, Reclaim, SpaceId, Tier, TierFacts,
    Unit, Verdict, View, Vpn, Whole,
};
use clew_policy::eviction::by_app;
use clew_policy::placement::adaptive_path::{self, AdaptivePath};
use clew_policy::placement::launch_pages;
use clew_policy::reclaim::least_used_app::LeastUsedApp;
use clew_policy::schemes::Answer;
use proptest::prelude::*;

const APPS: u32 = 4;
const PAGES: u64 = 30;
const PAGE_IN_POOL: u64 = 1000;
const LIFE: u64 = 1000;

fn page(app: u32, vpn: u64) -> PageId {
    PageId::new(SpaceId(app), Vpn(vpn))
}

/// Every page of every app, and where it is.
#[derive(Default)]
struct Table(BTreeMap<PageId, Option<Tier>>);

impl PageFacts for Table {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.0.get(&page).copied().flatten()
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let mut counts = PageCounts::default();
        for (_, tier) in self.0.iter().filter(|(page, _)| page.space() == space) {
            match tier {
                None => counts.resident += 1,
                Some(tier) => counts.stored[tier.index()] += 1,
            }
        }
        counts
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let of_space = self.0.iter().filter(|(page, _)| page.space() == space);
        of_space.for_each(|(page, tier)| visit(*page, *tier));
    }
}

impl Table {
    fn of(&self, app: AppId, tier: Option<Tier>) -> Vec<PageId> {
        let there = self.0.iter().filter(|(page, at)| page.space().0 == app.0 && **at == tier);
        there.map(|(page, _)| *page).collect()
    }
}

/// What the paper keeps of an app (figure 5), and its share.
#[derive(Clone, Default)]
struct Profile {
    usage: u64,
    footprint: u64,
    responses: Vec<u64>,
    ratio: u32,
}

struct World {
    table: Table,
    facts: Facts,
    apps: BTreeMap<AppId, Profile>,
    delta: u32,
    u1: u32,
    u2: u32,
    reclaim: LeastUsedApp,
    eviction: Box<dyn clew_core::Eviction>,
    placement: AdaptivePath,
    seal: Box<dyn Placement>,
}

fn place_of(tier: Tier) -> Place {
    if tier == Tier::Flash { Place::FlashPages } else { Place::Tier(tier) }
}

fn one(page: PageId) -> Group {
    let (pages, codec) = (vec![page], CodecKind::Lz4);
    Group { pages, hotness: None, codec, chunk_bytes: 4096, park_siblings: false }
}

impl World {
    fn new(u1: u32, u2: u32, delta: u32, ratio: u32, pool_pages: u64) -> World {
        let params = adaptive_path::Params {
            u1_pct: Whole::of(u1),
            u2_pct: Whole::of(u2),
            life: Some(ByteSize(LIFE)),
            share_pct: Whole::of(ratio),
            delta_pct: Whole::of(delta),
            ..adaptive_path::Params::default()
        };
        let pool = TierFacts {
            limit_bytes: pool_pages * PAGE_IN_POOL,
            limit_pages: u64::MAX,
            ..TierFacts::default()
        };
        let tiers = [(Tier::Pool, pool), (Tier::Flash, pool)].into();
        let apps = (0..APPS).map(|app| (AppId(app), Profile { ratio, ..Profile::default() }));
        let life = params.life;
        let mut world = World {
            table: Table::default(),
            facts: Facts { tiers, ..Facts::default() },
            apps: apps.collect(),
            delta,
            u1,
            u2,
            reclaim: LeastUsedApp::default(),
            eviction: by_app::Params { u1_pct: Whole::of(u1), life }.build(),
            placement: AdaptivePath::new(params),
            seal: launch_pages::Params::default().build(),
        };
        world.facts.space_app = (0..APPS).map(|app| Some(AppId(app))).collect();
        for app in 0..APPS {
            for vpn in 0..PAGES {
                world.table.0.insert(page(app, vpn), None);
            }
            let run = PageRun { first: page(app, 0), count: PAGES as u32 };
            world.tell(Event::Resident { run });
        }
        world
    }

    /// The facts as the engine has them.
    fn look(&mut self) {
        for (app, profile) in &self.apps {
            let counts = self.table.counts(SpaceId(app.0));
            self.facts.app_pages.insert(*app, counts);
            let stats = self.facts.apps.entry(*app).or_default();
            stats.launches = profile.usage;
            stats.footprint_pages = profile.footprint;
            stats.responses_ns = profile.responses.clone();
            stats.resident_pages = counts.resident;
            stats.stored_pages = counts.stored_total();
        }
        for (tier, facts) in &mut self.facts.tiers {
            facts.pages = self.table.0.values().filter(|at| **at == Some(*tier)).count() as u64;
            facts.used_bytes = facts.pages * PAGE_IN_POOL;
        }
    }

    fn tell(&mut self, event: Event) {
        self.look();
        let view = View { facts: &self.facts, pages: &self.table, classes: None };
        self.reclaim.on_event(&event, &view);
        self.eviction.on_event(&event, &view);
        self.placement.on_event(&event, &view);
        self.seal.on_event(&event, &view);
    }

    fn moved(&mut self, page: PageId, tier: Tier) {
        self.table.0.insert(page, Some(tier));
        self.tell(Event::Stored { page, tier, bytes: PAGE_IN_POOL as u32 });
    }

    // ---- the paper ------------------------------------------------------------------------------

    fn utilisation(&self) -> u64 {
        self.facts.device.map_or(0, |device| device.used_bytes)
    }

    /// "When the writing amount approaches the end, it will directly enter the last period."
    fn is_worn(&self) -> bool {
        self.facts.device.is_some_and(|device| device.written_bytes >= LIFE)
    }

    /// Lines 3 to 11 (and 13 to 17): App_i is the least used of `among`; if there are several, MaxMemoryfp.
    fn victim(&self, among: &BTreeSet<AppId>) -> Option<AppId> {
        let least = among.iter().map(|app| self.apps[app].usage).min()?;
        let equals: Vec<AppId> =
            among.iter().copied().filter(|app| self.apps[app].usage == least).collect();
        if equals.len() == 1 {
            return Some(equals[0]);
        }
        let largest = equals.iter().map(|app| self.apps[app].footprint).max()?;
        equals.into_iter().find(|app| self.apps[app].footprint == largest)
    }

    /// 3.4.
    fn resize(&mut self, app: AppId, response: u64) {
        let delta = self.delta;
        let profile = self.apps.get_mut(&app).expect("an app");
        profile.responses.push(response);
        if profile.responses.len() > 32 {
            profile.responses.remove(0);
        }
        let n = profile.responses.len() as f64;
        let mean = profile.responses.iter().sum::<u64>() as f64 / n;
        if (response as f64) < mean {
            profile.ratio = profile.ratio.saturating_sub(delta);
        } else if (response as f64) > mean {
            profile.ratio = (profile.ratio + delta).min(100);
        }
    }

    /// Where the pages of a victim go, one after the other: path 2, or pool only.
    fn paths(&self, app: AppId, pages: &[PageId]) -> Vec<Tier> {
        let launch: BTreeSet<PageId> =
            self.facts.launch_sets.get(&app).into_iter().flatten().flatten().copied().collect();
        let may = PAGES * u64::from(self.apps[&app].ratio) / 100;
        let pool = self.facts.tiers[&Tier::Pool];
        let is_full = pool.limit_bytes.saturating_sub(pool.used_bytes) * 32 <= pool.limit_bytes;
        let mut tiers: Vec<Tier> = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            let placed = tiers.iter().filter(|tier| **tier == Tier::Pool).count();
            let in_pool = (self.table.of(app, Some(Tier::Pool)).len() + placed) as u64;
            let still =
                |page: &PageId| self.table.tier(*page).is_none() && !pages[..i].contains(page);
            let kept = match launch.contains(page) {
                true => 0,
                false => launch.iter().filter(|page| still(page)).count() as u64,
            };
            let utilisation = self.utilisation();
            let to_pool = if utilisation >= u64::from(self.u2) || self.is_worn() {
                true
            } else if utilisation >= u64::from(self.u1) && is_full {
                false
            } else {
                in_pool + kept < may
            };
            tiers.push(if to_pool { Tier::Pool } else { Tier::Flash });
        }
        tiers
    }

    // ---- both -----------------------------------------------------------------------------------

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Open(app, response) => {
                let id = AppId(app);
                self.apps.get_mut(&id).expect("an app").usage += 1;
                self.facts.fronts = vec![id];
                self.tell(Event::Relaunch { app: id });
                self.resize(id, response);
                self.tell(Event::ResponseComplete { app: id, response_ns: response });
                assert_eq!(self.placement.share_pct(id), self.apps[&id].ratio, "{act:?}");
            }
            Act::Launch(app) => {
                let id = AppId(app);
                self.apps.get_mut(&id).expect("an app").usage += 1;
                self.facts.fronts = vec![id];
                self.tell(Event::Launch { app: id });
                self.tell(Event::ResponseComplete { app: id, response_ns: 1 << 40 });
                assert_eq!(self.placement.share_pct(id), self.apps[&id].ratio, "{act:?}");
            }
            Act::Close(app, footprint) => {
                let id = AppId(app);
                self.apps.get_mut(&id).expect("an app").footprint = footprint;
                self.facts.fronts.retain(|front| *front != id);
                self.tell(Event::Background { app: id });
            }
            Act::Uses(app, first, count) => {
                let set = (first..(first + count).min(PAGES)).map(|vpn| page(app, vpn)).collect();
                let sets = self.facts.launch_sets.entry(AppId(app)).or_default();
                sets.push(set);
                if sets.len() > 4 {
                    sets.remove(0);
                }
                self.tell(Event::Tick);
            }
            Act::Touch(app, vpn) => {
                let page = page(app, vpn);
                if let Some(tier) = self.table.tier(page) {
                    self.table.0.insert(page, None);
                    self.tell(Event::PageIn { page, tier, demand: true });
                }
            }
            Act::Device(used_bytes, written_bytes) => {
                let device = DeviceFacts { used_bytes, total_bytes: 100, written_bytes };
                self.facts.device = Some(device);
                self.tell(Event::DeviceSample { device });
            }
            Act::Reclaim(pages) => self.reclaim(pages),
            Act::Evict(pages) => self.evict(pages),
        }
    }

    fn reclaim(&mut self, pages: usize) {
        self.look();
        let is_behind = |app: &AppId| !self.facts.fronts.contains(app);
        let mut among: BTreeSet<AppId> = self.apps.keys().copied().filter(is_behind).collect();
        among.retain(|app| !self.table.of(*app, None).is_empty());
        let (mut apps, mut found) = (Vec::new(), 0);
        while found < pages
            && let Some(app) = self.victim(&among)
        {
            among.remove(&app);
            found += self.table.of(app, None).len();
            apps.push(app);
        }
        let view = View { facts: &self.facts, pages: &self.table, classes: None };
        let mut out = Vec::new();
        self.reclaim.pick_victims(Demand { pages, urgent: false }, &view, &mut out);
        let picked: Vec<PageId> = out
            .iter()
            .map(|verdict| match verdict {
                Verdict::Take(victim) => match &victim.unit {
                    Unit::Page(page) => *page,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        if apps.is_empty() {
            // Nobody but the app in front has anything.
            assert!(picked.iter().all(|page| view.is_foreground(*page)));
            return picked.into_iter().for_each(|page| self.tell(Event::Stayed { page }));
        }
        let order = picked.chunk_by(|a, b| a.space() == b.space());
        let order: Vec<AppId> = order.map(|pages| AppId(pages[0].space().0)).collect();
        assert_eq!(order, apps);
        let all: BTreeSet<PageId> = picked.iter().copied().collect();
        let whole: BTreeSet<PageId> =
            apps.iter().flat_map(|app| self.table.of(*app, None)).collect();
        assert!(all == whole && all.len() == picked.len());
        let mut moved = Vec::new();
        for app in apps {
            let pages: Vec<PageId> =
                picked.iter().copied().filter(|page| page.space().0 == app.0).collect();
            let view = View { facts: &self.facts, pages: &self.table, classes: None };
            let placement = &mut self.placement;
            let places: Vec<Place> = pages
                .iter()
                .map(|page| placement.place(&one(*page), app, Cause::SwapOut, &view))
                .collect();
            let tiers = self.paths(app, &pages);
            assert_eq!(places, tiers.iter().map(|tier| place_of(*tier)).collect::<Vec<_>>());
            self.ask_seal(app, &pages);
            moved.extend(pages.into_iter().zip(tiers));
        }
        moved.into_iter().for_each(|(page, tier)| self.moved(page, tier));
    }

    /// SEAL, 4.1.
    fn ask_seal(&mut self, app: AppId, pages: &[PageId]) {
        let pool = self.facts.tiers[&Tier::Pool];
        let is_full = pool.limit_bytes.saturating_sub(pool.used_bytes) * 32 <= pool.limit_bytes;
        let launch: Vec<PageId> =
            self.facts.launch_sets.get(&app).into_iter().flatten().flatten().copied().collect();
        for page in pages {
            let view = View { facts: &self.facts, pages: &self.table, classes: None };
            let place = self.seal.place(&one(*page), app, Cause::SwapOut, &view);
            let to_pool = launch.contains(page) && !is_full;
            assert_eq!(place, place_of(if to_pool { Tier::Pool } else { Tier::Flash }));
        }
    }

    fn evict(&mut self, pages: u64) {
        self.look();
        let is_behind = |app: &AppId| !self.facts.fronts.contains(app);
        let mut among: BTreeSet<AppId> = self.apps.keys().copied().filter(is_behind).collect();
        among.retain(|app| !self.table.of(*app, Some(Tier::Pool)).is_empty());
        let (mut expected, mut found) = (Vec::new(), 0);
        // Line 19: from U1 on there is no path 3.
        let has_path3 = self.utilisation() < u64::from(self.u1) && !self.is_worn();
        while has_path3 && found < pages {
            let next = self.victim(&among).or(self.facts.fronts.first().copied().filter(|app| {
                !expected.contains(app) && !self.table.of(*app, Some(Tier::Pool)).is_empty()
            }));
            let Some(app) = next else { break };
            among.remove(&app);
            found += self.table.of(app, Some(Tier::Pool)).len() as u64;
            expected.push(app);
        }
        let view = View { facts: &self.facts, pages: &self.table, classes: None };
        let mut out = Vec::new();
        self.eviction.pick_evictions(pages * PAGE_IN_POOL, &view, &mut out);
        let units: Vec<Vec<PageId>> = out
            .into_iter()
            .map(|unit| match unit {
                Unit::Pages(pages) => pages,
                other => panic!("{other:?}"),
            })
            .collect();
        let whole = expected.iter().map(|app| self.table.of(*app, Some(Tier::Pool)));
        assert_eq!(units, whole.collect::<Vec<_>>());
        for page in units.into_iter().flatten() {
            let view = View { facts: &self.facts, pages: &self.table, classes: None };
            let app = AppId(page.space().0);
            let place = self.placement.place(&one(page), app, Cause::Evicted, &view);
            assert_eq!(place, Place::FlashPages, "path 3");
            self.moved(page, Tier::Flash);
            self.look();
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Open(u32, u64),
    Launch(u32),
    Close(u32, u64),
    Uses(u32, u64, u64),
    Touch(u32, u64),
    Device(u64, u64),
    Reclaim(usize),
    Evict(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let app = || 0..APPS;
    // At the boundaries more often than not.
    let utilisation = prop_oneof![0u64..101, Just(39), Just(40), Just(84), Just(85)];
    let written = prop_oneof![4 => 0u64..LIFE, 1 => LIFE - 1..LIFE + 2];
    prop_oneof![
        4 => (app(), 90u64..111).prop_map(|(app, response)| Act::Open(app, response)),
        1 => app().prop_map(Act::Launch),
        4 => (app(), 0u64..4).prop_map(|(app, footprint)| Act::Close(app, footprint)),
        2 => (app(), 0..PAGES, 1u64..12).prop_map(|(app, first, n)| Act::Uses(app, first, n)),
        8 => (app(), 0..PAGES).prop_map(|(app, vpn)| Act::Touch(app, vpn)),
        1 => (utilisation, written).prop_map(|(used, written)| Act::Device(used, written)),
        4 => (1usize..70).prop_map(Act::Reclaim),
        2 => (1u64..40).prop_map(Act::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_policies_decide_as_the_paper_is_written(
        acts in prop::collection::vec(act(), 1..120),
        (u1, u2) in prop_oneof![3 => Just((40, 85)), 1 => (0u32..60, 60u32..101)],
        delta in prop::sample::select(vec![0u32, 20, 50, 100]),
        ratio in prop::sample::select(vec![0u32, 30, 40, 50, 100]),
        pool_pages in 10u64..200,
    ) {
        let mut world = World::new(u1, u2, delta, ratio, pool_pages);
        for act in &acts {
            world.act(act);
        }
    }
}

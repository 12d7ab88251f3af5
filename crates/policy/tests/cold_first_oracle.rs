//! Cold-first eviction against its definition, over random lives of pages on HotnessOrg's lists.

use std::collections::BTreeSet;

use clew_core::{
    AccessKind, AppId, ByteSize, Classes, Event, Eviction, Hotness, Ns, Observe, PageId, Tier,
    TierFacts, Unit,
};
use clew_policy::eviction::cold_first::ColdFirst;
use clew_policy::reclaim::hotness_org::{Front, HotAfter, HotnessOrg, Lists, Params, Unseen};
use proptest::prelude::*;

use clew_conformance::{World, page, run};

fn hotness_org() -> HotnessOrg {
    HotnessOrg::new(Params {
        lists: Lists::All,
        initial_hot: ByteSize(0),
        unseen: Unseen::Keep,
        hot_after: HotAfter::FirstUse,
        front: Front::InClass,
        ..Params::default()
    })
}

fn rank(hotness: Option<Hotness>) -> usize {
    match hotness.expect("a page without a class") {
        Hotness::Cold => 0,
        Hotness::Warm => 1,
        Hotness::Hot => 2,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Tell(Event),
    Evict(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let app = || (0u32..2).prop_map(AppId);
    let any_page = || (0u32..3, 30u64..60).prop_map(|(space, vpn)| page(space, vpn));
    let tier = prop_oneof![4 => Just(Tier::Pool), 1 => Just(Tier::Flash)];
    let used = |page| Step::Tell(Event::Access { page, kind: AccessKind::Seen, write: false });
    prop_oneof![
        8 => (any_page(), tier)
            .prop_map(|(page, tier)| Step::Tell(Event::Stored { page, tier, bytes: 9 })),
        2 => any_page()
            .prop_map(|page| Step::Tell(Event::PageIn { page, tier: Tier::Pool, demand: true })),
        8 => any_page().prop_map(used),
        2 => app().prop_map(|app| Step::Tell(Event::Relaunch { app })),
        2 => app().prop_map(|app| Step::Tell(Event::ResponseComplete { app, response_ns: 1 })),
        1 => (any_page(), 1u32..9)
            .prop_map(|(page, n)| Step::Tell(Event::Freed { run: run(page.space().0, page.vpn().0, n) })),
        4 => (0u64..4000).prop_map(Step::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn cold_pages_in_the_pool_leave_first_each_once(
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let (mut org, mut policy, mut world) = (hotness_org(), ColdFirst::new(), World::new(&[0, 0, 1]));
        let mut under_way: BTreeSet<PageId> = BTreeSet::new();
        // Picked, and told to be in the pool after all.
        let mut refused: BTreeSet<PageId> = BTreeSet::new();
        for step in steps {
            let bytes = match step {
                Step::Tell(event) => {
                    world.before(&event);
                    org.on_event(&event, &world.view());
                    policy.on_event(&event, &world.view_with(&org));
                    world.after(&event);
                    match event {
                        Event::Stored { page, tier, .. } => {
                            let answered = under_way.remove(&page);
                            if answered && tier == Tier::Pool {
                                refused.insert(page);
                            }
                        }
                        Event::PageIn { page, .. } => {
                            under_way.remove(&page);
                            refused.remove(&page);
                        }
                        Event::Freed { run } => {
                            under_way.retain(|page| !run.contains(*page));
                            refused.retain(|page| !run.contains(*page));
                        }
                        _ => {}
                    }
                    continue;
                }
                Step::Evict(bytes) => bytes,
            };
            let in_pool: BTreeSet<PageId> = world
                .table
                .stored
                .iter()
                .filter(|(page, tier)| **tier == Tier::Pool && !under_way.contains(page))
                .filter(|(page, _)| !refused.contains(page))
                .map(|(page, _)| *page)
                .collect();
            // A page takes 100 bytes on average.
            let pool = TierFacts { used_bytes: 1000, pages: 10, ..TierFacts::default() };
            world.facts.tiers.insert(Tier::Pool, pool);
            let mut out = Vec::new();
            policy.pick_evictions(bytes, &world.view_with(&org), &mut out);
            let mut picked: Vec<PageId> = Vec::new();
            for unit in &out {
                let Unit::Pages(pages) = unit else { panic!("{unit:?}") };
                prop_assert!(pages.iter().all(|page| page.space() == pages[0].space()));
                picked.extend(pages);
            }
            let wanted = bytes.div_ceil(100) as usize;
            prop_assert_eq!(picked.len(), wanted.min(in_pool.len()));
            let ranks: Vec<usize> = picked.iter().map(|page| rank(org.class(*page))).collect();
            prop_assert!(ranks.is_sorted());
            let left = in_pool.iter().filter(|page| !picked.contains(page));
            let coldest_left = left.map(|page| rank(org.class(*page))).min().unwrap_or(3);
            prop_assert!(ranks.iter().all(|rank| *rank <= coldest_left));
            for page in picked {
                prop_assert!(in_pool.contains(&page));
                prop_assert!(under_way.insert(page), "{:?} was picked twice", page);
            }
        }
    }
}

#[test]
fn the_class_that_counts_is_the_present_one_and_among_equals_the_app_used_longest_ago() {
    let (mut org, mut policy, mut world) = (hotness_org(), ColdFirst::new(), World::new(&[0, 1]));
    let mut tell = |event: Event| {
        world.before(&event);
        org.on_event(&event, &world.view());
        world.after(&event);
    };
    let used = |page| Event::Access { page, kind: AccessKind::Seen, write: false };
    let response = |app| Event::ResponseComplete { app: AppId(app), response_ns: 1 };
    for app in [1, 0] {
        tell(Event::Resident { run: run(app, 10, 3) });
        tell(Event::Relaunch { app: AppId(app) });
        tell(used(page(app, 10)));
        tell(response(app));
        for page in run(app, 10, 2).pages() {
            tell(Event::Stored { page, tier: Tier::Pool, bytes: 100 });
        }
    }
    // App 0 was hot with page 10 when it left; its next relaunch uses page 12 instead.
    tell(Event::Relaunch { app: AppId(0) });
    tell(used(page(0, 12)));
    tell(response(0));
    let pool = TierFacts { used_bytes: 400, pages: 4, ..TierFacts::default() };
    world.facts.tiers.insert(Tier::Pool, pool);
    let mut out = Vec::new();
    policy.pick_evictions(400, &world.view_with(&org), &mut out);
    let expected = [(1, 11), (0, 11), (0, 10), (1, 10)].map(|(app, vpn)| page(app, vpn));
    let pages: Vec<PageId> = out
        .iter()
        .flat_map(|unit| match unit {
            Unit::Pages(pages) => pages.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pages, expected, "cold of both apps, then the warm page, then the hot one");
}

#[test]
fn what_stayed_in_the_pool_is_asked_for_again_after_a_while() {
    let (mut org, mut policy, mut world) = (hotness_org(), ColdFirst::new(), World::new(&[0]));
    let stored = Event::Stored { page: page(0, 10), tier: Tier::Pool, bytes: 100 };
    let pool = TierFacts { used_bytes: 100, pages: 1, ..TierFacts::default() };
    world.facts.tiers.insert(Tier::Pool, pool);
    world.facts.now = Ns(1_000_000_000_000);
    let mut tell = |world: &mut World, policy: &mut ColdFirst| {
        world.before(&stored);
        org.on_event(&stored, &world.view());
        policy.on_event(&stored, &world.view_with(&org));
        world.after(&stored);
        let mut out = Vec::new();
        policy.pick_evictions(100, &world.view_with(&org), &mut out);
        out.len()
    };
    assert_eq!(tell(&mut world, &mut policy), 1);
    assert_eq!(tell(&mut world, &mut policy), 0, "it stayed");
    world.facts.now = Ns(1_010_000_000_000);
    assert_eq!(tell(&mut world, &mut policy), 1);
}

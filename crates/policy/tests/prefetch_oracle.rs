//! Prefetchers against naive transcriptions: PreDecomp (Ariadne 4.4), the recorded set, the hot
//! list.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    AccessKind, AppId, Arrival, ByteSize, Event, Observe, PageId, PageRun, Prefetch, SpaceId, Tier,
    Trigger, Whole,
};
use clew_policy::prefetch::asap::{self, Asap};
use clew_policy::prefetch::by_trigger::ByTrigger;
use clew_policy::prefetch::group;
use clew_policy::prefetch::hot_list::{self, HotList};
use clew_policy::prefetch::pre_decomp::{self, Expire, PreDecomp};
use clew_policy::prefetch::recorded_set::{self, RecordedSet};
use clew_policy::reclaim::hotness_org::{self, HotAfter, HotnessOrg, Lists, Unseen};
use clew_policy::schemes::Answer;
use proptest::prelude::*;

use clew_conformance::{World, page, run};

const SPACES: u32 = 3;

/// Spaces 0 and 1 are of app 0, space 2 is of app 1.
fn world() -> World {
    World::new(&[0, 0, 1])
}

fn tell(world: &mut World, policies: &mut [&mut dyn Observe], event: &Event) {
    world.before(event);
    for policy in policies {
        policy.on_event(event, &world.view());
    }
    world.after(event);
}

fn stored(page: PageId) -> Event {
    Event::Stored { page, tier: Tier::Pool, bytes: 9 }
}

fn back(page: PageId, demand: bool) -> Event {
    Event::PageIn { page, tier: Tier::Pool, demand }
}

fn used(page: PageId) -> Event {
    Event::Access { page, kind: AccessKind::Seen, write: false }
}

fn any_page() -> impl Strategy<Value = PageId> {
    (0..SPACES, 30u64..60).prop_map(|(space, vpn)| page(space, vpn))
}

fn any_run() -> impl Strategy<Value = PageRun> {
    (0..SPACES, 30u64..60, 1u32..20).prop_map(|(space, vpn, count)| run(space, vpn, count))
}

/// Events that any prefetcher must follow.
fn event() -> impl Strategy<Value = Event> {
    let app = || (0u32..2).prop_map(AppId);
    let space = || (0..SPACES).prop_map(SpaceId);
    prop_oneof![
        24 => any_page().prop_map(stored),
        10 => (any_page(), any::<bool>()).prop_map(|(page, demand)| back(page, demand)),
        16 => any_page().prop_map(used),
        2 => any_page().prop_map(|page| Event::Stored { page, tier: Tier::Kernel, bytes: 9 }),
        2 => any_page().prop_map(|page| Event::PrefetchExpired { page }),
        2 => any_run().prop_map(|run| Event::Unused { run }),
        1 => any_run().prop_map(|run| Event::Freed { run }),
        1 => (any_run(), 30u64..60)
            .prop_map(|(from, vpn)| Event::Moved { from, to: page(from.first.space().0, vpn) }),
        1 => space().prop_map(|space| Event::SpaceEnd { space }),
        1 => (space(), app()).prop_map(|(space, app)| Event::SpaceStart { space, app, file: false }),
        1 => app().prop_map(|app| Event::Exit { app }),
        7 => app().prop_map(|app| Event::Relaunch { app }),
        5 => app().prop_map(|app| Event::ResponseComplete { app, response_ns: 1 }),
        1 => app().prop_map(|app| Event::Launch { app }),
    ]
}

/// Keeps the order of the world's events sound: a page comes back only if it is stored, and only
/// a page in DRAM leaves for the pool.
fn is_sound(world: &World, event: &Event) -> bool {
    let tier = |page: &PageId| world.table.stored.get(page);
    match event {
        Event::PageIn { page, .. } => tier(page).is_some(),
        Event::Stored { page, tier: Tier::Pool, .. } => {
            tier(page).is_none() && world.facts.app_of(page.space()).is_some()
        }
        Event::Stored { page, .. } => tier(page).is_some(),
        _ => true,
    }
}

/// `from` and everything in it under its new names; what was at the new names is gone.
fn moved(pages: &mut Vec<PageId>, from: PageRun, to: PageId) {
    let over = PageRun { first: to, ..from };
    pages.retain(|page| from.contains(*page) || !over.contains(*page));
    for page in pages {
        if from.contains(*page) {
            *page = to.plus(page.raw() - from.first.raw());
        }
    }
}

fn forget_ended(pages: &mut Vec<PageId>, event: &Event, world: &World) {
    match *event {
        Event::Freed { run } => pages.retain(|page| !run.contains(*page)),
        Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
            pages.retain(|page| page.space() != space);
        }
        Event::Exit { app } => {
            pages.retain(|page| world.facts.app_of(page.space()) != Some(app));
        }
        Event::Moved { from, to } => moved(pages, from, to),
        _ => {}
    }
}

// ---- PreDecomp -----------------------------------------------------------------------------------

const PRE_DECOMP: pre_decomp::Params =
    pre_decomp::Params { buffer_pages: Whole::of(8), expire: Expire::Recompress };

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_next_sector_is_that_of_a_naive_transcription(
        expire in prop_oneof![Just(Expire::Keep), Just(Expire::Recompress)],
        events in proptest::collection::vec(event(), 1..150),
    ) {
        let mut policy = PreDecomp::new(pre_decomp::Params { expire, ..PRE_DECOMP });
        let mut world = world();
        // Pages by sector, in the order of swap-out.
        let mut sectors: Vec<PageId> = Vec::new();
        // Those of them that have not come back, or came back and lost nothing by it.
        let mut at_slot: Vec<PageId> = Vec::new();
        for event in events {
            if !is_sound(&world, &event) {
                continue;
            }
            match event {
                Event::Stored { page, .. } if !at_slot.contains(&page) => {
                    sectors.retain(|at| *at != page);
                    sectors.push(page);
                    at_slot.push(page);
                }
                Event::PageIn { page, .. } => at_slot.retain(|at| *at != page),
                Event::PrefetchExpired { page }
                    if expire == Expire::Keep && sectors.contains(&page) =>
                {
                    at_slot.push(page);
                }
                _ => {}
            }
            forget_ended(&mut sectors, &event, &world);
            forget_ended(&mut at_slot, &event, &world);
            tell(&mut world, &mut [&mut policy], &event);
            for space in 0..SPACES {
                for vpn in 30..100 {
                    let asked = page(space, vpn);
                    let position = sectors.iter().position(|at| *at == asked);
                    let next = position.and_then(|at| sectors.get(at + 1)).copied();
                    let expected = next.filter(|next| {
                        world.table.stored.contains_key(next)
                            && world.facts.app_of(next.space()) == world.facts.app_of(asked.space())
                    });
                    for trigger in [Trigger::Fault(asked), Trigger::Hit(asked)] {
                        let mut out = Vec::new();
                        policy.pick_prefetch(trigger, &world.view(), &mut out);
                        prop_assert_eq!(&out, &expected.into_iter().collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}

#[test]
fn a_page_that_expires_keeps_its_sector_if_its_copy_was_kept() {
    for (expire, next) in [(Expire::Keep, Some(page(0, 12))), (Expire::Recompress, None)] {
        let mut world = world();
        let mut policy = PreDecomp::new(pre_decomp::Params { expire, ..PRE_DECOMP });
        run(0, 10, 4).pages().for_each(|p| tell(&mut world, &mut [&mut policy], &stored(p)));
        for event in [
            back(page(0, 11), false),
            Event::PrefetchExpired { page: page(0, 11) },
            stored(page(0, 11)),
        ] {
            tell(&mut world, &mut [&mut policy], &event);
        }
        let mut out = Vec::new();
        policy.pick_prefetch(Trigger::Fault(page(0, 11)), &world.view(), &mut out);
        assert_eq!(out, next.into_iter().collect::<Vec<_>>(), "{expire:?}");
    }
}

#[test]
fn pre_decomp_says_how_its_pages_wait_and_is_silent_at_a_relaunch() {
    let mut world = world();
    for (expire, keep) in [(Expire::Keep, true), (Expire::Recompress, false)] {
        let mut policy = PreDecomp::new(pre_decomp::Params { buffer_pages: Whole::of(5), expire });
        assert_eq!(policy.arrival(), Arrival::Parked { pages: 5, keep });
        run(0, 10, 3).pages().for_each(|p| tell(&mut world, &mut [&mut policy], &stored(p)));
        let mut out = Vec::new();
        policy.pick_prefetch(Trigger::Relaunch(AppId(0)), &world.view(), &mut out);
        assert_eq!(out, []);
        tell(&mut world, &mut [&mut policy], &back(page(0, 10), true));
        policy.pick_prefetch(Trigger::Fault(page(0, 10)), &world.view(), &mut out);
        assert_eq!(out, [page(0, 11)], "in the order of swap-out");
        tell(&mut world, &mut [&mut policy], &back(page(0, 11), false));
        tell(&mut world, &mut [&mut policy], &Event::PrefetchUsed { page: page(0, 11) });
        out.clear();
        policy.pick_prefetch(Trigger::Hit(page(0, 11)), &world.view(), &mut out);
        assert_eq!(out, [page(0, 12)], "a hit goes on");
        let metric =
            |name| policy.metrics().into_iter().find(|m| m.name == name).unwrap().value as u64;
        assert_eq!((metric("pre_decomp_predicted_pages"), metric("pre_decomp_used_pages")), (2, 1));
        tell(&mut world, &mut [&mut policy], &Event::Freed { run: run(0, 10, 3) });
    }
}

// ---- recorded set --------------------------------------------------------------------------------

/// What a set is, by definition: for each page when it was last seen used, and how many relaunches
/// since are known not to have used it.
#[derive(Default)]
struct NaiveSet {
    /// Relaunch of last use, place in it, relaunches known unused.
    pages: BTreeMap<PageId, (u32, usize, u32)>,
    ended: u32,
    asked: u32,
}

/// Whose turn it is to be left out, as far as that was seen: of the runs of eight neighbours each is left
/// out at one relaunch in so many, always the same one of them, and restored at the others.
#[derive(Default)]
struct Turns {
    /// By run, the turns that it may have.
    possible: BTreeMap<u64, BTreeSet<u32>>,
}

impl Turns {
    /// Of `wanted`, `restored` came back at relaunch `asked` of their app.
    fn left_out(
        &mut self,
        wanted: &[PageId],
        restored: &[PageId],
        asked: u32,
        one_in: u32,
    ) -> Result<(), TestCaseError> {
        if one_in == 0 {
            prop_assert_eq!(wanted.len(), restored.len());
            return Ok(());
        }
        for page in wanted {
            let possible =
                self.possible.entry(page.raw() / 8).or_insert_with(|| (0..one_in).collect());
            let is_left_out = !restored.contains(page);
            possible.retain(|turn| (*turn == asked % one_in) == is_left_out);
            prop_assert!(!possible.is_empty(), "{:?} at {} of {}", page, asked, one_in);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_recorded_set_agrees_with_its_definition(
        relaunches in 1u32..4,
        batch_pages in prop_oneof![Just(1u32), Just(4), Just(1000)],
        leave_out_one_in in prop_oneof![Just(0u32), Just(3)],
        all_touches_seen: bool,
        events in proptest::collection::vec(event(), 1..150),
    ) {
        let params = recorded_set::Params {
            relaunches: Whole::of(relaunches),
            batch_pages: Whole::of(batch_pages),
            leave_out_one_in: Whole::of(leave_out_one_in),
            pays_pct: Whole::of(0),
        };
        let mut policy = RecordedSet::new(params);
        let mut world = world();
        world.facts.all_touches_seen = all_touches_seen;
        let mut sets: BTreeMap<AppId, NaiveSet> = BTreeMap::new();
        let mut turns = Turns::default();
        let mut going_on: Option<AppId> = None;
        for event in events {
            if !is_sound(&world, &event) {
                continue;
            }
            let ended = match event {
                Event::ResponseComplete { app, .. } => going_on.filter(|of| *of == app),
                Event::Launch { .. } | Event::Relaunch { .. } => going_on,
                _ => None,
            };
            world.before(&event);
            let seen = ended.and_then(|app| world.facts.launch_sets.get(&app)?.last().cloned());
            if let (Some(app), Some(seen)) = (ended, seen.filter(|seen| !seen.is_empty())) {
                let set = sets.entry(app).or_default();
                set.ended += 1;
                for (page, (.., unused)) in &mut set.pages {
                    if all_touches_seen || world.table.stored.contains_key(page) {
                        *unused += 1;
                    }
                }
                for (rank, page) in seen.iter().enumerate() {
                    set.pages.insert(*page, (set.ended, rank, 0));
                }
            }
            match event {
                Event::Relaunch { app } => going_on = Some(app),
                Event::Launch { .. } => going_on = None,
                Event::ResponseComplete { .. } => going_on = going_on.filter(|_| ended.is_none()),
                Event::Exit { app } => going_on = going_on.filter(|of| *of != app),
                Event::Unused { run } => {
                    if let Some(set) =
                        world.facts.app_of(run.first.space()).and_then(|app| sets.get_mut(&app))
                    {
                        for (page, (.., unused)) in &mut set.pages {
                            *unused += u32::from(run.contains(*page));
                        }
                    }
                }
                _ => {}
            }
            for set in sets.values_mut() {
                set.pages.retain(|_, (.., unused)| *unused < relaunches);
                let mut pages: Vec<PageId> = set.pages.keys().copied().collect();
                let old: Vec<PageId> = pages.clone();
                match event {
                    Event::Moved { from, to } => {
                        let over = PageRun { first: to, ..from };
                        let kept = old.iter().filter(|p| from.contains(**p) || !over.contains(**p));
                        let values: Vec<_> = kept.map(|page| set.pages[page]).collect();
                        moved(&mut pages, from, to);
                        set.pages = pages.into_iter().zip(values).collect();
                    }
                    _ => {
                        forget_ended(&mut pages, &event, &world);
                        set.pages.retain(|page, _| pages.contains(page));
                    }
                }
            }
            if let Event::Exit { app } = event {
                sets.remove(&app);
            }
            policy.on_event(&event, &world.view());
            world.after(&event);
            if let Event::Relaunch { app } = event {
                let mut out = Vec::new();
                policy.pick_prefetch(Trigger::Relaunch(app), &world.view(), &mut out);
                let set = sets.entry(app).or_default();
                // The policy counts relaunches from the first that had something to restore.
                set.asked += u32::from(set.ended > 0);
                let one_in = if all_touches_seen { 0 } else { leave_out_one_in };
                let stored = |page: &PageId| world.table.stored.contains_key(page);
                let mut expected: Vec<PageId> = set.pages.keys().copied().filter(stored).collect();
                expected.sort_by_key(|page| {
                    let (relaunch, rank, _) = set.pages[page];
                    (std::cmp::Reverse(relaunch), rank)
                });
                turns.left_out(&expected, &out, set.asked, one_in)?;
                expected.retain(|page| out.contains(page));
                for batch in expected.chunks_mut(batch_pages as usize) {
                    batch.sort();
                }
                prop_assert_eq!(out, expected);
            }
        }
    }
}

#[test]
fn what_the_newest_relaunch_used_comes_first_then_what_older_ones_did() {
    let mut world = world();
    let mut policy = RecordedSet::new(recorded_set::Params {
        relaunches: Whole::of(2),
        batch_pages: Whole::of(1),
        leave_out_one_in: Whole::of(0),
        pays_pct: Whole::of(0),
    });
    let order = |vpns: &[u64]| vpns.iter().map(|vpn| page(0, *vpn)).collect::<Vec<_>>();
    for (uses, expected) in [
        (&[35, 30, 33][..], &[][..]),
        (&[41, 30], &[35, 30, 33]),
        (&[50], &[41, 30, 35, 33]),
        // Two relaunches that are known not to have used them have dropped 35 and 33.
        (&[], &[50, 41, 30]),
    ] {
        tell(&mut world, &mut [&mut policy], &Event::Relaunch { app: AppId(0) });
        let mut out = Vec::new();
        policy.pick_prefetch(Trigger::Relaunch(AppId(0)), &world.view(), &mut out);
        assert_eq!(out, order(expected));
        for vpn in uses {
            tell(&mut world, &mut [&mut policy], &used(page(0, *vpn)));
            tell(&mut world, &mut [&mut policy], &stored(page(0, *vpn)));
        }
        let end = Event::ResponseComplete { app: AppId(0), response_ns: 1 };
        tell(&mut world, &mut [&mut policy], &end);
    }
}

#[test]
fn what_does_not_pay_is_not_restored_for_longer_each_time() {
    // Of ten pages restored so many are used.
    let restored_at = |uses: &dyn Fn(usize) -> u64| {
        let mut world = world();
        let pays_pct = Whole::of(50);
        let leave_out_one_in = Whole::of(0);
        let params = recorded_set::Params { pays_pct, leave_out_one_in, ..Default::default() };
        let mut policy = RecordedSet::new(params);
        let mut at = Vec::new();
        for relaunch in 0..22 {
            tell(&mut world, &mut [&mut policy], &Event::Relaunch { app: AppId(0) });
            let mut out = Vec::new();
            policy.pick_prefetch(Trigger::Relaunch(AppId(0)), &world.view(), &mut out);
            if !out.is_empty() {
                assert_eq!(out.len(), 10);
                at.push(relaunch);
                for vpn in 30..40 {
                    let page = page(0, vpn);
                    let event = match vpn < 30 + uses(relaunch) {
                        true => Event::PrefetchUsed { page },
                        false => Event::PrefetchExpired { page },
                    };
                    tell(&mut world, &mut [&mut policy], &event);
                }
            }
            for vpn in 30..40 {
                let (use_of, back) = (used(page(0, vpn)), stored(page(0, vpn)));
                tell(&mut world, &mut [&mut policy], &use_of);
                tell(&mut world, &mut [&mut policy], &back);
            }
            let end = Event::ResponseComplete { app: AppId(0), response_ns: 1 };
            tell(&mut world, &mut [&mut policy], &end);
        }
        at
    };
    assert_eq!(restored_at(&|_| 5), (1..22).collect::<Vec<_>>());
    assert_eq!(restored_at(&|_| 4), [1, 6, 15]);
    // Once it pays, all is as at first.
    assert_eq!(restored_at(&|at| if at == 6 { 9 } else { 0 }), [1, 6, 7, 12, 21]);
}

// ---- hot list ------------------------------------------------------------------------------------

fn hotness_org() -> HotnessOrg {
    HotnessOrg::new(hotness_org::Params {
        lists: Lists::All,
        initial_hot: ByteSize(0),
        unseen: Unseen::Keep,
        hot_after: HotAfter::FirstUse,
        front: hotness_org::Front::InClass,
        others_kept_pct: Whole::of(0),
    })
}

#[test]
fn the_hot_list_restores_what_is_hot_and_stored_newest_batch_first() {
    let (mut org, mut world) = (hotness_org(), world());
    let params = hot_list::Params {
        batch_pages: Whole::of(3),
        warm_relaunches: Whole::of(1),
        leave_out_one_in: Whole::of(0),
    };
    let mut policy = HotList::new(params);
    tell(&mut world, &mut [&mut org, &mut policy], &Event::Resident { run: run(0, 30, 20) });
    tell(&mut world, &mut [&mut org, &mut policy], &Event::Relaunch { app: AppId(0) });
    for vpn in [41, 33, 38, 35, 44, 31] {
        tell(&mut world, &mut [&mut org, &mut policy], &used(page(0, vpn)));
    }
    let end = Event::ResponseComplete { app: AppId(0), response_ns: 1 };
    tell(&mut world, &mut [&mut org, &mut policy], &end);
    tell(&mut world, &mut [&mut org, &mut policy], &used(page(0, 30)));
    for vpn in [41, 33, 38, 35, 44, 45, 30] {
        tell(&mut world, &mut [&mut org, &mut policy], &stored(page(0, vpn)));
    }
    let mut out = Vec::new();
    policy.pick_prefetch(Trigger::Relaunch(AppId(0)), &world.view_with(&org), &mut out);
    // 30 was used outside of a relaunch, and is warm: this once it comes too, behind the hot ones.
    assert_eq!(out, [35, 38, 44, 30, 33, 41].map(|vpn| page(0, vpn)));
    out.clear();
    policy.pick_prefetch(Trigger::Relaunch(AppId(0)), &world.view_with(&org), &mut out);
    assert_eq!(out, [35, 38, 44, 33, 41].map(|vpn| page(0, vpn)));
    out.clear();
    policy.pick_prefetch(Trigger::Relaunch(AppId(1)), &world.view_with(&org), &mut out);
    policy.pick_prefetch(Trigger::Fault(page(0, 41)), &world.view_with(&org), &mut out);
    assert_eq!(out, []);
}

/// Ten relaunches of a program whose uses change, where only faults are seen: what is no longer used
/// stops being restored, what is used goes on being so.
#[test]
fn leaving_out_forgets_what_is_no_longer_used() {
    for recorded in [false, true] {
        let (mut org, mut world) = (hotness_org(), world());
        let mut policy: Box<dyn Prefetch> = if recorded {
            let params = recorded_set::Params {
                relaunches: Whole::of(1),
                batch_pages: Whole::of(64),
                leave_out_one_in: Whole::of(3),
                pays_pct: Whole::of(0),
            };
            Box::new(RecordedSet::new(params))
        } else {
            Box::new(HotList::new(hot_list::Params {
                batch_pages: Whole::of(64),
                warm_relaunches: Whole::of(0),
                leave_out_one_in: Whole::of(3),
            }))
        };
        let all: BTreeSet<PageId> = run(0, 0, 240).pages().collect();
        let old: BTreeSet<PageId> = run(0, 0, 160).pages().collect();
        let new: BTreeSet<PageId> = run(0, 80, 160).pages().collect();
        tell(&mut world, &mut [&mut org, &mut *policy], &Event::Resident { run: run(0, 0, 240) });
        let mut restored = Vec::new();
        for relaunch in 0..10 {
            for page in all
                .iter()
                .filter(|page| !world.table.stored.contains_key(page))
                .copied()
                .collect::<Vec<_>>()
            {
                tell(&mut world, &mut [&mut org, &mut *policy], &stored(page));
            }
            tell(&mut world, &mut [&mut org, &mut *policy], &Event::Relaunch { app: AppId(0) });
            restored.clear();
            let trigger = Trigger::Relaunch(AppId(0));
            policy.pick_prefetch(trigger, &world.view_with(&org), &mut restored);
            for page in &restored {
                tell(&mut world, &mut [&mut org, &mut *policy], &back(*page, false));
            }
            let uses = if relaunch < 2 { &old } else { &new };
            for page in uses {
                if world.table.stored.contains_key(page) {
                    let fault =
                        Event::Access { page: *page, kind: AccessKind::Fault, write: false };
                    tell(&mut world, &mut [&mut org, &mut *policy], &fault);
                    tell(&mut world, &mut [&mut org, &mut *policy], &back(*page, true));
                }
            }
            let end = Event::ResponseComplete { app: AppId(0), response_ns: 1 };
            tell(&mut world, &mut [&mut org, &mut *policy], &end);
        }
        let stale = restored.iter().filter(|page| !new.contains(page)).count();
        let useful = restored.len() - stale;
        assert_eq!(stale, 0, "of 80 pages no longer used");
        assert!((80..=140).contains(&useful), "{useful} of 160 restored, one run in 3 left out");
    }
}

#[test]
fn two_prefetchers_answer_by_trigger() {
    let mut world = world();
    let recorded = RecordedSet::new(recorded_set::Params {
        relaunches: Whole::of(1),
        batch_pages: Whole::of(1),
        leave_out_one_in: Whole::of(0),
        pays_pct: Whole::of(0),
    });
    let mut policy = ByTrigger::new(Box::new(recorded), Box::new(PreDecomp::new(PRE_DECOMP)));
    assert_eq!(policy.arrival(), Arrival::Parked { pages: 8, keep: false });
    tell(&mut world, &mut [&mut policy], &Event::Relaunch { app: AppId(0) });
    tell(&mut world, &mut [&mut policy], &used(page(0, 11)));
    tell(
        &mut world,
        &mut [&mut policy],
        &Event::ResponseComplete { app: AppId(0), response_ns: 1 },
    );
    run(0, 10, 3).pages().for_each(|p| tell(&mut world, &mut [&mut policy], &stored(p)));
    tell(&mut world, &mut [&mut policy], &Event::Relaunch { app: AppId(0) });
    let mut out = Vec::new();
    policy.pick_prefetch(Trigger::Relaunch(AppId(0)), &world.view(), &mut out);
    assert_eq!(out, [page(0, 11)]);
    out.clear();
    policy.pick_prefetch(Trigger::Fault(page(0, 11)), &world.view(), &mut out);
    assert_eq!(out, [page(0, 12)]);
    let names: Vec<&str> = policy.metrics().iter().map(|metric| metric.name).collect();
    assert!(names.contains(&"recorded_set_pages") && names.contains(&"pre_decomp_used_pages"));
}

#[test]
fn asap_restores_what_enough_of_the_last_switches_used_newest_first() {
    let mut world = world();
    let app = AppId(0);
    let sets: [&[u64]; 4] = [&[30, 31], &[32, 33, 30], &[33, 40], &[41, 33, 30]];
    let sets = sets.map(|set| set.iter().map(|vpn| page(0, *vpn)).collect());
    world.facts.launch_sets.insert(app, sets.to_vec());
    for vpn in [30, 31, 32, 33, 41] {
        world.table.stored.insert(page(0, vpn), Tier::Pool);
    }
    let pick = |switches, used_in, batch_pages| {
        let params = asap::Params {
            switches: Whole::of(switches),
            used_in: Whole::of(used_in),
            batch_pages: Whole::of(batch_pages),
        };
        let mut out = Vec::new();
        let mut policy = Asap::new(params);
        policy.pick_prefetch(Trigger::Relaunch(app), &world.view(), &mut out);
        policy.pick_prefetch(Trigger::Relaunch(AppId(1)), &world.view(), &mut out);
        policy.pick_prefetch(Trigger::Fault(page(0, 30)), &world.view(), &mut out);
        out.iter().map(|page| page.vpn().0).collect::<Vec<u64>>()
    };
    // 40 is not stored.
    assert_eq!(pick(4, 1, 1), [41, 33, 30, 32, 31]);
    assert_eq!(pick(4, 1, 3), [30, 33, 41, 31, 32]);
    assert_eq!(pick(2, 1, 1), [41, 33, 30]);
    assert_eq!(pick(4, 3, 1), [33, 30]);
    assert_eq!(pick(3, 3, 1), [33]);
    assert_eq!(pick(1, 1, 512), [30, 33, 41]);
}

#[test]
fn a_group_waits_parked_and_its_use_is_counted() {
    let mut world = world();
    let mut policy = group::Params { buffer_pages: Whole::of(7) }.build();
    assert_eq!(policy.arrival(), Arrival::Parked { pages: 7, keep: true });
    for vpn in [30, 31, 32] {
        tell(&mut world, &mut [&mut *policy], &stored(page(0, vpn)));
        tell(&mut world, &mut [&mut *policy], &back(page(0, vpn), vpn == 30));
    }
    tell(&mut world, &mut [&mut *policy], &Event::PrefetchUsed { page: page(0, 31) });
    tell(&mut world, &mut [&mut *policy], &Event::PrefetchExpired { page: page(0, 32) });
    let counted: Vec<f64> = policy.metrics().iter().map(|metric| metric.value).collect();
    assert_eq!(counted, [2.0, 1.0, 1.0]);
    let mut out = Vec::new();
    policy.pick_prefetch(Trigger::Fault(page(0, 30)), &world.view(), &mut out);
    assert!(out.is_empty());
}

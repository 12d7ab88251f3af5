//! Frames by last insertion against a list that is searched from its end, as z3fold's is
//! (`z3fold_alloc` and `z3fold_reclaim_page` in mm/z3fold.c), over random lives of pages in frames.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    AppId, Event, Eviction, Facts, FrameFacts, Observe, PageCounts, PageFacts, PageId, SpaceId,
    Tier, Unit, View,
};
use clew_policy::eviction::z3fold_lru::Z3foldLru;
use proptest::prelude::*;

use clew_conformance::{page, run};

/// Where pages are: those in the pool with their frame, if they are in one.
#[derive(Default)]
struct Pool {
    of: BTreeMap<PageId, Option<u32>>,
    flash: BTreeSet<PageId>,
}

impl PageFacts for Pool {
    fn tier(&self, page: PageId) -> Option<Tier> {
        match self.of.contains_key(&page) {
            true => Some(Tier::Pool),
            false => self.flash.contains(&page).then_some(Tier::Flash),
        }
    }

    fn counts(&self, _space: SpaceId) -> PageCounts {
        PageCounts::default()
    }

    fn for_each(&self, _space: SpaceId, _visit: &mut dyn FnMut(PageId, Option<Tier>)) {}

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        let frame = (*self.of.get(&page)?)?;
        let zpages = self.of.values().filter(|of| **of == Some(frame)).count() as u8;
        Some(FrameFacts { frame, zpages, free_chunks: 7, used_chunks: 57 })
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Put into this frame, or into none.
    Put(PageId, Option<u32>),
    Back(PageId),
    /// Gone from the pool, and nobody is told.
    Quietly(PageId),
    Freed(PageId, u32),
    Moved(PageId, u32, u64),
    End(SpaceId),
    Exit(AppId),
    Evict(u64),
    /// What was answered has gone to flash, or stays: one bit a page.
    Evicted(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let any_page = || (0u32..3, 30u64..60).prop_map(|(space, vpn)| page(space, vpn));
    let frame = prop_oneof![9 => (0u32..16).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        12 => (any_page(), frame).prop_map(|(page, frame)| Step::Put(page, frame)),
        3 => any_page().prop_map(Step::Back),
        1 => any_page().prop_map(Step::Quietly),
        1 => (any_page(), 1u32..6).prop_map(|(page, count)| Step::Freed(page, count)),
        1 => (any_page(), 1u32..6, 40u64..70).prop_map(|(page, n, to)| Step::Moved(page, n, to)),
        1 => (0u32..3).prop_map(|space| Step::End(SpaceId(space))),
        1 => (0u32..2).prop_map(|app| Step::Exit(AppId(app))),
        4 => (0u64..5 * 4096).prop_map(Step::Evict),
        4 => any::<u64>().prop_map(Step::Evicted),
    ]
}

/// The list, the newest frame first, with the pages of each that are to be heard of.
#[derive(Default)]
struct Naive {
    lru: Vec<u32>,
    pages: Vec<(PageId, u32)>,
    answered: Vec<PageId>,
}

impl Naive {
    fn gone(&mut self, gone: impl Fn(PageId) -> bool) {
        self.pages.retain(|(page, _)| !gone(*page));
        self.answered.retain(|page| !gone(*page));
    }

    fn newest(&mut self, frame: u32) {
        self.lru.retain(|other| *other != frame);
        self.lru.insert(0, frame);
    }

    fn put(&mut self, page: PageId, frame: Option<u32>) {
        let stays = frame.is_some_and(|frame| self.pages.contains(&(page, frame)));
        if !stays || self.answered.contains(&page) {
            frame.into_iter().for_each(|frame| self.newest(frame));
        }
        self.gone(|of| of == page);
        self.pages.extend(frame.map(|frame| (page, frame)));
    }

    fn evict(&mut self, bytes: u64, pool: &Pool) -> Vec<BTreeSet<PageId>> {
        let mut out = Vec::new();
        while (out.len() as u64) * 4096 < bytes
            && let Some(frame) = self.lru.pop()
        {
            // What is not in the frame any more, whether it was answered or not, is nothing of it.
            let is_there = |page: PageId| pool.of.get(&page) == Some(&Some(frame));
            let of_frame = self.pages.iter().filter(|(_, of)| *of == frame);
            let (there, gone): (BTreeSet<PageId>, BTreeSet<PageId>) =
                of_frame.map(|(page, _)| *page).partition(|page| is_there(*page));
            self.gone(|page| gone.contains(&page));
            let there: BTreeSet<PageId> =
                there.into_iter().filter(|page| !self.answered.contains(page)).collect();
            if !there.is_empty() {
                self.answered.extend(&there);
                out.push(there);
            }
        }
        out
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_frame_without_insertion_for_longest_leaves_whole(
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let (mut policy, mut naive, mut pool) = (Z3foldLru::new(), Naive::default(), Pool::default());
        let space_app = [0, 0, 1].map(|app| Some(AppId(app))).to_vec();
        let facts = Facts { space_app, ..Facts::default() };
        for step in steps {
            let mut tell = |pool: &Pool, event: &Event| {
                policy.on_event(event, &View { facts: &facts, pages: pool, classes: None });
            };
            match step {
                Step::Put(page, frame) => {
                    pool.flash.remove(&page);
                    pool.of.insert(page, frame);
                    tell(&pool, &Event::Stored { page, tier: Tier::Pool, bytes: 9 });
                    naive.put(page, frame);
                }
                Step::Back(page) => {
                    if let Some(tier) = pool.tier(page) {
                        pool.of.remove(&page);
                        pool.flash.remove(&page);
                        tell(&pool, &Event::PageIn { page, tier, demand: true });
                        naive.gone(|of| of == page);
                    }
                }
                Step::Quietly(page) => drop(pool.of.remove(&page)),
                Step::Freed(first, count) => {
                    let run = run(first.space().0, first.vpn().0, count);
                    pool.of.retain(|page, _| !run.contains(*page));
                    tell(&pool, &Event::Freed { run });
                    naive.gone(|page| run.contains(page));
                }
                Step::Moved(first, count, to) => {
                    let (from, there) =
                        (run(first.space().0, first.vpn().0, count), run(2, to, count));
                    if first.space().0 == 2 {
                        continue;
                    }
                    pool.of.retain(|page, _| !there.contains(*page));
                    let renamed = |of: PageId| page(2, of.vpn().0 - first.vpn().0 + to);
                    for of in from.pages() {
                        if let Some(frame) = pool.of.remove(&of) {
                            pool.of.insert(renamed(of), frame);
                        }
                    }
                    tell(&pool, &Event::Moved { from, to: there.first });
                    naive.gone(|page| there.contains(page));
                    for of in from.pages() {
                        let answered = naive.answered.contains(&of);
                        let at = naive.pages.iter().position(|(page, _)| *page == of);
                        let Some(frame) = at.map(|at| naive.pages.remove(at).1) else { continue };
                        naive.gone(|page| page == of);
                        naive.pages.push((renamed(of), frame));
                        // Its order was for another page, and its frame is not empty.
                        if answered {
                            naive.newest(frame);
                        }
                    }
                }
                Step::End(space) => {
                    pool.of.retain(|page, _| page.space() != space);
                    tell(&pool, &Event::SpaceEnd { space });
                    naive.gone(|page| page.space() == space);
                }
                Step::Exit(app) => {
                    let of_app = |page: PageId| (page.space().0 == 2) == (app.0 == 1);
                    pool.of.retain(|page, _| !of_app(*page));
                    tell(&pool, &Event::Exit { app });
                    naive.gone(of_app);
                }
                Step::Evict(bytes) => {
                    let mut out = Vec::new();
                    let view = View { facts: &facts, pages: &pool, classes: None };
                    policy.pick_evictions(bytes, &view, &mut out);
                    let picked: Vec<BTreeSet<PageId>> = out
                        .into_iter()
                        .map(|unit| match unit {
                            Unit::Pages(pages) => pages.into_iter().collect(),
                            unit => panic!("{unit:?}"),
                        })
                        .collect();
                    prop_assert_eq!(picked, naive.evict(bytes, &pool));
                }
                Step::Evicted(bits) => {
                    for (page, bit) in naive.answered.clone().into_iter().zip(0..) {
                        if bits >> (bit % 64) & 1 == 0 || pool.tier(page) != Some(Tier::Pool) {
                            continue;
                        }
                        if bits >> ((bit + 1) % 64) & 1 == 0 {
                            let frame = pool.of[&page];
                            tell(&pool, &Event::Stored { page, tier: Tier::Pool, bytes: 9 });
                            naive.put(page, frame);
                        } else {
                            pool.of.remove(&page);
                            pool.flash.insert(page);
                            tell(&pool, &Event::Stored { page, tier: Tier::Flash, bytes: 9 });
                            naive.gone(|of| of == page);
                        }
                    }
                }
            }
        }
    }
}

/// What nobody put is not there; what has no frame never leaves.
#[test]
fn pages_without_a_frame_stay() {
    let (mut policy, mut pool) = (Z3foldLru::new(), Pool::default());
    let facts = Facts::default();
    for vpn in 0..9 {
        pool.of.insert(page(0, vpn), (vpn % 2 == 0).then_some(vpn as u32 / 4));
        let event = Event::Stored { page: page(0, vpn), tier: Tier::Pool, bytes: 9 };
        policy.on_event(&event, &View { facts: &facts, pages: &pool, classes: None });
    }
    let mut out = Vec::new();
    let view = View { facts: &facts, pages: &pool, classes: None };
    policy.pick_evictions(1 << 30, &view, &mut out);
    let pages = |pages: &[u64]| Unit::Pages(pages.iter().map(|vpn| page(0, *vpn)).collect());
    assert_eq!(out, [pages(&[0, 2]), pages(&[4, 6]), pages(&[8])]);
    let counted = policy.metrics();
    let of = |name: &str| counted.iter().find(|metric| metric.name == name).unwrap().value;
    assert_eq!((of("z3fold_lru_evicted_frames"), of("z3fold_lru_evicted_pages")), (3.0, 5.0));
}

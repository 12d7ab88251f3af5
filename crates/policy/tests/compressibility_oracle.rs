//! Compressibility-aware replacement against lists that are searched, weights in floating point and averages that are
//! summed up anew, over random lives of pages in frames; and what it costs, against LRU and against always taking the
//! frame of the most weight.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    AppId, Event, Eviction, Facts, FrameFacts, Observe, PageCounts, PageFacts, PageId, Seeded,
    SpaceId, Tier, Unit, View, Whole,
};
use clew_policy::eviction::compressibility::{Compressibility, Params, weight};
use clew_policy::eviction::z3fold_lru::Z3foldLru;
use proptest::prelude::*;

use clew_conformance::{page, run};

/// Pages of this space are of files.
const FILES: u32 = 1;

/// Where pages are: those in the pool with their frame, if they are in one, and their chunks.
#[derive(Clone, Default)]
struct Pool {
    of: BTreeMap<PageId, Option<(u32, u8)>>,
    flash: BTreeSet<PageId>,
}

impl Pool {
    fn in_frame(&self, frame: u32) -> impl Iterator<Item = (PageId, u8)> {
        let placed = self.of.iter().filter_map(|(page, of)| Some((*page, (*of)?)));
        placed.filter(move |(_, (of, _))| *of == frame).map(|(page, (_, chunks))| (page, chunks))
    }
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
        let (frame, _) = (*self.of.get(&page)?)?;
        let (mut zpages, mut used_chunks) = (0, 0);
        for (_, chunks) in self.in_frame(frame) {
            zpages += 1;
            used_chunks += chunks;
        }
        Some(FrameFacts { frame, zpages, free_chunks: 0, used_chunks })
    }
}

fn is_file(page: PageId) -> bool {
    page.space().0 == FILES
}

fn facts() -> Facts {
    let space_app = [0, 0, 1].map(|app| Some(AppId(app))).to_vec();
    Facts { space_app, file_spaces: [SpaceId(FILES)].into(), ..Facts::default() }
}

#[derive(Clone, Debug)]
enum Step {
    /// Put into this frame, if it has room, or into none.
    Put(PageId, Option<u32>, u8),
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
        12 => (any_page(), frame, 1u8..64)
            .prop_map(|(page, frame, chunks)| Step::Put(page, frame, chunks)),
        3 => any_page().prop_map(Step::Back),
        1 => any_page().prop_map(Step::Quietly),
        1 => (any_page(), 1u32..6).prop_map(|(page, count)| Step::Freed(page, count)),
        1 => (any_page(), 1u32..6, 100u64..130).prop_map(|(page, n, to)| Step::Moved(page, n, to)),
        1 => (0u32..3).prop_map(|space| Step::End(SpaceId(space))),
        1 => (0u32..2).prop_map(|app| Step::Exit(AppId(app))),
        4 => (0u64..5 * 4096).prop_map(Step::Evict),
        4 => any::<u64>().prop_map(Step::Evicted),
    ]
}

/// What is known of a frame: its pages with their stamps.
#[derive(Default)]
struct Frame {
    pages: Vec<(PageId, u64)>,
}

/// The weight of a frame, as III-C has it.
fn exact_weight(zpages: f64, files: f64, is_quarter_free: bool) -> f64 {
    let ratio = if is_quarter_free { 0.75 } else { 1.0 } / zpages;
    let costs = files + 4.0 * (zpages - files);
    (10_000.0 / (costs / ratio) + 1e-9).floor()
}

/// Zpages, pages of files among them, whether a quarter is free; in the order of figure 7.
type Category = (u8, u8, bool);

struct Naive {
    frames: BTreeMap<u32, Frame>,
    /// The newest frame first, each with the sum of stamps that it was put there with.
    lists: BTreeMap<Category, Vec<(u32, u64)>>,
    answered: Vec<PageId>,
    clock: u64,
    random: Seeded,
}

impl Naive {
    fn new(seed: u64) -> Naive {
        let random = Seeded::of(seed, &[]);
        let (frames, lists) = (BTreeMap::new(), BTreeMap::new());
        Naive { frames, lists, answered: Vec::new(), clock: 0, random }
    }

    fn is_listed(&self, frame: u32) -> bool {
        self.lists.values().flatten().any(|(of, _)| *of == frame)
    }

    fn unlist(&mut self, frame: u32) {
        self.lists.values_mut().for_each(|list| list.retain(|(of, _)| *of != frame));
    }

    fn list(&mut self, frame: u32, facts: FrameFacts, newest: bool) {
        self.unlist(frame);
        let pages = &self.frames[&frame].pages;
        let sum = pages.iter().map(|(_, stamp)| stamp).sum::<u64>();
        let files = pages.iter().filter(|(page, _)| is_file(*page)).count() as u8;
        let zpages = facts.zpages.clamp(1, 3);
        let quarter = f64::from(facts.used_chunks) <= 48.0;
        let list = self.lists.entry((zpages, files.min(zpages), quarter)).or_default();
        let average = list.iter().map(|(_, sum)| *sum as f64).sum::<f64>() / list.len() as f64;
        if newest || list.is_empty() || sum as f64 > average {
            list.insert(0, (frame, sum));
        } else {
            list.push((frame, sum));
        }
    }

    fn frame_of(&self, page: PageId) -> Option<u32> {
        let has = |frame: &Frame| frame.pages.iter().any(|(of, _)| *of == page);
        self.frames.iter().find(|(_, frame)| has(frame)).map(|(number, _)| *number)
    }

    fn gone(&mut self, page: PageId, pool: &Pool, relist: bool) {
        self.answered.retain(|of| *of != page);
        let Some(number) = self.frame_of(page) else { return };
        let frame = self.frames.get_mut(&number).expect("it is there");
        frame.pages.retain(|(of, _)| *of != page);
        let others: Vec<PageId> = frame.pages.iter().map(|(page, _)| *page).collect();
        if others.is_empty() {
            self.frames.remove(&number);
            self.unlist(number);
        } else if relist && self.is_listed(number) {
            let mut known = others.iter().filter_map(|page| pool.frame(*page));
            if let Some(facts) = known.rfind(|facts| facts.frame == number) {
                self.list(number, facts, false);
            }
        }
    }

    fn put(&mut self, page: PageId, pool: &Pool) {
        let stayed = self.answered.contains(&page);
        let Some(facts) = pool.frame(page) else { return self.gone(page, pool, true) };
        self.answered.retain(|of| *of != page);
        if self.frame_of(page) == Some(facts.frame) {
            if stayed {
                self.list(facts.frame, facts, true);
            }
            return;
        }
        self.gone(page, pool, true);
        let stamp = self.clock;
        self.clock += 1;
        self.frames.entry(facts.frame).or_default().pages.push((page, stamp));
        self.list(facts.frame, facts, false);
    }

    fn draw(&mut self) -> Option<u32> {
        let of = |((zpages, files, quarter), list): (&Category, &Vec<(u32, u64)>)| {
            let weight = exact_weight((*zpages).into(), (*files).into(), *quarter);
            (weight as u64 * list.len() as u64, list.last().map(|(frame, _)| *frame))
        };
        let tickets: Vec<(u64, Option<u32>)> = self.lists.iter().map(of).collect();
        let all = tickets.iter().map(|(tickets, _)| tickets).sum::<u64>();
        if all == 0 {
            return None;
        }
        let drawn = self.random.below(all);
        let mut below = 0;
        tickets.into_iter().find_map(|(tickets, tail)| {
            below += tickets;
            tail.filter(|_| drawn < below)
        })
    }

    fn evict(&mut self, bytes: u64, pool: &Pool) -> Vec<BTreeSet<PageId>> {
        let mut out = Vec::new();
        while (out.len() as u64) * 4096 < bytes
            && let Some(number) = self.draw()
        {
            self.unlist(number);
            let pages: Vec<PageId> =
                self.frames[&number].pages.iter().map(|(page, _)| *page).collect();
            let is_there = |page: &PageId| pool.frame(*page).is_some_and(|f| f.frame == number);
            let (there, gone): (Vec<PageId>, Vec<PageId>) = pages.into_iter().partition(is_there);
            gone.into_iter().for_each(|page| self.gone(page, pool, false));
            let there: BTreeSet<PageId> =
                there.into_iter().filter(|page| !self.answered.contains(page)).collect();
            if !there.is_empty() {
                self.answered.extend(&there);
                out.push(there);
            }
        }
        out
    }

    fn known(&self, wanted: impl Fn(PageId) -> bool) -> Vec<PageId> {
        let all = self.frames.values().flat_map(|frame| &frame.pages).map(|(page, _)| *page);
        let all: BTreeSet<PageId> = all.filter(|page| wanted(*page)).collect();
        all.into_iter().collect()
    }

    fn gone_all(&mut self, wanted: impl Fn(PageId) -> bool, pool: &Pool) {
        self.known(wanted).into_iter().for_each(|page| self.gone(page, pool, true));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_tail_of_the_drawn_list_leaves_whole(
        steps in proptest::collection::vec(step(), 1..150),
        seed in 0u32..1000,
    ) {
        let params = Params { seed: Whole::of(seed), ..Params::default() };
        let (mut policy, mut naive) = (Compressibility::new(params), Naive::new(seed.into()));
        let (mut pool, facts) = (Pool::default(), facts());
        for step in steps {
            let mut tell = |pool: &Pool, event: &Event| {
                policy.on_event(event, &View { facts: &facts, pages: pool, classes: None });
            };
            match step {
                Step::Put(page, frame, chunks) => {
                    pool.flash.remove(&page);
                    pool.of.remove(&page);
                    let fits = |frame: &u32| {
                        let (count, used) = pool.in_frame(*frame).fold((0, 0), |(n, used), (_, c)| {
                            (n + 1, used + c)
                        });
                        count < 3 && used + chunks <= 64
                    };
                    let frame = frame.filter(fits).map(|frame| (frame, chunks));
                    pool.of.insert(page, frame);
                    tell(&pool, &Event::Stored { page, tier: Tier::Pool, bytes: 9 });
                    naive.put(page, &pool);
                }
                Step::Back(page) => {
                    if let Some(tier) = pool.tier(page) {
                        pool.of.remove(&page);
                        pool.flash.remove(&page);
                        tell(&pool, &Event::PageIn { page, tier, demand: true });
                        naive.gone(page, &pool, true);
                    }
                }
                Step::Quietly(page) => drop(pool.of.remove(&page)),
                Step::Freed(first, count) => {
                    let run = run(first.space().0, first.vpn().0, count);
                    pool.of.retain(|page, _| !run.contains(*page));
                    tell(&pool, &Event::Freed { run });
                    naive.gone_all(|page| run.contains(page), &pool);
                }
                Step::Moved(first, count, to) => {
                    let space = first.space().0;
                    let (from, there) = (run(space, first.vpn().0, count), run(space, to, count));
                    pool.of.retain(|page, _| !there.contains(*page));
                    let renamed = |of: PageId| page(space, of.vpn().0 - first.vpn().0 + to);
                    for of in from.pages() {
                        if let Some(frame) = pool.of.remove(&of) {
                            pool.of.insert(renamed(of), frame);
                        }
                    }
                    tell(&pool, &Event::Moved { from, to: there.first });
                    naive.gone_all(|page| there.contains(page), &pool);
                    for of in from.pages() {
                        let answered = naive.answered.contains(&of);
                        naive.answered.retain(|page| *page != of);
                        let frames = naive.frames.iter_mut();
                        for (_, frame) in frames {
                            let pages = frame.pages.iter_mut().filter(|(page, _)| *page == of);
                            pages.for_each(|(page, _)| *page = renamed(of));
                        }
                        // Its order was for another page, and its frame is not empty.
                        if answered
                            && let Some(number) = naive.frame_of(renamed(of))
                            && let Some(facts) = pool.frame(renamed(of))
                        {
                            naive.list(number, facts, true);
                        }
                    }
                }
                Step::End(space) => {
                    pool.of.retain(|page, _| page.space() != space);
                    tell(&pool, &Event::SpaceEnd { space });
                    naive.gone_all(|page| page.space() == space, &pool);
                }
                Step::Exit(app) => {
                    let of_app = |page: PageId| (page.space().0 == 2) == (app.0 == 1);
                    pool.of.retain(|page, _| !of_app(*page));
                    tell(&pool, &Event::Exit { app });
                    naive.gone_all(of_app, &pool);
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
                            tell(&pool, &Event::Stored { page, tier: Tier::Pool, bytes: 9 });
                            naive.put(page, &pool);
                        } else {
                            pool.of.remove(&page);
                            pool.flash.insert(page);
                            tell(&pool, &Event::Stored { page, tier: Tier::Flash, bytes: 9 });
                            naive.gone(page, &pool, true);
                        }
                    }
                }
            }
        }
    }
}

/// Figure 7 in floating point, for every category.
#[test]
fn weights_are_the_formula_of_the_paper() {
    for zpages in 1..=3u64 {
        for files in 0..=zpages {
            for (free, is_quarter) in [(0, false), (25, true)] {
                let exact = exact_weight(zpages as f64, files as f64, is_quarter);
                assert_eq!(
                    weight(zpages, files, free) as f64,
                    exact,
                    "({zpages}, {files}, {free})"
                );
            }
        }
    }
}

const FRAMES: usize = 120;

/// Who chooses among the frames of the same pools.
enum Chooser {
    Lottery(Box<Compressibility>),
    Lru(Box<Z3foldLru>),
    /// Always the frame of the most weight.
    Greedy,
}

/// The mean weight of the frames that leave a pool of 120 frames into which pages come by and by; and how many newcomers
/// (frames that are not full and have a page among the last 30) are among them.
fn chosen(mut chooser: Chooser) -> (f64, usize) {
    let (facts, mut pool, mut random) = (facts(), Pool::default(), Seeded::of(5, &[]));
    let (mut weights, mut newcomers, mut vpn) = (0.0, 0, 0u64);
    let mut entered: Vec<PageId> = Vec::new();
    const ROUNDS: usize = 2000;
    let mut evicted = 0;
    for _ in 0..ROUNDS {
        let page = page(u32::from(random.below(3) > 0), vpn);
        vpn += 1;
        let chunks = 8 + random.below(56) as u8;
        if room(&pool, chunks).is_none() {
            let victim = match &mut chooser {
                Chooser::Lottery(policy) => pick(&mut **policy, &facts, &pool),
                Chooser::Lru(policy) => pick(&mut **policy, &facts, &pool),
                Chooser::Greedy => {
                    let of = |frame: u32| pool.in_frame(frame).map(|(page, _)| page).collect();
                    let all: Vec<Vec<PageId>> = (0..FRAMES as u32).map(of).collect();
                    let weigh = |pages: &&Vec<PageId>| weigh(pages, &pool) as u64;
                    all.iter().max_by_key(weigh).cloned().unwrap_or_default()
                }
            };
            weights += weigh(&victim, &pool);
            let is_new = |page: &PageId| entered[entered.len() - 30..].contains(page);
            newcomers += usize::from(victim.len() < 3 && victim.iter().any(is_new));
            evicted += 1;
            for page in victim {
                pool.of.remove(&page);
                tell(
                    &mut chooser,
                    &Event::Stored { page, tier: Tier::Flash, bytes: 0 },
                    &facts,
                    &pool,
                );
            }
        }
        let Some(frame) = room(&pool, chunks) else { continue };
        pool.of.insert(page, Some((frame, chunks)));
        entered.push(page);
        tell(&mut chooser, &Event::Stored { page, tier: Tier::Pool, bytes: 0 }, &facts, &pool);
    }
    assert!(evicted > 300, "{evicted}");
    (weights / f64::from(evicted), newcomers)
}

/// A frame with room for so many chunks more.
fn room(pool: &Pool, chunks: u8) -> Option<u32> {
    let mut held = [(0, 0); FRAMES];
    for (frame, chunks) in pool.of.values().flatten() {
        let (count, used) = &mut held[*frame as usize];
        *count += 1;
        *used += chunks;
    }
    let has_room = |(count, used): &(u32, u8)| *count < 3 && used + chunks <= 64;
    held.iter().position(has_room).map(|frame| frame as u32)
}

fn weigh(pages: &[PageId], pool: &Pool) -> f64 {
    let Some(facts) = pages.first().and_then(|page| pool.frame(*page)) else { return 0.0 };
    let files = pages.iter().filter(|page| is_file(**page)).count();
    exact_weight(facts.zpages.into(), files as f64, facts.used_chunks <= 48)
}

fn tell(chooser: &mut Chooser, event: &Event, facts: &Facts, pool: &Pool) {
    let view = View { facts, pages: pool, classes: None };
    match chooser {
        Chooser::Lottery(policy) => policy.on_event(event, &view),
        Chooser::Lru(policy) => policy.on_event(event, &view),
        Chooser::Greedy => {}
    }
}

fn pick(policy: &mut dyn Eviction, facts: &Facts, pool: &Pool) -> Vec<PageId> {
    let mut out = Vec::new();
    policy.pick_evictions(4096, &View { facts, pages: pool, classes: None }, &mut out);
    match out.pop() {
        Some(Unit::Pages(pages)) => pages,
        other => panic!("{other:?}"),
    }
}

/// III-C: LRU does not look at what a frame holds; always evicting the frame of the most weight, "recently modified swap
/// pages with only one or two zpages will always be expelled before full old pages". The lottery is between the two.
#[test]
fn the_lottery_loses_less_than_lru_and_spares_newcomers_that_greed_expels() {
    let lottery = chosen(Chooser::Lottery(Box::new(Compressibility::new(Params::default()))));
    let (lru, greedy) = (chosen(Chooser::Lru(Box::default())), chosen(Chooser::Greedy));
    assert!(lottery.0 > lru.0 * 1.1, "weight: lottery {lottery:?}, LRU {lru:?}");
    assert!(lottery.0 < greedy.0, "weight: lottery {lottery:?}, greedy {greedy:?}");
    assert!(lottery.1 < greedy.1, "newcomers: lottery {lottery:?}, greedy {greedy:?}");
}

//! The policy half against a small world that carries its orders out, and against policies that
//! answer in every way that the traits allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clew_core::{
    AccessKind, Admission, Admit, AppId, AppState, Arrival, Candidate, Cause, Classes, CodecKind,
    Demand, Ending, Event, Eviction, FlashForm, Group, Hotness, Job, Ns, Observe, Order, Packing,
    PageCounts, PageFacts, PageId, PageRun, Place, Placement, Prefetch, Reclaim, SampleDemand,
    SpaceId, Tier, TierFacts, Trigger, Unit, Verdict, Victim, View, Vpn, Whole,
};
use clew_engine::decide::{Engine, ORDER_PAGES};
use clew_policy::eviction::cold_first::ColdFirst;
use clew_policy::prefetch::readahead::Readahead;
use clew_policy::schemes::OnFull;
use clew_policy::{Policies, Scheme};
use proptest::prelude::*;

/// A page table, and nothing behind it.
#[derive(Default, Clone)]
struct World {
    pages: BTreeMap<PageId, Option<Tier>>,
    now: u64,
}

impl PageFacts for World {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.pages.get(&page).copied().flatten()
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let mut counts = PageCounts::default();
        for (_, tier) in self.pages.iter().filter(|(page, _)| page.space() == space) {
            match tier {
                None => counts.resident += 1,
                Some(tier) => counts.stored[tier.index()] += 1,
            }
        }
        counts
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let of_space = self.pages.iter().filter(|(page, _)| page.space() == space);
        of_space.for_each(|(page, tier)| visit(*page, *tier));
    }
}

fn page(space: u32, vpn: u64) -> PageId {
    PageId::new(SpaceId(space), Vpn(vpn))
}

fn run(space: u32, vpn: u64, count: u32) -> PageRun {
    PageRun { first: page(space, vpn), count }
}

fn used(page: PageId) -> Event {
    Event::Access { page, kind: AccessKind::Seen, write: false }
}

fn demand(pages: usize) -> Demand {
    Demand { pages, urgent: false }
}

fn urgent(pages: usize) -> Demand {
    Demand { pages, urgent: true }
}

/// An engine and its world.
struct Machine {
    engine: Engine,
    world: World,
}

impl Machine {
    fn new(engine: Engine) -> Machine {
        Machine { engine, world: World::default() }
    }

    fn zram() -> Machine {
        Machine::of("zram")
    }

    fn of(preset: &str) -> Machine {
        Machine::new(Engine::new(&Scheme::preset(preset).unwrap()))
    }

    fn tell(&mut self, event: Event) {
        self.world.now += 1_000_000;
        self.engine.tell(Ns(self.world.now), &event, &self.world);
    }

    /// App `app` with one space of the same number and `pages` resident pages.
    fn start(&mut self, app: u32, pages: u32) {
        self.tell(Event::SpaceStart { space: SpaceId(app), app: AppId(app), file: false });
        self.resident(run(app, 1000, pages));
    }

    fn resident(&mut self, run: PageRun) {
        self.world.pages.extend(run.pages().map(|page| (page, None)));
        self.tell(Event::Resident { run });
    }

    fn touch(&mut self, page: PageId) {
        match self.world.pages.get(&page).copied() {
            Some(Some(tier)) => {
                self.world.pages.insert(page, None);
                self.tell(Event::Access { page, kind: AccessKind::Fault, write: false });
                self.tell(Event::PageIn { page, tier, demand: true });
            }
            Some(None) => self.tell(used(page)),
            None => {
                self.world.pages.insert(page, None);
                self.tell(Event::Access { page, kind: AccessKind::Fresh, write: true });
            }
        }
    }

    fn swap_out(&mut self, demand: Demand) -> Vec<Order> {
        let mut orders = Vec::new();
        self.engine.plan_swap_out(demand, &self.world, &mut orders);
        orders
    }

    /// Of app 1.
    fn samples(&mut self, pages: usize, run_pages: u32) -> Vec<PageRun> {
        self.engine.plan_samples(SampleDemand { app: AppId(1), pages, run_pages }, &self.world)
    }

    fn app_out(&mut self, app: u32) -> Vec<Order> {
        let mut orders = Vec::new();
        self.engine.plan_app_out(AppId(app), &self.world, &mut orders);
        orders
    }

    /// Carries orders out; the pages of every order must be resident.
    fn carry_out(&mut self, orders: &[Order]) {
        for order in orders {
            match order {
                Order::SwapOut { groups, tier, .. } => {
                    let tier = *tier;
                    for page in groups.iter().flat_map(|group| group.pages.clone()) {
                        assert_eq!(
                            self.world.pages.get(&page),
                            Some(&None),
                            "{page:?} ordered out"
                        );
                        self.world.pages.insert(page, Some(tier));
                        self.tell(Event::Stored { page, tier, bytes: 1000 });
                    }
                }
                Order::Move { .. } | Order::Repack { .. } => {}
                Order::EndApp { app, .. } => self.exit(*app),
            }
        }
    }

    fn exit(&mut self, app: AppId) {
        let spaces: Vec<SpaceId> = self.engine.facts().spaces_of(app).collect();
        self.world.pages.retain(|page, _| !spaces.contains(&page.space()));
        self.tell(Event::Exit { app });
    }
}

fn ordered(orders: &[Order]) -> Vec<PageId> {
    let mut pages = Vec::new();
    for order in orders {
        if let Order::SwapOut { groups, .. } = order {
            pages.extend(groups.iter().flat_map(|group| group.pages.iter().copied()));
        }
    }
    pages
}

fn limited(pages: u64) -> TierFacts {
    TierFacts { limit_pages: pages, limit_bytes: u64::MAX, ..TierFacts::default() }
}

// ---- zram ----------------------------------------------------------------------------------------

#[test]
fn orders_are_of_one_space_sorted_and_not_too_large() {
    let mut m = Machine::zram();
    m.start(2, ORDER_PAGES as u32 + 150);
    m.start(1, ORDER_PAGES as u32 + 50);
    let orders = m.swap_out(demand(2 * ORDER_PAGES + 200));
    let mut seen = Vec::new();
    for order in &orders {
        let Order::SwapOut { app, space, groups, tier, .. } = order else { panic!("{order:?}") };
        assert_eq!(app.0, space.0);
        assert_eq!(*tier, Tier::Pool);
        let pages: Vec<PageId> = groups.iter().flat_map(|group| group.pages.clone()).collect();
        assert!(pages.len() <= ORDER_PAGES && pages.iter().all(|page| page.space() == *space));
        assert!(groups.iter().all(|g| g.codec == CodecKind::Lz4 && g.chunk_bytes == 4096));
        seen.extend(pages);
    }
    assert!(seen.is_sorted());
    assert_eq!(seen.len(), 2 * ORDER_PAGES + 200);
    assert_eq!(orders.len(), 4);
}

#[test]
fn an_app_is_taken_out_wherever_its_pages_are_and_once() {
    let mut m = Machine::zram();
    m.start(1, 100);
    m.start(2, 100);
    m.tell(Event::Launch { app: AppId(1) });
    m.touch(page(1, 1003));
    m.touch(page(1, 1003));
    let orders = m.app_out(1);
    assert_eq!(ordered(&orders), run(1, 1000, 100).pages().collect::<Vec<_>>());
    assert_eq!(m.app_out(1), []);
    assert_eq!(ordered(&m.swap_out(urgent(1000))).len(), 100, "the other app's only");
    m.carry_out(&orders);
    m.touch(page(1, 1050));
    assert_eq!(ordered(&m.app_out(1)), [page(1, 1050)]);
}

#[test]
fn the_foreground_app_is_spared_until_nobody_else_is_left() {
    let mut m = Machine::zram();
    m.start(1, 50);
    m.start(2, 50);
    m.tell(Event::Launch { app: AppId(1) });
    let first = m.swap_out(demand(50));
    assert!(ordered(&first).iter().all(|page| page.space() == SpaceId(2)));
    assert_eq!(ordered(&m.swap_out(demand(10))), run(1, 1000, 10).pages().collect::<Vec<_>>());
}

#[test]
fn a_full_tier_stops_or_kills_once_and_only_when_urgent() {
    let mut stop = Machine::zram();
    stop.engine.set_tier(Tier::Pool, limited(10));
    stop.start(1, 50);
    assert_eq!(ordered(&stop.swap_out(urgent(50))).len(), 10);
    stop.engine.set_tier_use(Tier::Pool, 10_000, 10);
    assert_eq!(stop.swap_out(urgent(50)), []);

    let scheme = Scheme { on_full: OnFull::Kill, ..Scheme::preset("dram").unwrap() };
    let mut kill = Machine::new(Engine::new(&scheme));
    kill.start(1, 5);
    kill.start(2, 5);
    kill.tell(Event::Launch { app: AppId(1) });
    kill.tell(Event::Launch { app: AppId(2) });
    assert_eq!(kill.swap_out(demand(5)), []);
    let orders = kill.swap_out(urgent(5));
    assert!(matches!(orders[..], [Order::EndApp { app: AppId(1), .. }]), "{orders:?}");
    assert_eq!(kill.swap_out(urgent(5)), [], "one at a time");
    kill.carry_out(&orders);
    assert_eq!(kill.swap_out(urgent(5)), [], "the foreground app is never ended");
}

#[test]
fn prefetch_answers_stored_pages_once_and_keeps_what_was_there() {
    let prefetch = Arc::new(Readahead { pages: Whole::of(8) });
    let scheme = Scheme { prefetch, ..Scheme::preset("zram").unwrap() };
    let mut m = Machine::new(Engine::new(&scheme));
    m.start(1, 20);
    let orders = m.app_out(1);
    m.carry_out(&orders);
    m.touch(page(1, 1003));
    let mut out = vec![page(1, 1)];
    m.engine.plan_prefetch(Trigger::Fault(page(1, 1000)), &m.world, &mut out);
    let expected = [1, 1001, 1002, 1004, 1005, 1006, 1007, 1008];
    assert_eq!(out, expected.map(|vpn| page(1, vpn)));
    out.clear();
    m.engine.plan_prefetch(Trigger::Relaunch(AppId(1)), &m.world, &mut out);
    assert_eq!(out, []);
}

// ---- facts ---------------------------------------------------------------------------------------

#[test]
fn facts_follow_the_life_of_an_app() {
    let mut m = Machine::zram();
    m.start(1, 10);
    m.start(2, 10);
    m.tell(Event::Launch { app: AppId(1) });
    m.tell(Event::Relaunch { app: AppId(2) });
    let facts = m.engine.facts();
    assert_eq!(facts.fronts, vec![AppId(2)]);
    assert_eq!(facts.apps[&AppId(1)].state, AppState::Background);
    assert_eq!(facts.apps[&AppId(1)].footprint_pages, 10);

    for vpn in [1004, 1001, 1004] {
        m.touch(page(2, vpn));
    }
    m.touch(page(1, 1000));
    m.tell(Event::Moved { from: run(2, 1004, 1), to: page(2, 5000) });
    m.tell(Event::ResponseComplete { app: AppId(2), response_ns: 7 });
    m.touch(page(2, 1005));
    let facts = m.engine.facts();
    assert_eq!(facts.launch_sets[&AppId(2)], [vec![page(2, 5000), page(2, 1001)]]);
    assert_eq!(facts.apps[&AppId(2)].responses_ns, [7]);
    assert!(facts.apps[&AppId(2)].last_access > facts.apps[&AppId(1)].last_access);

    let orders = m.app_out(1);
    m.carry_out(&orders[..]);
    let stats = &m.engine.facts().apps[&AppId(1)];
    assert_eq!((stats.resident_pages, stats.stored_pages), (0, 10));
    assert_eq!(m.engine.facts().app_pages[&AppId(1)].stored_in(Tier::Pool), 10);
    m.exit(AppId(2));
    let facts = m.engine.facts();
    assert!(!facts.apps.contains_key(&AppId(2)) && !facts.launch_sets.contains_key(&AppId(2)));
    assert_eq!((facts.fronts.as_slice(), facts.app_of(SpaceId(2))), (&[][..], None));
    // One that begins behind another takes nobody's place, and was away for no time yet.
    m.tell(Event::Relaunch { app: AppId(1) });
    m.tell(Event::Background { app: AppId(3) });
    let facts = m.engine.facts();
    assert_eq!(facts.fronts, vec![AppId(1)]);
    assert!(facts.apps[&AppId(3)].last_foreground > facts.apps[&AppId(1)].last_foreground);
}

// ---- policies that answer in every way -------------------------------------------------------------

/// Answers what it was told to answer, and writes down what it is told.
#[derive(Default)]
struct Scripted {
    verdicts: Vec<Verdict>,
    units: Vec<Unit>,
    ending: Option<Ending>,
    job: Option<Job>,
    group_pages: usize,
    place: Option<Place>,
    reject: bool,
    told: Option<std::sync::mpsc::Sender<String>>,
}

impl Observe for Scripted {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        if let Some(told) = &self.told {
            told.send(format!("{event:?}")).unwrap();
        }
    }
    fn take_job(&mut self) -> Option<Job> {
        self.job.take()
    }
    fn take_ending(&mut self) -> Option<Ending> {
        self.ending.take()
    }
}
impl Classes for Scripted {
    fn class(&self, _: PageId) -> Option<Hotness> {
        Some(Hotness::Cold)
    }
}
impl Reclaim for Scripted {
    fn pick_victims(&mut self, _: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        assert!(view.classes.is_none());
        out.append(&mut self.verdicts);
    }
    fn pick_app(&mut self, app: AppId, _: &View<'_>, out: &mut Vec<Verdict>) {
        out.push(Verdict::Take(Victim { unit: Unit::App(app), hotness: None }));
    }
}
impl Admission for Scripted {
    fn admit(&mut self, candidate: Candidate<'_>, _: &View<'_>) -> Admit {
        if self.reject && candidate.sample[0] == 0xff { Admit::No } else { Admit::Yes }
    }
    fn admits_all(&self) -> bool {
        !self.reject
    }
}
impl Packing for Scripted {
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        assert!(view.classes.is_some_and(|c| c.class(page(0, 0)) == Some(Hotness::Cold)));
        let full =
            if flush { victims.len() } else { victims.len() / self.group_pages * self.group_pages };
        let taken: Vec<Victim> = victims.drain(..full).collect();
        for part in taken.chunks(self.group_pages) {
            let pages = part.iter().flat_map(|victim| match &victim.unit {
                Unit::Page(page) => vec![*page],
                Unit::Pages(pages) => pages.clone(),
                other => panic!("{other:?} reached packing"),
            });
            let pages: Vec<PageId> = pages.collect();
            let chunk_bytes = 4096 * pages.len() as u32;
            let codec = CodecKind::Zstd;
            out.push(Group { pages, hotness: None, codec, chunk_bytes, park_siblings: true });
        }
    }
}
impl Eviction for Scripted {
    fn pick_evictions(&mut self, _: u64, _: &View<'_>, out: &mut Vec<Unit>) {
        out.append(&mut self.units);
    }
}
impl Placement for Scripted {
    fn place(&mut self, _: &Group, _: AppId, cause: Cause, _: &View<'_>) -> Place {
        match cause {
            Cause::Rejected => Place::Stay,
            Cause::Evicted => TO_KERNEL,
            _ => self.place.unwrap(),
        }
    }
}
impl Prefetch for Scripted {
    fn pick_prefetch(&mut self, _: Trigger, _: &View<'_>, _: &mut Vec<PageId>) {}
}

const TO_POOL: Place = Place::Tier(Tier::Pool);
const TO_KERNEL: Place = Place::Tier(Tier::Kernel);

struct Script {
    reclaim: Scripted,
    admission: Scripted,
    packing: Scripted,
    eviction: Scripted,
    placement: Scripted,
}

fn scripted() -> Script {
    Script {
        reclaim: Scripted::default(),
        admission: Scripted::default(),
        packing: Scripted { group_pages: 4, ..Scripted::default() },
        eviction: Scripted::default(),
        placement: Scripted { place: Some(TO_POOL), ..Scripted::default() },
    }
}

impl Script {
    fn machine(self) -> Machine {
        let scheme = Scheme::preset("zram").unwrap();
        Machine::new(Engine::with_policies(
            &scheme,
            Policies {
                reclaim: Box::new(self.reclaim),
                admission: Box::new(self.admission),
                packing: Box::new(self.packing),
                eviction: Box::new(self.eviction),
                placement: Box::new(self.placement),
                prefetch: Box::new(Scripted::default()),
            },
        ))
    }
}

fn take(unit: Unit) -> Verdict {
    Verdict::Take(Victim { unit, hotness: None })
}

fn take_pages(space: u32, vpns: impl IntoIterator<Item = u64>) -> Vec<Verdict> {
    vpns.into_iter().map(|vpn| take(Unit::Page(page(space, vpn)))).collect()
}

#[test]
fn leftovers_wait_for_a_fuller_group_and_go_back_when_used() {
    let (told, heard) = std::sync::mpsc::channel();
    let mut script = scripted();
    script.reclaim.verdicts = take_pages(1, 1000..1007);
    script.reclaim.told = Some(told);
    let mut m = script.machine();
    m.start(1, 20);
    assert_eq!(ordered(&m.swap_out(demand(7))), [1000, 1001, 1002, 1003].map(|vpn| page(1, vpn)));
    heard.try_iter().for_each(drop);
    m.touch(page(1, 1005));
    let stayed = format!("{:?}", Event::Stayed { page: page(1, 1005) });
    assert_eq!(heard.try_iter().next(), Some(stayed), "told before the use");
    m.tell(Event::Freed { run: run(1, 1006, 1) });
    // Nobody else is picked: the rest is flushed.
    assert_eq!(ordered(&m.swap_out(demand(1))), [page(1, 1004)]);
    assert_eq!(m.swap_out(demand(1)), []);
}

#[test]
fn an_app_taken_out_takes_what_waits_of_it_and_leaves_what_waits_of_others() {
    let mut script = scripted();
    script.reclaim.verdicts = [take_pages(1, 1000..1001), take_pages(2, 1000..1002)].concat();
    let mut m = script.machine();
    m.start(1, 6);
    m.start(2, 6);
    assert_eq!(m.swap_out(demand(3)), []);
    let orders = m.app_out(1);
    let mut out = ordered(&orders);
    out.sort();
    assert_eq!(out, run(1, 1000, 6).pages().collect::<Vec<_>>());
    m.carry_out(&orders);
    assert_eq!(ordered(&m.swap_out(demand(1))), [page(2, 1000), page(2, 1001)]);
}

#[test]
fn whole_apps_are_expanded_and_groups_are_cut_at_spaces() {
    let mut script = scripted();
    script.reclaim.verdicts = vec![take(Unit::App(AppId(1)))];
    script.packing.group_pages = 100;
    let mut m = script.machine();
    m.start(1, 3);
    m.tell(Event::SpaceStart { space: SpaceId(7), app: AppId(1), file: false });
    m.resident(run(7, 50, 2));
    let orders = m.swap_out(urgent(1));
    let groups: Vec<(SpaceId, usize, u32)> = orders
        .iter()
        .map(|order| match order {
            Order::SwapOut { space, groups, .. } => {
                (*space, groups[0].pages.len(), groups[0].chunk_bytes)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(groups, [(SpaceId(1), 3, 3 * 4096), (SpaceId(7), 2, 2 * 4096)]);
}

#[test]
fn what_has_no_place_is_handed_back() {
    let (told, heard) = std::sync::mpsc::channel();
    let mut script = scripted();
    script.reclaim.verdicts = take_pages(1, 1000..1004);
    script.placement.place = Some(Place::Stay);
    script.reclaim.told = Some(told);
    let mut m = script.machine();
    m.start(1, 4);
    heard.try_iter().for_each(drop);
    assert_eq!(m.swap_out(demand(4)), []);
    assert_eq!(heard.try_iter().filter(|text| text.starts_with("Stayed")).count(), 4);
}

#[test]
fn a_full_pool_is_evicted_from_before_pages_enter() {
    let mut script = scripted();
    script.reclaim.verdicts = take_pages(1, 1000..1004);
    script.eviction.units =
        vec![Unit::Page(page(1, 2000)), Unit::App(AppId(9)), Unit::Pages(vec![page(1, 1000)])];
    let mut m = script.machine();
    m.engine.set_tier(Tier::Pool, limited(0));
    m.engine.set_tier(Tier::Kernel, limited(1000));
    m.start(1, 4);
    m.start(9, 3);
    for page in [page(1, 2000), page(9, 1000), page(9, 1001), page(9, 1002)] {
        m.world.pages.insert(page, Some(Tier::Pool));
    }
    let orders = m.swap_out(demand(4));
    // An app is what it has in the pool; what is resident is not evicted.
    let moved: Vec<(u32, Vec<PageId>)> = orders
        .iter()
        .filter_map(|order| match order {
            Order::Move { app, groups, tier: Tier::Kernel, .. } => {
                Some((app.0, groups.iter().flat_map(|group| group.pages.clone()).collect()))
            }
            _ => None,
        })
        .collect();
    let of_nine = [1000, 1001, 1002].map(|vpn| page(9, vpn)).to_vec();
    assert_eq!(moved, [(1, vec![page(1, 2000)]), (9, of_nine)]);
    // Room for four was made.
    assert!(matches!(orders[2], Order::SwapOut { .. }), "{orders:?}");
    assert_eq!(ordered(&orders).len(), 4);
}

#[test]
fn what_has_no_place_elsewhere_is_not_evicted() {
    let mut script = scripted();
    script.reclaim.verdicts = take_pages(1, 1000..1004);
    script.eviction.units = vec![Unit::Page(page(1, 2000))];
    let mut m = script.machine();
    m.engine.set_tier(Tier::Pool, limited(0));
    m.start(1, 4);
    m.world.pages.insert(page(1, 2000), Some(Tier::Pool));
    assert_eq!(m.swap_out(demand(4)), [], "there is no room in the kernel's zram");
}

#[test]
fn any_part_may_end_an_app() {
    let reason = "its donor is lost";
    let ending = |app| Some(Ending { app: AppId(app), reason });
    let mut script = scripted();
    script.placement.ending = ending(1);
    script.admission.ending = ending(77);
    script.reclaim.verdicts = vec![Verdict::EndApp { app: AppId(2), reason: "test" }];
    let mut m = script.machine();
    m.start(1, 1);
    m.start(2, 1);
    let mut orders = Vec::new();
    m.tell(Event::Tick);
    m.engine.take_orders(&mut orders);
    assert_eq!(orders, [Order::EndApp { app: AppId(1), reason }], "nobody knows app 77");
    assert_eq!(m.swap_out(demand(1)), [Order::EndApp { app: AppId(2), reason: "test" }]);
}

#[test]
fn rejected_pages_leave_their_group_and_are_placed_anew() {
    let mut script = scripted();
    script.admission.reject = true;
    let mut m = script.machine();
    m.start(1, 3);
    assert!(!m.engine.admits_all());
    let pages: Vec<PageId> = run(1, 1000, 3).pages().collect();
    let group = Group {
        pages: pages.clone(),
        hotness: None,
        codec: CodecKind::Lz4,
        chunk_bytes: 3 * 4096,
        park_siblings: false,
    };
    let samples: [&[u8]; 3] = [&[1; 512], &[0xff; 512], &[2; 512]];
    let admitted = m.engine.admit(group.clone(), &samples, &m.world);
    let kept = admitted.group.unwrap();
    assert_eq!((kept.pages, kept.chunk_bytes), (vec![pages[0], pages[2]], 2 * 4096));
    let (rejected, place) = admitted.rejected.unwrap();
    assert_eq!((rejected.pages, place), (vec![pages[1]], Place::Stay));
    let all = m.engine.admit(group, &[&[1], &[2], &[3]], &m.world);
    assert!(all.rejected.is_none());
}

#[test]
fn a_finished_job_is_told_to_who_asked_under_its_own_number() {
    let (told, heard) = std::sync::mpsc::channel();
    let (other, not_heard) = std::sync::mpsc::channel();
    let job = |id| Some(Job { id, run: Box::new(|| ()) });
    let mut script = scripted();
    script.reclaim.job = job(5);
    script.reclaim.told = Some(other);
    script.placement.job = job(5);
    script.placement.told = Some(told);
    let mut m = script.machine();
    let mut jobs = Vec::new();
    m.engine.take_jobs(|job| jobs.push(job));
    assert_eq!(jobs.len(), 2);
    assert_ne!(jobs[0].id, jobs[1].id);
    m.tell(Event::JobDone { job: jobs[1].id });
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["JobDone { job: 5 }"]);
    assert_eq!(not_heard.try_iter().count(), 0);
}

#[test]
fn a_place_may_be_any_tier_with_room() {
    let mut script = scripted();
    script.reclaim.verdicts = take_pages(1, 1000..1008);
    script.placement.place = Some(TO_KERNEL);
    let mut m = script.machine();
    m.engine.set_tier(Tier::Kernel, limited(4));
    m.start(1, 8);
    let orders = m.swap_out(demand(8));
    assert!(matches!(orders[..], [Order::SwapOut { tier: Tier::Kernel, .. }]), "{orders:?}");
    assert_eq!(ordered(&orders).len(), 4);
}

// ---- ariadne -------------------------------------------------------------------------------------

/// Groups of orders: first page, pages, class, bytes a chunk.
fn groups_of(orders: &[Order]) -> Vec<(u64, usize, Option<Hotness>, u32)> {
    let mut groups = Vec::new();
    for order in orders {
        let Order::SwapOut { groups: of_order, .. } = order else { panic!("{order:?}") };
        groups.extend(
            of_order.iter().map(|g| (g.pages[0].vpn().0, g.pages.len(), g.hotness, g.chunk_bytes)),
        );
    }
    groups
}

impl Machine {
    fn relaunch(&mut self, app: u32, vpns: impl IntoIterator<Item = u64>) {
        self.tell(Event::Relaunch { app: AppId(app) });
        vpns.into_iter().for_each(|vpn| self.touch(page(app, vpn)));
        self.tell(Event::ResponseComplete { app: AppId(app), response_ns: 1 });
    }

    /// Brings back what the prefetcher wants; all of it must be stored.
    fn bring_early(&mut self, trigger: Trigger) {
        for page in self.prefetch(trigger) {
            let tier = self.world.tier(page).expect("a prefetched page is stored");
            self.world.pages.insert(page, None);
            self.tell(Event::PageIn { page, tier, demand: false });
        }
    }

    fn prefetch(&mut self, trigger: Trigger) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.engine.plan_prefetch(trigger, &self.world, &mut pages);
        pages
    }
}

const COLD: Option<Hotness> = Some(Hotness::Cold);
const WARM: Option<Hotness> = Some(Hotness::Warm);
const HOT: Option<Hotness> = Some(Hotness::Hot);

#[test]
fn ariadne_takes_cold_blocks_first_and_chunks_by_class() {
    let mut m = Machine::of("ariadne-paper");
    m.start(1, 10);
    m.start(2, 10);
    m.relaunch(1, [1000, 1001]);
    m.touch(page(1, 1002));
    m.tell(Event::Background { app: AppId(1) });
    // Of app 2 the accesses are none, so it is first: two full blocks, the rest waits for more.
    let orders = m.swap_out(demand(10));
    assert_eq!(groups_of(&orders), [(1000, 4, COLD, 16384), (1004, 4, COLD, 16384)]);
    m.carry_out(&orders);
    // Seven cold pages of app 1, then its warm and its hot ones, each alone, in chunks.
    let orders = m.swap_out(demand(10));
    let expected =
        [(1000, 1, HOT, 1024), (1001, 1, HOT, 1024), (1002, 1, WARM, 2048), (1003, 4, COLD, 16384)];
    assert_eq!(groups_of(&orders), expected);
    m.carry_out(&orders);
    // Nobody else is left: what waits becomes smaller blocks, each of one space.
    let orders = m.swap_out(demand(1));
    assert_eq!(groups_of(&orders), [(1007, 3, COLD, 3 * 4096), (1008, 2, COLD, 2 * 4096)]);
    assert!(matches!(orders[..], [Order::SwapOut { .. }, Order::SwapOut { .. }]));
}

#[test]
fn who_was_in_front_last_gives_last_even_if_no_touch_of_it_was_seen() {
    for all_touches_seen in [false, true] {
        let mut m = Machine::of("ariadne-paper");
        m.engine.set_all_touches_seen(all_touches_seen);
        m.start(1, 4);
        m.start(2, 4);
        m.tell(Event::Launch { app: AppId(1) });
        m.touch(page(2, 2000));
        m.tell(Event::Background { app: AppId(1) });
        let first = ordered(&m.swap_out(demand(4)))[0].space().0;
        assert_eq!(first, if all_touches_seen { 1 } else { 2 });
    }
}

#[test]
fn a_cold_page_that_waits_for_its_block_and_is_used_is_warm_and_leaves_alone() {
    let mut m = Machine::of("ariadne-paper");
    m.start(1, 7);
    m.tell(Event::Relaunch { app: AppId(1) });
    m.tell(Event::Background { app: AppId(1) });
    assert_eq!(ordered(&m.swap_out(demand(7))).len(), 4);
    m.touch(page(1, 1005));
    m.resident(run(1, 1007, 2));
    let orders = m.swap_out(demand(2));
    let block: Vec<PageId> = [1004, 1006, 1007, 1008].map(|vpn| page(1, vpn)).into();
    assert_eq!(ordered(&orders), block, "what waited comes first");
    assert_eq!(groups_of(&m.swap_out(demand(2))), [(1005, 1, WARM, 2048)]);
}

#[test]
fn a_page_ages_while_it_is_stored() {
    let mut m = Machine::of("ariadne-paper");
    m.engine.set_all_touches_seen(true);
    m.start(1, 8);
    m.relaunch(1, [1000, 1001]);
    let orders = m.app_out(1);
    assert_eq!(ordered(&orders).len(), 8);
    m.carry_out(&orders);
    m.relaunch(1, [1000]);
    // Page 1001 was hot when it left. It comes back along with something and leaves again.
    m.world.pages.insert(page(1, 1001), None);
    m.tell(Event::PageIn { page: page(1, 1001), tier: Tier::Pool, demand: false });
    let orders = m.app_out(1);
    assert_eq!(groups_of(&orders), [(1000, 1, HOT, 1024), (1001, 1, WARM, 2048)]);
    assert_eq!(m.engine.class_counts(AppId(1), Hotness::Cold).out, 6);
}

#[test]
fn ariadne_restores_the_hot_list_then_goes_on_by_sector() {
    let mut m = Machine::of("ariadne");
    m.start(1, 64);
    m.relaunch(1, (1000..1064).step_by(2));
    let orders = m.app_out(1);
    m.carry_out(&orders);
    assert_eq!(m.engine.class_counts(AppId(1), Hotness::Hot).out, 32);
    let mut restored = BTreeSet::new();
    for _ in 0..4 {
        m.tell(Event::Relaunch { app: AppId(1) });
        let pages = m.prefetch(Trigger::Relaunch(AppId(1)));
        assert!((12..32).contains(&pages.len()), "{} of 32, one run in 4 left out", pages.len());
        restored.extend(pages);
    }
    let hot: BTreeSet<PageId> = (1000..1064).step_by(2).map(|vpn| page(1, vpn)).collect();
    assert_eq!(restored, hot);
    assert_eq!(m.engine.arrival(), Arrival::Parked { pages: 64, keep: true });
    // Hot pages and blocks of cold ones left in the order of their addresses.
    m.touch(page(1, 1002));
    assert_eq!(m.prefetch(Trigger::Fault(page(1, 1002))), [page(1, 1004)]);
}

#[test]
fn samples_are_hot_resident_pages() {
    let mut m = Machine::of("ariadne");
    m.start(1, 64);
    assert_eq!(m.samples(8, 4), [], "nothing is known to be hot");
    m.relaunch(1, 1010..1030);
    let first = m.samples(8, 4);
    assert_eq!(first, [run(1, 1010, 4), run(1, 1014, 4)]);
    assert_eq!(m.samples(4, 8), [run(1, 1018, 4)]);
    m.tell(Event::Unused { run: first[0] });
    assert_eq!(m.engine.class_counts(AppId(1), Hotness::Hot).resident, 16);
    let mut zram = Machine::zram();
    zram.start(1, 64);
    assert_eq!(zram.samples(8, 4), []);
}

#[test]
fn what_is_cold_now_leaves_a_full_pool() {
    let scheme = Scheme::preset("ariadne-paper").unwrap();
    let placement = Scripted { place: Some(TO_KERNEL), ..Scripted::default() };
    let policies = Policies {
        eviction: Box::new(ColdFirst::new()),
        placement: Box::new(placement),
        ..scheme.build()
    };
    let mut m = Machine::new(Engine::with_policies(&scheme, policies));
    m.engine.set_tier(Tier::Kernel, limited(1000));
    m.start(1, 12);
    m.start(2, 4);
    m.relaunch(1, [1000, 1001]);
    for order in m.app_out(1) {
        for page in ordered(&[order]) {
            m.world.pages.insert(page, Some(Tier::Pool));
            m.tell(Event::Stored { page, tier: Tier::Pool, bytes: 1000 });
        }
    }
    // A stored cold page is used and leaves again: it is warm now, 1000 and 1001 are hot.
    m.touch(page(1, 1002));
    m.world.pages.insert(page(1, 1002), Some(Tier::Pool));
    m.tell(Event::Stored { page: page(1, 1002), tier: Tier::Pool, bytes: 1000 });
    m.tell(Event::Background { app: AppId(1) });
    m.engine.set_tier(Tier::Pool, TierFacts { used_bytes: 12_000, pages: 12, ..limited(12) });
    m.engine.set_tier(Tier::Kernel, TierFacts { pages: 988, ..limited(1000) });
    let mut evicted = Vec::new();
    for order in m.swap_out(demand(23)) {
        if let Order::Move { groups, .. } = order {
            evicted.extend(groups.into_iter().flat_map(|group| group.pages));
        }
    }
    evicted.sort_unstable();
    let expected: Vec<PageId> = (1000..1001).chain(1002..1012).map(|vpn| page(1, vpn)).collect();
    assert_eq!(evicted, expected, "cold, warm, hot; as many as there is no room for");
}

// ---- random worlds -------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    Start(u32),
    Resident(u32, u64, u32),
    Touch(u32, u64),
    Free(u32, u64, u32),
    Move(u32, u64, u32, u64),
    EndSpace(u32),
    Exit(u32),
    Relaunch(u32),
    Respond(u32),
    Background(u32),
    SwapOut(usize, bool, bool),
    AppOut(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let app = 0u32..3;
    let vpn = 0u64..200;
    let count = 1u32..60;
    prop_oneof![
        2 => app.clone().prop_map(Step::Start),
        4 => (app.clone(), vpn.clone(), count.clone()).prop_map(|(a, v, c)| Step::Resident(a, v, c)),
        12 => (app.clone(), vpn.clone()).prop_map(|(a, v)| Step::Touch(a, v)),
        1 => (app.clone(), vpn.clone(), count.clone()).prop_map(|(a, v, c)| Step::Free(a, v, c)),
        1 => (app.clone(), vpn, count).prop_map(|(a, v, c)| Step::Move(a, v, c, 300)),
        1 => app.clone().prop_map(Step::EndSpace),
        1 => app.clone().prop_map(Step::Exit),
        2 => app.clone().prop_map(Step::Relaunch),
        1 => app.clone().prop_map(Step::Respond),
        1 => app.clone().prop_map(Step::Background),
        8 => (0usize..300, any::<bool>(), any::<bool>()).prop_map(|(n, u, b)| Step::SwapOut(n, u, b)),
        1 => app.prop_map(Step::AppOut),
    ]
}

/// Carries out `steps`; orders of which the second half fails (the pages stay).
fn play(preset: &str, steps: &[Step]) -> Vec<Order> {
    let mut m = Machine::of(preset);
    m.engine.set_tier(Tier::Pool, limited(150));
    let mut all = Vec::new();
    for step in steps {
        match *step {
            Step::Start(app) => {
                if m.engine.facts().app_of(SpaceId(app)).is_none() {
                    m.tell(Event::SpaceStart { space: SpaceId(app), app: AppId(app), file: false });
                    m.tell(Event::Launch { app: AppId(app) });
                }
            }
            Step::Resident(app, ..) | Step::Touch(app, _)
                if m.engine.facts().app_of(SpaceId(app)).is_none() => {}
            Step::Resident(app, vpn, count) => {
                let new =
                    run(app, vpn, count).pages().find(|page| !m.world.pages.contains_key(page));
                if let Some(first) = new {
                    m.resident(PageRun { first, count: 1 });
                }
            }
            Step::Touch(app, vpn) => {
                let page = page(app, vpn);
                let fault = m.world.tier(page).is_some();
                m.touch(page);
                if fault {
                    m.bring_early(Trigger::Fault(page));
                }
            }
            Step::Free(app, vpn, count) => {
                let run = run(app, vpn, count);
                m.world.pages.retain(|page, _| !run.contains(*page));
                m.tell(Event::Freed { run });
            }
            Step::Move(app, vpn, count, to) => {
                let (from, to) = (run(app, vpn, count), page(app, to));
                let over = PageRun { first: to, ..from };
                m.world.pages.retain(|page, _| !over.contains(*page));
                let moved: Vec<_> =
                    m.world.pages.extract_if(.., |page, _| from.contains(*page)).collect();
                let shift = |page: PageId| to.plus(page.raw() - from.first.raw());
                m.world.pages.extend(moved.into_iter().map(|(page, tier)| (shift(page), tier)));
                m.tell(Event::Moved { from, to });
            }
            Step::EndSpace(app) => {
                m.world.pages.retain(|page, _| page.space() != SpaceId(app));
                m.tell(Event::SpaceEnd { space: SpaceId(app) });
            }
            Step::Exit(app) => m.exit(AppId(app)),
            Step::Relaunch(app) => {
                m.tell(Event::Relaunch { app: AppId(app) });
                m.bring_early(Trigger::Relaunch(AppId(app)));
            }
            Step::Respond(app) => {
                m.tell(Event::ResponseComplete { app: AppId(app), response_ns: 1 });
            }
            Step::Background(app) => m.tell(Event::Background { app: AppId(app) }),
            Step::SwapOut(..) | Step::AppOut(_) => {
                let orders = match *step {
                    Step::SwapOut(pages, urgent, _) => m.swap_out(Demand { pages, urgent }),
                    Step::AppOut(app) => m.app_out(app),
                    _ => unreachable!(),
                };
                let pages = ordered(&orders);
                let unique: BTreeSet<PageId> = pages.iter().copied().collect();
                assert_eq!(unique.len(), pages.len(), "a page was ordered out twice");
                if matches!(step, Step::SwapOut(_, _, true)) {
                    pages.iter().for_each(|page| m.tell(Event::Stayed { page: *page }));
                } else {
                    m.carry_out(&orders);
                }
                all.extend(orders);
            }
        }
        let stored = m.world.pages.values().flatten().count() as u64;
        m.engine.set_tier_use(Tier::Pool, stored * 1000, stored);
        assert!(stored <= 150, "beyond the tier's limit");
        for (app, counts) in &m.engine.facts().app_pages {
            let sum = m.world.counts(SpaceId(app.0));
            assert_eq!(counts, &sum, "counts of {app:?}");
        }
    }
    // Whatever is resident and of an app can still leave.
    m.engine.set_tier(Tier::Pool, limited(u64::MAX));
    let left = ordered(&m.swap_out(urgent(100_000)));
    let owned = |page: &PageId| m.engine.facts().app_of(page.space()).is_some();
    let resident =
        m.world.pages.iter().filter(|(page, tier)| tier.is_none() && owned(page)).count();
    assert_eq!(left.len(), resident, "a page was lost from the lists");
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_page_is_lost_or_ordered_twice_and_the_same_events_give_the_same_orders(
        preset in prop_oneof![Just("zram"), Just("ariadne"), Just("ariadne-paper")],
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        prop_assert_eq!(play(preset, &steps), play(preset, &steps));
    }
}

/// A space of files, of the same app.
fn files(machine: &mut Machine, app: u32, pages: u32) -> SpaceId {
    let space = SpaceId(app + 100);
    machine.tell(Event::SpaceStart { space, app: AppId(app), file: true });
    machine.resident(run(space.0, 1000, pages));
    space
}

fn tier(limit_pages: u64, pages: u64) -> TierFacts {
    let (used_bytes, limit_bytes) = (pages * 2048, limit_pages * 2048);
    TierFacts { used_bytes, limit_bytes, pages, limit_pages, ..TierFacts::default() }
}

/// ezswap III-A: clean pages of files go first. Who does not take them into the pool drops them, which is
/// told as flash, where they lie already, whatever room there is.
#[test]
fn clean_pages_of_files_are_dropped_first_and_need_no_room() {
    let mut machine = Machine::of("zswap");
    machine.engine.set_tier(Tier::Pool, tier(1000, 0));
    machine.engine.set_tier(Tier::Flash, tier(0, 0));
    machine.start(1, 100);
    let space = files(&mut machine, 1, 60);
    assert!(machine.engine.facts().is_file(space) && !machine.engine.facts().is_file(SpaceId(1)));
    let orders = machine.swap_out(demand(40));
    let [Order::SwapOut { space: of, groups, tier: Tier::Flash, form: FlashForm::Pages, .. }] =
        &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!((*of, groups.len()), (space, 40));
    machine.tell(Event::SpaceEnd { space });
    assert!(!machine.engine.facts().is_file(space), "its number is free");
}

/// With all-page accommodation they enter the pool; evicted, they are dropped. So are those that admission
/// rejects, while anonymous pages go to flash.
#[test]
fn clean_pages_of_files_enter_the_pool_of_who_takes_them() {
    let mut machine = Machine::of("ezswap");
    machine.engine.set_tier(Tier::Pool, tier(1000, 0));
    machine.engine.set_tier(Tier::Flash, tier(0, 0));
    let space = files(&mut machine, 1, 60);
    let orders = machine.swap_out(demand(40));
    let [Order::SwapOut { groups, tier: Tier::Pool, .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    let group = groups[0].clone();
    assert_eq!(group.pages[0].space(), space);
    let place = |machine: &mut Machine, group: &Group, cause| {
        machine.engine.place(group, AppId(1), cause, &machine.world)
    };
    assert_eq!(place(&mut machine, &group, Cause::SwapOut), Place::Tier(Tier::Pool));
    assert_eq!(place(&mut machine, &group, Cause::Evicted), Place::FlashPages);
    assert_eq!(place(&mut machine, &group, Cause::Rejected), Place::FlashPages);
    // Nothing was found in the pool yet: everything is admitted.
    let samples = vec![&[0u8; 512][..]; group.pages.len()];
    let admitted = machine.engine.admit(group.clone(), &samples, &machine.world);
    assert_eq!((admitted.group, admitted.rejected), (Some(group), None));
}

#[test]
fn each_user_has_an_app_in_front() {
    let mut m = Machine::zram();
    m.engine.is_of(AppId(2), 1000);
    m.engine.is_of(AppId(4), 1000);
    for app in 1..=4 {
        m.start(app, 10);
    }
    m.tell(Event::Relaunch { app: AppId(1) });
    m.touch(page(1, 1001));
    m.tell(Event::Relaunch { app: AppId(2) });
    // Its relaunch is over where another's begins.
    let facts = m.engine.facts();
    assert_eq!(facts.launch_sets[&AppId(1)], [vec![page(1, 1001)]]);
    assert_eq!(facts.fronts, vec![AppId(1), AppId(2)]);
    assert_eq!(facts.apps[&AppId(1)].state, AppState::Foreground);
    m.tell(Event::Relaunch { app: AppId(4) });
    assert_eq!(m.engine.facts().fronts, vec![AppId(1), AppId(4)]);
    m.tell(Event::Relaunch { app: AppId(3) });
    let facts = m.engine.facts();
    assert_eq!(facts.fronts, vec![AppId(3), AppId(4)]);
    assert_eq!(facts.apps[&AppId(1)].state, AppState::Background);
    m.tell(Event::Background { app: AppId(3) });
    assert_eq!(m.engine.facts().fronts, vec![AppId(4)]);
    m.exit(AppId(4));
    assert_eq!(m.engine.facts().fronts, vec![]);
}

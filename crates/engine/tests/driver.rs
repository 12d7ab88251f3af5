//! What a driver wants done: budget, kept copies, room, and what policies want by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clew_core::{
    AccessKind, Admission, Admit, AppId, Arrival, Candidate, Cause, CodecKind, Ending, Event,
    Eviction, Group, Job, Ns, Observe, PageCounts, PageFacts, PageId, PageRun, Place, Placement,
    Prefetch, SpaceId, Tier, TierFacts, Trigger, Unit, View, Vpn, Whole,
};
use clew_engine::budget::{Budget, Use};
use clew_engine::decide::Engine;
use clew_engine::driver::{Command, Driver, Sensor};
use clew_policy::packing::by_age;
use clew_policy::schemes::OnFull;
use clew_policy::{Policies, Scheme};

const TOTAL: u64 = 1 << 30;
const PAGE: u64 = 4096;
const SPACE: SpaceId = SpaceId(3);
const APP: AppId = AppId(7);

/// Where the pages of one space are.
#[derive(Default)]
struct Table(BTreeMap<PageId, Option<Tier>>);

impl PageFacts for Table {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.0.get(&page).copied().flatten()
    }
    fn counts(&self, _: SpaceId) -> PageCounts {
        let out = self.0.values().flatten().count() as u64;
        let mut counts =
            PageCounts { resident: self.0.len() as u64 - out, ..PageCounts::default() };
        counts.stored[Tier::Pool.index()] = out;
        counts
    }
    fn for_each(&self, _: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        self.0.iter().for_each(|(page, tier)| visit(*page, *tier));
    }
}

/// A driver and one app with so many resident pages.
struct Machine {
    driver: Driver,
    table: Table,
    /// How full the pool is said to be.
    pool: TierFacts,
}

/// A pool with room for so many pages, of 1,024, that take 1 KiB each.
fn room(pages: u64) -> TierFacts {
    let stored = 1024 - pages;
    TierFacts {
        used_bytes: stored << 10,
        limit_bytes: 1 << 20,
        pages: stored,
        limit_pages: 1 << 20,
        ..TierFacts::default()
    }
}

impl Machine {
    fn new(engine: Engine, on_full: OnFull) -> Machine {
        let (low_bytes, high_bytes) = (PAGE, PAGE);
        let budget = Budget { total_bytes: TOTAL, low_bytes, high_bytes, page_bytes: PAGE };
        let mut driver = Driver::new(engine, budget, on_full);
        let run = PageRun { first: PageId::new(SPACE, Vpn(100)), count: 64 };
        let table = Table(run.pages().map(|page| (page, None)).collect());
        driver.tell(Ns(1), &Event::SpaceStart { space: SPACE, app: APP, file: false }, &table);
        driver.tell(Ns(2), &Event::Resident { run }, &table);
        let pool = room(512);
        driver.set_tier(Tier::Pool, pool);
        Machine { driver, table, pool }
    }

    fn zram() -> Machine {
        Machine::new(Engine::new(&Scheme::preset("zram").expect("a preset")), OnFull::Stop)
    }

    /// So many pages are short; what follows when a kept copy frees 1 KiB.
    fn short_of(&mut self, pages: u64) -> Vec<Command> {
        let commands = self.short_of_still(pages);
        commands.iter().filter_map(number).for_each(|number| self.driver.carried_out(number, 0));
        commands
    }

    /// The same; what leaves is on its way.
    fn short_of_still(&mut self, pages: u64) -> Vec<Command> {
        let used_bytes = TOTAL + (pages - 1) * PAGE;
        let used = Use { used_bytes, resident_bytes: used_bytes, ..Use::default() };
        self.driver.set_tier(Tier::Pool, self.pool);
        self.driver.keep_budget(Ns(3), used, &self.table);
        self.done()
    }

    /// Carries out what a driver waits for; the rest.
    fn done(&mut self) -> Vec<Command> {
        let mut rest = Vec::new();
        while let Some(command) = self.driver.next_command() {
            if let Command::GiveUp { wanted_bytes } = command {
                let dropped = self.driver.give_up_kept(wanted_bytes, |_| Some(1024));
                self.driver.gave_up(dropped, self.pool, &self.table);
            }
            rest.push(command);
        }
        rest
    }
}

/// That of a command by which pages leave.
fn number(command: &Command) -> Option<u64> {
    match command {
        Command::SwapOut { number, .. }
        | Command::Peek { number, .. }
        | Command::Move { number, .. }
        | Command::Lend { number, .. } => Some(*number),
        _ => None,
    }
}

fn pages_out(commands: &[Command]) -> usize {
    let pages = commands.iter().map(|command| match command {
        Command::SwapOut { space, groups, .. } => {
            assert_eq!(*space, SPACE);
            groups.iter().map(|group| group.pages.len()).sum()
        }
        _ => 0,
    });
    pages.sum()
}

#[test]
fn what_is_short_leaves_after_copies_that_can_be_given_up() {
    let mut machine = Machine::zram();
    let commands = machine.short_of(8);
    assert!(matches!(commands[0], Command::GiveUp { wanted_bytes } if wanted_bytes == 8 * PAGE));
    assert_eq!(pages_out(&commands), 8, "{commands:?}");
    (0..12).for_each(|vpn| machine.driver.keep_copy(PageId::new(SPACE, Vpn(vpn))));
    assert_eq!(pages_out(&machine.short_of(8)), 5, "twelve copies are three pages");
    (0..99).for_each(|vpn| machine.driver.keep_copy(PageId::new(SPACE, Vpn(vpn))));
    let commands = machine.short_of(8);
    assert_eq!((commands.len(), pages_out(&commands)), (1, 0), "{commands:?}");
    assert_eq!(machine.driver.rounds(), 2);
}

/// What comes back says nothing of what leaves, and who is asked twice takes out only what is still short.
#[test]
fn what_is_on_its_way_out_counts_as_gone_until_its_command_is_over() {
    let mut machine = Machine::zram();
    let commands = machine.short_of_still(8);
    let number = commands.iter().find_map(number).expect("a number");
    assert_eq!(machine.driver.leaving_pages(), 8);
    assert_eq!(pages_out(&machine.short_of_still(12)), 4);
    machine.driver.carried_out(number + 1000, 8);
    assert_eq!(machine.driver.leaving_pages(), 12, "nobody knows that command");
    machine.driver.carried_out(number, 0);
    machine.driver.carried_out(number, 8);
    assert_eq!(machine.driver.leaving_pages(), 4);
    assert_eq!(pages_out(&machine.short_of_still(12)), 8);
    // What is not handed out after all never was on its way.
    machine.driver.take_out_of_app(APP, 0, &machine.table);
    assert_eq!((machine.done().len(), machine.driver.leaving_pages()), (0, 12));
}

#[test]
fn a_full_pool_ends_it_until_there_is_room_again() {
    let mut machine = Machine::zram();
    machine.pool = room(31);
    machine.driver.no_room(machine.pool);
    let commands = machine.done();
    assert!(matches!(commands[..], [Command::GiveUp { .. }]), "{commands:?}");
    assert_eq!(machine.driver.pool_full(), (true, 1));
    let commands = machine.short_of(8);
    assert_eq!(pages_out(&commands), 0, "{commands:?}");
    machine.driver.no_room(machine.pool);
    machine.done();
    assert_eq!(machine.driver.pool_full(), (true, 1), "it is full, and has not become so");
    // What is given up may be enough.
    machine.pool = room(65);
    assert_eq!(pages_out(&machine.short_of(8)), 8);
    assert_eq!(machine.driver.pool_full(), (false, 1));
}

#[test]
fn an_app_leaves_as_far_as_was_asked_for() {
    let mut machine = Machine::zram();
    machine.driver.take_out_of_app(APP, 0, &machine.table);
    assert!(machine.done().is_empty());
    // What stayed can leave at once.
    machine.driver.take_out_app(APP, &machine.table);
    assert_eq!(pages_out(&machine.done()), 64);
}

fn page(vpn: u64) -> PageId {
    PageId::new(SPACE, Vpn(vpn))
}

fn run(vpn: u64, count: u32) -> PageRun {
    PageRun { first: page(vpn), count }
}

/// The pages that leave.
fn out(commands: &[Command]) -> Vec<PageId> {
    let groups = commands.iter().flat_map(|command| match command {
        Command::SwapOut { groups, .. } => &groups[..],
        _ => &[],
    });
    let mut out: Vec<PageId> = groups.flat_map(|group| group.pages.iter().copied()).collect();
    out.sort_unstable();
    out
}

#[test]
fn what_could_not_leave_is_left_alone_for_a_second() {
    let mut machine = Machine::zram();
    let commands = machine.short_of(64);
    assert_eq!(pages_out(&commands), 64);
    out(&commands).into_iter().for_each(|page| machine.driver.stayed(Ns::from_ms(10), page));
    // Meanwhile its program gives some up, moves some over others, and one was stored after all.
    machine.driver.tell(Ns::from_ms(20), &Event::Freed { run: run(100, 8) }, &machine.table);
    let moved = Event::Moved { from: run(110, 4), to: page(160) };
    machine.driver.tell(Ns::from_ms(30), &moved, &machine.table);
    machine.table.0.insert(page(163), Some(Tier::Pool));
    machine.driver.tick(Ns::from_ms(1009), &machine.table);
    assert_eq!(out(&machine.short_of(64)), []);
    machine.driver.tick(Ns::from_ms(1010), &machine.table);
    let left = (108..110).chain(114..163).map(page).collect::<Vec<_>>();
    assert_eq!(out(&machine.short_of(64)), left);
    // Whoever asks for all, or takes stock, has them at once; a space that is gone has none.
    left.iter().for_each(|page| machine.driver.stayed(Ns::from_ms(1020), *page));
    machine.driver.take_out_app(APP, &machine.table);
    assert_eq!(out(&machine.done()), left);
    left.iter().for_each(|page| machine.driver.stayed(Ns::from_ms(1020), *page));
    machine.driver.tell(Ns::from_ms(1030), &Event::Background { app: APP }, &machine.table);
    machine.driver.take_out_of_app(APP, 1, &machine.table);
    assert_eq!(out(&machine.done()), left);
    left.iter().for_each(|page| machine.driver.stayed(Ns::from_ms(1040), *page));
    machine.driver.tell(Ns::from_ms(1050), &Event::SpaceEnd { space: SPACE }, &machine.table);
    machine.driver.tick(Ns::from_ms(9999), &machine.table);
    machine.driver.take_out_app(APP, &machine.table);
    assert_eq!(out(&machine.done()), []);
}

#[test]
fn nothing_of_a_protected_space_is_picked_before_its_user_asks() {
    let mut machine = Machine::zram();
    let commands = machine.short_of(64);
    machine.driver.protect(SPACE, APP);
    out(&commands).into_iter().for_each(|page| machine.driver.stayed(Ns(4), page));
    machine.driver.tell(Ns(5), &Event::Resident { run: run(300, 4) }, &machine.table);
    machine.driver.tick(Ns::from_ms(5000), &machine.table);
    assert_eq!(out(&machine.short_of(64)), []);
    assert!(machine.driver.is_protected(SPACE));
    machine.driver.offer(Ns::from_ms(5001), run(100, 2), &machine.table);
    assert_eq!(out(&machine.short_of(64)), [page(100), page(101)]);
    machine.driver.tell(Ns::from_ms(5002), &Event::SpaceEnd { space: SPACE }, &machine.table);
    assert!(!machine.driver.is_protected(SPACE));
}

/// Wants all pages from 100 on for a relaunch, and the next two for a fault.
struct Ahead {
    arrival: Arrival,
    all: bool,
}

impl Observe for Ahead {}

impl Prefetch for Ahead {
    fn arrival(&self) -> Arrival {
        self.arrival
    }
    fn brings_all(&self) -> bool {
        self.all
    }
    fn pick_prefetch(&mut self, trigger: Trigger, _: &View<'_>, out: &mut Vec<PageId>) {
        match trigger {
            Trigger::Relaunch(_) => out.extend((0..2048).rev().map(|n| page(100 + n))),
            Trigger::Fault(at) => out.extend([at.plus(2), at.plus(1)]),
            Trigger::Hit(_) => {}
        }
    }
}

/// The pages of each restore, whether they are parked, and its number.
fn restores(commands: Vec<Command>) -> Vec<(Vec<PageId>, bool, u64)> {
    let restore = |command| match command {
        Command::Restore { space: SPACE, pages, park, number } => (pages, park, number),
        other => panic!("{other:?}"),
    };
    commands.into_iter().map(restore).collect()
}

#[test]
fn what_is_wanted_comes_back_as_far_as_there_is_room() {
    let scheme = Scheme::preset("zram").expect("a preset");
    let mut policies = scheme.build();
    policies.prefetch =
        Box::new(Ahead { arrival: Arrival::Parked { pages: 9, keep: true }, all: false });
    let mut machine = Machine::new(Engine::with_policies(&scheme, policies), OnFull::Stop);
    let Machine { driver, table, .. } = &mut machine;
    table.0.extend((0..2048).map(|n| (page(100 + n), Some(Tier::Pool))));
    table.0.insert(page(2147), Some(Tier::Kernel));
    let room = 1500;
    let free = |pages: u64| {
        let used_bytes = TOTAL - pages * PAGE;
        Use { used_bytes, resident_bytes: used_bytes, ..Use::default() }
    };
    let fits = driver.budget().early_pages(free(room));
    assert!((1000..1500).contains(&fits), "{fits}");
    driver.want_early(Trigger::Relaunch(APP), table);
    driver.bring_wanted(free(room), table);
    let first = restores(std::iter::from_fn(|| driver.next_command()).collect());
    // The first piece is what was wanted first, by address; what is lent comes back by itself.
    assert_eq!(first[0].0, (2147 - 512..2147).map(page).collect::<Vec<_>>());
    assert_eq!(first.iter().map(|(pages, ..)| pages.len()).sum::<usize>(), fits);
    assert!(first.iter().all(|(pages, park, _)| pages.is_sorted() && !park));
    // What is on its way counts as there.
    driver.want_early(Trigger::Fault(page(100)), table);
    driver.bring_wanted(free(room), table);
    assert!(driver.next_command().is_none());
    for (pages, _, number) in first {
        driver.carried_out(number, pages.len() - 1);
        driver.carried_out(number, 1000);
    }
    let counts = driver.early();
    assert_eq!((counts.asked_pages, counts.coming_pages), (fits as u64, 0));
    assert_eq!(counts.came_pages, fits as u64 - fits.div_ceil(512) as u64);
    driver.want_early(Trigger::Fault(page(100)), table);
    driver.bring_wanted(free(room), table);
    let then = restores(std::iter::from_fn(|| driver.next_command()).collect());
    assert_eq!(then.len(), 1);
    assert_eq!((&then[0].0[..], then[0].1), (&[page(101), page(102)][..], true));
}

/// An app that must have everything (MobileSwap III-C) gets what found no room as soon as there is some, which reclaim is
/// asked for, until it is not in front any more.
#[test]
fn what_an_app_must_have_is_owed_until_it_is_there() {
    let scheme = Scheme::preset("zram").expect("a preset");
    let mut policies = scheme.build();
    policies.prefetch = Box::new(Ahead { arrival: Arrival::Resident, all: true });
    let mut machine = Machine::new(Engine::with_policies(&scheme, policies), OnFull::Stop);
    let Machine { driver, table, .. } = &mut machine;
    table.0.extend((0..2048).map(|n| (page(100 + n), Some(Tier::Pool))));
    let free = |pages: u64| {
        let used_bytes = TOTAL - pages * PAGE;
        Use { used_bytes, resident_bytes: used_bytes, ..Use::default() }
    };
    let fits = driver.budget().early_pages(free(1500));
    let plenty = (2048 - fits as u64) + TOTAL / PAGE / 8;
    assert_eq!(driver.shortage(free(plenty)), None);
    driver.tell(Ns(1), &Event::Relaunch { app: APP }, table);
    driver.want_early(Trigger::Relaunch(APP), table);
    driver.bring_wanted(free(1500), table);
    let mut came = BTreeSet::new();
    let mut back = |driver: &mut Driver, table: &mut Table| {
        for (pages, _, number) in restores(std::iter::from_fn(|| driver.next_command()).collect()) {
            for page in &pages {
                table.0.insert(*page, None);
                assert!(came.insert(*page), "{page:?} came twice");
            }
            driver.carried_out(number, pages.len());
        }
        came.len()
    };
    assert_eq!(back(driver, table), fits);
    assert!(driver.owes());
    // One of those that are owed is used meanwhile, and not brought again.
    table.0.insert(page(100), None);
    let short = driver.shortage(free(100)).expect("there is no room for the rest");
    assert!(short.bytes > 0 && !short.urgent, "{short:?}");
    driver.bring_wanted(free(plenty), table);
    assert_eq!(back(driver, table), 2047);
    assert!(!driver.owes());
    assert_eq!(driver.shortage(free(plenty)), None);
    // Who goes to the back is owed nothing.
    table.0.extend((0..2048).map(|n| (page(100 + n), Some(Tier::Pool))));
    driver.want_early(Trigger::Relaunch(APP), table);
    driver.bring_wanted(free(0), table);
    assert!(driver.owes());
    driver.tell(Ns(2), &Event::Background { app: APP }, table);
    assert!(!driver.owes());
}

/// Asks for a job at the first tick, and ends the app when that is done.
#[derive(Default)]
struct Wishes {
    ticks: u32,
    done: Vec<u64>,
}

impl Observe for Wishes {
    fn on_event(&mut self, event: &Event, _: &View<'_>) {
        match event {
            Event::Tick => self.ticks += 1,
            Event::JobDone { job } => self.done.push(*job),
            _ => {}
        }
    }
    fn take_job(&mut self) -> Option<Job> {
        (std::mem::take(&mut self.ticks) == 1).then(|| Job { id: 40, run: Box::new(|| {}) })
    }
    fn take_ending(&mut self) -> Option<Ending> {
        let ending = Ending { app: APP, reason: "its job is done" };
        (self.done.pop() == Some(40)).then_some(ending)
    }
}

impl Eviction for Wishes {
    fn pick_evictions(&mut self, _: u64, _: &View<'_>, _: &mut Vec<Unit>) {}
}

#[test]
fn what_policies_want_by_themselves_is_done_at_once() {
    let scheme = Scheme::preset("zram").expect("a preset");
    let mut policies = scheme.build();
    policies.eviction = Box::new(Wishes::default());
    let mut machine = Machine::new(Engine::with_policies(&scheme, policies), OnFull::Stop);
    assert!(machine.done().is_empty());
    machine.driver.tick(Ns(5), &machine.table);
    let mut commands = machine.done();
    let Some(Command::Run(job)) = commands.pop() else { panic!("{commands:?}") };
    (job.run)();
    machine.driver.tell(Ns(6), &Event::JobDone { job: job.id }, &machine.table);
    let commands = machine.done();
    let ends = |command: &Command| matches!(command, Command::EndApp { app: APP, .. });
    assert!(commands.len() == 1 && commands.iter().all(ends), "{commands:?}");
}

/// To the pool, and from there to the kernel's zram.
struct Onwards;

impl Observe for Onwards {}

impl Placement for Onwards {
    fn place(&mut self, _: &Group, _: AppId, cause: Cause, _: &View<'_>) -> Place {
        Place::Tier(if cause == Cause::Evicted { Tier::Kernel } else { Tier::Pool })
    }
}

impl Eviction for Onwards {
    fn pick_evictions(&mut self, _: u64, _: &View<'_>, out: &mut Vec<Unit>) {
        out.extend([Unit::Page(page(163)), Unit::App(APP), Unit::Pages(vec![page(5)])]);
    }
}

#[test]
fn what_is_evicted_moves_before_what_enters() {
    let scheme = Scheme::preset("zram").expect("a preset");
    let policies =
        Policies { eviction: Box::new(Onwards), placement: Box::new(Onwards), ..scheme.build() };
    let mut machine = Machine::new(Engine::with_policies(&scheme, policies), OnFull::Stop);
    for vpn in 160..164 {
        machine.table.0.insert(page(vpn), Some(Tier::Pool));
    }
    machine.table.0.insert(page(5), Some(Tier::Kernel));
    machine.driver.set_tier(Tier::Kernel, room(3));
    // A pool without room for what must leave.
    machine.pool = room(33);
    let commands = machine.short_of(64);
    let [Command::GiveUp { .. }, Command::Move { groups, tier: Tier::Kernel, .. }, ..] =
        &commands[..]
    else {
        panic!("{commands:?}")
    };
    // Each once, as far as there is room; what is there already stays there.
    let mut moved: Vec<PageId> = groups.iter().flat_map(|group| group.pages.clone()).collect();
    moved.sort_unstable();
    assert_eq!(moved.len(), 3);
    moved.dedup();
    assert!(moved.len() == 3 && moved.iter().all(|p| (page(160)..=page(163)).contains(p)));
    assert_eq!(pages_out(&commands), 33 + 3, "room for three was made");
}

/// Admits pages that begin with an even byte, and has others lent.
struct Even;

impl Observe for Even {}

impl Admission for Even {
    fn admit(&mut self, candidate: Candidate<'_>, _: &View<'_>) -> Admit {
        if candidate.sample[0].is_multiple_of(2) { Admit::Yes } else { Admit::No }
    }
}

impl Placement for Even {
    fn place(&mut self, _: &Group, _: AppId, cause: Cause, _: &View<'_>) -> Place {
        Place::Tier(if cause == Cause::Rejected { Tier::Kernel } else { Tier::Pool })
    }
}

#[test]
fn what_is_admitted_leaves_and_the_rest_goes_where_it_is_placed() {
    let scheme = Scheme::preset("zram").expect("a preset");
    let policies =
        Policies { admission: Box::new(Even), placement: Box::new(Even), ..scheme.build() };
    let mut machine = Machine::new(Engine::with_policies(&scheme, policies), OnFull::Stop);
    let mut commands = machine.short_of(8);
    let Some(Command::Peek { space: SPACE, groups, .. }) = commands.pop() else {
        panic!("{commands:?}")
    };
    assert_eq!(pages_out(&commands), 0);
    let pages: Vec<PageId> = groups.iter().flat_map(|group| group.pages.clone()).collect();
    assert_eq!(pages.len(), 8);
    // The last one cannot be read now.
    let samples: Vec<Vec<u8>> = (0..8).map(|n| vec![n; if n == 7 { 0 } else { 512 }]).collect();
    machine.driver.peeked(Ns(5), groups, &samples, &machine.table);
    let commands = machine.done();
    let [Command::SwapOut { .. }, Command::Lend { groups: lent, .. }] = &commands[..] else {
        panic!("{commands:?}")
    };
    let even: Vec<PageId> = pages.iter().copied().step_by(2).collect();
    assert_eq!(out(&commands), even);
    let lent: Vec<PageId> = lent.iter().flat_map(|group| group.pages.clone()).collect();
    assert_eq!(lent, [pages[1], pages[3], pages[5]]);
    // Nothing is asked twice at once.
    machine.driver.take_out_of_app(APP, 56, &machine.table);
    assert!(machine.done().iter().all(|command| matches!(command, Command::Peek { groups, .. }
        if groups.iter().all(|group| group.pages.iter().all(|page| *page == pages[7]
            || !pages.contains(page))))));
}

fn ms(ms: u64) -> Ns {
    Ns::from_ms(ms)
}

#[test]
fn a_relaunch_of_which_nobody_says_so_ends_when_it_is_quiet() {
    let mut driver = Machine::zram().driver;
    driver.begin_relaunch(ms(1000), APP, 7);
    assert!(driver.is_relaunching());
    // Nothing has come yet: its program may not have run.
    assert_eq!(driver.quiet_relaunches(ms(2900), |_| 7), []);
    assert_eq!(driver.quiet_relaunches(ms(3100), |_| 7), [APP]);
    assert_eq!(driver.quiet_relaunches(ms(3200), |_| 8), [], "a fault");
    assert_eq!(driver.quiet_relaunches(ms(3390), |_| 8), []);
    assert_eq!(driver.quiet_relaunches(ms(3401), |_| 8), [APP]);
    driver.end_relaunch(ms(3402), APP, |_| false, &Table::default());
    assert!(!driver.is_relaunching() && driver.quiet_relaunches(ms(9999), |_| 8).is_empty());
    driver.begin_relaunch(ms(5000), APP, 9);
    driver.tell(ms(5001), &Event::Exit { app: APP }, &Table::default());
    assert!(!driver.is_relaunching());
}

/// What is to be watched, by its first page; nothing else is wanted.
fn watched(driver: &mut Driver) -> Vec<PageId> {
    let mut watched = Vec::new();
    while let Some(command) = driver.next_command() {
        let Command::Watch { space: SPACE, groups } = command else { panic!("{command:?}") };
        watched.extend(groups.into_iter().flat_map(|group| group.pages));
    }
    watched
}

#[test]
fn a_sample_is_watched_from_one_relaunch_to_the_end_of_the_next() {
    let scheme = Scheme::preset("ariadne").expect("a preset");
    let mut machine = Machine::new(Engine::new(&scheme), OnFull::Stop);
    let Machine { driver, table, .. } = &mut machine;
    let relaunch = |driver: &mut Driver, at: u64, table: &Table| {
        driver.begin_relaunch(ms(at), APP, 0);
        driver.tell(ms(at), &Event::Relaunch { app: APP }, table);
        for n in 0..64 {
            let kind = AccessKind::Seen;
            let used = Event::Access { page: page(100 + n), kind, write: false };
            driver.tell(ms(at + 1), &used, table);
        }
    };
    let back = |driver: &mut Driver, at: u64, untouched: &[PageId], table: &Table| {
        driver.end_relaunch(ms(at), APP, |page| untouched.contains(&page), table);
        driver.tell(ms(at), &Event::Background { app: APP }, table);
    };
    // Nobody has said that anything is to be watched.
    relaunch(driver, 100, table);
    back(driver, 110, &[], table);
    driver.take_samples(ms(1000), table);
    assert_eq!(watched(driver), []);
    driver.set_sensor(Sensor { share: 4, run_pages: 2 });
    relaunch(driver, 1100, table);
    driver.take_samples(ms(1110), table);
    assert_eq!(watched(driver), [], "it is in front");
    back(driver, 1200, &[], table);
    driver.take_samples(ms(1399), table);
    assert_eq!(watched(driver), [], "it may tidy up");
    driver.take_samples(ms(1400), table);
    let first = watched(driver);
    assert_eq!(first.len(), 16, "one page in four of 64 hot ones");
    driver.take_samples(ms(5000), table);
    assert_eq!(watched(driver), [], "a sample is watched until its relaunch is over");
    // Nothing of it was touched: the next one is as large.
    relaunch(driver, 6000, table);
    back(driver, 6100, &first, table);
    let Some(Command::EndWatch { space: SPACE, pages }) = driver.next_command() else {
        panic!("it comes back")
    };
    assert!(pages.is_sorted() && pages.len() == 16);
    assert_eq!(driver.unused_pages(), 16);
    driver.take_samples(ms(6300), table);
    let second = watched(driver);
    assert_eq!(second.len(), 16);
    // All of it was touched: the next one is half as large.
    relaunch(driver, 7000, table);
    back(driver, 7100, &[], table);
    assert!(
        matches!(driver.next_command(), Some(Command::EndWatch { pages, .. }) if pages.is_empty())
    );
    driver.set_tier(Tier::Pool, room(64));
    driver.take_samples(ms(7300), table);
    assert_eq!(watched(driver), [], "the pool is nearly full");
    driver.set_tier(Tier::Pool, room(512));
    driver.take_samples(ms(7310), table);
    assert!((1..=second.len() / 2 + 1).contains(&watched(driver).len()));
}

/// When nothing else is to be done, a little at a time.
#[test]
fn pages_are_stored_anew_when_nothing_else_is_to_be_done() {
    let mut scheme = Scheme::preset("zram").expect("a preset");
    let after_relaunches = Whole::of(1);
    scheme.packing = Arc::new(by_age::Params { after_relaunches, ..Default::default() });
    let mut machine = Machine::new(Engine::new(&scheme), OnFull::Stop);
    assert_eq!(pages_out(&machine.short_of(8)), 8);
    let left: Vec<PageId> = machine.table.0.keys().copied().take(8).collect();
    for page in left {
        machine.table.0.insert(page, Some(Tier::Pool));
        let stored = Event::Stored { page, tier: Tier::Pool, bytes: 1000 };
        machine.driver.tell(Ns(4), &stored, &machine.table);
    }
    let looks = |machine: &mut Machine, now, relaunching| {
        let used = Use { used_bytes: TOTAL / 2, relaunching, ..Use::default() };
        machine.driver.keep_budget(Ns(now), used, &machine.table);
        machine.done()
    };
    assert!(looks(&mut machine, 5, false).is_empty(), "they are young");
    machine.driver.tell(Ns(6), &Event::Relaunch { app: APP }, &machine.table);
    assert!(looks(&mut machine, 7, true).is_empty(), "faults come first");
    machine.driver.set_cpu_load(0.9);
    assert!(looks(&mut machine, 8, false).is_empty(), "programs need the CPUs");
    machine.driver.set_cpu_load(0.1);
    let commands = looks(&mut machine, 9, false);
    let [Command::Repack { space: SPACE, groups, .. }] = &commands[..] else {
        panic!("{commands:?}")
    };
    let pages: usize = groups.iter().map(|group| group.pages.len()).sum();
    assert_eq!(pages, 8);
    assert!(groups.iter().all(|group| group.codec == CodecKind::ZstdDictionary));
    assert!(looks(&mut machine, 10, false).is_empty(), "each once");
}

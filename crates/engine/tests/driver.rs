//! What a driver wants done: budget, kept copies, room, and what policies want by themselves.

use std::collections::BTreeMap;

use clew_core::{
    AppId, Ending, Event, Eviction, Job, Ns, Observe, PageCounts, PageFacts, PageId, PageRun,
    SpaceId, Tier, TierFacts, Unit, View, Vpn,
};
use clew_engine::budget::{Budget, Use};
use clew_engine::decide::Engine;
use clew_engine::driver::{Command, Driver};
use clew_policy::Scheme;
use clew_policy::schemes::OnFull;

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
    }
}

impl Machine {
    fn new(engine: Engine, on_full: OnFull) -> Machine {
        let (low_bytes, high_bytes) = (PAGE, PAGE);
        let budget = Budget { total_bytes: TOTAL, low_bytes, high_bytes, page_bytes: PAGE };
        let mut driver = Driver::new(engine, budget, on_full);
        let run = PageRun { first: PageId::new(SPACE, Vpn(100)), count: 64 };
        let table = Table(run.pages().map(|page| (page, None)).collect());
        driver.tell(Ns(1), &Event::SpaceStart { space: SPACE, app: APP }, &table);
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

fn pages_out(commands: &[Command]) -> usize {
    let pages = commands.iter().map(|command| match command {
        Command::SwapOut { space, groups } => {
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
    let commands = machine.done();
    let stay =
        |command: &Command| matches!(command, Command::Stay { groups } if !groups.is_empty());
    assert!(!commands.is_empty() && commands.iter().all(stay), "{commands:?}");
    for command in commands {
        let Command::Stay { groups } = command else { continue };
        for page in groups.into_iter().flat_map(|group| group.pages) {
            machine.driver.tell(Ns(4), &Event::Stayed { page }, &machine.table);
        }
    }
    machine.driver.take_out_app(APP, &machine.table);
    assert_eq!(pages_out(&machine.done()), 64);
}

/// Ends the app at the second tick, asks for a job at the first, and evicts when asked.
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
    fn pick_evictions(&mut self, _: u64, _: &View<'_>, out: &mut Vec<Unit>) {
        out.push(Unit::Page(PageId::new(SPACE, Vpn(100))));
    }
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
    // A pool without room for what must leave.
    machine.pool = room(4);
    let commands = machine.short_of(64);
    let evicts = |command: &Command| matches!(command, Command::Evict { unit: Unit::Page(_) });
    assert!(commands.iter().any(evicts), "{commands:?}");
}

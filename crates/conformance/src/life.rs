//! Histories: what happens to programs, drawn from a seed and told to one policy.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clew_core::{
    AccessKind, AppId, ClassCounts, Classes, DeviceFacts, DonorId, DonorState, Event, Hotness,
    Observe, Out, PageId, PageRun, Seeded, SpaceId, Tier, TierFacts, View,
};

use crate::world::{World, page, run};

/// A policy did what it may not do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} (history {history}, step {step})")]
pub struct Broken {
    /// What it did.
    pub what: String,
    /// In which history: the same one each time.
    pub history: u64,
    /// After how many steps of it.
    pub step: u32,
}

const HISTORIES: u64 = 48;
const STEPS: u32 = 300;
const SPACES: u64 = 4;
const APPS: u64 = 3;
const PAGES: u64 = 64;
const LIMIT_BYTES: u64 = 1 << 20;

/// One history, and the policy that lives through it.
pub(crate) struct Life<P: ?Sized> {
    pub random: Seeded,
    pub world: World,
    pub policy: Box<P>,
    /// The policy keeps the classes, so nobody tells it any.
    pub keeps_classes: bool,
    /// What it answered, in words.
    pub answers: Vec<String>,
    /// What it was asked for and has been given: victims, prefetched pages, units that were evicted.
    pub out: BTreeSet<PageId>,
    pub handed_out: bool,
}

/// Why a question was answered badly.
pub(crate) type Answered = Result<(), String>;

/// Plays every history twice.
pub(crate) fn play<P: Observe + ?Sized>(
    build: &dyn Fn() -> Box<P>,
    keeps_classes: bool,
    ask: fn(&mut Life<P>) -> Answered,
) -> Result<(), Broken> {
    (0..HISTORIES).try_for_each(|history| {
        let first = one(build, keeps_classes, history, ask)?;
        let second = one(build, keeps_classes, history, ask)?;
        let other = first.iter().zip(&second).position(|(first, second)| first != second);
        match other {
            None => Ok(()),
            Some(at) => {
                let (first, second) = (&first[at], &second[at]);
                let what = format!("it answered {first}, and the next time {second}");
                Err(Broken { what, history, step: 0 })
            }
        }
    })
}

fn one<P: Observe + ?Sized>(
    build: &dyn Fn() -> Box<P>,
    keeps_classes: bool,
    history: u64,
    ask: fn(&mut Life<P>) -> Answered,
) -> Result<Vec<String>, Broken> {
    let mut life = Life {
        random: Seeded::of(history, &[]),
        world: World::new(&[0, 1, 1]).of_two_users(),
        policy: build(),
        keeps_classes,
        answers: Vec::new(),
        out: BTreeSet::new(),
        handed_out: false,
    };
    life.world.facts.all_touches_seen = history.is_multiple_of(2);
    let donors = [DonorId::FIRST, DonorId::new(1).expect("there can be two")];
    let [one, two] = donors.map(Tier::Donor);
    let tiers: &[Tier] = match history % 8 {
        0 | 1 => &[Tier::Pool],
        2 | 3 => &[Tier::Pool, Tier::Kernel],
        4 | 5 => &[Tier::Pool, Tier::Flash],
        _ => &[Tier::Pool, Tier::Flash, one, two],
    };
    if tiers.contains(&one) {
        life.world.facts.donors = donors.map(|donor| (donor, DonorState::Up)).into();
    }
    life.world.facts.tiers = tiers.iter().map(|tier| (*tier, TierFacts::default())).collect();
    for step in 0..STEPS {
        let broken = |what| Broken { what, history, step };
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            match life.random.below(3) {
                0 => ask(&mut life),
                _ => life.something_happens(),
            }?;
            if step + 1 < STEPS { life.metrics() } else { life.strangers() }
        }));
        stepped.unwrap_or_else(|_| Err("it panicked".to_string())).map_err(broken)?;
    }
    Ok(life.answers)
}

impl<P: Observe + ?Sized> Life<P> {
    /// Tells it to everybody, in the order in which the engine does.
    pub fn tell(&mut self, event: Event) -> Answered {
        self.world.before(&event);
        let Life { world, .. } = self;
        let (page_bytes, table) = (u64::from(world.facts.page_bytes), &world.table);
        for (tier, facts) in &mut world.facts.tiers {
            let pages = table.stored.values().filter(|of| *of == tier).count() as u64;
            let (used_bytes, limit_pages) = (pages * page_bytes / 4, LIMIT_BYTES / page_bytes);
            *facts = TierFacts {
                used_bytes,
                limit_bytes: LIMIT_BYTES,
                pages,
                limit_pages,
                ..TierFacts::default()
            };
        }
        self.on_event(&event);
        while let Some(job) = self.policy.take_job() {
            (job.run)();
            self.on_event(&Event::JobDone { job: job.id });
        }
        let endings = std::iter::from_fn(|| self.policy.take_ending()).take(100).count();
        self.world.after(&event);
        let Life { world, out, .. } = self;
        out.retain(|page| match &event {
            Event::Stored { page: told, .. }
            | Event::PageIn { page: told, .. }
            | Event::Stayed { page: told } => told != page,
            Event::Freed { run } => !run.contains(*page),
            Event::Moved { from, to } => {
                !from.contains(*page) && !PageRun { first: *to, ..*from }.contains(*page)
            }
            Event::SpaceStart { space, .. } => page.space() != *space,
            _ => world.facts.app_of(page.space()).is_some(),
        });
        if endings < 100 { Ok(()) } else { Err("it asks for endings without an end".to_string()) }
    }

    fn on_event(&mut self, event: &Event) {
        let Life { world, policy, keeps_classes, .. } = self;
        let classes = ByNumber(world);
        let view = if *keeps_classes { world.view() } else { world.view_with(&classes) };
        policy.on_event(event, &view);
    }

    /// Asks the policy; what it answers is noted.
    pub fn ask<T: std::fmt::Debug>(&mut self, ask: impl FnOnce(&mut P, &View<'_>) -> T) -> T {
        let Life { world, policy, keeps_classes, answers, .. } = self;
        let classes = ByNumber(world);
        let view = if *keeps_classes { world.view() } else { world.view_with(&classes) };
        let answer = ask(policy, &view);
        answers.push(format!("{answer:?}"));
        answer
    }

    /// One time in so many.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    pub fn an_app(&mut self) -> AppId {
        AppId(self.random.below(APPS) as u32)
    }

    /// One of `pages`.
    pub fn any(&mut self, pages: Vec<PageId>) -> Option<PageId> {
        let at = self.random.below(pages.len().max(1) as u64) as usize;
        pages.get(at).copied()
    }

    /// Resident pages that can be taken out.
    pub fn takeable(&self) -> Vec<PageId> {
        self.world.table.resident.difference(&self.world.table.moving).copied().collect()
    }

    pub fn stored(&self) -> Vec<PageId> {
        self.world.table.stored.keys().copied().collect()
    }

    /// `page` leaves DRAM, or a tier for another one.
    pub fn leave(&mut self, page: PageId) -> Answered {
        let tiers: Vec<Tier> = self.world.facts.tiers.keys().copied().collect();
        let tier = tiers[self.random.below(tiers.len() as u64) as usize];
        self.tell(Event::Stored { page, tier, bytes: 1000 })
    }

    /// `page` is used, wherever it is.
    pub fn touch(&mut self, page: PageId) -> Answered {
        let write = self.one_in(2);
        let access = |kind| Event::Access { page, kind, write };
        if let Some(tier) = self.world.table.stored.get(&page).copied() {
            self.tell(access(AccessKind::Fault))?;
            return self.tell(Event::PageIn { page, tier, demand: true });
        }
        if !self.world.table.resident.contains(&page) {
            return self.tell(access(AccessKind::Fresh));
        }
        if self.world.table.moving.contains(&page) {
            self.tell(Event::Stayed { page })?;
        }
        self.tell(access(AccessKind::Seen))
    }

    fn a_run(&mut self) -> PageRun {
        let (space, vpn) = (self.random.below(SPACES), self.random.below(PAGES));
        run(space as u32, vpn, 1 + self.random.below(8) as u32)
    }

    /// A run of a space that lives.
    fn a_living_run(&mut self) -> Option<PageRun> {
        let run = self.a_run();
        self.world.facts.app_of(run.first.space()).map(|_| run)
    }

    fn something_happens(&mut self) -> Answered {
        match self.random.below(24) {
            0..4 => self.found(),
            4..10 => match self.a_living_run() {
                Some(run) => run.pages().try_for_each(|page| self.touch(page)),
                None => self.begin(),
            },
            10..15 => self.settle(),
            15..18 => self.switch(),
            18 => {
                let run = self.a_run();
                self.tell(Event::Freed { run })
            }
            19 => self.moves(),
            20 => match self.a_living_run() {
                Some(run) => {
                    let seen = |page: &PageId| self.takeable().contains(page);
                    let runs: Vec<_> = run.pages().filter(seen).collect();
                    let used = self.one_in(2);
                    runs.into_iter().try_for_each(|first| {
                        let run = PageRun { first, count: 1 };
                        self.tell(if used { Event::Used { run } } else { Event::Unused { run } })
                    })
                }
                None => Ok(()),
            },
            21 => {
                let urgent = self.one_in(2);
                self.tell(Event::Pressure { pages: 8, urgent })?;
                if self.one_in(4) {
                    let [used_bytes, written_bytes] = [100, 1 << 40].map(|n| self.random.below(n));
                    let device = DeviceFacts { used_bytes, total_bytes: 100, written_bytes };
                    self.tell(Event::DeviceSample { device })?;
                }
                self.tell(Event::Tick)
            }
            22 => {
                let space = SpaceId(self.random.below(SPACES) as u32);
                self.tell(Event::SpaceEnd { space })
            }
            _ if self.one_in(2) => {
                let app = self.an_app();
                self.tell(Event::Exit { app })
            }
            _ => self.begin(),
        }
    }

    fn begin(&mut self) -> Answered {
        let space = SpaceId(self.random.below(SPACES) as u32);
        if self.world.facts.app_of(space).is_some() {
            self.tell(Event::SpaceEnd { space })?;
        }
        let (app, file) = (self.an_app(), self.one_in(3));
        self.tell(Event::SpaceStart { space, app, file })
    }

    /// A scan finds pages, some of them for the second time.
    fn found(&mut self) -> Answered {
        let Some(run) = self.a_living_run() else { return self.begin() };
        let table = &self.world.table;
        let there =
            |page: &PageId| !table.stored.contains_key(page) && !table.moving.contains(page);
        let count = run.pages().take_while(there).count() as u32;
        if count == 0 {
            Ok(())
        } else {
            self.tell(Event::Resident { run: PageRun { count, ..run } })
        }
    }

    /// What was handed out has left, or stays. Without anybody who hands out, something leaves.
    fn settle(&mut self) -> Answered {
        let moving: Vec<PageId> = self.world.table.moving.iter().copied().collect();
        if moving.is_empty() && !self.keeps_classes {
            let Some(first) = self.any(self.takeable()) else { return Ok(()) };
            let neighbours = PageRun { first, count: 4 };
            let pages = self.takeable().into_iter().filter(|page| neighbours.contains(*page));
            return pages.collect::<Vec<_>>().into_iter().try_for_each(|page| self.leave(page));
        }
        moving.into_iter().try_for_each(|page| match self.random.below(8) {
            0 => self.tell(Event::Stayed { page }),
            1 | 2 => Ok(()),
            _ => self.leave(page),
        })
    }

    /// Somebody comes to the front, is complete, or goes back. One app is in front at a time.
    pub fn switch(&mut self) -> Answered {
        let (app, what) = (self.an_app(), self.random.below(4));
        if !self.world.facts.apps.contains_key(&app) {
            return Ok(());
        }
        if what == 0 {
            return self.tell(Event::Background { app });
        }
        if what == 1 {
            return self.tell(Event::ResponseComplete { app, response_ns: 1 });
        }
        if let Some(front) = self.world.in_front_of(app) {
            self.tell(Event::Background { app: front })?;
        }
        self.tell(if what == 2 { Event::Launch { app } } else { Event::Relaunch { app } })
    }

    fn moves(&mut self) -> Answered {
        let (Some(from), offset) = (self.a_living_run(), 8 + self.random.below(PAGES)) else {
            return Ok(());
        };
        let over = PageRun { first: from.first.plus(offset), ..from };
        let both = from.pages().chain(over.pages());
        let held: Vec<_> = both.filter(|page| self.world.table.moving.contains(page)).collect();
        held.into_iter().try_for_each(|page| self.tell(Event::Stayed { page }))?;
        self.tell(Event::Moved { from, to: over.first })
    }

    /// All that can be said of a page and an app that nobody ever heard of.
    fn strangers(&mut self) -> Answered {
        let (page, run, space, app) = (page(9, 5), run(9, 5, 3), SpaceId(9), AppId(9));
        let (tier, to) = (Tier::Pool, page.plus(100));
        let events = [
            Event::Freed { run },
            Event::Moved { from: run, to },
            Event::Used { run },
            Event::Unused { run },
            Event::Stayed { page },
            Event::PageIn { page, tier, demand: true },
            Event::PrefetchUsed { page },
            Event::PrefetchExpired { page },
            Event::Stored { page, tier, bytes: 1 },
            Event::Background { app },
            Event::ResponseComplete { app, response_ns: 1 },
            Event::SpaceEnd { space },
            Event::Exit { app },
            Event::Access { page, kind: AccessKind::Seen, write: false },
        ];
        events.into_iter().try_for_each(|event| self.tell(event))?;
        self.metrics()
    }

    fn metrics(&mut self) -> Answered {
        let metrics = self.policy.metrics();
        let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
        if names.len() < metrics.len() || metrics.iter().any(|metric| !metric.value.is_finite()) {
            return Err(format!("its metrics are {metrics:?}"));
        }
        Ok(())
    }
}

/// Classes for those who ask about them: by the number of the page.
struct ByNumber<'a>(&'a World);

impl Classes for ByNumber<'_> {
    fn class(&self, page: PageId) -> Option<Hotness> {
        self.0.facts.app_of(page.space())?;
        Some([Hotness::Cold, Hotness::Warm, Hotness::Hot][(page.raw() / 4 % 3) as usize])
    }

    fn class_counts(&self, app: AppId, class: Hotness) -> ClassCounts {
        let of = |page: &&PageId| self.is_of(**page, app, class);
        let resident = self.0.table.resident.iter().filter(of).count() as u64;
        ClassCounts { resident, out: self.0.table.stored.keys().filter(of).count() as u64 }
    }

    fn for_each_out(
        &self,
        app: AppId,
        class: Hotness,
        place: Out,
        visit: &mut dyn FnMut(PageId) -> ControlFlow<()>,
    ) {
        let stored = self.0.table.stored.iter();
        let there = stored.filter(|(_, tier)| (**tier == Tier::Pool) == (place == Out::Pool));
        let mut pages = there.map(|(page, _)| *page).filter(|page| self.is_of(*page, app, class));
        let _ = pages.try_for_each(visit);
    }
}

impl ByNumber<'_> {
    fn is_of(&self, page: PageId, app: AppId, class: Hotness) -> bool {
        self.0.facts.app_of(page.space()) == Some(app) && self.class(page) == Some(class)
    }
}

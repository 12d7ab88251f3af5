//! A page table and the facts that go with it, for policies that are tested alone.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    AccessKind, AppId, Classes, Event, Facts, FrameFacts, Ns, PageCounts, PageFacts, PageId,
    PageRun, SpaceId, Starting, Tier, View, Vpn,
};

/// Page `vpn` of a space.
pub fn page(space: u32, vpn: u64) -> PageId {
    PageId::new(SpaceId(space), Vpn(vpn))
}

/// `count` pages from `vpn` on.
pub fn run(space: u32, vpn: u64, count: u32) -> PageRun {
    PageRun { first: page(space, vpn), count }
}

/// Neighbours in the pool that share a frame.
const ZPAGES: u32 = 3;

/// Where pages are. Those that are nowhere are unknown, or resident and never told of.
#[derive(Default)]
pub struct Table {
    /// The tier of each stored page.
    pub stored: BTreeMap<PageId, Tier>,
    /// Resident pages that were told of.
    pub resident: BTreeSet<PageId>,
    /// Of these, the ones that are on their way out.
    pub moving: BTreeSet<PageId>,
}

impl Table {
    fn forget(&mut self, gone: impl Fn(PageId) -> bool) {
        self.stored.retain(|page, _| !gone(*page));
        self.resident.retain(|page| !gone(*page));
        self.moving.retain(|page| !gone(*page));
    }
}

impl PageFacts for Table {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.stored.get(&page).copied()
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let resident = self.resident.iter().filter(|page| page.space() == space).count() as u64;
        let mut counts = PageCounts { resident, ..PageCounts::default() };
        for (_, tier) in self.stored.iter().filter(|(page, _)| page.space() == space) {
            counts.stored[tier.index()] += 1;
        }
        counts
    }

    /// Three neighbours in the pool share a frame.
    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        let number = page.vpn().0 / u64::from(ZPAGES);
        let first = PageId::new(page.space(), Vpn(number * u64::from(ZPAGES)));
        let neighbours = PageRun { first, count: ZPAGES };
        let in_pool = |page: &PageId| self.stored.get(page) == Some(&Tier::Pool);
        let zpages = neighbours.pages().filter(in_pool).count() as u8;
        in_pool(&page).then_some(FrameFacts {
            frame: number as u32 ^ page.space().0 << 24,
            zpages,
            free_chunks: if u32::from(zpages) < ZPAGES { 64 - 20 * zpages } else { 0 },
            used_chunks: 20 * zpages,
        })
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let resident = self.resident.difference(&self.moving).map(|page| (*page, None));
        let stored = self.stored.iter().map(|(page, tier)| (*page, Some(*tier)));
        let all: BTreeMap<PageId, Option<Tier>> = resident.chain(stored).collect();
        all.into_iter()
            .filter(|(page, _)| page.space() == space)
            .for_each(|(p, tier)| visit(p, tier));
    }
}

/// The table, and facts kept as the engine keeps them, as far as policies that are asked alone need.
#[derive(Default)]
pub struct World {
    /// Where pages are.
    pub table: Table,
    /// What the engine would keep.
    pub facts: Facts,
    /// What the relaunch that is going on used so far.
    recorded: Vec<PageId>,
    /// Apps of even and of odd numbers are two users'.
    has_two_users: bool,
}

impl World {
    /// Space `i` belongs to `owners[i]`.
    pub fn new(owners: &[u32]) -> World {
        let mut world = World::default();
        for (space, app) in owners.iter().enumerate() {
            world.before(&Event::SpaceStart {
                space: SpaceId(space as u32),
                app: AppId(*app),
                file: false,
            });
        }
        world
    }

    /// What a policy sees.
    pub fn view(&self) -> View<'_> {
        View { facts: &self.facts, pages: &self.table, classes: None }
    }

    /// What a policy sees, where somebody keeps classes.
    pub fn view_with<'a>(&'a self, classes: &'a dyn Classes) -> View<'a> {
        View { classes: Some(classes), ..self.view() }
    }

    /// The same of two users, who have an app in front each.
    pub fn of_two_users(self) -> World {
        World { has_two_users: true, ..self }
    }

    /// Another app of the same user that is in front.
    pub fn in_front_of(&self, app: AppId) -> Option<AppId> {
        let is_of_the_user = |f: AppId| !self.has_two_users || f.0 % 2 == app.0 % 2;
        self.facts.fronts.iter().copied().find(|f| *f != app && is_of_the_user(*f))
    }

    fn comes_to_front(&mut self, app: AppId) {
        let before = self.in_front_of(app);
        self.facts.fronts.retain(|front| *front != app && Some(*front) != before);
        self.facts.fronts.push(app);
        self.facts.fronts.sort_unstable();
    }

    /// Brings table and facts up to date, before policies are told.
    pub fn before(&mut self, event: &Event) {
        self.facts.now = Ns(self.facts.now.0 + 1);
        let now = self.facts.now;
        let start = |app, relaunch| Some(Starting { app, relaunch, since: now });
        match *event {
            Event::Launch { app } => {
                self.end_start(None);
                self.facts.starting = start(app, false);
                self.comes_to_front(app);
            }
            Event::Relaunch { app } => {
                self.end_start(None);
                self.facts.starting = start(app, true);
                self.comes_to_front(app);
            }
            Event::ResponseComplete { app, .. } => self.end_start(Some(app)),
            Event::Background { app } => {
                self.end_start(Some(app));
                self.facts.fronts.retain(|front| *front != app);
            }
            Event::SpaceStart { space, app, file } => {
                let number = space.0 as usize;
                if self.facts.space_app.len() <= number {
                    self.facts.space_app.resize(number + 1, None);
                }
                self.forget_space(space);
                self.facts.space_app[number] = Some(app);
                if file {
                    self.facts.file_spaces.insert(space);
                }
                self.facts.apps.entry(app).or_default();
                self.table.forget(|page| page.space() == space);
            }
            Event::Resident { run } => self.table.resident.extend(run.pages()),
            Event::Access { page, kind, .. } => {
                if kind == AccessKind::Fresh {
                    self.table.resident.insert(page);
                }
                if let Some(app) = self.facts.app_of(page.space()) {
                    self.facts.apps.entry(app).or_default().last_access = now;
                    let relaunched =
                        self.facts.starting.is_some_and(|s| s.relaunch && s.app == app);
                    if relaunched && !self.recorded.contains(&page) {
                        self.recorded.push(page);
                    }
                }
            }
            Event::Stored { page, tier, .. } => {
                self.table.resident.remove(&page);
                self.table.moving.remove(&page);
                self.table.stored.insert(page, tier);
            }
            Event::Stayed { page } => {
                self.table.moving.remove(&page);
            }
            Event::PageIn { page, .. } => {
                self.table.stored.remove(&page);
                self.table.resident.insert(page);
            }
            Event::Freed { run } => self.table.forget(|page| run.contains(page)),
            Event::Moved { from, to } => {
                let shift = |page: PageId| to.plus(page.raw() - from.first.raw());
                let over = PageRun { first: to, ..from };
                let Table { stored, resident, .. } = &mut self.table;
                let stored: Vec<_> =
                    stored.extract_if(.., |page, _| from.contains(*page)).collect();
                let resident: Vec<_> =
                    resident.extract_if(.., |page| from.contains(*page)).collect();
                self.table.forget(|page| over.contains(page) || from.contains(page));
                self.table
                    .stored
                    .extend(stored.into_iter().map(|(page, tier)| (shift(page), tier)));
                self.table.resident.extend(resident.into_iter().map(shift));
                let sets = self.facts.launch_sets.values_mut().flatten();
                for set in sets.chain([&mut self.recorded]) {
                    set.retain(|page| from.contains(*page) || !over.contains(*page));
                    for page in set.iter_mut().filter(|page| from.contains(**page)) {
                        *page = shift(*page);
                    }
                }
            }
            Event::SpaceEnd { space } => self.table.forget(|page| page.space() == space),
            Event::Exit { app } => {
                let facts = &self.facts;
                self.table.forget(|page| facts.app_of(page.space()) == Some(app));
            }
            Event::DeviceSample { device } => self.facts.device = Some(device),
            _ => {}
        }
        self.count();
    }

    /// Counts the pages of each app.
    fn count(&mut self) {
        let spaces = (0..).map(SpaceId).zip(&self.facts.space_app);
        let mut app_pages: BTreeMap<AppId, PageCounts> = BTreeMap::new();
        for (space, app) in spaces.filter_map(|(space, app)| app.map(|app| (space, app))) {
            let (of_space, sum) = (self.table.counts(space), app_pages.entry(app).or_default());
            sum.resident += of_space.resident;
            for (sum, pages) in sum.stored.iter_mut().zip(of_space.stored) {
                *sum += pages;
            }
        }
        for (app, stats) in &mut self.facts.apps {
            let pages = app_pages.get(app).copied().unwrap_or_default();
            (stats.resident_pages, stats.stored_pages) = (pages.resident, pages.stored_total());
        }
        self.facts.app_pages = app_pages;
    }

    /// Ends the launch or relaunch of `app`, or of whichever it is.
    fn end_start(&mut self, app: Option<AppId>) {
        let over = |starting: &mut Starting| app.is_none_or(|app| starting.app == app);
        let recorded = self.recorded.clone();
        if let Some(starting) = self.facts.starting.take_if(over) {
            self.recorded.clear();
            if starting.relaunch {
                self.facts.launch_sets.entry(starting.app).or_default().push(recorded);
            }
        }
    }

    /// Forgets what has ended, after policies were told.
    pub fn after(&mut self, event: &Event) {
        match *event {
            Event::SpaceEnd { space } => self.forget_space(space),
            Event::Exit { app } => {
                let spaces: Vec<SpaceId> = self.facts.spaces_of(app).collect();
                spaces.into_iter().for_each(|space| self.forget_space(space));
                self.facts.apps.remove(&app);
                self.facts.launch_sets.remove(&app);
                self.facts.starting.take_if(|starting| starting.app == app);
                self.facts.fronts.retain(|front| *front != app);
            }
            _ => {}
        }
    }

    fn forget_space(&mut self, space: SpaceId) {
        if let Some(owner) = self.facts.space_app.get_mut(space.0 as usize) {
            *owner = None;
        }
        self.facts.file_spaces.remove(&space);
        let sets = self.facts.launch_sets.values_mut().flatten();
        for set in sets.chain([&mut self.recorded]) {
            set.retain(|page| page.space() != space);
        }
    }
}

//! A page table and the facts that go with it, for policies that are tested alone.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeMap;

use clew_core::{
    AppId, Classes, Event, Facts, Ns, PageCounts, PageFacts, PageId, PageRun, SpaceId, Starting,
    Tier, View, Vpn,
};

pub fn page(space: u32, vpn: u64) -> PageId {
    PageId::new(SpaceId(space), Vpn(vpn))
}

pub fn run(space: u32, vpn: u64, count: u32) -> PageRun {
    PageRun { first: page(space, vpn), count }
}

/// Where pages are. Those it does not name are resident or unknown.
#[derive(Default)]
pub struct Table(pub BTreeMap<PageId, Tier>);

impl PageFacts for Table {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.0.get(&page).copied()
    }
    fn counts(&self, _: SpaceId) -> PageCounts {
        PageCounts::default()
    }
    fn for_each(&self, _: SpaceId, _: &mut dyn FnMut(PageId, Option<Tier>)) {}
}

/// The table, and facts kept as the engine keeps them, as far as these tests need.
#[derive(Default)]
pub struct World {
    pub table: Table,
    pub facts: Facts,
    /// What the relaunch that is going on used so far.
    recorded: Vec<PageId>,
}

impl World {
    /// Space `i` belongs to `owners[i]`.
    pub fn new(owners: &[u32]) -> World {
        let mut world = World::default();
        for (space, app) in owners.iter().enumerate() {
            world.before(&Event::SpaceStart { space: SpaceId(space as u32), app: AppId(*app) });
        }
        world
    }

    pub fn view(&self) -> View<'_> {
        View { facts: &self.facts, pages: &self.table, classes: None }
    }

    pub fn view_with<'a>(&'a self, classes: &'a dyn Classes) -> View<'a> {
        View { classes: Some(classes), ..self.view() }
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
                self.facts.foreground = Some(app);
            }
            Event::Relaunch { app } => {
                self.end_start(None);
                self.facts.starting = start(app, true);
                self.facts.foreground = Some(app);
            }
            Event::ResponseComplete { app, .. } => self.end_start(Some(app)),
            Event::Background { app } => {
                self.end_start(Some(app));
                self.facts.foreground.take_if(|front| *front == app);
            }
            Event::SpaceStart { space, app } => {
                let number = space.0 as usize;
                if self.facts.space_app.len() <= number {
                    self.facts.space_app.resize(number + 1, None);
                }
                self.forget_space(space);
                self.facts.space_app[number] = Some(app);
                self.facts.apps.entry(app).or_default();
                self.table.0.retain(|page, _| page.space() != space);
            }
            Event::Access { page, .. } => {
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
                self.table.0.insert(page, tier);
            }
            Event::PageIn { page, .. } => {
                self.table.0.remove(&page);
            }
            Event::Freed { run } => self.table.0.retain(|page, _| !run.contains(*page)),
            Event::Moved { from, to } => {
                let shift = |page: PageId| to.plus(page.raw() - from.first.raw());
                let moved: Vec<_> =
                    self.table.0.extract_if(.., |page, _| from.contains(*page)).collect();
                let over = PageRun { first: to, ..from };
                self.table.0.retain(|page, _| !over.contains(*page));
                self.table.0.extend(moved.into_iter().map(|(page, tier)| (shift(page), tier)));
                let sets = self.facts.launch_sets.values_mut().flatten();
                for set in sets.chain([&mut self.recorded]) {
                    set.retain(|page| from.contains(*page) || !over.contains(*page));
                    for page in set.iter_mut().filter(|page| from.contains(**page)) {
                        *page = shift(*page);
                    }
                }
            }
            Event::SpaceEnd { space } => self.table.0.retain(|page, _| page.space() != space),
            Event::Exit { app } => {
                let facts = &self.facts;
                self.table.0.retain(|page, _| facts.app_of(page.space()) != Some(app));
            }
            _ => {}
        }
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
                self.facts.foreground.take_if(|front| *front == app);
            }
            _ => {}
        }
    }

    fn forget_space(&mut self, space: SpaceId) {
        self.facts.space_app[space.0 as usize] = None;
        let sets = self.facts.launch_sets.values_mut().flatten();
        for set in sets.chain([&mut self.recorded]) {
            set.retain(|page| page.space() != space);
        }
    }
}

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
                self.facts.starting = start(app, false);
                self.facts.foreground = Some(app);
            }
            Event::Relaunch { app } => {
                self.facts.starting = start(app, true);
                self.facts.foreground = Some(app);
                self.facts.launch_sets.entry(app).or_default().push(Vec::new());
            }
            Event::ResponseComplete { app, .. } => {
                self.facts.starting.take_if(|starting| starting.app == app);
            }
            Event::Background { app } => {
                self.facts.starting.take_if(|starting| starting.app == app);
                self.facts.foreground.take_if(|front| *front == app);
            }
            Event::SpaceStart { space, app } => {
                let number = space.0 as usize;
                if self.facts.space_app.len() <= number {
                    self.facts.space_app.resize(number + 1, None);
                }
                self.facts.space_app[number] = Some(app);
                self.facts.apps.entry(app).or_default();
                self.table.0.retain(|page, _| page.space() != space);
            }
            Event::Access { page, .. } => {
                if let Some(app) = self.facts.app_of(page.space()) {
                    self.facts.apps.entry(app).or_default().last_access = now;
                    if self.facts.starting.is_some_and(|s| s.relaunch && s.app == app) {
                        let set = self.facts.launch_sets.get_mut(&app).unwrap().last_mut().unwrap();
                        if !set.contains(&page) {
                            set.push(page);
                        }
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
                for page in self.facts.launch_sets.values_mut().flatten().flatten() {
                    if from.contains(*page) {
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

    /// Forgets what has ended, after policies were told.
    pub fn after(&mut self, event: &Event) {
        match *event {
            Event::SpaceEnd { space } => self.facts.space_app[space.0 as usize] = None,
            Event::Exit { app } => {
                for owner in &mut self.facts.space_app {
                    owner.take_if(|owner| *owner == app);
                }
                self.facts.apps.remove(&app);
                self.facts.launch_sets.remove(&app);
                self.facts.starting.take_if(|starting| starting.app == app);
                self.facts.foreground.take_if(|front| *front == app);
            }
            _ => {}
        }
    }
}

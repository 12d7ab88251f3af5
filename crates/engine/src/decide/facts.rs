//! The facts that all policies share, kept from the events.
//!
//! Counts of pages are not summed up from events but asked from the page table, which is right even
//! where an event names pages that nobody ever heard of.

use std::collections::HashSet;

use clew_core::{
    AccessKind, AppId, AppState, AppStats, DeviceFacts, Event, Facts, Ns, PageCounts, PageFacts,
    PageId, PageRun, SpaceId,
};

/// Launch sets kept of each app.
const LAUNCH_SETS: usize = 4;
/// Responses kept of each app.
const RESPONSES: usize = 32;
/// A relaunch that nobody declares complete counts as complete after this.
const RELAUNCH_LIMIT: Ns = Ns::from_ms(10_000);
/// Uses recorded of one relaunch before repetitions are removed early.
const RECORDED_USES: usize = 1 << 20;

/// [`Facts`], and what it takes to keep them.
pub(super) struct FactsKeeper {
    pub(super) facts: Facts,
    /// As last asked from the page table, by space.
    space_pages: Vec<PageCounts>,
    relaunch: Option<Relaunch>,
}

/// A relaunch that is going on.
struct Relaunch {
    app: AppId,
    since: Ns,
    uses: Vec<PageId>,
    dedup_at: usize,
}

impl Relaunch {
    /// Keeps the first use of each page.
    fn dedup(&mut self) {
        let mut seen = HashSet::with_capacity(self.uses.len());
        self.uses.retain(|page| seen.insert(*page));
        self.dedup_at = RECORDED_USES.max(2 * self.uses.len());
    }
}

impl FactsKeeper {
    pub(super) fn new(facts: Facts) -> FactsKeeper {
        FactsKeeper { facts, space_pages: Vec::new(), relaunch: None }
    }

    /// Whether `app` is known and not in front.
    pub(super) fn is_background(&self, app: AppId) -> bool {
        self.facts.apps.get(&app).is_some_and(|stats| stats.state == AppState::Background)
    }

    /// Brings the facts up to date. What ends is forgotten by [`FactsKeeper::after`] only.
    pub(super) fn before(&mut self, event: &Event, pages: &dyn PageFacts) {
        let now = self.facts.now;
        match *event {
            Event::Launch { app } => self.foreground(app),
            Event::Relaunch { app } => {
                self.foreground(app);
                let uses = Vec::new();
                self.relaunch = Some(Relaunch { app, since: now, uses, dedup_at: RECORDED_USES });
            }
            Event::ResponseComplete { app, response_ns } => {
                let responses = &mut self.app(app).responses_ns;
                if responses.len() >= RESPONSES {
                    responses.remove(0);
                }
                responses.push(response_ns);
                self.end_relaunch(Some(app));
            }
            Event::Background { app } => {
                let stats = self.app(app);
                stats.state = AppState::Background;
                stats.footprint_pages = stats.resident_pages + stats.stored_pages;
                if self.facts.foreground == Some(app) {
                    self.facts.foreground = None;
                }
                self.end_relaunch(Some(app));
            }
            Event::SpaceStart { space, app } => {
                self.forget_space(space);
                let number = space.0 as usize;
                if self.facts.space_app.len() <= number {
                    self.facts.space_app.resize(number + 1, None);
                }
                self.facts.space_app[number] = Some(app);
                self.app(app);
                self.count(space, pages);
            }
            Event::Access { page, kind, .. } => self.accessed(page, kind, pages),
            Event::Resident { run } | Event::Freed { run } => self.count(run.first.space(), pages),
            Event::FileResident { run } => {
                self.facts.file_spaces.insert(run.first.space());
                self.count(run.first.space(), pages);
            }
            Event::Moved { from, to } => {
                self.move_launch_sets(from, to);
                self.count(from.first.space(), pages);
                self.count(to.space(), pages);
            }
            Event::Stored { page, .. }
            | Event::PageIn { page, .. }
            | Event::Dropped { page, .. } => self.count(page.space(), pages),
            Event::DeviceSample { utilisation_pct, bytes_written, wear_pct } => {
                let device = DeviceFacts { utilisation_pct, bytes_written, wear_pct };
                self.facts.device = Some(device);
            }
            Event::DonorUp { donor, free_bytes } => {
                let facts = self.facts.donors.entry(donor).or_default();
                (facts.up, facts.free_bytes) = (true, free_bytes);
            }
            Event::DonorLost { donor } => self.facts.donors.entry(donor).or_default().up = false,
            Event::LinkSample { donor, rtt_ns, bytes_per_second } => {
                let facts = self.facts.donors.entry(donor).or_default();
                (facts.rtt_ns, facts.bytes_per_second) = (rtt_ns, bytes_per_second);
            }
            Event::Tick => self.end_relaunch(None),
            Event::Exit { .. }
            | Event::SpaceEnd { .. }
            | Event::Stayed { .. }
            | Event::FileMiss { .. }
            | Event::FileInvalidated { .. }
            | Event::FrameChanged { .. }
            | Event::PrefetchUsed { .. }
            | Event::PrefetchExpired { .. }
            | Event::DonorPressure { .. }
            | Event::JobDone { .. }
            | Event::Pressure { .. } => {}
        }
    }

    /// Forgets what has ended.
    pub(super) fn after(&mut self, event: &Event) {
        match *event {
            Event::SpaceEnd { space } => self.forget_space(space),
            Event::Exit { app } => {
                let spaces: Vec<SpaceId> = self.facts.spaces_of(app).collect();
                spaces.into_iter().for_each(|space| self.forget_space(space));
                self.facts.apps.remove(&app);
                self.facts.app_pages.remove(&app);
                self.facts.launch_sets.remove(&app);
                self.relaunch.take_if(|relaunch| relaunch.app == app);
                if self.facts.foreground == Some(app) {
                    self.facts.foreground = None;
                }
            }
            _ => {}
        }
    }

    pub(super) fn app(&mut self, app: AppId) -> &mut AppStats {
        self.facts.apps.entry(app).or_default()
    }

    fn foreground(&mut self, app: AppId) {
        let now = self.facts.now;
        let stats = self.app(app);
        stats.state = AppState::Foreground;
        stats.launches += 1;
        stats.last_foreground = now;
        self.facts.foreground = Some(app);
        self.relaunch = None;
    }

    fn accessed(&mut self, page: PageId, kind: AccessKind, pages: &dyn PageFacts) {
        if kind == AccessKind::Fresh {
            self.count(page.space(), pages);
        }
        let Some(app) = self.facts.app_of(page.space()) else { return };
        let now = self.facts.now;
        self.app(app).last_access = now;
        self.end_relaunch(None);
        if let Some(relaunch) = self.relaunch.as_mut().filter(|relaunch| relaunch.app == app) {
            relaunch.uses.push(page);
            if relaunch.uses.len() >= relaunch.dedup_at {
                relaunch.dedup();
            }
        }
    }

    /// Ends the relaunch of `app`, or one that has gone on for too long.
    fn end_relaunch(&mut self, app: Option<AppId>) {
        let now = self.facts.now;
        let over = |relaunch: &mut Relaunch| match app {
            Some(app) => relaunch.app == app,
            None => now.since(relaunch.since) > RELAUNCH_LIMIT,
        };
        if let Some(mut relaunch) = self.relaunch.take_if(over) {
            relaunch.dedup();
            let sets = self.facts.launch_sets.entry(relaunch.app).or_default();
            if sets.len() == LAUNCH_SETS {
                sets.remove(0);
            }
            sets.push(relaunch.uses);
        }
    }

    fn move_launch_sets(&mut self, from: PageRun, to: PageId) {
        let Some(app) = self.facts.app_of(from.first.space()) else { return };
        let recorded = self.relaunch.iter_mut().filter(|relaunch| relaunch.app == app);
        let recorded = recorded.map(|relaunch| &mut relaunch.uses);
        let kept = self.facts.launch_sets.get_mut(&app).into_iter().flatten();
        for page in recorded.chain(kept).flatten() {
            if from.contains(*page) {
                *page = to.plus(page.raw() - from.first.raw());
            }
        }
    }

    /// Asks the page table how many pages of `space` are where.
    fn count(&mut self, space: SpaceId, pages: &dyn PageFacts) {
        self.set_count(space, pages.counts(space));
    }

    fn set_count(&mut self, space: SpaceId, new: PageCounts) {
        let number = space.0 as usize;
        if self.space_pages.len() <= number {
            self.space_pages.resize(number + 1, PageCounts::default());
        }
        let old = std::mem::replace(&mut self.space_pages[number], new);
        let Some(app) = self.facts.app_of(space).filter(|_| old != new) else { return };
        let sum = self.facts.app_pages.entry(app).or_default();
        sum.resident = sum.resident + new.resident - old.resident;
        for ((sum, new), old) in sum.stored.iter_mut().zip(new.stored).zip(old.stored) {
            *sum = *sum + new - old;
        }
        let sum = *sum;
        let stats = self.app(app);
        (stats.resident_pages, stats.stored_pages) = (sum.resident, sum.stored_total());
    }

    fn forget_space(&mut self, space: SpaceId) {
        self.set_count(space, PageCounts::default());
        let Some(app) = self.facts.app_of(space) else { return };
        self.facts.space_app[space.0 as usize] = None;
        self.facts.file_spaces.remove(&space);
        for set in self.facts.launch_sets.get_mut(&app).into_iter().flatten() {
            set.retain(|page| page.space() != space);
        }
        if let Some(relaunch) = &mut self.relaunch {
            relaunch.uses.retain(|page| page.space() != space);
        }
    }
}

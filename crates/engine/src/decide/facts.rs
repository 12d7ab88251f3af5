//! The facts that all policies share, kept from the events.
//!
//! Counts of pages are not summed up from events but asked from the page table, which is right even
//! where an event names pages that nobody ever heard of.

use std::collections::{BTreeMap, HashSet};

use clew_core::{
    AccessKind, AppId, AppState, AppStats, Event, Facts, Ns, PageCounts, PageFacts, PageId,
    PageRun, Profile, SpaceId, Starting,
};

/// Launch sets kept of each app.
const LAUNCH_SETS: usize = 4;
/// Profiles kept of apps that have ended, for their next launch.
const PROFILES: usize = 4096;
/// Responses kept of each app.
const RESPONSES: usize = 32;
/// A launch or relaunch that nobody declares complete counts as complete after this.
const START_LIMIT: Ns = Ns::from_ms(10_000);
/// Uses recorded of one relaunch before repetitions are removed early.
const RECORDED_USES: usize = 1 << 20;

/// [`Facts`], and what it takes to keep them.
pub(super) struct FactsKeeper {
    pub(super) facts: Facts,
    /// As last asked from the page table, by space.
    space_pages: Vec<PageCounts>,
    recorded: Recorded,
    /// Of apps that have ended.
    profiles: BTreeMap<AppId, Profile>,
    /// Whose apps are, as far as anybody has said; all others are user 0's.
    users: BTreeMap<AppId, u32>,
}

/// What the relaunch that is going on used so far.
#[derive(Default)]
struct Recorded {
    uses: Vec<PageId>,
    dedup_at: usize,
}

impl Recorded {
    /// Keeps the first use of each page.
    fn dedup(&mut self) {
        let mut seen = HashSet::with_capacity(self.uses.len());
        self.uses.retain(|page| seen.insert(*page));
        self.dedup_at = RECORDED_USES.max(2 * self.uses.len());
    }
}

impl FactsKeeper {
    pub(super) fn new(facts: Facts) -> FactsKeeper {
        FactsKeeper {
            facts,
            space_pages: Vec::new(),
            recorded: Recorded::default(),
            profiles: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }

    /// Whose an app is.
    pub(super) fn is_of(&mut self, app: AppId, user: u32) {
        self.users.insert(app, user);
    }

    /// Another app of the same user that is in front.
    pub(super) fn in_front_of(&self, app: AppId) -> Option<AppId> {
        let user = |app: &AppId| self.users.get(app).copied().unwrap_or_default();
        self.facts.fronts.iter().copied().find(|f| *f != app && user(f) == user(&app))
    }

    /// Whether `app` is known and not in front.
    pub(super) fn is_background(&self, app: AppId) -> bool {
        self.facts.apps.get(&app).is_some_and(|stats| stats.state == AppState::Background)
    }

    /// Brings the facts up to date. What ends is forgotten by [`FactsKeeper::after`] only.
    pub(super) fn before(&mut self, event: &Event, pages: &dyn PageFacts) {
        match *event {
            Event::Launch { app } => self.foreground(app, false),
            Event::Relaunch { app } => self.foreground(app, true),
            Event::ResponseComplete { app, response_ns } => {
                // Of a launch nothing was swapped: its response says nothing of swapping.
                let of_launch = |starting: Starting| starting.app == app && !starting.relaunch;
                let is_cold = self.facts.starting.is_some_and(of_launch);
                let responses = &mut self.app(app).responses_ns;
                if !is_cold {
                    if responses.len() >= RESPONSES {
                        responses.remove(0);
                    }
                    responses.push(response_ns);
                }
                self.end_start(Some(app));
            }
            Event::Background { app } => {
                let (now, unseen) = (self.facts.now, !self.facts.all_touches_seen);
                let has_begun = !self.facts.apps.contains_key(&app);
                let stats = self.app(app);
                if has_begun {
                    // Behind another that stays in front: it was away for no time yet.
                    stats.last_foreground = now;
                }
                if unseen {
                    // An app in front uses its memory, though nobody sees it.
                    stats.last_access = now;
                }
                stats.state = AppState::Background;
                let held = stats.resident_pages + stats.stored_pages;
                // One that has just begun says nothing of how large it becomes.
                if held > 0 {
                    stats.footprint_pages = held;
                }
                self.facts.fronts.retain(|front| *front != app);
                self.end_start(Some(app));
            }
            Event::SpaceStart { space, app, file } => {
                self.forget_space(space);
                let number = space.0 as usize;
                if self.facts.space_app.len() <= number {
                    self.facts.space_app.resize(number + 1, None);
                }
                self.facts.space_app[number] = Some(app);
                if file {
                    self.facts.file_spaces.insert(space);
                }
                self.app(app);
                self.count(space, pages);
            }
            Event::Access { page, kind, .. } => self.accessed(page, kind, pages),
            Event::Used { run } => {
                for page in run.pages() {
                    self.accessed(page, AccessKind::Seen, pages);
                }
            }
            Event::Resident { run } | Event::Freed { run } => self.count(run.first.space(), pages),
            Event::Moved { from, to } => {
                self.move_launch_sets(from, to);
                self.count(from.first.space(), pages);
                self.count(to.space(), pages);
            }
            Event::Stored { page, .. } | Event::PageIn { page, .. } => {
                self.count(page.space(), pages);
            }
            Event::Tick => self.end_start(None),
            Event::DeviceSample { device } => self.facts.device = Some(device),
            Event::Donor { donor, state } => drop(self.facts.donors.insert(donor, state)),
            Event::Exit { .. }
            | Event::SpaceEnd { .. }
            | Event::Stayed { .. }
            | Event::Unused { .. }
            | Event::PrefetchUsed { .. }
            | Event::PrefetchExpired { .. }
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
                if let Some(stats) = self.facts.apps.remove(&app) {
                    self.keep_profile(app, Profile::from(&stats));
                }
                self.users.remove(&app);
                self.facts.app_pages.remove(&app);
                self.facts.launch_sets.remove(&app);
                self.facts.starting.take_if(|starting| starting.app == app);
                self.facts.fronts.retain(|front| *front != app);
            }
            _ => {}
        }
    }

    fn app(&mut self, app: AppId) -> &mut AppStats {
        let profiles = &mut self.profiles;
        self.facts.apps.entry(app).or_insert_with(|| {
            let known = profiles.remove(&app).unwrap_or_default();
            let Profile { launches, footprint_pages, responses_ns } = known;
            AppStats { launches, footprint_pages, responses_ns, ..AppStats::default() }
        })
    }

    /// What is known of an app that does not live, for its next launch.
    pub(super) fn keep_profile(&mut self, app: AppId, profile: Profile) {
        self.profiles.insert(app, profile);
        if self.profiles.len() > PROFILES {
            self.profiles.pop_first();
        }
    }

    fn foreground(&mut self, app: AppId, relaunch: bool) {
        let now = self.facts.now;
        // One is recorded at a time, also of several users.
        self.end_start(self.facts.starting.map(|starting| starting.app));
        let stats = self.app(app);
        stats.state = AppState::Foreground;
        stats.launches += 1;
        stats.last_foreground = now;
        if !self.facts.is_in_front(app) {
            self.facts.fronts.push(app);
            self.facts.fronts.sort_unstable();
        }
        self.facts.starting = Some(Starting { app, relaunch, since: now });
        self.recorded = Recorded { uses: Vec::new(), dedup_at: RECORDED_USES };
    }

    fn accessed(&mut self, page: PageId, kind: AccessKind, pages: &dyn PageFacts) {
        if kind == AccessKind::Fresh {
            self.count(page.space(), pages);
        }
        let Some(app) = self.facts.app_of(page.space()) else { return };
        let now = self.facts.now;
        self.app(app).last_access = now;
        self.end_start(None);
        if self.facts.starting.is_some_and(|starting| starting.relaunch && starting.app == app) {
            self.recorded.uses.push(page);
            if self.recorded.uses.len() >= self.recorded.dedup_at {
                self.recorded.dedup();
            }
        }
    }

    /// Ends the launch or relaunch of `app`, or one that has gone on for too long.
    fn end_start(&mut self, app: Option<AppId>) {
        let now = self.facts.now;
        let over = |starting: &mut Starting| match app {
            Some(app) => starting.app == app,
            None => now.since(starting.since) > START_LIMIT,
        };
        let Some(starting) = self.facts.starting.take_if(over) else { return };
        if starting.relaunch {
            let mut recorded = std::mem::take(&mut self.recorded);
            recorded.dedup();
            let sets = self.facts.launch_sets.entry(starting.app).or_default();
            if sets.len() == LAUNCH_SETS {
                sets.remove(0);
            }
            sets.push(recorded.uses);
        }
    }

    /// What was at the new place is gone.
    fn move_launch_sets(&mut self, from: PageRun, to: PageId) {
        let Some(app) = self.facts.app_of(from.first.space()) else { return };
        let kept = self.facts.launch_sets.get_mut(&app).into_iter().flatten();
        let over = PageRun { first: to, ..from };
        for set in kept.chain([&mut self.recorded.uses]) {
            set.retain(|page| from.contains(*page) || !over.contains(*page));
            for page in set.iter_mut().filter(|page| from.contains(**page)) {
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
        self.recorded.uses.retain(|page| page.space() != space);
    }
}

//! How much memory apps have, what a relaunch uses of it, and how near to each other that is.

use std::collections::BTreeMap;

use clew_core::{AppId, Ns, PageId};
use serde::Serialize;

use super::{ByPage, Pages, Spaces, anonymous_access, follow};
use crate::record::{Record, Stamped};

/// Times in front of its user after which an app's size is taken (Ariadne, table 1).
const EARLY: Ns = Ns::from_ms(10_000);
const LATE: Ns = Ns::from_ms(300_000);

/// One app. Shares are 0 to 1; means are over its relaunches.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AppStatistics {
    /// Its name.
    pub app: String,
    /// MiB of anonymous memory after 10 s in front (Ariadne, table 1).
    pub early_mib: Option<f64>,
    /// MiB of anonymous memory after 5 minutes in front, or when it was last sent back if that is
    /// earlier.
    pub late_mib: f64,
    /// Seconds in front after which that was.
    pub late_seconds: f64,
    /// Times that it was brought back.
    pub relaunches: u64,
    /// Mean time to the first complete response, milliseconds.
    pub response_ms: Option<f64>,
    /// Mean number of anonymous pages that a relaunch uses.
    pub hot_pages: f64,
    /// Mean number that is used after the response, until it is sent back.
    pub warm_pages: f64,
    /// Of the pages that a relaunch uses, those that the one before used (Ariadne, figure 5).
    pub similarity: Option<f64>,
    /// Of the pages that a relaunch uses, those that are used when the app is in front the next
    /// time (figure 5).
    pub reuse: Option<f64>,
    /// Probability that, of all pages of the app in the order of their last use, the one behind a
    /// page that a relaunch uses is used by it too (Ariadne, table 3: two consecutive pages).
    pub next_1: Option<f64>,
    /// The same of the three behind it (table 3: four).
    pub next_3: Option<f64>,
    /// The same as `next_1` in the order of addresses.
    pub neighbour: Option<f64>,
}

#[derive(Default)]
struct App {
    /// By page: when it was last used, in accesses of the app.
    last_used: ByPage<u64>,
    clock: u64,
    is_launched: bool,
    front_before: u64,
    early: Option<usize>,
    late: Option<(usize, u64)>,
    /// Pages in the order of their last use, at the last relaunch.
    positions: ByPage<u32>,
    hot: Pages,
    warm: Pages,
    before: Option<Pages>,
    sums: Sums,
}

#[derive(Default)]
struct Sums {
    relaunches: u64,
    responses: u64,
    response_ns: u64,
    hot: usize,
    warm: usize,
    pairs: u64,
    similarity: f64,
    reuse: f64,
    placed: usize,
    next_1: usize,
    next_3: usize,
    neighbour: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Launch,
    Relaunch,
    Running(bool),
}

/// Collects it.
pub struct WorkingSets {
    page_bytes: u64,
    apps: BTreeMap<AppId, App>,
    front: Option<(AppId, Ns, Phase)>,
}

impl WorkingSets {
    pub fn new(page_bytes: u64) -> WorkingSets {
        WorkingSets { page_bytes, apps: BTreeMap::new(), front: None }
    }

    pub fn take(&mut self, spaces: &Spaces, stamped: &Stamped) {
        let now = stamped.at;
        self.sizes(now);
        match stamped.record {
            Record::Launch { app } => {
                self.leave(now);
                self.apps.entry(app).or_default().is_launched = true;
                self.front = Some((app, now, Phase::Launch));
            }
            Record::Relaunch { app } => {
                self.leave(now);
                self.apps.entry(app).or_default().relaunch();
                self.front = Some((app, now, Phase::Relaunch));
            }
            Record::ResponseComplete { app, response_ns } => {
                if let Some((front, _, phase)) = &mut self.front
                    && *front == app
                {
                    let relaunched = *phase == Phase::Relaunch;
                    *phase = Phase::Running(relaunched);
                    if relaunched && let Some(app) = self.apps.get_mut(&app) {
                        app.sums.responses += 1;
                        app.sums.response_ns = app.sums.response_ns.saturating_add(response_ns);
                    }
                }
            }
            Record::Background { app } | Record::Exit { app } => {
                if self.front.is_some_and(|(front, ..)| front == app) {
                    self.leave(now);
                }
                if matches!(stamped.record, Record::Exit { .. })
                    && let Some(app) = self.apps.get_mut(&app)
                {
                    app.last_used.clear();
                    app.before = None;
                }
            }
            _ => {}
        }
        if let Some((page, _)) = anonymous_access(spaces, &stamped.record) {
            let Some(owner) = spaces.app(page.space()) else { return };
            let app = self.apps.entry(owner).or_default();
            app.clock += 1;
            app.last_used.insert(page, app.clock);
            match self.front {
                Some((front, _, Phase::Relaunch)) if front == owner => drop(app.hot.insert(page)),
                Some((front, _, Phase::Running(true))) if front == owner => {
                    app.warm.insert(page);
                }
                _ => {}
            }
        }
        let about = match stamped.record {
            Record::Freed { run } | Record::Moved { from: run, .. } => Some(run.first.space()),
            Record::SpaceEnd { space } => Some(space),
            _ => None,
        };
        let owner = about.and_then(|space| spaces.app(space));
        if let Some(app) = owner.and_then(|owner| self.apps.get_mut(&owner)) {
            follow(&mut app.last_used, &stamped.record);
        }
    }

    /// Takes the size of the app in front when its time has come.
    fn sizes(&mut self, now: Ns) {
        let Some((front, since, _)) = self.front else { return };
        let Some(app) = self.apps.get_mut(&front) else { return };
        let in_front = app.front_before + now.since(since).0;
        if in_front >= EARLY.0 && app.early.is_none() {
            app.early = Some(app.last_used.len());
        }
        if in_front >= LATE.0 && app.late.is_none() {
            app.late = Some((app.last_used.len(), in_front));
        }
    }

    /// The app in front is not any more.
    fn leave(&mut self, now: Ns) {
        let Some((front, since, phase)) = self.front.take() else { return };
        let Some(app) = self.apps.get_mut(&front) else { return };
        app.front_before += now.since(since).0;
        if phase == Phase::Running(true) {
            app.relaunched();
        }
        app.positions.clear();
    }

    pub fn finish(mut self, names: &BTreeMap<AppId, String>) -> Vec<AppStatistics> {
        if let Some((_, since, _)) = self.front {
            self.leave(since);
        }
        let mib = |pages: usize| (pages as u64 * self.page_bytes) as f64 / f64::from(1 << 20);
        let launched =
            self.apps.iter().filter(|(_, app)| app.is_launched || app.sums.relaunches > 0);
        launched
            .map(|(id, app)| {
                let sums = &app.sums;
                let mean = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
                let relaunches = sums.relaunches.max(1) as f64;
                let placed = sums.placed as f64;
                let (late, late_ns) = app.late.unwrap_or((app.last_used.len(), app.front_before));
                AppStatistics {
                    app: names.get(id).cloned().unwrap_or_else(|| id.0.to_string()),
                    early_mib: app.early.map(mib),
                    late_mib: mib(late),
                    late_seconds: late_ns as f64 / 1e9,
                    relaunches: sums.relaunches,
                    response_ms: mean(sums.response_ns as f64 / 1e6, sums.responses as f64),
                    hot_pages: sums.hot as f64 / relaunches,
                    warm_pages: sums.warm as f64 / relaunches,
                    similarity: mean(sums.similarity, sums.pairs as f64),
                    reuse: mean(sums.reuse, sums.pairs as f64),
                    next_1: mean(sums.next_1 as f64, placed),
                    next_3: mean(sums.next_3 as f64, placed),
                    neighbour: mean(sums.neighbour as f64, placed),
                }
            })
            .collect()
    }
}

impl App {
    /// It comes back: from here on it is seen what it uses.
    fn relaunch(&mut self) {
        self.hot.clear();
        self.warm.clear();
        let mut order: Vec<(u64, PageId)> =
            self.last_used.iter().map(|(p, at)| (*at, *p)).collect();
        order.sort_unstable();
        self.positions =
            order.into_iter().enumerate().map(|(place, (_, page))| (page, place as u32)).collect();
    }

    /// It is sent back, and all that it used is known.
    fn relaunched(&mut self) {
        let (hot, warm) = (std::mem::take(&mut self.hot), std::mem::take(&mut self.warm));
        self.sums.relaunches += 1;
        self.sums.hot += hot.len();
        self.sums.warm += warm.difference(&hot).count();
        if let Some(before) = &self.before
            && !hot.is_empty()
            && !before.is_empty()
        {
            let both = before.intersection(&hot).count();
            let used = before.iter().filter(|page| hot.contains(*page) || warm.contains(*page));
            self.sums.pairs += 1;
            self.sums.similarity += both as f64 / hot.len() as f64;
            self.sums.reuse += used.count() as f64 / before.len() as f64;
        }
        let mut used = vec![false; self.positions.len() + 3];
        for page in &hot {
            if let Some(place) = self.positions.get(page) {
                used[*place as usize] = true;
            }
        }
        for three in used.windows(4).filter(|four| four[0]) {
            self.sums.placed += 1;
            self.sums.next_1 += usize::from(three[1]);
            self.sums.next_3 += usize::from(three[1] && three[2] && three[3]);
        }
        let old = |page: &PageId| self.positions.contains_key(page);
        self.sums.neighbour +=
            hot.iter().filter(|page| old(page) && hot.contains(&page.plus(1))).count();
        self.before = Some(hot);
    }
}

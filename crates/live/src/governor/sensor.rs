//! The sensor: what a relaunch uses of the pages that stayed in their program.
//!
//! Nobody tells of touches of resident pages. So when an app has gone to the background, a few of its
//! pages, of whose use the scheme wants to know most, are taken out, raw: a sample. In the next
//! relaunch a touch of one is a fault, the first of a run brings the run back and tells of it. What
//! was not touched by the end of the relaunch comes back unused, and the next sample is of others.
//!
//! A touch of a sample costs its program a fault. So a scheme that is right is asked less: each time that
//! nearly all of a sample was used, the next one is half as large, down to an eighth; once it is
//! not, samples are as large as they may be.
//!
//! A sample is stored as any page is: forks, mappings that change and the daemon's death find nothing
//! new. Its pages count as resident.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::{AppId, AppState, CodecKind, Event, Group, Hotness, PageRun, SpaceId, Vpn};
use clew_store::{Entry, State};

use super::Governor;
use super::budget::has_room;
use crate::programs::process::Process;
use crate::work::Work;

/// How long an app must have been in the background: programs tidy up when they are sent back.
const SETTLED: Duration = Duration::from_millis(200);

/// How often samples are halved, at most.
const MAX_CALM: u32 = 3;
/// Of so many pages watched, one may be unused where nearly all were used.
const NEARLY_ALL_OF: usize = 8;

/// What is watched of an app.
pub(super) struct Sample {
    /// By space, each ascending.
    spaces: BTreeMap<SpaceId, Vec<Vpn>>,
    /// It was brought to the front since.
    relaunched: bool,
}

impl Governor {
    /// An app was sent back: it is to be sampled soon.
    pub(super) fn sample_soon(&mut self, app: AppId) {
        if self.config.sensor.share > 0 && !self.samples.contains_key(&app) {
            self.samples_due.insert(app, Instant::now() + SETTLED);
        }
    }

    /// A relaunch begins: what is watched now tells of it.
    pub(super) fn watch_relaunch(&mut self, app: AppId) {
        self.samples_due.remove(&app);
        if let Some(sample) = self.samples.get_mut(&app) {
            sample.relaunched = true;
        }
    }

    /// Samples the apps that are due, once a tick of liveness.
    pub(super) fn take_samples(&mut self) {
        let relaunching = self.apps.values().any(|app| app.relaunch_began.is_some());
        let facts = self.shared.mover.store.facts();
        if relaunching || self.stopping.is_some() || !has_room(&facts, 8) {
            return;
        }
        let now = Instant::now();
        let due: Vec<AppId> = self
            .samples_due
            .iter()
            .filter(|(_, when)| **when <= now)
            .map(|(app, _)| *app)
            .collect();
        for app in due {
            self.samples_due.remove(&app);
            if self.apps.get(&app).is_some_and(|a| a.state == AppState::Background) {
                self.take_sample(app);
            }
        }
    }

    fn take_sample(&mut self, app: AppId) {
        let sensor = self.config.sensor;
        let hot = self.driver.class_counts(app, Hotness::Hot).resident;
        let calm = self.apps.get(&app).map_or(0, |a| a.calm_samples.min(MAX_CALM));
        let wanted = hot.div_ceil(u64::from(sensor.share) << calm) as usize;
        if wanted == 0 {
            return;
        }
        let runs = self.driver.pick_samples(app, wanted, sensor.run_pages, &self.programs);
        let mut by_space: BTreeMap<SpaceId, Vec<PageRun>> = BTreeMap::new();
        for run in runs {
            by_space.entry(run.first.space()).or_default().push(run);
        }
        let mut spaces = BTreeMap::new();
        for (space, runs) in by_space {
            let takes_orders = |p: &Arc<Process>| p.is_managed() && !p.memory.is_silent();
            let Some(process) = self.shared.process(space).filter(takes_orders) else {
                continue;
            };
            let group = |run: &PageRun| Group {
                pages: run.pages().collect(),
                hotness: Some(Hotness::Hot),
                codec: CodecKind::Raw,
                chunk_bytes: self.shared.page_bytes as u32,
                park_siblings: false,
            };
            let mut vpns: Vec<Vpn> = runs.iter().flat_map(|r| r.pages().map(|p| p.vpn())).collect();
            vpns.sort_unstable();
            let groups: Vec<Group> = runs.iter().map(group).collect();
            let ticket = self.ticket(None);
            self.take_out(space, Work::Sample { process, groups, ticket });
            spaces.insert(space, vpns);
        }
        if !spaces.is_empty() {
            self.samples.insert(app, Sample { spaces, relaunched: false });
        }
    }

    /// A relaunch is over: what was watched and not touched was not used by it, and comes back.
    pub(super) fn end_sample(&mut self, app: AppId) {
        if self.samples.get(&app).is_none_or(|sample| !sample.relaunched) {
            return;
        }
        // Touches that are not told of yet come first.
        self.drain_ring();
        let (mut watched, mut left) = (0, 0);
        for (space, vpns) in self.samples.remove(&app).map(|s| s.spaces).unwrap_or_default() {
            watched += vpns.len();
            let Some(process) = self.shared.process(space) else { continue };
            let untouched = |vpn: &Vpn| {
                let entry = process.space.table.load(*vpn);
                entry.state() == State::Stored && entry.has(Entry::SAMPLED)
            };
            let unused: Vec<Vpn> = vpns.into_iter().filter(untouched).collect();
            left += unused.len();
            self.sensed.unused_pages += unused.len() as u64;
            for run in unused.chunk_by(|a, b| a.0 + 1 == b.0) {
                let run = process.run(run[0], run.len() as u64);
                self.tell(&Event::Unused { run });
            }
            self.hand_out(None, |ticket| Work::EndSample { process, vpns: unused, ticket });
        }
        if let Some(app) = self.apps.get_mut(&app).filter(|_| watched > 0) {
            let nearly_all_used = left * NEARLY_ALL_OF <= watched;
            app.calm_samples = if nearly_all_used { app.calm_samples + 1 } else { 0 };
        }
    }

    /// Nothing is watched of an app that is gone.
    pub(super) fn forget_sample(&mut self, app: AppId) {
        self.samples.remove(&app);
        self.samples_due.remove(&app);
    }
}

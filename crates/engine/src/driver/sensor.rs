//! The sensor: what a relaunch uses of the pages that stayed in their program.
//!
//! Nobody tells of touches of resident pages. So when an app has gone to the background, a few of its
//! pages, of whose use the scheme wants to know most, are watched: taken out, raw. In the next relaunch
//! a touch of one is a fault, the first of a run brings the run back and tells of it. What was not
//! touched by the end of the relaunch comes back unused, and the next sample is of others.
//!
//! A touch of a sample costs its program a fault. So a scheme that is right is asked less: each time that
//! nearly all of a sample was used, the next one is half as large, down to an eighth; once it is
//! not, samples are as large as they may be.

use std::collections::BTreeMap;

use clew_core::{
    AppId, AppState, CodecKind, Event, Group, Hotness, Ns, PageFacts, PageId, PageRun,
    SampleDemand, SpaceId, Tier,
};

use super::{Answer, Call, Command, Driver};
use crate::decide::Engine;

/// How long an app must have been in the background: programs tidy up when they are sent back.
const SETTLED: Ns = Ns::from_ms(200);
/// How often samples are halved, at most.
const MAX_CALM: u32 = 3;
/// Of so many pages watched, one may be unused where nearly all were used.
const NEARLY_ALL_OF: usize = 8;
/// Nothing is watched when less than one part of the pool in so many is free.
const ROOM: u64 = 8;

/// How the use of resident pages is looked at: a sample of an app in the background is taken out,
/// and its next relaunch tells what it used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sensor {
    /// One in so many hot pages is watched at a time; 0: none.
    pub share: u32,
    /// Neighbours that are watched together, at most: the first touch tells for all.
    pub run_pages: u32,
}

impl Default for Sensor {
    fn default() -> Sensor {
        Sensor { share: 16, run_pages: 8 }
    }
}

/// What is watched of an app.
struct Sample {
    /// By space, ascending.
    pages: BTreeMap<SpaceId, Vec<PageId>>,
    /// It was brought to the front since.
    relaunched: bool,
}

#[derive(Default)]
pub(super) struct Samples {
    sensor: Option<Sensor>,
    /// When apps are due to be sampled.
    due: BTreeMap<AppId, Ns>,
    taken: BTreeMap<AppId, Sample>,
    /// Samples in a row of which nearly all was used.
    calm: BTreeMap<AppId, u32>,
    unused_pages: u64,
}

impl Driver {
    /// From now on the use of resident pages is looked at like this.
    pub fn set_sensor(&mut self, sensor: Sensor) {
        self.samples.sensor = (sensor.share > 0).then_some(sensor);
    }

    /// Pages that were watched and found unused.
    pub fn unused_pages(&self) -> u64 {
        self.samples.unused_pages
    }

    /// What an event means for what is watched, or is to be.
    pub(super) fn follow_samples(&mut self, event: &Event) {
        let Samples { sensor: Some(_), due, taken, calm, .. } = &mut self.samples else { return };
        match *event {
            Event::Background { app } if !taken.contains_key(&app) => {
                due.insert(app, Ns(self.now.0 + SETTLED.0));
            }
            Event::Relaunch { app } => {
                due.remove(&app);
                if let Some(sample) = taken.get_mut(&app) {
                    sample.relaunched = true;
                }
            }
            Event::Exit { app } => {
                due.remove(&app);
                taken.remove(&app);
                calm.remove(&app);
            }
            _ => {}
        }
    }

    /// Samples the apps that are due; not while one is relaunched.
    pub fn take_samples(&mut self, now: Ns, pages: &dyn PageFacts) {
        self.now = self.now.max(now);
        let Some(sensor) = self.samples.sensor else { return };
        let pool = self.engine.facts().tiers.get(&Tier::Pool).copied();
        if self.is_relaunching() || pool.is_some_and(|pool| !pool.has_part_free(ROOM)) {
            return;
        }
        let due = self.samples.due.iter().filter(|(_, when)| **when <= now);
        for app in due.map(|(app, _)| *app).collect::<Vec<AppId>>() {
            self.samples.due.remove(&app);
            let state = self.engine.facts().apps.get(&app).map(|app| app.state);
            if state == Some(AppState::Background) {
                self.take_sample(app, sensor, pages);
            }
        }
    }

    fn take_sample(&mut self, app: AppId, sensor: Sensor, pages: &dyn PageFacts) {
        let hot = self.class_counts(app, Hotness::Hot).resident;
        let calm = self.samples.calm.get(&app).map_or(0, |calm| (*calm).min(MAX_CALM));
        let wanted = hot.div_ceil(u64::from(sensor.share) << calm) as usize;
        if wanted == 0 {
            return;
        }
        let wanted = SampleDemand { app, pages: wanted, run_pages: sensor.run_pages };
        let mut by_space: BTreeMap<SpaceId, Vec<PageRun>> = BTreeMap::new();
        for run in self.pick_samples(wanted, pages) {
            by_space.entry(run.first.space()).or_default().push(run);
        }
        let mut watched = BTreeMap::new();
        for (space, runs) in by_space {
            let group = |run: &PageRun| Group {
                pages: run.pages().collect(),
                hotness: Some(Hotness::Hot),
                codec: CodecKind::Raw,
                chunk_bytes: self.engine.facts().page_bytes,
                park_siblings: false,
            };
            let groups = runs.iter().map(group).collect();
            let mut pages: Vec<PageId> = runs.iter().flat_map(|run| run.pages()).collect();
            pages.sort_unstable();
            watched.insert(space, pages);
            self.commands.push_back(Command::Watch { space, groups });
        }
        if !watched.is_empty() {
            self.samples.taken.insert(app, Sample { pages: watched, relaunched: false });
        }
    }

    /// A relaunch is over: what was watched and not touched (`is_untouched`; whoever was touched has
    /// been told of) was not used by it, and comes back.
    pub(super) fn end_sample(
        &mut self,
        now: Ns,
        app: AppId,
        is_untouched: impl Fn(PageId) -> bool,
        pages: &dyn PageFacts,
    ) {
        if self.samples.taken.get(&app).is_none_or(|sample| !sample.relaunched) {
            return;
        }
        let (mut watched, mut left) = (0, 0);
        let taken = self.samples.taken.remove(&app).map(|sample| sample.pages).unwrap_or_default();
        for (space, mut of_space) in taken {
            watched += of_space.len();
            of_space.retain(|page| is_untouched(*page));
            left += of_space.len();
            for run in of_space.chunk_by(|a, b| a.raw() + 1 == b.raw()) {
                let run = PageRun { first: run[0], count: run.len() as u32 };
                self.tell(now, &Event::Unused { run }, pages);
            }
            self.commands.push_back(Command::EndWatch { space, pages: of_space });
        }
        self.samples.unused_pages += left as u64;
        if watched > 0 {
            let nearly_all_used = left * NEARLY_ALL_OF <= watched;
            let calm = self.samples.calm.entry(app).or_default();
            *calm = if nearly_all_used { *calm + 1 } else { 0 };
        }
    }

    /// Resident pages whose use is worth watching.
    pub fn pick_samples(&mut self, wanted: SampleDemand, pages: &dyn PageFacts) -> Vec<PageRun> {
        let ask = |engine: &mut Engine, pages: &dyn PageFacts| engine.plan_samples(wanted, pages);
        self.ask(|| Call::Samples(wanted), pages, ask, |runs| Answer::Runs(runs))
    }
}

//! Apps in front of their user, one after the other, in time: what is written.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;

use clew_core::{AccessKind, AppId, Ns, PageId, PageRun, Seeded, SpaceId, Vpn};

use super::contents::{Contents, Owner};
use super::memory::{Habit, Memory};
use super::profile::{AppProfile, Burst};
use super::{GenerateError, Workload, system};
use crate::record::Record;
use crate::totals::Totals;
use crate::writer::Writer;

/// First page of each space: programs have nothing below.
const FIRST_VPN: u64 = 0x10_0000;
/// Between two accesses of one group.
const WITHIN_NS: u64 = 700;
/// A cold launch takes so much longer than a relaunch (MobileSwap, 6).
const COLD_LAUNCH: f64 = 9.0;
/// Times that an app runs through what is hot and warm while it is in front.
const PASSES: usize = 5;
/// Of the hot groups, those that a pass uses.
const HOT_IN_PASS: f64 = 0.75;
/// Of the warm groups, those that a pass uses.
const WARM_IN_PASS: f64 = 0.7;
/// Of the groups that are used, those that are written.
const WRITTEN: f64 = 0.1;
/// Hot and warm pages as a part of all: so a quarter of all pages is associated with others (Archer
/// 5.4: 75.3 % are not).
const RECURRING: f64 = 0.305;
/// Warm pages for each hot one, at the least.
const WARM_PER_HOT: f64 = 1.2;
/// How an app uses its groups: so of the pairs of pages that are used together again and again, 26.3 %
/// are nearly always, and 71.1 % hardly ever (Archer, figure 3).
const HABIT: Habit = Habit { share: 0.55, width_pages: 350.0 };
/// Neighbouring pages of a file that are read at once.
const READ_PAGES: u64 = 16;
/// Of an app's pieces of files, those that it reads each time.
const FILES_READ: f64 = 0.85;
/// Of those, the ones that it needs to be brought back.
const FILES_AT_RELAUNCH: f64 = 0.5;
/// What bursts make is told apart from an app's other pages by its numbers, which begin here.
const BURST_NUMBER: u64 = 1 << 32;

/// All apps and the clock.
pub struct Device<'a, W: Write> {
    workload: &'a Workload,
    writer: Writer<W>,
    progress: &'a mut dyn FnMut(f64) -> ControlFlow<()>,
    contents: Option<Contents>,
    apps: Vec<App>,
    /// Versions of the pages of services that apps share; none of one that was not used yet.
    shared: Vec<Option<u16>>,
    /// Pieces of the system's files that were read before.
    system_files: Vec<bool>,
    /// Pages that bursts have made.
    burst_pages: u64,
    now: Ns,
    records: u64,
}

struct App {
    profile: &'static AppProfile,
    memory: Memory,
    random: Seeded,
    /// Pieces of files that were read before.
    files: Vec<bool>,
    /// Pieces of the system's files.
    system_pieces: u32,
    /// Nanoseconds that it was in front.
    front_ns: u64,
    /// Times that it had ended.
    life: u64,
    early_pages: f64,
    late_pages: f64,
    churn: f64,
}

/// What an app does next.
enum Step {
    Use(u32),
    /// Allocates until it holds so many pages.
    Grow(usize),
    GiveUp(usize),
    ReadFile(u32),
    /// Of the system.
    ReadSystemFile(u32),
}

impl<'a, W: Write> Device<'a, W> {
    /// All apps of the workload, not launched yet.
    pub fn new(
        workload: &'a Workload,
        writer: Writer<W>,
        progress: &'a mut dyn FnMut(f64) -> ControlFlow<()>,
    ) -> Result<Device<'a, W>, GenerateError> {
        let profile = workload.profile;
        let apps = (0..workload.apps).map(|number| App::new(workload, number, 0)).collect();
        let contents = workload.contents.then(|| Contents::new(profile, workload.seed));
        let mut device = Device {
            workload,
            writer,
            progress,
            contents,
            apps,
            shared: Vec::new(),
            system_files: vec![false; system_pieces(workload) as usize],
            burst_pages: 0,
            now: Ns(0),
            records: 0,
        };
        let system = system(workload.apps);
        for (number, app) in profile.apps[..workload.apps].iter().enumerate() {
            device.writer.app(AppId(number as u32), app.name)?;
        }
        device.writer.app(system, "system")?;
        device.record(Record::SpaceStart {
            space: SpaceId(system.0 * 2),
            app: system,
            file: false,
        })?;
        if !device.system_files.is_empty() {
            let space = space(workload.apps, true);
            device.record(Record::SpaceStart { space, app: system, file: true })?;
        }
        Ok(device)
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Tells how much is done.
    pub fn progress(&mut self, part: f64) -> Result<(), GenerateError> {
        match (self.progress)(part.min(1.0)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(GenerateError::Interrupted),
        }
    }

    /// Ends the trace.
    pub fn finish(self) -> Result<(W, Totals), GenerateError> {
        Ok(self.writer.finish()?)
    }

    /// `number` is in front of its user, for the first time or again, and then is not.
    pub fn session(&mut self, number: usize, first: bool) -> Result<(), GenerateError> {
        let app = AppId(number as u32);
        let seconds = match first {
            true => self.workload.profile.launch_seconds,
            false => self.workload.profile.relaunch_seconds,
        };
        let begin = self.now.0;
        let end = begin + (seconds * 1e9) as u64;
        let response_ms = self.apps[number].profile.response_ms;
        let jitter = 0.9 + 0.2 * self.apps[number].random.unit();
        let response_ns = match first {
            true => response_ms * COLD_LAUNCH * 1e6 * jitter,
            false => response_ms * 1e6 * jitter,
        } as u64;
        let mut steps = Vec::new();
        if first {
            self.record(Record::Launch { app })?;
            self.record(Record::SpaceStart { space: space(number, false), app, file: false })?;
            if !self.apps[number].files.is_empty() {
                self.record(Record::SpaceStart { space: space(number, true), app, file: true })?;
            }
            self.apps[number].launch(begin, response_ns, &mut steps);
        } else {
            self.record(Record::Relaunch { app })?;
            self.apps[number].relaunch(begin, response_ns, &mut steps);
        }
        self.run(number, &mut steps)?;
        self.now.0 = self.now.0.max(begin + response_ns);
        let response_ns = self.now.0 - begin;
        self.record(Record::ResponseComplete { app, response_ns })?;
        if first {
            // The rest of the first ten seconds, with which nothing recurs yet.
            let ten = begin + 10_000_000_000;
            self.apps[number].grow(begin, self.now.0, ten, &mut steps);
            self.run(number, &mut steps)?;
            self.apps[number].memory.launched();
        }
        self.apps[number].execute(begin, self.now.0, end, first, &mut steps);
        self.run(number, &mut steps)?;
        self.now.0 = self.now.0.max(end);
        self.apps[number].front_ns += self.now.0 - begin;
        self.record(Record::Background { app })?;
        self.now.0 += 1_000_000_000;
        Ok(())
    }

    /// `number`, which is in the background, ends. The next session is its launch.
    pub fn exit(&mut self, number: usize) -> Result<(), GenerateError> {
        let life = self.apps[number].life + 1;
        self.apps[number] = App::new(self.workload, number, life);
        self.record(Record::Exit { app: AppId(number as u32) })
    }

    /// `number` is in front again, and has memory for what its bursts make.
    pub fn burst_begins(&mut self, number: usize) -> Result<(), GenerateError> {
        let app = AppId(number as u32);
        let space = burst_space(self.apps.len());
        self.record(Record::Relaunch { app })?;
        self.record(Record::SpaceStart { space, app, file: false })
    }

    /// After a while, one burst. It stands in the trace as a relaunch of the app in front, so that whoever
    /// plays it says how long it took.
    pub fn burst(&mut self, number: usize, burst: &Burst) -> Result<(), GenerateError> {
        let app = AppId(number as u32);
        self.now.0 += (burst.idle_seconds * 1e9) as u64;
        let begin = self.now.0;
        self.record(Record::Relaunch { app })?;
        let page_bytes = f64::from(self.workload.profile.page_bytes);
        let shot_pages = burst.shot_mib * self.workload.scale * f64::from(1 << 20) / page_bytes;
        let shot_ns = burst.shot_ms * 1e6;
        for shot in 0..burst.shots {
            self.now.0 = self.now.0.max(begin + (f64::from(shot) * shot_ns) as u64);
            for _ in 0..(shot_pages.round() as u64).max(1) {
                let index = self.burst_pages;
                self.burst_pages += 1;
                let page = PageId::new(burst_space(self.apps.len()), Vpn(FIRST_VPN + index));
                self.access(page, AccessKind::Fresh, true)?;
                self.holds(page, Owner::App(number), BURST_NUMBER + index, 0)?;
            }
        }
        self.now.0 = self.now.0.max(begin + (f64::from(burst.shots) * shot_ns) as u64);
        let response_ns = self.now.0 - begin;
        self.record(Record::ResponseComplete { app, response_ns })
    }

    /// Carries out and empties `steps`, in the order of their times.
    fn run(&mut self, number: usize, steps: &mut Vec<(u64, Step)>) -> Result<(), GenerateError> {
        steps.sort_by_key(|(at, _)| *at);
        for (at, step) in steps.drain(..) {
            self.now.0 = self.now.0.max(at);
            match step {
                Step::Use(group) => self.use_group(number, group)?,
                Step::Grow(pages) => {
                    let missing = pages.saturating_sub(self.apps[number].memory.live_pages());
                    let shared = &mut self.shared;
                    let new = self.apps[number].memory.allocate(missing, || {
                        shared.push(None);
                        shared.len() as u32 - 1
                    });
                    for group in new {
                        self.touch_fresh(number, group)?;
                    }
                }
                Step::GiveUp(pages) => {
                    for group in self.apps[number].memory.give_up(pages) {
                        self.free(number, group)?;
                    }
                }
                Step::ReadFile(piece) => {
                    let files = &mut self.apps[number].files;
                    let before = std::mem::replace(&mut files[piece as usize], true);
                    self.read_file(number, piece, before)?;
                }
                Step::ReadSystemFile(piece) => {
                    let before = std::mem::replace(&mut self.system_files[piece as usize], true);
                    self.read_file(self.apps.len(), piece, before)?;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, record: Record) -> Result<(), GenerateError> {
        self.writer.record(self.now, record)?;
        self.records += 1;
        Ok(())
    }

    fn access(&mut self, page: PageId, kind: AccessKind, write: bool) -> Result<(), GenerateError> {
        self.now.0 += WITHIN_NS;
        self.record(Record::Access { page, kind, write })
    }

    /// Tells what `page` holds.
    fn holds(
        &mut self,
        page: PageId,
        owner: Owner,
        number: u64,
        version: u16,
    ) -> Result<(), GenerateError> {
        let Some(contents) = &mut self.contents else { return Ok(()) };
        let content = self.writer.bytes(contents.page(owner, number, version))?;
        self.record(Record::Contents { page, content })
    }

    fn touch_fresh(&mut self, number: usize, group: u32) -> Result<(), GenerateError> {
        for at in 0..self.apps[number].memory.groups[group as usize].pages.len() {
            let memory = &mut self.apps[number].memory;
            let index = memory.groups[group as usize].pages[at];
            let version = memory.versions[index as usize];
            let page = anonymous(number, index);
            self.access(page, AccessKind::Fresh, true)?;
            self.holds(page, Owner::App(number), u64::from(index), version)?;
        }
        self.use_shared(number, group)
    }

    fn use_group(&mut self, number: usize, group: u32) -> Result<(), GenerateError> {
        let written = self.apps[number].random.unit() < WRITTEN;
        for at in 0..self.apps[number].memory.groups[group as usize].pages.len() {
            let app = &mut self.apps[number];
            let index = app.memory.groups[group as usize].pages[at];
            let write = written && app.random.unit() < 0.5;
            if write {
                let version = &mut app.memory.versions[index as usize];
                *version = version.wrapping_add(1);
            }
            let version = app.memory.versions[index as usize];
            let page = anonymous(number, index);
            self.access(page, AccessKind::Seen, write)?;
            if write {
                self.holds(page, Owner::App(number), u64::from(index), version)?;
            }
        }
        self.use_shared(number, group)
    }

    /// The page of the system that belongs to `group`, if there is one.
    fn use_shared(&mut self, number: usize, group: u32) -> Result<(), GenerateError> {
        let Some(shared) = self.apps[number].memory.groups[group as usize].shared else {
            return Ok(());
        };
        let page = anonymous(self.apps.len(), shared);
        match self.shared[shared as usize] {
            Some(_) => self.access(page, AccessKind::Seen, false),
            None => {
                self.shared[shared as usize] = Some(0);
                self.access(page, AccessKind::Fresh, true)?;
                self.holds(page, Owner::System, u64::from(shared), 0)
            }
        }
    }

    fn free(&mut self, number: usize, group: u32) -> Result<(), GenerateError> {
        let memory = &mut self.apps[number].memory;
        let mut pages = memory.groups[group as usize].pages.clone();
        for &page in &pages {
            // What is there later is something else.
            let version = &mut memory.versions[page as usize];
            *version = version.wrapping_add(1);
        }
        pages.sort_unstable();
        let mut at = 0;
        while at < pages.len() {
            let mut count = 1;
            while pages.get(at + count) == Some(&(pages[at] + count as u32)) {
                count += 1;
            }
            let first = anonymous(number, pages[at]);
            self.record(Record::Freed { run: PageRun { first, count: count as u32 } })?;
            at += count;
        }
        Ok(())
    }

    /// Reads a piece of the files of app `number`, or of the system, which comes after the apps.
    fn read_file(
        &mut self,
        number: usize,
        piece: u32,
        read_before: bool,
    ) -> Result<(), GenerateError> {
        let first = u64::from(piece) * READ_PAGES;
        for index in first..first + READ_PAGES {
            let page = PageId::new(space(number, true), Vpn(FIRST_VPN + index));
            if !read_before {
                self.holds(page, Owner::File(number), index, 0)?;
            }
            self.access(page, AccessKind::Seen, false)?;
        }
        Ok(())
    }
}

/// Pieces of the system's files.
fn system_pieces(workload: &Workload) -> u32 {
    let profile = workload.profile;
    let bytes = profile.system_file_mib * workload.scale * f64::from(1 << 20);
    (bytes / f64::from(profile.page_bytes) / READ_PAGES as f64).round() as u32
}

/// The space of an app's anonymous memory, or of its files; that of the system's come after them.
fn space(number: usize, file: bool) -> SpaceId {
    SpaceId(number as u32 * 2 + u32::from(file))
}

/// The space of what bursts make, where so many apps are: behind that of the system.
fn burst_space(apps: usize) -> SpaceId {
    SpaceId((apps as u32 + 1) * 2)
}

fn anonymous(number: usize, index: u32) -> PageId {
    PageId::new(space(number, false), Vpn(FIRST_VPN + u64::from(index)))
}

impl App {
    /// One that was not started yet, or ended: everything random differs from `life` to life.
    fn new(workload: &Workload, number: usize, life: u64) -> App {
        let profile = workload.profile;
        let app = &profile.apps[number];
        let pages_of =
            |mib: f64| mib * workload.scale * f64::from(1 << 20) / f64::from(profile.page_bytes);
        let late_pages = pages_of(app.late_mib);
        let hot = (app.hot_pages * workload.scale).max(8.0);
        let recurring = (late_pages * RECURRING).max(hot * (1.0 + WARM_PER_HOT));
        let seeded = |what| match life {
            0 => Seeded::of(workload.seed, &[what, number as u64]),
            life => Seeded::of(workload.seed, &[what, number as u64, life]),
        };
        App {
            profile: app,
            memory: Memory::new(app, hot as usize, recurring as usize, seeded(2)),
            random: seeded(3),
            files: vec![false; (pages_of(app.file_mib) / READ_PAGES as f64).round() as usize],
            system_pieces: system_pieces(workload),
            front_ns: 0,
            life,
            early_pages: pages_of(app.early_mib),
            late_pages,
            churn: profile.churn,
        }
    }

    /// Pages that it wants after so many seconds in front: those of the source at 10 s and at 5
    /// minutes, and by the logarithm of time between.
    fn wanted(&self, seconds: f64) -> f64 {
        if seconds <= 10.0 {
            return self.early_pages * seconds / 10.0;
        }
        let part = (seconds.min(300.0) / 10.0).ln() / 30f64.ln();
        self.early_pages + (self.late_pages - self.early_pages) * part
    }

    /// Allocations from `from` to `to` (nanoseconds), for an app that came to the front at `begin`.
    fn grow(&mut self, begin: u64, from: u64, to: u64, steps: &mut Vec<(u64, Step)>) {
        let seconds = |at: u64| (self.front_ns + at - begin) as f64 / 1e9;
        let moments = 200;
        for moment in 1..=moments {
            let at = from + to.saturating_sub(from) / moments * moment;
            steps.push((at, Step::Grow(self.wanted(seconds(at)) as usize)));
        }
    }

    /// The cold launch: half of what there is after ten seconds is allocated until the response.
    fn launch(&mut self, begin: u64, response_ns: u64, steps: &mut Vec<(u64, Step)>) {
        let moments = 50;
        for moment in 0..moments {
            let at = begin + response_ns * moment / moments;
            let pages = self.early_pages * 0.5 * (moment + 1) as f64 / moments as f64;
            steps.push((at, Step::Grow(pages as usize)));
        }
        self.read_files(begin, begin + response_ns, 0.0, FILES_AT_RELAUNCH, steps);
    }

    /// The relaunch: every hot group once.
    fn relaunch(&mut self, begin: u64, response_ns: u64, steps: &mut Vec<(u64, Step)>) {
        self.memory.relaunched();
        let hot = self.memory.hot.clone();
        let order = self.memory.in_order(&hot, HABIT);
        let count = order.len().max(1) as u64;
        for (place, group) in order.into_iter().enumerate() {
            steps.push((begin + response_ns * place as u64 / count, Step::Use(group)));
        }
        self.read_files(begin, begin + response_ns, 0.0, FILES_AT_RELAUNCH, steps);
    }

    /// What it does between response and background.
    fn execute(
        &mut self,
        begin: u64,
        from: u64,
        to: u64,
        first: bool,
        steps: &mut Vec<(u64, Step)>,
    ) {
        let span = to.saturating_sub(from);
        let mut unused: BTreeSet<u32> = self.memory.warm.iter().copied().collect();
        for pass in 0..PASSES {
            let is_last = pass + 1 == PASSES;
            let (random, memory) = (&mut self.random, &mut self.memory);
            let hot = memory.hot.iter().filter(|_| random.unit() < HOT_IN_PASS);
            let mut used: Vec<u32> = hot.copied().collect();
            for &group in &memory.warm {
                // Nothing is warm that was not used.
                let due = is_last && unused.contains(&group);
                if random.unit() < WARM_IN_PASS || due {
                    unused.remove(&group);
                    used.push(group);
                }
            }
            let order = memory.in_order(&used, HABIT);
            let (start, count) = (from + span * pass as u64 / PASSES as u64, order.len().max(1));
            for (place, group) in order.into_iter().enumerate() {
                let at = start + span / PASSES as u64 * place as u64 / count as u64;
                steps.push((at, Step::Use(group)));
            }
        }
        let churn = (self.memory.live_pages() as f64 * self.churn) as usize;
        if !first && churn > 0 {
            for moment in 0..4 {
                let at = from + span / 5 * (moment + 1);
                steps.push((at, Step::GiveUp(churn / 4)));
            }
        }
        self.grow(begin, from, to, steps);
        self.read_files(from, to, FILES_AT_RELAUNCH, 1.0, steps);
    }

    /// Reads most of the pieces of its files and of the system's between two parts of them, in their order.
    fn read_files(
        &mut self,
        from: u64,
        to: u64,
        low: f64,
        high: f64,
        steps: &mut Vec<(u64, Step)>,
    ) {
        let own = (self.files.len() as u32, Step::ReadFile as fn(u32) -> Step);
        let system = (self.system_pieces, Step::ReadSystemFile as fn(u32) -> Step);
        for (count, step) in [own, system] {
            let part = |part: f64| (f64::from(count) * part) as u32;
            let pieces = part(low)..part(high);
            let number = u64::from(pieces.end - pieces.start).max(1);
            for (place, piece) in pieces.enumerate() {
                if self.random.unit() < FILES_READ {
                    let at = from + to.saturating_sub(from) * place as u64 / number;
                    steps.push((at, step(piece)));
                }
            }
        }
    }
}

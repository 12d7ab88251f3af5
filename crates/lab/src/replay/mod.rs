//! Replay: a trace, played to the engine.
//!
//! What the records of a trace mean here:
//! - the program touches a page ([`Record::Access`]): where the page is under *this* scheme decides
//!   whether that is a hit, a fault, or the first touch, whatever it was for the source;
//! - its contents are what the trace says ([`crate::world`]). Contents that change while the page is
//!   stored here were written by an access that the source could not see: it is played as a write;
//! - a candidate is a page that is there;
//! - notes, which say what the recording system did, are passed over, as are spaces that hold pages
//!   of files ([`files`]), unless the scheme takes them.
//!
//! *Time.* Policies get the trace's time. A relaunch takes the program's own time ([`own`]) and what
//! it waited for: faults, pages that are on their way back, and memory where there is none. What is
//! reclaimed is on its way out as long as the reclaimer works, one piece after the other; when
//! memory runs out before it is done, the program waits. A program is one thread.
//!
//! *Budget.* Resident and parked pages, pool, page tables. When to reclaim and how much is decided
//! by [`clew_engine::budget`], as in the daemon, but at every step and not at ticks.
//!
//! *Ending apps.* With `on_full = "kill"`, as live. An app that was ended is launched cold when the
//! trace brings it back; until then what the trace says about it is passed over.

mod ahead;
mod apps;
mod backlog;
mod commands;
mod device;
mod donors;
mod files;
mod hot_sets;
mod memory;
mod own;
mod tally;
mod watch;

use std::collections::BTreeSet;
use std::path::Path;

use clew_core::{AccessKind, AppId, Arrival, Event, Ns, PageRun, SpaceId, Tier, Trigger};
use clew_engine::budget::{Budget, WATERMARKS};
use clew_engine::decide::Engine;
use clew_engine::driver::Driver;
use clew_policy::Scheme;
use clew_policy::schemes::OnFull;
use clew_report::{Arm, Time};
use clew_store::flash::LogId;
use clew_store::{State, StoreConfig};
use clew_trace::{ContentsKind, Record, Source, Stamped, Trace};

use crate::costs::{Clock, Costs, FarCost};
use crate::error::LabError;
use crate::mechanism::{Buffer, Bytes, FarTier, Mechanism, SizeModel, Sizes, WithKernel};
use crate::spaces::Spaces;
use crate::world::{Lookahead, World};
use ahead::Ahead;
use backlog::Backlog;
use device::Device;
use donors::Lenders;
pub use donors::{Donor, Donors};
use files::Files;
use hot_sets::Follower;
use own::OwnTime;
use tally::Tally;
use watch::Watch;
pub use watch::{AppPages, Mark, PARTS, Switch, Watched};

/// The daemon's tick. After a round of reclaim that found nobody, the next one is so much later.
const TICK: Ns = Ns::from_ms(10);
/// How often the CPU load is told.
const SECOND: Ns = Ns::from_ms(1000);
/// Records between two looks at how much the page tables take.
const TABLES: u64 = 1 << 10;
/// Records between two reports of progress.
const REPORT: u64 = 1 << 16;

/// What moves pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pages {
    /// Codecs, pool and mover of the daemon, on the bytes of the trace.
    Real,
    /// Sizes only. Original over stored size of every page, if stated; else by the trace's
    /// statistics, or where it has none by the table of costs.
    Weightless {
        /// The compression ratio of every page.
        ratio: Option<f64>,
    },
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The scheme.
    pub scheme: Scheme,
    /// Memory for resident and parked pages, pool and page tables, bytes.
    pub budget_bytes: u64,
    /// Watermarks, per cent of it.
    pub watermarks: (f64, f64),
    /// How time is told.
    pub clock: Clock,
    /// What moves pages.
    pub pages: Pages,
    /// Bytes of flash, if there is one (its time is always modelled). Schemes that do not use it do not
    /// see it.
    pub flash_bytes: Option<u64>,
    /// How much of the device that flash is on is used, by everybody, per cent: the fuller, the slower.
    pub flash_used_pct: u32,
    /// Machines that lend memory, and what the link to each of them costs (always modelled). Schemes that do not use
    /// them do not see them.
    pub donors: Option<Donors>,
    /// The machine swaps to zram, so that a scheme can lend pages to it (always modelled).
    pub kernel_zram: bool,
    /// Everything of an app leaves where all of it was out in the recording ([`Record::Window`]). Else only what the
    /// budget asks for leaves.
    pub windows: bool,
    /// Policies do not hear of touches of resident pages, as live: of what a program uses its faults are all that is
    /// told.
    pub hides_touches: bool,
}

impl Settings {
    /// The daemon's defaults, modelled time, real bytes.
    pub fn new(scheme: Scheme, budget_bytes: u64) -> Settings {
        Settings {
            scheme,
            budget_bytes,
            watermarks: WATERMARKS,
            clock: Clock::Modelled(Costs::reference()),
            pages: Pages::Real,
            flash_bytes: None,
            flash_used_pct: 0,
            donors: None,
            kernel_zram: false,
            windows: false,
            hides_touches: false,
        }
    }
}

/// Hears how far a replay is: bytes of the trace, and how many it has.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Replays `trace`. `lookahead` is [`Lookahead::of`] the same trace.
pub fn replay(
    trace: &Trace,
    lookahead: &Lookahead,
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<Arm, LabError> {
    Ok(run(trace, lookahead, settings, None, progress)?.0)
}

/// The same, with what there is to say of each launch and relaunch. Launches are timed too, as relaunches are.
pub fn watched(
    trace: &Trace,
    lookahead: &Lookahead,
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<(Arm, Watched), LabError> {
    let (arm, found) = run(trace, lookahead, settings, Some(Watch::default()), progress)?;
    Ok((arm, found.unwrap_or_default()))
}

fn run(
    trace: &Trace,
    lookahead: &Lookahead,
    settings: &Settings,
    watch: Option<Watch>,
    progress: Progress<'_>,
) -> Result<(Arm, Option<Watched>), LabError> {
    let scheme = &settings.scheme;
    let page_bytes = trace.header().page_bytes;
    let limits = StoreConfig {
        page_bytes: page_bytes as usize,
        mem_limit_bytes: scheme.mem_limit_bytes.map_or(settings.budget_bytes, |limit| limit.0),
        disksize_pages: scheme.disksize_pages.unwrap_or(crate::world::MAX_PAGES),
    };
    let mut engine = Engine::new(scheme);
    engine.set_page_bytes(page_bytes);
    let all_seen = trace.header().provenance.source != Source::Recorded && !settings.hides_touches;
    engine.set_all_touches_seen(all_seen);
    let buffer = match engine.arrival() {
        Arrival::Resident => None,
        Arrival::Parked { pages, keep } => Some(Buffer { pages, keep }),
    };
    let clock = settings.clock.clone().at_utilisation(settings.flash_used_pct);
    let flash_bytes = settings.flash_bytes.filter(|_| scheme.uses(Tier::Flash));
    if scheme.needs_flash() && flash_bytes.is_none() {
        return Err(LabError::Setting {
            what: format!("scheme {}", scheme.name),
            why: "it has no place but flash: say how large that is (--flash)".to_string(),
        });
    }
    let mut far = Vec::new();
    if let Some(bytes) = flash_bytes {
        let cost = FarCost::Flash(clock.costs().flash()?);
        far.push(FarTier { log: LogId::FLASH, bytes, cost });
    }
    far.extend(donors::tiers(settings, page_bytes)?);
    let (pool, retain) = (scheme.pool, scheme.retain);
    let has = trace.header().contents;
    let ((arm, found), pages) = match settings.pages {
        Pages::Real if has != ContentsKind::Bytes => {
            return Err(LabError::NoContents {
                path: trace.path().to_path_buf(),
                has: if has == ContentsKind::Stats { "statistics of them" } else { "nothing" },
            });
        }
        Pages::Real => {
            let mechanism = Bytes::new(trace, pool, limits, retain, buffer, clock, &far)?;
            let mut replay = Replay::new(engine, mechanism, trace, Some(lookahead), settings)?;
            replay.watch = watch;
            (replay.play(trace, progress)?, "real")
        }
        Pages::Weightless { .. } if matches!(clock, Clock::Measured(_)) => {
            return Err(LabError::Setting {
                what: "time".to_string(),
                why: "without contents there is no work to measure; time is modelled".to_string(),
            });
        }
        Pages::Weightless { .. } if !engine.admits_all() => {
            return Err(LabError::Setting {
                what: "scheme".to_string(),
                why: "what it admits depends on what pages hold: it is not for policies alone"
                    .to_string(),
            });
        }
        Pages::Weightless { ratio } => {
            let (model, pages) = match (ratio, has) {
                (Some(ratio), _) => (SizeModel::Ratio(ratio), "ratio"),
                (None, ContentsKind::Stats) => (Sizes::stats_of(trace)?, "statistics"),
                (None, ContentsKind::None | ContentsKind::Bytes) => (SizeModel::Table, "table"),
            };
            let told = matches!(model, SizeModel::Stats(_)).then_some(lookahead);
            let costs = clock.costs().clone();
            let mechanism = Sizes::new(model, pool, limits, retain, buffer, costs, &far)?;
            let mut replay = Replay::new(engine, mechanism, trace, told, settings)?;
            replay.watch = watch;
            (replay.play(trace, progress)?, pages)
        }
    };
    let time = match settings.clock {
        Clock::Measured(_) => Time::Measured,
        Clock::Modelled(_) => Time::Modelled,
    };
    let replay = arm.replay.map(|replay| clew_report::Replay {
        costs: settings.clock.costs().name.clone(),
        pages: pages.to_string(),
        ..replay
    });
    let arm = Arm {
        name: scheme.name.clone(),
        scheme: scheme.name.clone(),
        missing: scheme.missing().iter().map(|what| what.to_string()).collect(),
        time,
        replay,
        ..arm
    };
    Ok((arm, found))
}

/// A relaunch that is going on.
struct Window {
    app: AppId,
    stalled_ns: f64,
}

struct Replay<'a, M> {
    driver: Driver,
    mechanism: WithKernel<M>,
    world: Option<World<'a>>,
    spaces: Spaces,
    /// The scheme takes pages of files.
    takes_files: bool,
    /// Windows are played.
    windows: bool,
    hides_touches: bool,
    files: Files,
    /// Apps that were ended here, and not by the trace.
    dead: BTreeSet<AppId>,
    on_full: OnFull,
    costs: Costs,
    now: Ns,
    /// The last tick.
    ticked: Ns,
    /// The device that flash is on, and how often it is looked at, if the scheme asks for it.
    device: Option<Device>,
    lenders: Lenders,
    /// When the load was last told, and what swapping had taken of a CPU by then, nanoseconds.
    loaded: (Ns, f64),
    record: u64,
    window: Option<Window>,
    /// A launch that is watched. Nothing is decided by it.
    launching: Option<Window>,
    watch: Option<Watch>,
    own: OwnTime,
    hot_sets: Follower,
    /// The scheme keeps a hot list.
    has_hot_list: bool,
    ahead: Ahead,
    backlog: Backlog,
    /// Reclaim found nobody; it is not asked before.
    not_before: Ns,
    /// A page is in between: memory is short for a moment.
    nobody_leaves: bool,
    tables_bytes: u64,
    /// For events of one call.
    events: Vec<Event>,
    tally: Tally,
}

impl<'a, M: Mechanism> Replay<'a, M> {
    fn new(
        engine: Engine,
        mechanism: M,
        trace: &Trace,
        lookahead: Option<&'a Lookahead>,
        settings: &Settings,
    ) -> Result<Replay<'a, M>, LabError> {
        let page_bytes = u64::from(trace.header().page_bytes);
        let (low, high) = settings.watermarks;
        let costs = settings.clock.costs().clone();
        let budget = Budget::new(settings.budget_bytes, low, high, page_bytes);
        let kernel_bytes = match settings.kernel_zram {
            true => settings.budget_bytes / 100 * u64::from(settings.scheme.kernel_share_pct()),
            false => 0,
        };
        Ok(Replay {
            driver: Driver::new(engine, budget, settings.scheme.on_full),
            mechanism: WithKernel::new(mechanism, &costs, page_bytes as u32, kernel_bytes)?,
            world: lookahead.map(World::new),
            spaces: Spaces::default(),
            takes_files: settings.scheme.takes_files(),
            windows: settings.windows,
            hides_touches: settings.hides_touches,
            files: Files::default(),
            dead: BTreeSet::new(),
            on_full: settings.scheme.on_full,
            own: OwnTime::new(trace.header().provenance.source, &costs, page_bytes as u32),
            costs,
            now: Ns::default(),
            ticked: Ns::default(),
            device: Device::of(settings),
            lenders: Lenders::of(settings),
            loaded: (Ns::default(), 0.0),
            record: 0,
            window: None,
            launching: None,
            watch: None,
            hot_sets: Follower::default(),
            has_hot_list: settings.scheme.reclaim.about().keeps_hot_list,
            ahead: Ahead::default(),
            backlog: Backlog::default(),
            not_before: Ns::default(),
            nobody_leaves: false,
            tables_bytes: 0,
            events: Vec::new(),
            tally: Tally::default(),
        })
    }

    fn play(
        mut self,
        trace: &Trace,
        progress: Progress<'_>,
    ) -> Result<(Arm, Option<Watched>), LabError> {
        let failed = |source| LabError::trace(trace.path())(source);
        let total = trace.file_bytes();
        let mut reader = trace.records().map_err(failed)?;
        self.look_at_device();
        self.look_at_donors();
        while let Some(stamped) = reader.next() {
            let stamped = stamped.map_err(failed)?;
            self.step(&stamped).map_err(|error| self.placed(error, trace.path()))?;
            self.record += 1;
            if self.record.is_multiple_of(TABLES) {
                self.tables_bytes = self.mechanism.tables_bytes();
            }
            if self.now.since(self.ticked) >= TICK {
                self.tick();
                if self.driver.owes() {
                    self.keep_budget()?;
                }
            }
            if self.driver.has_commands() {
                self.carry_out()?;
            }
            if self.record.is_multiple_of(REPORT) {
                progress(reader.position(), total);
            }
        }
        progress(total, total);
        self.mark(None);
        let hot_sets = self.hot_sets.finish(self.has_hot_list);
        let mut arm = self.tally.arm(&self.mechanism, &self.driver, hot_sets);
        if let (Some(replay), true) = (&mut arm.replay, self.takes_files) {
            replay.files = Some(self.files.counts());
        }
        Ok((arm, self.watch.map(Watch::finish)))
    }

    /// Time has passed.
    fn tick(&mut self) {
        self.ticked = self.now;
        let (since, spent_ns) = self.loaded;
        let passed = self.now.since(since);
        if passed >= SECOND {
            let now_ns = self.tally.spent_ns();
            let load = (now_ns - spent_ns) / passed.0 as f64;
            self.look_at_donors();
            self.driver.set_cpu_load(load.clamp(0.0, 1.0) as f32);
            self.loaded = (self.now, now_ns);
        }
        self.look_at_device();
        self.driver.tick(self.now, &self.mechanism);
        if self.driver.owes() {
            self.driver.bring_wanted(self.used(), &self.mechanism);
        }
        // What is done where nothing is short.
        if self.driver.repacks() {
            self.driver.keep_budget(self.now, self.used(), &self.mechanism);
        }
    }

    /// An error, with the number of the record that was played.
    fn placed(&self, error: LabError, trace: &Path) -> LabError {
        match error {
            LabError::WrongBytes { page, content, .. } => {
                LabError::WrongBytes { page, content, record: self.record }
            }
            LabError::Defect { page, what, .. } => {
                LabError::Defect { page, what, record: self.record }
            }
            LabError::Trace { source, .. } => LabError::Trace { path: trace.to_path_buf(), source },
            other => other,
        }
    }

    #[inline]
    fn step(&mut self, stamped: &Stamped) -> Result<(), LabError> {
        self.now = stamped.at;
        match stamped.record {
            Record::Access { page, write, .. } => self.access(page, write),
            Record::Contents { page, content } if self.plays(page.space()) => {
                self.contents(page, content)
            }
            Record::Resident { run } if self.plays(run.first.space()) => self.resident(run),
            Record::Candidate { page } if self.plays(page.space()) => {
                match self.mechanism.state(page) {
                    State::Absent => self.resident(PageRun { first: page, count: 1 }),
                    _ => Ok(()),
                }
            }
            Record::Freed { run } if self.plays(run.first.space()) => {
                self.mechanism.free(run);
                if let Some(world) = &mut self.world {
                    world.free(run);
                }
                self.tally.ahead_unused += self.ahead.gone(run);
                self.tell(&Event::Freed { run });
                Ok(())
            }
            Record::Moved { from, to } if self.plays(from.first.space()) => self.moved(from, to),
            Record::Note(note) => {
                self.own.note(&note);
                Ok(())
            }
            Record::Contents { .. }
            | Record::Resident { .. }
            | Record::Candidate { .. }
            | Record::Freed { .. }
            | Record::Moved { .. } => {
                self.pass_over(&stamped.record);
                Ok(())
            }
            Record::Window { app } if self.windows => self.take_out_all(app),
            Record::Window { .. } => Ok(()),
            record => self.life(&record),
        }
    }

    /// Whether the scheme takes what `space` holds: anonymous memory, or pages of files.
    #[inline]
    fn takes(&self, space: SpaceId) -> bool {
        self.spaces.is_anonymous(space) || self.takes_files && self.spaces.is_file(space)
    }

    /// Whether what happens to `space` is played: the scheme takes what it holds, and its app lives.
    #[inline]
    fn plays(&self, space: SpaceId) -> bool {
        self.takes(space)
            && (self.dead.is_empty()
                || self.spaces.app(space).is_some_and(|app| !self.dead.contains(&app)))
    }

    fn tell(&mut self, event: &Event) {
        self.driver.tell(self.now, event, &self.mechanism);
    }

    /// The time of the program that is being relaunched, which is behind the trace's by what it
    /// waited; else the trace's.
    fn program_ns(&self) -> f64 {
        let window = self.window.as_ref().or(self.launching.as_ref());
        self.now.0 as f64 + window.map_or(0.0, |window| window.stalled_ns)
    }

    // ---- events -----------------------------------------------------------------------------------

    /// Tells events in their order, asks for what should come back with them, and empties the list.
    fn tell_all(&mut self, events: &mut Vec<Event>, write: bool) -> Result<(), LabError> {
        let mut triggers = Vec::new();
        for mut event in events.drain(..) {
            match &mut event {
                Event::Access { kind, write: written, .. } => {
                    *written = write;
                    if *kind == AccessKind::Fresh {
                        self.tally.fresh += 1;
                    }
                }
                Event::PageIn { page, demand, .. } => {
                    self.driver.keep_copy(*page);
                    if *demand {
                        self.tally.faults += 1;
                        triggers.push(Trigger::Fault(*page));
                    } else {
                        self.tally.ahead_pages += 1;
                        let ready = self.program_ns();
                        if self.mechanism.state(*page) == State::Resident {
                            self.ahead.came(*page, ready);
                        }
                    }
                }
                Event::PrefetchUsed { page } => {
                    self.tally.hits += 1;
                    self.tally.ahead_used += 1;
                    self.driver.keep_copy(*page);
                    triggers.push(Trigger::Hit(*page));
                }
                Event::PrefetchExpired { .. } => self.tally.ahead_unused += 1,
                Event::Stored { page, tier, bytes } => {
                    if let Some(watch) = &mut self.watch {
                        watch.stored(*page, self.spaces.app(page.space()), *bytes);
                    }
                    if self.spaces.is_file(page.space()) {
                        self.files.to_pool_pages += 1;
                    }
                    let page_bytes = self.driver.budget().page_bytes;
                    self.tally.stored(*tier, u64::from(*bytes), page_bytes);
                    self.tally.ahead_unused += u64::from(self.ahead.left(*page));
                }
                _ => {}
            }
            match event {
                Event::Stayed { page } => self.driver.stayed(self.now, page),
                event => self.tell(&event),
            }
        }
        self.events = std::mem::take(events);
        for trigger in triggers {
            self.driver.want_early(trigger, &self.mechanism);
        }
        self.driver.bring_wanted(self.used(), &self.mechanism);
        Ok(())
    }
}

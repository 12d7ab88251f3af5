//! The policy thread: owns the engine's policies, the apps, the budget.
//!
//! It wakes for messages and at ticks, tells the policies what happened, and hands work to the
//! workers. It waits for nobody.

pub mod activity;
mod budget;
mod burial;
mod candidates;
mod cpu_load;
mod donors;
mod flash_device;
mod fullness;
mod in_turn;
mod kernel_tier;
mod last_resort;
mod leaving;
mod lifecycle;
mod mounts;
mod orders;
mod outside;
mod page_tables;
mod requests;
mod scans;
mod silence;
mod starved;
mod status;
mod thrashing;
mod told_late;
mod touches;
mod user_budgets;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_agent::protocol::MAX_NAME;
use clew_core::{AppId, AppState, Event, Ns, PageRun, SpaceId, Trigger, Vpn};
use clew_engine::driver::Driver;
use clew_store::State;
use clew_store::flash::LogId;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use self::in_turn::InTurn;
use self::orders::Untouched;
use self::requests::Promise;
use self::windows::Windows;
use crate::agents::candidate::Candidate;
use crate::config::Config;
use crate::control::protocol::Environment;
use crate::control::status::UsedBytes;
use crate::control::trusted_path::own_uid;
use crate::message::Message;
use crate::profiles::Profiles;
use crate::programs::alone::Alone;
use crate::programs::looks::Looks;
use crate::programs::plea::Plea;
use crate::programs::process::Process;
use crate::programs::shared::Shared;
use crate::survival::beside::Beside;
use crate::workers::crew::Crew;
use crate::workers::desk::Desk;
use crate::workers::work::Work;
use activity::Activity;
use cpu_load::CpuLoad;
use donors::Donors;
use flash_device::FlashDevice;
use fullness::Fullness;
use kernel_tier::KernelTier;
use mounts::Mounts;
use outside::Outside;
use page_tables::Programs;
use scans::Scans;
use thrashing::Thrashing;
use told_late::Moves;
use touches::Touches;
use user_budgets::UserBudgets;

/// While something happens, and while nothing does.
const TICK_BUSY: Duration = Duration::from_millis(10);
const TICK_IDLE: Duration = Duration::from_millis(100);
/// How long after the last event the daemon counts as busy.
const BUSY_FOR: Duration = Duration::from_millis(500);
/// How often dead programs are looked for.
const LIVENESS: Duration = Duration::from_millis(100);

/// So long a private daemon waits for its first app, while who started it lives.
pub const NOBODY_CAME: Duration = Duration::from_secs(10);
/// How long a program may take from saying that it starts until its agent comes.
const LOADING: Duration = Duration::from_secs(10);
/// How often faults are heard of during a relaunch, where the scheme brings something back for them.
const TICK_RELAUNCH: Duration = Duration::from_millis(1);

struct App {
    name: String,
    /// Whose it is: its name is one of that user's.
    uid: u32,
    state: AppState,
    /// It is in front because it has just begun, and since when: nobody has said so.
    launched: Option<Instant>,
    activity: Activity,
    /// A process that said it would become a program of it, and when; its agent has not come.
    awaited: Option<(u32, Instant)>,
    /// Counts of processes that ended.
    past_faults: u64,
    past_demand: u64,
    past_lent_back: u64,
    past_fault_ns: u64,
    past_fault_codec_ns: u64,
    past_fault_along_ns: u64,
    past_restored: u64,
    past_swapped_out: u64,
    /// The process that was last said to become a program of it.
    root: Option<u32>,
    /// Pages brought back early that were then used.
    prefetch_used: u64,
}

impl App {
    /// Whether a program of it is still being loaded.
    fn is_awaited(&self) -> bool {
        self.awaited.is_some_and(|(pid, since)| {
            since.elapsed() < LOADING && std::fs::metadata(format!("/proc/{pid}")).is_ok()
        })
    }
}

/// Why a candidate waits that is no longer too small.
const BEING_PREPARED: &str = "being prepared";

struct Waiting {
    candidate: Option<Box<Candidate>>,
    app: AppId,
    pid: u32,
    command: String,
    /// It was forked by a managed program: it is served already, and counted there.
    forked: bool,
    /// Being prepared, or refused for a reason.
    reason: Option<String>,
    /// Ticket of the order to prepare it.
    ticket: u64,
    /// The managed process that has the same memory, which is counted there.
    shares_with: Option<u32>,
    /// Resident bytes, as last looked at.
    resident: u64,
}

impl Waiting {
    /// Whether what was prepared as `pid` is this: the process may have become another program's meanwhile, which waits in
    /// its own right.
    fn is_prepared_as(&self, pid: u32) -> bool {
        self.pid == pid && self.candidate.is_none()
    }
}

/// The policy thread's state.
pub struct Governor {
    shared: Arc<Shared>,
    programs: Programs,
    now: Ns,
    driver: Driver,
    windows: Windows,
    config: Config,
    profiles: Profiles,
    environment: Environment,
    keeper_pid: u32,
    beside: Option<Beside>,
    work: Desk,
    crew: Crew,
    /// Workers that programs of each user keep by not ending an order.
    held_up: HashMap<u32, usize>,
    apps: BTreeMap<AppId, App>,
    waiting: Vec<Waiting>,
    /// The one among them that was looked at last.
    looked_at: usize,
    /// The one that is next to be looked at whether it is there.
    waiting_looked_at: usize,
    /// When a process was last taken down to its own budget.
    over_budget: HashMap<SpaceId, Instant>,
    /// What each user of a service may use.
    users: UserBudgets,
    promises: HashMap<u64, Promise>,
    tickets: HashMap<u64, u64>,
    /// Who waits until a process is let go.
    pleas: HashMap<SpaceId, Vec<Plea>>,
    /// Tickets of the driver's commands, and their numbers there.
    commands: HashMap<u64, u64>,
    last_activity: Instant,
    next_number: u64,
    /// The number that was given to an app last.
    last_app: AppId,
    /// Processes of which something is being taken out, and what waits for that.
    swap_outs: InTurn<SpaceId, Work>,
    /// Of whom pages were picked while they took no orders ([`Governor::look_after_the_silent`]).
    passed_over: HashSet<SpaceId>,
    /// By user: what waits for zeros to be put into another of the user's programs.
    untouched: InTurn<u32, Untouched>,
    moves: Moves,
    scans: Scans,
    pool: Fullness,
    /// The kernel's swap, where the scheme uses it.
    kernel: KernelTier,
    mounts: Mounts,
    last_liveness: Instant,
    last_kcmp: Instant,
    looks: Looks,
    last_busy: Instant,
    /// Logs that are being cleaned.
    cleaning: BTreeSet<LogId>,
    /// It was said that flash takes nothing more.
    flash_latched: bool,
    last_tick: Instant,
    own_statm: Option<File>,
    used: UsedBytes,
    used_bytes: u64,
    /// Part of it that programs have resident.
    resident_bytes: u64,
    started: Instant,
    stopping: Option<Vec<Sender<String>>>,
    had_apps: bool,
    /// Pages of all apps that were brought back early and then used.
    prefetch_used: u64,
    /// When the machine last stalled for want of memory.
    last_stall: Option<Instant>,
    /// Apps that were ended because memory was short.
    ended: Vec<(u32, String)>,
    /// A service manager wants to hear so often that all is well.
    watchdog: Option<Duration>,
    last_fed: Instant,
    thrashing: Thrashing,
    /// When the last second ended in which pages were watched.
    last_second: Instant,
    outside: Outside,
    touches: Touches,
    cpu_load: CpuLoad,
    flash_device: FlashDevice,
    donors: Donors,
}

impl Governor {
    /// A governor for `shared`; `work` leads to the `crew`, which is hired by [`Governor::hire`].
    pub fn new(
        shared: Arc<Shared>,
        driver: Driver,
        config: Config,
        environment: Environment,
        keeper_pid: u32,
        work: Desk,
        crew: Crew,
    ) -> Governor {
        let now = Instant::now();
        Governor {
            programs: Programs::new(shared.clone()),
            now: Ns(0),
            over_budget: HashMap::new(),
            users: UserBudgets::default(),
            shared,
            driver,
            windows: Windows::new(&config),
            config,
            profiles: Profiles::default(),
            environment,
            keeper_pid,
            beside: None,
            work,
            crew,
            held_up: HashMap::new(),
            apps: BTreeMap::new(),
            waiting: Vec::new(),
            looked_at: 0,
            waiting_looked_at: 0,
            promises: HashMap::new(),
            tickets: HashMap::new(),
            pleas: HashMap::new(),
            commands: HashMap::new(),
            last_activity: now,
            next_number: 1,
            last_app: AppId(0),
            swap_outs: InTurn::default(),
            passed_over: HashSet::new(),
            untouched: InTurn::default(),
            moves: Moves::default(),
            scans: Scans::default(),
            pool: Fullness::default(),
            kernel: KernelTier::default(),
            mounts: Mounts::default(),
            last_liveness: now,
            last_kcmp: now,
            looks: Looks::default(),
            last_busy: now,
            cleaning: BTreeSet::new(),
            flash_latched: false,
            last_tick: now,
            own_statm: File::open("/proc/self/statm").ok(),
            used: UsedBytes::default(),
            used_bytes: 0,
            resident_bytes: 0,
            started: now,
            stopping: None,
            had_apps: false,
            prefetch_used: 0,
            last_stall: None,
            ended: Vec::new(),
            watchdog: sd_notify::watchdog_enabled(),
            last_fed: now,
            thrashing: Thrashing::default(),
            last_second: now,
            outside: Outside::new(now),
            touches: Touches::default(),
            cpu_load: CpuLoad::default(),
            flash_device: FlashDevice::default(),
            donors: Donors::default(),
        }
    }

    /// Goes by what is known of apps from earlier, and keeps it. Before the first app.
    pub fn go_by(&mut self, profiles: Profiles) {
        self.profiles = profiles;
    }

    /// Looks after what is written down beside the socket from now on.
    pub fn look_beside(&mut self, beside: Beside) {
        self.beside = Some(beside);
    }

    /// Makes it again where it is gone, and says once that the keeper is.
    fn look_after_what_is_beside(&mut self) {
        let Some(beside) = &mut self.beside else { return };
        match beside.look_after() {
            Ok(true) => {}
            Ok(false) => {
                self.beside = None;
                tracing::error!(
                    "the keeper (process {}) has died: if this daemon dies now, all that is stored is lost; 'clew stop' \
                     brings it back",
                    self.keeper_pid
                );
            }
            Err(error) => {
                tracing::warn!(%error, "the place where this daemon is served cannot be kept")
            }
        }
    }

    /// Governs until it is told to stop and every page is back.
    pub fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let busy = self.last_busy.elapsed() < BUSY_FOR || !self.tickets.is_empty();
            let wait = match busy {
                true if self.listens_to_faults() => TICK_RELAUNCH,
                true => TICK_BUSY,
                false => TICK_IDLE,
            };
            match inbox.recv_timeout(wait) {
                Ok(message) => {
                    self.handle(message);
                    while let Ok(message) = inbox.try_recv() {
                        self.handle(message);
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.last_tick.elapsed() < TICK_BUSY => {
                    self.look_up();
                    self.drain_ring();
                    self.carry_out(None);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tick();
            self.carry_out(None);
            self.driver.rest();
            self.wait_for_no_agent();
            if self.stopping.is_some() && self.tickets.is_empty() && self.finish_stop() {
                self.end_recording();
                return;
            }
        }
    }

    /// Whether the scheme wants to hear of each fault soon: an app is being relaunched, and what comes
    /// with its faults is not decided where they are answered.
    fn listens_to_faults(&self) -> bool {
        !self.config.scheme.prefetch.about().idle
            && self.driver.run_ahead().is_none()
            && self.driver.is_relaunching()
    }

    /// Before each message and tick: what time it is, and that things may have changed.
    fn look_up(&mut self) {
        self.now = Ns(self.started.elapsed().as_nanos() as u64);
        self.programs.look_again();
    }

    fn tell(&mut self, event: &Event) {
        if let Event::PrefetchUsed { page } = event {
            self.prefetch_used += 1;
            let app = self.driver.facts().app_of(page.space());
            if let Some(app) = app.and_then(|app| self.apps.get_mut(&app)) {
                app.prefetch_used += 1;
            }
        }
        self.note_put(event);
        match *event {
            Event::Access { page, .. } | Event::PageIn { page, .. } => self.meet(page.space()),
            Event::Resident { run } => self.meet(run.first.space()),
            _ => {}
        }
        match *event {
            Event::Moved { from, to } => self.moves.push(from, to),
            Event::PageIn { page, demand: true, .. } => {
                self.mounts.fault();
                if let Some(app) = self.driver.facts().app_of(page.space()) {
                    self.thrashing.back(page, app);
                }
            }
            Event::SpaceEnd { space } => self.thrashing.end(space),
            _ => {}
        }
        self.driver.tell(self.now, event, &self.programs);
    }

    /// Offers the resident pages of a protected process after all: its user asked.
    fn offer(&mut self, process: &Process) {
        let mut runs: Vec<PageRun> = Vec::new();
        process.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            if entry.state() != State::Resident {
                return;
            }
            match runs.last_mut() {
                Some(last) if last.first.vpn().0 + u64::from(last.count) == vpn.0 => {
                    last.count += 1;
                }
                _ => runs.push(process.run(vpn, 1)),
            }
        });
        for run in runs {
            self.driver.offer(self.now, run, &self.programs);
        }
    }

    // ---- messages ----------------------------------------------------------------------------

    fn handle(&mut self, message: Message) {
        self.look_up();
        match message {
            Message::Hello(candidate) => self.hello(candidate),
            Message::LetGo(plea) if plea.range.is_some() => self.leave_out(plea),
            Message::LetGo(plea) => {
                self.let_go(&plea.process.clone(), Alone::Userfaultfd, Some(plea));
            }
            Message::Forked(process) => self.meet(process.id),
            Message::Adopted(process) => self.introduce(&process),
            Message::Done(done) => self.done(*done),
            Message::Control(request, asker, answer) => self.control(request, asker, answer),
            Message::Look(answer) => {
                let status = self.metrics_status();
                let _ = answer.send(Box::new(status));
            }
            Message::Outside(found) => self.outside.found = found,
            Message::Ended => self.bury_the_dead(),
            Message::Left(who) => self.is_left(who),
            Message::Stalled => self.last_stall = Some(Instant::now()),
            Message::Stop => self.stop(None),
        }
    }

    /// A number that no app has. A user who begins apps without end would come to those of others' after 2^32.
    fn unused_app(&mut self) -> AppId {
        loop {
            self.last_app = AppId(self.last_app.0.wrapping_add(1).max(1));
            if !self.apps.contains_key(&self.last_app) {
                return self.last_app;
            }
        }
    }

    /// The app of this name of user `uid`, which is new if there is none. Of a longer name it is the first
    /// [`MAX_NAME`] bytes.
    pub fn app_named(&mut self, uid: u32, name: &str) -> AppId {
        let name = &name[..name.floor_char_boundary(MAX_NAME)];
        if let Some((id, _)) = self.apps.iter().find(|(_, a)| a.uid == uid && a.name == name) {
            return *id;
        }
        let id = self.unused_app();
        self.apps.insert(
            id,
            App {
                name: name.to_string(),
                uid,
                state: AppState::Background,
                launched: None,
                activity: Activity::default(),
                past_faults: 0,
                past_demand: 0,
                past_lent_back: 0,
                past_fault_ns: 0,
                past_fault_codec_ns: 0,
                past_fault_along_ns: 0,
                past_restored: 0,
                past_swapped_out: 0,
                root: None,
                awaited: None,
                prefetch_used: 0,
            },
        );
        self.had_apps = true;
        self.driver.name(id, name);
        self.driver.is_of(id, uid);
        if let Some(profile) = self.profiles.of(name).filter(|_| uid == own_uid()) {
            self.driver.know(id, profile.clone());
        }
        self.tell(&Event::Background { app: id });
        id
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    // ---- ticks -------------------------------------------------------------------------------

    fn drain_ring(&mut self) {
        let shared = self.shared.clone();
        // Else the fault path has done it.
        let asks = self.driver.run_ahead().is_none();
        while let Ok(event) = shared.ring.1.try_recv() {
            self.last_busy = Instant::now();
            // Asked first: what comes next may depend on where the page was.
            match event {
                Event::PageIn { page, demand, .. } => {
                    self.driver.keep_copy(page);
                    if demand && asks {
                        self.driver.want_early(Trigger::Fault(page), &self.programs);
                    }
                }
                Event::PrefetchUsed { page } => {
                    self.driver.keep_copy(page);
                    self.driver.want_early(Trigger::Hit(page), &self.programs);
                }
                _ => {}
            }
            self.tell(&event);
        }
        self.bring_wanted();
    }

    fn tick(&mut self) {
        self.look_up();
        self.last_tick = Instant::now();
        if self.watchdog.is_some_and(|interval| self.last_fed.elapsed() > interval / 3) {
            self.last_fed = Instant::now();
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        }
        self.drain_ring();
        self.follow_touches();
        if self.last_liveness.elapsed() >= LIVENESS {
            self.last_liveness = Instant::now();
            self.look_for_the_dead();
            self.look_after_what_is_beside();
            self.mounts.forget_the_dead();
            self.bury_the_dead();
            self.empty_idle_buffers();
            self.look_for_kernel_swap();
            self.look_after_the_silent();
            self.end_the_starved();
            self.end_pleas_that_cannot_begin();
            self.admit_candidates();
            self.end_quiet_relaunches();
            self.end_launches();
            if self.stopping.is_none() {
                self.driver.take_samples(self.now, &self.programs);
                self.carry_out(None);
            }
            self.look_outside();
            self.look_for_thrashing();
            self.look_at_cpus();
            self.look_at_flash_device();
        }
        if self.stopping.is_none() {
            self.watch_activity();
        }
        if self.stopping.is_none() {
            self.driver.tick(self.now, &self.programs);
            self.keep_budget();
            self.keep_windows();
        }
    }
}

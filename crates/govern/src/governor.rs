//! The governor: one thread, which is told what the kernel says, asks the driver, and does what that wants.
//!
//! Nobody waits for it. What it knows of pages it has from looks and from the stream of major faults, and it may be
//! late: a page that came back meanwhile is found by the next look.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clew_core::shown::shown;
use clew_core::{AppId, AppState, ByteSize, Event, Job, Ns, PageId, SpaceId, Trigger, Vpn};
use clew_engine::budget::{Budget, Use, WATERMARKS};
use clew_engine::decide::Engine;
use clew_engine::driver::Driver;
use clew_live::config::total_memory;
use clew_live::governor::activity::Activity;
use clew_live::kernel_swap::{free_swap_bytes, may_advise_others};
use clew_live::message::Message;
use clew_live::programs::kcmp::share_memory;
use clew_live::programs::proc_stat::Stat;
use clew_live::programs::proc_stat::resident_anonymous_bytes;
use clew_live::survival::predecessor::ProcessName;
use clew_live::survival::pressure::limit_descriptors;
use clew_policy::schemes::Scheme;
use crossbeam_channel::{Receiver, Select, Sender, never, unbounded};

use crate::beside::Beside;
use crate::error::GovernError;
use crate::major_faults::MajorFaults;
use crate::orders::Order;
use crate::pages::{Pages, Where};
use crate::program::{Program, REMEASURED, SELDOM_MEASURED, anonymous_bytes, command};
use crate::swap::Swap;
use crate::targets::Targets;

mod adapter;
mod bring_back;
mod control;
mod forks;
mod front;
mod in_vain;
mod looks;
mod pageout;
mod status;
mod young;

pub use control::finish;
pub use status::{AppStatus, ProgramStatus, Status, UsedBytes};

use bring_back::Brought;
use control::Control;
use in_vain::InVain;
use status::Counts;
use young::Young;

/// While something happens, while a relaunch asks for pages, and while nothing does.
const TICK_BUSY: Duration = Duration::from_millis(10);
const TICK_RELAUNCH: Duration = Duration::from_millis(1);
const TICK_IDLE: Duration = Duration::from_millis(100);
/// How long after the last event the governor counts as busy.
const BUSY_FOR: Duration = Duration::from_millis(500);
/// How often processes are looked for.
const MEMBERS: Duration = Duration::from_secs(1);
/// How often it is looked whether programs have other memory, where nobody came or went.
const ENDS: Duration = Duration::from_secs(2);
/// Processes with less anonymous memory, resident or swapped, are left alone.
const LEAST_BYTES: u64 = 1 << 20;
/// Rounds of reclaim between two looks at faults.
const ROUNDS: u32 = 8;
/// The least budget that makes sense.
const LEAST_BUDGET: u64 = 16 << 20;

/// What is governed, how.
pub struct Settings {
    /// Process ids, and directories of control groups.
    pub targets: Vec<String>,
    /// A child of this process's, which is governed as well, and with it whatever else comes to be a child of this
    /// process's; when nothing of it is left the governing is over.
    pub command: Option<u32>,
    /// The user whose session is governed as well.
    pub session: Option<u32>,
    /// What programs, their swapped pages and the governor may use together; half of the machine's memory if
    /// nobody says it.
    pub budget: Option<ByteSize>,
    /// A preset's name or a file; the usual scheme, if there is none.
    pub scheme: Option<String>,
    /// Of the usual scheme: so much of what is resident, per cent, may stay with programs behind for their
    /// return, whatever the one in front wants.
    pub kept_pct: u8,
    /// The socket of a daemon whose use of memory counts towards the budget.
    pub beside: Option<PathBuf>,
}

/// An app.
pub(crate) struct App {
    pub root: ProcessName,
    pub name: String,
    pub state: AppState,
    pub activity: Activity,
    /// Major faults, of programs that ended too.
    pub faults: u64,
    /// Processor time of its processes, as last read.
    pub cpu: Duration,
    /// All of its processes, governed or not.
    pub members: HashSet<ProcessName>,
}

/// The governor's state.
pub struct Governor {
    pub(crate) driver: Driver,
    pub(crate) pages: Pages,
    pub(crate) programs: BTreeMap<SpaceId, Program>,
    pub(crate) apps: BTreeMap<AppId, App>,
    pub(crate) brought: VecDeque<Brought>,
    pub(crate) counts: Counts,
    pub(crate) swap: Swap,
    pub(crate) used: UsedBytes,
    pub(crate) young: Young,
    pub(crate) kept_pct: u8,
    pub(crate) page_bytes: u64,
    pub(crate) now: Ns,
    pub(crate) last_activity: Instant,
    scheme: Scheme,
    faults: MajorFaults,
    /// The space of each governed process.
    by_pid: HashMap<u32, SpaceId>,
    targets: Targets,
    looked_for: Option<Instant>,
    looked_for_ends: Option<Instant>,
    /// Processes that cannot be opened: it was said.
    refused: HashSet<ProcessName>,
    /// Processes that have an agent: it was said.
    pub(crate) of_daemons: HashSet<ProcessName>,
    own_statm: Option<File>,
    jobs: (Sender<u64>, Receiver<u64>),
    last_busy: Instant,
    last_tick: Option<Instant>,
    pub(crate) started: Instant,
    pub(crate) control: Control,
    beside: Option<Beside>,
    next_number: u32,
    in_vain: InVain,
    /// When it was last looked at what forked processes share.
    looked_at_forks: Option<Instant>,
    /// It was said that there is no swap.
    said_no_swap: bool,
    /// It was said that there are no descriptors.
    said_full: bool,
}

fn is_for_want_of_descriptors(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

/// What came first; `None` where nothing more will come that way.
enum Said {
    Order(Option<Order>),
    Asked(Option<Box<Message>>),
    Nothing,
}

fn first_of(orders: &Receiver<Order>, asked: &Receiver<Message>, wait: Duration) -> Said {
    let mut first = Select::new();
    let order = first.recv(orders);
    first.recv(asked);
    match first.select_timeout(wait) {
        Ok(it) if it.index() == order => Said::Order(it.recv(orders).ok()),
        Ok(it) => Said::Asked(it.recv(asked).ok().map(Box::new)),
        Err(_) => Said::Nothing,
    }
}

impl Governor {
    /// Gets ready: reads the scheme, finds the targets, tries what it needs.
    ///
    /// # Errors
    /// What was said makes no sense, or what is needed is not there or not permitted.
    pub fn new(settings: &Settings) -> Result<Governor, GovernError> {
        let scheme = crate::scheme::read(settings.scheme.as_deref(), settings.kept_pct)?;
        let budget = settings.budget.unwrap_or(ByteSize(total_memory().0 / 2));
        if budget.0 < LEAST_BUDGET {
            return Err(GovernError::Budget(budget));
        }
        // Five for each program.
        limit_descriptors(u64::MAX);
        let mut targets = Targets::named(&settings.targets)?;
        if let Some(pid) = settings.command {
            targets = targets.and_command(pid)?;
        }
        if let Some(uid) = settings.session {
            targets = targets.and_session(uid)?;
        }
        if free_swap_bytes().is_none() {
            return Err(GovernError::NoSwap);
        }
        if !may_advise_others() {
            return Err(GovernError::Forbidden {
                what: "advice about the memory of others",
                advice: "run as root, or with CAP_SYS_NICE, CAP_SYS_PTRACE and CAP_PERFMON",
                source: std::io::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error()),
            });
        }
        let faults = MajorFaults::listen().map_err(|source| GovernError::Forbidden {
            what: "hearing of the major faults of others",
            advice: "run as root, or with CAP_PERFMON (kernel.perf_event_paranoid)",
            source,
        })?;
        let beside = settings.beside.clone().map(Beside::of).transpose();
        let beside = beside.map_err(|source| GovernError::Forbidden {
            what: "a thread that asks the daemon",
            advice: "let this user have more of them",
            source,
        })?;
        let page_bytes = rustix::param::page_size() as u64;
        let (low, high) = WATERMARKS;
        let budget = Budget::new(budget.0, low, high, page_bytes);
        let mut engine = Engine::new(&scheme);
        engine.set_page_bytes(page_bytes as u32);
        let now = Instant::now();
        Ok(Governor {
            driver: Driver::new(engine, budget, scheme.on_full),
            pages: Pages::default(),
            programs: BTreeMap::new(),
            apps: BTreeMap::new(),
            brought: VecDeque::new(),
            counts: Counts::default(),
            swap: Swap::default(),
            used: UsedBytes::default(),
            young: Young::default(),
            kept_pct: settings.kept_pct,
            page_bytes,
            now: Ns(0),
            last_activity: now,
            scheme,
            faults,
            by_pid: HashMap::new(),
            targets,
            looked_for: None,
            looked_for_ends: None,
            refused: HashSet::new(),
            of_daemons: HashSet::new(),
            own_statm: File::open("/proc/self/statm").ok(),
            jobs: unbounded(),
            last_busy: now,
            last_tick: None,
            started: now,
            control: Control::none(),
            beside,
            next_number: 0,
            in_vain: InVain::default(),
            looked_at_forks: None,
            said_no_swap: false,
            said_full: false,
        })
    }

    /// Governs until `over` is set or nothing is left to govern. `show` is given the state when an order asks for it.
    pub fn run(
        &mut self,
        orders: &Receiver<Order>,
        over: &Arc<AtomicBool>,
        mut show: impl FnMut(&Status),
    ) {
        let (mut orders, mut asked) = (orders.clone(), self.control.inbox.clone());
        while !over.load(Ordering::Relaxed) {
            self.tick();
            if self.targets.are_over() {
                return;
            }
            match first_of(&orders, &asked, self.wait()) {
                Said::Order(Some(Order::Front(pid))) => self.told(pid, true),
                Said::Order(Some(Order::Back(pid))) => self.told(pid, false),
                Said::Order(Some(Order::Status)) => show(&self.status()),
                Said::Order(None) => orders = never(),
                Said::Asked(Some(message)) => {
                    if self.asked(*message) {
                        return;
                    }
                }
                Said::Asked(None) => asked = never(),
                Said::Nothing => {}
            }
        }
    }

    fn wait(&self) -> Duration {
        if self.last_busy.elapsed() > BUSY_FOR {
            return TICK_IDLE;
        }
        match self.driver.is_relaunching() && self.asks_at_faults() {
            true => TICK_RELAUNCH,
            false => TICK_BUSY,
        }
    }

    /// Whether the scheme may want something because of a fault.
    fn asks_at_faults(&self) -> bool {
        let about = self.scheme.prefetch.about();
        !about.idle && (about.at_fault || !about.at_relaunch)
    }

    fn tick(&mut self) {
        self.look_up();
        self.hear();
        if self.last_tick.is_some_and(|when| when.elapsed() < TICK_BUSY) {
            // A relaunch goes on: what comes with its faults comes soon, all else has time.
            return self.bring_wanted();
        }
        self.last_tick = Some(Instant::now());
        if self.looked_for.is_none_or(|when| when.elapsed() >= MEMBERS) {
            self.looked_for = Some(Instant::now());
            self.look_for_programs();
        }
        self.watch_activity();
        self.look_at_forks();
        self.look_at_changed();
        self.settle_brought();
        self.end_quiet_relaunches();
        while let Ok(job) = self.jobs.1.try_recv() {
            self.driver.tell(self.now, &Event::JobDone { job }, &self.pages);
        }
        self.driver.tick(self.now, &self.pages);
        self.carry_out();
        self.keep_budget();
        self.keep_young();
        self.driver.rest();
    }

    pub(crate) fn look_up(&mut self) {
        self.now = Ns(self.started.elapsed().as_nanos() as u64);
    }

    /// What a page takes in swap, bytes.
    pub(crate) fn stored_page_bytes(&self) -> u32 {
        self.swap.page_bytes(self.page_bytes)
    }

    /// Long work of a policy, on a thread of its own.
    pub(crate) fn run_beside(&self, job: Job) {
        let done = self.jobs.0.clone();
        std::thread::spawn(move || {
            (job.run)();
            let _ = done.send(job.id);
        });
    }

    // ---- faults ----------------------------------------------------------------------------------

    /// Tells of the major faults since the last time, and asks what should come with them.
    pub(crate) fn hear(&mut self) {
        let faults = self.faults.take();
        if faults.is_empty() {
            return;
        }
        let asks = self.asks_at_faults();
        for fault in faults {
            let Some(space) = self.by_pid.get(&fault.pid).copied() else { continue };
            let Some(program) = self.programs.get_mut(&space) else { continue };
            program.faults += 1;
            program.stir();
            if let Some(app) = self.apps.get_mut(&program.app) {
                app.faults += 1;
            }
            self.last_busy = Instant::now();
            let page = PageId::new(space, Vpn::of_addr(fault.address, self.page_bytes));
            self.faulted(page, asks);
        }
    }

    fn faulted(&mut self, page: PageId, asks: bool) {
        use clew_core::{AccessKind, Tier};
        match self.pages.get(page) {
            // Of a file, or new: a look finds it.
            Where::Nowhere | Where::Leaving => return,
            // It was on its way, or the kernel had dropped it again.
            Where::Brought => return self.brought_was_used(page),
            // The kernel took it by itself since the last look.
            Where::Resident => {
                self.counts.kernel_out += 1;
                self.pages.set(page, Where::Out);
                let bytes = self.stored_page_bytes();
                let stored = Event::Stored { page, tier: Tier::Pool, bytes };
                self.driver.tell(self.now, &stored, &self.pages);
            }
            Where::Out => {}
        }
        self.pages.set(page, Where::Resident);
        let access = Event::Access { page, kind: AccessKind::Fault, write: false };
        self.driver.tell(self.now, &access, &self.pages);
        if asks {
            self.driver.want_early(Trigger::Fault(page), &self.pages);
        }
        let back = Event::PageIn { page, tier: Tier::Pool, demand: true };
        self.driver.tell(self.now, &back, &self.pages);
    }

    /// What is wanted comes back as far as there is room.
    pub(crate) fn bring_wanted(&mut self) {
        let now = self.in_use();
        self.driver.bring_wanted(now, &self.pages);
        self.carry_out();
    }

    // ---- programs --------------------------------------------------------------------------------

    /// Finds programs that are new, and those that have ended.
    fn look_for_programs(&mut self) {
        let has_changed = self.targets.look();
        self.end_those_without_memory(has_changed);
        if !has_changed {
            // Those that were too small may have grown.
            let members = |(id, app): (&AppId, &App)| -> Vec<(ProcessName, AppId)> {
                let is_new = |member: &&ProcessName| !self.by_pid.contains_key(&member.pid);
                app.members.iter().filter(is_new).map(|member| (*member, *id)).collect()
            };
            let new: Vec<(ProcessName, AppId)> = self.apps.iter().flat_map(members).collect();
            return new.into_iter().for_each(|(process, app)| self.govern(process, app));
        }
        let mut members: HashMap<ProcessName, HashSet<ProcessName>> = HashMap::new();
        for (process, root) in self.targets.found() {
            members.entry(root).or_default().insert(process);
        }
        let gone: Vec<AppId> = self
            .apps
            .iter()
            .filter(|(_, app)| !members.contains_key(&app.root))
            .map(|(id, _)| *id)
            .collect();
        gone.into_iter().for_each(|app| self.end_app(app));
        self.refused.retain(|process| members.values().any(|of| of.contains(process)));
        self.leave_to_daemons(&members);
        let known: HashMap<ProcessName, AppId> =
            self.apps.iter().map(|(id, app)| (app.root, *id)).collect();
        for (root, processes) in members {
            let app = known.get(&root).copied().unwrap_or_else(|| self.new_app(root));
            // Parents first: what a child may have of one is counted there.
            let mut in_order: Vec<ProcessName> = processes.iter().copied().collect();
            in_order.sort_unstable_by_key(|process| (process.started, process.pid));
            for process in in_order {
                self.govern(process, app);
            }
            if let Some(app) = self.apps.get_mut(&app) {
                app.members = processes;
            }
        }
    }

    /// What has an agent is a daemon's: both would take out the same pages.
    fn leave_to_daemons(&mut self, members: &HashMap<ProcessName, HashSet<ProcessName>>) {
        let with_agent: HashSet<ProcessName> = members
            .values()
            .flatten()
            .copied()
            .filter(|process| self.targets.has_agent(process.pid))
            .collect();
        let before = std::mem::replace(&mut self.of_daemons, with_agent.clone());
        for process in with_agent.difference(&before) {
            let name = command(process.pid);
            tracing::warn!(
                pid = process.pid,
                "{} has an agent of a daemon's, and is left to that daemon",
                shown(&name)
            );
            if let Some(space) = self.by_pid.get(&process.pid).copied() {
                self.end_space(space);
            }
        }
    }

    /// Looks, at once or now and then, whether the memory of programs is still theirs (execve).
    fn end_those_without_memory(&mut self, at_once: bool) {
        if !at_once && self.looked_for_ends.is_some_and(|when| when.elapsed() < ENDS) {
            return;
        }
        self.looked_for_ends = Some(Instant::now());
        let ended = self.programs.values().filter(|program| !program.is_there());
        let ended: Vec<SpaceId> = ended.map(|program| program.space).collect();
        ended.into_iter().for_each(|space| self.end_space(space));
    }

    fn new_app(&mut self, root: ProcessName) -> AppId {
        self.next_number += 1;
        let id = AppId(self.next_number);
        let app = App {
            root,
            name: self.free_name(root.pid),
            state: AppState::Background,
            activity: Activity::default(),
            faults: 0,
            cpu: Duration::ZERO,
            members: HashSet::new(),
        };
        self.driver.name(id, &app.name);
        self.apps.insert(id, app);
        self.driver.tell(self.now, &Event::Launch { app: id }, &self.pages);
        self.driver.tell(self.now, &Event::Background { app: id }, &self.pages);
        id
    }

    /// From now on, this process is governed, if it is worth it.
    fn govern(&mut self, process: ProcessName, app: AppId) {
        let is_not_ours = self.refused.contains(&process) || self.of_daemons.contains(&process);
        if self.by_pid.contains_key(&process.pid) || is_not_ours {
            return;
        }
        let parent = Stat::of(process.pid).map_or(0, |stat| stat.parent);
        // A child before its execve has its parent's memory, which is governed already.
        if anonymous_bytes(process.pid) < LEAST_BYTES
            || share_memory(process.pid, parent) == Some(true)
        {
            return;
        }
        let space = self.free_space();
        let mut program = match Program::open(process, space, app) {
            Ok(program) => program,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                tracing::warn!(pid = process.pid, "not governed: {error} (CAP_SYS_PTRACE)");
                self.refused.insert(process);
                return;
            }
            // It has ended, mostly.
            Err(error) if !is_for_want_of_descriptors(&error) => return,
            Err(error) => {
                if !std::mem::replace(&mut self.said_full, true) {
                    let all = self.programs.len();
                    tracing::warn!(
                        pid = process.pid,
                        "not governed, and perhaps others beyond {all}: {error} (a program takes five descriptors: \
                         LimitNOFILE, ulimit -Hn)"
                    );
                }
                return;
            }
        };
        let parent = self.by_pid.get(&parent).and_then(|space| self.programs.get(space));
        program.may_share_bytes = parent.map_or(0, |parent| parent.resident_now(self.page_bytes));
        self.pages.begin(space);
        self.by_pid.insert(process.pid, space);
        self.programs.insert(space, program);
        let start = Event::SpaceStart { space, app, file: false };
        self.driver.tell(self.now, &start, &self.pages);
        self.look(space);
    }

    /// What a process calls itself, with its id where another app is called so.
    fn free_name(&self, pid: u32) -> String {
        let name = command(pid);
        match self.apps.values().any(|app| app.name == name) {
            true => format!("{name}-{pid}"),
            false => name,
        }
    }

    fn free_space(&self) -> SpaceId {
        let is_free = |number: &u32| !self.programs.contains_key(&SpaceId(*number));
        SpaceId((1..clew_core::SPACES).find(is_free).unwrap_or(0))
    }

    /// Its memory is gone. What it becomes, if its process lives, is found by the next look for programs.
    fn end_space(&mut self, space: SpaceId) {
        let Some(program) = self.programs.remove(&space) else { return };
        self.by_pid.remove(&program.name.pid);
        self.brought.retain(|batch| batch.is_not_of(space));
        self.pages.end(space);
        self.driver.tell(self.now, &Event::SpaceEnd { space }, &self.pages);
    }

    fn end_app(&mut self, app: AppId) {
        let of_app = |program: &&Program| program.app == app;
        let spaces: Vec<SpaceId> =
            self.programs.values().filter(of_app).map(|program| program.space).collect();
        spaces.into_iter().for_each(|space| self.end_space(space));
        self.apps.remove(&app);
        self.driver.tell(self.now, &Event::Exit { app }, &self.pages);
    }

    // ---- the budget ------------------------------------------------------------------------------

    pub(crate) fn in_use(&self) -> Use {
        Use {
            used_bytes: self.used.total(),
            resident_bytes: self.used.programs_bytes + self.used.brought_bytes,
            relaunching: self.driver.is_relaunching(),
            ..Use::default()
        }
    }

    /// How long ago a quiet program may have been measured: seldom where a quarter of the budget was free.
    pub(crate) fn measured_ago(&self) -> Duration {
        let budget = self.driver.budget();
        match budget.free_bytes(self.used.total()) >= budget.total_bytes / 4 {
            true => SELDOM_MEASURED,
            false => REMEASURED,
        }
    }

    /// Measures what is used.
    fn measure(&mut self) {
        let page_bytes = self.page_bytes;
        self.swap.look(self.pages.out_pages(), page_bytes);
        let (ago, now) = (self.measured_ago(), Instant::now());
        let programs = self.programs.values_mut();
        self.used = UsedBytes {
            programs_bytes: programs
                .map(|program| program.counted_bytes(page_bytes, now, ago))
                .sum(),
            brought_bytes: self.brought_bytes(),
            swap_bytes: self.swap.memory_bytes(self.pages.out_pages(), page_bytes),
            governor_bytes: self
                .own_statm
                .as_mut()
                .map_or(0, |statm| resident_anonymous_bytes(statm, page_bytes)),
            daemon_bytes: self.beside.as_ref().map_or(0, Beside::used_bytes),
        };
    }

    /// Says once that nothing more can leave, and that it can again.
    fn look_at_swap(&mut self, is_short: bool) {
        let facts = &self.swap.facts;
        let is_full = facts.limit_bytes - facts.used_bytes < self.page_bytes * 256;
        match (is_full && is_short, self.said_no_swap) {
            (true, false) => tracing::warn!(
                "swap is full or turned off: nothing more leaves the programs (swapon, or a larger budget)"
            ),
            (false, true) if !is_full => tracing::warn!("there is free swap again"),
            (false, true) => return,
            _ => {}
        }
        self.said_no_swap = is_full && is_short;
    }

    /// What is short leaves, a few rounds at a time.
    fn keep_budget(&mut self) {
        for _ in 0..ROUNDS {
            self.measure();
            self.driver.set_tier(clew_core::Tier::Pool, self.swap.facts);
            let now = self.in_use();
            let is_short = self.driver.shortage(now).is_some();
            self.look_at_swap(is_short);
            if is_short && self.in_vain.rests(now.used_bytes, Instant::now()) {
                break;
            }
            let before = self.counts.paged_out;
            self.driver.keep_budget(self.now, now, &self.pages);
            let progress = self.carry_out();
            if !is_short {
                break;
            }
            self.last_busy = Instant::now();
            self.measure();
            let left_bytes = (self.counts.paged_out - before) * self.page_bytes;
            self.in_vain.round(left_bytes, (now.used_bytes, self.used.total()), Instant::now());
            if !progress {
                break;
            }
        }
        self.bring_wanted();
    }

    // ---- the state -------------------------------------------------------------------------------

    /// The state of everything.
    pub fn status(&mut self) -> Status {
        use clew_core::PageFacts;
        self.hear();
        self.measure();
        let program = |program: &Program| {
            let counts = self.pages.counts(program.space);
            ProgramStatus {
                pid: program.name.pid,
                command: program.command.clone(),
                resident_pages: counts.resident,
                swapped_pages: counts.stored_total(),
                faults: program.faults,
            }
        };
        let app = |(id, app): (&AppId, &App)| {
            let of_app = self.programs.values().filter(|program| program.app == *id);
            let programs: Vec<ProgramStatus> = of_app.map(program).collect();
            AppStatus {
                root: app.root.pid,
                name: app.name.clone(),
                state: app.state,
                told: app.activity.told,
                faults: app.faults,
                others: app.members.len().saturating_sub(programs.len()),
                programs,
            }
        };
        Status {
            scheme: self.scheme.name.clone(),
            budget_bytes: self.driver.budget().total_bytes,
            used_bytes: self.used.total(),
            used: self.used,
            swap_free_bytes: self.swap.facts.limit_bytes - self.swap.facts.used_bytes,
            paged_out_pages: self.counts.paged_out,
            kernel_out_pages: self.counts.kernel_out,
            brought_pages: self.counts.brought,
            brought_used_pages: self.counts.used,
            brought_unused_pages: self.counts.expired,
            kept_young_pages: self.young.touched,
            kept_young_ns: self.young.spent.as_nanos() as u64,
            lost_faults: self.faults.lost(),
            unheard_pages: self.counts.unheard,
            apps: self.apps.iter().map(app).collect(),
        }
    }
}

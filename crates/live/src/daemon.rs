//! Puts the daemon together, serves its sockets, takes it apart again: `places` is where it is served,
//! `belongings` what it has, made or inherited.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_agent::protocol::VERSION;
use clew_core::Arrival;
use clew_engine::decide::Engine;
use clew_engine::driver::Driver;
use clew_engine::{Mover, Parking};
use clew_store::flash::LogId;
use clew_store::{StoreConfig, points};
use crossbeam_channel::{Sender, unbounded};
use sd_notify::NotifyState;

use crate::accessed::AccessedBits;
use crate::agents::accept::accept_agents;
use crate::agents::closer;
use crate::config::Config;
use crate::control::protocol::Environment;
use crate::control::trusted_path::{self, own_uid};
use crate::faults::affinity;
use crate::governor::Governor;
use crate::limits::{MAX_PAGES, MAX_SPACES};
use crate::message::Message;
use crate::profiles::{self, Profiles};
use crate::programs::shared::{Handlers, Shared};
use crate::recording::decisions::Tap;
use crate::recording::file_reads::FileStreams;
use crate::recording::recorder::{self, Recorder};
use crate::survival::beside::Beside;
use crate::survival::keeper::Keeper;
use crate::survival::listener::{Listener, is_served};
use crate::survival::predecessor::{self, Predecessor};
use crate::survival::records::{DaemonDescriptors, column};
use crate::survival::rehearsal::{Prospect, rehearse};
use crate::survival::takeover::{self, Estate};
use crate::users::Users;
use crate::workers::crew::Crew;
use crate::workers::shares::MostOfUser;
use crate::{
    control::clients, control::exporter, doctor, donor_tier, faults::far, faults::serve,
    flash_tier, programs::outside, survival::pressure, workers::desk,
};

mod belongings;
mod error;
mod places;

pub use error::DaemonError;
pub use places::{Bound, agents_socket, check_names, listen_for_clients};

use belongings::Belongings;
use places::{AGENTS, is_socket, living_daemon, open_to, replace_living};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// Descriptors that must be left when a daemon begins to serve: for clients, agents, a program.
const SPARE_DESCRIPTORS: usize = 64;
/// A daemon that panicked may take so long to say why.
const REPORTING_SECONDS: u32 = 5;

/// Lets go of what a private daemon has from who started it: descriptors but the first three, and the
/// directory. Whoever waits for their end would wait for this daemon's. To be called first of all.
pub fn leave_starter() -> io::Result<()> {
    // SAFETY: nobody in this process has opened one yet.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    std::env::set_current_dir("/")
}

/// Says nothing more to who started a private daemon: the pipe to it ends when this process has ended
/// or serves.
pub fn hush() -> io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    // SAFETY: takes numbers only; that of standard error is nobody's own.
    match unsafe { libc::dup2(null.as_raw_fd(), libc::STDERR_FILENO) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What can be said before anything is touched: this machine is fit, and `socket` a name for one.
fn could_run(socket: &Path) -> Result<(), DaemonError> {
    match doctor::first_missing() {
        Some(missing) => Err(DaemonError::Unfit(missing)),
        None => check_names(socket),
    }
}

/// No file of another kind is where this daemon's sockets are.
fn only_sockets(socket: &Path) -> Result<(), DaemonError> {
    [socket, &socket.with_extension("agents")].into_iter().try_for_each(|p| is_socket(p).map(drop))
}

fn could_succeed(socket: &Path, config: &Config) -> Result<Prospect, DaemonError> {
    rehearse(socket, config, PAGE_BYTES as u64, SPARE_DESCRIPTORS as u64)
        .map_err(|why| DaemonError::Obstacle(socket.to_path_buf(), why))
}

/// Says what a daemon with this `config` would find that took over at `socket`, if it could. Ends nobody and
/// changes nothing.
///
/// # Errors
/// Why it could not: those of [`run`] that are known beforehand, and [`DaemonError::Obstacle`].
pub fn check_takeover(socket: &Path, config: &Config) -> Result<Prospect, DaemonError> {
    could_run(socket)?;
    match trusted_path::check(trusted_path::directory_of(socket)) {
        Err(error) if error.is_missing() => return Ok(Prospect { living: None, spaces: None }),
        checked => checked?,
    }
    only_sockets(socket)?;
    let prospect = could_succeed(socket, config)?;
    let looking = |source| DaemonError::File {
        what: "looking who serves",
        path: socket.to_path_buf(),
        source,
    };
    // A keeper holds the socket of a daemon that has died.
    let is_nobodys = prospect.living.is_none() && prospect.spaces.is_none();
    match is_nobodys && is_served(socket, libc::SOCK_STREAM).map_err(looking)? {
        true => Err(DaemonError::Served(socket.to_path_buf())),
        false => Ok(prospect),
    }
}

/// Runs a daemon at `socket` until it is told to stop. To be called before the process has
/// threads. `ready` is called once programs may come, with what is to be said and where metrics
/// are served.
///
/// If the daemon that served `socket` is dead, this one takes over its programs; with `takeover`,
/// also if it lives.
pub fn run(
    socket: &Path,
    config: Config,
    takeover: bool,
    ready: impl FnOnce(&str, Option<SocketAddr>),
) -> Result<(), DaemonError> {
    let file = |what, path: &Path| {
        let path = path.to_path_buf();
        move |source| DaemonError::File { what, path, source }
    };
    let system = |what| move |source| DaemonError::System { what, source };
    could_run(socket)?;
    let is_service = config.users.is_some();
    let mode = if is_service { 0o711 } else { 0o700 };
    trusted_path::make(trusted_path::directory_of(socket), mode)?;
    only_sockets(socket)?;
    if takeover {
        could_succeed(socket, &config)?;
        replace_living(socket)?;
    }
    // Before anything is written down: who lives is not seen from every namespace, and what is written may be gone.
    match living_daemon(socket).map_err(file("looking who serves", socket))? {
        Some(pid)
            if pid > 0
                && predecessor::is_told_of(socket, pid).map_err(file("claiming", socket))? =>
        {
            return Err(DaemonError::Running(socket.to_path_buf(), pid));
        }
        // One that is not seen from here, or a governor.
        Some(_) => return Err(DaemonError::Served(socket.to_path_buf())),
        None => {}
    }
    let claim = predecessor::claim(socket)
        .map_err(file("claiming", socket))?
        .map_err(|other| DaemonError::Running(socket.to_path_buf(), other.pid))?;
    points::start_claimed();
    // Before there is anything that must not live longer than this process.
    closer::start_processes().map_err(system("starting the processes that close"))?;
    let store_config = StoreConfig {
        page_bytes: PAGE_BYTES,
        mem_limit_bytes: config.pool_limit_bytes(),
        disksize_pages: config.scheme.disksize_pages.unwrap_or(MAX_PAGES),
    };
    let began = Instant::now();
    // Taking over takes some for each program.
    pressure::limit_descriptors(u64::from(MAX_SPACES));
    pressure::limit_files();
    let left = Predecessor::find(socket).map_err(file("looking for the keeper of", socket))?;
    if let Some((left, of)) = left.as_ref().and_then(|left| Some((left, left.unnamed_of?))) {
        // All that is beside its socket was removed, and it makes that again in a moment.
        if of.is_alive() {
            return Err(DaemonError::Running(socket.to_path_buf(), of.pid));
        }
        tracing::warn!(
            keeper = left.name.pid,
            "the file beside {} does not name the keeper of the last daemon: it was removed or changed",
            socket.display()
        );
    }
    let left = left
        .map(|from| Estate::open(from, store_config))
        .transpose()
        .map_err(DaemonError::Takeover)?;
    // A predecessor's may be there; where it had none, its programs must not wait for one.
    if left.is_none() && config.scheme.needs_flash() && config.flash.is_none() {
        return Err(DaemonError::NeedsFlash(config.scheme_name));
    }
    if left.is_none() && config.scheme.needs_donors() && config.donors.is_none() {
        return Err(DaemonError::NeedsDonors(config.scheme_name));
    }
    points::start_adopted();
    let signals = StopSignals::block();
    // A daemon without one of its threads is one whose programs wait for ever: the next one takes over.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if profiles::is_caught() {
            return;
        }
        // SAFETY: a call without pointers. Where nobody reads what is reported, that ends this process.
        unsafe { libc::alarm(REPORTING_SECONDS) };
        report(panic);
        std::process::abort();
    }));
    pressure::protect_daemon();
    pressure::reserve_memory();
    let mut keeper = Keeper::start(socket).map_err(system("starting the keeper"))?;
    points::start_keeper();
    // It has a thread: signals are blocked by now, and the keeper is forked. Programs that a predecessor left wait for no
    // file.
    let patience = if left.is_some() { Duration::ZERO } else { profiles::PATIENCE };
    let open = |path| Profiles::open(path, patience);
    let profiles = match config.profiles.as_deref().map(open).transpose() {
        Ok(profiles) => profiles.unwrap_or_default(),
        Err(error) if left.is_some() => {
            tracing::warn!(%error, "how apps are used is not written down");
            Profiles::default()
        }
        Err(error) => return Err(error.into()),
    };
    let recording =
        config.record.as_ref().map(|what| recorder::start(what, &config)).transpose()?;
    let (recorder, witness, scribe) = match recording {
        Some((recorder, witness, scribe)) => (Some(recorder), witness, Some(scribe)),
        None => (None, None, None),
    };
    let of_files = config.record.as_ref().is_some_and(|recording| recording.files);
    let of_files =
        of_files.then(FileStreams::listen).transpose().map_err(DaemonError::FileReads)?;
    let of_files = of_files.zip(recorder.as_ref().map(Recorder::pencil));
    let transcript = config.transcript.as_ref();
    let transcript =
        transcript.map(|file| recorder::transcript(file, &config.scheme)).transpose()?;

    let Belongings {
        generation,
        journal,
        tables,
        store,
        donors,
        control,
        agents,
        metrics,
        mut record,
        left,
        lost,
        mut bound,
    } = match left {
        Some(estate) => Belongings::inherited(estate, &config)?,
        None => Belongings::new(socket, store_config, &config)?,
    };
    // A service manager's socket stays.
    let given = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    match open_to(socket, config.users.map(|users| users.group), given) {
        // Programs wait to be served: they must not wait for this.
        Err(error) if left.is_some() => tracing::error!("users may not get in: {error}"),
        done => done?,
    }
    // A predecessor's has as many slots as that wanted.
    pressure::limit_descriptors(journal.capacity() as u64);
    let metrics_at = metrics.as_ref().and_then(|m| m.local_addr().ok());
    let of_pool: Vec<_> = store.segments().iter().map(|segment| segment.as_raw_fd()).collect();
    let known_donors = match donors.is_empty() {
        true => None,
        false => Some(donor_tier::write_down(&donors)?),
    };
    record.descriptors[column(generation)] = Some(DaemonDescriptors {
        tables: tables.segments().map(AsRawFd::as_raw_fd),
        store: std::array::from_fn(|i| of_pool[i]),
        frames: of_pool.get(3..).and_then(|frames| frames.try_into().ok()),
        control: control.as_raw_fd(),
        agents: agents.as_raw_fd(),
        metrics: metrics.as_ref().map(AsRawFd::as_raw_fd),
        flash: store.log(LogId::FLASH).and_then(|flash| flash_tier::descriptors(flash)),
        donors: known_donors.as_ref().map(AsRawFd::as_raw_fd),
    });
    let gives_up = record.short_lives >= config.max_short_lives;

    let cpus = affinity::allowed_cpus();
    let epolls = cpus
        .iter()
        .map(|_| epoll())
        .collect::<io::Result<Vec<_>>>()
        .map_err(system("making an epoll descriptor"))?;
    let (to_governor, inbox) = unbounded();
    let (to_workers, work) = desk::queue();
    let engine = Engine::new(&config.scheme);
    let shared = Shared::new(
        Mover::new(store, config.scheme.retain, parking(engine.arrival()))
            .with_witness(witness)
            .with_run_ahead(engine.run_ahead()),
        tables,
        journal,
        generation,
        4096,
        Handlers { epolls, cpus, placement: record.placement },
        to_governor.clone(),
    );
    let group = config.users.map(|users| users.group);
    let shared = Arc::new(shared.with_users(Users::new(own_uid(), group)));
    let agent_socket = agents_socket(socket);
    // Programs change their directory.
    let agent_socket = std::path::absolute(&agent_socket).unwrap_or(agent_socket);
    let environment = Environment { agent_socket, agent_protocol: VERSION };
    let mut driver = Driver::new(engine, config.budget(4096), config.scheme.on_full);
    recorder.into_iter().for_each(|recorder| driver.listen(Box::new(Tap(recorder))));
    transcript.into_iter().for_each(|transcript| driver.listen(Box::new(transcript)));
    let reads_accessed_bits = config.accessed_bits;
    let most = MostOfUser::of(config.workers, shared.users.is_service());
    let crew = Crew::new(shared.clone(), work, to_governor.clone(), most);
    let keeper_pid = keeper.pid();
    let mut governor =
        Governor::new(shared.clone(), driver, config, environment, keeper_pid, to_workers, crew);
    governor.go_by(profiles);
    if let Some((streams, pencil)) = of_files {
        governor.record_files(streams, pencil).map_err(DaemonError::FileReads)?;
    }
    let lenders = donors.clone();
    governor.lend_from(donors);
    let adopted = left
        .map(|(from, programs)| {
            takeover::adopt(&shared, from, programs, |uid, name| governor.app_named(uid, name))
        })
        .transpose()
        .map_err(DaemonError::Takeover)?;

    pressure::spare_descriptors(SPARE_DESCRIPTORS).map_err(DaemonError::Descriptors)?;
    points::start_programs();
    // From here on a successor goes by what this daemon's keeper holds.
    record.serving_since = takeover::seconds_now();
    let old_keepers = adopted.iter().flat_map(|a| a.old_keepers(&record)).collect();
    record.old_keepers = old_keepers;
    let own = shared.journal.own();
    record.save(&own);
    points::start_recorded();
    // The sockets are never closed: a thread that cannot be started would take them with it.
    let agents: &'static OwnedFd = Box::leak(Box::new(agents));
    let control: &'static UnixListener = Box::leak(Box::new(UnixListener::from(control)));
    let beside = Beside::commit(
        socket,
        (keeper.pid(), keeper.badge()),
        generation,
        shared.journal.segment().as_raw_fd(),
    )
    .map_err(file("writing down the keeper of", socket))?;
    points::start_committed();
    keeper.keep();
    let listeners: Vec<_> = [
        (socket.to_path_buf(), libc::SOCK_STREAM, control.as_fd()),
        (agents_socket(socket), AGENTS, agents.as_fd()),
    ]
    .into_iter()
    .skip(usize::from(given))
    .map(|(path, kind, socket)| Listener::new(path, kind, socket))
    .collect();
    bound.0 = listeners.iter().map(|listener| listener.path().to_path_buf()).collect();
    governor.look_beside(beside.with_listeners(listeners, mode, group));
    if lost == 0 {
        takeover::end_keepers(&mut record.old_keepers);
        record.save(&own);
    }
    points::start_old_ended();

    pressure::lock_memory();
    // An error that went up from here would close descriptors, for the keeper too.
    let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
        if let Err(error) = std::thread::Builder::new().name(name).spawn(body) {
            leave_to_successor("starting a thread", &error);
        }
    };
    // Here, for fault threads stay on their CPUs.
    if let Err(error) = closer::start() {
        leave_to_successor("starting a thread", &error);
    }
    for handler in 0..shared.epolls.len() {
        let shared = shared.clone();
        spawn(format!("fault-{handler}"), Box::new(move || serve::run(&shared, handler)));
    }
    let for_flash = shared.clone();
    spawn("far".into(), Box::new(move || far::run(&for_flash)));
    let (asked, least_bytes) = governor.outside_asked();
    let answer = to_governor.clone();
    let sizes = (least_bytes, 4096);
    spawn("outside".into(), Box::new(move || outside::watch(&asked, sizes, is_service, &answer)));
    if let Err(error) = governor.look(&to_governor).and_then(|()| governor.hire()) {
        leave_to_successor("starting a thread", &error);
    }
    let mut said = "serving".to_string();
    if let Some(mut adopted) = adopted {
        for candidate in std::mem::take(&mut adopted.candidates) {
            let _ = to_governor.send(Message::Hello(Box::new(candidate)));
        }
        let programs = adopted.programs();
        adopted.serve(&shared);
        points::start_serving();
        let took = began.elapsed().as_secs_f64() * 1e3;
        said = format!("took over {programs} programs within {took:.0} ms, serving");
    }
    let (answer, for_agents) = (to_governor.clone(), shared.clone());
    spawn("agents".into(), Box::new(move || accept_agents(&for_agents, agents, &answer)));
    let (answer, users) = (to_governor.clone(), shared.users.clone());
    spawn("control".into(), Box::new(move || clients::serve(control, &users, &answer)));
    if let Some(listener) = metrics {
        let answer = to_governor.clone();
        spawn("metrics".into(), Box::new(move || exporter::serve(&listener, &answer)));
    }
    let answer = to_governor.clone();
    spawn("stalls".into(), Box::new(move || pressure::watch_stalls(&answer)));
    let answer = to_governor.clone();
    spawn("signals".into(), Box::new(move || signals.wait(&answer)));

    if gives_up {
        tracing::error!(
            "{} daemons in a row died soon after they had begun: bringing every page back",
            record.short_lives
        );
        let _ = to_governor.send(Message::Stop);
    } else {
        ready(&said, metrics_at);
        // Where nobody wants to know, this does nothing.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }
    shared.tables.settle();
    // Reading what the kernel says of its types takes a while: programs that wait are served meanwhile.
    let accessed = reads_accessed_bits.then(AccessedBits::open).and_then(|opened| {
        opened
            .inspect_err(|why| tracing::info!(%why, "accessed bits of page tables are not read"))
            .ok()
    });
    governor.read_touches(accessed);
    governor.run(&inbox);
    let recorded = scribe.map_or(Ok(()), recorder::Scribe::finish);
    clients::finish();

    // First of all the keepers: as long as this one lives a successor goes by it.
    takeover::end_keepers(&mut record.old_keepers);
    keeper.end();
    points::stop_unkept();
    drop(bound);
    points::stop_unlinked();
    drop(claim);
    points::stop_forgotten();
    donor_tier::say_goodbye(&lenders);
    closer::give_away_sockets();
    recorded?;
    if gives_up { Err(DaemonError::GaveUp(record.short_lives)) } else { Ok(()) }
}

/// Ends this process, and nothing else, after its keeper has come to count.
fn leave_to_successor(what: &str, error: &io::Error) -> ! {
    clew_core::remark!("clew: {what}: {error}: this daemon ends, and the next one takes over");
    // SAFETY: ends this process; the keeper stays.
    unsafe { libc::_exit(1) }
}

/// How pages wait that the scheme brings back early, or that come along with a fault.
fn parking(arrival: Arrival) -> Parking {
    match arrival {
        Arrival::Resident => Parking::default(),
        Arrival::Parked { pages, keep } => Parking { pages, keep },
    }
}

fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: the result is checked and owned by nobody else.
    unsafe {
        let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// SIGINT and SIGTERM mean "bring everything back and end".
struct StopSignals {
    set: libc::sigset_t,
}

impl StopSignals {
    /// Blocks them in this thread and all that it starts.
    fn block() -> StopSignals {
        // SAFETY: the set is initialised before use; SIGPIPE and SIGXFSZ are ignored for the process, as sockets
        // whose peers are gone, and files that may not grow, must give errors.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            StopSignals { set }
        }
    }

    fn wait(&self, governor: &Sender<Message>) {
        loop {
            let mut signal = 0;
            // SAFETY: both live across the call.
            if unsafe { libc::sigwait(&self.set, &mut signal) } == 0 {
                tracing::info!(signal, "stopping: bringing every page back");
                if governor.send(Message::Stop).is_err() {
                    return;
                }
            }
        }
    }
}

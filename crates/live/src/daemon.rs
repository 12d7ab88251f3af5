//! Puts the daemon together, serves its sockets, takes it apart again.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_agent::protocol::VERSION;
use clew_core::{Arrival, Tier};
use clew_engine::decide::Engine;
use clew_engine::driver::Driver;
use clew_engine::{Mover, Parking};
use clew_store::{Journal, Store, StoreConfig, Tables, points};
use crossbeam_channel::{Sender, unbounded};
use sd_notify::NotifyState;
use socket2::{Domain, SockAddr, Socket};

use crate::agents::accept::accept_agents;
use crate::agents::closer;
use crate::config::Config;
use crate::control::client::Client;
use crate::control::protocol::{Environment, Request};
use crate::control::trusted_path::{self, PathError};
use crate::faults::affinity::{self, Placement};
use crate::governor::{Governor, Message};
use crate::programs::process::{Handlers, Shared};
use crate::recording::decisions::Tap;
use crate::recording::recorder;
use crate::survival::keeper::Keeper;
use crate::survival::predecessor::{self, Predecessor, ProcessName};
use crate::survival::records::{DaemonDescriptors, DaemonRecord, column};
use crate::survival::takeover::{self, Estate, Programs, TakeoverError};
use crate::work::Crew;
use crate::{
    agents::seqpacket, control::clients, control::exporter, doctor, faults::far, faults::serve,
    flash_tier, programs::outside, survival::pressure, work,
};

/// Pages that one daemon manages at most: 256 GiB of programs.
const MAX_PAGES: u64 = 1 << 26;

/// Address spaces that one daemon knows at most, those too small to be managed included. Never fewer
/// than descriptors (see [`pressure::limit_descriptors`]).
const MAX_SPACES: u32 = 1 << 16;

/// Descriptors that must be left when a daemon begins to serve: for clients, agents, a program.
const SPARE_DESCRIPTORS: usize = 64;

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("this machine cannot run Clew: {0} ('clew doctor' says more)")]
    Unfit(String),
    #[error("this is no place for a socket: {0}")]
    Place(#[from] PathError),
    #[error("{0} is a file of another kind, not a socket: it stays; name another place")]
    NoSocket(PathBuf),
    #[error(
        "a socket's name must not end in {0}: the daemon has a file of that name beside its socket"
    )]
    Ending(String),
    #[error("{0} is too long: a socket's path, with the ending .agents, has at most 107 bytes")]
    TooLong(PathBuf),
    #[error("{0} is served by somebody else: name another socket")]
    Served(PathBuf),
    #[error("a daemon (process {1}) serves {0} already ('--takeover' replaces it)")]
    Running(PathBuf, u32),
    #[error("process {0} serves the socket and cannot be ended")]
    Immortal(u32),
    #[error("taking over from a daemon that died: {0}; its keeper stays, and programs wait")]
    Takeover(#[source] TakeoverError),
    #[error("gave up after {0} daemons died in a row; every page was brought back")]
    GaveUp(u32),
    #[error(
        "it cannot open {SPARE_DESCRIPTORS} descriptors more: {0} (raise its limit, 'ulimit -n')"
    )]
    Descriptors(#[source] io::Error),
    #[error("{what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "scheme {0} has no place but flash: name a file or a block device (--flash, or [flash])"
    )]
    NeedsFlash(String),
    #[error("flash at {path}: {source}")]
    Flash { path: PathBuf, source: flash_tier::FlashTierError },
    #[error("metrics: cannot listen at {at}: {source}")]
    Metrics { at: SocketAddr, source: io::Error },
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error(transparent)]
    Record(#[from] recorder::RecordError),
    #[error("the store: {0}")]
    Store(#[from] clew_store::StoreError),
}

/// Where the daemon of this user is served unless told otherwise.
pub fn default_socket() -> PathBuf {
    let uid = trusted_path::own_uid();
    if uid == 0 {
        return PathBuf::from("/run/clew/clew.sock");
    }
    // One that is not absolute is to be ignored.
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("clew/clew.sock"),
        None => std::env::temp_dir().join(format!("clew-{uid}/clew.sock")),
    }
}

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
    if let Some(missing) = doctor::first_missing() {
        return Err(DaemonError::Unfit(missing));
    }
    if config.scheme.needs_flash() && config.flash.is_none() {
        return Err(DaemonError::NeedsFlash(config.scheme_name));
    }
    check_names(socket)?;
    trusted_path::make(trusted_path::directory_of(socket), 0o700)?;
    for path in [socket, &socket.with_extension("agents")] {
        is_socket(path)?;
    }
    if takeover {
        replace_living(socket)?;
    }
    let claim = predecessor::claim(socket)
        .map_err(file("claiming", socket))?
        .map_err(|other| DaemonError::Running(socket.to_path_buf(), other.pid))?;
    points::start_claimed();
    let store_config = StoreConfig {
        page_bytes: 4096,
        mem_limit_bytes: config.pool_limit_bytes(),
        disksize_pages: config.scheme.disksize_pages.unwrap_or(MAX_PAGES),
    };
    let began = Instant::now();
    // Taking over takes some for each program.
    pressure::limit_descriptors(u64::from(MAX_SPACES));
    let left = Predecessor::find(socket)
        .map_err(file("looking for the keeper of", socket))?
        .map(|from| Estate::open(from, store_config))
        .transpose()
        .map_err(DaemonError::Takeover)?;
    points::start_adopted();
    let signals = StopSignals::block();
    // A daemon without one of its threads is one whose programs wait for ever: the next one takes over.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    pressure::protect_daemon();
    pressure::reserve_memory();
    let mut keeper = Keeper::start(socket).map_err(system("starting the keeper"))?;
    points::start_keeper();
    let recording =
        config.record.as_ref().map(|what| recorder::start(what, &config)).transpose()?;
    let (recorder, witness, scribe) = match recording {
        Some((recorder, witness, scribe)) => (Some(recorder), witness, Some(scribe)),
        None => (None, None, None),
    };
    let transcript = config.transcript.as_ref();
    let transcript =
        transcript.map(|file| recorder::transcript(file, &config.scheme)).transpose()?;

    let Belongings {
        generation,
        journal,
        tables,
        store,
        control,
        agents,
        metrics,
        mut record,
        left,
        lost,
        mut bound,
    } = match left {
        Some(estate) => Belongings::inherited(estate, config.metrics)?,
        None => Belongings::new(socket, store_config, &config)?,
    };
    // A predecessor's has as many slots as that wanted.
    pressure::limit_descriptors(journal.capacity() as u64);
    let metrics_at = metrics.as_ref().and_then(|m| m.local_addr().ok());
    let of_pool: Vec<_> = store.segments().iter().map(|segment| segment.as_raw_fd()).collect();
    record.descriptors[column(generation)] = Some(DaemonDescriptors {
        tables: tables.segments().map(AsRawFd::as_raw_fd),
        store: std::array::from_fn(|i| of_pool[i]),
        frames: of_pool.get(3..).and_then(|frames| frames.try_into().ok()),
        control: control.as_raw_fd(),
        agents: agents.as_raw_fd(),
        metrics: metrics.as_ref().map(AsRawFd::as_raw_fd),
        flash: store.flash().and_then(|flash| flash_tier::descriptors(flash)),
    });
    let gives_up = record.short_lives >= config.max_short_lives;

    let cpus = affinity::allowed_cpus();
    let epolls = cpus
        .iter()
        .map(|_| epoll())
        .collect::<io::Result<Vec<_>>>()
        .map_err(system("making an epoll descriptor"))?;
    let (to_governor, inbox) = unbounded();
    let (to_workers, work) = work::queue();
    let engine = Engine::new(&config.scheme);
    let shared = Arc::new(Shared::new(
        Mover::new(store, config.scheme.retain, parking(engine.arrival()))
            .with_witness(witness)
            .with_run_ahead(engine.run_ahead()),
        tables,
        journal,
        generation,
        4096,
        Handlers { epolls, cpus, placement: record.placement },
        to_governor.clone(),
    ));
    let agent_socket = socket.with_extension("agents");
    // Programs change their directory.
    let agent_socket = std::path::absolute(&agent_socket).unwrap_or(agent_socket);
    let environment = Environment { agent_socket, agent_protocol: VERSION };
    let mut driver = Driver::new(engine, config.budget(4096), config.scheme.on_full);
    driver.set_sensor(config.sensor);
    recorder.into_iter().for_each(|recorder| driver.listen(Box::new(Tap(recorder))));
    transcript.into_iter().for_each(|transcript| driver.listen(Box::new(transcript)));
    let crew = Crew::new(shared.clone(), work, to_governor.clone());
    let keeper_pid = keeper.pid();
    let mut governor =
        Governor::new(shared.clone(), driver, config, environment, keeper_pid, to_workers, crew);
    let adopted = left
        .map(|(from, programs)| {
            takeover::adopt(&shared, from, programs, |name| governor.app_named(name))
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
    predecessor::commit(socket, keeper.pid(), generation, shared.journal.segment().as_raw_fd())
        .map_err(file("writing down the keeper of", socket))?;
    points::start_committed();
    keeper.keep();
    // A service manager's socket stays.
    let given = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    bound.0 = [socket.to_path_buf(), socket.with_extension("agents")]
        .into_iter()
        .skip(usize::from(given))
        .collect();
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
    spawn("outside".into(), Box::new(move || outside::watch(&asked, (least_bytes, 4096), &answer)));
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
    // The sockets are never closed: a thread that cannot be started would take them with it.
    let agents: &'static OwnedFd = Box::leak(Box::new(agents));
    let control: &'static UnixListener = Box::leak(Box::new(UnixListener::from(control)));
    let (answer, for_agents) = (to_governor.clone(), shared.clone());
    spawn("agents".into(), Box::new(move || accept_agents(&for_agents, agents, &answer)));
    let answer = to_governor.clone();
    spawn("control".into(), Box::new(move || clients::serve(control, &answer)));
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
    recorded?;
    if gives_up { Err(DaemonError::GaveUp(record.short_lives)) } else { Ok(()) }
}

/// Ends this process, and nothing else, after its keeper has come to count.
fn leave_to_successor(what: &str, error: &io::Error) -> ! {
    eprintln!("clew: {what}: {error}: this daemon ends, and the next one takes over");
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

/// Checks that the files beside a socket are others than itself, and that both sockets can be bound.
///
/// # Errors
/// [`DaemonError::Ending`] if one of them has its name, [`DaemonError::TooLong`].
pub fn check_names(socket: &Path) -> Result<(), DaemonError> {
    if [socket, &socket.with_extension("agents")].into_iter().any(|at| SockAddr::unix(at).is_err())
    {
        return Err(DaemonError::TooLong(socket.to_path_buf()));
    }
    let taken = ["agents", "pid", "keeper", "lock"];
    match taken.into_iter().find(|ending| socket.extension() == Some(ending.as_ref())) {
        Some(ending) => Err(DaemonError::Ending(format!(".{ending}"))),
        None => Ok(()),
    }
}

/// Whether there is something at `path`, which must be a socket then.
fn is_socket(path: &Path) -> Result<bool, DaemonError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(DaemonError::NoSocket(path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => {
            Err(DaemonError::File { what: "looking at", path: path.to_path_buf(), source })
        }
    }
}

/// Whether somebody who lives listens at `path`. (Of a dead daemon a keeper may hold the socket.)
fn is_served(path: &Path, kind: libc::c_int) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, kind.into(), None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => {
            let peer = seqpacket::peer(&socket)?.pid as u32;
            // 0: of a namespace that is not seen from here.
            Ok(peer == 0 || ProcessName::of(peer).is_ok_and(|listener| listener.is_alive()))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // Of another kind, or too many wait already.
        Err(_) => Ok(true),
    }
}

/// Asks the daemon that serves `socket` to end at once, and ends it if it does not. What it leaves
/// is the same as if it had died at any other moment.
fn replace_living(socket: &Path) -> Result<(), DaemonError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let fail =
        |source| DaemonError::File { what: "replacing who serves", path: socket.into(), source };
    let Some(name) = predecessor::server(socket).map_err(fail)? else { return Ok(()) };
    let Some(process) = name.open().map_err(fail)? else { return Ok(()) };
    let asked = Client::connect(socket).and_then(|mut c| c.order(&Request::HandOver));
    if asked.is_ok() && predecessor::has_ended(&process, PATIENCE) || name.kill(PATIENCE) {
        return Ok(());
    }
    Err(DaemonError::Immortal(name.pid))
}

/// The listening socket for `socket` that a service manager has handed over, if it has.
fn given_socket(socket: &Path) -> Option<OwnedFd> {
    // SAFETY: the service manager has passed these descriptors on for us to own; nobody else in
    // this process takes them, and this is asked once.
    let given = sd_notify::listen_fds().ok()?.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let listener = UnixListener::from(given.collect::<Vec<_>>().pop()?);
    let is_ours = |at: std::os::unix::net::SocketAddr| at.as_pathname() == Some(socket);
    listener.local_addr().is_ok_and(is_ours).then(|| listener.into())
}

/// What a daemon has, made or inherited.
struct Belongings {
    generation: u64,
    journal: Arc<Journal>,
    tables: Arc<Tables>,
    store: Arc<Store>,
    control: OwnedFd,
    agents: OwnedFd,
    metrics: Option<TcpListener>,
    record: DaemonRecord,
    left: Option<(Predecessor, Programs)>,
    lost: usize,
    bound: Bound,
}

/// Sockets' files that go when this does: those of a start that failed, after an orderly end all.
#[derive(Default)]
struct Bound(Vec<PathBuf>);

impl Bound {
    fn listen(&mut self, path: &Path, kind: libc::c_int) -> Result<OwnedFd, DaemonError> {
        let failed = |source| DaemonError::File { what: "listening at", path: path.into(), source };
        let listener = seqpacket::listen(path, kind).map_err(failed)?;
        self.0.push(path.to_path_buf());
        Ok(listener)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl Belongings {
    /// Fails where it cannot listen: clients would be told that the last daemon does, which is dead.
    fn inherited(
        estate: Estate,
        metrics_at: Option<SocketAddr>,
    ) -> Result<Belongings, DaemonError> {
        let Estate {
            from,
            journal,
            tables,
            store,
            flash,
            record,
            control,
            agents,
            metrics,
            programs,
        } = estate;
        for listener in [&control, &agents] {
            seqpacket::listen_again(listener).map_err(|source| DaemonError::System {
                what: "listening where the last daemon did",
                source,
            })?;
        }
        if let Some(flash) = flash {
            store.attach_flash(Arc::new(flash.adopt().map_err(DaemonError::Takeover)?));
        }
        let metrics = match (metrics_at, metrics) {
            (Some(at), inherited) => exporter::listen(at, inherited)
                .inspect_err(|error| {
                    // Programs wait to be served: they must not wait for this.
                    tracing::error!(%at, %error, "no metrics: cannot listen");
                })
                .ok(),
            (None, Some(inherited)) => {
                exporter::silence(inherited);
                None
            }
            (None, None) => None,
        };
        let lost = programs.lost.len();
        Ok(Belongings {
            generation: from.generation + 1,
            journal,
            tables,
            store,
            control,
            agents,
            metrics,
            record,
            left: Some((from, programs)),
            lost,
            bound: Bound::default(),
        })
    }

    fn new(
        socket: &Path,
        store_config: StoreConfig,
        config: &Config,
    ) -> Result<Belongings, DaemonError> {
        let metrics_at = config.metrics;
        let metrics = metrics_at
            .map(|at| {
                exporter::listen(at, None).map_err(|source| DaemonError::Metrics { at, source })
            })
            .transpose()?;
        let file = |what, path: &Path| {
            let path = path.to_path_buf();
            move |source| DaemonError::File { what, path, source }
        };
        let agent_socket = socket.with_extension("agents");
        let given = given_socket(socket);
        let places = [(socket, libc::SOCK_STREAM), (&agent_socket, libc::SOCK_SEQPACKET)];
        for (path, kind) in places.into_iter().skip(usize::from(given.is_some())) {
            if !is_socket(path)? {
                continue;
            }
            if is_served(path, kind).map_err(file("looking who serves", path))? {
                return Err(DaemonError::Served(path.to_path_buf()));
            }
            fs::remove_file(path).map_err(file("replacing", path))?;
        }
        let mut bound = Bound::default();
        let control: OwnedFd = match given {
            Some(given) => {
                seqpacket::listen_again(&given).map_err(file("listening at", socket))?;
                given
            }
            None => bound.listen(socket, libc::SOCK_STREAM)?,
        };
        // Nobody waits in accept for a peer that has gone away again.
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK;
        let agents = bound.listen(&agent_socket, kind)?;
        let measured = affinity::measure();
        let placement = measured.map_or(Placement::Free, |m| m.choose());
        tracing::info!(?measured, ?placement, "fault placement");
        let segment = clew_store::StoreError::from;
        let store = Arc::new(Store::of(config.scheme.pool, store_config)?);
        if let Some(place) = &config.flash {
            if !config.scheme.uses(Tier::Flash) {
                tracing::warn!("scheme {} puts nothing on flash", config.scheme_name);
            }
            let opened = flash_tier::open(place);
            let refused = |source| DaemonError::Flash { path: place.path.clone(), source };
            store.attach_flash(Arc::new(opened.map_err(refused)?));
        }
        Ok(Belongings {
            generation: 1,
            journal: Arc::new(
                Journal::new(MAX_SPACES, store_config.page_bytes as u64).map_err(segment)?,
            ),
            tables: Arc::new(Tables::new(MAX_PAGES).map_err(segment)?),
            store,
            control,
            agents,
            metrics,
            record: DaemonRecord {
                descriptors: [None; 2],
                placement,
                serving_since: takeover::seconds_now(),
                short_lives: 0,
                old_keepers: Vec::new(),
            },
            left: None,
            lost: 0,
            bound,
        })
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
        // SAFETY: the set is initialised before use; SIGPIPE is ignored for the process, as sockets
        // whose peers are gone must give errors.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_nobody_serves_are_replaced() {
        let dir = std::env::temp_dir().join(format!("clew-places-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            let place = dir.join("s");
            assert!(!is_socket(&place).expect("nothing is there"));
            let listener = Socket::new(Domain::UNIX, kind.into(), None).expect("a socket");
            listener.bind(&SockAddr::unix(&place).expect("short")).expect("free");
            assert!(is_socket(&place).expect("it is one"));
            assert!(!is_served(&place, kind).expect("looked at"), "it does not listen");
            listener.listen(1).expect("it listens");
            assert!(is_served(&place, kind).expect("looked at"));
            let other = libc::SOCK_STREAM + libc::SOCK_SEQPACKET - kind;
            assert!(is_served(&place, other).expect("looked at"), "as something else");
            drop(listener);
            assert!(!is_served(&place, kind).expect("looked at"));
            fs::remove_file(&place).expect("it is ours");
        }
        let notes = dir.join("notes");
        fs::write(&notes, "precious").expect("written");
        assert!(matches!(is_socket(&notes), Err(DaemonError::NoSocket(_))));
        let link = dir.join("link");
        std::os::unix::fs::symlink(&notes, &link).expect("a link");
        assert!(matches!(is_socket(&link), Err(DaemonError::NoSocket(_))));
        for ending in ["agents", "pid", "keeper", "lock"] {
            assert!(check_names(&dir.join("clew").with_extension(ending)).is_err(), "{ending}");
        }
        assert!(check_names(&dir.join("clew.sock")).is_ok());
        for (bytes, fits) in [(100, true), (101, false), (200, false)] {
            assert_eq!(check_names(&Path::new("/").join("x".repeat(bytes - 1))).is_ok(), fits);
        }
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}

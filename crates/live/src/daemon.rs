//! Puts the daemon together, serves its sockets, takes it apart again.

use std::fs::{self, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_core::Arrival;
use clew_engine::decide::Engine;
use clew_engine::{Mover, Parking};
use clew_store::{Journal, Store, StoreConfig, Tables, points};
use crossbeam_channel::{Sender, unbounded};
use sd_notify::NotifyState;

use crate::affinity::{self, Placement};
use crate::attach::accept_agents;
use crate::config::Config;
use crate::control::{Client, Environment, Reply, Request};
use crate::governor::{Governor, Message};
use crate::keeper::Keeper;
use crate::predecessor::{self, Predecessor};
use crate::process::{Handlers, Shared};
use crate::record;
use crate::registry::{DaemonDescriptors, DaemonRecord, column};
use crate::takeover::{self, Estate, Programs, TakeoverError};
use crate::tap::TappedEngine;
use crate::work::Crew;
use crate::{doctor, exporter, fault, pressure, seqpacket, work};

/// The object that is preloaded into programs.
const AGENT_OBJECT: &[u8] = include_bytes!(env!("CLEW_AGENT_OBJECT"));

/// Pages that one daemon manages at most: 256 GiB of programs.
const MAX_PAGES: u64 = 1 << 26;

/// Address spaces that one daemon knows at most, those too small to be managed included.
const MAX_SPACES: u32 = 1 << 14;

/// Descriptors that must be left when a daemon begins to serve: for clients, agents, a program.
const SPARE_DESCRIPTORS: usize = 64;

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("this machine cannot run Clew: {0} ('clew doctor' says more)")]
    Unfit(String),
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
    #[error("metrics: cannot listen at {at}: {source}")]
    Metrics { at: SocketAddr, source: io::Error },
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error(transparent)]
    Record(#[from] record::RecordError),
    #[error("the store: {0}")]
    Store(#[from] clew_store::StoreError),
}

/// Where the daemon of this user is served unless told otherwise.
pub fn default_socket() -> PathBuf {
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    if uid == 0 {
        return PathBuf::from("/run/clew/clew.sock");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("clew/clew.sock"),
        None => std::env::temp_dir().join(format!("clew-{uid}/clew.sock")),
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
    let dir = socket.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.exists() {
        fs::create_dir_all(dir).map_err(file("making", dir))?;
        fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(file("making", dir))?;
    }
    if takeover {
        replace_living(socket)?;
    }
    if let Err(other) = predecessor::claim(socket).map_err(file("claiming", socket))? {
        return Err(DaemonError::Running(socket.to_path_buf(), other.pid));
    }
    points::start_claimed();
    let store_config = StoreConfig {
        page_bytes: 4096,
        mem_limit_bytes: config.scheme.mem_limit_bytes.map_or(config.budget.0, |limit| limit.0),
        disksize_pages: config.scheme.disksize_pages.unwrap_or(MAX_PAGES),
    };
    let began = Instant::now();
    let left = Predecessor::find(socket)
        .map_err(file("looking for the keeper of", socket))?
        .map(|from| Estate::open(from, store_config))
        .transpose()
        .map_err(DaemonError::Takeover)?;
    points::start_adopted();
    let agent_object = write_object(socket)?;
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
    let recording = config.record.as_ref().map(|what| record::start(what, &config)).transpose()?;
    let (recorder, witness, scribe) = match recording {
        Some((recorder, witness, scribe)) => (Some(recorder), witness, Some(scribe)),
        None => (None, None, None),
    };

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
    } = match left {
        Some(estate) => Belongings::inherited(estate, config.metrics),
        None => Belongings::new(socket, store_config, config.metrics)?,
    };
    let metrics_at = metrics.as_ref().and_then(|m| m.local_addr().ok());
    record.descriptors[column(generation)] = Some(DaemonDescriptors {
        tables: tables.segments().map(AsRawFd::as_raw_fd),
        store: store.segments().map(AsRawFd::as_raw_fd),
        control: control.as_raw_fd(),
        agents: agents.as_raw_fd(),
        metrics: metrics.as_ref().map(AsRawFd::as_raw_fd),
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
    let environment = Environment { agent_socket: socket.with_extension("agents"), agent_object };
    let engine = TappedEngine::new(engine, recorder);
    let crew = Crew::new(shared.clone(), work, to_governor.clone());
    let keeper_pid = keeper.pid();
    let mut governor =
        Governor::new(shared.clone(), engine, config, environment, keeper_pid, to_workers, crew);
    let adopted = left
        .map(|(from, programs)| {
            shared.used_space_id(programs.last_space());
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
    for handler in 0..shared.epolls.len() {
        let shared = shared.clone();
        spawn(format!("fault-{handler}"), Box::new(move || fault::run(&shared, handler)));
    }
    if let Err(error) = governor.hire() {
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
    spawn("control".into(), Box::new(move || serve_clients(control, &answer)));
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
    let recorded = scribe.map_or(Ok(()), record::Scribe::finish);
    // The last answers are still being written.
    let until = Instant::now() + Duration::from_secs(1);
    while ANSWERING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }

    // First of all the keepers: as long as this one lives a successor goes by it.
    takeover::end_keepers(&mut record.old_keepers);
    keeper.end();
    points::stop_unkept();
    // A service manager's socket stays.
    let given = std::env::var_os("LISTEN_PID").is_some();
    for path in [socket, &socket.with_extension("agents")].into_iter().skip(usize::from(given)) {
        let _ = fs::remove_file(path);
    }
    points::stop_unlinked();
    predecessor::forget(socket);
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

/// Whoever connects is told from now on that it is this process who listens.
fn listen_again(listener: &OwnedFd) {
    // SAFETY: takes numbers only.
    unsafe { libc::listen(listener.as_raw_fd(), 128) };
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
}

impl Belongings {
    fn inherited(estate: Estate, metrics_at: Option<SocketAddr>) -> Belongings {
        let Estate { from, journal, tables, store, record, control, agents, metrics, programs } =
            estate;
        [&control, &agents].into_iter().for_each(listen_again);
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
        Belongings {
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
        }
    }

    fn new(
        socket: &Path,
        config: StoreConfig,
        metrics_at: Option<SocketAddr>,
    ) -> Result<Belongings, DaemonError> {
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
        for path in [socket, &agent_socket].into_iter().skip(usize::from(given.is_some())) {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(file("replacing", path)(e));
                }
                _ => {}
            }
        }
        let control: OwnedFd = match given {
            Some(given) => given,
            None => UnixListener::bind(socket).map_err(file("listening at", socket))?.into(),
        };
        listen_again(&control);
        let agents =
            seqpacket::listen(&agent_socket).map_err(file("listening at", &agent_socket))?;
        let measured = affinity::measure();
        let placement = measured.map_or(Placement::Free, |m| m.choose());
        tracing::info!(?measured, ?placement, "fault placement");
        let segment = clew_store::StoreError::from;
        Ok(Belongings {
            generation: 1,
            journal: Arc::new(Journal::new(MAX_SPACES, config.page_bytes as u64).map_err(segment)?),
            tables: Arc::new(Tables::new(MAX_PAGES).map_err(segment)?),
            store: Arc::new(Store::new(config)?),
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
        })
    }
}

/// Puts the preloaded object where programs can map it. /run is often mounted noexec, and the file
/// stays when the daemon ends: programs that run on hand its path to every child they start. Its
/// name is its content's, so one file serves all daemons of a version.
fn write_object(beside_socket: &Path) -> Result<PathBuf, DaemonError> {
    let mut hasher = std::hash::DefaultHasher::new();
    AGENT_OBJECT.hash(&mut hasher);
    let name = format!("libclew_agent-{:016x}.so", hasher.finish());
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let mut places = vec![PathBuf::from("/var/lib/clew")];
    places.extend(cache.map(|dir| dir.join("clew")));
    places.extend(beside_socket.parent().map(Path::to_path_buf));
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in &places {
        if let Err(error) = fs::create_dir_all(place) {
            last = error;
            continue;
        }
        let path = place.join(&name);
        if fs::read(&path).is_ok_and(|old| old == AGENT_OBJECT) && mappable(&path) {
            return Ok(path);
        }
        // Written under another name first: nobody maps half an object.
        let partial = place.join(format!("{name}.{}", std::process::id()));
        let _ = fs::remove_file(&partial);
        let written = fs::File::options()
            .write(true)
            .create_new(true)
            .open(&partial)
            .and_then(|mut f| f.write_all(AGENT_OBJECT))
            .and_then(|()| fs::set_permissions(&partial, Permissions::from_mode(0o644)))
            .and_then(|()| fs::rename(&partial, &path));
        match written {
            Ok(()) if mappable(&path) => return Ok(path),
            Ok(()) => {
                let _ = fs::remove_file(&path);
                last = io::Error::new(io::ErrorKind::PermissionDenied, "mounted noexec");
            }
            Err(e) => last = e,
        }
    }
    Err(DaemonError::File {
        what: "writing the agent's object to",
        path: beside_socket.to_path_buf(),
        source: last,
    })
}

fn mappable(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    // SAFETY: a fresh mapping that is removed at once.
    unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let flags = libc::PROT_READ | libc::PROT_EXEC;
        let base = libc::mmap(std::ptr::null_mut(), 4096, flags, libc::MAP_PRIVATE, fd, 0);
        base != libc::MAP_FAILED && libc::munmap(base, 4096) == 0
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

fn serve_clients(listener: &UnixListener, governor: &Sender<Message>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptors, perhaps: others may be closed meanwhile.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        // SAFETY: takes nothing, cannot fail.
        let own = unsafe { libc::geteuid() };
        let is_ours = seqpacket::peer(&stream).is_ok_and(|peer| peer.uid == own || peer.uid == 0);
        if !is_ours || CLIENTS.load(Ordering::SeqCst) >= MAX_CLIENTS {
            continue; // closed
        }
        let governor = governor.clone();
        CLIENTS.fetch_add(1, Ordering::SeqCst);
        let served = std::thread::Builder::new().name("client".into()).spawn(move || {
            serve_client(stream, &governor);
            CLIENTS.fetch_sub(1, Ordering::SeqCst);
        });
        if let Err(error) = served {
            CLIENTS.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(%error, "cannot serve a client");
        }
    }
}

/// Clients that are connected; each has a thread.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);
const MAX_CLIENTS: usize = 256;

/// Clients that wait for an answer.
static ANSWERING: AtomicUsize = AtomicUsize::new(0);

fn serve_client(stream: UnixStream, governor: &Sender<Message>) {
    const MAX_LINE: u64 = 64 << 10;
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match io::Read::take(&mut reader, MAX_LINE).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        ANSWERING.fetch_add(1, Ordering::SeqCst);
        let request = serde_json::from_str::<Request>(&line);
        let hands_over = matches!(request, Ok(Request::HandOver));
        let answered =
            answer(request, governor).is_some_and(|a| writer.write_all(a.as_bytes()).is_ok());
        if hands_over {
            // SAFETY: ends this process and nothing else; the keeper stays.
            unsafe { libc::_exit(0) };
        }
        ANSWERING.fetch_sub(1, Ordering::SeqCst);
        if !answered {
            return;
        }
    }
}

/// The answer to one line; `None` when the daemon is ending.
fn answer(
    request: Result<Request, serde_json::Error>,
    governor: &Sender<Message>,
) -> Option<String> {
    let mut answer = match request {
        Ok(request) => {
            let (to, from) = crossbeam_channel::bounded(1);
            governor.send(Message::Control(request, to)).ok()?;
            from.recv().ok()?
        }
        Err(error) => {
            let message = format!("not a request: {error}");
            serde_json::to_string(&Reply::<()>::Error { message }).unwrap_or_default()
        }
    };
    answer.push('\n');
    Some(answer)
}

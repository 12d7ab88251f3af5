//! Puts the daemon together, serves its sockets, takes it apart again.

use std::fs::{self, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_engine::Mover;
use clew_engine::decide::Engine;
use clew_store::{Store, StoreConfig, Tables};
use crossbeam_channel::{Sender, unbounded};

use crate::affinity::{self, Placement};
use crate::attach::accept_agents;
use crate::config::Config;
use crate::control::{Client, Environment, Reply, Request};
use crate::governor::{Governor, Message};
use crate::keeper::Keeper;
use crate::process::Shared;
use crate::{doctor, fault, seqpacket, work};

/// The object that is preloaded into programs.
const AGENT_OBJECT: &[u8] = include_bytes!(env!("CLEW_AGENT_OBJECT"));

/// Pages that one daemon manages at most: 256 GiB of programs.
const MAX_PAGES: u64 = 1 << 26;

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("this machine cannot run Clew: {0} ('clew doctor' says more)")]
    Unfit(String),
    #[error("a daemon serves {0} already")]
    Running(PathBuf),
    #[error("{what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
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
/// threads. `ready` is called once programs may come.
pub fn run(socket: &Path, config: Config, ready: impl FnOnce()) -> Result<(), DaemonError> {
    let file = |what, path: &Path| {
        let path = path.to_path_buf();
        move |source| DaemonError::File { what, path, source }
    };
    let system = |what| move |source| DaemonError::System { what, source };
    if let Some(missing) = doctor::first_missing() {
        return Err(DaemonError::Unfit(missing));
    }
    if Client::connect(socket).is_ok_and(|mut c| c.status().is_ok()) {
        return Err(DaemonError::Running(socket.to_path_buf()));
    }
    let dir = socket.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.exists() {
        fs::create_dir_all(dir).map_err(file("making", dir))?;
        fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(file("making", dir))?;
    }
    let agent_socket = socket.with_extension("agents");
    for path in [socket, &agent_socket] {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(file("replacing", path)(e));
            }
            _ => {}
        }
    }
    let agent_object = write_object(socket)?;
    let signals = StopSignals::block();
    let keeper = Keeper::start().map_err(system("starting the keeper"))?;

    let store = Arc::new(Store::new(StoreConfig {
        page_bytes: 4096,
        mem_limit_bytes: config.scheme.mem_limit_bytes.map_or(config.budget.0, |limit| limit.0),
        disksize_pages: config.scheme.disksize_pages.unwrap_or(MAX_PAGES),
    })?);
    let measured = affinity::measure();
    let placement = measured.map_or(Placement::Free, |m| m.choose());
    tracing::info!(?measured, ?placement, "fault placement");

    let handler_cpus = affinity::allowed_cpus();
    let epolls = handler_cpus
        .iter()
        .map(|_| epoll())
        .collect::<io::Result<Vec<_>>>()
        .map_err(system("making an epoll descriptor"))?;
    let (to_governor, inbox) = unbounded();
    let (to_workers, work) = unbounded();
    let shared = Arc::new(Shared::new(
        Mover::new(store, config.scheme.retain),
        Arc::new(Tables::new(MAX_PAGES).map_err(clew_store::StoreError::from)?),
        4096,
        epolls,
        handler_cpus,
        placement,
        to_governor.clone(),
    ));
    let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name).spawn(body).map_err(system("starting a thread"))
    };
    for handler in 0..shared.epolls.len() {
        let shared = shared.clone();
        spawn(format!("fault-{handler}"), Box::new(move || fault::run(&shared, handler)))?;
    }
    for n in 0..config.workers {
        let (shared, work, answer) = (shared.clone(), work.clone(), to_governor.clone());
        spawn(format!("worker-{n}"), Box::new(move || work::run(&shared, &work, &answer)))?;
    }
    let agents = seqpacket::listen(&agent_socket).map_err(file("listening at", &agent_socket))?;
    let answer = to_governor.clone();
    spawn("agents".into(), Box::new(move || accept_agents(&agents, &answer)))?;
    let listener = UnixListener::bind(socket).map_err(file("listening at", socket))?;
    let answer = to_governor.clone();
    spawn("control".into(), Box::new(move || serve_clients(&listener, &answer)))?;
    let answer = to_governor.clone();
    spawn("signals".into(), Box::new(move || signals.wait(&answer)))?;

    let environment = Environment { agent_socket: agent_socket.clone(), agent_object };
    let engine = Engine::new(&config.scheme);
    let governor = Governor::new(shared, engine, config, environment, keeper.pid(), to_workers);
    ready();
    governor.run(&inbox);
    // The last answers are still being written.
    let until = Instant::now() + Duration::from_secs(1);
    while ANSWERING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }

    for path in [socket, &agent_socket] {
        let _ = fs::remove_file(path);
    }
    drop(keeper);
    Ok(())
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
        let Ok(stream) = stream else { continue };
        let governor = governor.clone();
        let served = std::thread::Builder::new()
            .name("client".into())
            .spawn(move || serve_client(stream, &governor));
        if let Err(error) = served {
            tracing::warn!(%error, "cannot serve a client");
        }
    }
}

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
        let answered =
            answer(&line, governor).is_some_and(|a| writer.write_all(a.as_bytes()).is_ok());
        ANSWERING.fetch_sub(1, Ordering::SeqCst);
        if !answered {
            return;
        }
    }
}

/// The answer to one line; `None` when the daemon is ending.
fn answer(line: &str, governor: &Sender<Message>) -> Option<String> {
    let mut answer = match serde_json::from_str::<Request>(line) {
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

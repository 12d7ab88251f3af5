//! The control protocol: one JSON object a line over a unix socket, an answer to each request.
//!
//! The first line a peer sends decides what it is: a [`Request`] makes it a client of this
//! protocol. (Agents speak another one, on a socket of their own.)

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most bytes of an app's name.
pub use clew_agent::protocol::MAX_NAME;
use clew_core::shown::shown;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::agents::seqpacket;
use crate::control::trusted_path::{self, PathError, own_uid};
use crate::faults::latency::Latency;
use crate::survival::predecessor::{self, ProcessName};

/// Most bytes of a request, its end included.
pub const MAX_REQUEST: usize = 64 << 10;

/// Most bytes of an answer.
pub const MAX_ANSWER: usize = 64 << 20;

/// Most bytes of an answer to what asks for little: one that is that long is never looked at.
pub const MAX_SHORT_ANSWER: usize = 1 << 20;

/// How long the daemon waits for a whole request, and for an answer to be taken. Then it closes the
/// connection.
pub const IDLE: Duration = Duration::from_secs(10);

/// What a daemon says to whoever orders work after it was told to stop.
pub(crate) const ENDING: &str = "the daemon is ending: no new work";

/// What a daemon says to whoever it cannot serve now.
pub(crate) const BUSY: &str = "too many clients wait for answers: try again";

/// Bytes of a socket's path with the zero at its end.
const MAX_SOCKET_PATH: usize = 108;

/// What a client asks.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// The state of everything.
    Status,
    /// What a program's environment needs so that its agent finds this daemon ([`Environment`]).
    Environment,
    /// A program of `app` is about to start as process `pid`; `unmanaged` says why its memory
    /// cannot be taken out, if that is known already.
    Started { app: String, pid: u32, command: String, unmanaged: Option<String> },
    /// `app` comes to the foreground: its relaunch begins. Answered as soon as it has begun.
    Fg { app: String },
    /// `app` goes to the background.
    Bg { app: String },
    /// The first complete response was given, `response_ns` after the relaunch began.
    Responded { app: String, response_ns: u64 },
    /// Take out every page of `app` that can be taken out. Answered when that is done.
    SwapOut { app: String },
    /// Bring every stored page of `app` back. Answered when that is done.
    Restore { app: String },
    /// The pages of `app` that the scheme holds for hot ([`HotPages`] for each process).
    HotPages { app: String },
    /// Bring every page of every app back, let the programs go, end.
    Stop,
    /// End at once and leave everything to the keeper: a successor is about to take over.
    HandOver,
}

/// What the daemon answers: `Ok` with the verb's result, or a reason.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Reply<T> {
    /// It is done (or begun, where the verb says so).
    Ok { value: T },
    /// It was not done.
    Error { message: String },
}

/// What a managed program's environment needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Environment {
    /// For `CLEW_AGENT_SOCKET`.
    pub agent_socket: PathBuf,
    /// Version of the protocol that the daemon speaks with agents. What a client preloads is its own
    /// object ([`crate::agents::preload`]), which must be of the same.
    pub agent_protocol: u32,
}

impl Environment {
    /// Checks that it can be used, wherever the program goes.
    ///
    /// # Errors
    /// If no agent could connect to the socket, or the program could not be started with it.
    pub fn check(&self) -> Result<(), ControlError> {
        let path = self.agent_socket.as_os_str().as_bytes();
        if self.agent_socket.is_absolute() && path.len() < MAX_SOCKET_PATH && !path.contains(&0) {
            return Ok(());
        }
        let said = in_one_line(&self.agent_socket.to_string_lossy());
        let what =
            format!("its agents' socket must be an absolute path of at most 107 bytes: '{said}'");
        Err(ControlError::BadAnswer(what))
    }
}

/// `clew ps --format json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// The scheme's name.
    pub scheme: String,
    /// The budget: what all managed apps, the pool and the daemon may use together.
    pub budget_bytes: u64,
    /// What they use.
    pub used_bytes: u64,
    /// What that is made of.
    #[serde(default)]
    pub used: UsedBytes,
    /// Resident memory of the daemon beyond the pool.
    pub daemon_bytes: u64,
    /// Pages that page tables know, wherever they are: what the daemon takes grows with them.
    #[serde(default)]
    pub managed_pages: u64,
    /// The least budget in which no app would thrash; `None` while none does.
    #[serde(default)]
    pub enough_budget_bytes: Option<u64>,
    /// Processor time of the daemon since it began, seconds.
    #[serde(default)]
    pub daemon_cpu_seconds: f64,
    /// How long it has governed, seconds.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// Process id of its keeper, which holds all descriptors should the daemon die.
    pub keeper_pid: u32,
    /// Where faulting threads are kept during a relaunch: `narrow` or `free`.
    pub placement: String,
    /// The pool.
    pub pool: PoolStatus,
    /// The places for stored pages.
    #[serde(default)]
    pub tiers: Vec<TierStatus>,
    /// Counts over all apps, ended ones included, since the daemon began.
    #[serde(default)]
    pub totals: Totals,
    /// How long faults that brought a stored page back took, from the fault thread's being woken to
    /// its answer.
    #[serde(default)]
    pub stored_fault_latency: Latency,
    /// The same of first touches of fresh memory.
    #[serde(default)]
    pub fresh_fault_latency: Latency,
    /// What the engine and the scheme's policies count.
    #[serde(default)]
    pub policies: Vec<PolicyMetric>,
    /// What came back before it was asked for.
    #[serde(default)]
    pub early: EarlyStatus,
    /// What is known of the use of resident pages.
    #[serde(default)]
    pub sensor: SensorStatus,
    /// Programs whose records were found damaged at a takeover: they wait, and what is stored of them
    /// is kept.
    #[serde(default)]
    pub lost_programs: u64,
    /// Apps that were ended because memory was short (`on_full = "kill"`), oldest first.
    #[serde(default)]
    pub ended_apps: Vec<String>,
    /// Apps in the order of their names.
    pub apps: Vec<AppStatus>,
}

/// What counts towards the budget, in [`Status`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct UsedBytes {
    /// Resident anonymous memory of the apps' processes, managed or waiting to be.
    pub programs_bytes: u64,
    /// Buffers by which pages leave programs.
    pub buffers_bytes: u64,
    /// The pool.
    pub pool_bytes: u64,
    /// What lent pages take in the kernel's zram.
    pub kernel_bytes: u64,
    /// The daemon's own memory and its page tables.
    pub daemon_bytes: u64,
}

impl UsedBytes {
    /// All of it.
    pub fn total(&self) -> u64 {
        let UsedBytes { programs_bytes, buffers_bytes, pool_bytes, kernel_bytes, daemon_bytes } =
            self;
        [buffers_bytes, pool_bytes, kernel_bytes, daemon_bytes]
            .into_iter()
            .fold(*programs_bytes, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The pool, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct PoolStatus {
    /// Memory taken, allocator overhead included.
    pub used_bytes: u64,
    /// Memory it may take.
    pub limit_bytes: u64,
    /// Pages stored, kept copies of resident pages included.
    pub stored_pages: u64,
    /// Original bytes / bytes used.
    pub ratio: f64,
    /// It had no room when last asked; nothing leaves the programs until it has.
    pub full: bool,
    /// Copies kept of pages that are resident again, found valid when the page left again.
    pub reused_pages: u64,
    /// Damaged copies found. Never expected.
    pub corrupt_pages: u64,
}

/// A place for stored pages, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct TierStatus {
    /// `pool`, `kernel`, `flash` or `remote`.
    pub tier: String,
    /// Memory or space taken, overhead included.
    pub used_bytes: u64,
    /// What it may take; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// Pages stored.
    pub stored_pages: u64,
    /// Pages it may store; `None` without a limit.
    pub limit_pages: Option<u64>,
}

/// Counts over all apps, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Totals {
    /// Faults that brought a stored page back.
    pub demand_faults: u64,
    /// Faults on memory that held nothing.
    pub fresh_faults: u64,
    /// Faults on pages that were back already.
    pub spurious_faults: u64,
    /// Pages brought back without a fault.
    pub restored_pages: u64,
    /// Pages taken out and stored, in the pool or in the kernel's zram.
    pub swapped_out_pages: u64,
    /// Of these, pages given to the kernel's zram.
    #[serde(default)]
    pub lent_pages: u64,
    /// Pages found back from there: the kernel's own faults.
    #[serde(default)]
    pub lent_back_pages: u64,
    /// Of those that were taken out, pages of zeros.
    pub zero_pages: u64,
    /// Pages taken out and given back at once: asked for meanwhile, or no room.
    pub returned_pages: u64,
    /// Pages brought back early that were then used.
    pub prefetch_used_pages: u64,
    /// Pages found present where they were known as stored. Never expected.
    pub conflicts: u64,
    /// Events that the policies were not told because too many came at once.
    pub lost_events: u64,
    /// Rounds of faults that waited 0.2 ms because more than the budget was used.
    pub room_waits: u64,
}

/// A number of the engine or a policy, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct PolicyMetric {
    /// Its name, the unit last.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// What it counts.
    pub help: String,
}

/// Pages of the classes that a scheme may keep, in [`AppStatus`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct ClassStatus {
    /// Used in relaunches.
    pub hot: ClassPages,
    /// Used later.
    pub warm: ClassPages,
    /// Not used since the launch.
    pub cold: ClassPages,
}

/// Pages of one class.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct ClassPages {
    /// Resident.
    pub resident_pages: u64,
    /// Stored, or on their way out.
    pub out_pages: u64,
}

impl ClassPages {
    /// Wherever they are.
    pub fn pages(&self) -> u64 {
        self.resident_pages.saturating_add(self.out_pages)
    }
}

/// What came back before it was asked for, in [`Status`]. Whether a page was then used is known only
/// of those that were parked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct EarlyStatus {
    /// Pages that prefetch has asked for.
    pub asked_pages: u64,
    /// Of these, pages that are on their way now.
    pub coming_pages: u64,
    /// Pages that came back so, resident or parked, with the rest of their blocks.
    pub early_pages: u64,
    /// Pages made resident by a fault on another page of their block.
    pub along_pages: u64,
    /// Pages parked now; the daemon's memory counts them.
    pub parked_pages: u64,
    /// Pages parked since it began.
    pub parked_total_pages: u64,
    /// Of these, pages used while they were parked.
    pub used_pages: u64,
    /// Of these, pages stored again unused.
    pub expired_pages: u64,
}

/// The pages of one process that the scheme holds for hot: it expects the next relaunch to use them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct HotPages {
    /// Process id.
    pub pid: u32,
    /// Runs of neighbours: address of the first page, number of pages; ascending.
    pub runs: Vec<(u64, u64)>,
}

/// What is known of the use of resident pages, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct SensorStatus {
    /// Pages taken out to see whether they are used, since it began.
    pub sampled_pages: u64,
    /// First touches of a run of them.
    pub touches: u64,
    /// Pages of them that a relaunch did not touch.
    pub unused_pages: u64,
}

/// One app, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct AppStatus {
    /// Its name.
    pub name: String,
    /// `foreground` or `background`.
    pub state: String,
    /// Its processes.
    pub processes: Vec<ProcessStatus>,
    /// Resident anonymous memory of its managed processes.
    pub resident_bytes: u64,
    /// Pages that are stored and not in their programs.
    pub stored_pages: u64,
    /// Of these, pages with a decompressed copy at hand.
    #[serde(default)]
    pub parked_pages: u64,
    /// Of the stored pages, those in the kernel's zram, as far as is known: it brings them back without
    /// a word.
    #[serde(default)]
    pub lent_pages: u64,
    /// Original bytes / pool bytes of stored pages, of large programs by a sample; 0 while nothing is
    /// stored.
    pub ratio: f64,
    /// Faults served since it began, first touches of fresh memory included.
    pub faults: u64,
    /// Faults among them that brought a stored page back.
    pub demand_faults: u64,
    /// Time that those took in the daemon, from being read to their answer, in nanoseconds. The
    /// program waits longer: until it is woken.
    #[serde(default)]
    pub fault_ns: u64,
    /// Of it, reading the store: decompression and checksum.
    #[serde(default)]
    pub fault_codec_ns: u64,
    /// Time that the fault threads spent on pages that came along with those, when the program ran
    /// again, in nanoseconds: not part of `fault_ns`.
    #[serde(default)]
    pub fault_along_ns: u64,
    /// Pages found back from the kernel's zram since it began: its own faults.
    #[serde(default)]
    pub lent_back_pages: u64,
    /// Pages restored (faults, siblings, prefetches) since it began.
    pub restored_pages: u64,
    /// Pages taken out since it began.
    pub swapped_out_pages: u64,
    /// Pages brought back early (prefetched, or with a block of theirs) that were then used.
    #[serde(default)]
    pub prefetch_used_pages: u64,
    /// Processor time of its living processes, seconds.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Its pages by class; `None` where the scheme keeps none.
    #[serde(default)]
    pub classes: Option<ClassStatus>,
    /// Its memory that Clew cannot take.
    #[serde(default)]
    pub outside: OutsideStatus,
    /// It thrashes; `None` if not.
    #[serde(default)]
    pub thrashing: Option<ThrashingStatus>,
}

/// Memory of an app that Clew cannot take, in [`AppStatus`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct OutsideStatus {
    /// All of it.
    pub bytes: u64,
    /// Of it, shared memory of all its processes, each page once.
    pub shared_bytes: u64,
    /// Processes that are not managed, the largest first, sixteen at most.
    pub processes: Vec<OutsideProcess>,
}

/// A process that is not managed, in [`OutsideStatus`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct OutsideProcess {
    /// Process id.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Its user.
    pub uid: u32,
    /// Its resident anonymous bytes.
    pub bytes: u64,
    /// Why it is not managed, as far as that can be told.
    pub reason: String,
}

/// An app whose pages leave, come back at once and leave again, in [`AppStatus`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ThrashingStatus {
    /// Share of the time that its faults on such pages took, per cent.
    pub lost_percent: f64,
    /// Pages that would have to be resident besides.
    pub missing_pages: u64,
    /// The budget that would end it.
    pub enough_budget_bytes: u64,
}

/// One process, in [`AppStatus`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Whether its memory can be taken out.
    pub managed: bool,
    /// Why not, if not.
    pub reason: String,
    /// Resident anonymous bytes.
    pub resident_bytes: u64,
    /// Pages stored.
    pub stored_pages: u64,
    /// Faults served since it began.
    #[serde(default)]
    pub faults: u64,
    /// Pages taken out since it began.
    #[serde(default)]
    pub swapped_out_pages: u64,
}

/// Why a control call failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no daemon serves {path}: {source} (start one with 'clew daemon')")]
    NoDaemon { path: PathBuf, source: std::io::Error },
    #[error(
        "the daemon that served {path} (process {pid}) is dead; its keeper holds its programs' \
         pages, and they wait: 'clew daemon' with the same socket takes over"
    )]
    Dead { path: PathBuf, pid: u32 },
    #[error("the daemon at {path} does not answer: {source}")]
    NoAnswer { path: PathBuf, source: std::io::Error },
    #[error("nothing at {path} is to be relied upon: {source}")]
    Untrusted { path: PathBuf, source: PathError },
    #[error(
        "user {uid} serves {path}, not you or root: nothing was sent there (name another socket, or \
         ask as that user)"
    )]
    Foreign { path: PathBuf, uid: u32 },
    #[error("the daemon at {path} answers with more than {most} bytes")]
    Endless { path: PathBuf, most: usize },
    #[error("the daemon's answer makes no sense: {0}")]
    BadAnswer(String),
    #[error("too many clients of the daemon at {path} wait for answers: try again")]
    Busy { path: PathBuf },
    #[error("the daemon at {path} is ending: it takes no new work")]
    Ending { path: PathBuf },
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Whether a daemon is ending: it says so, or the connection ended before an answer came.
    pub fn is_ended(&self) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match self {
            ControlError::Ending { .. } => true,
            ControlError::NoAnswer { source, .. } => {
                matches!(source.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
            }
            _ => false,
        }
    }
}

/// A connection to a daemon.
///
/// The keeper of a dead daemon keeps its listening socket, and what it had accepted, and answers
/// nothing: so the daemon itself is watched, where its process can be seen.
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    daemon: Option<ProcessName>,
    used: Instant,
}

/// How often a client that waits looks whether its daemon lives.
const LOOK: Duration = Duration::from_millis(500);

/// How long a client waits before it asks again a daemon that has too many.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// `Stop` and `SwapOut` may take a while; a daemon that is silent for longer is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// The same for what is answered at once.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);

/// A connection that was not used for so long is not used any more: the daemon is about to close it.
const FRESH: Duration = IDLE.checked_div(2).expect("not by zero");

/// Characters of what a server says that are shown.
const MAX_MESSAGE: usize = 500;

impl Request {
    /// Whether a daemon that is ending refuses it at once: it begins something new. (Swap-outs, which
    /// have many steps, are refused at each.)
    pub(crate) fn makes_work(&self) -> bool {
        match self {
            Request::Environment
            | Request::Started { .. }
            | Request::Fg { .. }
            | Request::Bg { .. }
            | Request::Restore { .. } => true,
            Request::Status
            | Request::SwapOut { .. }
            | Request::Responded { .. }
            | Request::HotPages { .. }
            | Request::Stop
            | Request::HandOver => false,
        }
    }

    /// Whether it is answered only when work for it is done, of which any number may be ordered.
    pub(crate) fn takes_a_while(&self) -> bool {
        matches!(self, Request::SwapOut { .. } | Request::Restore { .. })
    }

    /// Most bytes of its answer.
    fn most_answered(&self) -> usize {
        match self {
            Request::Status | Request::HotPages { .. } => MAX_ANSWER,
            _ => MAX_SHORT_ANSWER,
        }
    }

    fn patience(&self) -> Duration {
        match self.takes_a_while() || *self == Request::Stop {
            true => PATIENCE,
            false => SHORT_PATIENCE,
        }
    }
}

/// Appends what has come of a line; whether that is its end.
///
/// # Errors
/// Those of reading; `UnexpectedEof` where it ends without an end of line, `InvalidData` where it has
/// more than `most` bytes.
pub(crate) fn read_part(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<bool> {
    let come = reader.fill_buf()?;
    if come.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let end = come.iter().position(|byte| *byte == b'\n');
    let part = &come[..end.map_or(come.len(), |at| at + 1)];
    if line.len() + part.len() > most {
        return Err(ErrorKind::InvalidData.into());
    }
    line.extend_from_slice(part);
    let taken = part.len();
    reader.consume(taken);
    Ok(end.is_some())
}

/// What a server says, so short that it floods nobody and on one line, so that none is taken for Clew's.
fn in_one_line(said: &str) -> String {
    let first: String = said.chars().take(MAX_MESSAGE).collect();
    shown(&first).chars().take(MAX_MESSAGE).collect()
}

impl Client {
    /// Connects to the daemon that serves `path`: this user's, or root's.
    pub fn connect(path: &Path) -> Result<Client, ControlError> {
        let fail = |source| ControlError::NoDaemon { path: path.to_path_buf(), source };
        trusted_path::check(trusted_path::directory_of(path)).map_err(|error| match error {
            PathError::File { source, .. } => fail(source),
            source => ControlError::Untrusted { path: path.to_path_buf(), source },
        })?;
        let address = SockAddr::unix(path).map_err(fail)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(fail)?;
        socket.set_write_timeout(Some(LOOK)).map_err(fail)?;
        socket.set_read_timeout(Some(LOOK)).map_err(fail)?;
        let began = Instant::now();
        // Where too many wait to be accepted, connecting waits too.
        while let Err(error) = socket.connect(&address) {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(fail(error));
            }
            if let Some(dead) = predecessor::server(path).ok().flatten().filter(|d| !d.is_alive()) {
                return Err(ControlError::Dead { path: path.to_path_buf(), pid: dead.pid });
            }
            if began.elapsed() > PATIENCE {
                let source = ErrorKind::TimedOut.into();
                return Err(ControlError::NoAnswer { path: path.to_path_buf(), source });
            }
        }
        let stream = UnixStream::from(OwnedFd::from(socket));
        stream.set_write_timeout(Some(SHORT_PATIENCE)).map_err(fail)?;
        let peer = seqpacket::peer(&stream).map_err(fail)?;
        if peer.uid != own_uid() && peer.uid != 0 {
            return Err(ControlError::Foreign { path: path.to_path_buf(), uid: peer.uid });
        }
        let pid = peer.pid as u32;
        let daemon = ProcessName::of(pid).ok();
        let client = Client {
            path: path.to_path_buf(),
            reader: BufReader::new(stream),
            daemon,
            used: Instant::now(),
        };
        if pid > 0 && !daemon.is_some_and(|d| d.is_alive()) {
            return Err(ControlError::Dead { path: client.path, pid });
        }
        Ok(client)
    }

    /// Asks and waits for the answer, on a new connection if this one was idle for long; again where
    /// the daemon has too many clients.
    pub fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
        let until = Instant::now() + request.patience();
        loop {
            // Nothing can come unasked: it was closed.
            let is_closed = seqpacket::is_readable(self.reader.get_ref(), Duration::ZERO);
            if is_closed || self.used.elapsed() > FRESH {
                *self = Client::connect(&self.path)?;
            }
            match self.call_within(request, request.patience()) {
                Err(ControlError::Busy { .. }) if Instant::now() < until => {
                    std::thread::sleep(TRY_AGAIN);
                }
                answer => return answer,
            }
        }
    }

    fn call_within<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<T, ControlError> {
        let fail = |source| ControlError::NoAnswer { path: self.path.clone(), source };
        let nonsense = |e: serde_json::Error| ControlError::BadAnswer(in_one_line(&e.to_string()));
        let mut line = serde_json::to_string(request).map_err(nonsense)?;
        line.push('\n');
        match self.reader.get_mut().write_all(line.as_bytes()) {
            // It may have said why it hung up.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(fail(error)),
            _ => {}
        }
        let (mut answer, most) = (Vec::new(), request.most_answered());
        let began = Instant::now();
        loop {
            match read_part(&mut self.reader, &mut answer, most) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(ControlError::Endless { path: self.path.clone(), most });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(dead) = self.daemon.filter(|d| !d.is_alive()) {
                        return Err(ControlError::Dead { path: self.path.clone(), pid: dead.pid });
                    }
                }
                Err(error) => return Err(fail(error)),
            }
            if began.elapsed() > patience {
                return Err(fail(ErrorKind::TimedOut.into()));
            }
        }
        self.used = Instant::now();
        match serde_json::from_slice::<Reply<T>>(&answer).map_err(nonsense)? {
            Reply::Ok { value } => Ok(value),
            Reply::Error { message } if message == BUSY => {
                Err(ControlError::Busy { path: self.path.clone() })
            }
            Reply::Error { message } if message == ENDING => {
                Err(ControlError::Ending { path: self.path.clone() })
            }
            Reply::Error { message } => Err(ControlError::Refused(in_one_line(&message))),
        }
    }

    /// The state of everything.
    pub fn status(&mut self) -> Result<Status, ControlError> {
        self.call(&Request::Status)
    }

    /// A request whose answer carries nothing.
    pub fn order(&mut self, request: &Request) -> Result<(), ControlError> {
        self.call::<()>(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of a server that does this with its connection.
    fn client_of(serve: impl FnOnce(UnixStream) + Send + 'static) -> Client {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_read_timeout(Some(LOOK)).expect("a limit");
        std::thread::spawn(move || serve(theirs));
        let path = PathBuf::from("/nowhere");
        Client { path, reader: BufReader::new(ours), daemon: None, used: Instant::now() }
    }

    #[test]
    fn a_server_that_never_ends_its_answer_is_left() {
        let mut endless =
            client_of(|mut stream| while stream.write_all(&[b' '; 1 << 16]).is_ok() {});
        let answer = endless.call_within::<()>(&Request::Status, 10 * PATIENCE);
        assert!(matches!(answer, Err(ControlError::Endless { .. })), "{answer:?}");
        let mut drips = client_of(|mut stream| {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let answer = drips.call_within::<()>(&Request::Status, Duration::from_millis(100));
        assert!(matches!(answer, Err(ControlError::NoAnswer { .. })), "{answer:?}");
    }

    #[test]
    fn a_line_is_no_longer_than_its_reader_takes() {
        let read = |text: &[u8], most| {
            // As it comes from a socket: in parts.
            let (mut reader, mut line) = (BufReader::with_capacity(16, text), Vec::new());
            loop {
                match read_part(&mut reader, &mut line, most) {
                    Ok(false) => assert!(line.len() <= most, "{} of {most}", line.len()),
                    Ok(true) => return Ok(line),
                    Err(error) => return Err(error.kind()),
                }
            }
        };
        let text = [&[b'x'; 99][..], b"\nmore"].concat();
        assert_eq!(read(&text, 100).as_deref(), Ok(&text[..100]));
        assert_eq!(read(&text, 99), Err(ErrorKind::InvalidData));
        assert_eq!(read(&text[..99], 100), Err(ErrorKind::UnexpectedEof));
    }

    #[test]
    fn who_is_turned_away_comes_again() {
        let dir = std::env::temp_dir().join(format!("clew-busy-{}", std::process::id()));
        trusted_path::make(&dir, 0o700).expect("a directory");
        let path = dir.join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("it is bound");
        let server = std::thread::spawn(move || {
            let busy = Reply::<()>::Error { message: BUSY.to_string() };
            let busy = serde_json::to_string(&busy).expect("JSON") + "\n";
            // Before it has asked, and after.
            for asked in [false, true] {
                let (stream, _) = listener.accept().expect("it comes");
                if asked {
                    let _ = BufReader::new(&stream).read_line(&mut String::new());
                }
                let _ = (&stream).write_all(busy.as_bytes());
            }
            let (stream, _) = listener.accept().expect("it comes again");
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = (&stream).write_all(b"{\"result\":\"ok\",\"value\":null}\n");
        });
        let mut client = Client::connect(&path).expect("it is served");
        client.order(&Request::Stop).expect("in the end");
        server.join().expect("it was asked three times");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn what_a_server_says_is_bounded() {
        let mut client = client_of(|mut stream| {
            let message = "\u{1b}x".repeat(1 << 20);
            let answer = serde_json::to_vec(&Reply::<()>::Error { message }).expect("JSON");
            let _ = stream.write_all(&answer).and_then(|()| stream.write_all(b"\n"));
        });
        match client.call_within::<()>(&Request::Status, PATIENCE) {
            Err(ControlError::Refused(message)) => {
                assert_eq!(message.chars().count(), MAX_MESSAGE);
            }
            other => panic!("{other:?}"),
        }
        let mut client = client_of(|mut stream| {
            let _ = stream.write_all(" ".repeat(MAX_SHORT_ANSWER).as_bytes());
            let _ = stream.write_all(b"{\"result\":\"ok\",\"value\":null}\n");
        });
        let answer = client.call_within::<()>(&Request::Stop, PATIENCE);
        assert!(
            matches!(&answer, Err(ControlError::Endless { most: MAX_SHORT_ANSWER, .. })),
            "{answer:?}"
        );
        for said in ["{\"result\":\"#\"}\n", "{\"result\":\"ok\",\"value\":\"#\"}\n"] {
            let said = said.replace('#', &"B".repeat(1 << 20));
            let mut client = client_of(move |mut stream| {
                let _ = stream.write_all(said.as_bytes());
            });
            match client.call_within::<()>(&Request::Status, PATIENCE) {
                Err(ControlError::BadAnswer(what)) => {
                    assert_eq!(what.chars().count(), MAX_MESSAGE);
                }
                other => panic!("{other:?}"),
            }
        }
        let mut client = client_of(|mut stream| {
            let _ = stream
                .write_all(b"{\"result\":\"error\",\"message\":\"no\\nclew: all is well\"}\n");
        });
        let answer = client.call_within::<()>(&Request::Status, PATIENCE);
        assert!(
            matches!(&answer, Err(ControlError::Refused(m)) if m == "no\\nclew: all is well"),
            "{answer:?}"
        );
    }

    #[test]
    fn sums_of_what_a_server_says_end_somewhere() {
        let (programs_bytes, pool_bytes) = (u64::MAX, 1);
        let used = UsedBytes { programs_bytes, pool_bytes, ..UsedBytes::default() };
        assert_eq!(used.total(), u64::MAX);
        let class = ClassPages { resident_pages: u64::MAX, out_pages: u64::MAX };
        assert_eq!(class.pages(), u64::MAX);
    }

    #[test]
    fn an_environment_names_a_socket() {
        let of = |at: &str| Environment { agent_socket: at.into(), agent_protocol: 1 };
        for bad in ["", "agents", "/a\0b", &format!("/{}", "x".repeat(200))] {
            assert!(of(bad).check().is_err(), "{bad}");
        }
        assert!(of("/run/clew/clew.agents").check().is_ok());
    }
}

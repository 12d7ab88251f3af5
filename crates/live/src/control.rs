//! The control protocol: one JSON object a line over a unix socket, an answer to each request.
//!
//! The first line a peer sends decides what it is: a [`Request`] makes it a client of this
//! protocol. (Agents speak another one, on a socket of their own.)

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::latency::Latency;
use crate::predecessor::{self, ProcessName};
use crate::seqpacket;

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
    /// For `LD_PRELOAD`.
    pub agent_object: PathBuf,
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
    /// Resident memory of the daemon beyond the pool.
    pub daemon_bytes: u64,
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
        self.resident_pages + self.out_pages
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
    #[error("the daemon's answer makes no sense: {0}")]
    BadAnswer(#[from] serde_json::Error),
    #[error("{0}")]
    Refused(String),
}

/// A connection to a daemon.
///
/// The keeper of a dead daemon keeps its listening socket, and what it had accepted, and answers
/// nothing: so the daemon itself is watched, where its process can be seen.
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    daemon: Option<ProcessName>,
}

/// How often a client that waits looks whether its daemon lives.
const LOOK: Duration = Duration::from_millis(500);

/// `Stop` and `SwapOut` may take a while; a daemon that is silent for longer is broken.
const PATIENCE: Duration = Duration::from_secs(120);

impl Client {
    /// Connects to the daemon that serves `path`.
    pub fn connect(path: &Path) -> Result<Client, ControlError> {
        let fail = |source| ControlError::NoDaemon { path: path.to_path_buf(), source };
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
        stream.set_write_timeout(Some(PATIENCE)).map_err(fail)?;
        let pid = seqpacket::peer(&stream).map_or(0, |peer| peer.pid as u32);
        let daemon = ProcessName::of(pid).ok();
        let client = Client { path: path.to_path_buf(), reader: BufReader::new(stream), daemon };
        if pid > 0 && !daemon.is_some_and(|d| d.is_alive()) {
            return Err(ControlError::Dead { path: client.path, pid });
        }
        Ok(client)
    }

    /// Asks and waits for the answer.
    pub fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
        let fail = |source| ControlError::NoAnswer { path: self.path.clone(), source };
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes()).map_err(fail)?;
        let mut answer = Vec::new();
        let began = Instant::now();
        loop {
            match self.reader.read_until(b'\n', &mut answer) {
                Ok(_) if answer.ends_with(b"\n") => break,
                Ok(_) => return Err(fail(ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(dead) = self.daemon.filter(|d| !d.is_alive()) {
                        return Err(ControlError::Dead { path: self.path.clone(), pid: dead.pid });
                    }
                    if began.elapsed() > PATIENCE {
                        return Err(fail(ErrorKind::TimedOut.into()));
                    }
                }
                Err(error) => return Err(fail(error)),
            }
        }
        match serde_json::from_slice::<Reply<T>>(&answer)? {
            Reply::Ok { value } => Ok(value),
            Reply::Error { message } => Err(ControlError::Refused(message)),
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

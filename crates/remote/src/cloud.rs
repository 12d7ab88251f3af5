//! A Redis or Valkey server as the device of a log: what CloudSwap has for a cloud (MobileSwap IV-A), and an ordinary
//! user's way to lend memory without a donor of ours.
//!
//! A segment is a key, `clew:SESSION:OFFSET`, that expires if nobody renews it: a daemon that is gone for good leaves
//! nothing behind. What is asked for is sent in pipelines, as much at a time as waits. The server is no friend: it sees
//! sealed bytes only, and what it gives back is verified by the log. A server that may drop keys for want of memory is
//! refused: that would be the loss of a page.
//!
//! *When a link is cut* the server may not have read all that was sent on it, and would carry that out after what the
//! next link sends: an old UNLINK after a new SET loses a page. So each link bears the name of its session, and the
//! next one, also a successor's, has the server end all others of that name before it asks for anything. A server
//! that does not (its user may not call CLIENT KILL) gives back what it has, and takes nothing.

mod link;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clew_core::DonorState;
use clew_core::shown::beginning_shown;
use clew_store::flash::device::{Device, Read, Write};
use parking_lot::{Condvar, Mutex};
use redis::{IntoConnectionInfo, ServerErrorKind as Refused};

use link::Link;

use crate::Standing;
use crate::borrowed::{Lender, Single, forget_all};
use crate::lookup::Lookup;
use crate::patience::Patience;
use crate::queue::{Asked, Queues, What, Wrote, of_read, of_write};
use crate::secure::Session;

/// Characters of what a server says that are shown.
const MOST_SHOWN: usize = 200;

/// Keys that nobody renews are gone after so long.
const EXPIRY: Duration = Duration::from_secs(1800);
/// How often they are renewed.
const RENEWAL: Duration = Duration::from_secs(600);
/// How often the server is asked how it stands.
const LOOK: Duration = Duration::from_secs(1);
/// Of one pipeline.
const MOST_ASKED: usize = 32;
/// Keys renewed by one pipeline.
const MOST_RENEWED: usize = 1024;
/// It has so many times the patience that a donor has for saying which keys it has: it may have many of others.
const KEYS_TAKE: u32 = 20;
/// What a server without a limit is believed to have free.
const NO_LIMIT: u64 = 1 << 40;

struct Shared {
    queues: Mutex<Queues>,
    wakes: Condvar,
    server: redis::ConnectionInfo,
    prefix: String,
    /// A segment, bytes: what a key holds at most.
    segment: u64,
    /// The log, bytes.
    bytes: u64,
    patience: Patience,
    standing: Mutex<Standing>,
    sent: AtomicU64,
    received: AtomicU64,
    waiting: AtomicU64,
    /// A key is gone that somebody may ask for.
    has_lost: AtomicBool,
}

/// The server's memory. All methods may be called from any thread.
pub struct Cloud {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    address: String,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cloud({})", self.address)
    }
}

/// Why there is no cloud.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// It is no address.
    #[error("{address} is no address of a server: {why}")]
    Address { address: String, why: String },
    /// The system gives no thread.
    #[error("no thread: {0}")]
    Thread(#[from] io::Error),
}

impl Cloud {
    /// The server at `address` (`redis://HOST:PORT`), of which a log of segments of so many bytes may use `bytes`. It waits
    /// for nothing.
    ///
    /// # Errors
    /// See [`CloudError`].
    pub fn new(
        address: &str,
        session: Session,
        segment: u64,
        bytes: u64,
        patience: Patience,
    ) -> Result<Cloud, CloudError> {
        let refused = |why: String| CloudError::Address { address: address.to_string(), why };
        let server = address.into_connection_info().map_err(|error| refused(error.to_string()))?;
        let mut lookup = link::lookup(server.addr()).map_err(|why| refused(why.to_string()))?;
        let hex: String = session.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            wakes: Condvar::new(),
            server,
            prefix: format!("clew:{hex}:"),
            segment: segment.max(1),
            bytes,
            patience,
            standing: Mutex::new(Standing::unknown()),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
        });
        let works = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("clew-cloud".into());
        let worker = Some(named.spawn(move || run(&works, &mut lookup))?);
        Ok(Cloud { shared, worker, address: address.to_string() })
    }

    fn ask(&self, asked: Asked) {
        self.shared.waiting.fetch_add(asked.written_bytes(), Relaxed);
        self.shared.queues.lock().push(asked);
        self.shared.wakes.notify_one();
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.shared.queues.lock().ends = true;
        self.shared.wakes.notify_one();
        if let Some(worker) = self.worker.take()
            && worker.thread().id() != std::thread::current().id()
        {
            let _ = worker.join();
        }
    }
}

impl Lender for Cloud {
    fn standing(&self) -> Standing {
        let mut standing = Standing {
            sent_bytes: self.shared.sent.load(Relaxed),
            received_bytes: self.shared.received.load(Relaxed),
            waiting_bytes: self.shared.waiting.load(Relaxed),
            ..self.shared.standing.lock().clone()
        };
        if self.shared.has_lost.load(Relaxed) {
            standing.state = DonorState::Lost;
            standing.why = Some("it has lost keys".to_string());
        }
        standing
    }

    fn forgive(&self) {
        self.shared.has_lost.store(false, Relaxed);
    }

    fn say_goodbye(&self, patience: Duration) {
        forget_all(self, patience);
    }
}

impl Single for Cloud {
    fn put(&self, at: u64, bytes: Vec<u8>, told: Wrote) {
        self.ask(Asked::now(at, What::Write { bytes, told }, false));
    }

    fn take_loss(&self) -> bool {
        self.shared.has_lost.swap(false, AcqRel)
    }
}

impl Device for Cloud {
    fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// Nothing goes over the link that nobody needs.
    fn align(&self) -> usize {
        1
    }

    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>> {
        of_write(write, |at, bytes, told| self.put(at, bytes, told))
    }

    fn read(&self, read: Read) {
        self.ask(of_read(read));
    }

    fn forget(&self, at: u64, len: usize) {
        self.ask(Asked::now(at, What::Forget { len: len as u64 }, false));
    }

    fn way(&self) -> &'static str {
        "a Redis server"
    }
}

/// Works until the end.
fn run(shared: &Shared, lookup: &mut Lookup) {
    let mut keys: BTreeSet<u64> = BTreeSet::new();
    let mut heard = Instant::now();
    while !shared.queues.lock().ends {
        let served =
            connect(shared, lookup).and_then(|server| serve(shared, server, &mut keys, &mut heard));
        if let Err(error) = served {
            let mut standing = shared.standing.lock();
            standing.cuts = standing.connections;
            standing.why = Some(few_words(&error));
        }
        let mut queues = shared.queues.lock();
        if !queues.ends {
            shared.wakes.wait_for(&mut queues, Duration::from_millis(100));
        }
        drop(queues);
        let is_lost = heard.elapsed() > shared.patience.donor;
        if is_lost {
            shared.standing.lock().lose();
        }
        give_up(shared, |asked| asked.is_late(&shared.patience, is_lost));
    }
    give_up(shared, |_| true);
}

/// What the server says, where a person reads it: it may say as much as an answer may have.
fn few_words(said: impl std::fmt::Display) -> String {
    /// Takes the beginning, and ends who writes then.
    struct Beginning(String);

    impl std::fmt::Write for Beginning {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend(text.chars().take(MOST_SHOWN));
            if self.0.len() < MOST_SHOWN { Ok(()) } else { Err(std::fmt::Error) }
        }
    }

    let mut beginning = Beginning(String::new());
    let _ = std::fmt::Write::write_fmt(&mut beginning, format_args!("{said}"));
    beginning_shown(&beginning.0, MOST_SHOWN)
}

fn connect(shared: &Shared, lookup: &mut Lookup) -> redis::RedisResult<Link> {
    Link::new(&shared.server, lookup, shared.patience.link)
}

/// How the server stands: what it would still take. One that may drop keys takes nothing.
fn look(server: &mut Link) -> redis::RedisResult<(u64, Option<String>)> {
    let info: String = redis::cmd("INFO").arg("memory").query(server)?;
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let number = |name| field(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (used, limit) = (number("used_memory"), number("maxmemory"));
    let drops = field("maxmemory_policy").filter(|policy| limit > 0 && *policy != "noeviction");
    let why = drops.map(|policy| {
        let policy = few_words(policy);
        format!("it drops keys ({policy}): set maxmemory-policy noeviction")
    });
    let free = if limit == 0 { NO_LIMIT } else { limit.saturating_sub(used) };
    Ok((free, why))
}

/// Has the server end all other links of this session: of what they had sent nothing is carried out any more when it
/// has answered. Why it does not, if it does not.
fn end_former(shared: &Shared, server: &mut Link) -> redis::RedisResult<Option<String>> {
    match ask_to_end_former(shared, server) {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some("it does not list its clients (CLIENT LIST)".to_string())),
        Err(error) => match error.kind() {
            redis::ErrorKind::Server(Refused::NoPerm | Refused::ResponseError) => {
                let allow = "its user needs CLIENT SETNAME, CLIENT LIST and CLIENT KILL";
                let said = few_words(&error);
                Ok(Some(format!("it ends no link that was cut: {allow} ({said})")))
            }
            _ => Err(error),
        },
    }
}

/// Whether it knows of this link at least.
fn ask_to_end_former(shared: &Shared, server: &mut Link) -> redis::RedisResult<bool> {
    let name = shared.prefix.trim_end_matches(':');
    // A link that has not been given its name yet was asked for nothing.
    redis::cmd("CLIENT").arg("SETNAME").arg(name).exec(server)?;
    let all: String = redis::cmd("CLIENT").arg("LIST").query(server.with_list())?;
    let field = |line: &str, name: &str| {
        line.split(' ')
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .map(String::from)
    };
    let of_session = all.lines().filter(|line| field(line, "name").as_deref() == Some(name));
    let ids: Vec<String> = of_session.filter_map(|line| field(line, "id")).collect();
    // Asked of this link, too, which is left alone: so it is known from the first link on whether this may be asked.
    for id in &ids {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id).arg("SKIPME").arg("yes").exec(server)?;
    }
    Ok(!ids.is_empty())
}

fn serve(
    shared: &Shared,
    mut server: Link,
    keys: &mut BTreeSet<u64>,
    heard: &mut Instant,
) -> redis::RedisResult<()> {
    let mut refused = end_former(shared, &mut server)?;
    let there = keys_there(shared, &mut server)?;
    if !keys.is_subset(&there) {
        shared.has_lost.store(true, Relaxed);
    }
    *keys = there;
    let mut looked: Option<Instant> = None;
    // A predecessor may have been gone for a while.
    let mut renewed: Option<Instant> = None;
    shared.standing.lock().connections += 1;
    loop {
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let began = Instant::now();
            let (free_bytes, drops) = look(&mut server)?;
            let round_trip = began.elapsed();
            if refused.is_some() {
                refused = end_former(shared, &mut server)?;
            }
            let why = refused.clone().or(drops);
            let mut standing = shared.standing.lock();
            standing.round_trip = Some(round_trip);
            standing.free_bytes = free_bytes;
            standing.state = if why.is_some() { DonorState::Weak } else { DonorState::Up };
            (standing.why, standing.in_vain) = (why, false);
            (looked, *heard) = (Some(Instant::now()), Instant::now());
        }
        if renewed.is_none_or(|renewed| renewed.elapsed() >= RENEWAL) {
            renewed = Some(Instant::now());
            for some in keys.iter().copied().collect::<Vec<u64>>().chunks(MOST_RENEWED) {
                let mut pipe = redis::pipe();
                for at in some {
                    pipe.cmd("EXPIRE").arg(key(shared, *at)).arg(EXPIRY.as_secs()).ignore();
                }
                pipe.query::<()>(&mut server)?;
            }
        }
        let mut asked = Vec::new();
        {
            let mut queues = shared.queues.lock();
            if queues.ends {
                return Ok(());
            }
            if queues.is_empty() {
                shared.wakes.wait_for(&mut queues, LOOK / 4);
            }
            while asked.len() < MOST_ASKED {
                let Queues { pressing, others, .. } = &mut *queues;
                // Who waits has a pipeline of his own.
                let next = match pressing.pop_front() {
                    Some(next) => Some(next),
                    None if asked.iter().any(Asked::is_read) => None,
                    None => others.pop_front(),
                };
                let Some(next) = next else { break };
                asked.push(next);
            }
        }
        if refused.is_some() {
            // What is still to come of a former link might undo it.
            let writes = asked.extract_if(.., |asked| matches!(asked.what, What::Write { .. }));
            turn_down(shared, writes.collect(), ErrorKind::StorageFull);
        }
        if asked.is_empty() {
            continue;
        }
        let mut pipe = redis::pipe();
        // One that has no room for a key answers the others all the same.
        pipe.ignore_errors();
        for Asked { at, what, .. } in &asked {
            let (start, skip) = (segment(shared, *at), at - segment(shared, *at));
            match what {
                What::Write { bytes, .. } if skip == 0 => {
                    let set = pipe.cmd("SET").arg(key(shared, start)).arg(bytes.as_slice());
                    set.arg("EX").arg(EXPIRY.as_secs());
                }
                What::Write { bytes, .. } => {
                    pipe.cmd("SETRANGE").arg(key(shared, start)).arg(skip).arg(bytes.as_slice());
                }
                What::Read { len, .. } => {
                    let to = skip + u64::from(*len) - 1;
                    pipe.cmd("GETRANGE").arg(key(shared, start)).arg(skip).arg(to);
                }
                What::Forget { len } => {
                    let end = start.saturating_add((*len).max(shared.segment));
                    let there: Vec<u64> = keys.range(start..end).copied().collect();
                    let unlink = pipe.cmd("UNLINK").arg(key(shared, start));
                    for at in there {
                        // Its loss is none, whether the answer comes or not.
                        keys.remove(&at);
                        unlink.arg(key(shared, at));
                    }
                }
            }
        }
        let pages = asked.iter().map(|asked| match asked.what {
            What::Read { len, .. } => u64::from(len),
            What::Write { .. } | What::Forget { .. } => 0,
        });
        let pages = pages.sum();
        let answers: redis::RedisResult<Vec<redis::Value>> = pipe.query(server.with_pages(pages));
        let answers = match answers {
            Ok(answers) if answers.len() == asked.len() => answers,
            failed => {
                // It is asked again on the next link, in the same order.
                shared.queues.lock().push_again(asked.into_iter());
                return failed.map(drop);
            }
        };
        *heard = Instant::now();
        for (Asked { at, what, .. }, answer) in asked.into_iter().zip(answers) {
            match (what, answer) {
                (What::Write { bytes, told }, redis::Value::Okay | redis::Value::Int(_)) => {
                    keys.insert(segment(shared, at));
                    shared.waiting.fetch_sub(bytes.len() as u64, Relaxed);
                    shared.sent.fetch_add(bytes.len() as u64, Relaxed);
                    told(Ok(()));
                }
                (What::Write { bytes, told }, _) => {
                    shared.waiting.fetch_sub(bytes.len() as u64, Relaxed);
                    told(Err(ErrorKind::StorageFull.into()));
                }
                (What::Read { told, .. }, redis::Value::BulkString(bytes)) if !bytes.is_empty() => {
                    shared.received.fetch_add(bytes.len() as u64, Relaxed);
                    told(Ok(bytes));
                }
                (What::Read { told, .. }, _) => {
                    shared.has_lost.fetch_or(keys.contains(&segment(shared, at)), Relaxed);
                    told(Err(io::Error::new(ErrorKind::NotFound, "the server does not have it")));
                }
                (What::Forget { .. }, _) => {}
            }
        }
    }
}

/// Where the segment begins that has byte `at`.
fn segment(shared: &Shared, at: u64) -> u64 {
    // A device has a block in front of its first segment, which is asked for where everything is to be forgotten.
    let head = clew_store::flash::device::HEAD_BYTES;
    at.checked_sub(head).map_or(0, |at| at / shared.segment * shared.segment + head)
}

fn key(shared: &Shared, at: u64) -> String {
    format!("{}{at}", shared.prefix)
}

/// What nobody can wait for any longer.
fn give_up(shared: &Shared, is_over: impl Fn(&Asked) -> bool) {
    let over = shared.queues.lock().take_out(is_over);
    turn_down(shared, over, ErrorKind::TimedOut);
}

fn turn_down(shared: &Shared, asked: Vec<Asked>, why: ErrorKind) {
    for asked in asked {
        shared.waiting.fetch_sub(asked.written_bytes(), Relaxed);
        asked.fail(why);
    }
}

/// The keys of this session that the server has: a successor has to renew what it has not written. The server may name
/// what it likes, and go on for ever: only what can be a segment's is kept, and nobody waits for it for long.
fn keys_there(shared: &Shared, server: &mut Link) -> redis::RedisResult<BTreeSet<u64>> {
    let (mut there, mut cursor) = (BTreeSet::new(), 0u64);
    let (began, most) = (Instant::now(), shared.patience.donor * KEYS_TAKE);
    loop {
        if shared.queues.lock().ends || began.elapsed() > most {
            let why = "it does not come to an end of its keys";
            return Err(io::Error::new(ErrorKind::TimedOut, why).into());
        }
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{}*", shared.prefix)).arg("COUNT").arg(1000);
        let (next, some): (u64, Vec<String>) = scan.query(server.with_list())?;
        let at = |key: &String| key.strip_prefix(&shared.prefix)?.parse::<u64>().ok();
        let is_segments = |at: &u64| *at < shared.bytes && segment(shared, *at) == *at;
        there.extend(some.iter().filter_map(at).filter(is_segments));
        if next == 0 {
            return Ok(there);
        }
        cursor = next;
    }
}

#[cfg(test)]
mod tests;

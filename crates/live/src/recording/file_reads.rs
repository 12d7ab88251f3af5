//! What managed programs, and what they have started, use of files, for a recording.
//!
//! A thread of its own puts two streams together: which pages of which inodes are used ([`super::page_cache`]), and which
//! files are opened ([`super::opened_files`]), whose contents it reads. The page cache belongs to nobody: all files are
//! of one app, which never ends, each in a space of its own.
//!
//! With windows, mappings of files are taken from a program as well (MADV_PAGEOUT), so that what it touches next is
//! heard again; of pages that others have mapped, too, the kernel lets it keep them.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clew_core::{AccessKind, AppId, Ns, PageId, SPACES, SpaceId, Vpn};
use clew_trace::Record;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::family::Family;
use super::opened_files::OpenedFiles;
use super::page_cache::{FileName, PageCache, Told, Use};
use super::recorder::Pencil;
use crate::limits::MAX_SPACES;
use crate::programs::advice::{advise, pidfd};
use crate::programs::mappings;
use crate::programs::proc_stat::open_of_process;
use crate::programs::shared::Shared;

/// Whose spaces files are. No app of programs has this number.
const FILES: AppId = AppId(0);
/// What the app of all files is called.
const NAME: &str = "files";
/// How often is looked at what happened.
const ROUND: Duration = Duration::from_millis(5);
/// So long a process may take until it is managed: what it read before counts then.
const PATIENCE: Duration = Duration::from_secs(3);
/// Uses that wait for that, at most.
const WAITING: usize = 1 << 17;
/// Pages that a read that does not go on is taken to have come by, at most: a large folio of the page cache.
const PIECE: u64 = 512;
/// Pages of one round that are remembered to be told.
const ONE_ROUND: usize = 1 << 17;
/// Pages whose contents are remembered to be recorded: of 16 GiB of files.
const RECORDED: usize = 1 << 22;
/// Pages of a file that can have a name here: 64 PiB of it.
const PAGES: u64 = 1 << 44;

/// What the kernel tells of files.
pub struct FileStreams {
    opened: OpenedFiles,
    page_cache: PageCache,
}

impl FileStreams {
    /// Listens from now on.
    ///
    /// # Errors
    /// The kernel does not tell it (root, Linux 6.11).
    pub fn listen() -> io::Result<FileStreams> {
        Ok(FileStreams {
            opened: OpenedFiles::listen(2 * PATIENCE)?,
            page_cache: PageCache::listen()?,
        })
    }
}

/// The thread; it ends when this is dropped.
pub struct FileReads {
    windows: Option<Sender<Vec<u32>>>,
    thread: Option<JoinHandle<()>>,
}

impl FileReads {
    /// Begins. Times are since `started`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        streams: FileStreams,
        pencil: Pencil,
        shared: Arc<Shared>,
        started: Instant,
    ) -> io::Result<FileReads> {
        let (windows, asked) = unbounded();
        let listener = Listener {
            shared,
            started,
            streams,
            pencil,
            people: Family::default(),
            waiting: HashMap::new(),
            waits: 0,
            begun: HashMap::new(),
            told: HashSet::new(),
            files: HashMap::new(),
            recorded: 0,
            without_contents: 0,
            crowded: 0,
            unknown: 0,
        };
        let body = move || listener.run(&asked);
        let thread = std::thread::Builder::new().name("file-reads".into()).spawn(body)?;
        Ok(FileReads { windows: Some(windows), thread: Some(thread) })
    }

    /// A window of these processes begins.
    pub fn begin_window(&self, pids: Vec<u32>) {
        if let Some(windows) = &self.windows {
            let _ = windows.send(pids);
        }
    }
}

impl Drop for FileReads {
    fn drop(&mut self) {
        drop(self.windows.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// What is known of a file that was read.
struct Known {
    space: SpaceId,
    /// Its size and when it was changed last, when its pages were read.
    stamp: (u64, i64, i64),
    /// Pages whose contents were recorded since.
    recorded: HashSet<u64>,
}

struct Listener {
    shared: Arc<Shared>,
    started: Instant,
    streams: FileStreams,
    pencil: Pencil,
    people: Family,
    /// By process, what may be of a program that is managed later.
    waiting: HashMap<u32, Waiting>,
    /// How many uses that is.
    waits: usize,
    /// The last use of each process in this round, of which is not known yet how far it goes.
    begun: HashMap<u32, Use>,
    /// Pages that were told in this round, and are not told again.
    told: HashSet<PageId>,
    files: HashMap<FileName, Known>,
    /// Pages whose contents are remembered to be recorded.
    recorded: usize,
    without_contents: u64,
    /// Uses for which there was no room to wait, of anybody.
    crowded: u64,
    /// Uses of files that nobody was seen to open.
    unknown: u64,
}

struct Waiting {
    since: Instant,
    uses: Vec<Use>,
}

impl Listener {
    fn run(mut self, asked: &Receiver<Vec<u32>>) {
        loop {
            let window = asked.recv_timeout(ROUND);
            self.round();
            match window {
                Ok(pids) => pids.into_iter().for_each(unmap_files),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let (lost, left_out) = (self.streams.page_cache.lost(), self.streams.opened.left_out());
        let (unknown, without) = (self.unknown, self.without_contents);
        let crowded = self.crowded;
        if lost + left_out + unknown + without + crowded > 0 {
            tracing::warn!(
                "of files, {lost} uses were not heard of in time (could not keep up), {unknown} were of files \
                 whose opening nobody saw, {left_out} openings were of too many files or none that could be \
                 opened, the contents of {without} pages are missing, as there were too many, and {crowded} \
                 uses, of whomever, were too many to wait until it is known whose they are"
            );
        }
    }

    fn round(&mut self) {
        // In this order: what is used now was opened before.
        let told = self.streams.page_cache.take();
        self.streams.opened.hear();
        let pids = self.shared.processes.read().values().map(|process| process.pid()).collect();
        self.people.begin_round(pids, &told);
        for (when, one) in told {
            match one {
                Told::Began { child, parent } => {
                    // What is left of somebody who had its number is nobody's.
                    self.forget(child);
                    self.people.began(child, parent);
                }
                Told::Used(used) if self.people.is_recorded(used.pid, when) => self.used(used),
                Told::Used(used) => self.wait(used),
            }
        }
        let known = |pid: &u32| self.people.is_recorded_now(*pid);
        let ready: Vec<u32> = self.waiting.keys().copied().filter(known).collect();
        for pid in ready {
            let uses = self.forget(pid);
            uses.into_iter().for_each(|used| self.used(used));
        }
        let late: Vec<u32> = (self.waiting.iter())
            .filter_map(|(pid, waiting)| (waiting.since.elapsed() >= PATIENCE).then_some(*pid))
            .collect();
        late.into_iter().for_each(|pid| drop(self.forget(pid)));
        for used in std::mem::take(&mut self.begun).into_values() {
            self.record(&used, used.first.saturating_add(PIECE));
        }
        self.told.clear();
        self.pencil.hand_on();
    }

    /// Keeps what somebody used who may be managed soon.
    fn wait(&mut self, used: Use) {
        if self.waits >= WAITING {
            self.crowded += 1;
            return;
        }
        let new = || Waiting { since: Instant::now(), uses: Vec::new() };
        self.waiting.entry(used.pid).or_insert_with(new).uses.push(used);
        self.waits += 1;
    }

    /// Takes what was kept of a process.
    fn forget(&mut self, pid: u32) -> Vec<Use> {
        let uses = self.waiting.remove(&pid).map_or(Vec::new(), |waiting| waiting.uses);
        self.waits -= uses.len();
        uses
    }

    /// A program used this. How far a read has come is known when it goes on, or something else begins.
    fn used(&mut self, used: Use) {
        if let Some(before) = self.begun.insert(used.pid, used) {
            let end = match goes_on(&before, &used) {
                true => used.first,
                false => before.first.saturating_add(PIECE),
            };
            self.record(&before, end);
        }
    }

    /// Writes down the pages of a use before page `end`.
    fn record(&mut self, used: &Use, end: u64) {
        let Some(file) = self.streams.opened.want(&used.file) else {
            self.unknown += 1;
            return;
        };
        let Ok(metadata) = file.metadata() else { return };
        let Some(space) = (match self.files.get(&used.file) {
            Some(known) => Some(known.space),
            None => new_space(self.files.len()),
        }) else {
            self.unknown += 1;
            return;
        };
        let now = Ns(self.started.elapsed().as_nanos() as u64);
        let known = self.files.entry(used.file).or_insert_with(|| {
            self.pencil.space_of_files(now, FILES, NAME, space);
            Known { space, stamp: stamp(&metadata), recorded: HashSet::new() }
        });
        if known.stamp != stamp(&metadata) {
            known.stamp = stamp(&metadata);
            self.recorded -= known.recorded.len();
            known.recorded.clear();
        }
        let pages = metadata.len().div_ceil(self.shared.page_bytes).min(PAGES);
        for number in used.first..end.min(used.last.saturating_add(1)).min(pages) {
            let page = PageId::new(space, Vpn(number));
            if self.told.len() > ONE_ROUND {
                self.told.clear();
            }
            if !self.told.insert(page) {
                continue;
            }
            if self.pencil.wants_contents() && !known.recorded.contains(&number) {
                let read = match self.recorded < RECORDED {
                    true => read_page(file, number, self.shared.page_bytes),
                    false => None,
                };
                match read {
                    Some(bytes) => {
                        self.pencil.contents(page, bytes);
                        known.recorded.insert(number);
                        self.recorded += 1;
                    }
                    None => self.without_contents += 1,
                }
            }
            let kind = AccessKind::Seen;
            self.pencil.record(now, Record::Access { page, kind, write: false });
        }
    }
}

/// Whether `used` is what is left of the same read as `before`: a long one tells of all that it still wants, again and
/// again.
fn goes_on(before: &Use, used: &Use) -> bool {
    before.file == used.file && before.last == used.last && before.first < used.first
}

/// The space of the next file after so many: behind those of programs.
fn new_space(known: usize) -> Option<SpaceId> {
    let space = u32::try_from(known).ok()?.checked_add(MAX_SPACES)?;
    (space < SPACES).then_some(SpaceId(space))
}

fn stamp(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// A page of a file, with zeros behind its end; none if it cannot be read.
fn read_page(file: &File, number: u64, page_bytes: u64) -> Option<Box<[u8]>> {
    let mut bytes = vec![0; page_bytes as usize].into_boxed_slice();
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], number * page_bytes + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    (filled > 0).then_some(bytes)
}

/// Takes the pages of files that process `pid` has mapped, and cannot write, from it.
fn unmap_files(pid: u32) {
    let of_files = || {
        let mappings = mappings::read(&open_of_process(pid, "maps")?)?;
        let ranges = mappings.iter().filter(|m| !m.anonymous && m.permissions.starts_with("r-"));
        let ranges: Vec<(u64, u64)> = ranges.map(|m| (m.start, m.bytes())).collect();
        advise(&pidfd(pid)?, &ranges, libc::MADV_PAGEOUT)
    };
    // A program that has ended has nothing mapped.
    if let Err(error) = of_files() {
        tracing::debug!(pid, %error, "files stay mapped");
    }
}

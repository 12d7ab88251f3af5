//! What managed programs, and what they have started, use of files, for a recording.
//!
//! A thread of its own puts two streams together: which pages of which inodes are used ([`super::page_cache`]), and which
//! files are opened ([`super::opened_files`]), whose contents it reads. The page cache belongs to nobody: all files are
//! of one app, which never ends, each in a space of its own.
//!
//! With windows, mappings of files are taken from a program as well (MADV_PAGEOUT), so that what it touches next is
//! heard again; of pages that others have mapped, too, the kernel lets it keep them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clew_core::{AccessKind, AppId, Ns, PageId, SPACES, SpaceId, Vpn};
use clew_trace::Record;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::opened_files::OpenedFiles;
use super::page_cache::{FileName, PageCache, Use};
use super::recorder::Pencil;
use crate::limits::MAX_SPACES;
use crate::programs::advice::{advise, pidfd};
use crate::programs::mappings;
use crate::programs::proc_stat::{Stat, open_of_process};
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
/// Processes whose last use, and whose parents, are known.
const PROCESSES: usize = 1 << 16;
/// Pages of a file that can have a name here: 64 PiB of it.
const PAGES: u64 = 1 << 44;
/// Generations between a program and what it has started.
const GENERATIONS: usize = 16;

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
        Ok(FileStreams { opened: OpenedFiles::listen()?, page_cache: PageCache::listen()? })
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
            waiting: VecDeque::new(),
            parents: HashMap::new(),
            last: HashMap::new(),
            files: HashMap::new(),
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
    /// Of processes that may be managed yet.
    waiting: VecDeque<(Instant, Use)>,
    /// Who began each process, since listening began.
    parents: HashMap<u32, u32>,
    /// The last use of each process.
    last: HashMap<u32, Use>,
    files: HashMap<FileName, Known>,
    /// Uses of files that nobody was seen to open.
    unknown: u64,
}

impl Listener {
    fn run(mut self, asked: &Receiver<Vec<u32>>) {
        let mut error = Ok(());
        loop {
            let window = asked.recv_timeout(ROUND);
            if error.is_ok() {
                error = self.round();
                if let Err(error) = &error {
                    tracing::error!("what is read of files is recorded no longer: {error}");
                }
            }
            match window {
                Ok(pids) => pids.into_iter().for_each(unmap_files),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let (lost, left_out) = (self.streams.page_cache.lost(), self.streams.opened.left_out());
        if lost + left_out + self.unknown > 0 {
            tracing::warn!(
                "of files, {lost} uses were not heard of in time (could not keep up), {} were of files whose \
                 opening nobody saw, and {left_out} openings were of too many files",
                self.unknown
            );
        }
    }

    fn round(&mut self) -> io::Result<()> {
        // In this order: what is used now was opened before.
        let uses = self.streams.page_cache.take();
        self.streams.opened.hear()?;
        if self.parents.len() > PROCESSES {
            self.parents.clear();
        }
        let parents = &mut self.parents;
        self.streams.page_cache.take_forks(|child, parent| {
            parents.insert(child, parent);
        });
        let now = Instant::now();
        let programs: HashSet<u32> =
            self.shared.processes.read().values().map(|process| process.pid()).collect();
        let mut recorded = HashMap::new();
        let mut told = HashSet::new();
        let waited = std::mem::take(&mut self.waiting);
        if self.last.len() > PROCESSES {
            self.last.clear();
        }
        for (since, used) in waited.into_iter().chain(uses.into_iter().map(|used| (now, used))) {
            let is_recorded =
                *recorded.entry(used.pid).or_insert_with(|| self.is_of(used.pid, &programs));
            match is_recorded {
                true => self.record(&used, &mut told),
                false if since.elapsed() < PATIENCE && self.waiting.len() < WAITING => {
                    self.waiting.push_back((since, used));
                }
                false => {}
            }
        }
        self.pencil.hand_on();
        Ok(())
    }

    /// Whether process `pid` is one of `programs`, or was begun by one of them.
    fn is_of(&self, pid: u32, programs: &HashSet<u32>) -> bool {
        let parent = |pid: &u32| {
            let begun = self.parents.get(pid).copied();
            begun.or_else(|| Stat::of(*pid).ok().filter(|s| !s.is_agent).map(|s| s.parent))
        };
        let parents = std::iter::successors(Some(pid), parent);
        pid != std::process::id() && parents.take(GENERATIONS).any(|pid| programs.contains(&pid))
    }

    /// Pages that were `told` in this round are not told again.
    fn record(&mut self, used: &Use, told: &mut HashSet<PageId>) {
        let before = self.last.insert(used.pid, *used);
        if before.is_some_and(|before| goes_on(&before, used)) {
            return;
        }
        let Some(file) = self.streams.opened.get(&used.file) else {
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
            known.recorded.clear();
        }
        let pages = metadata.len().div_ceil(self.shared.page_bytes).min(PAGES);
        for number in used.first..(used.last.saturating_add(1)).min(pages) {
            let page = PageId::new(space, Vpn(number));
            if !told.insert(page) {
                continue;
            }
            if self.pencil.wants_contents() && known.recorded.insert(number) {
                let bytes = read_page(file, number, self.shared.page_bytes);
                bytes.into_iter().for_each(|bytes| self.pencil.contents(page, bytes));
            }
            let kind = AccessKind::Seen;
            self.pencil.record(now, Record::Access { page, kind, write: false });
        }
    }
}

/// Whether `used` is what is left of the same read as `before`: a long one tells of all that it still wants, again and
/// again.
fn goes_on(before: &Use, used: &Use) -> bool {
    before.file == used.file
        && before.last == used.last
        && before.first < used.first
        && used.when.saturating_sub(before.when) < ROUND.as_nanos() as u64
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

//! Who picks what leaves the kernel's page cache, and has it dropped there.
//!
//! The choice is the order in which pages were handed out: the kernel does not say which of them are used. A page
//! that is used again costs one read from the pool, and is the youngest then.
//!
//! The same thread hears of changes below ([`crate::watches`]), as it is who has the kernel drop what it has of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};
use rustix::fs::{FileType, OFlags};

use crate::PAGE_BYTES;
use crate::counters::add;
use crate::handed_out::Run;
use crate::lower::stat;
use crate::server::Server;
use crate::stamp::Stamp;

/// How often it looks. What is read within that time is what the page cache has too much.
const ROUND: Duration = Duration::from_millis(10);
/// Words to the kernel in one go.
const RUNS: usize = 64;
/// Names that it is asked to forget in one go.
const NAMES: usize = 256;
/// How long changes are gathered once there are some: who writes much below is told of often.
const GATHER: Duration = Duration::from_millis(1);
/// How often files that were written are looked after.
const TIDY: Duration = Duration::from_secs(2);

/// Starts it; it ends when `over` is set.
///
/// # Errors
/// If the system gives no thread.
pub fn start(
    server: Arc<Server>,
    notifier: Notifier,
    over: Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("clew-evictor".to_string())
        .spawn(move || evict(&server, &notifier, &over))
}

fn evict(server: &Server, notifier: &Notifier, over: &AtomicBool) {
    let mut tidied = Instant::now();
    let mut doubtful = BTreeMap::new();
    while !over.load(Relaxed) {
        if tidied.elapsed() >= TIDY {
            server.tidy_written();
            tidied = Instant::now();
        }
        hear(server, notifier, &mut doubtful);
        drop_suspects(server, notifier);
        forget_oldest(server, notifier);
        let runs = server.handed_out.lock().take_back(server.cache_pages, RUNS);
        if runs.is_empty() {
            if !doubtful.is_empty() || server.watches.wait(ROUND) {
                thread::sleep(GATHER);
            }
            continue;
        }
        for run in runs {
            take_back(server, notifier, &run);
        }
    }
}

/// Has the kernel drop all of the inodes that were changed behind our back.
fn drop_suspects(server: &Server, notifier: &Notifier) {
    let suspects = std::mem::take(&mut *server.suspects.lock());
    for node in suspects {
        let inode = server.inodes.get(node).filter(|inode| inode.kind == FileType::RegularFile);
        let state = inode.and_then(|inode| Some((Stamp::of(&stat(&*inode).ok()?), inode)));
        server.handed_out.lock().forget(node);
        match (notifier.inval_inode(INodeNo(node), 0, 0), state) {
            // What it has from now on is of this state, or of one that will be seen to be another.
            (Ok(()), Some((stamp, inode))) => {
                inode.seen.lock().get_or_insert(stamp);
            }
            (Ok(()), None) => {}
            (Err(error), _) => tracing::debug!("the kernel keeps pages: {error}"),
        }
    }
}

/// Has the kernel forget names where it knows too many inodes.
fn forget_oldest(server: &Server, notifier: &Notifier) {
    let is_known = |node| server.inodes.get(node).is_some();
    for name in server.names.too_many(server.inodes.len(), NAMES, is_known) {
        // Waits for what is done in the directory, which others answer meanwhile.
        if let Err(error) = notifier.inval_entry(INodeNo(name.parent), &name.name) {
            tracing::debug!("the kernel keeps a name: {error}");
        }
        server.names.kept(name);
    }
}

/// Has the kernel drop a run.
fn take_back(server: &Server, notifier: &Notifier, run: &Run) {
    let pages = run.pages.end - run.pages.start;
    let len = pages * PAGE_BYTES as u64;
    let at = run.pages.start * PAGE_BYTES as u64;
    // Waits for reads of these pages, which others answer meanwhile.
    match notifier.inval_inode(INodeNo(run.node), at as i64, len as i64) {
        Ok(()) => add(&server.counters.pages_evicted, pages),
        // The mount is going.
        Err(error) => tracing::debug!("the kernel keeps pages: {error}"),
    }
}

/// Looks at what was told to have changed below. `doubtful` are those that could not be looked at so far, and whether their
/// contents were written.
fn hear(server: &Server, notifier: &Notifier, doubtful: &mut BTreeMap<u64, bool>) {
    let told = server.watches.told();
    let count = told.nodes.len() + told.names.len();
    add(&server.counters.changes_told, count as u64);
    for (node, is_written) in told.nodes {
        *doubtful.entry(node).or_default() |= is_written;
    }
    if told.lost {
        add(&server.counters.changes_lost, 1);
        doubtful.extend(server.watches.nodes().into_iter().map(|node| (node, true)));
    }
    doubtful.retain(|node, is_written| !server.look_again(*node, *is_written));
    // Names that the kernel does not believe are looked up again anyway.
    if server.is_believed() {
        for (node, name) in &told.names {
            hear_of_name(server, notifier, *node, name);
        }
        if told.lost {
            hear_of_all_names(server, notifier);
        }
    }
}

/// Which names have changed was not told: all that the kernel may know in watched directories, those that are there now
/// and those that it was told of.
fn hear_of_all_names(server: &Server, notifier: &Notifier) {
    for (node, name) in server.names.all() {
        hear_of_name(server, notifier, node, &name);
    }
    for node in server.watches.nodes() {
        let Some(directory) = server.inodes.get(node) else { continue };
        if directory.kind != FileType::Directory {
            continue;
        }
        let opened = server.lower.open(&*directory, OFlags::RDONLY | OFlags::DIRECTORY);
        let listed = opened.and_then(rustix::fs::Dir::new);
        for entry in listed.into_iter().flatten().flatten() {
            hear_of_name(server, notifier, node, OsStr::from_bytes(entry.file_name().to_bytes()));
        }
    }
}

/// A name in a directory means something else now, perhaps: the kernel asks when it is used next.
fn hear_of_name(server: &Server, notifier: &Notifier, node: u64, name: &OsStr) {
    if server.inodes.get(node).is_none() {
        return;
    }
    if let Err(error) = notifier.inval_entry(INodeNo(node), name) {
        tracing::debug!("the kernel keeps a name: {error}");
    }
    // Its times.
    if let Err(error) = notifier.inval_inode(INodeNo(node), -1, 0) {
        tracing::debug!("the kernel keeps attributes: {error}");
    }
}

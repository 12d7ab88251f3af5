//! Who picks what leaves the kernel's page cache, and has it dropped there.
//!
//! The choice is the order in which pages were handed out: the kernel does not say which of them are used. A page
//! that is used again costs one read from the pool, and is the youngest then.
//!
//! The same thread hears of changes below ([`crate::watches`]), as it is who has the kernel drop what it has of them. Names are
//! another's to tell ([`crate::forgetting`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};
use rustix::fs::FileType;

use crate::PAGE_BYTES;
use crate::counters::add;
use crate::handed_out::Run;
use crate::lower::stat;
use crate::server::Server;
use crate::stamp::{Seen, Stamp};

/// How often it looks. What is read within that time is what the page cache has too much.
const ROUND: Duration = Duration::from_millis(10);
/// Words to the kernel in one go.
const RUNS: usize = 64;
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
        server.names.prune(server.inodes.len(), |node| server.inodes.get(node).is_some());
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
                inode.seen.lock().get_or_insert(Seen::of(stamp));
            }
            (Ok(()), None) => {}
            (Err(error), _) => tracing::debug!("the kernel keeps pages: {error}"),
        }
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
        // Their directories have other times, too.
        for node in told.names.iter().map(|(node, _)| *node).collect::<BTreeSet<u64>>() {
            if let Err(error) = notifier.inval_inode(INodeNo(node), -1, 0) {
                tracing::debug!("the kernel keeps attributes: {error}");
            }
        }
        match told.lost {
            true => server.changed.add_all(),
            false => server.changed.add(told.names),
        }
    }
}

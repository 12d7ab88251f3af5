//! What all operations share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Advice, FileType, OFlags, fadvise};

use crate::PAGE_BYTES;
use crate::ahead::Ahead;
use crate::changed::Changed;
use crate::counters::{Counters, Status};
use crate::handed_out::HandedOut;
use crate::handles::{Handles, OpenDirectory, OpenFile};
use crate::inodes::{Inode, Inodes};
use crate::locks::Locks;
use crate::lower::{Lower, stat};
use crate::names::Names;
use crate::packer::Packer;
use crate::pages::FilePages;
use crate::stamp::Stamp;
use crate::watches::Watches;

/// A file that was written so lately is read through the lower page cache, which has it: past that cache it
/// would have to be on disk first.
pub const FRESH_MS: u64 = 2_000;
/// When the last of a written file is out of the lower page cache, unless it is written again: by then the
/// kernel has begun to write it twice.
const TIDY_MS: u64 = 8_000;

/// Where compressed pages are, and who puts them there.
#[derive(Debug)]
pub struct Pool {
    /// The pages.
    pub pages: Arc<FilePages>,
    /// Who compresses them.
    pub packer: Packer,
}

/// The server of one mount.
#[derive(Debug)]
pub struct Server {
    /// What is below.
    pub lower: Lower,
    /// What the kernel knows.
    pub inodes: Inodes,
    /// The names by which it was told of these.
    pub names: Names,
    /// Names that the kernel is to forget, as they mean something else below.
    pub changed: Changed,
    /// What it has opened.
    pub files: Handles<OpenFile>,
    /// The same of directories.
    pub directories: Handles<OpenDirectory>,
    /// Who has locked what.
    pub locks: Arc<Locks>,
    /// What it has in its page cache.
    pub handed_out: Mutex<HandedOut>,
    /// How much it may have there.
    pub cache_pages: u64,
    /// None if the files are only passed through.
    pub pool: Option<Pool>,
    /// Who reads ahead of whom.
    pub ahead: Ahead,
    /// Whether the kernel passes on what is asked of a file that is open for direct I/O, and nothing else.
    pub passes_direct: AtomicBool,
    /// Whether requests come by io_uring.
    pub has_rings: AtomicBool,
    /// What happened.
    pub counters: Arc<Counters>,
    /// How long the kernel may believe what it was told of names and attributes.
    pub timeout: Duration,
    /// Files that were written lately.
    pub written: Mutex<HashMap<u64, Weak<Inode>>>,
    /// Inodes of which the kernel is to drop all pages: they were changed behind our back.
    pub suspects: Mutex<Vec<u64>>,
    /// What tells of changes below.
    pub watches: Watches,
    /// Threads that wait until somebody gives up a lease.
    pub waiting: AtomicUsize,
    /// Whether the mount is going.
    pub over: Arc<AtomicBool>,
    /// The directory below, as it was named.
    pub directory: PathBuf,
    /// When it began.
    pub started: Instant,
}

impl Server {
    /// Milliseconds on a clock that starts late enough to be counted back from.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 2 * TIDY_MS
    }

    /// An inode is as `now` says. If its file was another when the kernel began to keep pages of it, that is to drop them.
    pub fn suspect_if_changed(&self, inode: &Inode, now: Stamp) {
        let mut seen = inode.seen.lock();
        if seen.is_some_and(|seen| !seen.is_still(now)) {
            *seen = None;
            self.suspects.lock().push(inode.node);
        }
    }

    /// Whether the kernel believes for a while what it was told of names and attributes.
    pub fn is_believed(&self) -> bool {
        !self.timeout.is_zero()
    }

    /// Looks at an inode of which a change was told: kernel and pool drop what they have of it if it was changed behind our
    /// back. False if it is just being changed through us, and nobody can say.
    ///
    /// A write is told when it is over, and sets the file's time when it begins: where its contents were written, and not by us, what
    /// was read meanwhile is dropped whatever the stamp says.
    pub fn look_again(&self, node: u64, is_written: bool) -> bool {
        let Some(inode) = self.inodes.get(node) else { return true };
        let Some(_unchanged) = inode.changes.try_read() else { return false };
        let Ok(now) = stat(&*inode).map(|now| Stamp::of(&now)) else { return true };
        self.suspect_if_changed(&inode, now);
        // A change in the same tick of the file system's clock as the look before it leaves no other stamp.
        let by_us = inode.was_written_since(self.now_ms() - FRESH_MS);
        let in_doubt = !by_us && (is_written || !now.is_settled(SystemTime::now()));
        // What was never opened has no pages, but attributes that may be believed.
        let may_be_believed = self.is_believed() && inode.seen.lock().is_none();
        if in_doubt || may_be_believed {
            self.suspects.lock().push(node);
        }
        if let Some(pool) = &self.pool
            && inode.kind == FileType::RegularFile
        {
            match in_doubt && is_written {
                true => pool.pages.changed(inode.key, now, now, 0..u64::MAX),
                false => {
                    pool.pages.epoch(inode.key, now);
                }
            }
        }
        true
    }

    /// Has the lower page cache drop what it holds of files that were written a while ago: it would be a second
    /// copy. What is not on disk yet stays until it is, and goes the next time.
    pub fn tidy_written(&self) {
        let now = self.now_ms();
        let mut due = Vec::new();
        self.written.lock().retain(|_, inode| {
            let Some(inode) = inode.upgrade() else { return false };
            let age = now.saturating_sub(inode.written_ms.load(Relaxed));
            if age >= FRESH_MS {
                due.push(inode);
            }
            age < TIDY_MS
        });
        for inode in due {
            // Who cannot read it cannot have read it through us.
            if let Ok(file) = self.lower.open(&*inode, OFlags::RDONLY) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }

    /// What the mount has done and holds.
    pub fn status(&self) -> Status {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let facts = self.pool.as_ref().map(|pool| pool.pages.facts()).unwrap_or_default();
        let of_pages =
            |ask: fn(&FilePages) -> u64| self.pool.as_ref().map_or(0, |pool| ask(&pool.pages));
        let counters = &self.counters;
        Status {
            directory: self.directory.clone(),
            pid: std::process::id(),
            by_io_uring: self.has_rings.load(Relaxed),
            memory_bytes: of_pages(FilePages::limit_bytes),
            cache_bytes: self.cache_pages * PAGE_BYTES as u64,
            pool_bytes: facts.used_bytes,
            payload_bytes: facts.payload_bytes,
            pool_pages: facts.pages,
            pool_left_pages: of_pages(FilePages::left),
            cached_pages: self.handed_out.lock().pages(),
            inodes: self.inodes.len() as u64,
            reads: count(&counters.reads),
            reads_whole: count(&counters.reads_whole),
            reads_partly: count(&counters.reads_partly),
            pages_from_pool: count(&counters.pages_from_pool),
            pages_from_disk: count(&counters.pages_from_disk),
            pages_read_ahead: count(&counters.pages_read_ahead),
            pages_packed: count(&counters.pages_packed),
            pages_too_many: count(&counters.pages_too_many),
            pages_unsettled: count(&counters.pages_unsettled),
            pages_rejected: of_pages(FilePages::rejected),
            pages_evicted: count(&counters.pages_evicted),
            pages_dropped_by_kernel: count(&counters.pages_dropped_by_kernel),
            watches: self.watches.len() as u64,
            unwatched: count(&self.watches.unwatched),
            changes_told: count(&counters.changes_told),
            changes_lost: count(&counters.changes_lost),
            foreign_changes: of_pages(FilePages::foreign_changes),
            damaged_pages: facts.corrupt_reads,
            writes: count(&counters.writes),
            bytes_written: count(&counters.bytes_written),
        }
    }
}

//! What a mount has done, and how one asks it.
//!
//! The server answers for an extended attribute of its root that no file has: no socket and no file is needed, and
//! whoever may read the directory may ask.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{getxattr, statfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::patience::within;

/// The attribute of the root that says what the mount has done.
pub const STATUS_NAME: &str = "user.clew.mount";

/// Counts since the mount was made.
#[derive(Debug, Default)]
pub struct Counters {
    /// Read requests of the kernel.
    pub reads: AtomicU64,
    /// Of these, answered by the pool alone.
    pub reads_whole: AtomicU64,
    /// Of these, answered by pool and disk together.
    pub reads_partly: AtomicU64,
    /// Pages that the pool gave.
    pub pages_from_pool: AtomicU64,
    /// Pages that were read from the lower file.
    pub pages_from_disk: AtomicU64,
    /// Of these, read before they were asked for.
    pub pages_read_ahead: AtomicU64,
    /// Pages that were given to the pool.
    pub pages_packed: AtomicU64,
    /// Pages that were not, as too many waited.
    pub pages_too_many: AtomicU64,
    /// Pages that were not, as their file had changed a moment ago.
    pub pages_unsettled: AtomicU64,
    /// Pages that the kernel was told to drop.
    pub pages_evicted: AtomicU64,
    /// Pages that it asked for again without being told to drop them.
    pub pages_dropped_by_kernel: AtomicU64,
    /// How often inotify told of a file, or of a name.
    pub changes_told: AtomicU64,
    /// How often it had no room for what it was to tell.
    pub changes_lost: AtomicU64,
    /// Write requests.
    pub writes: AtomicU64,
    /// Bytes of them.
    pub bytes_written: AtomicU64,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

/// What a mount has done and holds. The names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Default))]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The directory below.
    pub directory: PathBuf,
    /// The server.
    pub pid: u32,
    /// Whether requests come by io_uring, and not by `/dev/fuse` alone.
    #[serde(default)]
    pub by_io_uring: bool,
    /// Limit of the pool now; zero if there is none.
    pub memory_bytes: u64,
    /// How much of the kernel's page cache is left to these files.
    pub cache_bytes: u64,
    /// What the pool takes.
    pub pool_bytes: u64,
    /// Compressed pages, without what is kept about them.
    pub payload_bytes: u64,
    /// Pages in the pool.
    pub pool_pages: u64,
    /// Pages that left the pool for others.
    pub pool_left_pages: u64,
    /// Pages that the kernel was given and not told to drop.
    pub cached_pages: u64,
    /// Inodes that the kernel knows.
    pub inodes: u64,
    /// Read requests.
    pub reads: u64,
    /// Answered by the pool alone.
    pub reads_whole: u64,
    /// Answered by pool and disk together.
    pub reads_partly: u64,
    /// Pages that the pool gave.
    pub pages_from_pool: u64,
    /// Pages read from below.
    pub pages_from_disk: u64,
    /// Of these, read before they were asked for.
    pub pages_read_ahead: u64,
    /// Pages that were given to the pool.
    pub pages_packed: u64,
    /// Pages that were not, as too many waited.
    pub pages_too_many: u64,
    /// Pages that were not, as their file had changed a moment ago.
    pub pages_unsettled: u64,
    /// Pages that were not, as they were not worth their room.
    pub pages_rejected: u64,
    /// Pages that the kernel was told to drop.
    pub pages_evicted: u64,
    /// Pages that it dropped by itself, as far as it asked again.
    pub pages_dropped_by_kernel: u64,
    /// Files and directories of which changes below are told at once.
    pub watches: u64,
    /// Times that one was not watched, or not any more, as there were too many.
    pub unwatched: u64,
    /// Files and names that were told of.
    pub changes_told: u64,
    /// Times that there was no room for what was to be told.
    pub changes_lost: u64,
    /// Files of which all was dropped, as somebody had changed them below.
    pub foreign_changes: u64,
    /// Pages of the pool that were damaged, and read from disk instead.
    pub damaged_pages: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of them.
    pub bytes_written: u64,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Something else is there.
    #[error("{0} is no clew mount: give the directory where it is mounted")]
    NoMount(PathBuf),
    /// It does not answer.
    #[error("{0}: its server does not answer: is it stopped?")]
    Silent(PathBuf),
    /// It cannot be asked.
    #[error("asking {path}: {source}")]
    Asking {
        /// Where.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
}

/// Asks the mount at `path`.
///
/// # Errors
/// If there is none, or its server does not answer.
pub fn status(path: &Path) -> Result<Status, StatusError> {
    // Of a file in another file system its owner says what he likes.
    const FUSE: u64 = 0x6573_5546;
    let no_mount = || StatusError::NoMount(path.to_path_buf());
    let asked = path.to_path_buf();
    let said = within(move || {
        if statfs(&asked).is_ok_and(|system| system.f_type as u64 != FUSE) {
            return Err(Errno::NODATA);
        }
        let mut text = vec![0; 16 << 10];
        let len = getxattr(&asked, STATUS_NAME, &mut text[..])?;
        text.truncate(len);
        Ok(text)
    });
    let text = said.map_err(|error| match error {
        Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE => no_mount(),
        Errno::TIMEDOUT => StatusError::Silent(path.to_path_buf()),
        source => StatusError::Asking { path: path.to_path_buf(), source },
    })?;
    // Anybody may give a directory of his an attribute of that name.
    serde_json::from_slice(&text).map_err(|_| no_mount())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anybody may give a directory of his an attribute of that name.
    #[test]
    fn what_a_directorys_owner_says_is_no_status() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = serde_json::to_vec(&Status { pid: 1, ..Status::default() }).expect("it is text");
        let flags = rustix::fs::XattrFlags::empty();
        // Where the file system has no such attributes nobody can say it either.
        let _ = rustix::fs::setxattr(dir.path(), STATUS_NAME, &text, flags);
        assert!(matches!(status(dir.path()), Err(StatusError::NoMount(_))));
    }
}

//! A takeover, tried without one: whether this process could take over what is served at a socket.
//!
//! Asked before who serves it is ended (`--takeover`), or instead (`--check`). Everything is only looked
//! at: a daemon that lives goes on meanwhile, and what it changes is none of this one's business. So the
//! slots of programs are counted and not read.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clew_agent::protocol::BUFFER_BYTES;
use clew_store::{Journal, JournalError, SegmentError};
use clew_trace::Draft;

use crate::config::{Config, Recording};
use crate::programs::proc_stat::text_of;
use crate::survival::predecessor::{self, Predecessor, ProcessName};
use crate::survival::pressure;
use crate::survival::records::{DaemonRecord, column};

/// What a daemon would find that took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Who would be ended, if it lives.
    pub living: Option<u32>,
    /// Address spaces that would be taken over; none where there is no keeper.
    pub spaces: Option<usize>,
}

/// Why this process could not take over.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    #[error("{what}: {source}")]
    Looking { what: &'static str, source: io::Error },
    #[error("it may not end process {pid}: {source} (run it as root, or as the user of that one)")]
    Signal { pid: u32, source: io::Error },
    #[error(
        "it may not have the descriptors of keeper {keeper}: {source} (CAP_SYS_PTRACE is needed, or the \
         same user)"
    )]
    Descriptors { keeper: u32, source: io::Error },
    #[error(
        "process {pid} serves it, and its keeper has died: who took over would \
         find nothing of what is stored (try again; if it stays so, 'clew stop' brings every page back, and a daemon can begin anew)"
    )]
    NoKeeper { pid: u32 },
    #[error("{0}: another version left it, and only such a one can go on with it")]
    Version(JournalError),
    #[error("its memory: {0}")]
    Memory(SegmentError),
    #[error("what the daemon wrote down about itself is damaged")]
    Damaged,
    #[error(
        "it may have {may} descriptors open and needs about {needs} (raise its limit: 'ulimit -n', or \
         LimitNOFILE)"
    )]
    TooFew { may: u64, needs: u64 },
    #[error(
        "its files may have {may} bytes, and what it shares with each agent has {BUFFER_BYTES} (raise its \
         limit: 'ulimit -f', or LimitFSIZE)"
    )]
    TooShort { may: u64 },
    #[error(
        "its address space may have {may} bytes, and that of the daemon there has {needs} (raise its limit: \
         'ulimit -v', or LimitAS)"
    )]
    TooNarrow { may: u64, needs: u64 },
    #[error("cannot write {file}: {source}")]
    File { file: PathBuf, source: io::Error },
}

impl From<JournalError> for Obstacle {
    fn from(error: JournalError) -> Obstacle {
        match error {
            JournalError::Segment(error) => Obstacle::Memory(error),
            JournalError::Magic { .. } | JournalError::Foreign { .. } => Obstacle::Version(error),
        }
    }
}

/// Looks whether a daemon with this `config` could take over at `socket`, and serve: `spare` descriptors are
/// what it needs besides those that are there, `page_bytes` are of a page.
///
/// # Errors
/// The first [`Obstacle`]. Nothing has changed, and whoever serves the socket goes on.
pub fn rehearse(
    socket: &Path,
    config: &Config,
    page_bytes: u64,
    spare: u64,
) -> Result<Prospect, Obstacle> {
    let looking = |what: &'static str| move |source| Obstacle::Looking { what, source };
    let server = predecessor::server(socket).map_err(looking("who serves it"))?;
    let living = match server {
        Some(name) => living(name)?,
        None => None,
    };
    match pressure::longest_file() {
        Some(may) if may < BUFFER_BYTES as u64 => return Err(Obstacle::TooShort { may }),
        _ => {}
    }
    let may = pressure::most_address_space().unwrap_or(u64::MAX);
    match living.and_then(address_space) {
        Some(needs) if may < needs => return Err(Obstacle::TooNarrow { may, needs }),
        _ => {}
    }
    if let Some(Recording { file, .. }) = &config.record {
        // Gone again when it is dropped.
        Draft::new(file, true).map_err(|source| Obstacle::File { file: file.clone(), source })?;
    }
    let Some(from) = Predecessor::find(socket).map_err(looking("its keeper"))? else {
        return match living {
            Some(pid) => Err(Obstacle::NoKeeper { pid }),
            None => Ok(Prospect { living, spaces: None }),
        };
    };
    let beside = |source| Obstacle::File { file: socket.with_extension("pid"), source };
    predecessor::try_to_claim(socket).map_err(beside)?;
    let keeper = from.name.pid;
    let refused = |source| Obstacle::Descriptors { keeper, source };
    let journal = from.journal().map_err(refused)?;
    let journal = Arc::new(Journal::adopt(journal, page_bytes)?);
    let record = DaemonRecord::load(&journal.own()).ok_or(Obstacle::Damaged)?;
    let own = record.descriptors[column(from.generation)].ok_or(Obstacle::Damaged)?;
    for number in own.all() {
        from.take(number).map_err(refused)?;
    }
    // A keeper has the table of its daemon. Who takes over has one for each of these.
    let theirs = fs::read_dir(format!("/proc/{keeper}/fd")).map_err(refused)?.count() as u64;
    let (may, needs) = (pressure::most_descriptors().unwrap_or(u64::MAX), theirs + spare);
    if may < needs {
        return Err(Obstacle::TooFew { may, needs });
    }
    Ok(Prospect { living, spaces: Some(journal.used()) })
}

/// Bytes of address space that a process took at most so far; `None` if that cannot be told.
fn address_space(pid: u32) -> Option<u64> {
    let status = text_of(&format!("/proc/{pid}/status")).ok()?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    Some(most.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The process if it lives, and may be ended by this one.
fn living(name: ProcessName) -> Result<Option<u32>, Obstacle> {
    let pid = name.pid;
    let failed = |source| Obstacle::Signal { pid, source };
    if pid == std::process::id() {
        return Ok(None);
    }
    let Some(process) = name.open().map_err(failed)? else { return Ok(None) };
    if predecessor::has_ended(&process, std::time::Duration::ZERO) {
        return Ok(None);
    }
    may_signal(&process).map_err(failed)?;
    Ok(Some(pid))
}

fn may_signal(process: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes numbers and no info; signal 0 is none.
    let sent = unsafe {
        let none = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd() as RawFd, 0, none, 0)
    };
    let error = io::Error::last_os_error();
    // It has ended meanwhile.
    if sent == 0 || error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

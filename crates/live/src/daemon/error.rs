//! Why a daemon cannot run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::SPARE_DESCRIPTORS;
use crate::control::trusted_path::PathError;
use crate::flash_tier;
use crate::profiles::ProfilesError;
use crate::recording::recorder;
use crate::survival::rehearsal::Obstacle;
use crate::survival::takeover::TakeoverError;

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("this machine cannot run Clew: {0} ('clew doctor' says more)")]
    Unfit(String),
    #[error("this is no place for a socket: {0}")]
    Place(#[from] PathError),
    #[error("{0} is a file of another kind, not a socket: it stays; name another place")]
    NoSocket(PathBuf),
    #[error(
        "a socket's name must not end in {0}: the daemon has a file of that name beside its socket"
    )]
    Ending(String),
    #[error("{0} is too long: a socket's path, with the ending .agents, has at most 107 bytes")]
    TooLong(PathBuf),
    #[error(
        "users cannot get through {0} to the socket of a service for all users: 'chmod o+x {0}', or name \
         another place"
    )]
    Unreachable(PathBuf),
    #[error("{0} is served by somebody else: name another socket")]
    Served(PathBuf),
    #[error("a daemon (process {1}) serves {0} already ('--takeover' replaces it)")]
    Running(PathBuf, u32),
    #[error(
        "process {0} serves the socket and does not end, though it was sent SIGKILL (is it frozen, or does it wait for a \
         disk?): when it can it will, and its programs wait from then on until '--takeover' is said again"
    )]
    Immortal(u32),
    #[error("this command could not take over at {0}, and has ended nobody: {1}")]
    Obstacle(PathBuf, #[source] Obstacle),
    #[error("taking over from a daemon that died: {0}; its keeper stays, and programs wait")]
    Takeover(#[source] TakeoverError),
    #[error("gave up after {0} daemons died in a row; every page was brought back")]
    GaveUp(u32),
    #[error(
        "it cannot open {SPARE_DESCRIPTORS} descriptors more: {0} (raise its limit, 'ulimit -n')"
    )]
    Descriptors(#[source] io::Error),
    #[error("{what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "scheme {0} has no place but flash: name a file or a block device (--flash, or [flash])"
    )]
    NeedsFlash(String),
    #[error(
        "scheme {0} has no place but the memory of other machines: name one (--donor, or [donors])"
    )]
    NeedsDonors(String),
    #[error(transparent)]
    Donors(#[from] crate::donor_tier::DonorTierError),
    #[error("flash at {path}: {source}")]
    Flash { path: PathBuf, source: flash_tier::FlashTierError },
    #[error("profiles: {0}")]
    Profiles(#[from] ProfilesError),
    #[error("metrics: cannot listen at {at}: {source}")]
    Metrics { at: SocketAddr, source: io::Error },
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error(transparent)]
    Record(#[from] recorder::RecordError),
    #[error("what programs use of files cannot be recorded: {0} (root and Linux 6.11 are needed)")]
    FileReads(#[source] io::Error),
    #[error("the store: {0}")]
    Store(#[from] clew_store::StoreError),
}

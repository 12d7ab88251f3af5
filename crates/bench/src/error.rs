//! Why a benchmark did not run to its end. Each text says what to do about it where that is known.

use std::io;
use std::path::{Path, PathBuf};

use clew_live::control::client::ControlError;

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(
        "{program} is not installed: none of {looked_for} was found (apt-get install {package})"
    )]
    ProgramMissing { program: &'static str, looked_for: String, package: &'static str },
    #[error("{program} is not there: {path} is missing (scripts/natural.sh {program})")]
    NotFetched { program: &'static str, path: PathBuf },
    #[error("{program} does not do as it was asked: {reason}")]
    Refused { program: &'static str, reason: String },
    #[error("{program} does not start: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} ended ({status}) in the middle of its work{last_words}")]
    Ended { program: String, status: String, last_words: String },
    #[error("{program} gave no answer for {seconds} s")]
    Silent { program: String, seconds: u64 },
    #[error("the connection to {program} broke: {source}")]
    Connection { program: String, source: io::Error },
    #[error("{program} answered {wrong} of {of} requests wrongly while it was being filled")]
    Fill { program: String, wrong: u64, of: u64 },
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("'{command}' failed: {reason}")]
    Command { command: String, reason: String },
    #[error("{what} cannot be used here: {reason}")]
    Unavailable { what: &'static str, reason: String },
    #[error("the dram arm, which finds out how much memory is needed, did not run")]
    NoTotal,
    #[error("the limit of {limit_mib} MiB was exceeded and the kernel ended {kills} process(es)")]
    OutOfMemory { limit_mib: u64, kills: u64 },
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{pages} page(s) of {side} hold something else than what was written")]
    WrongContents { side: &'static str, pages: u64 },
    #[error("{resident} of {pages} pages of {side} stay in memory after all were swapped out")]
    StaysResident { side: &'static str, resident: u64, pages: u64 },
    #[error("the setting makes no sense: {0}")]
    Setting(String),
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("interrupted")]
    Interrupted,
}

/// For `map_err`: what was tried with which file.
pub(crate) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> BenchError {
    let path = path.to_path_buf();
    move |source| BenchError::File { action, path, source }
}

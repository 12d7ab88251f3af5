//! What goes wrong with a session.

use std::io;
use std::path::PathBuf;

use clew_live::agents::preload::PreloadError;
use clew_live::control::client::ControlError;
use clew_live::control::trusted_path::PathError;

/// Why something of a session could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{0}")]
    Directory(#[from] PathError),
    #[error("{0}")]
    Object(#[from] PreloadError),
    #[error(
        "{path} is there already, and is not as 'clew session enable' makes it: nothing was \
         changed (move it away)"
    )]
    Theirs { path: PathBuf },
    #[error("{path} cannot be named in {what}: it has a character that means something there")]
    Name { path: PathBuf, what: &'static str },
    #[error("nobody's files are known: HOME must be an absolute path")]
    NoHome,
    #[error(
        "'{name}' is no name of an executable: 1 to 255 bytes without '/' or line ends, and no '#' first"
    )]
    NoExecutable { name: String },
    #[error("{path} is longer than {most} bytes, and then all programs are exceptions: shorten it")]
    LongList { path: PathBuf, most: usize },
    #[error("process {pid} is not yours")]
    NotYours { pid: u32 },
    #[error(
        "process {pid} is of no app that the daemon knows, nor is who started it, nor who it has started"
    )]
    NoApp { pid: u32 },
    #[error(transparent)]
    Daemon(#[from] ControlError),
}

impl SessionError {
    /// Whether what was asked makes no sense, or is not to be done.
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            SessionError::File { .. } | SessionError::NoApp { .. } | SessionError::Daemon(_)
        )
    }
}

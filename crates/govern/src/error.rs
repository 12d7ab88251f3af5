//! What can go wrong, in words that say what to do.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why nothing is governed.
#[derive(Debug, Error)]
pub enum GovernError {
    /// A scheme that makes no sense here.
    #[error("{0}")]
    Scheme(String),
    /// What is to be governed is not there, or is nothing that can be.
    #[error("'{target}': {why}")]
    Target {
        /// As it was said.
        target: String,
        /// What is wrong with it.
        why: String,
    },
    /// A budget that makes no sense.
    #[error("a budget of {0}: expected at least 16MiB")]
    Budget(clew_core::ByteSize),
    /// No clients can be answered there.
    #[error("no clients at {}: {why}", .socket.display())]
    Socket {
        /// Where.
        socket: PathBuf,
        /// Why not.
        why: String,
    },
    /// The machine has no swap.
    #[error(
        "this machine has no swap, through which all of it would go: turn some on ('swapon', \
         for example a zram device)"
    )]
    NoSwap,
    /// A right is missing.
    #[error("{what} is not permitted ({source}): {advice}")]
    Forbidden {
        /// What was tried.
        what: &'static str,
        /// What to do about it.
        advice: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

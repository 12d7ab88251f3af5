//! A whole session: programs that a user starts are managed without `clew run`, and the desktop says who of
//! them is in front.
//!
//! What `clew session enable` puts among a user's files is in [`places`], [`environment`], [`units`] and
//! [`exceptions`]; [`setup`] puts it there and takes it away again, by [`files`], which touches nothing that is
//! not its own. Who is in front is said by one desktop a file of [`front`]; [`watch`] decides what
//! follows and tells the daemon, of an app that [`kin`] finds.
//!
//! Whatever a desktop, a window or a caller says is theirs to say, and no more than a number: of which process
//! it is, the kernel tells, and processes of others are not heeded.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

pub mod environment;
pub mod error;
pub mod exceptions;
pub mod files;
pub mod front;
pub mod kin;
pub mod latest;
pub mod manager;
pub mod places;
pub mod setup;
pub mod status;
pub mod units;
pub mod watch;

pub use error::SessionError;

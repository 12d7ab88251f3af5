//! Memory of machines nearby (MobileSwap): one of them lends it, another swaps to it.
//!
//! - [`keys`], [`pairing`]: who a machine is, and how two of them come to know each other; [`secure`]: an encrypted link
//!   between two that do. [`wire`]: what is said over it.
//! - [`donor`]: the machine that lends: memory, limits, and its clients.
//! - [`link`]: the machine that borrows: one long-lived link to a donor, its [`queue`] and its worker (III-B); [`cores`]:
//!   which core a worker has; [`heard`]: what it knows of its donor; [`told`]: what its policies are told of all donors.
//! - [`borrowed`]: a donor's memory as the device of a log; [`cloud`]: a Redis server as one; [`copies`]: two devices
//!   that hold the same.
//! - [`proxy`]: a bad link, for tests and measurements.
//!
//! What a page is, nobody here knows: a log gives sealed bytes away and verifies what it gets back
//! ([`clew_store::flash`]). A donor can read none of them, and change, exchange or repeat none unnoticed. What it
//! learns is when how much is written and read.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.

pub mod borrowed;
pub mod cloud;
pub mod copies;
pub mod cores;
pub mod donor;
pub mod heard;
pub mod keys;
pub mod link;
pub mod lookup;
pub mod pairing;
pub mod patience;
pub mod proxy;
pub mod queue;
pub mod secure;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
mod standing;
pub mod told;
pub mod wire;

pub use standing::Standing;

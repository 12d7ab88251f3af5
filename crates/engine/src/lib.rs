//! One scheme and one store: takes events, asks the policies, moves pages. Knows neither programs
//! nor traces.
//!
//! [`decide`] is the policy half, single-threaded and without I/O. [`mover`] is the mechanism half,
//! used by many threads at once. [`budget`] says when the one has to ask the other.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

pub mod budget;
pub mod decide;
pub mod driver;
pub mod learn;
pub mod mover;
pub mod space;
pub mod transcript;

pub use mover::{
    Answered, Awaited, BlockStore, Fault, Mover, MoverContext, MoverCounters, Parking, ReadEvents,
    Restored, Staged, SwapOut,
};
pub use space::{MAX_BATCH, ManagedSpace, Memory, Put, PutStop, Took};

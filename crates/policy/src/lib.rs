//! Policies: one mechanism a file, named as its paper names it; and schemes, which pick one of them
//! for each of the six questions.
//!
//! A policy decides and never acts: no I/O, no clock, no lock, no thread. What it learns comes as
//! [`clew_core::Event`]s, what it may look at is in the [`clew_core::View`], and the same events
//! always give the same answers.
#![forbid(unsafe_code)]

pub mod accommodation;
pub mod admission;
pub mod elastic_zram;
pub mod eviction;
pub mod ezswap;
mod kinds;
pub mod low_memory_killer;
pub mod packing;
pub mod placement;
pub mod prefetch;
pub mod reclaim;
pub mod schemes;
mod written;

pub use schemes::{Policies, Scheme, SchemeError};

//! The daemon: agents, fault service, swap-out, app lifecycle, budget.
//!
//! Threads: one *governor* owns the policies and the apps; *fault* threads, one a CPU, answer faults
//! from the page table; *workers* take pages out and bring them back; the rest serve sockets.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.

pub mod accessed;
pub mod agents;
pub mod config;
pub mod control;
pub mod daemon;
pub mod doctor;
pub mod donor_tier;
pub mod faults;
pub mod flash_tier;
pub mod governor;
pub mod kernel_swap;
pub mod limits;
pub mod message;
pub mod passing;
pub mod perf_rings;
pub mod profiles;
pub mod programs;
pub mod recording;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
pub mod survival;
pub mod users;
pub mod workers;

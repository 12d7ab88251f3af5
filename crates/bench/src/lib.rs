//! The demo: real, unmodified programs side by side under equal memory, without swapping, on the
//! kernel's own zram, and on Clew.
//!
//! Everything that this crate changes on a machine (control groups, swap devices, settings of the
//! kernel, processes) is held by a guard that puts it back, on errors, panics and signals too.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.

pub mod arms;
pub mod bootstrap;
pub mod cgroup;
pub mod checksum;
pub mod content;
pub mod cpu_time;
pub mod crossing;
pub mod daemon;
pub mod demo;
pub mod error;
pub mod hint;
pub mod interrupt;
pub mod kernel_pool;
mod knob;
pub mod lenders;
pub mod micro;
pub mod network;
pub mod pagemap;
pub mod plan;
pub mod preparation;
pub mod process_memory;
pub mod programs;
pub mod progress;
pub mod run;
pub mod scenario;
pub mod scratch;
pub mod session;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
pub mod survey;
pub mod swap_file;
pub mod time_slice;
pub mod totals;
pub mod wire;
pub mod working_set;
pub mod zram;

pub use demo::{DemoConfig, demo};
pub use error::BenchError;
pub use scenario::{Scenario, ScenarioConfig, growth, scenario};

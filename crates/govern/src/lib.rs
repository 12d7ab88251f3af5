//! Programs without an agent, governed through the kernel's own swap: static ones, those in a sandbox, and whoever
//! was there before.
//!
//! The same policies and the same [`Driver`](clew_engine::driver::Driver) as of the daemon and of a replay, and one more
//! adapter of it. A page that is to leave is taken out by MADV_PAGEOUT (`governor/pageout.rs`), what a return will use is read by
//! MADV_WILLNEED (`governor/bring_back.rs`), and what recurs is kept young while the kernel takes pages by itself (`governor/young.rs`).
//! The sensors are the stream of major faults ([`major_faults`]) and the kernel's page tables (`governor/looks.rs`).
//!
//! Clients ask as they ask a daemon (`governor/control.rs`). What has an agent is left to its daemon, whose use of memory may count
//! ([`beside`]).
//!
//! Nothing that a program could read depends on the governor: the kernel's swap has the pages, and whoever dies, they
//! come back on a touch.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

mod agents;
mod beside;
pub mod doctor;
mod error;
mod everybody;
mod governor;
mod major_faults;
mod orders;
mod pages;
mod program;
mod scheme;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
mod swap;
mod targets;

pub use error::GovernError;
pub use governor::{AppStatus, Governor, ProgramStatus, Settings, Status, UsedBytes, finish};
pub use orders::{Order, heed};
pub use scheme::USUAL_KEPT_PCT;

//! The lab: replays traces through the engine that serves live programs, with a recorded program and
//! a device model in place of real ones; sweeps over parameters; comparisons of schemes.
//!
//! A [`replay()`] takes a trace, a scheme and a budget, and gives an [`Arm`](clew_report::Arm) of a result. It drives the same
//! policies, the same decisions of when to reclaim, and (unless only policies are asked about) the
//! same mover, pool and codecs as the daemon, on the bytes of the trace. Every page that comes back is
//! compared with what it held.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

pub mod association;
pub mod belady;
pub mod compare;
pub mod costs;
pub mod decisions;
pub mod device;
mod error;
mod input;
mod kept;
pub mod machines;
mod mechanism;
mod page_map;
pub mod replay;
pub mod reproduce;
mod sane;
mod spaces;
pub mod sweep;
mod world;

pub use association::association;
pub use compare::compare;
pub use costs::{Clock, Costs, LinkCost};
pub use decisions::{Decisions, decisions};
pub use device::Device;
pub use error::LabError;
pub use input::{Input, Memory};
pub use replay::{Donor, Donors, Pages, Progress, Settings, Switch, Watched, replay, watched};
pub use sweep::Sweep;
pub use world::Lookahead;

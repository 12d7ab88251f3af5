//! What outlives a daemon, and how the next one goes on with it.

pub mod badge;
pub mod beside;
pub mod keeper;
pub mod last_threads;
pub mod listener;
mod lock;
pub mod predecessor;
pub mod pressure;
pub mod records;
pub mod rehearsal;
pub mod supervise;
pub mod takeover;

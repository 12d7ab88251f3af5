//! The daemon: agents, fault service, swap-out, app lifecycle, budget.

pub mod control;

//! Agents: how they come into programs, connect, are prepared, and take orders.

pub mod accept;
pub mod agent;
pub mod attach;
pub mod candidate;
pub mod closer;
pub mod closing_process;
pub mod connection;
pub mod patient;
pub mod peer;
pub mod preload;
pub mod refusal;
pub mod seqpacket;
pub mod strangers;

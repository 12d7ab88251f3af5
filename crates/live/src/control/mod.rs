//! How one talks to the daemon: clients of its socket, and who reads its metrics.

pub mod client;
pub mod clients;
pub mod exporter;
pub mod metrics;
pub mod places;
pub mod protocol;
pub mod service;
pub mod status;
pub mod trusted_path;

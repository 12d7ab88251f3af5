//! The daemon: agents, fault service, swap-out, app lifecycle, budget.
//!
//! Threads: one *governor* owns the policies and the apps; *fault* threads, one a CPU, answer faults
//! from the page table; *workers* take pages out and bring them back; the rest serve sockets.

pub mod advice;
pub mod affinity;
pub mod agent;
pub mod attach;
pub mod clients;
pub mod closer;
pub mod config;
pub mod control;
pub mod daemon;
pub mod doctor;
pub mod events;
pub mod exporter;
pub mod fault;
pub mod governor;
pub mod interrupter;
pub mod keeper;
pub mod kernel_swap;
pub mod latency;
pub mod let_go;
pub mod mappings;
pub mod metrics;
pub mod moves;
pub mod name;
pub mod not_inherited;
pub mod order;
pub mod outside;
pub mod places;
pub mod predecessor;
pub mod preload;
pub mod pressure;
pub mod proc_stat;
pub mod process;
pub mod program;
pub mod record;
pub mod registry;
pub mod robust;
pub mod seqpacket;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
pub mod strangers;
pub mod supervise;
pub mod takeover;
pub mod tap;
pub mod trusted_path;
pub mod uffd;
pub mod without_agent;
pub mod work;

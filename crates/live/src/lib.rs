//! The daemon: agents, fault service, swap-out, app lifecycle, budget.
//!
//! Threads: one *governor* owns the policies and the apps; *fault* threads, one a CPU, answer faults
//! from the page table; *workers* take pages out and bring them back; the rest serve sockets.

pub mod advice;
pub mod affinity;
pub mod agent;
pub mod attach;
pub mod config;
pub mod control;
pub mod daemon;
pub mod doctor;
pub mod events;
pub mod exporter;
pub mod fault;
pub mod governor;
pub mod keeper;
pub mod kernel_swap;
pub mod latency;
pub mod mappings;
pub mod metrics;
pub mod predecessor;
pub mod pressure;
pub mod proc_stat;
pub mod process;
pub mod program;
pub mod record;
pub mod registry;
pub mod seqpacket;
pub mod supervise;
pub mod takeover;
pub mod tap;
pub mod uffd;
pub mod work;

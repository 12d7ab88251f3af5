//! What a successor must know of the daemon and its programs: records in the journal.
//!
//! Descriptors are numbers in the table of the daemon and its keeper. A successor has them under
//! other numbers, and until its own keeper holds them all, those of the old one must stay true: a
//! record has two columns, used by even and odd generations in turn.

use std::os::fd::RawFd;

use clew_agent::protocol::MAX_NAME;
use clew_store::SpaceJournal;
use serde::{Deserialize, Serialize};

use crate::faults::affinity::Placement;

/// The column that is true for the descriptors of `generation`.
pub fn column(generation: u64) -> usize {
    (generation % 2) as usize
}

/// Descriptors of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptors {
    /// Its userfaultfd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uffd: Option<RawFd>,
    /// Its agent's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<RawFd>,
    /// The buffer shared with the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<RawFd>,
    /// `/proc/PID/statm`, and so on: bound to the memory, which the number PID is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statm: Option<RawFd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maps: Option<RawFd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smaps: Option<RawFd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pagemap: Option<RawFd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem: Option<RawFd>,
}

/// How far a program has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Its agent has said hello.
    Candidate,
    /// It is managed.
    Managed,
    /// It was forked by a managed one.
    Child,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How far it has come.
    pub stage: Stage,
    /// Its app's name.
    pub app: String,
    /// Its process id; 0 for a child whose agent has not said.
    pub pid: u32,
    /// When that process began, in clock ticks since the machine did; 0 where it is not known.
    #[serde(default)]
    pub started: u64,
    /// Its user.
    pub uid: u32,
    /// Its command name.
    pub command: String,
    /// Address of its agent's staging area.
    pub staging: u64,
    /// Address of its agent's own area.
    pub area: u64,
    /// Address of the beacon; see the agent's protocol.
    #[serde(default)]
    pub beacon: u64,
    /// What a child's beacon says besides its space; 0 for others. A candidate's: what it said.
    #[serde(default)]
    pub secret: u64,
    /// Of a candidate that was forked: its space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<u32>,
    /// Version of the protocol that its agent speaks.
    pub protocol: u32,
    /// By generation.
    pub descriptors: [Descriptors; 2],
    /// It is not served any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// A thread whose affinity is narrowed, and the CPUs it had (a bit each).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowed: Option<(u32, Vec<u64>)>,
}

/// Descriptors of flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashDescriptors {
    /// Its ledger, buffers and key.
    pub log: [RawFd; 3],
    /// The file or block device.
    pub device: RawFd,
    /// Bytes of that.
    pub bytes: u64,
}

/// Descriptors of the daemon itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonDescriptors {
    /// Chunks of page tables, and whose they are.
    pub tables: [RawFd; 2],
    /// Arena, slabs, handles.
    pub store: [RawFd; 3],
    /// Of a z3fold pool: frames, and their records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<[RawFd; 2]>,
    /// Where clients connect.
    pub control: RawFd,
    /// Where agents connect.
    pub agents: RawFd,
    /// Where metrics are served, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<RawFd>,
    /// Flash, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashDescriptors>,
    /// What is known of donors ([`crate::donor_tier`]), if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub donors: Option<RawFd>,
}

impl DaemonDescriptors {
    /// Every number there is.
    pub fn all(&self) -> Vec<RawFd> {
        let DaemonDescriptors { tables, store, frames, control, agents, metrics, flash, donors } =
            *self;
        let flash = flash.map(|FlashDescriptors { log: [a, b, c], device, .. }| [a, b, c, device]);
        let mut all = [tables.as_slice(), &store, &[control, agents]].concat();
        all.extend(frames.into_iter().flatten().chain(flash.into_iter().flatten()));
        all.extend(metrics.into_iter().chain(donors));
        all
    }
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonRecord {
    /// By generation.
    pub descriptors: [Option<DaemonDescriptors>; 2],
    /// What was measured when the first generation began.
    pub placement: Placement,
    /// When the present generation began to serve, seconds since 1970.
    pub serving_since: u64,
    /// Generations in a row that died soon after they had begun.
    pub short_lives: u32,
    /// Keepers of former generations, to be ended: process id and start time.
    pub old_keepers: Vec<(u32, u64)>,
}

impl Record {
    /// Writes it.
    pub fn save(&self, journal: &SpaceJournal) {
        let mut record = self.clone();
        for name in [&mut record.app, &mut record.command] {
            name.truncate(name.floor_char_boundary(MAX_NAME));
        }
        save(&record, journal);
    }

    /// What its app is called.
    pub fn app_or_command(&self) -> String {
        if self.app.is_empty() { self.command.clone() } else { self.app.clone() }
    }

    /// Reads it; `None` if it is damaged.
    pub fn load(journal: &SpaceJournal) -> Option<Record> {
        serde_json::from_slice(&journal.record()?).ok()
    }
}

impl DaemonRecord {
    /// Writes it.
    pub fn save(&self, journal: &SpaceJournal) {
        save(self, journal);
    }

    /// Reads it; `None` if it is damaged.
    pub fn load(journal: &SpaceJournal) -> Option<DaemonRecord> {
        serde_json::from_slice(&journal.record()?).ok()
    }
}

fn save(record: &impl Serialize, journal: &SpaceJournal) {
    let bytes = serde_json::to_vec(record).unwrap_or_default();
    if bytes.is_empty() || !journal.set_record(&bytes) {
        tracing::error!(len = bytes.len(), "a record is too long: a successor will not know it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_longest_record_fits() {
        let all = Descriptors {
            uffd: Some(RawFd::MAX),
            socket: Some(RawFd::MAX),
            buffer: Some(RawFd::MAX),
            statm: Some(RawFd::MAX),
            maps: Some(RawFd::MAX),
            smaps: Some(RawFd::MAX),
            pagemap: Some(RawFd::MAX),
            mem: Some(RawFd::MAX),
        };
        let record = Record {
            stage: Stage::Candidate,
            // The worst: every byte is written as six.
            app: "\u{1}".repeat(500),
            command: "\u{1}".repeat(16),
            pid: u32::MAX,
            started: u64::MAX,
            uid: u32::MAX,
            staging: u64::MAX,
            area: u64::MAX,
            beacon: u64::MAX,
            secret: u64::MAX,
            forked: Some(u32::MAX),
            protocol: u32::MAX,
            descriptors: [all; 2],
            given_up: true,
            narrowed: Some((u32::MAX, vec![u64::MAX; 4])),
        };
        let journal = Arc::new(clew_store::Journal::new(1, 4096).expect("a journal"));
        let slot = journal.begin().expect("a slot");
        record.save(&slot);
        let again = Record::load(&slot).expect("it fits");
        assert_eq!(again, Record { app: "\u{1}".repeat(MAX_NAME), ..record });
    }
}

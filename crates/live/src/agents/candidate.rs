//! Programs with an agent that are not managed yet.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clew_agent::protocol::VERSION;
use clew_core::AppId;
use clew_store::{Space, SpaceJournal};

use crate::agents::closer::Foreign;
use crate::agents::seqpacket;
use crate::programs::kcmp::runs_in_memory_of;
use crate::programs::process::Process;
use crate::survival::records::{Record, Stage};
use crate::users::Seat;

/// A program with an agent that is not managed yet.
pub struct Candidate {
    /// Its agent.
    pub socket: Foreign,
    /// Name of its app as its environment says; may be empty.
    pub app_name: String,
    /// The app, once the governor knows.
    pub app: AppId,
    /// The program's process id.
    pub pid: u32,
    /// When that process began, as in [`crate::survival::predecessor::ProcessName`].
    pub started: u64,
    /// Its user.
    pub uid: u32,
    /// Its command name.
    pub command: String,
    /// Somebody asks whether its program has left it.
    pub is_asked_about: Arc<AtomicBool>,
    /// As the how manieth it said hello.
    pub order: u64,
    /// Which fault thread will serve it.
    pub handler: usize,
    /// It was forked by a managed program: the process that is served already.
    pub child: Option<Arc<Process>>,
    /// What a successor knows of it.
    pub(super) slot: Slot,
    /// Its place among its user's programs; a forked child has one already.
    pub(super) seat: Option<Seat>,
}

/// A candidate, for who asks whether it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    agent: u32,
    pid: u32,
    order: u64,
}

impl Who {
    /// Whether its program has left the memory that the agent shares (execve), and the agent, which has
    /// no privileges, may not know.
    pub fn is_left(&self) -> bool {
        runs_in_memory_of(self.agent, self.pid) == Some(false)
    }
}

/// A slot of the journal, with the page table of the space that it is for. It is ended unless a process
/// takes both.
pub(super) struct Slot(pub(super) Option<(SpaceJournal, Space)>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((journal, _)) = &self.0 {
            journal.end();
        }
    }
}

impl Candidate {
    /// It as one whose program may leave it.
    pub fn who(&self) -> Option<Who> {
        let agent = seqpacket::peer(&self.socket).ok()?.pid as u32;
        Some(Who { agent, pid: self.pid, order: self.order })
    }

    pub(super) fn record(&self) -> Record {
        Record {
            stage: Stage::Candidate,
            app: self.app_name.clone(),
            pid: self.pid,
            started: self.started,
            uid: self.uid,
            command: self.command.clone(),
            staging: 0,
            area: 0,
            beacon: 0,
            secret: self.child.as_ref().map_or(0, |c| c.secret),
            forked: self.child.as_ref().map(|c| c.id.0),
            protocol: VERSION,
            descriptors: Default::default(),
            given_up: false,
            narrowed: None,
        }
    }
}

//! Where work is handed in, and where workers get it.

use crossbeam_channel::{Receiver, Sender, select, unbounded};

use super::Work;
use crate::agents::attach::Candidate;
use crate::agents::strangers::Stranger;

/// Where work is handed in. What a program may wait for comes first, and what waits for strangers has
/// somebody of its own: no worker waits for a program that is not managed yet, or is kept by the long
/// work of a policy.
pub struct Desk {
    urgent: Sender<Work>,
    other: Sender<Work>,
    strangers: Sender<Stranger>,
    jobs: Sender<Work>,
}

/// Where workers get it.
#[derive(Clone)]
pub struct Queue {
    urgent: Receiver<Work>,
    other: Receiver<Work>,
    pub(super) strangers: Receiver<Stranger>,
    pub(super) jobs: Receiver<Work>,
}

/// A queue of work and its desk.
pub fn queue() -> (Desk, Queue) {
    let [urgent, other, jobs] = std::array::from_fn(|_| unbounded());
    let strangers = unbounded();
    let queue = Queue { urgent: urgent.1, other: other.1, strangers: strangers.1, jobs: jobs.1 };
    (Desk { urgent: urgent.0, other: other.0, strangers: strangers.0, jobs: jobs.0 }, queue)
}

impl Desk {
    /// Hands work in.
    pub fn send(&self, work: Work) {
        let to = match work {
            Work::Restore { .. }
            | Work::RestoreForGood { .. }
            | Work::LetGo { .. }
            | Work::LeaveOut { .. } => &self.urgent,
            Work::SwapOut { .. }
            | Work::PutFar { .. }
            | Work::Evict { .. }
            | Work::Peek { .. }
            | Work::Lend { .. }
            | Work::PassOn { .. }
            | Work::Repack { .. }
            | Work::Compact { .. }
            | Work::Sample { .. }
            | Work::EndSample { .. }
            | Work::Scan { .. }
            | Work::LookForOwn { .. } => &self.other,
            // Both take long.
            Work::Job { .. } | Work::CleanLog { .. } => &self.jobs,
        };
        // Without workers the daemon is ending.
        let _ = to.send(work);
    }

    /// Has a candidate prepared for management. Answered by one [`Message::Done`], too.
    pub fn prepare(&self, candidate: Box<Candidate>, ticket: u64) {
        let _ = self.strangers.send((candidate, ticket));
    }
}

impl Queue {
    /// The next piece for a worker; `None` when the desk is closed.
    pub(super) fn next(&self) -> Option<Work> {
        if let Ok(work) = self.urgent.try_recv() {
            return Some(work);
        }
        select! {
            recv(self.urgent) -> work => work.ok(),
            recv(self.other) -> work => work.ok(),
        }
    }
}

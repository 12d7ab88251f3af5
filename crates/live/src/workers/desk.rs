//! Where work is handed in, and where workers get it.

use crossbeam_channel::{Receiver, Sender, select, unbounded};

use super::work::Work;

/// Where work is handed in. What a program may wait for comes first, and the long work of policies, which keeps
/// no worker, has somebody of its own.
pub struct Desk {
    urgent: Sender<Work>,
    other: Sender<Work>,
    jobs: Sender<Work>,
}

/// Where workers get it.
#[derive(Clone)]
pub struct Queue {
    urgent: Receiver<Work>,
    other: Receiver<Work>,
    pub(super) jobs: Receiver<Work>,
}

/// A queue of work and its desk.
pub fn queue() -> (Desk, Queue) {
    let [urgent, other, jobs] = std::array::from_fn(|_| unbounded());
    let queue = Queue { urgent: urgent.1, other: other.1, jobs: jobs.1 };
    (Desk { urgent: urgent.0, other: other.0, jobs: jobs.0 }, queue)
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
            | Work::PutUntouched { .. }
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
            | Work::ClearAccessed { .. }
            | Work::LookAtOpenFiles { .. } => &self.other,
            // Both take long.
            Work::Job { .. } | Work::CleanLog { .. } => &self.jobs,
        };
        // Without workers the daemon is ending.
        let _ = to.send(work);
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

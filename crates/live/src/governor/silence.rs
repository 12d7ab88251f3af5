//! Programs whose agents are silent, because they are frozen or stopped: nothing is asked of them,
//! nothing is lost, and nobody else waits for them.

use std::io;
use std::sync::Arc;

use super::Governor;
use crate::programs::process::Process;
use crate::workers::shares::MostOfUser;

/// Workers that take the places of others, at most.
const MAX_STAND_INS: usize = 64;

impl Governor {
    /// As many workers as configured, not counting those that programs hold up.
    pub fn hire(&mut self) -> io::Result<()> {
        self.held_up = self.crew.held_up();
        let held_up: usize = self.held_up.values().sum();
        self.crew.keep(self.config.workers + held_up.min(MAX_STAND_INS))
    }

    /// A daemon that ends has no use for agents any more, and waits for none that has begun an order and does not end it.
    pub(super) fn wait_for_no_agent(&self) {
        if self.stopping.is_some() {
            for process in self.shared.processes.read().values() {
                process.memory.kill_agent_that_holds_up();
            }
        }
    }

    /// Whether pages can be taken out of it now.
    pub(super) fn takes_orders(&self, process: &Process) -> bool {
        takes_orders(process) && !self.is_held_up_by_user(process)
    }

    /// Whether programs of this one's user keep as many workers as those of one user of a service may.
    fn is_held_up_by_user(&self, process: &Process) -> bool {
        let MostOfUser(most) = MostOfUser::of(self.config.workers, self.shared.users.is_service());
        self.held_up.get(&process.uid()).is_some_and(|held_up| *held_up >= most)
    }

    /// Offers the pages of programs that take orders again. While they did not, whatever the policies picked of them was
    /// off their lists. A worker may be the first to hear a silent agent again, so who was passed over is kept.
    pub(super) fn look_after_the_silent(&mut self) {
        let before = std::mem::take(&mut self.passed_over);
        let is_one = |p: &&Arc<Process>| before.contains(&p.id) || p.memory.is_silent();
        let passed_over: Vec<_> =
            self.shared.processes.read().values().filter(is_one).cloned().collect();
        for process in passed_over {
            // Whose answer has come takes orders from here on.
            process.memory.is_heard_again();
            if !self.takes_orders(&process) {
                self.passed_over.insert(process.id);
                continue;
            }
            tracing::info!(pid = process.pid(), "a program takes orders again");
            if !self.driver.is_protected(process.id) {
                self.offer(&process);
            }
        }
        if let Err(error) = self.hire() {
            tracing::warn!(%error, "no worker takes the place of one that waits for an agent");
        }
    }
}

/// Whether an order can be given to its agent.
pub(super) fn takes_orders(process: &Process) -> bool {
    process.is_managed() && !process.memory.is_silent()
}

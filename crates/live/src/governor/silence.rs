//! Programs whose agents are silent, because they are frozen or stopped: nothing is asked of them,
//! nothing is lost, and nobody else waits for them.

use std::io;
use std::sync::Arc;

use super::Governor;
use crate::programs::process::Process;

/// Workers that take the places of others, at most.
const MAX_STAND_INS: usize = 64;

/// Workers that programs of one user of a service may keep so: then nothing more is taken out of them.
const MAX_OF_USER: usize = 8;

impl Governor {
    /// As many workers as configured, not counting those who wait for an agent that has begun an
    /// order and does not end it.
    pub fn hire(&mut self) -> io::Result<()> {
        self.held_up.clear();
        for process in self.shared.processes.read().values() {
            if process.memory.holds_up_a_worker() {
                *self.held_up.entry(process.uid()).or_default() += 1;
            }
        }
        let held_up: usize = self.held_up.values().sum();
        self.crew.keep(self.config.workers + held_up.min(MAX_STAND_INS))
    }

    /// Whether programs of this one's user keep as many workers as those of one user of a service may.
    pub(super) fn is_held_up_by_user(&self, process: &Process) -> bool {
        let most = if self.shared.users.is_service() { MAX_OF_USER } else { usize::MAX };
        self.held_up.get(&process.uid()).is_some_and(|held_up| *held_up >= most)
    }

    /// Offers the pages of programs that are heard again. While they were silent, whatever the
    /// policies picked of them was off their lists.
    pub(super) fn look_after_the_silent(&mut self) {
        let silent = |p: &&Arc<Process>| p.memory.is_silent();
        let silent: Vec<_> =
            self.shared.processes.read().values().filter(silent).cloned().collect();
        for process in silent {
            if process.memory.is_heard_again() {
                tracing::info!(pid = process.pid(), "a silent agent is heard again");
                if !self.driver.is_protected(process.id) {
                    self.offer(&process);
                }
            }
        }
        if let Err(error) = self.hire() {
            tracing::warn!(%error, "no worker takes the place of one that waits for an agent");
        }
    }
}

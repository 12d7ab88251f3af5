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

    /// Whether programs of this one's user keep as many workers as those of one user of a service may.
    pub(super) fn is_held_up_by_user(&self, process: &Process) -> bool {
        let MostOfUser(most) = MostOfUser::of(self.config.workers, self.shared.users.is_service());
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

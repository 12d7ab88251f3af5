//! Programs whose memory control group is at its limit, and so takes none of their own pages back.
//!
//! Where the kernel may end a process of such a group, it does, as it would without Clew. Where it may not
//! (`memory.oom_control`), a thread waits for its page, and asks again and again; that has an end here.

use std::sync::Arc;
use std::time::Duration;

use super::Governor;
use crate::programs::process::Process;

/// How long no page of a program may be taken, before the program is ended.
pub const PATIENCE: Duration = Duration::from_secs(10);

impl Governor {
    pub(super) fn end_the_starved(&mut self) {
        let is_starved =
            |p: &&Arc<Process>| p.memory.has_no_room_since().is_some_and(|since| since > PATIENCE);
        let starved: Vec<Arc<Process>> =
            self.shared.processes.read().values().filter(is_starved).cloned().collect();
        for process in starved.iter().filter(|process| !process.memory.has_ended()) {
            process.give_up(
                "its memory control group, or the system, had no room for a page of its own for 10 s",
            );
        }
    }
}

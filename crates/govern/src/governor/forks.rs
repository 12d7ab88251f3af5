//! Forked processes have their parent's pages, as long as neither writes to them: `statm` has these in each, and memory once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use clew_core::SpaceId;

use crate::governor::Governor;
use crate::program::Program;

/// How often it is looked at what a program has for itself: that takes a pass over its page tables.
const LOOK: Duration = Duration::from_secs(10);
/// One program at a time, so far apart.
const APART: Duration = Duration::from_millis(200);

impl Governor {
    /// Looks at one program that has forked others, or was forked, and may have pages of theirs.
    pub(super) fn look_at_forks(&mut self) {
        if self.looked_at_forks.is_some_and(|when| when.elapsed() < APART) {
            return;
        }
        self.looked_at_forks = Some(Instant::now());
        let parents: HashSet<u32> = self.programs.values().map(|program| program.parent).collect();
        let due = |program: &&Program| {
            let is_one =
                parents.contains(&program.name.pid) || self.by_pid.contains_key(&program.parent);
            // Who shared with others that have ended has all for itself again.
            (is_one || program.own_part < 1.0)
                && program.own_part_looked.is_none_or(|when| when.elapsed() >= LOOK)
        };
        let due: Option<SpaceId> = self
            .programs
            .values()
            .filter(due)
            .min_by_key(|program| program.own_part_looked)
            .map(|program| program.space);
        if let Some(program) = due.and_then(|space| self.programs.get_mut(&space)) {
            program.look_at_own_part(self.page_bytes);
        }
    }
}

//! Forked processes have their parent's pages, as long as neither writes to them: `statm` has these in each, and memory once.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use clew_core::SpaceId;

use crate::governor::Governor;
use crate::program::Program;

/// How often it is looked at what a program has for itself: that takes a pass over its page tables.
const LOOK: Duration = Duration::from_secs(10);
/// So far apart programs are looked at, and for so long: a hundredth of a CPU.
const APART: Duration = Duration::from_millis(200);
const LOOKS: Duration = Duration::from_millis(2);

impl Governor {
    /// Looks at programs that have forked others, or were forked, and may have pages of theirs: those first that were never
    /// looked at, and one at least.
    pub(super) fn look_at_forks(&mut self) {
        let begun = Instant::now();
        if self.looked_at_forks.is_some_and(|when| begun - when < APART) {
            return;
        }
        self.looked_at_forks = Some(begun);
        let parents: HashSet<u32> = self.programs.values().map(|program| program.parent).collect();
        let is_due = |program: &&Program| {
            let is_one =
                parents.contains(&program.name.pid) || self.by_pid.contains_key(&program.parent);
            // Who shared with others that have ended has all for itself again.
            (is_one || program.own_part < 1.0)
                && program.own_part_looked.is_none_or(|when| begun - when >= LOOK)
        };
        // Children first: as long as a parent was not looked at it counts for all that they share.
        let mut due: Vec<&Program> = self.programs.values().filter(is_due).collect();
        due.sort_unstable_by_key(|program| {
            (program.own_part_looked, Reverse((program.name.started, program.name.pid)))
        });
        let due: Vec<SpaceId> = due.iter().map(|program| program.space).collect();
        for space in due {
            if let Some(program) = self.programs.get_mut(&space) {
                program.look_at_own_part(self.page_bytes);
            }
            if begun.elapsed() >= LOOKS {
                break;
            }
        }
    }
}

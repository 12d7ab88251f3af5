//! All-page accommodation where pages of programs and pages of files lie in two pools of one budget: how large that of
//! files may be.
//!
//! Source: ezswap (IEEE Access 2019), III-A: clean pages of files are kept compressed beside anonymous ones. There is one
//! pool there, whichever page is worth less leaves it, and with so many more pages of files they may push the anonymous ones out
//! ("the APA scheme causes the following three issues"). *Ours:* with two pools the same is asked of each as a whole. What
//! a byte has saved of late, in reads of flash ([`cost`]), says which of them gives way, a step at a time.

use crate::ezswap::cost;

/// A pool, and what it was good for since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// What it takes.
    pub held_bytes: u64,
    /// Pages that came from it and were asked for.
    pub hits: u64,
}

/// The budget of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub total_bytes: u64,
    /// What of it nobody uses and nobody needs to be free.
    pub spare_bytes: u64,
}

/// A pool has to have saved so many times what the other has before it takes anything from that.
const CLEARLY: u128 = 2;
/// What one takes from the other at a time, one part of the budget in so many; and what files may have whatever they
/// are good for, or nobody would ever know.
const STEPS: u64 = 64;

/// How many bytes the pool of files may have until this is asked again: no more than the budget, nor than `wanted_bytes`.
pub fn files_limit(room: Room, files: Pool, programs: Pool, wanted_bytes: u64) -> u64 {
    let step = room.total_bytes / STEPS;
    let limit = match room.spare_bytes {
        0 => {
            let of_files = saved(files, true) * u128::from(programs.held_bytes);
            let of_programs = saved(programs, false) * u128::from(files.held_bytes);
            if of_files > of_programs * CLEARLY {
                files.held_bytes.saturating_add(step)
            } else if of_programs > of_files * CLEARLY {
                files.held_bytes.saturating_sub(step)
            } else {
                files.held_bytes
            }
        }
        spare => files.held_bytes.saturating_add(spare),
    };
    limit.max(step).min(room.total_bytes).min(wanted_bytes)
}

/// Reads of flash.
fn saved(pool: Pool, file: bool) -> u128 {
    u128::from(pool.hits) * u128::from(cost(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIGHT: Room = Room { total_bytes: 640, spare_bytes: 0 };

    fn pool(held_bytes: u64, hits: u64) -> Pool {
        Pool { held_bytes, hits }
    }

    #[test]
    fn what_nobody_uses_is_for_files() {
        let room = Room { spare_bytes: 30, ..TIGHT };
        // Whatever they were good for.
        assert_eq!(files_limit(room, pool(50, 0), pool(100, 9), 1000), 80);
        assert_eq!(files_limit(room, pool(50, 0), pool(100, 9), 70), 70);
    }

    #[test]
    fn whose_bytes_save_more_takes_from_the_other() {
        let limit = |files, programs| files_limit(TIGHT, files, programs, 1000);
        // A page of a program saves four reads, one of a file one.
        assert_eq!(limit(pool(100, 9), pool(100, 1)), 110);
        assert_eq!(limit(pool(100, 8), pool(100, 1)), 100);
        assert_eq!(limit(pool(100, 2), pool(100, 1)), 100);
        assert_eq!(limit(pool(100, 1), pool(100, 1)), 90);
        // By the byte.
        assert_eq!(limit(pool(100, 1), pool(400, 1)), 100);
        assert_eq!(limit(pool(25, 3), pool(100, 1)), 35);
        // Nobody was good for anything.
        assert_eq!(limit(pool(100, 0), pool(100, 0)), 100);
    }

    #[test]
    fn files_have_a_step_of_the_budget_at_least() {
        assert_eq!(files_limit(TIGHT, pool(0, 0), pool(100, 99), 1000), 10);
        assert_eq!(files_limit(TIGHT, pool(12, 0), pool(100, 99), 1000), 10);
        assert_eq!(files_limit(TIGHT, pool(0, 0), pool(100, 99), 4), 4);
        let all = pool(u64::MAX, u64::MAX);
        let huge = Room { total_bytes: u64::MAX, spare_bytes: u64::MAX };
        assert_eq!(files_limit(huge, all, all, u64::MAX), u64::MAX);
        assert_eq!(files_limit(TIGHT, all, pool(1, 1), 7), 7);
        assert_eq!(files_limit(TIGHT, all, pool(1, 1), 1000), 640, "the budget is all there is");
    }
}

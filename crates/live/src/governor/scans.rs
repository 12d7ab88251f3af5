//! When a program's memory is looked through for what is new ([`crate::programs::scan`]): when more of
//! it is resident than is known, and more eagerly near the limit. A program of many mappings takes tens
//! of milliseconds, so the pace follows from what the last look took.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::SpaceId;

use super::Governor;
use crate::programs::process::Process;
use crate::workers::work::Work;

/// Bytes that are worth a look where memory is short.
const STEP: u64 = 1 << 20;

/// A program is looked through for at most this part of the time.
const PART_OF_TIME: u32 = 20;

/// Looks, by program.
#[derive(Default)]
pub(super) struct Scans(HashMap<SpaceId, Scan>);

/// The last look at one program.
#[derive(Clone, Copy)]
struct Scan {
    /// The least that was [`Unknown`] since it began, bytes; `None` if it is to be looked through again whatever
    /// comes.
    unknown: Option<i64>,
    /// When it ended and how long it took; `None` while one is under way.
    ended: Option<(Instant, Duration)>,
}

/// Resident bytes of a program that its page table here does not know: what came since it was looked through, and
/// what can never be managed. What is just being taken out is still in the program, or no longer: hence two figures. Below
/// zero where pages are known that the kernel does not count, those that show its page of zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unknown {
    least: i64,
    most: i64,
}

impl Unknown {
    /// Of a program of which so many bytes are resident.
    pub fn of(process: &Process, resident: u64, page_bytes: u64) -> Unknown {
        let counts = process.space.table.counts();
        let most = resident as i64 - (counts.resident * page_bytes) as i64;
        Unknown { least: most - (counts.moving * page_bytes) as i64, most }
    }
}

impl Scans {
    /// Whether a program of which so much is not known is to be looked through now.
    pub fn is_due(&mut self, space: SpaceId, unknown: Unknown, near_the_limit: bool) -> bool {
        let (step, pause) = match near_the_limit {
            true => (STEP as i64, Duration::from_millis(50)),
            false => (16 << 20, Duration::from_millis(500)),
        };
        let Some(last) = self.0.get_mut(&space) else { return unknown.least > step };
        let has_rested =
            |(when, took): (Instant, Duration)| when.elapsed() > pause.max(took * PART_OF_TIME);
        last.unknown = last.unknown.map(|before| before.min(unknown.most));
        last.unknown.is_none_or(|before| unknown.least > before + step)
            && last.ended.is_some_and(has_rested)
    }

    /// A look has ended, after so long, and found so many bytes; `None` if it failed. Where it found much, or failed,
    /// another one says whether that was all: what comes while it goes on may not be seen.
    pub fn ended(&mut self, space: SpaceId, took: Duration, found: Option<u64>) {
        let is_all = found.is_some_and(|bytes| bytes <= STEP);
        let before = self.0.get(&space).filter(|_| is_all).and_then(|scan| scan.unknown);
        self.0.insert(space, Scan { unknown: before, ended: Some((Instant::now(), took)) });
    }

    /// The program has gone.
    pub fn forget(&mut self, space: SpaceId) {
        self.0.remove(&space);
    }
}

impl Governor {
    /// Has a program looked through; `promise` waits for that.
    pub(super) fn scan(&mut self, process: Arc<Process>, promise: Option<u64>) {
        let (resident, page_bytes) = (self.resident_of(&process), self.shared.page_bytes);
        let unknown = Some(Unknown::of(&process, resident, page_bytes).most);
        self.scans.0.insert(process.id, Scan { unknown, ended: None });
        self.hand_out(promise, |ticket| Work::Scan { process, ticket });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(1);

    const MIB: i64 = 1 << 20;

    fn looked(unknown: Option<i64>, ago: Duration, took: Duration) -> Scans {
        let when = Instant::now().checked_sub(ago).expect("the machine has run for a while");
        Scans(HashMap::from([(SPACE, Scan { unknown, ended: Some((when, took)) })]))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn unknown(mib: i64) -> Unknown {
        Unknown { least: mib * MIB, most: mib * MIB }
    }

    #[test]
    fn a_program_with_memory_that_is_not_known_is_looked_through() {
        let now =
            |mib, near| looked(Some(30 * MIB), ms(60), ms(1)).is_due(SPACE, unknown(mib), near);
        assert!(now(32, true));
        assert!(!now(31, true), "that is not worth it");
        assert!(!now(32, false), "there is room");
        assert!(looked(Some(30 * MIB), ms(510), ms(1)).is_due(SPACE, unknown(50), false));
        assert!(
            !looked(Some(30 * MIB), ms(40), ms(1)).is_due(SPACE, unknown(50), true),
            "too soon"
        );
        assert!(Scans::default().is_due(SPACE, unknown(2), true), "never yet");
    }

    /// It gave memory up, and has got other since.
    #[test]
    fn the_least_that_was_not_known_is_what_counts() {
        let mut scans = looked(Some(30 * MIB), ms(60), ms(1));
        assert!(!scans.is_due(SPACE, unknown(10), true));
        assert!(scans.is_due(SPACE, unknown(12), true));
    }

    #[test]
    fn what_shows_zeros_hides_nothing_new() {
        let mut scans = looked(Some(10 * MIB), ms(60), ms(1));
        assert!(!scans.is_due(SPACE, unknown(-90), true));
        assert!(scans.is_due(SPACE, unknown(-88), true));
    }

    #[test]
    fn what_is_just_being_taken_out_is_nothing_new() {
        let mut scans = looked(Some(30 * MIB), ms(60), ms(1));
        assert!(!scans.is_due(SPACE, Unknown { least: 30 * MIB, most: 34 * MIB }, true));
        assert!(!scans.is_due(SPACE, Unknown { least: 26 * MIB, most: 30 * MIB }, true));
        assert!(!scans.is_due(SPACE, Unknown { least: 31 * MIB, most: 33 * MIB }, true));
    }

    #[test]
    fn looks_that_take_long_are_seldom_and_one_at_a_time() {
        assert!(
            !looked(Some(0), ms(700), ms(40)).is_due(SPACE, unknown(500), true),
            "every 800 ms"
        );
        assert!(looked(Some(0), ms(810), ms(40)).is_due(SPACE, unknown(500), true));
        let mut scans = Scans(HashMap::from([(SPACE, Scan { unknown: Some(0), ended: None })]));
        assert!(!scans.is_due(SPACE, unknown(500), true), "one is under way");
        scans.ended(SPACE, Duration::ZERO, Some(500 << 20));
        scans.forget(SPACE);
        assert!(scans.is_due(SPACE, unknown(500), true));
    }

    #[test]
    fn what_came_during_a_look_and_what_one_did_not_find_out_is_looked_for_again() {
        // 40 MiB were not known when it began, so many of them are now.
        let due = |found: Option<u64>, mib| {
            let mut scans =
                Scans(HashMap::from([(SPACE, Scan { unknown: Some(40 * MIB), ended: None })]));
            scans.ended(SPACE, Duration::ZERO, found.map(|mib| mib << 20));
            let rested = looked(None, ms(1000), Duration::ZERO).0[&SPACE].ended;
            scans.0.get_mut(&SPACE).expect("it ended").ended = rested;
            scans.is_due(SPACE, unknown(mib), true)
        };
        assert!(due(Some(40), 20), "20 came meanwhile");
        assert!(due(Some(40), 0), "whether that was all the next says");
        assert!(!due(Some(0), 40), "none of it is what is looked for");
        assert!(due(Some(0), 60), "20 came meanwhile");
        assert!(due(None, 40), "nothing was found out");
    }
}

//! When a program's memory is looked through for what is new ([`crate::programs::scan`]): when it has grown,
//! and more eagerly near the limit. A program of many mappings takes tens of milliseconds, so the pace
//! follows from what the last look took.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::SpaceId;

use super::Governor;
use crate::programs::process::Process;
use crate::workers::work::Work;

/// A program is looked through for at most this part of the time.
const PART_OF_TIME: u32 = 20;

/// Looks, by program.
#[derive(Default)]
pub(super) struct Scans(HashMap<SpaceId, Scan>);

/// The last look at one program.
#[derive(Clone, Copy)]
struct Scan {
    /// What was resident when it began, bytes.
    resident: u64,
    /// When it ended and how long it took; `None` while one is under way.
    ended: Option<(Instant, Duration)>,
}

impl Scans {
    /// Whether a program of which so much is resident is to be looked through now.
    pub fn is_due(&self, space: SpaceId, resident: u64, near_the_limit: bool) -> bool {
        let (step, pause) = match near_the_limit {
            true => (1 << 20, Duration::from_millis(50)),
            false => (16 << 20, Duration::from_millis(500)),
        };
        let Some(last) = self.0.get(&space) else { return resident > step };
        let has_rested =
            |(when, took): (Instant, Duration)| when.elapsed() > pause.max(took * PART_OF_TIME);
        resident.abs_diff(last.resident) > step && last.ended.is_some_and(has_rested)
    }

    /// A look has ended, after so long. What came while it went on may not have been seen, so it counts as
    /// come since; after one that found out nothing, all does.
    pub fn ended(&mut self, space: SpaceId, took: Duration, is_whole: bool) {
        let before = self.0.get(&space).filter(|_| is_whole).map_or(0, |scan| scan.resident);
        self.0.insert(space, Scan { resident: before, ended: Some((Instant::now(), took)) });
    }

    /// The program has gone.
    pub fn forget(&mut self, space: SpaceId) {
        self.0.remove(&space);
    }
}

impl Governor {
    /// Has a program looked through; `promise` waits for that.
    pub(super) fn scan(&mut self, process: Arc<Process>, promise: Option<u64>) {
        let resident = self.resident_of(&process);
        self.scans.0.insert(process.id, Scan { resident, ended: None });
        self.hand_out(promise, |ticket| Work::Scan { process, ticket });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(1);

    fn looked(resident: u64, ago: Duration, took: Duration) -> Scans {
        let when = Instant::now().checked_sub(ago).expect("the machine has run for a while");
        Scans(HashMap::from([(SPACE, Scan { resident, ended: Some((when, took)) })]))
    }

    #[test]
    fn a_program_that_has_grown_is_looked_through() {
        let (mib, ms) = (1 << 20, Duration::from_millis);
        let scans = looked(100 * mib, ms(60), ms(1));
        assert!(scans.is_due(SPACE, 102 * mib, true));
        assert!(scans.is_due(SPACE, 98 * mib, true), "it gave memory up, and may have got other");
        assert!(!scans.is_due(SPACE, 101 * mib, true), "that is not worth it");
        assert!(!scans.is_due(SPACE, 102 * mib, false), "there is room");
        assert!(looked(100 * mib, ms(510), ms(1)).is_due(SPACE, 120 * mib, false));
        assert!(!looked(100 * mib, ms(40), ms(1)).is_due(SPACE, 120 * mib, true), "too soon");
        assert!(Scans::default().is_due(SPACE, 2 * mib, true), "never yet");
    }

    #[test]
    fn looks_that_take_long_are_seldom_and_one_at_a_time() {
        let (mib, ms) = (1 << 20, Duration::from_millis);
        assert!(!looked(0, ms(700), ms(40)).is_due(SPACE, 500 * mib, true), "every 800 ms");
        assert!(looked(0, ms(810), ms(40)).is_due(SPACE, 500 * mib, true));
        let mut scans = Scans(HashMap::from([(SPACE, Scan { resident: 0, ended: None })]));
        assert!(!scans.is_due(SPACE, 500 * mib, true), "one is under way");
        scans.ended(SPACE, Duration::ZERO, true);
        scans.forget(SPACE);
        assert!(scans.is_due(SPACE, 500 * mib, true));
    }

    #[test]
    fn what_came_during_a_look_and_what_one_did_not_find_out_is_looked_for_again() {
        let mib = 1 << 20;
        let of = |resident, is_whole| {
            let mut scans = Scans(HashMap::from([(SPACE, Scan { resident, ended: None })]));
            scans.ended(SPACE, Duration::ZERO, is_whole);
            scans.0.get_mut(&SPACE).expect("it ended").ended =
                looked(0, Duration::from_secs(1), Duration::ZERO).0[&SPACE].ended;
            scans
        };
        assert!(of(20 * mib, true).is_due(SPACE, 64 * mib, false), "it grew meanwhile");
        assert!(!of(64 * mib, true).is_due(SPACE, 64 * mib, false));
        assert!(of(64 * mib, false).is_due(SPACE, 64 * mib, false), "nothing was found out");
    }
}

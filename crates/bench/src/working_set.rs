//! Which units (records, documents, row ranges) an interaction touches: a core that comes back at
//! every visit, and the rest fresh each time. Hot data of real apps overlaps by about 70 % from one
//! relaunch to the next.

use clew_core::Seeded;

/// The visits of one app.
#[derive(Clone, Debug)]
pub struct WorkingSet {
    seed: u64,
    units: u32,
    core: Vec<u32>,
    fresh: usize,
}

impl WorkingSet {
    /// `size` of `units` units at each visit, `similarity` of them (0 to 1) the same every time.
    pub fn new(seed: u64, units: u32, size: usize, similarity: f64) -> WorkingSet {
        let size = size.min(units as usize);
        let mut all: Vec<u32> = (0..units).collect();
        Seeded::of(seed, &[0]).shuffle(&mut all);
        let kept = (size as f64 * similarity).round() as usize;
        all.truncate(kept);
        WorkingSet { seed, units, core: all, fresh: size - kept }
    }

    /// The units of one visit, no unit twice, in the order in which they are asked for. That order
    /// is another one at each visit.
    pub fn visit(&self, visit: u32) -> Vec<u32> {
        let mut seeded = Seeded::of(self.seed, &[1, u64::from(visit)]);
        let mut taken = vec![false; self.units as usize];
        let mut units = self.core.clone();
        for &unit in &units {
            taken[unit as usize] = true;
        }
        let mut missing = self.fresh.min(taken.len() - units.len());
        while missing > 0 {
            let unit = seeded.below(u64::from(self.units)) as u32;
            if !std::mem::replace(&mut taken[unit as usize], true) {
                units.push(unit);
                missing -= 1;
            }
        }
        seeded.shuffle(&mut units);
        units
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn consecutive_visits_are_as_alike_as_was_asked() {
        for similarity in [0.0, 0.5, 0.7, 0.95] {
            let set = WorkingSet::new(11, 20_000, 1_000, similarity);
            let mut shared = 0;
            for visit in 0..10 {
                let here: HashSet<u32> = set.visit(visit).into_iter().collect();
                let next: HashSet<u32> = set.visit(visit + 1).into_iter().collect();
                assert_eq!(here.len(), 1_000, "a unit came twice");
                shared += here.intersection(&next).count();
            }
            let measured = shared as f64 / 10_000.0;
            // Fresh units meet by chance in at most 5 % of the remainder.
            assert!(
                (similarity..similarity + 0.06).contains(&measured),
                "{measured} instead of {similarity}"
            );
        }
    }

    #[test]
    fn visits_repeat_to_the_unit() {
        let set = WorkingSet::new(5, 500, 100, 0.7);
        assert_eq!(set.visit(3), WorkingSet::new(5, 500, 100, 0.7).visit(3));
        assert_ne!(set.visit(3), set.visit(4));
    }

    #[test]
    fn a_set_as_large_as_all_units() {
        assert_eq!(WorkingSet::new(5, 10, 100, 0.7).visit(0).len(), 10);
    }
}

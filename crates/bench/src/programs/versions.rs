//! Which version of each unit a program holds, so that stale data is noticed.

use clew_core::Seeded;

/// One request of an interaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Read `unit`; it holds `version`.
    Read { unit: u32, version: u32 },
    /// Write `version` of `unit`.
    Update { unit: u32, version: u32 },
}

/// The versions of all units; zero after the fill.
#[derive(Clone, Debug)]
pub struct Versions {
    seed: u64,
    updates: f64,
    versions: Vec<u32>,
}

impl Versions {
    /// `units` units; `updates` of the requests of an interaction are updates.
    pub fn new(seed: u64, units: u32, updates: f64) -> Versions {
        Versions { seed, updates, versions: vec![0; units as usize] }
    }

    /// Decides for each unit of a visit whether it is read or updated. Updates count as done.
    pub fn steps(&mut self, visit: u32, units: &[u32]) -> Vec<Step> {
        let mut seeded = Seeded::of(self.seed, &[20, u64::from(visit)]);
        units
            .iter()
            .map(|&unit| {
                let version = &mut self.versions[unit as usize];
                if seeded.unit() < self.updates {
                    *version += 1;
                    Step::Update { unit, version: *version }
                } else {
                    Step::Read { unit, version: *version }
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_expects_the_last_update() {
        let mut versions = Versions::new(1, 10, 0.5);
        let units: Vec<u32> = (0..10).collect();
        let mut held = [0; 10];
        for visit in 0..20 {
            for step in versions.steps(visit, &units) {
                match step {
                    Step::Read { unit, version } => assert_eq!(version, held[unit as usize]),
                    Step::Update { unit, version } => {
                        held[unit as usize] += 1;
                        assert_eq!(version, held[unit as usize]);
                    }
                }
            }
        }
        assert!(held.iter().all(|&version| version > 0));
    }
}

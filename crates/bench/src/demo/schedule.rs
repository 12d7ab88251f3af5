//! Which runs there are, in which order.

use std::fmt;

use clew_report::{Point, percent};

use crate::arms::ArmKind;

/// One arm at one point in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    pub arm: ArmKind,
    /// `None` for `dram`, and where a total in bytes was asked for.
    pub total: Option<f64>,
    pub similarity: f64,
    pub round: usize,
}

impl Run {
    /// Whether it counts at this point, where it has the memory that is its arm's.
    pub fn is_at(&self, arm: ArmKind, point: Point) -> bool {
        self.arm == arm
            && point.similarity == Some(self.similarity)
            && (self.total.is_none() || self.total == point.total_part)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.arm)?;
        if let Some(total) = self.total {
            write!(f, ", total {} %", percent(total))?;
        }
        write!(f, ", {} % alike, round {}", percent(self.similarity), self.round + 1)
    }
}

/// All points: every total at the first similarity, every similarity at the first total. The base
/// point, which has both, comes first.
pub fn points(totals: &[f64], similarities: &[f64]) -> Vec<Point> {
    let at = |total_part, similarity| Point {
        total_part: Some(total_part),
        similarity: Some(similarity),
    };
    let of_totals = totals.iter().map(|&total| at(total, similarities[0]));
    let of_similarities = similarities[1..].iter().map(|&similarity| at(totals[0], similarity));
    of_totals.chain(of_similarities).collect()
}

/// All runs. A round is complete before the next one begins. Within a point the order of arms is
/// another one each time, so that no arm always runs on a machine that is warmer than another's;
/// `dram` comes before the first point of its similarity. Ablations run at the base point.
pub fn runs(totals: &[f64], similarities: &[f64], arms: &[ArmKind], rounds: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for round in 0..rounds {
        for (number, point) in points(totals, similarities).into_iter().enumerate() {
            let similarity = point.similarity.unwrap_or_default();
            let run = |arm, total| Run { arm, total, similarity, round };
            let dram = run(ArmKind::Dram, None);
            if !runs.contains(&dram) {
                runs.push(dram);
            }
            let mut here: Vec<ArmKind> = arms
                .iter()
                .copied()
                .filter(|&arm| arm != ArmKind::Dram)
                .filter(|arm| number == 0 || !matches!(arm, ArmKind::Without(_)))
                .collect();
            let count = here.len().max(1);
            // The second round runs backwards from where the first one began.
            here.rotate_left(number % count);
            if round % 2 == 1 {
                here.reverse();
            }
            runs.extend(here.into_iter().map(|arm| run(arm, point.total_part)));
        }
    }
    runs
}

/// A part of what is needed, in whole MiB, so that a few pages more or less change nothing.
pub fn total_bytes(need: u64, part: f64) -> u64 {
    ((need as f64 * part / f64::from(1 << 20)).round() as u64) << 20
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::arms::Ablation;

    #[test]
    fn every_arm_runs_once_a_round_at_every_point() {
        let arms = [
            ArmKind::KernelZram,
            ArmKind::ClewZram,
            ArmKind::ClewAriadne,
            ArmKind::Without(Ablation::HotnessOrg),
        ];
        let (totals, similarities) = ([0.5, 0.4, 0.75], [0.7, 0.0]);
        let runs = runs(&totals, &similarities, &arms, 2);
        let names: HashSet<String> = runs.iter().map(Run::to_string).collect();
        assert_eq!(names.len(), runs.len(), "a run came twice");
        // Four points of three arms, the ablation at one, two similarities of dram; two rounds.
        assert_eq!(runs.len(), 2 * (4 * 3 + 1 + 2));
        assert_eq!(runs[0].arm, ArmKind::Dram);
        for (position, run) in runs.iter().enumerate() {
            let dram = runs.iter().position(|other| {
                other.arm == ArmKind::Dram
                    && (other.similarity, other.round) == (run.similarity, run.round)
            });
            assert!(dram.is_some_and(|dram| dram <= position), "{run} has nothing to compare with");
        }
    }

    #[test]
    fn the_order_of_arms_rotates() {
        let arms = [ArmKind::KernelZram, ArmKind::SwapFile, ArmKind::ClewZram];
        let runs = runs(&[0.5, 0.4, 0.6], &[0.7], &arms, 1);
        let firsts: HashSet<&str> = [0.5, 0.4, 0.6]
            .iter()
            .filter_map(|&total| runs.iter().find(|run| run.total == Some(total)))
            .map(|run| run.arm.name())
            .collect();
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn totals_are_whole_mebibytes() {
        assert_eq!(total_bytes((101 << 20) + 4096, 0.5), 51 << 20);
        assert_eq!(percent(0.7), 70.0);
    }
}

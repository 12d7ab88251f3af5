//! Each visit beside the same visit in memory: what swapping adds to it, and whether its answers are
//! the same.

use clew_report::{Sample, Summary};
use serde::Serialize;

/// A visit to a program in an arm, and the same one in `dram`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub program: String,
    pub in_memory_ms: f64,
    pub ms: f64,
}

/// What swapping added to the visits of one program, or of all. Milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Added {
    /// A program, or `all` but the one in front.
    pub program: String,
    pub is_front: bool,
    pub in_memory_ms: Summary,
    pub visit_ms: Summary,
    pub added_ms: Summary,
    pub added_sum_ms: f64,
}

/// Pairs visits by their place in the sequence; one that is missing on a side has no pair.
pub fn pairs(in_memory: &[Sample], arm: &[Sample]) -> Vec<Pair> {
    let same = |one: &Sample| {
        let other = in_memory.iter().find(|other| other.switch == one.switch)?;
        (other.program == one.program).then(|| Pair {
            program: one.program.clone(),
            in_memory_ms: other.relaunch_ms,
            ms: one.relaunch_ms,
        })
    };
    arm.iter().filter_map(same).collect()
}

impl Added {
    /// Of those pairs.
    pub fn of(program: &str, is_front: bool, pairs: &[&Pair]) -> Added {
        let all = |of: &dyn Fn(&Pair) -> f64| -> Vec<f64> { pairs.iter().map(|p| of(p)).collect() };
        let added = all(&|pair| pair.ms - pair.in_memory_ms);
        Added {
            program: program.to_string(),
            is_front,
            in_memory_ms: Summary::of(&all(&|pair| pair.in_memory_ms)),
            visit_ms: Summary::of(&all(&|pair| pair.ms)),
            added_sum_ms: added.iter().sum(),
            added_ms: Summary::of(&added),
        }
    }

    /// For each of `programs`, and, where several others than `front` return, for all of those.
    pub fn of_each(programs: &[String], front: Option<&str>, pairs: &[Pair]) -> Vec<Added> {
        let is_front = |program: &str| front == Some(program);
        let mut each: Vec<Added> = programs
            .iter()
            .map(|program| {
                let own: Vec<&Pair> =
                    pairs.iter().filter(|pair| pair.program == *program).collect();
                Added::of(program, is_front(program), &own)
            })
            .collect();
        let others: Vec<&Pair> = pairs.iter().filter(|pair| !is_front(&pair.program)).collect();
        if each.iter().filter(|one| !one.is_front).count() > 1 {
            each.push(Added::of("all", false, &others));
        }
        each
    }
}

/// How many answers differ from those in memory; one that is missing or too many differs.
pub fn differing(in_memory: &[Vec<u32>], arm: &[Vec<u32>]) -> u64 {
    let visits = in_memory.len().max(arm.len());
    let answers = |of: &[Vec<u32>], visit: usize| of.get(visit).cloned().unwrap_or_default();
    let of_visit = |visit: usize| {
        let (right, given) = (answers(in_memory, visit), answers(arm, visit));
        let same = right.iter().zip(&given).filter(|(right, given)| right == given).count();
        (right.len().max(given.len()) - same) as u64
    };
    (0..visits).map(of_visit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(switch: usize, program: &str, relaunch_ms: f64) -> Sample {
        Sample { switch, program: program.to_string(), relaunch_ms, ..Sample::default() }
    }

    #[test]
    fn each_visit_is_compared_with_the_same_one() {
        let memory = [sample(0, "a", 10.0), sample(1, "b", 100.0), sample(2, "a", 30.0)];
        // In another order, and with one that has no like.
        let arm = [
            sample(2, "a", 35.0),
            sample(0, "a", 9.0),
            sample(1, "b", 150.0),
            sample(3, "b", 1.0),
            sample(1, "a", 1.0),
        ];
        let pairs = pairs(&memory, &arm);
        assert_eq!(pairs.len(), 3);
        let names = ["a", "b"].map(String::from);
        let each = Added::of_each(&names, None, &pairs);
        let sums: Vec<f64> = each.iter().map(|one| one.added_sum_ms).collect();
        assert_eq!(sums, [4.0, 50.0, 54.0]);
        // The median of what was added, not the difference of medians.
        assert_eq!((each[0].added_ms.p50, each[2].added_ms.p50, each[2].added_ms.n), (2.0, 5.0, 3));
        assert_eq!((each[0].in_memory_ms.p50, each[0].visit_ms.p50), (20.0, 22.0));
    }

    #[test]
    fn who_is_in_front_does_not_return() {
        let pairs = [("a", 1.0), ("b", 2.0), ("c", 4.0)].map(|(program, ms)| Pair {
            program: program.to_string(),
            in_memory_ms: 0.0,
            ms,
        });
        let names = ["a", "b", "c"].map(String::from);
        let each = Added::of_each(&names, Some("a"), &pairs);
        let all = each.last().expect("all");
        assert_eq!((each[0].is_front, all.program.as_str(), all.added_sum_ms), (true, "all", 6.0));
        assert_eq!(Added::of_each(&names[..2], Some("a"), &pairs[..2]).len(), 2);
        assert_eq!(Added::of_each(&names, None, &[])[0].added_ms.n, 0);
    }

    #[test]
    fn every_difference_counts() {
        let right = [vec![1, 2], vec![3]];
        assert_eq!(differing(&right, &right), 0);
        assert_eq!(differing(&right, &[vec![1, 9], vec![3]]), 1);
        assert_eq!(differing(&right, &[vec![1], vec![3, 4]]), 2);
        assert_eq!(differing(&right, &[vec![1, 2]]), 1);
        assert_eq!(differing(&[], &right), 3);
    }
}

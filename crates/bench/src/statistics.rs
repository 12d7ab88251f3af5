//! What is said about a set of samples.

use serde::{Deserialize, Serialize};

/// Median, 95th percentile, maximum, number of samples. Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub p50: f64,
    pub p95: f64,
    pub max: f64,
    pub n: usize,
}

impl Summary {
    /// Of samples in any order; all zero for none.
    pub fn of(samples: &[f64]) -> Summary {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Summary {
            p50: percentile(&sorted, 50.0),
            p95: percentile(&sorted, 95.0),
            max: sorted.last().copied().unwrap_or_default(),
            n: sorted.len(),
        }
    }
}

/// The `percent`-th percentile of ascending samples, linear between neighbours (as numpy and R type
/// 7 do); zero for none.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = last as f64 * percent / 100.0;
    let below = sorted[rank.floor() as usize];
    let above = sorted[rank.ceil() as usize];
    below + (above - below) * rank.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_small_sets() {
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(Summary::of(&[3.0]), Summary { p50: 3.0, p95: 3.0, max: 3.0, n: 1 });
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((summary.p50, summary.max, summary.n), (2.5, 4.0, 4));
        assert!((summary.p95 - 3.85).abs() < 1e-9);
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let ramp: Vec<f64> = (0..=100).map(f64::from).collect();
        for percent in [0.0, 1.0, 50.0, 95.0, 100.0] {
            assert_eq!(percentile(&ramp, percent), percent);
        }
    }
}

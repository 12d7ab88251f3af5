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

/// What an interval covers, in percent.
pub const COVERAGE: f64 = 95.0;

/// A figure and the interval around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    #[serde(deserialize_with = "number")]
    pub value: f64,
    #[serde(deserialize_with = "number")]
    pub low: f64,
    #[serde(deserialize_with = "number")]
    pub high: f64,
}

/// JSON has no word for what nobody could divide: it is null there.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Where a falling curve meets a level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "at", rename_all = "kebab-case")]
pub enum Crossing {
    /// Here.
    At(f64),
    /// It is below the level already where the curve begins: here or before.
    AtMost(f64),
    /// It is above the level even where the curve ends: after this.
    MoreThan(f64),
}

impl Crossing {
    /// The number, whatever is known about it.
    pub fn number(self) -> f64 {
        match self {
            Crossing::At(at) | Crossing::AtMost(at) | Crossing::MoreThan(at) => at,
        }
    }
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

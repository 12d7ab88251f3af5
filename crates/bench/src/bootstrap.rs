//! Intervals by resampling: how far a figure would move if the same measurement were made again.
//! The percentile bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, 13.3),
//! stratified by program, in pairs where arms did the same switches.
//!
//! Seeded: equal samples give equal intervals.

use clew_core::Seeded;
use clew_report::{COVERAGE, Estimate, percentile};

/// Resamples of one interval.
const RESAMPLES: u64 = 1_000;
/// Which switches a resample consists of: positions in the original sequence.
pub struct Resamples {
    strata: Vec<Vec<usize>>,
    seed: u64,
}

impl Resamples {
    /// Of switches that belong to these strata; drawn within each, so that each keeps its size.
    pub fn new(seed: u64, strata: Vec<Vec<usize>>) -> Resamples {
        Resamples { strata, seed }
    }

    fn draw(&self, number: u64) -> Vec<usize> {
        let mut seeded = Seeded::of(self.seed, &[40, number]);
        let mut drawn = Vec::with_capacity(self.strata.iter().map(Vec::len).sum());
        for stratum in &self.strata {
            let draws = (0..stratum.len()).map(|_| {
                let position = seeded.below(stratum.len() as u64);
                stratum[position as usize]
            });
            drawn.extend(draws);
        }
        drawn
    }

    /// The figure of all switches, with its interval. Resamples for which the figure is not a
    /// number (a division by zero) are left out.
    pub fn estimate(&self, figure: impl Fn(&[usize]) -> f64) -> Estimate {
        let all: Vec<usize> = self.strata.iter().flatten().copied().collect();
        let mut figures: Vec<f64> = (0..RESAMPLES)
            .map(|number| figure(&self.draw(number)))
            .filter(|f| !f.is_nan())
            .collect();
        figures.sort_by(f64::total_cmp);
        let tail = (100.0 - COVERAGE) / 2.0;
        Estimate {
            value: figure(&all),
            low: percentile(&figures, tail),
            high: percentile(&figures, 100.0 - tail),
        }
    }
}

/// The `percent`-th percentile of `values` at these positions.
pub fn percentile_at(values: &[f64], positions: &[usize], percent: f64) -> f64 {
    let mut chosen: Vec<f64> = positions.iter().map(|&position| values[position]).collect();
    // Sorting all of them, thousands of times, is what intervals would spend their time with.
    let Some(last) = chosen.len().checked_sub(1) else { return 0.0 };
    let rank = last as f64 * percent / 100.0;
    let (_, &mut below, above) = chosen.select_nth_unstable_by(rank as usize, f64::total_cmp);
    match rank.fract() {
        0.0 => below,
        part => below + (above.iter().copied().fold(f64::INFINITY, f64::min) - below) * part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64], positions: &[usize]) -> f64 {
        positions.iter().map(|&position| values[position]).sum::<f64>() / positions.len() as f64
    }

    /// For a mean, theory knows the answer: 1.96 standard errors to either side.
    #[test]
    fn the_interval_of_a_mean_is_what_theory_says() {
        let mut seeded = Seeded::of(5, &[]);
        let values: Vec<f64> = (0..400).map(|_| seeded.unit() * 12f64.sqrt()).collect();
        let estimate = Resamples::new(1, vec![(0..400).collect()])
            .estimate(|positions| mean(&values, positions));
        // The standard deviation of the values is 1.
        let (below, above) = (estimate.value - estimate.low, estimate.high - estimate.value);
        let expected = 1.96 / 400f64.sqrt();
        for side in [below, above] {
            assert!((side / expected - 1.0).abs() < 0.15, "{side} instead of {expected}");
        }
    }

    /// The median of n values lies between order statistics whose ranks the binomial
    /// distribution gives: for n = 100, ranks 40 and 61 at 95 %.
    #[test]
    fn the_interval_of_a_median_is_what_theory_says() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let estimate = Resamples::new(2, vec![(0..100).collect()])
            .estimate(|positions| percentile_at(&values, positions, 50.0));
        assert_eq!(estimate.value, 50.5);
        assert!((39.0..=42.5).contains(&estimate.low), "{estimate:?}");
        assert!((58.5..=62.0).contains(&estimate.high), "{estimate:?}");
    }

    #[test]
    fn pairs_stay_pairs() {
        // Each of the second is half of the first, however widely both vary.
        let first: Vec<f64> = (1..=60).map(|i| f64::from(i * i)).collect();
        let second: Vec<f64> = first.iter().map(|value| value / 2.0).collect();
        let ratio = Resamples::new(3, vec![(0..60).collect()]).estimate(|positions| {
            percentile_at(&second, positions, 95.0) / percentile_at(&first, positions, 95.0)
        });
        assert_eq!(ratio, Estimate { value: 0.5, low: 0.5, high: 0.5 });
    }

    #[test]
    fn strata_keep_their_sizes() {
        let resamples = Resamples::new(4, vec![vec![0, 1, 2], vec![3, 4]]);
        for number in 0..50 {
            let drawn = resamples.draw(number);
            assert_eq!(drawn.iter().filter(|&&position| position < 3).count(), 3);
            assert_eq!(drawn.len(), 5);
        }
        assert_eq!(resamples.draw(7), resamples.draw(7));
        assert_ne!(resamples.draw(7), resamples.draw(8));
    }

    #[test]
    fn both_ways_to_a_percentile_agree() {
        let mut seeded = Seeded::of(8, &[]);
        for count in 1..40 {
            let values: Vec<f64> = (0..count).map(|_| seeded.unit()).collect();
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let positions: Vec<usize> = (0..count).collect();
            for percent in [0.0, 2.5, 50.0, 95.0, 100.0] {
                assert_eq!(
                    percentile_at(&values, &positions, percent),
                    percentile(&sorted, percent)
                );
            }
        }
        assert_eq!(percentile_at(&[], &[], 50.0), 0.0);
    }

    #[test]
    fn what_is_not_a_number_is_left_out() {
        let estimate = Resamples::new(1, vec![vec![0, 1]])
            .estimate(|positions| if positions == [0, 0] { f64::NAN } else { 1.0 });
        assert_eq!(estimate, Estimate { value: 1.0, low: 1.0, high: 1.0 });
    }
}

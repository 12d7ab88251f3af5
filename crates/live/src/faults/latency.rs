//! How long faults take, counted in buckets that double.
//!
//! Each fault thread counts into its own, so that none of them waits for another's cache line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::faults::account::Account;

/// Upper bound of the first bucket, microseconds; each next one is twice as wide, and the last that
/// has a bound ends at 1.05 s.
const FIRST_US: u64 = 2;
const BUCKETS: usize = 20;

/// How long things of one kind took.
#[derive(Debug, Default)]
pub struct Histogram {
    /// The last one has no bound.
    counts: [AtomicU64; BUCKETS + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    /// Counts one that took so long.
    pub fn record(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let widths = nanoseconds.saturating_sub(1) / (FIRST_US * 1000);
        let bucket = (u64::BITS - widths.leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// What one fault thread counted: from its being woken to the answer.
#[derive(Debug, Default)]
pub struct FaultLatency {
    /// Faults that brought a stored page back.
    pub stored: Histogram,
    /// First touches of fresh memory.
    pub fresh: Histogram,
    /// Faults that waited for flash: until the page was put.
    pub flash: Histogram,
    /// Where the time of the first went.
    pub account: Account,
}

/// What several threads counted of one kind, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// All together, seconds.
    pub seconds: f64,
    /// Those that took at most so long, for each bound.
    pub buckets: Vec<Bucket>,
}

/// One bound of a [`Latency`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The bound, microseconds.
    pub at_most_us: u64,
    /// How many took no longer.
    pub count: u64,
}

impl Latency {
    /// Adds up what several threads counted.
    pub fn sum<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Latency {
        let (mut counts, mut nanoseconds) = ([0u64; BUCKETS + 1], 0u64);
        for histogram in histograms {
            for (sum, count) in counts.iter_mut().zip(&histogram.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
            nanoseconds = nanoseconds.saturating_add(histogram.nanoseconds.load(Ordering::Relaxed));
        }
        let mut count = 0;
        let buckets = counts[..BUCKETS].iter().enumerate().map(|(i, in_this)| {
            count += in_this;
            Bucket { at_most_us: FIRST_US << i, count }
        });
        let buckets = buckets.collect();
        Latency { count: counts.iter().sum(), seconds: nanoseconds as f64 / 1e9, buckets }
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Latency) -> Latency {
        let earlier = |i: usize| before.buckets.get(i).map_or(0, |b| b.count);
        let buckets = self
            .buckets
            .iter()
            .enumerate()
            .map(|(i, b)| Bucket { count: b.count.saturating_sub(earlier(i)), ..*b });
        Latency {
            count: self.count.saturating_sub(before.count),
            seconds: (self.seconds - before.seconds).max(0.0),
            buckets: buckets.collect(),
        }
    }

    /// The bound, in microseconds, that this share of all did not exceed; `None` if there were none
    /// or there is no such bound.
    pub fn at_most_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let reached = |b: &&Bucket| b.count >= wanted && self.count > 0;
        self.buckets.iter().find(reached).map(|b| b.at_most_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_first_bucket_that_holds_it() {
        for nanoseconds in [0, 1, 1999, 2000, 2001, 4000, 4001, 9_000, 1 << 30, 1 << 40, u64::MAX] {
            let one = Histogram::default();
            one.record(Duration::from_nanos(nanoseconds));
            let counted = Latency::sum([&one].into_iter());
            for bucket in &counted.buckets {
                let holds = u64::from(nanoseconds <= bucket.at_most_us * 1000);
                assert_eq!(bucket.count, holds, "{nanoseconds} ns, {bucket:?}");
            }
            assert_eq!((counted.count, counted.seconds), (1, nanoseconds as f64 / 1e9));
        }
    }

    #[test]
    fn threads_are_added_up_and_shares_found() {
        let threads = [Histogram::default(), Histogram::default()];
        assert_eq!(Latency::sum(threads.iter()).at_most_us(0.5), None);
        for (thread, micros) in [(0, 1), (0, 3), (1, 3), (1, 5_000_000)] {
            threads[thread].record(Duration::from_micros(micros));
        }
        let counted = Latency::sum(threads.iter());
        let bound = |i: usize| (counted.buckets[i].at_most_us, counted.buckets[i].count);
        assert_eq!((bound(0), bound(1), bound(BUCKETS - 1)), ((2, 1), (4, 3), (1 << 20, 3)));
        assert_eq!((counted.count, counted.buckets.len()), (4, BUCKETS));
        assert!((counted.seconds - 5.000007).abs() < 1e-9, "{}", counted.seconds);
        let shares = [0.25, 0.5, 0.75, 1.0].map(|share| counted.at_most_us(share));
        assert_eq!(shares, [Some(2), Some(4), Some(4), None]);
        threads[0].record(Duration::from_micros(10));
        let later = Latency::sum(threads.iter()).since(&counted);
        assert_eq!((later.count, later.at_most_us(1.0)), (1, Some(16)));
    }
}

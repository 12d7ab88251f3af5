//! How long fault threads may wait for what programs do to their own memory, where they can also do without: a
//! fiftieth of the time, all programs together. Else one whose calls fail again and again would hold up the others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One part in so many of the time.
const SHARE: u64 = 50;

/// Counted by all fault threads.
#[derive(Debug)]
pub struct Allowance {
    began: Instant,
    /// Nobody waits before, ns since it began.
    next: AtomicU64,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance { began: Instant::now(), next: AtomicU64::new(0) }
    }
}

impl Allowance {
    /// Whether a fault thread may wait at `now`.
    pub fn has_some(&self, now: Instant) -> bool {
        self.since(now) >= self.next.load(Relaxed)
    }

    /// One has waited so long, until `now`.
    pub fn spend(&self, waited: Duration, now: Instant) {
        let (waited, now) = (waited.as_nanos() as u64, self.since(now));
        let add = |next: u64| next.max(now - waited.min(now)) + waited.saturating_mul(SHARE);
        let _ = self.next.fetch_update(Relaxed, Relaxed, |next| Some(add(next)));
    }

    fn since(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_whenever_he_may_waits_a_fiftieth_of_the_time() {
        let allowance = Allowance::default();
        let (begin, step) = (allowance.began + Duration::from_secs(1), Duration::from_millis(1));
        let (mut now, mut waited) = (begin, Duration::ZERO);
        while now < begin + Duration::from_secs(10) {
            let may = allowance.has_some(now);
            now += step;
            if may {
                // As long as one unmapping may be waited for, in small pieces.
                now += 49 * step;
                (0..50).for_each(|left| allowance.spend(step, now - (49 - left) * step));
                waited += 50 * step;
            }
        }
        assert_eq!(waited, Duration::from_millis(200));
    }

    #[test]
    fn who_waits_for_nothing_has_all_of_it() {
        let allowance = Allowance::default();
        allowance.spend(Duration::ZERO, Instant::now());
        assert!(allowance.has_some(Instant::now()));
    }
}

//! Reclaim that does not help: pages stay (shared with forked processes, locked), or take as much in swap as before.
//! It is tried again, later each time, and at once when clearly more is used.

use std::time::{Duration, Instant};

/// The first rest, and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// What left has to have freed one part in so many of its size.
const WORTH: u64 = 8;
/// Used memory that grows by one part in so many is a new situation.
const MORE: u64 = 32;
/// So much has to have left before it is asked what that was good for.
const ENOUGH_BYTES: u64 = 4 << 20;
/// How long a measure of swap takes to tell of what came there.
const TOLD_AFTER: Duration = Duration::from_millis(200);

/// What is known of that.
#[derive(Default)]
pub(super) struct InVain {
    /// When it is tried again, and how much was used when that was decided.
    rest: Option<(Instant, u64)>,
    last: Duration,
    /// When measuring began, what was used then, and the bytes that have left since.
    since: Option<(Instant, u64, u64)>,
}

impl InVain {
    /// Whether reclaim rests.
    pub(super) fn rests(&self, used_bytes: u64, now: Instant) -> bool {
        self.rest.is_some_and(|(until, then)| {
            now < until && used_bytes < then.saturating_add(then / MORE)
        })
    }

    /// A round has taken out so many bytes of pages, and `used_bytes` are used now where it was `before_bytes`, what they take
    /// in swap included.
    pub(super) fn round(
        &mut self,
        left_bytes: u64,
        (before_bytes, used_bytes): (u64, u64),
        now: Instant,
    ) {
        if left_bytes == 0 {
            return self.was(false, used_bytes, now);
        }
        let (began, then, left) = self.since.get_or_insert((now, before_bytes, 0));
        *left += left_bytes;
        let (began, then, left) = (*began, *then, *left);
        if left >= ENOUGH_BYTES && now.duration_since(began) >= TOLD_AFTER {
            self.since = None;
            // Where others grow meanwhile, nobody can say.
            let freed = then.saturating_sub(used_bytes);
            self.was(
                freed >= left / WORTH || used_bytes > then.saturating_add(then / MORE),
                used_bytes,
                now,
            );
        }
    }

    fn was(&mut self, good: bool, used_bytes: u64, now: Instant) {
        self.last = match good {
            true => Duration::ZERO,
            false => (self.last * 2).clamp(FIRST, LONGEST),
        };
        self.rest = (!good).then_some((now + self.last, used_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_takes_nothing_is_tried_again_later_each_time() {
        let (mut in_vain, mut now) = (InVain::default(), Instant::now());
        assert!(!in_vain.rests(100 * MIB, now));
        let mut rests = Vec::new();
        for _ in 0..9 {
            in_vain.round(0, (100 * MIB, 100 * MIB), now);
            let began = now;
            while in_vain.rests(100 * MIB, now) {
                now += Duration::from_millis(10);
            }
            rests.push(now.duration_since(began).as_millis());
        }
        assert_eq!(rests, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        in_vain.round(0, (100 * MIB, 100 * MIB), now);
        assert!(in_vain.rests(103 * MIB, now) && !in_vain.rests(104 * MIB, now));
    }

    #[test]
    fn what_frees_nothing_is_in_vain() {
        // Of what leaves so much is taken in swap, in per cent, as is told at once.
        let rests = |in_swap: u64| {
            let (mut in_vain, began) = (InVain::default(), Instant::now());
            let mut used = 500 * MIB;
            for round in 1..=5 {
                let before = used;
                used -= MIB - MIB * in_swap / 100;
                in_vain.round(MIB, (before, used), began + Duration::from_millis(50) * round);
            }
            in_vain.rests(used, began + Duration::from_millis(260))
        };
        assert!(rests(100) && rests(95));
        assert!(!rests(80) && !rests(30));
    }
}

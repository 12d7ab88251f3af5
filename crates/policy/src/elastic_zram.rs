//! What the parts of ElasticZRAM (DAC 2024) share: the three periods of a device, and who is used least.
//!
//! Source: 3.3 and algorithm 1. *Period*: "when the device utilization is lower than U1, it means the
//! performance is stable; when it is higher than U1 and lower than U2, it means the performance is degraded; and
//! when it is higher than U2, it means the performance is almost unavailable. At the same time, when the writing
//! amount approaches the end, it will directly enter the last period." At equality it is the later one, as in the
//! `else` of the algorithm's line 19. *Victim*: the lowest usage rate, among equals the largest footprint (lines 3
//! to 11); what is equal in both goes by its number.

use std::cmp::Reverse;

use clew_core::{AppId, ByteSize, DeviceFacts, Facts, Tier, Whole};

/// U1, per cent.
pub type U1 = Whole<0, 100, 40>;
/// U2, per cent.
pub type U2 = Whole<0, 100, 85>;

/// How good the device is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Period {
    /// It is as good as new: all paths.
    Stable,
    /// It is slower: no more path 3.
    Degraded,
    /// It is of no use any more, or must not be written to: the pool only.
    Ended,
}

/// Where a period ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Periods {
    /// Per cent of the device.
    pub u1_pct: u32,
    /// Per cent of the device.
    pub u2_pct: u32,
    /// What may be written to it, if that is known.
    pub life: Option<ByteSize>,
}

impl Periods {
    /// The period of a device that looks so.
    pub fn of(&self, device: &DeviceFacts) -> Period {
        let reaches = |pct: u32| {
            u128::from(device.used_bytes) * 100 >= u128::from(device.total_bytes) * u128::from(pct)
        };
        if self.life.is_some_and(|life| device.written_bytes >= life.0) || reaches(self.u2_pct) {
            Period::Ended
        } else if reaches(self.u1_pct) {
            Period::Degraded
        } else {
            Period::Stable
        }
    }

    /// The present one. Without flash there is the pool only; a device that nobody has looked at yet is as
    /// good as new.
    pub fn now(&self, facts: &Facts) -> Period {
        match &facts.device {
            _ if !facts.tiers.contains_key(&Tier::Flash) => Period::Ended,
            Some(device) => self.of(device),
            None => self.of(&DeviceFacts { used_bytes: 0, total_bytes: 1, written_bytes: 0 }),
        }
    }
}

/// Sorts apps: who is used least comes first, among equals who is largest. What is not known of an app is zero.
pub fn least_used_first(apps: &mut [AppId], facts: &Facts) {
    apps.sort_by_key(|app| {
        let stats = facts.apps.get(app);
        let usage = stats.map_or(0, |stats| stats.launches);
        (usage, Reverse(stats.map_or(0, |stats| stats.footprint_pages)), *app)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::{AppStats, TierFacts};

    /// Algorithm 1 at its boundaries, for U1 40 and U2 85.
    #[test]
    fn at_equality_it_is_the_later_period() {
        let periods = Periods { u1_pct: 40, u2_pct: 85, life: Some(ByteSize(1000)) };
        let period = |used_bytes, written_bytes| {
            periods.of(&DeviceFacts { used_bytes, total_bytes: 10_000, written_bytes })
        };
        for (used, written, expected) in [
            (0, 0, Period::Stable),
            (3999, 999, Period::Stable),
            (4000, 0, Period::Degraded),
            (8499, 0, Period::Degraded),
            (8500, 0, Period::Ended),
            (10_000, 0, Period::Ended),
            (0, 1000, Period::Ended),
            (5000, 1000, Period::Ended),
        ] {
            assert_eq!(period(used, written), expected, "{used} used, {written} written");
        }
    }

    #[test]
    fn without_flash_there_is_the_pool_only_and_what_nobody_saw_is_new() {
        let periods = Periods { u1_pct: 40, u2_pct: 85, life: None };
        let mut facts = Facts::default();
        assert_eq!(periods.now(&facts), Period::Ended);
        facts.tiers.insert(Tier::Flash, TierFacts::default());
        assert_eq!(periods.now(&facts), Period::Stable);
        // From nothing on: never.
        assert_eq!(Periods { u1_pct: 0, ..periods }.now(&facts), Period::Degraded);
        let device = DeviceFacts { used_bytes: 60, total_bytes: 100, written_bytes: u64::MAX };
        facts.device = Some(device);
        assert_eq!(periods.now(&facts), Period::Degraded);
    }

    #[test]
    fn the_least_used_comes_first_and_the_largest_of_equals() {
        let mut facts = Facts::default();
        for (app, launches, footprint_pages) in
            [(1, 3, 900), (2, 1, 10), (3, 1, 80), (4, 2, 5), (5, 1, 80)]
        {
            let stats = AppStats { launches, footprint_pages, ..AppStats::default() };
            facts.apps.insert(AppId(app), stats);
        }
        let mut apps = [1, 2, 3, 4, 5].map(AppId);
        least_used_first(&mut apps, &facts);
        assert_eq!(apps, [3, 5, 2, 4, 1].map(AppId));
    }
}

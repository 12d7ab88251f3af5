//! What a donor has lent, all borrowers together, and how long it waits for what it wants back. Sans-IO: the donor asks it,
//! and so does the simulation of many machines.

use std::time::{Duration, Instant};

/// How much is lent. Never more than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    limit_bytes: u64,
    used_bytes: u64,
}

impl Account {
    /// Nothing is lent yet, and at most so much.
    pub fn new(limit_bytes: u64) -> Account {
        Account { limit_bytes, used_bytes: 0 }
    }

    /// Something that took `before` bytes is to take `after`; false, and nothing done, if there is no room for it.
    #[must_use = "without room nothing may be taken"]
    pub fn change(&mut self, before: u64, after: u64) -> bool {
        let used = self.used_bytes - before + after;
        let fits = used <= self.limit_bytes;
        if fits {
            self.used_bytes = used;
        }
        fits
    }

    /// So much was given back.
    pub fn give_back(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }

    /// What is in use, and what is free, bytes.
    pub fn room(&self) -> (u64, u64) {
        (self.used_bytes, self.limit_bytes.saturating_sub(self.used_bytes))
    }
}

/// A donor that wants its memory back waits for it, and then takes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grace {
    since: Option<Instant>,
}

impl Grace {
    /// How often a donor looks whether it wants its memory back.
    pub const EVERY: Duration = Duration::from_millis(500);

    /// Whether it is time to take back what was not given.
    pub fn is_over(&mut self, wants: bool, now: Instant, grace: Duration) -> bool {
        if !wants {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) > grace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lent_beyond_the_limit() {
        let mut account = Account::new(100);
        assert!(account.change(0, 60) && account.change(60, 100));
        assert!(!account.change(0, 1) && !account.change(10, 11));
        assert_eq!(account.room(), (100, 0));
        account.give_back(30);
        assert_eq!(account.room(), (70, 30));
    }

    #[test]
    fn what_is_wanted_back_is_waited_for() {
        let (begin, grace) = (Instant::now(), Duration::from_secs(10));
        let mut of = Grace::default();
        let mut look =
            |wants, seconds| of.is_over(wants, begin + Duration::from_secs(seconds), grace);
        assert!(!look(true, 0) && !look(true, 10) && look(true, 11) && look(true, 12));
        assert!(!look(false, 13) && !look(true, 14) && !look(true, 24) && look(true, 25));
    }
}

//! Whether the pool is full, and when that is worth a line in the log.
//!
//! Near its limit the pool is full and has room again many times a second, as pages leave and come
//! back. It is said once that it is full, and once, when it has had room for a while, that it is
//! over, and how often it was full.

use std::time::{Duration, Instant};

/// Having room for so long ends it.
const OVER: Duration = Duration::from_secs(10);

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// Nothing more leaves the programs.
    Full,
    /// It has room, after it was full so many times.
    Room { times: u64 },
}

/// What has been said of the pool.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// How often it had become full when that it is was said; nothing while that is over.
    said: Option<u64>,
    /// How often it had become full when it was last looked at, and since when it has had room.
    times: u64,
    room_since: Option<Instant>,
}

impl Fullness {
    /// At this time it is full or not, and has become so so many times.
    pub(super) fn look(&mut self, full: bool, times: u64, now: Instant) -> Option<Say> {
        if full || times > self.times {
            self.room_since = (!full).then_some(now);
            self.times = times;
            let first = self.said.is_none();
            self.said.get_or_insert(times.saturating_sub(1));
            return first.then_some(Say::Full);
        }
        let since = *self.room_since.get_or_insert(now);
        let is_over = now.duration_since(since) >= OVER;
        let before = self.said.take_if(|_| is_over)?;
        Some(Say::Room { times: times - before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_full_again_and_again_is_said_to_be_once() {
        let (mut pool, begin) = (Fullness::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert_eq!(pool.look(false, 0, at(0)), None, "it never was full");
        let said: Vec<Say> = (1..=16)
            .flat_map(|time| {
                let second = 100 + time;
                [
                    pool.look(true, time, at(second)),
                    pool.look(true, time, at(second)),
                    pool.look(false, time, at(second)),
                    pool.look(false, time, at(second) + OVER / 2),
                ]
            })
            .flatten()
            .collect();
        assert_eq!(said, [Say::Full]);
        assert_eq!(pool.look(false, 16, at(117)), None);
        assert_eq!(pool.look(false, 16, at(116) + OVER), Some(Say::Room { times: 16 }));
        assert_eq!(pool.look(false, 16, at(300)), None);
        // The next time it is said again, also when it is over by the next look.
        assert_eq!(pool.look(false, 17, at(400)), Some(Say::Full));
        assert_eq!(pool.look(false, 17, at(400) + OVER), Some(Say::Room { times: 1 }));
    }
}

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

/// Whether the pool is full.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    full: bool,
    /// How often it was full since that was said; 0 while nothing is said.
    times: u64,
    /// Since when it has had room.
    room_since: Option<Instant>,
}

impl Fullness {
    /// Whether it is full now.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// A page found no room.
    pub(super) fn no_room(&mut self) -> Option<Say> {
        if self.full {
            return None;
        }
        (self.full, self.room_since) = (true, None);
        self.times += 1;
        (self.times == 1).then_some(Say::Full)
    }

    /// There is room at this time.
    pub(super) fn room(&mut self, now: Instant) -> Option<Say> {
        self.full = false;
        let since = *self.room_since.get_or_insert(now);
        if self.times == 0 || now.duration_since(since) < OVER {
            return None;
        }
        Some(Say::Room { times: std::mem::take(&mut self.times) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_full_again_and_again_is_said_to_be_once() {
        let (mut pool, begin) = (Fullness::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert_eq!(pool.room(at(0)), None, "it never was full");
        let said: Vec<Say> = (100..116)
            .flat_map(|second| {
                let full = [pool.no_room(), pool.no_room()];
                assert!(pool.is_full());
                let room = [pool.room(at(second)), pool.room(at(second) + OVER / 2)];
                assert!(!pool.is_full());
                full.into_iter().chain(room).flatten()
            })
            .collect();
        assert_eq!(said, [Say::Full]);
        assert_eq!(pool.room(at(116)), None);
        assert_eq!(pool.room(at(115) + OVER), Some(Say::Room { times: 16 }));
        assert_eq!(pool.room(at(300)), None);
        // The next time it is said again.
        assert_eq!(pool.no_room(), Some(Say::Full));
        assert_eq!(pool.room(at(400)), None);
        assert_eq!(pool.room(at(400) + OVER), Some(Say::Room { times: 1 }));
    }
}

//! How long a fault thread waits for the lock of a program's space ([`crate::faults::aside`]).

use std::time::{Duration, Instant};

/// How long a fault thread waits for a lock: longer than whoever has it works, also on a busy machine.
const FIRST: Duration = Duration::from_millis(20);
/// And for one that it did not get of late: it gets it behind others that share it.
const AGAIN: Duration = Duration::from_millis(1);
/// Of one that it has not got for so long nobody waits for: it is looked at whether it is free.
const LONG: Duration = Duration::from_millis(100);
/// Between two such waits it is at least so many times as long: all others wait meanwhile.
const SHARE: u32 = 50;

/// What a fault thread knows of the lock of one program's space.
#[derive(Debug, Default)]
pub struct Held {
    /// Since when it has asked for it, and has not got it.
    since: Option<Instant>,
    /// When it gave up last.
    gave_up: Option<Instant>,
}

impl Held {
    /// How long it is waited for now.
    pub fn patience(&self, now: Instant) -> Duration {
        match self.since {
            Some(since) if now.duration_since(since) >= LONG => Duration::ZERO,
            Some(_) => AGAIN,
            None if self.gave_up.is_some_and(|when| now.duration_since(when) < FIRST * SHARE) => {
                AGAIN
            }
            None => FIRST,
        }
    }

    /// It was not got: in how long it is asked for again.
    pub(super) fn not_got(&mut self, now: Instant) -> Duration {
        self.gave_up = Some(now);
        let since = *self.since.get_or_insert(now);
        (now.duration_since(since) / 8).clamp(AGAIN, LONG)
    }

    /// It was got.
    pub fn got(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_its_fault_thread_for_a_fiftieth_of_the_time() {
        let (begin, mut held) = (Instant::now(), Held::default());
        assert_eq!(held.patience(begin), FIRST);
        let mut now = begin + FIRST;
        let mut kept = FIRST;
        let end = now + Duration::from_secs(60);
        while now < end {
            now += held.not_got(now);
            let patience = held.patience(now);
            (now, kept) = (now + patience, kept + patience);
        }
        assert!(kept < FIRST + LONG, "{kept:?}");
        held.got();
        assert_eq!(held.patience(now), AGAIN, "it was held a moment ago");
        assert_eq!(held.patience(now + FIRST * SHARE), FIRST);
    }
}

//! The thread of a program whose faults cannot be answered, and for how long: an event that is on its way comes soon.

use std::time::{Duration, Instant};

/// How long a fault that no page can be put for is taken for one that waits for an event on its way.
const PATIENCE: Duration = Duration::from_millis(20);
/// Who is not heard of for so long is no longer looked at.
const QUIET: Duration = Duration::from_millis(100);

/// The thread whose faults could not be answered.
#[derive(Clone, Copy, Debug)]
pub struct Stuck {
    thread: u32,
    since: Instant,
    last: Instant,
}

impl Stuck {
    /// The same with one more fault at `now`; whether it is time to look what its thread does. Of another thread only
    /// when this one has not been heard of for a while.
    pub fn again(this: Option<Stuck>, thread: u32, now: Instant) -> (Option<Stuck>, bool) {
        match this {
            Some(stuck) if stuck.thread == thread && now - stuck.last < QUIET => {
                (Some(Stuck { last: now, ..stuck }), now - stuck.since >= PATIENCE)
            }
            Some(stuck) if now - stuck.last < QUIET => (Some(stuck), false),
            _ => (Some(Stuck { thread, since: now, last: now }), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_for_long_is_looked_at_and_others_when_he_is_gone() {
        let begin = Instant::now();
        let ms = |ms| begin + Duration::from_millis(ms);
        let (stuck, is_time) = Stuck::again(None, 7, ms(0));
        assert!(!is_time);
        let (stuck, is_time) = Stuck::again(stuck, 7, ms(19));
        assert!(!is_time);
        let (stuck, is_time) = Stuck::again(stuck, 8, ms(30));
        assert!(!is_time && stuck.is_some_and(|stuck| stuck.thread == 7));
        let (stuck, is_time) = Stuck::again(stuck, 7, ms(31));
        assert!(is_time);
        let (stuck, is_time) = Stuck::again(stuck, 8, ms(200));
        assert!(!is_time && stuck.is_some_and(|stuck| stuck.thread == 8));
        assert!(Stuck::again(stuck, 8, ms(221)).1);
        assert!(!Stuck::again(stuck, 8, ms(500)).1, "that was another time");
    }
}

//! The fault of a program that cannot be answered, and for how long: an event that is on its way comes soon.

use std::time::{Duration, Instant};

use clew_core::Vpn;

/// How long a fault that no page can be put for is taken for one that waits for an event on its way.
const PATIENCE: Duration = Duration::from_millis(50);
/// What is not heard of for so long is over.
const QUIET: Duration = Duration::from_millis(100);

/// A page that a thread asks for again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    thread: u32,
    page: Vpn,
    since: Instant,
    last: Instant,
    /// Its page was left to the kernel: so is the next one, at once.
    is_let_through: bool,
}

impl Stuck {
    /// The same with one more fault at `now`; whether it is time to look what its thread does. Another page is looked at
    /// when this one has not been asked for for a while.
    pub fn again(
        this: Option<Stuck>,
        thread: u32,
        page: Vpn,
        now: Instant,
    ) -> (Option<Stuck>, bool) {
        let new = Stuck { thread, page, since: now, last: now, is_let_through: false };
        let Some(stuck) = this.filter(|stuck| now - stuck.last < QUIET) else {
            return (Some(new), false);
        };
        let is_next = stuck.is_let_through && page.0 == stuck.page.0 + 1;
        match stuck.thread == thread && (page == stuck.page || is_next) {
            true => {
                let is_time = is_next || now - stuck.since >= PATIENCE;
                (Some(Stuck { page, last: now, ..stuck }), is_time)
            }
            // It has gone on.
            false if stuck.thread == thread => (Some(new), false),
            false => (Some(stuck), false),
        }
    }

    /// Its page was left to the kernel.
    pub fn let_through(self) -> Stuck {
        Stuck { is_let_through: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_for_long_is_looked_at_and_others_when_he_is_gone() {
        let begin = Instant::now();
        let ms = |ms| begin + Duration::from_millis(ms);
        let of = |stuck: Option<Stuck>| stuck.map(|stuck| (stuck.thread, stuck.page.0));
        let (stuck, is_time) = Stuck::again(None, 7, Vpn(1), ms(0));
        assert!(!is_time);
        let (stuck, is_time) = Stuck::again(stuck, 7, Vpn(1), ms(49));
        assert!(!is_time);
        let (stuck, is_time) = Stuck::again(stuck, 8, Vpn(1), ms(60));
        assert!(!is_time && of(stuck) == Some((7, 1)));
        let (stuck, is_time) = Stuck::again(stuck, 7, Vpn(1), ms(61));
        assert!(is_time);
        // It goes on with another page: that is another fault.
        let (stuck, is_time) = Stuck::again(stuck, 7, Vpn(2), ms(62));
        assert!(!is_time && of(stuck) == Some((7, 2)));
        let (stuck, is_time) = Stuck::again(stuck, 8, Vpn(9), ms(200));
        assert!(!is_time && of(stuck) == Some((8, 9)));
        assert!(Stuck::again(stuck, 8, Vpn(9), ms(299)).1);
        assert!(!Stuck::again(stuck, 8, Vpn(9), ms(500)).1, "that was another time");
    }

    #[test]
    fn behind_a_page_that_was_let_through_the_next_one_is_at_once() {
        let now = Instant::now();
        let (stuck, _) = Stuck::again(None, 7, Vpn(1), now);
        let stuck = stuck.map(Stuck::let_through);
        assert!(!Stuck::again(stuck, 8, Vpn(2), now).1);
        assert!(!Stuck::again(stuck, 7, Vpn(3), now).1);
        let (stuck, is_time) = Stuck::again(stuck, 7, Vpn(2), now);
        assert!(is_time);
        assert!(Stuck::again(stuck, 7, Vpn(3), now).1);
    }
}

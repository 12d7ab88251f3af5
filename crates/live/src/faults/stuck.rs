//! Faults of a program that cannot be answered, and for how long: an event that is on its way comes soon.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clew_core::Vpn;

/// How long a fault that no page can be put for is taken for one that waits for an event on its way.
const PATIENCE: Duration = Duration::from_millis(50);
/// What is not heard of for so long is over.
const QUIET: Duration = Duration::from_millis(100);
/// Threads of a program that are remembered; others come when one of these has gone on.
const MOST: usize = 64;

/// A page that a thread asks for again and again.
#[derive(Clone, Copy, Debug)]
struct Asked {
    page: Vpn,
    since: Instant,
    last: Instant,
    /// Its page was left to the kernel: so is the next one, at once.
    is_let_through: bool,
}

/// What threads of one program ask for, by their numbers.
#[derive(Debug, Default)]
pub struct Stuck(HashMap<u32, Asked>);

impl Stuck {
    /// `thread` asks for `page` at `now`. Whether it is time to look what it does.
    pub fn again(&mut self, thread: u32, page: Vpn, now: Instant) -> bool {
        self.0.retain(|_, asked| now - asked.last < QUIET);
        let new = Asked { page, since: now, last: now, is_let_through: false };
        if self.0.len() >= MOST && !self.0.contains_key(&thread) {
            return false;
        }
        let asked = self.0.entry(thread).or_insert(new);
        let is_next = asked.is_let_through && page.0 == asked.page.0 + 1;
        if page != asked.page && !is_next {
            // It has gone on.
            *asked = new;
            return false;
        }
        (asked.page, asked.last) = (page, now);
        is_next || now - asked.since >= PATIENCE
    }

    /// The page of this thread was left to the kernel.
    pub fn let_through(&mut self, thread: u32) {
        if let Some(asked) = self.0.get_mut(&thread) {
            asked.is_let_through = true;
        }
    }

    /// This thread waits for something else.
    pub fn forget(&mut self, thread: u32) {
        self.0.remove(&thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_for_long_is_looked_at_whatever_others_wait_for() {
        let begin = Instant::now();
        let ms = |ms| begin + Duration::from_millis(ms);
        let mut stuck = Stuck::default();
        assert!(!stuck.again(7, Vpn(1), ms(0)));
        assert!(!stuck.again(7, Vpn(1), ms(49)));
        assert!(!stuck.again(8, Vpn(1), ms(60)));
        assert!(stuck.again(7, Vpn(1), ms(61)));
        // It goes on with another page: that is another fault.
        assert!(!stuck.again(7, Vpn(2), ms(62)));
        // One that goes on and on keeps nobody else from being looked at.
        assert!(stuck.again(8, Vpn(1), ms(110)));
        stuck.forget(8);
        assert!(!stuck.again(8, Vpn(1), ms(111)));
        assert!(!stuck.again(8, Vpn(1), ms(500)), "that was another time");
    }

    #[test]
    fn behind_a_page_that_was_let_through_the_next_one_is_at_once() {
        let now = Instant::now();
        let mut stuck = Stuck::default();
        assert!(!stuck.again(7, Vpn(1), now));
        stuck.let_through(7);
        assert!(!stuck.again(8, Vpn(2), now));
        assert!(stuck.again(7, Vpn(2), now));
        assert!(stuck.again(7, Vpn(3), now));
        assert!(!stuck.again(7, Vpn(5), now));
    }

    #[test]
    fn no_more_threads_are_remembered_than_so_many() {
        let now = Instant::now();
        let mut stuck = Stuck::default();
        assert!((0..1000).all(|thread| !stuck.again(thread, Vpn(1), now)));
        assert_eq!(stuck.0.len(), MOST);
        assert!(!stuck.again(1000, Vpn(1), now + QUIET));
        assert_eq!(stuck.0.len(), 1);
    }
}

//! How much of what a program does to its memory is followed at once. Each message may take long, as a look at all of a
//! mapping does, and the other programs of the fault thread wait meanwhile: so of one whose messages take long few are
//! read, and it rests before the next ones. What is not read waits in the kernel, and with it who did that.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Messages that are read at once at most, where no order among them matters.
const MOST: usize = 64;
/// They take no longer, mostly.
const SHORT: Duration = Duration::from_millis(20);
/// Who takes longer rests so many times as long,
const RESTS: u32 = 9;
/// but no longer than this.
const REST: Duration = Duration::from_secs(1);

/// Of one program.
#[derive(Debug)]
pub struct Pace(AtomicUsize);

impl Default for Pace {
    fn default() -> Pace {
        Pace(AtomicUsize::new(MOST))
    }
}

impl Pace {
    /// So many messages may be read at once.
    pub fn messages(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// What was read has taken so long to follow.
    pub fn took(&self, spent: Duration) {
        let now = self.messages();
        let next = if spent > SHORT { now / 8 } else { now * 2 };
        self.0.store(next.clamp(1, MOST), Relaxed);
    }
}

/// For how long a program rests that was followed for `spent`, so that others come in between.
pub fn rest_after(spent: Duration) -> Option<Duration> {
    (spent > SHORT).then(|| (spent * RESTS).min(REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_long_rests_longer_and_not_for_ever() {
        assert_eq!(rest_after(SHORT), None);
        let rests = [21, 100, 1_000].map(|ms| rest_after(Duration::from_millis(ms)));
        assert_eq!(rests, [189, 900, 1_000].map(|ms| Some(Duration::from_millis(ms))));
    }

    #[test]
    fn of_whose_messages_take_long_few_are_read_until_they_are_quick_again() {
        let pace = Pace::default();
        let after = |spent| {
            pace.took(spent);
            pace.messages()
        };
        assert_eq!([2 * SHORT, 2 * SHORT, 2 * SHORT, SHORT, SHORT].map(after), [8, 1, 1, 2, 4]);
        (0..9).for_each(|_| pace.took(SHORT));
        assert_eq!(pace.messages(), MOST);
    }
}

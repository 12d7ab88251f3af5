//! What was said last: who says something waits for nobody, and what was not read in time is replaced.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// One word, said by anybody and taken by one.
#[derive(Debug)]
pub struct Latest<T> {
    said: Mutex<Option<T>>,
    come: Condvar,
}

impl<T> Default for Latest<T> {
    fn default() -> Latest<T> {
        Latest { said: Mutex::new(None), come: Condvar::new() }
    }
}

impl<T> Latest<T> {
    /// Says it, in place of what nobody has taken.
    pub fn say(&self, word: T) {
        *self.said.lock() = Some(word);
        self.come.notify_one();
    }

    /// Takes what was said last, as soon as there is something; `None` after `patience`.
    pub fn take(&self, patience: Duration) -> Option<T> {
        let mut said = self.said.lock();
        if said.is_none() {
            self.come.wait_for(&mut said, patience);
        }
        said.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_word_counts() {
        let latest = Latest::default();
        assert_eq!(latest.take(Duration::ZERO), None);
        (1..=3).for_each(|word| latest.say(word));
        assert_eq!(latest.take(Duration::ZERO), Some(3));
        assert_eq!(latest.take(Duration::ZERO), None);
        std::thread::scope(|scope| {
            scope.spawn(|| latest.say(4));
            assert_eq!(latest.take(Duration::from_secs(60)), Some(4));
        });
    }
}

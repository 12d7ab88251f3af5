//! Names that mean something else now, until the kernel is told ([`crate::forgetting`]). Of more than so many which they are is
//! not kept: all that the kernel may know are told then.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Names that are kept until they are told.
const MOST: usize = 4096;

/// A name in a directory, as the kernel calls that.
pub type InDirectory = (u64, OsString);

/// Names that are to be told.
#[derive(Debug, Default)]
pub struct Changed {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

/// What waits.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// These.
    pub names: BTreeSet<InDirectory>,
    /// More than are kept: all that the kernel may know.
    pub all: bool,
}

impl Changed {
    /// These mean something else now, perhaps.
    pub fn add(&self, names: BTreeSet<InDirectory>) {
        if names.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.all {
            waiting.names.extend(names);
            waiting.all = waiting.names.len() > MOST;
        }
        if waiting.all {
            waiting.names.clear();
        }
        self.more.notify_one();
    }

    /// Which ones nobody knows.
    pub fn add_all(&self) {
        *self.waiting.lock() = Waiting { names: BTreeSet::new(), all: true };
        self.more.notify_one();
    }

    /// What waits, after a while if there is nothing.
    pub fn take(&self, most: Duration) -> Waiting {
        let mut waiting = self.waiting.lock();
        if *waiting == Waiting::default() {
            self.more.wait_for(&mut waiting, most);
        }
        std::mem::take(&mut waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: std::ops::Range<usize>) -> BTreeSet<InDirectory> {
        numbers.map(|number| (1, number.to_string().into())).collect()
    }

    #[test]
    fn names_wait_until_they_are_told_and_of_many_all_are() {
        let changed = Changed::default();
        let take = || changed.take(Duration::ZERO);
        assert_eq!(take(), Waiting::default());
        changed.add(names(0..2));
        changed.add(names(1..3));
        assert_eq!(take(), Waiting { names: names(0..3), all: false });
        changed.add(names(0..MOST));
        changed.add(names(MOST..MOST + 1));
        changed.add(names(0..1));
        let all = Waiting { all: true, ..Waiting::default() };
        assert_eq!(take(), all);
        changed.add(names(0..1));
        changed.add_all();
        assert_eq!((take(), take()), (all, Waiting::default()));
    }
}

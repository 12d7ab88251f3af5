//! Work in turn: of each owner one piece is with the workers, and the rest waits here for that.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What waits, by owner. An owner is here as long as something of it is with the workers.
pub(super) struct InTurn<K, W> {
    waiting: HashMap<K, VecDeque<W>>,
}

impl<K, W> Default for InTurn<K, W> {
    fn default() -> InTurn<K, W> {
        InTurn { waiting: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash, W> InTurn<K, W> {
    /// Work that begins at once is given back; else it waits behind what waits already.
    #[must_use]
    pub(super) fn last(&mut self, owner: K, work: W) -> Option<W> {
        self.begin(owner, work, VecDeque::push_back)
    }

    /// The same, before what waits already.
    #[must_use]
    pub(super) fn first(&mut self, owner: K, work: W) -> Option<W> {
        self.begin(owner, work, VecDeque::push_front)
    }

    fn begin(&mut self, owner: K, work: W, wait: fn(&mut VecDeque<W>, W)) -> Option<W> {
        match self.waiting.entry(owner) {
            Entry::Occupied(mut waiting) => {
                wait(waiting.get_mut(), work);
                None
            }
            Entry::Vacant(none) => {
                none.insert(VecDeque::new());
                Some(work)
            }
        }
    }

    /// What the workers had of an owner is done: what is next.
    #[must_use]
    pub(super) fn next(&mut self, owner: K) -> Option<W> {
        let next = self.waiting.get_mut(&owner).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.waiting.remove(&owner);
        }
        next
    }

    /// Whether something of an owner is with the workers.
    pub(super) fn is_busy(&self, owner: K) -> bool {
        self.waiting.contains_key(&owner)
    }

    /// Takes out what waits and is this.
    pub(super) fn leave(&mut self, is_this: impl Fn(&W) -> bool) -> Vec<W> {
        let mut left = Vec::new();
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.iter().any(&is_this)) {
            let (out, stays): (Vec<W>, Vec<W>) = waiting.drain(..).partition(&is_this);
            left.extend(out);
            waiting.extend(stays);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_owner_at_a_time_and_in_order() {
        let mut work = InTurn::<u32, _>::default();
        assert_eq!((work.last(1, "a"), work.last(2, "b")), (Some("a"), Some("b")));
        assert_eq!((work.last(1, "c"), work.last(1, "d"), work.first(1, "e")), (None, None, None));
        assert_eq!((work.next(1), work.next(1), work.next(1)), (Some("e"), Some("c"), Some("d")));
        assert!(work.is_busy(1));
        assert_eq!((work.next(1), work.is_busy(1)), (None, false));
        assert_eq!((work.is_busy(2), work.last(1, "f")), (true, Some("f")));
    }

    #[test]
    fn who_leaves_keeps_no_place_and_the_others_keep_theirs() {
        let mut work = InTurn::<u32, _>::default();
        assert_eq!(work.last(1, 10), Some(10));
        for number in 11u32..15 {
            assert_eq!(work.last(1, number), None);
        }
        assert_eq!(work.leave(|number| number.is_multiple_of(2)), [12, 14]);
        assert!(work.leave(|number| *number == 10).is_empty(), "it is under way");
        assert_eq!((work.next(1), work.next(1), work.next(1)), (Some(11), Some(13), None));
    }
}

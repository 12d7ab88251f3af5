//! Unmappings of which nobody knows yet whether there was one.
//!
//! The kernel tells of an unmapping before it finds that there can be none, and tells of that no more. What is out of the
//! program has its mark there still, then: but so it has where something else was moved there at once (mremap with
//! MREMAP_FIXED), and of that move the kernel tells after the unmapping. While events are outstanding the pages that were there are
//! kept, as they may be there; but they are nobody whom a move to that place has to wait for.

use std::ops::Range;

/// Where that is, of one program.
#[derive(Default)]
pub struct Doubts(Vec<Range<u64>>);

impl Doubts {
    /// Nobody knows whether this was unmapped.
    pub fn add(&mut self, range: Range<u64>) {
        self.0.push(range);
    }

    /// It is known what is there.
    pub fn settle(&mut self, range: &Range<u64>) {
        self.0 = without(std::mem::take(&mut self.0), range);
    }

    /// All is known: nothing is outstanding.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of `range` of which it is known what is there.
    pub fn known_of(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.0.iter().fold(vec![range], without)
    }
}

/// What of `ranges` is not in `taken`.
pub fn without(ranges: Vec<Range<u64>>, taken: &Range<u64>) -> Vec<Range<u64>> {
    let parts = |range: Range<u64>| {
        let before = range.start..range.end.min(taken.start);
        let behind = range.start.max(taken.end)..range.end;
        [before, behind].into_iter().filter(|part| !part.is_empty())
    };
    ranges.into_iter().flat_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_doubt_is_not_known_until_it_is_settled() {
        let mut doubts = Doubts::default();
        assert!(doubts.is_empty());
        doubts.add(10..20);
        doubts.add(30..40);
        assert_eq!(doubts.known_of(0..50), [0..10, 20..30, 40..50]);
        assert_eq!(doubts.known_of(12..18), []);
        doubts.settle(&(12..35));
        assert_eq!(doubts.known_of(0..50), [0..10, 12..35, 40..50]);
        doubts.clear();
        assert!(doubts.is_empty());
        assert_eq!(doubts.known_of(7..8).first(), Some(&(7..8)));
    }

    #[test]
    fn what_was_moved_to_a_place_is_not_what_was_there() {
        let there = || vec![10..20, 30..40];
        assert_eq!(without(there(), &(0..10)), there());
        assert_eq!(without(there(), &(20..30)), there());
        assert_eq!(without(there(), &(12..15)), [10..12, 15..20, 30..40]);
        assert_eq!(without(there(), &(15..35)), [10..15, 35..40]);
        assert_eq!(without(there(), &(0..50)), []);
    }
}

//! Unmappings of which nobody knows yet whether there was one.
//!
//! The kernel tells of an unmapping before it finds that there can be none, and tells of that no more. What is out of the
//! program has its mark there still, then: but so it has where something else was moved there at once (mremap with
//! MREMAP_FIXED), and of that move the kernel tells after the unmapping. While events are outstanding the pages that were there are
//! kept, as they may be there; but they are nobody whom a move to that place has to wait for.

use std::ops::Range;

use crate::faults::unmapped::without;

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
        assert!(doubts.is_empty() && doubts.known_of(0..50) == [0..50]);
    }
}

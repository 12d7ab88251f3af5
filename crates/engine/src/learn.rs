//! What is learned of a space from the pages that leave it: a dictionary for its codec.
//!
//! The first one is made from 256 of the first 1,024 pages. Data changes, so another follows from
//! 256 of 4,096 pages when sixteen times as many have left, at most every 262,144 (1 GiB). Pages
//! stored with an older one keep it. What is remembered of a page is its number: it is read again where it was
//! stored, so that many spaces may learn at once (a successor's all do) and take no memory for it.

use clew_core::Vpn;
use clew_store::Dictionary;

/// Pages that a dictionary is made from.
pub(crate) const SAMPLES: usize = 256;
/// So many do where the others have come back meanwhile.
pub(crate) const ENOUGH: usize = SAMPLES / 2;
/// Of the first burst, and of later ones, every so-manyth page.
const FIRST_STRIDE: u64 = 4;
const STRIDE: u64 = 16;
/// From one burst to the next, pages: as many as have left, times this.
const GROWTH: u64 = 16;
/// Or so many.
const LONGEST: u64 = 1 << 18;

/// Learns from one space's pages. Changes under its `one_swap_out`.
#[derive(Default)]
pub struct Learner {
    /// Pages seen.
    seen: u64,
    /// When the next burst begins.
    next: u64,
    samples: Vec<Vpn>,
    dictionary: Option<Dictionary>,
}

impl Learner {
    /// What was learned so far.
    pub(crate) fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_ref()
    }

    /// A page leaves that is to be stored with a dictionary.
    pub(crate) fn see(&mut self, page: Vpn) {
        self.seen += 1;
        let stride = if self.next == 0 { FIRST_STRIDE } else { STRIDE };
        if self.seen >= self.next && self.seen.is_multiple_of(stride) && !self.is_due() {
            self.samples.push(page);
        }
    }

    /// Whether there are pages enough to learn from.
    pub(crate) fn is_due(&self) -> bool {
        self.samples.len() >= SAMPLES
    }

    /// The pages to learn from: who reads them takes away those that are not there.
    pub(crate) fn samples(&mut self) -> &mut Vec<Vpn> {
        &mut self.samples
    }

    /// What came of it; without a dictionary, the one before stays.
    pub(crate) fn learned(&mut self, dictionary: Option<Dictionary>) {
        self.samples = Vec::new();
        self.dictionary = dictionary.or(self.dictionary.take());
        self.next = (self.seen * GROWTH).min(self.seen + LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_comes_after_1024_pages_and_another_when_data_may_have_changed() {
        let mut learner = Learner::default();
        let mut made_at = Vec::new();
        for number in 1..=24_000 {
            learner.see(Vpn(number));
            assert!(learner.samples.len() <= SAMPLES);
            if learner.is_due() {
                learner.learned(None);
                made_at.push(number);
            }
        }
        // 16,384 and 256 pages, one in 16.
        assert_eq!(made_at, [1024, 16_384 + 255 * 16]);
        assert!(learner.samples.is_empty());
    }

    #[test]
    fn where_pages_have_come_back_more_are_looked_at() {
        let mut learner = Learner::default();
        (0..1024).for_each(|number| learner.see(Vpn(number)));
        assert!(learner.is_due());
        learner.samples().truncate(ENOUGH - 1);
        assert!(!learner.is_due());
        (0..4 * (SAMPLES - ENOUGH) as u64).for_each(|number| learner.see(Vpn(number)));
        assert!(!learner.is_due());
        (0..4).for_each(|number| learner.see(Vpn(number)));
        assert!(learner.is_due());
    }
}

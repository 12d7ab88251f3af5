//! What is learned of a space from the pages that leave it: a dictionary for its codec.
//!
//! The first one is made from 256 of the first 1,024 pages. Data changes, so another follows from
//! 256 of 4,096 pages when sixteen times as many have left, at most every 262,144 (1 GiB). Pages
//! stored with an older one keep it. Samples take 1 MiB, in bursts only.

use std::sync::Arc;

use clew_store::{CodecContext, Dictionary, Store};

/// Pages of a burst.
const SAMPLES: usize = 256;
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
    samples: Vec<u8>,
    dictionary: Option<Dictionary>,
}

impl Learner {
    /// What was learned so far.
    pub(crate) fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_ref()
    }

    /// A page leaves that is to be stored with a dictionary.
    pub(crate) fn see(&mut self, page: &[u8]) {
        self.seen += 1;
        let stride = if self.next == 0 { FIRST_STRIDE } else { STRIDE };
        if self.seen >= self.next && self.seen.is_multiple_of(stride) && !self.is_due(page.len()) {
            self.samples.extend_from_slice(page);
        }
    }

    fn is_due(&self, page_bytes: usize) -> bool {
        self.samples.len() >= SAMPLES * page_bytes
    }

    /// Makes a dictionary if there are pages enough; takes 7 ms then. The caller has no page of the
    /// space in his hands.
    pub(crate) fn learn(&mut self, store: &Arc<Store>, codec: &mut CodecContext) {
        if !self.is_due(store.config().page_bytes) {
            return;
        }
        let samples = std::mem::take(&mut self.samples);
        if let Some(learned) = store.learn(codec, &samples) {
            self.dictionary = Some(learned);
        }
        self.next = (self.seen * GROWTH).min(self.seen + LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use clew_store::StoreConfig;

    use super::*;

    const PAGE: usize = 4096;

    /// Pages of records, no two alike.
    fn page(number: u64) -> Vec<u8> {
        let record =
            |i| format!("{{\"id\":{},\"kind\":\"order\",\"state\":\"open\"}}", number * 97 + i);
        let mut bytes: Vec<u8> = (0..200).flat_map(|i| record(i).into_bytes()).collect();
        bytes.truncate(PAGE);
        bytes
    }

    #[test]
    fn a_dictionary_comes_after_1024_pages_and_another_when_data_may_have_changed() {
        let limits =
            StoreConfig { page_bytes: PAGE, mem_limit_bytes: 1 << 24, disksize_pages: 1 << 16 };
        let store = Arc::new(Store::new(limits).expect("a store"));
        let (mut learner, mut ctx) = (Learner::default(), CodecContext::new());
        let mut made_at = Vec::new();
        for number in 1..=24_000 {
            let before = learner.dictionary().map(|d| format!("{d:?}"));
            learner.see(&page(number));
            learner.learn(&store, &mut ctx);
            if learner.dictionary().map(|d| format!("{d:?}")) != before {
                made_at.push(number);
            }
            assert!(learner.samples.len() <= SAMPLES * PAGE);
        }
        // 16,384 and 256 pages, one in 16.
        assert_eq!(made_at, [1024, 16_384 + 255 * 16]);
        assert!(learner.samples.is_empty());
    }
}

//! How often what was asked for lately was in the pool: the hit window.
//!
//! Source: ezswap III-B: "When a page-in request is delivered to the ezswap, it performs a bit-wise right shift
//! operation over the hit window. Then, it sets the MSB of the hit window if the requested page exists in the
//! zpool. Otherwise, it clears the MSB." Before the first request there were no hits.

/// Requests that are remembered.
pub const REQUESTS: u64 = 256;

/// The window: the last request is the highest bit of the first word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitWindow([u64; 4]);

impl HitWindow {
    /// A page was asked for, and was in the pool or not.
    pub fn push(&mut self, hit: bool) {
        let mut carried = u64::from(hit) << 63;
        for word in &mut self.0 {
            let lowest = *word << 63;
            *word = *word >> 1 | carried;
            carried = lowest;
        }
    }

    /// Hits among the last [`REQUESTS`].
    pub fn hits(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

//! Of what kinds the frames were that were chosen to leave: zpages, and of these pages of files (ezswap, figure 11).

use clew_core::Metric;

/// The names, by zpages and pages of files.
const NAMES: [[&str; 4]; 3] = [
    ["evicted_frames_1_0", "evicted_frames_1_1", "", ""],
    ["evicted_frames_2_0", "evicted_frames_2_1", "evicted_frames_2_2", ""],
    ["evicted_frames_3_0", "evicted_frames_3_1", "evicted_frames_3_2", "evicted_frames_3_3"],
];

/// Counts.
#[derive(Default)]
pub(super) struct FrameKinds([[u64; 4]; 3]);

impl FrameKinds {
    /// A frame leaves that has so many zpages, of which so many are pages of files.
    pub fn count(&mut self, zpages: usize, files: usize) {
        let zpages = zpages.clamp(1, 3);
        self.0[zpages - 1][files.min(zpages)] += 1;
    }

    /// All counts.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> {
        let named = NAMES.into_iter().flatten().zip(self.0.into_iter().flatten());
        let help = "frames chosen to leave, by zpages and, of these, pages of files";
        named.filter(|(name, _)| !name.is_empty()).map(move |(name, value)| Metric {
            name,
            value: value as f64,
            help,
        })
    }
}

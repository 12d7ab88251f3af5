//! What only a replay can know of an arm.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Summary;

/// A replay's own counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The table of costs.
    pub costs: String,
    /// `real` bytes, or where the sizes come from: `ratio`, `table`, `statistics`.
    pub pages: String,
    /// Relaunches without any swapping.
    pub own_ms: Summary,
    /// Launches of the trace.
    pub launches: u64,
    /// Relaunches of the trace that had to be launches, because the app had been ended.
    pub cold_launches: u64,
    /// Apps ended for want of memory.
    pub kills: u64,
    /// Apps that asked for a page that was lost with its donor.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashes: u64,
    /// Read from donors, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub link_read_bytes: u64,
    /// Sent to donors, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub link_written_bytes: u64,
    /// Part of the CPU time of swapping: copying out, hashing, compressing, finding room.
    pub compress_ms: f64,
    /// Part of it: looking at the beginning of pages, for admission.
    #[serde(default)]
    pub sample_ms: f64,
    /// Part of it: finding, decompressing, checking, copying in.
    pub decompress_ms: f64,
    /// Part of it: crossings to the kernel, by the table of costs.
    pub kernel_ms: f64,
    /// Programs waited for memory because reclaim had not kept up.
    pub waited_for_room_ms: f64,
    /// Read from flash; what was written there is the arm's `disk_bytes_written`.
    pub flash_read_bytes: u64,
    /// Accesses of pages.
    pub accesses: u64,
    /// Of these, pages that were resident or parked. Stored ones are the arm's `faults`.
    pub hits: u64,
    /// Of these, first touches.
    pub fresh: u64,
    /// Pages that left for the pool.
    pub swapped_out_pages: u64,
    /// Of these, pages that were compressed: neither zeros nor kept copies.
    pub compressed_pages: u64,
    /// Pages whose beginning admission has looked at.
    #[serde(default)]
    pub sampled_pages: u64,
    /// Pages that were decompressed.
    pub decompressed_pages: u64,
    /// What came back early.
    pub prefetch: Prefetched,
    /// What relaunches used, and what the hot list said of it (Ariadne, figures 5 and 14).
    pub hot_sets: HotSets,
    /// Pages brought back for each that was used.
    pub read_amplification: Option<f64>,
    /// Kept copies given up under pressure.
    pub kept_dropped_pages: u64,
    /// Contents that changed while their page was stored: writes that the trace's source did not see.
    pub unseen_writes: u64,
    /// Times the policies were asked for victims.
    pub reclaim_rounds: u64,
    /// Pages in the pool when the trace ended.
    pub stored_pages_at_end: u64,
    /// What engine and policies have counted, by name.
    #[serde(default)]
    pub policies: BTreeMap<String, f64>,
    /// Clean pages of files, where the scheme takes them.
    #[serde(default)]
    pub files: Option<Files>,
    /// Belady's bound, where sizes are uniform.
    pub belady: Option<Belady>,
    /// A digest of every victim, group, prefetch and ending, in their order: equal for equal
    /// decisions.
    pub decisions: String,
}

/// Clean pages of files (ezswap III-A).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// Read from their files.
    pub read_pages: u64,
    /// Left DRAM for the pool.
    pub to_pool_pages: u64,
    /// Left DRAM for good.
    pub dropped_pages: u64,
    /// Left the pool for good.
    pub dropped_from_pool_pages: u64,
}

/// Pages that came back without having been asked for: prefetched, or with another of their block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefetched {
    /// How many.
    pub pages: u64,
    /// Used before they left again.
    pub used: u64,
    /// Left again, or were given up, unused.
    pub unused: u64,
    /// Used of all; absent if there were none.
    pub accuracy: Option<f64>,
    /// Of the stored pages that were used, those that had come back before.
    pub coverage: Option<f64>,
}

/// Means over relaunches, 0 to 1; each absent where no relaunch had anything to divide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotSets {
    /// Relaunches that ended with a response.
    pub relaunches: u64,
    /// Of the pages that a relaunch used, those that the one before used.
    pub similarity: Option<f64>,
    /// Of the pages that the relaunch before used, those that were used while the app was in front.
    pub reuse: Option<f64>,
    /// Of the pages that a relaunch used, those that were on the hot list; absent where the scheme has
    /// none.
    pub coverage: Option<f64>,
    /// Of the pages on the hot list, those that were used while the app was in front.
    pub accuracy: Option<f64>,
}

/// The least number of pages that any scheme brings back which stores every page at this size
/// (Belady's MIN).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Belady {
    /// Pages brought back.
    pub pages: u64,
    /// The size it supposes: original over stored.
    pub ratio: f64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

//! What a replay gives. The names are those of `clew compare --format json`, described in
//! docs/formats.md.

use serde::{Deserialize, Serialize};

use super::hot_sets::HotSets;

/// Times of relaunches, milliseconds. Percentiles are nearest ranks: times that did occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relaunches {
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The worst.
    pub max: f64,
    /// How many. With none of them, the others are zero.
    pub n: u64,
}

impl Relaunches {
    /// Of times in nanoseconds.
    pub fn of(ns: &[f64]) -> Relaunches {
        let mut sorted = ns.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = |part: f64| {
            let position = (part * sorted.len() as f64).ceil().max(1.0) as usize - 1;
            sorted.get(position).map_or(0.0, |ns| ns / 1e6)
        };
        Relaunches { p50: rank(0.5), p95: rank(0.95), max: rank(1.0), n: sorted.len() as u64 }
    }
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

/// Memory by part, bytes, when all parts together were most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Resident pages.
    pub resident_bytes: u64,
    /// Pages that wait decompressed for their use.
    pub parked_bytes: u64,
    /// The pool.
    pub pool_bytes: u64,
    /// Page tables.
    pub tables_bytes: u64,
    /// What policies keep of pages, at the end; not part of the budget.
    pub policies_bytes: u64,
}

impl Parts {
    /// What counts towards the budget.
    pub fn total_bytes(&self) -> u64 {
        self.resident_bytes + self.parked_bytes + self.pool_bytes + self.tables_bytes
    }
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

/// What a replay gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The scheme's name.
    pub scheme: String,
    /// What this version lacks of the system that the scheme is named after.
    pub missing: Vec<String>,
    /// The trace's file name.
    pub trace: String,
    /// Memory for everything that counts.
    pub budget_bytes: u64,
    /// `measured` or `modelled`.
    pub time: String,
    /// The table of costs.
    pub costs: String,
    /// `real` bytes, or where the sizes come from: `ratio`, `table`, `statistics`.
    pub pages: String,
    /// Relaunches of apps that were alive.
    pub relaunch_ms: Relaunches,
    /// The same without any swapping.
    pub own_ms: Relaunches,
    /// Launches of the trace.
    pub launches: u64,
    /// Relaunches of the trace that had to be launches, because the app had been ended.
    pub cold_launches: u64,
    /// Apps ended for want of memory.
    pub kills: u64,
    /// CPU time of swapping.
    pub cpu_ms: f64,
    /// Part of it: copying out, hashing, compressing, finding room.
    pub compress_ms: f64,
    /// Part of it: finding, decompressing, checking, copying in.
    pub decompress_ms: f64,
    /// Part of it: crossings to the kernel, by the table of costs.
    pub kernel_ms: f64,
    /// Programs waited for memory because reclaim had not kept up.
    pub waited_for_room_ms: f64,
    /// Original over stored size of all that was swapped out; absent if nothing was.
    pub ratio: Option<f64>,
    /// Read from flash.
    pub flash_read_bytes: u64,
    /// Written to flash.
    pub flash_written_bytes: u64,
    /// Accesses of pages.
    pub accesses: u64,
    /// Of these, pages that were resident or parked.
    pub hits: u64,
    /// Of these, first touches.
    pub fresh: u64,
    /// Of these, stored pages.
    pub faults: u64,
    /// Pages that left for the pool.
    pub swapped_out_pages: u64,
    /// Of these, pages that were compressed: neither zeros nor kept copies.
    pub compressed_pages: u64,
    /// Pages that were decompressed.
    pub decompressed_pages: u64,
    /// What came back early.
    pub prefetch: Prefetched,
    /// What relaunches used, and what the hot list said of it (Ariadne, figures 5 and 14).
    pub hot_sets: HotSets,
    /// Pages brought back for each that was used.
    pub read_amplification: Option<f64>,
    /// Most memory used at once.
    pub peak_bytes: u64,
    /// The same by part.
    pub peak: Parts,
    /// Kept copies given up under pressure.
    pub kept_dropped_pages: u64,
    /// Contents that changed while their page was stored: writes that the trace's source did not see.
    pub unseen_writes: u64,
    /// Times the policies were asked for victims.
    pub reclaim_rounds: u64,
    /// Pages in the pool when the trace ended.
    pub stored_pages_at_end: u64,
    /// Belady's bound, where sizes are uniform.
    pub belady: Option<Belady>,
    /// A digest of every victim, group, prefetch and ending, in their order: equal for equal
    /// decisions.
    pub decisions: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<f64> = (1..=20).rev().map(|ms| f64::from(ms) * 1e6).collect();
        let of = Relaunches::of(&times);
        assert_eq!((of.p50, of.p95, of.max, of.n), (10.0, 19.0, 20.0, 20));
        assert_eq!(Relaunches::of(&[7e6]), Relaunches { p50: 7.0, p95: 7.0, max: 7.0, n: 1 });
        assert_eq!(Relaunches::of(&[]), Relaunches::default());
    }
}

//! What a replay counts.

use clew_core::Tier;
use clew_engine::driver::Driver;
use clew_report::{Arm, HotSets, Memory, Prefetched, Replay, Summary};
use clew_store::flash::LogId;

use crate::costs::Spent;
use crate::mechanism::Mechanism;

#[derive(Default)]
pub(super) struct Tally {
    pub accesses: u64,
    pub hits: u64,
    pub fresh: u64,
    pub faults: u64,
    pub launches: u64,
    pub cold_launches: u64,
    pub kills: u64,
    /// Apps that asked for a page that was lost with its donor.
    pub crashes: u64,
    pub unseen_writes: u64,
    pub kept_dropped: u64,
    /// Came back without having been asked for; of these, used before they left, left unused.
    pub ahead_pages: u64,
    pub ahead_used: u64,
    pub ahead_unused: u64,
    /// Programs waited for room.
    pub waited_ns: f64,
    swapped_out: u64,
    stored_bytes: u64,
    original_bytes: u64,
    spent: Spent,
    own_ns: Vec<f64>,
    relaunch_ns: Vec<f64>,
    peak: Memory,
    decisions: u64,
}

impl Tally {
    pub fn spend(&mut self, spent: &Spent) {
        self.spent += *spent;
    }

    /// What was read from flash so far, bytes.
    pub fn flash_read_bytes(&self) -> u64 {
        self.spent.flash_read_bytes
    }

    /// Pages that left their program so far, for whichever tier; those dropped at once are not among them.
    pub fn out_pages(&self) -> u64 {
        self.swapped_out
    }

    /// Pages compressed so far.
    pub fn compressed_pages(&self) -> u64 {
        self.spent.compressed_pages
    }

    /// Pages whose beginning admission has looked at so far.
    pub fn sampled_pages(&self) -> u64 {
        self.spent.sampled_pages
    }

    /// What was written to flash so far, bytes.
    pub fn flash_written_bytes(&self) -> u64 {
        self.spent.flash_written_bytes
    }

    /// CPU time of all so far, nanoseconds.
    pub fn spent_ns(&self) -> f64 {
        self.spent.cpu_ns()
    }

    pub fn relaunched(&mut self, own_ns: f64, took_ns: f64) {
        self.own_ns.push(own_ns);
        self.relaunch_ns.push(took_ns);
    }

    /// A page left its program. Of one that went into a log, what stays in memory says nothing of how dense it is.
    pub fn stored(&mut self, tier: Tier, bytes: u64, page_bytes: u64) {
        self.swapped_out += 1;
        if LogId::of(tier).is_none() {
            self.stored_bytes += bytes;
            self.original_bytes += page_bytes;
        }
    }

    /// A decision: of a kind, about these.
    pub fn decided(&mut self, kind: u64, what: impl IntoIterator<Item = u64>) {
        let mut mix = |word: u64| {
            let mixed = (self.decisions ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.decisions = mixed ^ mixed >> 29;
        };
        mix(kind);
        what.into_iter().for_each(mix);
    }

    /// Keeps the parts of memory when they are most together.
    #[inline]
    pub fn peak(&mut self, used_bytes: u64, parts: impl FnOnce() -> Memory) {
        if used_bytes > self.peak.total_bytes() {
            self.peak = parts();
        }
    }

    pub fn arm<M: Mechanism>(&self, mechanism: &M, driver: &Driver, hot_sets: HotSets) -> Arm {
        let ms = |ns: f64| ns / 1e6;
        let summary = |ns: &[f64]| Summary::of(&ns.iter().map(|&ns| ms(ns)).collect::<Vec<_>>());
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let metrics = driver.metrics();
        let tracking = metrics.iter().filter(|metric| metric.name.ends_with("_tracking_bytes"));
        let counted =
            metrics.iter().map(|metric| (metric.name.to_string(), metric.value)).collect();
        let policies_bytes = tracking.map(|metric| metric.value as u64).sum();
        let returned = self.faults + self.ahead_pages;
        let replay = Replay {
            own_ms: summary(&self.own_ns),
            launches: self.launches,
            cold_launches: self.cold_launches,
            kills: self.kills,
            crashes: self.crashes,
            link_read_bytes: self.spent.link_read_bytes,
            link_written_bytes: self.spent.link_written_bytes,
            compress_ms: ms(self.spent.out_ns),
            sample_ms: ms(self.spent.sample_ns),
            sampled_pages: self.spent.sampled_pages,
            decompress_ms: ms(self.spent.back_ns),
            kernel_ms: ms(self.spent.kernel_ns),
            flash_read_bytes: self.spent.flash_read_bytes,
            waited_for_room_ms: ms(self.waited_ns),
            accesses: self.accesses,
            hits: self.hits,
            fresh: self.fresh,
            swapped_out_pages: self.swapped_out,
            compressed_pages: self.spent.compressed_pages,
            decompressed_pages: self.spent.decompressed_pages,
            prefetch: Prefetched {
                pages: self.ahead_pages,
                used: self.ahead_used,
                unused: self.ahead_unused,
                accuracy: share(self.ahead_used, self.ahead_pages),
                coverage: share(self.ahead_used, self.ahead_used + self.faults),
            },
            hot_sets,
            read_amplification: share(returned, self.faults + self.ahead_used),
            kept_dropped_pages: self.kept_dropped,
            unseen_writes: self.unseen_writes,
            reclaim_rounds: driver.rounds(),
            stored_pages_at_end: mechanism.pool().pages,
            policies: counted,
            decisions: format!("{:016x}", self.decisions),
            ..Replay::default()
        };
        Arm {
            relaunch_ms: summary(&self.relaunch_ns),
            swapping_cpu_ms: Some(ms(self.spent.cpu_ns())),
            ratio: share(self.original_bytes, self.stored_bytes),
            faults: self.faults,
            disk_bytes_written: self.spent.flash_written_bytes,
            total_bytes_peak: self.peak.total_bytes(),
            peak: Some(Memory { policies_bytes, ..self.peak }),
            replay: Some(replay),
            ..Arm::default()
        }
    }
}

//! What the tier tells of itself.

use clew_core::TierFacts;

/// One part of the device in so many stays free, so that cleaning finds slots that are worth it.
const KEPT_FREE: u64 = 8;

/// What the tier holds and did. Taken without stopping it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlashFacts {
    /// What all slots hold together, bytes.
    pub capacity_bytes: u64,
    /// What lives, with tags, bytes.
    pub live_bytes: u64,
    /// Slots.
    pub slots: u64,
    /// Of these, free ones.
    pub free_slots: u64,
    /// Segments in memory.
    pub buffers_in_use: u64,
    /// Appended by who stores, bytes.
    pub appended_bytes: u64,
    /// Appended by cleaning, bytes.
    pub cleaned_bytes: u64,
    /// Written to the device, bytes.
    pub written_bytes: u64,
    /// Segments written.
    pub segments_written: u64,
    /// Segments that were freed before they were written.
    pub segments_dropped: u64,
    /// Objects read from the device.
    pub reads: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Objects read from buffers.
    pub memory_reads: u64,
    /// Reads of what another read of the device had brought along.
    pub window_reads: u64,
    /// Reads that were tried again.
    pub retries: u64,
    /// Reads that failed for good.
    pub read_errors: u64,
    /// Why nothing is taken any more.
    pub latched: Option<String>,
}

impl FlashFacts {
    /// Bytes written to the device for each byte that was stored; 1 if none was.
    pub fn write_amplification(&self) -> f64 {
        match self.appended_bytes {
            0 => 1.0,
            appended => self.written_bytes as f64 / appended as f64,
        }
    }

    /// How full it is, for policies, with so many pages on it. One that takes nothing more is full.
    pub fn tier(&self, pages: u64) -> TierFacts {
        let used_bytes = self.live_bytes;
        let limit_bytes = match self.latched {
            None => self.capacity_bytes - self.capacity_bytes / KEPT_FREE,
            Some(_) => used_bytes,
        };
        TierFacts { used_bytes, limit_bytes, pages, limit_pages: u64::MAX, ..TierFacts::default() }
    }

    /// Which part of the device lives, 0 to 1.
    pub fn utilisation(&self) -> f64 {
        self.live_bytes as f64 / self.capacity_bytes.max(1) as f64
    }
}

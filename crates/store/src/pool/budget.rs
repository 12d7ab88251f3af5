//! Frames in use against the limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::class::FRAME_BYTES;

/// Counts frames; never lets them exceed the limit.
#[derive(Debug)]
pub struct Budget {
    used_frames: AtomicU64,
    limit_frames: u64,
    /// Frames below the limit that only [`For::Leaving`] takes.
    kept_frames: AtomicU64,
}

/// What frames are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Something new.
    New,
    /// What stays of a block that leaves the pool: blocks must leave where nothing new has room. It may be larger than the
    /// object in whose place it is, whose block had parts.
    Leaving,
}

impl Budget {
    /// A budget of whole frames within `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Budget {
        Budget {
            used_frames: AtomicU64::new(0),
            limit_frames: limit_bytes / FRAME_BYTES as u64,
            kept_frames: AtomicU64::new(0),
        }
    }

    /// Counts frames that are in use already, even beyond the limit: then nothing is taken until
    /// enough was given back.
    pub(super) fn found(&mut self, frames: u64) {
        *self.used_frames.get_mut() += frames;
    }

    /// Keeps so many frames for [`For::Leaving`], of those that are not taken by others yet.
    pub(super) fn keep(&self, frames: u64) {
        self.kept_frames.store(frames, Relaxed);
    }

    /// Takes `frames` for something new, or nothing and says false.
    pub fn charge(&self, frames: u64) -> bool {
        self.charge_for(For::New, frames)
    }

    /// Takes `frames`, or nothing and says false.
    pub fn charge_for(&self, what: For, frames: u64) -> bool {
        let kept = match what {
            For::New => self.kept_frames.load(Relaxed),
            For::Leaving => 0,
        };
        let limit = self.limit_frames.saturating_sub(kept);
        let fits = |used: u64| used.checked_add(frames).filter(|sum| *sum <= limit);
        self.used_frames.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Gives `frames` back.
    pub fn refund(&self, frames: u64) {
        self.used_frames.fetch_sub(frames, Relaxed);
    }

    /// Frames in use.
    pub fn used_frames(&self) -> u64 {
        self.used_frames.load(Relaxed)
    }
}

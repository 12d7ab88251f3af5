//! Why the tier does not do what it is asked for.

use std::io;

use super::cipher::KeyError;
use crate::segment::SegmentError;

/// Why there is no tier.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// Segments or buffers are none that can be.
    #[error(
        "segments of {segment_bytes} bytes, {buffers} buffers: not multiples of 64 KiB up to \
        64 MiB, 1 to 256 buffers"
    )]
    Config {
        /// What was asked for.
        segment_bytes: u32,
        /// What was asked for.
        buffers: u32,
    },
    /// The device has too little room.
    #[error("a device of {bytes} bytes for flash: {least} at least")]
    TooSmall {
        /// Its size.
        bytes: u64,
        /// The smallest that is of use.
        least: u64,
    },
    /// The system gave no memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The system gave no thread.
    #[error("a thread that writes to flash: {0}")]
    Thread(io::Error),
}

/// Why what a predecessor left makes no tier.
#[derive(Debug, thiserror::Error)]
pub enum AdoptFlashError {
    /// It is no ledger of a log.
    #[error("the ledger of the flash log is none: memory was damaged")]
    Ledger,
    /// The system refused.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The system gave no thread.
    #[error("a thread that writes to flash: {0}")]
    Thread(io::Error),
}

impl AdoptFlashError {
    /// Whether it is so for ever: without ledger or key nobody reads what is there again. Anything else may go better
    /// the next time.
    pub fn is_lost(&self) -> bool {
        match self {
            AdoptFlashError::Ledger => true,
            AdoptFlashError::Key(error) => matches!(error, KeyError::Gone),
            AdoptFlashError::Segment(error) => !matches!(error, SegmentError::System { .. }),
            AdoptFlashError::Thread(_) => false,
        }
    }
}

/// Why an object was not taken; it is nowhere then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The device is full, until something is freed or cleaned.
    #[error("flash is full")]
    NoSlot,
    /// All buffers wait to be written, or there is no memory for one.
    #[error("flash is written too slowly: no buffer is free")]
    NoBuffer,
    /// No segment has room for it.
    #[error("an object larger than {most} bytes")]
    TooLarge {
        /// The largest.
        most: u32,
    },
    /// Nothing is taken any more.
    #[error("flash takes nothing more: {why}")]
    Latched {
        /// What happened.
        why: String,
    },
}

/// Why an object was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFlashError {
    /// Its place is no place any more: it was freed, or carried elsewhere. Who names it looks again.
    #[error("it is not there any more")]
    Moved,
    /// The device did not give its bytes, however often it was asked.
    #[error("the device does not give it: {why}")]
    Device {
        /// What the system said last.
        why: String,
    },
    /// The device gave other bytes than were written.
    #[error("the device gave other bytes than were written")]
    Damaged,
}

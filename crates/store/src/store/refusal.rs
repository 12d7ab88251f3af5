//! Why the store does not do what it is asked for.

use super::Handle;
use crate::codec::DecodeError;
use crate::flash::{LogId, ReadFlashError};
use crate::segment::SegmentError;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Pages must be a power of two of 4 to 64 KiB.
    #[error("pages of {page_bytes} bytes: not a power of two from 4096 to 65536")]
    PageSize {
        /// What was asked for.
        page_bytes: usize,
    },
    /// The system gave no randomness.
    #[error("getrandom: {0}")]
    Random(std::io::Error),
    /// The system gave no memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// What is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A log took nothing.
    Log(LogId),
    /// Pages (`disksize_pages`).
    Pages {
        /// In the store.
        stored: u64,
        /// At most.
        limit: u64,
    },
    /// Memory: `mem_limit_bytes`, or that of the machine where `used` is well below.
    Bytes {
        /// In use.
        used: u64,
        /// At most.
        limit: u64,
    },
}

/// Why a block was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// There is no room for it; nothing was stored.
    #[error("no room for {pages} pages: {limit:?}")]
    Full {
        /// What is exhausted.
        limit: Limit,
        /// What was to be stored.
        pages: usize,
    },
    /// A block is 1 to 128 whole pages, 512 KiB at most.
    #[error("a block of {bytes} bytes is not 1 to 128 pages of {page_bytes} (512 KiB at most)")]
    BlockSize {
        /// What was to be stored.
        bytes: usize,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// A chunk is a multiple of 256 bytes, 128 KiB at most.
    #[error("chunks of {chunk_bytes} bytes: not a multiple of 256 up to 131072")]
    ChunkSize {
        /// What was asked for.
        chunk_bytes: u32,
    },
}

/// Why a page was not restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No block has this handle.
    #[error("handle {} names no block", handle.raw())]
    Unknown {
        /// The handle.
        handle: Handle,
    },
    /// The block is on flash, and who asked has no way to wait for that.
    #[error("block {} is on flash, and nobody waits for it here", handle.raw())]
    Far {
        /// The handle.
        handle: Handle,
    },
    /// It is on flash, which did not give it.
    #[error(transparent)]
    Lost(#[from] FetchError),
    /// The block has fewer pages.
    #[error("block {} has {pages} pages, no page {index}", handle.raw())]
    NoSuchPage {
        /// The block.
        handle: Handle,
        /// The page asked for.
        index: u16,
        /// Pages it has.
        pages: u16,
    },
    /// The buffer has the wrong length.
    #[error("a buffer of {found} bytes for {wanted}")]
    WrongSize {
        /// Bytes needed.
        wanted: usize,
        /// Bytes given.
        found: usize,
    },
    /// The stored bytes do not decode: memory was damaged.
    #[error("block {} is damaged: {source}", handle.raw())]
    Damaged {
        /// The block.
        handle: Handle,
        /// What failed.
        source: DecodeError,
    },
    /// The restored page is not the one that was stored: memory was damaged.
    #[error("page {index} of block {} has checksum {found:#x}, not {expected:#x}", handle.raw())]
    Corrupt {
        /// The block.
        handle: Handle,
        /// The page.
        index: u16,
        /// Checksum when stored.
        expected: u64,
        /// Checksum now.
        found: u64,
    },
}

/// Why the bytes of a block did not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// It was moved meanwhile: reading it again tells where it is.
    #[error("block {} has moved", handle.raw())]
    Moved {
        /// The block.
        handle: Handle,
    },
    /// There is no such log.
    #[error("block {} is in {log}, and there is none", handle.raw())]
    NoLog {
        /// The block.
        handle: Handle,
        /// Where it is.
        log: LogId,
    },
    /// The log did not give it, or gave something else.
    #[error("block {} in a log: {source}", handle.raw())]
    Lost {
        /// The block.
        handle: Handle,
        /// What failed.
        source: ReadFlashError,
    },
}

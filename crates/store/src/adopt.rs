//! What keeps a successor from taking over.

use crate::segment::SegmentError;
use clew_core::SpaceId;

/// Why the segments of a process that died make no store or no page tables. The segments may have
/// changed by then, but not in what they mean: whoever tries again comes as far.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Pages must be a power of two of 4 to 64 KiB.
    #[error("pages of {page_bytes} bytes: not a power of two from 4096 to 65536")]
    PageSize {
        /// What was asked for.
        page_bytes: usize,
    },
    /// Without the seed no page can be verified.
    #[error("the handle table has no first page: memory was damaged")]
    NoSeed,
    /// A pool has three or five.
    #[error("{count} segments of a pool: no pool has so many")]
    Segments {
        /// How many there are.
        count: usize,
    },
    /// The owner of a leaf cannot be made out, and whose pages it has.
    #[error("the owner record of page table leaf {leaf} is no record: memory was damaged")]
    Owner {
        /// The leaf.
        leaf: u32,
    },
    /// A leaf has entries and is nobody's.
    #[error("page table leaf {leaf} has entries and no owner: memory was damaged")]
    Unowned {
        /// The leaf.
        leaf: usize,
    },
    /// Two leaves say that they are for the same pages.
    #[error("page table leaves {first} and {second} are both part {number} of space {}: memory \
        was damaged", space.0)]
    Twice {
        /// The space.
        space: SpaceId,
        /// Which 512 pages of it.
        number: u64,
        /// One leaf.
        first: u32,
        /// The other.
        second: u32,
    },
    /// The system refused.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

#[cfg(test)]
pub(crate) mod tests;

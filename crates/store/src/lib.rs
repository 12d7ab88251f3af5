//! Where pages are while their program does not need them: codecs, the compressed pool, and the
//! page table that says which page is where.
//!
//! [`Store`] is the face of the pool, [`Space`] the page table of one address space. What must
//! outlive the daemon lies in [`Segment`]s: the arena, the slab and handle tables, the leaves of
//! the page tables and their owners.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.

pub mod adopt;
pub mod codec;
pub mod flash;
pub mod journal;
pub mod points;
pub mod pool;
pub mod segment;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
pub mod store;
pub mod table;
pub mod tier;

pub use adopt::AdoptError;
pub use clew_core::CodecKind;
pub use codec::{CodecContext, DecodeError};
pub use journal::{Journal, JournalError, SpaceJournal};
pub use segment::{Segment, SegmentError};
pub use store::{
    Adopted, BackError, Dictionary, EvictError, FarBlock, FetchError, Fetched, Get, Handle, Limit,
    Members, Piece, PoolFacts, PutError, PutFarError, ReadError, Store, StoreConfig, StoreError,
};
pub use table::{
    Counts, Damage, Entry, LeafShare, Refused, Space, SpaceLeaves, SpaceLock, SpaceReadGuard,
    SpaceWriteGuard, State, TableError, Tables,
};
pub use tier::ObjectTier;

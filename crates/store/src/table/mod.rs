//! The page table: which page of a program is where.
//!
//! One word a page ([`Entry`]), 512 words a leaf ([`Tables`] hands them out, from one segment for
//! all), found through a small hash table per address space ([`Space`]). Readers take no lock.

mod adopt;
mod entry;
mod index;
mod leaves;
mod lock;
mod numbers;
mod share;
mod space;

pub use adopt::{Damage, SpaceLeaves};
pub use entry::{Entry, State};
pub use leaves::{TableError, Tables};
pub use lock::{SpaceLock, SpaceReadGuard, SpaceWriteGuard};
pub use share::LeafShare;
pub use space::{Counts, Refused, Space};

#[cfg(test)]
mod tests;

//! The page table: which page of a program is where.
//!
//! One word a page ([`Entry`]), 512 words a chunk ([`Tables`] hands them out, from one segment for
//! all), found through a small hash table per address space ([`Space`]). Readers take no lock.

mod adopt;
mod chunks;
mod entry;
mod index;
mod numbers;
mod space;

pub use adopt::{Damage, SpaceChunks};
pub use chunks::{TableError, Tables};
pub use entry::{Entry, State};
pub use space::{Counts, Refused, Space};

#[cfg(test)]
mod tests;

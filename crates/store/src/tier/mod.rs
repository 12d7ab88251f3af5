//! Where a store keeps its objects: header and payload of up to a frame each, behind handles that count
//! references.
//!
//! It is the pool, in size classes ([`crate::pool::Pool`]) or as z3fold ([`crate::pool::z3fold::Z3fold`]), and
//! [`AnyTier`] is whichever a scheme has chosen. What is to hold objects elsewhere, or otherwise, is one more
//! [`ObjectTier`]: the store, the page table and the mover are the same for all, and so is what must be
//! kept (`conformance`). The store is made for each of them, so reading costs no call that was not there.

mod any;
#[cfg(test)]
pub(crate) mod conformance;

pub use any::AnyTier;

pub use crate::pool::object_tier::ObjectTier;

//! Whichever pool a scheme has chosen: what every pool is asked goes to the one that is there, by one branch.

use std::os::fd::OwnedFd;

use clew_core::{FrameFacts, PoolKind};

use super::ObjectTier;
use crate::adopt::AdoptError;
use crate::pool::budget::For;
use crate::pool::object::Header;
use crate::pool::z3fold::Z3fold;
use crate::pool::{Found, NoRoom, Pool, Usage};
use crate::segment::{Segment, SegmentError};

/// A pool of any kind.
#[derive(Debug)]
pub enum AnyTier {
    /// [`PoolKind::SizeClasses`].
    SizeClasses(Pool),
    /// [`PoolKind::Z3fold`].
    Z3fold(Z3fold),
}

/// The same call, whatever it is.
macro_rules! whichever {
    ($tier:expr, $inner:ident => $call:expr) => {
        match $tier {
            AnyTier::SizeClasses($inner) => $call,
            AnyTier::Z3fold($inner) => $call,
        }
    };
}

impl AnyTier {
    /// An empty one of at most `limit_bytes`, with room for `handles` handles. `seed` is kept for the caller.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(
        kind: PoolKind,
        limit_bytes: u64,
        handles: u64,
        seed: u64,
    ) -> Result<AnyTier, SegmentError> {
        Ok(match kind {
            PoolKind::SizeClasses => AnyTier::SizeClasses(Pool::new(limit_bytes, handles, seed)?),
            PoolKind::Z3fold => AnyTier::Z3fold(Z3fold::new(limit_bytes, handles, seed)?),
        })
    }

    /// What it is.
    pub fn kind(&self) -> PoolKind {
        match self {
            AnyTier::SizeClasses(_) => PoolKind::SizeClasses,
            AnyTier::Z3fold(_) => PoolKind::Z3fold,
        }
    }

    /// What a successor needs; three of size classes, five of z3fold.
    pub fn segments(&self) -> Vec<&Segment> {
        match self {
            AnyTier::SizeClasses(pool) => pool.segments().to_vec(),
            AnyTier::Z3fold(frames) => frames.segments().to_vec(),
        }
    }
}

impl ObjectTier for AnyTier {
    /// [`AnyTier::segments`].
    type Left = Vec<OwnedFd>;

    fn adopt(
        limit_bytes: u64,
        left: Vec<OwnedFd>,
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(AnyTier, Found), AdoptError> {
        let left = match <[OwnedFd; 3]>::try_from(left) {
            Ok(left) => {
                let (pool, found) = Pool::adopt(limit_bytes, left, named, dictionary, block)?;
                return Ok((AnyTier::SizeClasses(pool), found));
            }
            Err(left) => left,
        };
        let count = left.len();
        let left = <[OwnedFd; 5]>::try_from(left).map_err(|_| AdoptError::Segments { count })?;
        let (frames, found) = Z3fold::adopt(limit_bytes, left, named, dictionary, block)?;
        Ok((AnyTier::Z3fold(frames), found))
    }

    fn seed(&self) -> u64 {
        whichever!(self, tier => tier.seed())
    }

    #[inline]
    fn reserve(&self) -> Result<u32, NoRoom> {
        whichever!(self, tier => ObjectTier::reserve(tier))
    }

    #[inline]
    fn unreserve(&self, handle: u32) {
        whichever!(self, tier => ObjectTier::unreserve(tier, handle));
    }

    #[inline]
    fn insert(
        &self,
        handle: u32,
        refs: u32,
        header: Header,
        pieces: &[&[u8]],
    ) -> Result<(), NoRoom> {
        whichever!(self, tier => ObjectTier::insert(tier, handle, refs, header, pieces))
    }

    fn replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom> {
        whichever!(self, tier => ObjectTier::replace(tier, handle, header, pieces, what, still))
    }

    fn keep_for_replacing(&self, bytes: u64) {
        whichever!(self, tier => tier.keep_for_replacing(bytes));
    }

    #[inline]
    fn retain(&self, handle: u32) -> bool {
        whichever!(self, tier => ObjectTier::retain(tier, handle))
    }

    #[inline]
    fn release(&self, handle: u32) -> bool {
        whichever!(self, tier => ObjectTier::release(tier, handle))
    }

    #[inline]
    fn remove(&self, handle: u32) {
        whichever!(self, tier => ObjectTier::remove(tier, handle));
    }

    #[inline]
    fn read<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        whichever!(self, tier => ObjectTier::read(tier, handle, f))
    }

    #[inline]
    fn read_unowned<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        whichever!(self, tier => ObjectTier::read_unowned(tier, handle, f))
    }

    #[inline]
    fn object_bytes(&self, payload_bytes: usize) -> usize {
        whichever!(self, tier => ObjectTier::object_bytes(tier, payload_bytes))
    }

    fn frame(&self, handle: u32) -> Option<FrameFacts> {
        whichever!(self, tier => ObjectTier::frame(tier, handle))
    }

    fn compact(&self, max_objects: usize) -> usize {
        whichever!(self, tier => ObjectTier::compact(tier, max_objects))
    }

    #[inline]
    fn used_bytes(&self) -> u64 {
        whichever!(self, tier => ObjectTier::used_bytes(tier))
    }

    fn usage(&self) -> Usage {
        whichever!(self, tier => ObjectTier::usage(tier))
    }

    #[cfg(any(test, feature = "fault-injection"))]
    fn damage(&self, handle: u32, offset: usize) -> bool {
        whichever!(self, tier => ObjectTier::damage(tier, handle, offset))
    }

    #[cfg(test)]
    fn check(&self) {
        whichever!(self, tier => ObjectTier::check(tier));
    }
}

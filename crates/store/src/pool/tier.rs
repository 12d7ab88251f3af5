//! The pool as a tier.

use std::os::fd::OwnedFd;

use super::budget::For;
use super::class::FRAME_BYTES;
use super::object::Header;
use super::object_tier::ObjectTier;
use super::{Found, NoRoom, Pool, Usage};
use crate::adopt::AdoptError;

impl ObjectTier for Pool {
    /// [`Pool::segments`].
    type Left = [OwnedFd; 3];

    fn adopt(
        limit_bytes: u64,
        left: [OwnedFd; 3],
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(Pool, Found), AdoptError> {
        Pool::adopt(limit_bytes, left, named, dictionary, block)
    }

    fn seed(&self) -> u64 {
        self.handles().seed()
    }

    #[inline]
    fn reserve(&self) -> Result<u32, NoRoom> {
        Pool::reserve(self)
    }

    #[inline]
    fn unreserve(&self, handle: u32) {
        Pool::unreserve(self, handle);
    }

    #[inline]
    fn insert(
        &self,
        handle: u32,
        refs: u32,
        header: Header,
        pieces: &[&[u8]],
    ) -> Result<(), NoRoom> {
        Pool::insert(self, handle, refs, header, pieces)
    }

    fn replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom> {
        Pool::replace(self, handle, header, pieces, what, still)
    }

    fn keep_for_replacing(&self, bytes: u64) {
        self.budget.keep(bytes / FRAME_BYTES as u64);
    }

    #[inline]
    fn retain(&self, handle: u32) -> bool {
        self.handles().retain(handle)
    }

    #[inline]
    fn release(&self, handle: u32) -> bool {
        self.handles().release(handle)
    }

    #[inline]
    fn remove(&self, handle: u32) {
        Pool::remove(self, handle);
    }

    #[inline]
    fn read<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        Pool::read(self, handle, f)
    }

    #[inline]
    fn read_unowned<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        Pool::read_unowned(self, handle, f)
    }

    #[inline]
    fn object_bytes(&self, payload_bytes: usize) -> usize {
        Pool::object_bytes(self, payload_bytes)
    }

    #[inline]
    fn compact(&self, max_objects: usize) -> usize {
        Pool::compact(self, max_objects)
    }

    #[inline]
    fn used_bytes(&self) -> u64 {
        Pool::used_bytes(self)
    }

    fn usage(&self) -> Usage {
        Pool::usage(self)
    }

    #[cfg(any(test, feature = "fault-injection"))]
    fn damage(&self, handle: u32, offset: usize) -> bool {
        Pool::damage(self, handle, offset)
    }

    #[cfg(test)]
    fn check(&self) {
        Pool::check(self);
    }
}

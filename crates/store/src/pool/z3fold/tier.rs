//! z3fold as a tier.

use std::os::fd::OwnedFd;

use clew_core::FrameFacts;

use super::super::budget::For;
use super::super::class::FRAME_BYTES;
use super::super::object::Header;
use super::super::object_tier::ObjectTier;
use super::super::{Found, NoRoom, Usage};
use super::Z3fold;
use crate::adopt::AdoptError;

impl ObjectTier for Z3fold {
    /// [`Z3fold::segments`].
    type Left = [OwnedFd; 5];

    fn adopt(
        limit_bytes: u64,
        left: [OwnedFd; 5],
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(Z3fold, Found), AdoptError> {
        Z3fold::take_over(limit_bytes, left, named, dictionary, block)
    }

    fn seed(&self) -> u64 {
        self.small.handles.seed()
    }

    fn reserve(&self) -> Result<u32, NoRoom> {
        Z3fold::reserve(self)
    }

    fn unreserve(&self, handle: u32) {
        self.small.unreserve(handle);
    }

    fn insert(
        &self,
        handle: u32,
        refs: u32,
        header: Header,
        pieces: &[&[u8]],
    ) -> Result<(), NoRoom> {
        Z3fold::insert(self, handle, refs, header, pieces)
    }

    fn replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom> {
        Z3fold::replace(self, handle, header, pieces, what, still)
    }

    fn keep_for_replacing(&self, bytes: u64) {
        self.small.budget.keep(bytes / FRAME_BYTES as u64);
    }

    #[inline]
    fn retain(&self, handle: u32) -> bool {
        self.small.handles.retain(handle)
    }

    #[inline]
    fn release(&self, handle: u32) -> bool {
        self.small.handles.release(handle)
    }

    fn remove(&self, handle: u32) {
        Z3fold::remove(self, handle);
    }

    #[inline]
    fn read<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        self.small.handles.live(handle)?;
        self.read_unowned(handle, f)
    }

    #[inline]
    fn read_unowned<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        Z3fold::read_unowned(self, handle, f)
    }

    fn object_bytes(&self, payload_bytes: usize) -> usize {
        Z3fold::object_bytes(self, payload_bytes)
    }

    fn frame(&self, handle: u32) -> Option<FrameFacts> {
        Z3fold::frame(self, handle)
    }

    /// Within a frame what is left is together already, and between frames nothing moves, as in the z3fold of the
    /// paper's kernel: what is given back are frames that lie idle, spare ones too, and of the slabs what they can.
    fn compact(&self, max_objects: usize) -> usize {
        self.give_up_spares();
        let frames = self.frames.trim(&self.small.budget) as usize;
        frames + self.small.compact(max_objects)
    }

    #[inline]
    fn used_bytes(&self) -> u64 {
        self.small.used_bytes()
    }

    fn usage(&self) -> Usage {
        Z3fold::usage(self)
    }

    #[cfg(any(test, feature = "fault-injection"))]
    fn damage(&self, handle: u32, offset: usize) -> bool {
        Z3fold::damage(self, handle, offset)
    }

    #[cfg(test)]
    fn check(&self) {
        Z3fold::check(self);
    }
}

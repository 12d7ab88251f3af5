//! What a place for objects does ([`crate::tier`]).

use std::fmt;

use clew_core::FrameFacts;

use super::budget::For;
use super::object::Header;
use super::{Found, NoRoom, Usage};
use crate::adopt::AdoptError;

/// A place for objects. All methods may be called from any thread; none waits for a codec.
///
/// Death may come between any two instructions. A successor finds every object that somebody names and
/// whose `insert` was over, and none that nobody names: those are gone, with what they took.
pub trait ObjectTier: fmt::Debug + Send + Sync + Sized + 'static {
    /// What outlives a process that had one.
    type Left;

    /// Takes over what a predecessor, which has ended, left; limits may be others. `named` yields a handle for
    /// each reference that somebody has. `dictionary` says which other object one needs, if it does; one
    /// reference of that is the object's, if somebody names the object. `block` looks at an object that is no
    /// part: it adds the handles of its parts and answers its pages, or `None` if it is no block.
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    fn adopt(
        limit_bytes: u64,
        left: Self::Left,
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(Self, Found), AdoptError>;

    /// What it keeps for the store, which needs it to verify checksums.
    fn seed(&self) -> u64;

    /// A handle without an object yet.
    ///
    /// # Errors
    /// [`NoRoom`], and nothing changed.
    fn reserve(&self) -> Result<u32, NoRoom>;

    /// Gives up a reserved handle that got no object.
    fn unreserve(&self, handle: u32);

    /// Stores `pieces`, one behind the other, as the object of a reserved handle, which has `refs`
    /// references from now on. `header.handle` and `header.len` are filled in here.
    ///
    /// # Errors
    /// [`NoRoom`], and nothing changed: the handle is still reserved.
    fn insert(
        &self,
        handle: u32,
        refs: u32,
        header: Header,
        pieces: &[&[u8]],
    ) -> Result<(), NoRoom>;

    /// Puts another object in the place of that of `handle`, at once for whoever reads, whose references it
    /// keeps; false, and nothing done, if nobody has one, or the object is not one of which `still` says so.
    /// `header.handle` and `header.len` are filled in here. `what`: whether what is kept may be used for it. Whoever dies leaves the one or the other.
    ///
    /// # Errors
    /// [`NoRoom`], and nothing changed.
    fn replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom>;

    /// Lets only [`For::Leaving`] have the last `bytes` of the room there is.
    fn keep_for_replacing(&self, bytes: u64);

    /// Adds a reference; false, and nothing done, if there is no such object.
    fn retain(&self, handle: u32) -> bool;

    /// Drops a reference; true if it was the last: the object is to be removed then, by who asks.
    fn release(&self, handle: u32) -> bool;

    /// Removes the object of `handle`, whatever its references, and the handle.
    fn remove(&self, handle: u32);

    /// Shows `f` header and payload of the object of `handle`, which stays as it is until `f` returns. `None`
    /// if there is no such object, or it is known to be damaged.
    fn read<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R>;

    /// As [`ObjectTier::read`], but the object may have lost its last reference already.
    fn read_unowned<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R>;

    /// Bytes that an object of `payload_bytes` takes.
    fn object_bytes(&self, payload_bytes: usize) -> usize;

    /// The frame in which the object of `handle` is, if the tier's frames are shared by a few objects each.
    fn frame(&self, _handle: u32) -> Option<FrameFacts> {
        None
    }

    /// Moves up to about `max_objects` together, so that memory becomes free; frames of 4 KiB given back.
    fn compact(&self, max_objects: usize) -> usize;

    /// What is in use, bytes; never more than the limit, unless it was adopted so.
    fn used_bytes(&self) -> u64;

    /// What is in use, in parts.
    fn usage(&self) -> Usage;

    /// Inverts the bits of byte `offset` of the payload of `handle`; false if it is not that long.
    #[cfg(any(test, feature = "fault-injection"))]
    fn damage(&self, handle: u32, offset: usize) -> bool;

    /// Panics unless its own invariants hold. Nobody else may use it meanwhile.
    #[cfg(test)]
    fn check(&self);
}

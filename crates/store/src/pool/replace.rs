//! Another object in the place of one: a block goes to flash and leaves a stub, or comes back.
//!
//! Both classes are locked for writing, so that nobody reads the old object and compaction does not find the new
//! one before its handle leads to it. Whoever dies has left the old one, or the new one: the handle's word says
//! which counts, and the other is free to a successor.

use parking_lot::RwLockWriteGuard;

use super::budget::For;
use super::fullness::ClassState;
use super::handle::{HandleEntry, Place};
use super::object::{self, HEADER_BYTES, Header, payload_bytes};
use super::{NoRoom, Pool};

/// The write locks of two classes, or of one that is both.
struct Both<'a> {
    low: RwLockWriteGuard<'a, ClassState>,
    high: Option<RwLockWriteGuard<'a, ClassState>>,
    low_class: u8,
}

impl Both<'_> {
    fn of(&mut self, class: u8) -> &mut ClassState {
        match &mut self.high {
            Some(high) if class != self.low_class => high,
            _ => &mut self.low,
        }
    }
}

impl Pool {
    /// See [`crate::tier::ObjectTier::replace`].
    ///
    /// # Errors
    /// [`NoRoom`], and nothing changed.
    ///
    /// # Panics
    /// If the pieces exceed the largest payload.
    pub fn replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom> {
        match self.try_replace(handle, header, pieces, what, &still) {
            Err(NoRoom) if self.slabs.trim(&self.budget) > 0 => {
                self.try_replace(handle, header, pieces, what, &still)
            }
            done => done,
        }
    }

    fn try_replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: &impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom> {
        let len = payload_bytes(pieces);
        let header = Header { handle, len: len as u16, ..header };
        let new_class = self.table.class_of(HEADER_BYTES + len);
        let Some((old_class, old, mut both)) = self.lock_both(handle, new_class) else {
            return Ok(false);
        };
        let Some(old_len) = self.payload_if(old_class, old.place(), handle, still) else {
            return Ok(false);
        };
        let place = self.take_object(both.of(new_class), new_class, what)?;
        let to = self.address(&self.classes[usize::from(new_class)].shape, place);
        // SAFETY: the object was free, and the write lock of its class keeps readers and compaction off. Header
        // and pieces fit, for the class was chosen by their sum.
        unsafe { object::write(to, &header, pieces) };
        let state = both.of(new_class);
        state.objects += 1;
        state.payload_bytes += len as u64;
        let done = self.handles.exchange(handle, place, new_class);
        let (class, place, len) =
            if done { (old_class, old.place(), old_len) } else { (new_class, place, len) };
        let emptied = self.drop_object(both.of(class), class, place, len);
        drop(both);
        self.release(emptied);
        Ok(done)
    }

    /// Gives up the object of a handle, if it is one of which `still` says so and somebody has a reference,
    /// once `leave` has made the handle lead elsewhere. False, and nothing
    /// done, if it has not.
    ///
    /// # Errors
    /// As `leave`.
    pub(super) fn leave(
        &self,
        handle: u32,
        still: &impl Fn(&Header, &[u8]) -> bool,
        leave: impl FnOnce() -> Result<bool, NoRoom>,
    ) -> Result<bool, NoRoom> {
        let Some((class, entry, mut state)) = self.lock_class(handle) else { return Ok(false) };
        let Some(len) = self.payload_if(class, entry.place(), handle, still) else {
            return Ok(false);
        };
        let done = leave()?;
        if done {
            let emptied = self.drop_object(&mut state, class, entry.place(), len);
            drop(state);
            self.release(emptied);
        }
        Ok(done)
    }

    /// Locks the class of the object of `handle`, if somebody has a reference, and another.
    fn lock_both(&self, handle: u32, other: u8) -> Option<(u8, HandleEntry, Both<'_>)> {
        loop {
            let class = self.handles.live(handle)?.class()?;
            let (low_class, high_class) = (class.min(other), class.max(other));
            let low = self.classes[usize::from(low_class)].state.write();
            let high = (low_class != high_class)
                .then(|| self.classes[usize::from(high_class)].state.write());
            let entry = self.handles.live(handle)?;
            if entry.class() == Some(class) {
                return Some((class, entry, Both { low, high, low_class }));
            }
        }
    }

    /// Payload bytes of an object, if it is the handle's and `still` says so; its class is locked.
    fn payload_if(
        &self,
        class: u8,
        place: Place,
        handle: u32,
        still: &impl Fn(&Header, &[u8]) -> bool,
    ) -> Option<usize> {
        let shape = &self.classes[usize::from(class)].shape;
        let at = self.address(shape, place);
        // SAFETY: a live object of this class, which the caller has locked for writing.
        let header = Header::from_bytes(unsafe { at.cast::<[u8; HEADER_BYTES]>().read() })?;
        let len = usize::from(header.len);
        if header.handle != handle || HEADER_BYTES + len > shape.object_bytes {
            return None;
        }
        // SAFETY: as above; the payload ends within the object.
        let payload = unsafe { std::slice::from_raw_parts(at.add(HEADER_BYTES), len) };
        still(&header, payload).then_some(len)
    }

    /// Marks an object free to which no handle leads, or not any more; its slab, if that is empty now, and off the
    /// lists.
    pub(super) fn drop_object(
        &self,
        state: &mut ClassState,
        class: u8,
        place: Place,
        len: usize,
    ) -> Option<u32> {
        let shape = &self.classes[usize::from(class)].shape;
        state.objects -= 1;
        state.payload_bytes -= len as u64;
        if !self.put_object(state, shape, place) {
            return None;
        }
        state.unlink(&self.slabs, &self.slabs.get(place.slab), shape.objects);
        state.slabs -= 1;
        Some(place.slab)
    }
}

//! A pool from the segments of a process that died, by a scan: see the head of [`super`] for what
//! is true in them, and [`super::census`] for who has what.
//!
//! Beside what is checked there, a slab is of one class: else all that is in it is lost.
//!
//! May be interrupted and done again: until it is complete, only what nobody names is written over.

use std::os::fd::OwnedFd;

use super::Pool;
use super::budget::Budget;
use super::census::{Census, Found, Ground};
use super::class::FRAME_BYTES;
use super::handle::{HandleTable, Place};
use super::object::{HEADER_BYTES, Header};
use super::slab::{NO_OBJECT, SlabRecord, SlabTable};
use crate::adopt::AdoptError;

/// Objects of a slab that an entry can tell apart.
const MAX_OBJECTS: usize = 1024;

/// A pool as it is found, with the frames of each slab that have memory.
pub(super) struct Slabs<'a> {
    pub pool: &'a Pool,
    pub frames: &'a [u8],
}

impl Slabs<'_> {
    /// Where the object of a handle is, if its word can be true: of a class that there is, in a slab
    /// that has memory as far as that object reaches.
    fn placed(&self, handle: u32) -> Option<(u8, Place)> {
        let entry = self.pool.handles.load(handle).filter(|entry| !entry.is_blank())?;
        let (class, place) = (entry.class()?, entry.place());
        let shape = &self.pool.classes.get(usize::from(class))?.shape;
        let memory = self.frames.get(place.slab as usize)?.trailing_ones();
        let fits =
            place.object < shape.objects && u32::from(shape.frames_of(place.object + 1)) <= memory;
        fits.then_some((class, place))
    }
}

impl Ground for Slabs<'_> {
    fn handles(&self) -> &HandleTable {
        &self.pool.handles
    }

    fn units(&self) -> usize {
        self.frames.len()
    }

    fn unit(&self, handle: u32) -> Option<usize> {
        self.placed(handle).map(|(_, place)| place.slab as usize)
    }

    fn sound(&self, handle: u32) -> Option<(Header, &[u8])> {
        let (class, place) = self.placed(handle)?;
        self.pool.object_of(handle, class, place)
    }

    fn disputed(&self, claims: &[(u32, bool)], out: &mut Vec<u32>) {
        // The handle that has each object.
        let mut owners = [0u32; MAX_OBJECTS];
        let class_of = |handle| self.pool.handles.load(handle)?.class();
        let (mut class_of_slab, mut torn) = (None, false);
        for &(handle, sound) in claims {
            let Some((class, place)) = self.placed(handle) else { continue };
            if sound {
                torn |= class_of_slab.is_some_and(|known| known != class);
                class_of_slab = Some(class);
            }
            let other = std::mem::replace(&mut owners[usize::from(place.object)], handle);
            if class_of(other) == Some(class) {
                out.extend([handle, other]);
            }
        }
        if torn {
            out.extend(claims.iter().map(|(handle, _)| *handle));
        }
    }
}

impl Pool {
    /// Takes over what a predecessor, which has ended, left in [`Pool::segments`]. How many handles
    /// and slabs there can be follows from their lengths. `named` yields a handle for each reference
    /// that somebody has. `dictionary` says which other block an object needs, if it does; one
    /// reference of that is the object's, if somebody names the object. `block` looks at an object
    /// that is no part: it adds the handles of its parts and answers its pages, or `None` if it is
    /// no block.
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    pub fn adopt(
        limit_bytes: u64,
        fds: [OwnedFd; 3],
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(Pool, Found), AdoptError> {
        let (mut pool, frames) = Pool::find(limit_bytes, fds)?;
        let ground = Slabs { pool: &pool, frames: &frames };
        let census = Census::take(&ground, named, dictionary, block);
        pool.rebuild(&census, &frames)?;
        Ok((pool, census.found))
    }

    /// A predecessor's segments; which frames of each slab have memory.
    pub(super) fn find(
        limit_bytes: u64,
        [arena, records, entries]: [OwnedFd; 3],
    ) -> Result<(Pool, Vec<u8>), AdoptError> {
        let handles = HandleTable::adopt(entries)?;
        let (slabs, frames) = SlabTable::adopt(arena, records)?;
        Ok((Pool::of(slabs, handles, Budget::new(limit_bytes)), frames))
    }

    /// Writes slabs and handles anew, and counts what they hold.
    ///
    /// # Errors
    /// If the system refuses; can be done again.
    pub(super) fn rebuild(&mut self, census: &Census, frames: &[u8]) -> Result<(), AdoptError> {
        let keep = self.rebuild_slabs(census, frames);
        self.slabs.rebuild(frames, &keep)?;
        self.handles.rebuild(|handle| census.fate(handle), census.beyond())?;
        let frames = keep.iter().map(|frames| u64::from(*frames)).sum::<u64>();
        self.budget.found(frames + self.handles.frames() + self.slabs.record_frames());
        Ok(())
    }

    /// The object of a handle, at a place where there is memory as far as it reaches; `None` if it
    /// is not that handle's. Nobody else has the pool yet.
    fn object_of(&self, handle: u32, class: u8, place: Place) -> Option<(Header, &[u8])> {
        let at = self.address(&self.classes[usize::from(class)].shape, place);
        // SAFETY: the caller has seen that there is memory as far as this object reaches. Nobody
        // else has the pool yet.
        let bytes = unsafe { at.cast::<[u8; HEADER_BYTES]>().read() };
        let header = Header::from_bytes(bytes)?;
        let len = usize::from(header.len);
        // Objects are of the smallest class that holds them.
        let its_own = header.handle == handle
            && HEADER_BYTES + len <= FRAME_BYTES
            && self.table.class_of(HEADER_BYTES + len) == class;
        // SAFETY: as above; the payload ends within the object.
        let payload = || unsafe { std::slice::from_raw_parts(at.add(HEADER_BYTES), len) };
        its_own.then(|| (header, payload()))
    }

    /// Writes the records and free lists of slabs that have objects. Answers how many frames each
    /// slab keeps.
    fn rebuild_slabs(&mut self, census: &Census, frames: &[u8]) -> Vec<u8> {
        let mut keep = vec![0; frames.len()];
        for (slab, keep) in keep.iter_mut().enumerate() {
            let mut in_use = [false; MAX_OBJECTS];
            let mut class_number = None;
            let (mut used, mut payload_bytes) = (0, 0);
            for (handle, len) in census.living(slab) {
                let Some(entry) = self.handles.load(handle) else { continue };
                let object = entry.place().object;
                in_use[usize::from(object)] = true;
                class_number = entry.class();
                used += 1;
                payload_bytes += len;
            }
            let Some(class_number) = class_number else { continue };
            let shape = self.classes[usize::from(class_number)].shape;
            *keep = (frames[slab].trailing_ones() as u8).min(shape.frames);
            let slab = slab as u32;
            // All that the frames hold, or there would be slabs whose free objects are in no list.
            let fresh = (usize::from(*keep) * FRAME_BYTES / shape.object_bytes) as u16;
            let fresh = fresh.min(shape.objects);
            let mut free = NO_OBJECT;
            // Descending: the lowest is taken first.
            for object in (0..fresh).rev().filter(|object| !in_use[usize::from(*object)]) {
                let at = self.address(&shape, Place { slab, object });
                // SAFETY: it lies on frames that have memory; no handle that anybody names leads to
                // it, and nobody else has the pool yet.
                unsafe { at.cast::<[u8; HEADER_BYTES]>().write(Header::free_bytes(free)) };
                free = object;
            }
            let mut record =
                SlabRecord { used, fresh, free, ..SlabRecord::of(class_number, *keep) };
            let state = self.classes[usize::from(class_number)].state.get_mut();
            state.slabs += 1;
            state.objects += u64::from(used);
            state.payload_bytes += payload_bytes;
            state.link(&self.slabs, slab, &mut record, shape.objects);
            self.slabs.set(slab, record);
        }
        keep
    }
}

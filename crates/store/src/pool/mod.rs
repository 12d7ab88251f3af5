//! The pool: objects of up to a frame, in slabs of equal sizes, behind handles (as zsmalloc).
//!
//! An object is named by a handle and can be moved; readers see it through [`Pool::read`] under the
//! read lock of its class and compaction moves it under the write lock. Every frame of the arena
//! and of the tables is charged to one budget before it is touched.
//!
//! Invariants, where no lock is held:
//! - a handle entry with a class names an object whose header names that handle, and conversely;
//! - a slab with a class has at least one object; its record counts them;
//! - `used_bytes` is what the arena, the slab records and the handle table hold.
//!
//! Truth is the handle table, one atomic word a handle, and the header of the object that it names.
//! Slab records, free lists, reference counts and sums follow from them and from who names which
//! handle: a successor scans and writes them anew ([`Pool::adopt`]). Death may come between any two
//! updates, so they come in this order, and each prefix is a valid state:
//! - *insert*: frame, header and payload, then the word. Before the word nobody has the handle, and
//!   a handle that nobody names is freed, whatever its word says.
//! - *remove*: nobody names the handle any more; the word, then the object is marked free, then its
//!   slab may go back, then the handle is free. No word that anybody names leads to an object that
//!   is free or somebody else's.
//! - *move*: the object is copied, header and all, then the word, then the old place is marked free.
//!   Until then the header names the handle at both places, and the word says which of them counts.
//! - *replace*: as a move, of other contents to an object of another class (`replace`).
//! - *count*: a change of references changes the word and nothing that counts.
//! - Frames are given memory before and lose it after all objects that lie on them.
//!
//! Lock order: one class lock, then at most one of the leaf locks (free handles, free slabs). Two
//! class locks are held by who replaces an object only, the lower number's first. Memory is asked for under a class lock (1 to 2 frames, some us), but
//! slabs that became empty are given back after it.

mod adopt;
pub mod budget;
mod census;
pub mod class;
mod compact;
mod fullness;
pub mod handle;
pub mod object;
pub(crate) mod object_tier;
mod replace;
pub mod slab;
mod tier;
pub mod z3fold;

use parking_lot::{RwLock, RwLockWriteGuard};
use std::sync::atomic::AtomicUsize;

pub use census::Found;

use crate::segment::{Segment, SegmentError};
use budget::{Budget, For};
use class::{ClassShape, ClassTable, FRAME_BYTES, SLAB_BYTES};
use fullness::ClassState;
use handle::{HandleEntry, HandleTable, MAX_SLABS, Place};
use object::{HEADER_BYTES, Header, payload_bytes};
use slab::{NO_OBJECT, SlabRecord, SlabTable};

/// No room: the budget, the machine's memory or the handles are exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// One class with its lock, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Class {
    shape: ClassShape,
    state: RwLock<ClassState>,
}

/// Sums over all classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Frames of arena, slab records and handle table, bytes.
    pub used_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// What they take in their slabs, bytes.
    pub object_bytes: u64,
    /// What is stored in them, headers apart, bytes.
    pub payload_bytes: u64,
    /// Handle table, bytes.
    pub handle_table_bytes: u64,
    /// Slab records, bytes.
    pub slab_table_bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Times the kernel refused to take memory back.
    pub punch_failures: u64,
}

/// The pool.
#[derive(Debug)]
pub struct Pool {
    table: ClassTable,
    classes: Box<[Class]>,
    slabs: SlabTable,
    handles: HandleTable,
    budget: Budget,
    /// Where compaction goes on.
    cursor: AtomicUsize,
}

impl Pool {
    /// A pool of at most `limit_bytes` with room for `handles` handles. `seed` is kept for the
    /// caller.
    pub fn new(limit_bytes: u64, handles: u64, seed: u64) -> Result<Pool, SegmentError> {
        let budget = Budget::new(limit_bytes);
        // Every slab in use has a frame; some more are free at any time.
        let slabs = (limit_bytes / FRAME_BYTES as u64).saturating_add(64).min(MAX_SLABS as u64);
        let handles = HandleTable::new(handles, seed)?;
        budget.charge(1);
        Ok(Pool::of(SlabTable::new(slabs as usize)?, handles, budget))
    }

    /// A pool without objects.
    fn of(slabs: SlabTable, handles: HandleTable, budget: Budget) -> Pool {
        let table = ClassTable::new();
        let classes = table
            .shapes()
            .iter()
            .map(|shape| Class { shape: *shape, state: RwLock::new(ClassState::new()) })
            .collect();
        Pool { table, classes, slabs, handles, budget, cursor: AtomicUsize::new(0) }
    }

    /// The handle table.
    #[inline]
    pub fn handles(&self) -> &HandleTable {
        &self.handles
    }

    /// Arena, slab records, handle table: what a successor needs.
    pub fn segments(&self) -> [&Segment; 3] {
        [self.slabs.arena(), self.slabs.records(), self.handles.segment()]
    }

    /// Bytes an object of `payload_bytes` takes in its slab.
    pub fn object_bytes(&self, payload_bytes: usize) -> usize {
        let class = self.table.class_of(HEADER_BYTES + payload_bytes);
        self.classes[usize::from(class)].shape.object_bytes
    }

    /// The address of an object, which has `shape.object_bytes` bytes there.
    #[inline]
    fn address(&self, shape: &ClassShape, place: Place) -> *mut u8 {
        debug_assert!(place.object < shape.objects);
        let offset = usize::from(place.object) * shape.object_bytes;
        self.slabs.arena().at(place.slab as usize * SLAB_BYTES + offset)
    }

    /// A handle without an object yet.
    pub fn reserve(&self) -> Result<u32, NoRoom> {
        match self.handles.alloc(&self.budget) {
            Some(handle) => Ok(handle),
            None if self.slabs.trim(&self.budget) > 0 => {
                self.handles.alloc(&self.budget).ok_or(NoRoom)
            }
            None => Err(NoRoom),
        }
    }

    /// Gives up a reserved handle that got no object.
    pub fn unreserve(&self, handle: u32) {
        self.handles.free(handle);
    }

    /// Stores `pieces`, one behind the other, as the object of a reserved handle, which has `refs`
    /// references from now on. `header.handle` and `header.len` are filled in here.
    ///
    /// # Panics
    /// If the pieces exceed the largest payload.
    pub fn insert(
        &self,
        handle: u32,
        refs: u32,
        header: Header,
        pieces: &[&[u8]],
    ) -> Result<(), NoRoom> {
        let header = Header { handle, len: payload_bytes(pieces) as u16, ..header };
        let publish = |place, class| {
            self.handles.publish(handle, place, class, refs);
            true
        };
        match self.put(&header, pieces, For::New, publish) {
            Err(NoRoom) if self.slabs.trim(&self.budget) > 0 => {
                self.put(&header, pieces, For::New, publish).map(drop)
            }
            put => put.map(drop),
        }
    }

    /// Writes an object and has `publish` say whether a handle leads to it; else it is gone again.
    fn put(
        &self,
        header: &Header,
        pieces: &[&[u8]],
        what: For,
        publish: impl FnOnce(Place, u8) -> bool,
    ) -> Result<bool, NoRoom> {
        let len = usize::from(header.len);
        let class_number = self.table.class_of(HEADER_BYTES + len);
        let class = &self.classes[usize::from(class_number)];
        let mut state = class.state.write();
        let place = self.take_object(&mut state, class_number, what)?;
        // SAFETY: the object is ours until it is published: it was free, and the write lock keeps
        // readers and compaction off. Header and pieces fit, for the class was chosen by their sum.
        unsafe { object::write(self.address(&class.shape, place), header, pieces) };
        state.objects += 1;
        state.payload_bytes += len as u64;
        let done = publish(place, class_number);
        if !done {
            let emptied = self.drop_object(&mut state, class_number, place, len);
            drop(state);
            self.release(emptied);
        }
        Ok(done)
    }

    /// Gives back a slab that became empty, whose class is not locked any more.
    fn release(&self, emptied: Option<u32>) {
        if let Some(slab) = emptied {
            self.slabs.release(slab, &self.budget);
        }
    }

    /// Takes a free object of a class, with memory under it.
    fn take_object(
        &self,
        state: &mut ClassState,
        class_number: u8,
        what: For,
    ) -> Result<Place, NoRoom> {
        let shape = &self.classes[usize::from(class_number)].shape;
        let slab = match state.fullest() {
            Some(slab) => slab,
            None => {
                let max = shape.frames;
                let (slab, frames) = self.slabs.alloc(max, what, &self.budget).ok_or(NoRoom)?;
                state.slabs += 1;
                let mut record = SlabRecord::of(class_number, frames);
                state.link(&self.slabs, slab, &mut record, shape.objects);
                self.slabs.set(slab, record);
                slab
            }
        };
        match self.take_object_of(state, slab, shape, what) {
            // No frame to be had: a free object elsewhere may still lie on one.
            Err(NoRoom) => {
                let slab = state.with_free_object(&self.slabs).ok_or(NoRoom)?;
                self.take_object_of(state, slab, shape, what)
            }
            taken => taken,
        }
    }

    fn take_object_of(
        &self,
        state: &mut ClassState,
        slab: u32,
        shape: &ClassShape,
        what: For,
    ) -> Result<Place, NoRoom> {
        let mut record = self.slabs.get(slab);
        let used_before = record.used;
        let object = if record.free != NO_OBJECT {
            let object = record.free;
            let from = self.address(shape, Place { slab, object });
            // SAFETY: a free object below `fresh`, whose header was written when it was freed; the
            // caller holds the write lock.
            let bytes = unsafe { from.cast::<[u8; HEADER_BYTES]>().read() };
            record.free = Header::owner_and_next(bytes).1;
            object
        } else {
            let needed = shape.frames_of(record.fresh + 1);
            if needed > record.frames {
                // Memory costs half as much eight frames at a time as singly. A class takes up to
                // a 16th of what it has, so that what it does not use yet is little.
                let step = state.slabs * u32::from(shape.frames) / 16;
                let wanted = (u32::from(record.frames) + step).min(u32::from(shape.frames)) as u8;
                let from = record.frames;
                let got = [wanted.max(needed), needed]
                    .into_iter()
                    .find(|to| self.grow(slab, from, *to, what));
                let Some(frames) = got else {
                    if used_before == 0 {
                        self.drop_slab(state, slab, shape);
                    }
                    return Err(NoRoom);
                };
                record.frames = frames;
            }
            record.fresh += 1;
            record.fresh - 1
        };
        record.used += 1;
        state.update(&self.slabs, slab, record, used_before, shape.objects);
        Ok(Place { slab, object })
    }

    fn grow(&self, slab: u32, from: u8, to: u8, what: For) -> bool {
        let frames = usize::from(to - from);
        if !self.budget.charge_for(what, frames as u64) {
            return false;
        }
        let offset = slab as usize * SLAB_BYTES + usize::from(from) * FRAME_BYTES;
        let done = self.slabs.arena().populate(offset, frames * FRAME_BYTES).is_ok();
        if !done {
            self.budget.refund(frames as u64);
        }
        done
    }

    /// Takes an empty slab out of its class.
    fn drop_slab(&self, state: &mut ClassState, slab: u32, shape: &ClassShape) -> u64 {
        state.unlink(&self.slabs, &self.slabs.get(slab), shape.objects);
        state.slabs -= 1;
        self.slabs.release(slab, &self.budget)
    }

    /// Marks an object free, without a look at its handle; says whether its slab is empty now.
    fn put_object(&self, state: &mut ClassState, shape: &ClassShape, place: Place) -> bool {
        let mut record = self.slabs.get(place.slab);
        let used_before = record.used;
        let to = self.address(shape, place);
        // SAFETY: the object was in use and its handle does not lead to it any more; the caller
        // holds the write lock.
        unsafe { to.cast::<[u8; HEADER_BYTES]>().write(Header::free_bytes(record.free)) };
        record.free = place.object;
        record.used -= 1;
        state.update(&self.slabs, place.slab, record, used_before, shape.objects);
        record.used == 0
    }

    /// Locks the class of a handle for writing, if it has an object.
    fn lock_class(
        &self,
        handle: u32,
    ) -> Option<(u8, HandleEntry, RwLockWriteGuard<'_, ClassState>)> {
        loop {
            let class = self.handles.load(handle)?.class()?;
            let state = self.classes[usize::from(class)].state.write();
            let entry = self.handles.load(handle)?;
            if entry.class() == Some(class) {
                return Some((class, entry, state));
            }
        }
    }

    /// Removes the object of `handle`, whatever its references, and the handle.
    pub fn remove(&self, handle: u32) {
        let Some((class, entry, mut state)) = self.lock_class(handle) else { return };
        let shape = &self.classes[usize::from(class)].shape;
        let from = self.address(shape, entry.place());
        // SAFETY: the entry leads to a live object, and the write lock keeps it in place.
        let bytes = unsafe { from.cast::<[u8; HEADER_BYTES]>().read() };
        let len = Header::from_bytes(bytes).map_or(0, |header| usize::from(header.len));
        self.handles.clear(handle);
        let emptied = self.drop_object(&mut state, class, entry.place(), len);
        drop(state);
        self.release(emptied);
        self.handles.free(handle);
    }

    /// Shows `f` header and payload of the object of `handle`. The object stays where it is until
    /// `f` returns; writers of its size class wait so long. `None` if there is no such object.
    #[inline]
    pub fn read<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        self.handles.live(handle)?;
        self.read_unowned(handle, f)
    }

    /// As [`Pool::read`], but the object may have lost its last reference already.
    #[inline]
    pub fn read_unowned<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        loop {
            let class_number = self.handles.load(handle)?.class()?;
            let class = &self.classes[usize::from(class_number)];
            let _state = class.state.read();
            let entry = self.handles.load(handle)?;
            if entry.class() != Some(class_number) {
                continue;
            }
            let from = self.address(&class.shape, entry.place());
            // SAFETY: the entry leads to a live object of this class. It is neither moved, freed
            // nor written while we hold the class's read lock.
            let bytes = unsafe { from.cast::<[u8; HEADER_BYTES]>().read() };
            let header = Header::from_bytes(bytes)?;
            let len = usize::from(header.len);
            if header.handle != handle || HEADER_BYTES + len > class.shape.object_bytes {
                return None;
            }
            // SAFETY: as above; the payload ends within the object.
            let payload = unsafe { std::slice::from_raw_parts(from.add(HEADER_BYTES), len) };
            return Some(f(&header, payload));
        }
    }

    /// What is in use.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage {
            used_bytes: self.budget.used_frames() * FRAME_BYTES as u64,
            handle_table_bytes: self.handles.frames() * FRAME_BYTES as u64,
            slab_table_bytes: self.slabs.record_frames() * FRAME_BYTES as u64,
            punch_failures: self.slabs.punch_failures(),
            ..Usage::default()
        };
        for class in &self.classes {
            let state = class.state.read();
            usage.objects += state.objects;
            usage.object_bytes += state.objects * class.shape.object_bytes as u64;
            usage.payload_bytes += state.payload_bytes;
            usage.slabs += u64::from(state.slabs);
        }
        usage
    }

    /// Frames in use, bytes. Costs one load.
    pub fn used_bytes(&self) -> u64 {
        self.budget.used_frames() * FRAME_BYTES as u64
    }

    /// Inverts the bits of byte `offset` of the payload of `handle`.
    #[cfg(any(test, feature = "fault-injection"))]
    pub fn damage(&self, handle: u32, offset: usize) -> bool {
        let Some((class, entry, _state)) = self.lock_class(handle) else { return false };
        let shape = &self.classes[usize::from(class)].shape;
        if HEADER_BYTES + offset >= shape.object_bytes {
            return false;
        }
        // SAFETY: within a live object that the write lock keeps in place and to ourselves.
        unsafe {
            let byte = self.address(shape, entry.place()).add(HEADER_BYTES + offset);
            *byte ^= 0xff;
        }
        true
    }

    /// Panics unless the invariants hold. Nobody else may use the pool meanwhile.
    #[cfg(test)]
    pub fn check(&self) {
        let mut frames = 0;
        for (number, class) in self.classes.iter().enumerate() {
            let state = class.state.read();
            let (mut objects, mut slabs) = (0, 0);
            for slab in 0..self.slabs.high() {
                let record = self.slabs.get(slab);
                if self.slabs.is_free(slab) || usize::from(record.class) != number {
                    continue;
                }
                slabs += 1;
                frames += u64::from(record.frames);
                assert!(record.used > 0 && record.used <= record.fresh);
                assert!(record.fresh <= class.shape.objects);
                assert!(record.frames >= class.shape.frames_of(record.fresh));
                let mut used = 0;
                for object in 0..record.fresh {
                    let place = Place { slab, object };
                    let at = self.address(&class.shape, place);
                    // SAFETY: below `fresh`, so it was written; nobody writes under the read lock.
                    let bytes = unsafe { at.cast::<[u8; HEADER_BYTES]>().read() };
                    let (owner, _) = Header::owner_and_next(bytes);
                    if owner != 0 {
                        let entry = self.handles.load(owner).unwrap();
                        assert_eq!(entry.place(), place);
                        assert_eq!(entry.class(), Some(number as u8));
                        used += 1;
                    }
                }
                assert_eq!(used, record.used);
                objects += u64::from(used);
            }
            assert_eq!((state.objects, state.slabs), (objects, slabs));
        }
        let tables = self.handles.frames() + self.slabs.record_frames();
        let kept = self.slabs.kept_frames();
        assert_eq!(self.budget.used_frames(), frames + tables + kept, "frames are charged exactly");
        let held: u64 = self.segments().iter().map(|s| s.resident_bytes().unwrap()).sum();
        assert_eq!(held, self.used_bytes(), "the kernel counts as we do");
    }
}

#[cfg(test)]
mod tests;

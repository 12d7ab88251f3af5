//! Compaction: objects leave the emptiest slab of a class for the fullest ones, until it is empty
//! and its frames go back to the kernel.
//!
//! A slab is only begun if the others of its class have room for all of it, hence every slab begun
//! is worth it. At most `BATCH` objects move under one hold of a class lock, so that a fault
//! waits for 10 us or so. For who is killed meanwhile, see the order at the head of [`super`].

use std::sync::atomic::Ordering::Relaxed;

use super::budget::For;
use super::handle::Place;
use super::object::{HEADER_BYTES, Header};
use super::slab::{NO_SLAB, SlabRecord};
use super::{Class, Pool};

/// Objects moved under one hold of a class lock.
const BATCH: usize = 8;

/// What one batch did.
enum Batch {
    /// Moved some objects; there may be more to do.
    Moved { objects: usize, emptied: Option<u32> },
    /// This class is dense, or there is no frame to move to.
    Done,
}

impl Pool {
    /// Moves up to about `max_objects` objects, going round the classes from call to call, and
    /// gives kept free slabs back too. Returns the frames given back to the kernel.
    pub fn compact(&self, max_objects: usize) -> usize {
        let mut freed = self.slabs.trim(&self.budget);
        let mut left = max_objects;
        for _ in 0..self.classes.len() {
            if left == 0 {
                break;
            }
            let number = self.cursor.load(Relaxed) % self.classes.len();
            let class = &self.classes[number];
            while left > 0 {
                match self.compact_batch(class, number as u8, left.min(BATCH)) {
                    Batch::Moved { objects, emptied } => {
                        left -= objects.min(left);
                        if let Some(slab) = emptied {
                            freed += self.slabs.release(slab, &self.budget);
                        }
                    }
                    Batch::Done => {
                        self.cursor.store(number + 1, Relaxed);
                        break;
                    }
                }
            }
        }
        freed += self.slabs.trim(&self.budget);
        freed as usize
    }

    fn compact_batch(&self, class: &Class, number: u8, max: usize) -> Batch {
        let (shape, slabs) = (&class.shape, &self.slabs);
        let mut state = class.state.write();
        let Some(source) = state.emptiest() else { return Batch::Done };
        let record = slabs.get(source);
        let capacity = u64::from(shape.objects);
        let room_elsewhere =
            (u64::from(state.slabs) - 1) * capacity - (state.objects - u64::from(record.used));
        if room_elsewhere < u64::from(record.used) {
            return Batch::Done;
        }
        // Off the lists, so that nothing is moved into it.
        state.unlink(slabs, &record, shape.objects);
        let mut moved = 0;
        for object in 0..record.fresh {
            if moved == max {
                break;
            }
            let from = Place { slab: source, object };
            let from_at = self.address(shape, from);
            // SAFETY: below `fresh`, so its header was written; we hold the write lock.
            let header = unsafe { from_at.cast::<[u8; HEADER_BYTES]>().read() };
            let (owner, _) = Header::owner_and_next(header);
            if owner == 0 {
                continue;
            }
            // There is room, so no slab is begun for it; a frame may be missing all the same.
            let Ok(to) = self.take_object(&mut state, number, For::New) else { break };
            let to_at = self.address(shape, to);
            // SAFETY: two different objects of the class, `to` was free; the write lock keeps
            // readers off both.
            unsafe { to_at.copy_from_nonoverlapping(from_at, shape.object_bytes) };
            self.handles.relocate(owner, to);
            // Not before: until then the object counts here.
            let mut record = slabs.get(source);
            // SAFETY: the handle leads elsewhere now; we hold the write lock.
            unsafe {
                from_at.cast::<[u8; HEADER_BYTES]>().write(Header::free_bytes(record.free));
            }
            record.free = object;
            record.used -= 1;
            slabs.set(source, record);
            moved += 1;
        }
        let mut record = SlabRecord { prev: NO_SLAB, next: NO_SLAB, ..slabs.get(source) };
        if record.used == 0 {
            state.slabs -= 1;
            return Batch::Moved { objects: moved, emptied: Some(source) };
        }
        state.link(slabs, source, &mut record, shape.objects);
        slabs.set(source, record);
        match moved {
            0 => Batch::Done,
            objects => Batch::Moved { objects, emptied: None },
        }
    }
}

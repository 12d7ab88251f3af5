//! The slabs of one class that have room, by how full they are.
//!
//! Four doubly linked lists, a quarter each; full slabs are in none. New objects go to the fullest
//! slab that has room, so that the others can empty.

use super::slab::{NO_OBJECT, NO_SLAB, SlabRecord, SlabTable};

const GROUPS: usize = 4;

/// What the lock of a class guards, besides the records and objects of its slabs.
#[derive(Debug)]
pub struct ClassState {
    heads: [u32; GROUPS],
    /// Slabs it owns.
    pub slabs: u32,
    /// Objects in use.
    pub objects: u64,
    /// Sum of their payloads, bytes.
    pub payload_bytes: u64,
}

impl ClassState {
    /// A class without slabs.
    pub fn new() -> ClassState {
        ClassState { heads: [NO_SLAB; GROUPS], slabs: 0, objects: 0, payload_bytes: 0 }
    }

    fn group(used: u16, capacity: u16) -> Option<usize> {
        (used < capacity).then(|| usize::from(used) * GROUPS / usize::from(capacity))
    }

    /// The fullest slab with room.
    pub fn fullest(&self) -> Option<u32> {
        self.heads.iter().rev().copied().find(|slab| *slab != NO_SLAB)
    }

    /// A slab with a free object that needs no new frame, if there is one. Takes few steps: at most
    /// one or two slabs of a class have room only behind their last object.
    pub fn with_free_object(&self, table: &SlabTable) -> Option<u32> {
        for head in self.heads.iter().rev() {
            let mut slab = *head;
            while slab != NO_SLAB {
                let record = table.get(slab);
                if record.free != NO_OBJECT {
                    return Some(slab);
                }
                slab = record.next;
            }
        }
        None
    }

    /// The emptiest slab with room.
    pub fn emptiest(&self) -> Option<u32> {
        self.heads.iter().copied().find(|slab| *slab != NO_SLAB)
    }

    /// Puts `slab` on the list for its record, if it has room.
    pub fn link(&mut self, table: &SlabTable, slab: u32, record: &mut SlabRecord, capacity: u16) {
        let Some(group) = ClassState::group(record.used, capacity) else { return };
        record.prev = NO_SLAB;
        record.next = self.heads[group];
        if record.next != NO_SLAB {
            let mut next = table.get(record.next);
            next.prev = slab;
            table.set(record.next, next);
        }
        self.heads[group] = slab;
    }

    /// Takes `slab` off the list it is on, if it is on one.
    pub fn unlink(&mut self, table: &SlabTable, record: &SlabRecord, capacity: u16) {
        let Some(group) = ClassState::group(record.used, capacity) else { return };
        match record.prev {
            NO_SLAB => self.heads[group] = record.next,
            prev => {
                let mut before = table.get(prev);
                before.next = record.next;
                table.set(prev, before);
            }
        }
        if record.next != NO_SLAB {
            let mut after = table.get(record.next);
            after.prev = record.prev;
            table.set(record.next, after);
        }
    }

    /// Writes `record` for `slab`, which had `used_before` objects, moving it between lists.
    pub fn update(
        &mut self,
        table: &SlabTable,
        slab: u32,
        mut record: SlabRecord,
        used_before: u16,
        capacity: u16,
    ) {
        let (was, is) =
            (ClassState::group(used_before, capacity), ClassState::group(record.used, capacity));
        if was != is {
            self.unlink(table, &SlabRecord { used: used_before, ..record }, capacity);
            self.link(table, slab, &mut record, capacity);
        }
        table.set(slab, record);
    }
}

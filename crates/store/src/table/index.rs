//! From the number of a leaf in its address space (page number / 512) to the leaf.
//!
//! An open-addressing table with linear probing, at most half full: one word a slot, 36 bits of
//! number and 28 of leaf, zero for an empty one (no leaf is zero). Slots are only ever filled, so
//! readers need no lock and no version. To grow, a copy is published; the old arrays stay until the
//! index is dropped, which costs no more than the newest one.
//!
//! A reader that still looks at an old array may miss a leaf that is being added; whoever wants to
//! add one looks again under the lock.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::leaves::TableError;

const LEAF_BITS: u32 = 28;
const FIRST_BITS: u32 = 6;
const LEAF_MASK: u64 = (1 << LEAF_BITS) - 1;

#[derive(Debug)]
struct Slots {
    /// 64 minus the binary logarithm of the number of slots.
    shift: u32,
    slots: Box<[AtomicU64]>,
}

impl Slots {
    fn new(bits: u32) -> Box<Slots> {
        let slots = (0..1 << bits).map(|_| AtomicU64::new(0)).collect();
        Box::new(Slots { shift: 64 - bits, slots })
    }

    /// The slot that holds `number`, or the empty one where it belongs.
    #[inline]
    fn probe(&self, number: u64) -> (&AtomicU64, u64) {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: neighbours spread over the whole table.
        let mut at = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        loop {
            let slot = &self.slots[at & mask];
            let word = slot.load(Ordering::Acquire);
            if word == 0 || word >> LEAF_BITS == number {
                return (slot, word);
            }
            at += 1;
        }
    }
}

#[derive(Debug)]
struct Growth {
    used: usize,
    /// All arrays, the newest last. Boxed, for readers point to them.
    #[allow(clippy::vec_box)]
    arrays: Vec<Box<Slots>>,
}

/// The index of one address space.
#[derive(Debug)]
pub(super) struct LeafIndex {
    current: AtomicPtr<Slots>,
    growth: Mutex<Growth>,
}

impl LeafIndex {
    pub fn new() -> LeafIndex {
        LeafIndex::with_slots(FIRST_BITS)
    }

    fn with_slots(bits: u32) -> LeafIndex {
        let first = Slots::new(bits);
        let current = AtomicPtr::new(std::ptr::from_ref(&*first).cast_mut());
        LeafIndex { current, growth: Mutex::new(Growth { used: 0, arrays: vec![first] }) }
    }

    /// An index of these leaves, whose numbers differ.
    pub fn of(leaves: Vec<(u64, u32)>) -> LeafIndex {
        let bits = (leaves.len() * 2).next_power_of_two().trailing_zeros().max(FIRST_BITS);
        let index = LeafIndex::with_slots(bits);
        for &(number, leaf) in &leaves {
            let word = number << LEAF_BITS | u64::from(leaf);
            index.slots().probe(number).0.store(word, Ordering::Release);
        }
        index.growth.lock().used = leaves.len();
        index
    }

    #[inline]
    fn slots(&self) -> &Slots {
        // SAFETY: points into a box that `growth` keeps, unchanged, until `self` is dropped.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The leaf of `number`.
    #[inline]
    pub fn get(&self, number: u64) -> Option<u32> {
        let (_, word) = self.slots().probe(number);
        (word != 0).then_some((word & LEAF_MASK) as u32)
    }

    /// The leaf of `number`, made by `alloc` if there is none. Calls for new leaves wait for each
    /// other.
    pub fn get_or_insert(
        &self,
        number: u64,
        alloc: impl FnOnce() -> Result<u32, TableError>,
    ) -> Result<u32, TableError> {
        if let Some(leaf) = self.get(number) {
            return Ok(leaf);
        }
        let mut growth = self.growth.lock();
        if let Some(leaf) = self.get(number) {
            return Ok(leaf);
        }
        let leaf = alloc()?;
        let slots = self.slots();
        if (growth.used + 1) * 2 > slots.slots.len() {
            let larger = Slots::new(64 - slots.shift + 1);
            for slot in &slots.slots {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 {
                    larger.probe(word >> LEAF_BITS).0.store(word, Ordering::Relaxed);
                }
            }
            self.current.store(std::ptr::from_ref(&*larger).cast_mut(), Ordering::Release);
            growth.arrays.push(larger);
        }
        let word = number << LEAF_BITS | u64::from(leaf);
        self.slots().probe(number).0.store(word, Ordering::Release);
        growth.used += 1;
        Ok(leaf)
    }

    /// How many leaves there are.
    pub fn len(&self) -> usize {
        self.growth.lock().used
    }

    /// All numbers with their leaves, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.slots().slots.iter().filter_map(|slot| {
            let word = slot.load(Ordering::Acquire);
            (word != 0).then_some((word >> LEAF_BITS, (word & LEAF_MASK) as u32))
        })
    }
}

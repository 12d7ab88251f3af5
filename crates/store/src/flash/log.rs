//! The log: objects are appended to a segment in memory, which is written to one slot of the device when it is full, and not
//! changed any more (Rosenblum and Ousterhout, LFS, 1992).
//!
//! Two segments are open at a time: one for what comes new, one for what cleaning carries over, which is older and goes
//! less soon. An object has its place at once, and its bytes are written without the lock.
//!
//! Invariants, where the lock is free:
//! - a slot has a generation while something in it lives, or is read, or may still be written; else it is free;
//! - `live` of a slot is what its objects take that were not freed, headroom and tags included;
//! - a slot is *buffered* while its buffer has its bytes, and *on the device* afterwards, never both.
//!
//! Everything here is counted anew by a successor, from the places that somebody names; see [`super::ledger`] for the
//! rest.

mod adopt;
#[cfg(test)]
mod check;
mod write;

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

pub(super) use write::ToWrite;

use super::cipher::TAG_BYTES;
use super::device::Device;
use super::ledger::Ledger;
use super::{AppendError, LogId, Place};
use crate::segment::in_order;

/// Objects begin at multiples of it, bytes.
pub(super) const GRAIN: u32 = 16;
/// Slots that only cleaning may take.
pub(super) const KEPT_SLOTS: usize = 2;

/// What an object of `len` bytes takes in its slot.
pub(super) fn taken(len: u32) -> u32 {
    (len + TAG_BYTES as u32).next_multiple_of(GRAIN)
}

/// Which of the open segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// What comes new.
    New,
    /// What cleaning carries over; its segment was last appended to at this time, in generations.
    Cleaned { youngest: u64 },
}

impl Head {
    fn number(self) -> usize {
        match self {
            Head::New => 0,
            Head::Cleaned { .. } => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    Nowhere,
    Buffered(usize),
    OnDevice,
}

#[derive(Clone, Debug)]
struct Slot {
    generation: u64,
    lies: Lies,
    live: u32,
    /// Reads of the device under way.
    reads: u32,
    /// When its youngest object was appended, in generations.
    youngest: u64,
    /// Its objects: offset and handle, in order. Some may be freed.
    objects: Vec<(u32, u32)>,
    /// Cleaning could not read it.
    is_unreadable: bool,
}

impl Slot {
    const FREE: Slot = Slot {
        generation: 0,
        lies: Lies::Nowhere,
        live: 0,
        reads: 0,
        youngest: 0,
        objects: Vec::new(),
        is_unreadable: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// Takes objects.
    Open,
    /// To be written, as soon as nobody fills it any more.
    Full,
    Writing,
    /// Its memory is being given back.
    Emptying,
    /// Could not be written: its objects are read from it.
    Stuck,
}

#[derive(Clone, Debug)]
struct Buffer {
    is: Use,
    slot: u32,
    fill: u32,
    /// Bytes that have memory, from the first on.
    memory: usize,
    /// Who has a place in it and has not written it yet.
    fillers: u32,
}

impl Buffer {
    const FREE: Buffer = Buffer { is: Use::Free, slot: 0, fill: 0, memory: 0, fillers: 0 };
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub appended_bytes: u64,
    pub cleaned_bytes: u64,
    pub written_bytes: u64,
    pub segments_written: u64,
    pub segments_dropped: u64,
}

#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    /// First in, first out, so that slots wear alike.
    free: VecDeque<u32>,
    buffers: Vec<Buffer>,
    open: [Option<usize>; 2],
    latched: Option<String>,
    /// Nothing is written before.
    paused_until: Option<Instant>,
    /// Writes in a row that may succeed another time.
    refused: u32,
    ends: bool,
    live: u64,
    counts: Counts,
}

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    id: LogId,
    ledger: Ledger,
    state: Mutex<State>,
    /// There is something to write, or an end.
    full: Condvar,
    /// Something was written, or never will be.
    written: Condvar,
}

/// A place that its owner fills.
#[must_use = "its segment is not written before it is filled"]
#[derive(Debug)]
pub(super) struct Reserved {
    pub place: Place,
    buffer: usize,
}

/// Where the bytes of a place are.
#[derive(Debug)]
pub(super) enum Found {
    /// In memory: a copy, with the tag.
    Copy(Vec<u8>),
    /// On the device, and stay there until [`Log::read_over`].
    OnDevice,
    /// This place is no place any more.
    Moved,
}

/// A slot that is worth cleaning. It stays as it is until [`Log::read_over`].
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub slot: u32,
    pub generation: u64,
    pub youngest: u64,
    /// Offset and handle of its objects, some of which may be freed.
    pub objects: Vec<(u32, u32)>,
}

impl Log {
    pub fn new(id: LogId, ledger: Ledger) -> Log {
        Log::of(id, ledger, |_| {})
    }

    fn of(id: LogId, ledger: Ledger, found: impl FnOnce(&mut State)) -> Log {
        let shape = ledger.shape;
        let mut state = State {
            slots: vec![Slot::FREE; shape.slots as usize],
            free: VecDeque::new(),
            buffers: vec![Buffer::FREE; shape.buffers as usize],
            open: [None; 2],
            latched: None,
            paused_until: None,
            refused: 0,
            ends: false,
            live: 0,
            counts: Counts::default(),
        };
        found(&mut state);
        let is_free = |slot: &u32| state.slots[*slot as usize].lies == Lies::Nowhere;
        state.free = (0..shape.slots).filter(is_free).collect();
        Log { id, ledger, state: Mutex::new(state), full: Condvar::new(), written: Condvar::new() }
    }

    pub fn id(&self) -> LogId {
        self.id
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes a place for an object of `len` bytes of `handle`.
    ///
    /// # Errors
    /// If there is no room, or nothing is taken any more.
    pub fn reserve(&self, head: Head, handle: u32, len: usize) -> Result<Reserved, AppendError> {
        let slot_bytes = self.ledger.shape.slot_bytes;
        let most = slot_bytes - TAG_BYTES as u32;
        let len = u32::try_from(len).ok().filter(|len| *len <= most);
        let len = len.ok_or(AppendError::TooLarge { most })?;
        let needed = taken(len);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(why) = &state.latched {
            return Err(AppendError::Latched { why: why.clone() });
        }
        let buffer = match state.open[head.number()] {
            Some(open) if state.buffers[open].fill + needed <= slot_bytes => open,
            open => {
                // The full one is written even if there is no place for another.
                if let Some(open) = open {
                    state.open[head.number()] = None;
                    state.buffers[open].is = Use::Full;
                    self.full.notify_one();
                }
                let opened = self.open(state, head)?;
                state.open[head.number()] = Some(opened);
                opened
            }
        };
        let open = &mut state.buffers[buffer];
        let end = (open.fill + needed) as usize;
        let grown = self.ledger.grow(buffer, open.memory, end);
        open.memory = grown.map_err(|_| AppendError::NoBuffer)?;
        let offset = open.fill;
        open.fill += needed;
        open.fillers += 1;
        let slot = &mut state.slots[open.slot as usize];
        let place =
            Place { log: self.id, slot: open.slot, generation: slot.generation, offset, len };
        slot.live += needed;
        slot.objects.push((offset, handle));
        state.live += u64::from(needed);
        match head {
            Head::New => {
                slot.youngest = slot.generation;
                state.counts.appended_bytes += u64::from(len);
            }
            Head::Cleaned { youngest } => {
                slot.youngest = slot.youngest.max(youngest);
                state.counts.cleaned_bytes += u64::from(len);
            }
        }
        Ok(Reserved { place, buffer })
    }

    /// A new segment, in a free buffer, for a free slot.
    fn open(&self, state: &mut State, head: Head) -> Result<usize, AppendError> {
        let kept = if head == Head::New { KEPT_SLOTS } else { 0 };
        if state.free.len() <= kept {
            return Err(AppendError::NoSlot);
        }
        // One that has memory, if there is such a one.
        let free = (0..state.buffers.len()).filter(|n| state.buffers[*n].is == Use::Free);
        let buffer = free.max_by_key(|number| state.buffers[*number].memory);
        let buffer = buffer.ok_or(AppendError::NoBuffer)?;
        let slot = state.free.pop_front().ok_or(AppendError::NoSlot)?;
        let generation = self.ledger.take_generation();
        self.ledger.note(buffer, generation, slot);
        let memory = state.buffers[buffer].memory;
        state.buffers[buffer] = Buffer { is: Use::Open, slot, memory, ..Buffer::FREE };
        let lies = Lies::Buffered(buffer);
        state.slots[slot as usize] = Slot { generation, lies, ..Slot::FREE };
        Ok(buffer)
    }

    /// Writes the object of a place into its buffer.
    pub fn fill(&self, reserved: Reserved, bytes: &[u8], tag: [u8; TAG_BYTES]) -> Place {
        let Reserved { place, buffer } = reserved;
        assert_eq!(bytes.len(), place.len as usize, "the object that the place was taken for");
        let [_, buffers] = self.ledger.segments();
        let to = buffers.at(self.ledger.offset(buffer, place.offset as usize));
        // SAFETY: the place was taken for so many bytes and a tag, within a buffer that has memory there and is
        // neither written nor emptied before `fillers` says that we are done. Nobody else has this place, and
        // nobody reads it before he is told of it.
        unsafe {
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            to.add(bytes.len()).copy_from_nonoverlapping(tag.as_ptr(), tag.len());
        }
        in_order();
        let mut state = self.state.lock();
        let filled = &mut state.buffers[buffer];
        filled.fillers -= 1;
        if filled.fillers == 0 && filled.is == Use::Full {
            self.full.notify_one();
        }
        place
    }

    /// Where the bytes of `place` are; copied, if that is in memory.
    pub fn find(&self, place: Place) -> Found {
        let mut state = self.state.lock();
        let Some(slot) = self.slot_of(&mut state, place) else { return Found::Moved };
        match slot.lies {
            Lies::Buffered(buffer) => {
                let mut bytes = vec![0; place.len as usize + TAG_BYTES];
                let [_, buffers] = self.ledger.segments();
                let from = buffers.at(self.ledger.offset(buffer, place.offset as usize));
                // SAFETY: within the buffer, as `slot_of` has seen, which has memory up to there and is
                // not emptied while we hold the lock; who was told of the place has seen it filled.
                unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from, bytes.len()) };
                Found::Copy(bytes)
            }
            Lies::OnDevice => {
                slot.reads += 1;
                Found::OnDevice
            }
            Lies::Nowhere => Found::Moved,
        }
    }

    /// The slot of a place, if it still is one.
    fn slot_of<'a>(&self, state: &'a mut State, place: Place) -> Option<&'a mut Slot> {
        let end = u64::from(place.offset) + u64::from(place.len) + TAG_BYTES as u64;
        let slot = state.slots.get_mut(place.slot as usize)?;
        let end_of_slot = match slot.lies {
            Lies::Buffered(buffer) => state.buffers[buffer].memory as u64,
            _ => u64::from(self.ledger.shape.slot_bytes),
        };
        (place.log == self.id
            && slot.generation == place.generation
            && place.generation != 0
            && end <= end_of_slot)
            .then_some(slot)
    }

    /// A read of a slot of the device is over ([`Log::find`], [`Log::victim`]).
    pub fn read_over(&self, slot: u32, device: &dyn Device) {
        let mut state = self.state.lock();
        let read = &mut state.slots[slot as usize];
        debug_assert!(read.reads > 0);
        read.reads -= 1;
        self.free_if_idle(&mut state, slot, device);
    }

    /// Nobody names `place` any more.
    pub fn free(&self, place: Place, device: &dyn Device) {
        let mut state = self.state.lock();
        let needed = taken(place.len);
        let Some(slot) = self.slot_of(&mut state, place) else { return };
        let freed = needed.min(slot.live);
        slot.live -= freed;
        state.live -= u64::from(freed);
        self.free_if_idle(&mut state, place.slot, device);
    }

    /// The slot with the most benefit for its cost, (1-u) age / (1+u) (LFS, 3.6): free space gained and how long it may
    /// stay free, for reading it all and writing what lives. Age is in generations since its youngest
    /// object was appended.
    pub fn victim(&self) -> Option<Victim> {
        let mut state = self.state.lock();
        let (bytes, next) = (u64::from(self.ledger.shape.slot_bytes), self.ledger.next());
        let worth = |slot: &Slot| {
            let live = u64::from(slot.live);
            let free = bytes.saturating_sub(live);
            let age = next.saturating_sub(slot.youngest).max(1);
            u128::from(free) * u128::from(age) * (1 << 20) / u128::from(bytes + live)
        };
        // What would fill its slot again gains nothing.
        let can_be = |slot: &Slot| {
            slot.lies == Lies::OnDevice
                && !slot.is_unreadable
                && u64::from(slot.live) <= bytes - bytes / 16
        };
        let slots = state.slots.iter().zip(0u32..).filter(|(slot, _)| can_be(slot));
        let (_, number) = slots.max_by_key(|(slot, _)| worth(slot))?;
        let slot = &mut state.slots[number as usize];
        slot.reads += 1;
        Some(Victim {
            slot: number,
            generation: slot.generation,
            youngest: slot.youngest,
            objects: slot.objects.clone(),
        })
    }

    /// Cleaning could not carry over all of a slot: it is not tried again.
    pub fn is_unreadable(&self, slot: u32) {
        self.state.lock().slots[slot as usize].is_unreadable = true;
    }

    /// Free slots that new objects may take.
    pub fn free_slots(&self) -> usize {
        self.state.lock().free.len().saturating_sub(KEPT_SLOTS)
    }

    /// Live bytes, free slots, buffers in use, what was counted, and why nothing is taken any more.
    pub fn look(&self) -> (u64, usize, usize, Counts, Option<String>) {
        let state = self.state.lock();
        let in_use = state.buffers.iter().filter(|buffer| buffer.is != Use::Free).count();
        (state.live, state.free.len(), in_use, state.counts, state.latched.clone())
    }

    /// The device hears of it before the slot can be written anew.
    fn free_if_idle(&self, state: &mut State, number: u32, device: &dyn Device) {
        let slot = &mut state.slots[number as usize];
        if slot.lies == Lies::OnDevice && slot.live == 0 && slot.reads == 0 {
            *slot = Slot::FREE;
            state.free.push_back(number);
            let shape = self.ledger.shape;
            device.forget(shape.at(number), shape.slot_bytes as usize);
        }
    }
}

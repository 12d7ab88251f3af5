//! Full segments, for threads that write them.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{Buffer, Head, KEPT_SLOTS, Lies, Log, State, Use, taken};
use crate::flash::device::Device;

/// After a write that may succeed another time: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Free buffers that keep their memory: asking for it and giving it back takes a tenth of a millisecond.
const KEPT_BUFFERS: usize = 2;

/// How long nothing is written after so many writes in a row that may succeed another time, the last of them included: a
/// donor without room is not offered the same again and again.
fn pause(refused: u32) -> Duration {
    PAUSES.0.saturating_mul(1 << refused.saturating_sub(1).min(16)).min(PAUSES.1)
}

/// A segment that is to be written.
#[derive(Clone, Copy, Debug)]
pub(in crate::flash) struct ToWrite {
    buffer: usize,
    slot: u32,
    /// Where it is in the segment of all buffers.
    pub offset: usize,
    pub len: usize,
    /// Where it goes on the device.
    pub at: u64,
}

impl Log {
    /// Waits for a segment that can be written; `None` when it ends.
    pub fn next_to_write(&self, device: &dyn Device) -> Option<ToWrite> {
        let mut state = self.state.lock();
        loop {
            if state.ends {
                return None;
            }
            let ready = |buffer: &Buffer| buffer.is == Use::Full && buffer.fillers == 0;
            let oldest = (0..state.buffers.len())
                .filter(|number| ready(&state.buffers[*number]))
                .min_by_key(|number| state.slots[state.buffers[*number].slot as usize].generation);
            match oldest {
                Some(_) if state.paused_until.is_some_and(|until| until > Instant::now()) => {
                    let until = state.paused_until.unwrap_or_else(Instant::now);
                    self.full.wait_until(&mut state, until);
                }
                Some(number) if state.latched.is_none() => {
                    let Buffer { slot, fill, .. } = state.buffers[number];
                    if state.slots[slot as usize].live == 0 {
                        // All of it was freed before it was written.
                        state.counts.segments_dropped += 1;
                        state = self.give_up(state, number, device);
                        continue;
                    }
                    state.buffers[number].is = Use::Writing;
                    let len = (fill as usize).next_multiple_of(device.align());
                    let (offset, at) = (self.ledger.offset(number, 0), self.ledger.shape.at(slot));
                    return Some(ToWrite { buffer: number, slot, offset, len, at });
                }
                _ => self.full.wait(&mut state),
            }
        }
    }

    /// A segment was written.
    pub fn wrote(&self, written: ToWrite, device: &dyn Device) {
        let mut state = self.state.lock();
        debug_assert_eq!(state.buffers[written.buffer].slot, written.slot);
        (state.refused, state.paused_until) = (0, None);
        state.counts.written_bytes += written.len as u64;
        state.counts.segments_written += 1;
        drop(self.give_up(state, written.buffer, device));
    }

    /// A buffer is not needed any more: its slot has its bytes, or no object.
    fn give_up<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        buffer: usize,
        device: &dyn Device,
    ) -> MutexGuard<'a, State> {
        let slot = state.buffers[buffer].slot;
        state.buffers[buffer].is = Use::Emptying;
        state.slots[slot as usize].lies = Lies::OnDevice;
        self.ledger.clear(buffer);
        self.free_if_idle(&mut state, slot, device);
        let kept = |buffer: &&Buffer| buffer.is == Use::Free && buffer.memory > 0;
        let memory = state.buffers[buffer].memory;
        state.buffers[buffer] = match state.buffers.iter().filter(kept).count() {
            KEPT_BUFFERS.. => {
                let emptied = MutexGuard::unlocked(&mut state, || self.ledger.empty(buffer));
                // What cannot be emptied has its memory still.
                let memory = if emptied.is_ok() { 0 } else { memory };
                Buffer { memory, ..Buffer::FREE }
            }
            _ => Buffer { memory, ..Buffer::FREE },
        };
        self.written.notify_all();
        state
    }

    /// Nothing is taken any more, and nothing is written.
    pub fn latch(&self, why: String) {
        self.state.lock().latched.get_or_insert(why);
        self.written.notify_all();
        self.full.notify_all();
    }

    /// A segment could not be written, and may be another time: its device is a machine that was out of reach, or had no
    /// room.
    pub fn written_later(&self, failed: ToWrite) {
        let mut state = self.state.lock();
        state.buffers[failed.buffer].is = Use::Full;
        state.refused += 1;
        state.paused_until = Some(Instant::now() + pause(state.refused));
        self.full.notify_one();
        self.written.notify_all();
    }

    /// Objects of `len` bytes for which half of all buffers have room, one at least: as many as it makes sense to have on
    /// their way together.
    pub fn room_at_a_time(&self, len: usize) -> usize {
        let shape = self.ledger.shape;
        (self.objects_of_a_slot(len) * shape.buffers as usize / 2).max(1)
    }

    fn objects_of_a_slot(&self, len: usize) -> usize {
        let needed = taken(u32::try_from(len).unwrap_or(u32::MAX / 2));
        (self.ledger.shape.slot_bytes / needed) as usize
    }

    /// Waits until `count` objects of `len` bytes, or [`Log::room_at_a_time`] of them, have room in buffers; false if
    /// they have none by `until`, or what would make room for them does not happen: the device is full, takes nothing
    /// more, or refuses for now.
    pub fn wait_for_room(&self, count: usize, len: usize, until: Instant) -> bool {
        let count = count.min(self.room_at_a_time(len));
        let (needed, of_a_slot) =
            (taken(len.min(u32::MAX as usize / 2) as u32), self.objects_of_a_slot(len));
        let mut state = self.state.lock();
        loop {
            let open = state.open[Head::New.number()].map_or(0, |open| {
                (self.ledger.shape.slot_bytes - state.buffers[open].fill) / needed
            });
            let free = state.buffers.iter().filter(|buffer| buffer.is == Use::Free).count();
            let slots = state.free.len().saturating_sub(KEPT_SLOTS);
            if open as usize + free.min(slots) * of_a_slot >= count {
                return true;
            }
            let is_refused = state.paused_until.is_some_and(|until| until > Instant::now());
            let is_full = open as usize + slots * of_a_slot < count;
            if is_full || is_refused || state.latched.is_some() || state.ends {
                return false;
            }
            if self.written.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
    }

    /// A segment could not be written: nothing is taken any more.
    pub fn not_written(&self, failed: ToWrite, why: String) {
        let mut state = self.state.lock();
        state.buffers[failed.buffer].is = Use::Stuck;
        state.latched.get_or_insert(why);
        self.written.notify_all();
        self.full.notify_all();
    }

    /// Has everything written that was appended, and waits for that; false if it cannot be.
    pub fn flush(&self) -> bool {
        let mut state = self.state.lock();
        for head in 0..state.open.len() {
            if let Some(open) = state.open[head].take() {
                state.buffers[open].is = Use::Full;
            }
        }
        self.full.notify_all();
        loop {
            let waits = |b: &Buffer| matches!(b.is, Use::Full | Use::Writing | Use::Emptying);
            if state.latched.is_some() || state.ends {
                return false;
            }
            if !state.buffers.iter().any(waits) {
                return true;
            }
            self.written.wait(&mut state);
        }
    }

    /// Nothing is written any more.
    pub fn end(&self) {
        self.state.lock().ends = true;
        self.full.notify_all();
        self.written.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_room_is_asked_less_and_less_often() {
        let pauses: Vec<u64> = (1..8).map(|refused| pause(refused).as_millis() as u64).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(pause(u32::MAX), PAUSES.1);
    }
}

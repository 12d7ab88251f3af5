//! A log from what a predecessor left: its ledger, its buffers, and who names what.

use super::{Buffer, GRAIN, Lies, Log, Use, taken};
use crate::flash::cipher::TAG_BYTES;
use crate::flash::ledger::Ledger;
use crate::flash::{LogId, Place};
use crate::segment::SegmentError;

impl Log {
    /// The log of a predecessor: what is named lives, everything else is free. Answers which of `named` (handles,
    /// and where their objects should be) cannot be true. `is_known` says whether a fresh generation is known.
    ///
    /// # Errors
    /// If the system refuses. Can be tried again.
    pub fn adopt(
        id: LogId,
        ledger: Ledger,
        is_known: bool,
        named: &[(u32, Place)],
    ) -> Result<(Log, Vec<u32>), SegmentError> {
        let (shape, next) = (ledger.shape, ledger.next());
        let memory = ledger.memory()?;
        let can_be = |place: &Place| {
            let end = u64::from(place.offset) + u64::from(place.len) + TAG_BYTES as u64;
            place.log == id
                && place.slot < shape.slots
                && place.generation > 0
                && (place.generation < next || !is_known)
                && place.offset.is_multiple_of(GRAIN)
                && end <= u64::from(shape.slot_bytes)
        };
        let mut newest = vec![0; shape.slots as usize];
        for (_, place) in named.iter().filter(|(_, place)| can_be(place)) {
            let newest: &mut u64 = &mut newest[place.slot as usize];
            *newest = place.generation.max(*newest);
        }
        let mut lost = Vec::new();
        let log = Log::of(id, ledger, |state| {
            for (handle, place) in named {
                let is_current = can_be(place) && newest[place.slot as usize] == place.generation;
                if !is_current {
                    lost.push(*handle);
                    continue;
                }
                let slot = &mut state.slots[place.slot as usize];
                slot.generation = place.generation;
                slot.youngest = place.generation;
                slot.lies = Lies::OnDevice;
                slot.live = slot.live.saturating_add(taken(place.len)).min(shape.slot_bytes);
                slot.objects.push((place.offset, *handle));
            }
            for slot in &mut state.slots {
                slot.objects.sort_unstable();
                state.live += u64::from(slot.live);
            }
        });
        {
            let mut guard = log.state.lock();
            let state = &mut *guard;
            for number in 0..shape.buffers as usize {
                let noted = log.ledger.noted(number);
                let named = noted.filter(|(generation, slot)| {
                    let slot = &state.slots[*slot as usize];
                    slot.lies == Lies::OnDevice && slot.generation == *generation
                });
                match named {
                    // Never appended to; all that has memory, for it is not known how far it was filled.
                    Some((_, slot)) => {
                        let memory = memory[number];
                        let fill = memory as u32;
                        state.slots[slot as usize].lies = Lies::Buffered(number);
                        state.buffers[number] =
                            Buffer { is: Use::Full, slot, fill, memory, fillers: 0 };
                    }
                    None => {
                        log.ledger.clear(number);
                        // What was left in it is nobody's. Kept, it is a buffer less.
                        if log.ledger.empty(number).is_err() {
                            state.buffers[number].is = Use::Stuck;
                        }
                    }
                }
            }
            if !is_known {
                state.latched = Some("which generations were used is not known any more".into());
            }
        }
        Ok((log, lost))
    }
}

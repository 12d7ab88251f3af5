//! Cleaning: a slot is read whole, what lives in it is appended anew, and the slot is free (LFS, 3.4 to 3.6).
//!
//! Which slot is said by [`super::log::Log::victim`]. What lives in it goes to a segment of its own kind, so that old
//! objects lie beside old ones and such a slot stays full for long. Who owns the objects is asked about each
//! ([`Names`]): where it is now, and to change that, if it is still so. Whoever frees one meanwhile has done so in the one place
//! or in the other.

use super::cipher::TAG_BYTES;
use super::device::{Blocks, Read};
use super::log::Head;
use super::reading::TRIES;
use super::{AppendError, Flash, Place};

/// Who owns the objects of a tier.
pub trait Names {
    /// Where the object of `handle` is, if it is on flash.
    fn place(&self, handle: u32) -> Option<Place>;

    /// Has `handle` name `to`, where it named `from`; false, and nothing done, if it does not any more. Changes
    /// at once for whoever reads or frees.
    fn moved(&self, handle: u32, from: Place, to: Place) -> bool;
}

/// What cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Objects that were carried over.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that the device did not give, or not as they were written. They stay where they are.
    pub unreadable: u64,
}

/// Why nothing, or not everything, was cleaned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CleanError {
    /// No slot is worth it.
    #[error("no slot is worth cleaning")]
    Nothing,
    /// The log takes nothing at the moment, or any more.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The slot could not be read; it is left alone from now on.
    #[error("slot {slot} could not be read: {why}")]
    Device {
        /// The slot.
        slot: u32,
        /// What the system said.
        why: String,
    },
}

impl Flash {
    /// Free slots that new objects may take; cleaning is for when they become few.
    pub fn free_slots(&self) -> usize {
        self.core.log.free_slots()
    }

    /// Cleans the slot that is most worth it, and waits for the device.
    ///
    /// # Errors
    /// See [`CleanError`]. What was carried over by then is.
    pub fn clean(&self, names: &impl Names) -> Result<Cleaned, CleanError> {
        let log = &self.core.log;
        let victim = log.victim().ok_or(CleanError::Nothing)?;
        let done = self.carry_over(names, &victim);
        if matches!(done, Err(CleanError::Device { .. }) | Ok(Cleaned { unreadable: 1.., .. })) {
            log.is_unreadable(victim.slot);
        }
        log.read_over(victim.slot, &*self.core.device);
        done
    }

    fn carry_over(
        &self,
        names: &impl Names,
        victim: &super::log::Victim,
    ) -> Result<Cleaned, CleanError> {
        let named = |(offset, handle): &(u32, u32)| {
            let place = names.place(*handle)?;
            let same = (place.slot, place.generation, place.offset)
                == (victim.slot, victim.generation, *offset);
            same.then_some((*handle, place))
        };
        let mut living: Vec<_> = victim.objects.iter().filter_map(named).collect();
        living.dedup();
        let (Some((_, first)), Some((_, last))) = (living.first(), living.last()) else {
            return Ok(Cleaned::default());
        };
        let (start, blocks) = self.read_stretch(*first, *last)?;
        let mut cleaned = Cleaned::default();
        for (handle, from) in living {
            let at = from.offset as usize - start;
            let stored = blocks.bytes().get(at..at + from.len as usize + TAG_BYTES);
            let opened = stored.and_then(|bytes| self.core.open(handle, from, bytes.to_vec()));
            let Some(mut bytes) = opened else {
                cleaned.unreadable += 1;
                continue;
            };
            let head = Head::Cleaned { youngest: victim.youngest };
            let to = self.core.append(head, handle, &mut bytes)?;
            let moved = names.moved(handle, from, to);
            self.free(if moved { from } else { to });
            cleaned.objects += u64::from(moved);
            cleaned.bytes += if moved { u64::from(from.len) } else { 0 };
        }
        Ok(cleaned)
    }

    /// Everything from one object to another of the same slot, and where in the slot that begins.
    fn read_stretch(&self, first: Place, last: Place) -> Result<(usize, Blocks), CleanError> {
        let align = self.core.device.align();
        let start = first.offset as usize / align * align;
        let end = last.offset as usize + last.len as usize + TAG_BYTES;
        let at = self.core.log.ledger().shape.at(first.slot) + start as u64;
        let mut why = String::new();
        for tries in 0..TRIES {
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let told_back = move |got, blocks| drop(tell.send((got, blocks)));
            let into = Blocks::zeroed((end - start).next_multiple_of(align));
            self.core.device.read(Read {
                at,
                into,
                told: Box::new(told_back),
                pressing: false,
                tries,
            });
            why = match told.recv() {
                Ok((Ok(got), blocks)) if got >= end - start => return Ok((start, blocks)),
                Ok((Ok(got), _)) => format!("{got} of {} bytes", end - start),
                Ok((Err(error), _)) => error.to_string(),
                Err(_) => "its thread is gone".into(),
            };
        }
        Err(CleanError::Device { slot: first.slot, why })
    }
}

//! Reading objects: from a buffer, from a window that is kept or on its way, or from the device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::cipher::TAG_BYTES;
use super::device::{Blocks, Read};
use super::log::Found;
use super::windows::{Span, Waiter, Windows};
use super::{Core, Place, ReadFlashError, Told};

/// How often a read is tried.
pub(super) const TRIES: u32 = 3;

/// The read of a window, whose slot is kept as it is meanwhile. Dropped, it is over, and who waits for the window is called, however it
/// ended.
struct WindowRead {
    core: Arc<Core>,
    place: Place,
    span: Span,
    /// What the device gave, and how many bytes of that.
    read: Option<(Blocks, usize)>,
}

impl WindowRead {
    fn end(mut self, result: io::Result<usize>, blocks: Blocks) {
        self.read = result.ok().map(|got| (blocks, got));
    }
}

impl Drop for WindowRead {
    fn drop(&mut self) {
        let WindowRead { core, place, span, read } = self;
        // Of a segment that was written as long as it is there is no more, and no object behind it.
        let is_all = core.device.align() == 1;
        let read = read.as_ref().map_or(&[][..], |(blocks, got)| {
            core.reads.bytes.fetch_add(*got as u64, Relaxed);
            if is_all { blocks.bytes() } else { &blocks.bytes()[..*got] }
        });
        let Some(windows) = core.windows.as_ref() else { return };
        let waiters = windows.came(*place, *span, read);
        core.read_over(*place);
        waiters.into_iter().for_each(|waiter| waiter());
    }
}

impl Core {
    /// Decrypts what lay at `place`, with its tag behind it.
    pub(super) fn open(&self, handle: u32, place: Place, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let tag = *bytes.last_chunk::<TAG_BYTES>()?;
        bytes.truncate(bytes.len() - TAG_BYTES);
        self.cipher.open(handle, place, &mut bytes, tag).ok().map(|()| bytes)
    }

    /// Decrypts what was copied of a buffer.
    pub(super) fn open_copy(&self, handle: u32, place: Place, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let opened = self.open(handle, place, bytes)?;
        self.reads.memory.fetch_add(1, Relaxed);
        Some(opened)
    }

    /// An object that lies on the device, if it is in a window that is kept; `is_first` says that the window was read for it.
    pub(super) fn of_windows(&self, handle: u32, place: Place, is_first: bool) -> Option<Vec<u8>> {
        let windows = self.windows.as_ref()?;
        let needed = place.len as usize + TAG_BYTES;
        let opened = self.open(handle, place, windows.get(place, needed)?);
        match opened {
            Some(_) if !is_first => {
                self.reads.windows.fetch_add(1, Relaxed);
                windows.was_of_use();
            }
            Some(_) => {}
            // The device may tell the truth another time.
            None => windows.forget(place, needed),
        }
        opened
    }

    pub(super) fn read(self: &Arc<Self>, handle: u32, place: Place, pressing: bool, told: Told) {
        match self.log.find(place) {
            Found::Moved => told(Err(ReadFlashError::Moved)),
            Found::Copy(bytes) => {
                let opened = self.open_copy(handle, place, bytes);
                if opened.is_none() {
                    self.reads.errors.fetch_add(1, Relaxed);
                }
                told(opened.ok_or(ReadFlashError::Damaged));
            }
            Found::OnDevice => {
                if let Some(bytes) = self.of_windows(handle, place, false) {
                    self.read_over(place);
                    return told(Ok(bytes));
                }
                self.read_far(handle, place, pressing, told);
            }
        }
    }

    /// Reads what lies on the device and in no window that is kept.
    fn read_far(self: &Arc<Self>, handle: u32, place: Place, pressing: bool, told: Told) {
        let needed = place.len as usize + TAG_BYTES;
        let windows = self.windows.as_ref();
        if let Some(mut waiters) = windows.and_then(|w| w.coming(place, needed, pressing)) {
            waiters.push(self.waiter(false, handle, place, pressing, told));
            return;
        }
        self.reads.reads.fetch_add(1, Relaxed);
        if pressing || windows.is_none() {
            self.read_device(handle, place, pressing, TRIES - 1, told);
            if windows.is_some_and(Windows::pays) {
                self.read_window(place, pressing, |_| ());
            }
            return;
        }
        let mut told = Some(told);
        self.read_window(place, pressing, |waiters| {
            let first = told.take().map(|told| self.waiter(true, handle, place, pressing, told));
            waiters.extend(first);
        });
        if let Some(told) = told {
            self.read_device(handle, place, pressing, TRIES - 1, told);
        }
    }

    /// Who waits for an object until its window is here, and has it read alone, if it is not in it.
    fn waiter(
        self: &Arc<Self>,
        is_first: bool,
        handle: u32,
        place: Place,
        pressing: bool,
        told: Told,
    ) -> Waiter {
        let core = Arc::clone(self);
        Box::new(move || match core.of_windows(handle, place, is_first) {
            Some(bytes) => {
                core.read_over(place);
                told(Ok(bytes));
            }
            None => {
                core.reads.retries.fetch_add(1, Relaxed);
                core.read_device(handle, place, pressing, TRIES - 2, told);
            }
        })
    }

    /// Reads the window around an object, if nobody does; `begun` is given who waits for it.
    fn read_window(
        self: &Arc<Self>,
        place: Place,
        pressing: bool,
        begun: impl FnOnce(&mut Vec<Waiter>),
    ) {
        let shape = self.log.ledger().shape;
        let needed = place.len as usize + TAG_BYTES;
        let span = Windows::around(place, needed, shape.slot_bytes);
        // For whom it is read may be done with the slot before the window is.
        if !matches!(self.log.find(place), Found::OnDevice) {
            return;
        }
        let is_new = |windows: &Windows| windows.begin(place, span, pressing, begun);
        if !self.windows.as_ref().is_some_and(is_new) {
            return self.read_over(place);
        }
        let window = WindowRead { core: Arc::clone(self), place, span, read: None };
        self.device.read(Read {
            at: shape.at(place.slot) + u64::from(span.offset),
            into: Blocks::zeroed(span.len as usize),
            told: Box::new(move |result, blocks| window.end(result, blocks)),
            pressing,
            tries: 0,
        });
    }

    /// Reads a place that stays where it is, and nothing else.
    fn read_device(
        self: &Arc<Self>,
        handle: u32,
        place: Place,
        pressing: bool,
        tries: u32,
        told: Told,
    ) {
        let shape = self.log.ledger().shape;
        let object = place.len as usize + TAG_BYTES;
        let span = Windows::exactly(place, object, self.device.align() as u32);
        let at = shape.at(place.slot) + u64::from(span.offset);
        let skip = (place.offset - span.offset) as usize;
        let needed = skip + object;
        let core = Arc::clone(self);
        let told = move |result: io::Result<usize>, blocks: Blocks| {
            let failed = match result {
                Ok(got) if got >= needed => {
                    core.reads.bytes.fetch_add(got as u64, Relaxed);
                    let bytes = blocks.bytes()[skip..needed].to_vec();
                    match core.open(handle, place, bytes) {
                        Some(bytes) => {
                            core.read_over(place);
                            return told(Ok(bytes));
                        }
                        None => ReadFlashError::Damaged,
                    }
                }
                Ok(got) => ReadFlashError::Device { why: format!("{got} of {needed} bytes") },
                Err(error) => ReadFlashError::Device { why: error.to_string() },
            };
            if tries > 0 {
                core.reads.retries.fetch_add(1, Relaxed);
                return core.read_device(handle, place, pressing, tries - 1, told);
            }
            core.reads.errors.fetch_add(1, Relaxed);
            core.read_over(place);
            told(Err(failed));
        };
        self.device.read(Read {
            at,
            into: Blocks::zeroed(span.len as usize),
            told: Box::new(told),
            pressing,
            tries: TRIES - 1 - tries,
        });
    }

    /// A read of the slot of `place` is over.
    pub(super) fn read_over(&self, place: Place) {
        self.log.read_over(place.slot, &*self.device);
    }
}

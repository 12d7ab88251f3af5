//! Blocks to a log, on flash or at a donor, and back: the object in the pool is replaced by a stub, or a stub by the object, while others read.
//!
//! Who moves a block holds a reference of it, so it is the same block until he is through. Parts are given to a
//! block and taken from it under one lock, `Store::moving`, so they stay as they are while they are gathered to be moved.
//! Readers take no such lock: `Store::moved` tells them, when what they gathered is wrong, that it may be for that.
//!
//! What death leaves: an object of the log that no stub names, or parts that no block lists; both are free then.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, OnceLock};

use clew_core::FlashForm;

use super::far::Fetched;
use super::front::{FIXED_BYTES, Front, parts_needed};
use super::stub::{self, Seen};
use super::{Handle, ReadError, Store};
use crate::codec::{CodecContext, Stored};
use crate::flash::{AppendError, CleanError, Cleaned, Flash, LogId, Names, Place};
use crate::points;
use crate::pool::NoRoom;
use crate::pool::budget::For;
use crate::pool::handle::REFS_PINNED;
use crate::pool::object::{Header, MAX_PAYLOAD_BYTES};
use crate::tier::ObjectTier;

/// What only stubs may take of the pool's room, bytes: a full pool must be able to evict.
const KEPT_FOR_STUBS: u64 = 128 << 10;

/// Why a block did not go to a log; it is where it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvictError {
    /// There is no such log.
    #[error("there is no {}", .0)]
    NoLog(LogId),
    /// No block has this handle.
    #[error("handle {} names no block", handle.raw())]
    Unknown {
        /// The handle.
        handle: Handle,
    },
    /// It is in a log already.
    #[error("block {} is in a log already", handle.raw())]
    There {
        /// The block.
        handle: Handle,
    },
    /// Its stub would be no smaller.
    #[error("block {} is no larger than what would stay of it", handle.raw())]
    NotWorth {
        /// The block.
        handle: Handle,
    },
    /// Its bytes cannot be read: memory was damaged.
    #[error(transparent)]
    Damaged(#[from] ReadError),
    /// The pool has no room for the stub.
    #[error("no room for the stub of block {}", handle.raw())]
    NoRoom {
        /// The block.
        handle: Handle,
    },
    /// The log did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why a block did not come back; it is still in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackError {
    /// It is not where these bytes were fetched from.
    #[error("block {} has moved", handle.raw())]
    Moved {
        /// The block.
        handle: Handle,
    },
    /// The pool has no room for it.
    #[error("no room for block {}", handle.raw())]
    NoRoom {
        /// The block.
        handle: Handle,
    },
}

impl<T: ObjectTier> Store<T> {
    /// Has blocks go to `log` from now on, which has the blocks whose stubs are here. False, and nothing done, if
    /// there is such a one already.
    pub fn attach_log(&self, log: Arc<Flash>) -> bool {
        self.tier.keep_for_replacing(KEPT_FOR_STUBS.min(self.config.mem_limit_bytes / 16));
        let done = self.logs[log.log().index()].set(log).is_ok();
        self.has_logs.store(true, Release);
        done
    }

    /// Where blocks go that leave the pool.
    pub fn log(&self, id: LogId) -> Option<&Arc<Flash>> {
        self.logs[id.index()].get()
    }

    /// All logs that there are.
    pub fn logs(&self) -> impl Iterator<Item = &Arc<Flash>> {
        self.logs.iter().filter_map(OnceLock::get)
    }

    /// Whether there is any log.
    pub fn has_logs(&self) -> bool {
        self.has_logs.load(Relaxed)
    }

    /// The log that a block is in; `None` if it is in the pool, or there is no such block.
    pub fn log_of(&self, handle: Handle) -> Option<LogId> {
        self.place(handle.raw()).map(|place| place.log)
    }

    pub(super) fn count_far(&self, log: LogId, pages: u16) {
        self.log_pages[log.index()].fetch_add(pages.into(), Relaxed);
        self.far_pages.fetch_add(pages.into(), Relaxed);
    }

    pub(super) fn count_gone(&self, log: LogId, pages: u16) {
        self.log_pages[log.index()].fetch_sub(pages.into(), Relaxed);
        self.far_pages.fetch_sub(pages.into(), Relaxed);
    }

    /// Moves a block to a log, where it keeps its handle, its references and its pages. Its bytes are in memory
    /// until they are written. Nobody waits for it but who evicts another block that has parts.
    ///
    /// # Errors
    /// See [`EvictError`].
    pub fn evict(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        to: LogId,
        form: FlashForm,
    ) -> Result<(), EvictError> {
        let log = self.log(to).ok_or(EvictError::NoLog(to))?;
        if !self.retain(handle) {
            return Err(EvictError::Unknown { handle });
        }
        let done = {
            let _moving = self.moving.lock();
            self.evict_held(ctx, log, handle, form)
        };
        self.release(handle);
        done
    }

    fn evict_held(
        &self,
        ctx: &mut CodecContext,
        flash: &Flash,
        handle: Handle,
        form: FlashForm,
    ) -> Result<(), EvictError> {
        let mut payload = Vec::new();
        let header = self.tier.read(handle.raw(), |header, bytes| {
            payload.extend_from_slice(bytes);
            *header
        });
        let header = header.ok_or(EvictError::Unknown { handle })?;
        let seen = Seen::of(&header, &payload).ok_or(EvictError::Unknown { handle })?;
        if seen.place.is_some() {
            return Err(EvictError::There { handle });
        }
        let front = if seen.framed { Some(self.front(handle, &seen)?) } else { None };
        let parts: Vec<u32> = front.iter().flat_map(Front::parts).collect();
        let (mut bytes, mut stub) = (Vec::new(), Vec::new());
        match form {
            FlashForm::AsStored => {
                self.stored_bytes_of(handle, front.as_ref(), &payload, &mut bytes)?;
                let front = front.as_ref().map(|front| without_parts(front, &payload));
                stub::write(&mut stub, seen.codec, seen.dictionary, front.as_deref());
            }
            FlashForm::Pages => {
                self.pages_of(ctx, handle, &header, &seen, front.as_ref(), &payload, &mut bytes)?;
                let front = front.as_ref().map(|front| without_chunks(front, &payload));
                stub::write(&mut stub, Stored::Raw, None, front.as_deref());
            }
        }
        let frees = |bytes: usize| self.tier.object_bytes(bytes);
        if stub.len() > MAX_PAYLOAD_BYTES
            || parts.is_empty() && frees(stub.len()) >= frees(payload.len())
        {
            return Err(EvictError::NotWorth { handle });
        }
        let place = flash.put(handle.raw(), &mut bytes)?;
        points::evict_appended();
        stub::set_place(&mut stub, place);
        let of_stub = Header { codec: Stored::Stub, framed: false, ..header };
        let still = |found: &Header, bytes: &[u8]| found.codec == header.codec && bytes == payload;
        match self.tier.replace(handle.raw(), of_stub, &[&stub], For::Leaving, still) {
            Ok(true) => {
                points::evict_replaced();
                self.moved.fetch_add(1, Release);
                self.count_far(place.log, front.as_ref().map_or(1, |front| front.pages));
                for part in parts {
                    self.tier.remove(part);
                }
                if let (Some(dictionary), FlashForm::Pages) = (seen.dictionary, form) {
                    self.release_dictionary(dictionary);
                }
                Ok(())
            }
            refused => {
                flash.free(place);
                // While it is held, only another mover changes it, and he waits.
                Err(refused
                    .map_or(EvictError::NoRoom { handle }, |_| EvictError::Unknown { handle }))
            }
        }
    }

    /// All stored bytes of a block.
    fn stored_bytes_of(
        &self,
        handle: Handle,
        front: Option<&Front<'_>>,
        payload: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let Some(front) = front else {
            bytes.extend_from_slice(payload);
            return Ok(());
        };
        let in_parts = self.bytes_in_parts(front);
        let all = in_parts + front.tail.len();
        bytes.resize(all, 0);
        let gathered = self.gather(front, in_parts, 0..all, bytes);
        gathered.map_err(|source| self.count(ReadError::Damaged { handle, source }))
    }

    /// All pages of a block, each verified.
    #[expect(clippy::too_many_arguments, reason = "all that a block consists of")]
    fn pages_of(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        header: &Header,
        seen: &Seen<'_>,
        front: Option<&Front<'_>>,
        payload: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let page_bytes = self.config.page_bytes;
        let pages = front.map_or(1, |front| usize::from(front.pages));
        bytes.resize(pages * page_bytes, 0);
        let decoded = match front {
            Some(front) => self.decode(ctx, front, 0..pages * page_bytes, bytes),
            None if seen.codec == Stored::ZstdDictionary => {
                self.decompress_learned(ctx, payload, bytes)
            }
            None => ctx.decompress(seen.codec, payload, bytes),
        };
        decoded.map_err(|source| self.count(ReadError::Damaged { handle, source }))?;
        for (index, page) in (0..).zip(bytes.chunks_exact(page_bytes)) {
            let expected = match front {
                Some(front) => front.checksum(header.checksum, index).unwrap_or_default(),
                None => header.checksum,
            };
            self.verify(handle, index, expected, page).map_err(|error| self.count(error))?;
        }
        Ok(())
    }

    /// Brings a block back to the pool whose bytes were fetched, if it still is where they were.
    ///
    /// # Errors
    /// See [`BackError`].
    pub fn bring_back(&self, fetched: &Fetched) -> Result<(), BackError> {
        let handle = fetched.handle();
        let moved = BackError::Moved { handle };
        let place = fetched.block.place();
        let log = self.log(place.log).ok_or(moved)?;
        if !self.retain(handle) {
            return Err(moved);
        }
        let mut parts = Vec::new();
        let done = {
            let _moving = self.moving.lock();
            self.bring_back_held(fetched, &mut parts)
        };
        match done {
            Ok(true) => {
                log.free(place);
                self.count_gone(place.log, self.block_pages(handle));
            }
            _ => parts.iter().for_each(|part| self.tier.remove(*part)),
        }
        self.release(handle);
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(moved),
            Err(NoRoom) => Err(BackError::NoRoom { handle }),
        }
    }

    /// `parts` are those that the block has if it is back, and that are to be removed otherwise.
    fn bring_back_held(&self, fetched: &Fetched, parts: &mut Vec<u32>) -> Result<bool, NoRoom> {
        let Fetched { block, bytes } = fetched;
        let still =
            |found: &Header, payload: &[u8]| found.codec == Stored::Stub && payload == block.stub();
        let Some(seen) = Seen::of(&block.header(), block.stub()) else { return Ok(false) };
        let handle = block.handle().raw();
        let mut header = Header { codec: seen.codec, framed: seen.framed, ..block.header() };
        if !seen.framed && bytes.len() <= MAX_PAYLOAD_BYTES {
            return self.tier.replace(handle, header, &[bytes], For::New, still);
        }
        // A page that was decompressed for flash has no front.
        let mut front = if seen.framed { seen.body.to_vec() } else { vec![0; FIXED_BYTES] };
        header.framed = true;
        let needed = parts_needed(bytes.len(), front.len() - FIXED_BYTES);
        front[1] = needed as u8;
        let of_part = Header { checksum: 0, handle: 0, len: 0, codec: Stored::Part, framed: false };
        for piece in bytes.chunks(MAX_PAYLOAD_BYTES).take(needed) {
            let part = self.tier.reserve()?;
            if self.tier.insert(part, REFS_PINNED, of_part, &[piece]).is_err() {
                self.tier.unreserve(part);
                return Err(NoRoom);
            }
            parts.push(part);
            front.extend_from_slice(&part.to_le_bytes());
        }
        let tail = bytes.get(needed * MAX_PAYLOAD_BYTES..).unwrap_or(&[]);
        self.tier.replace(handle, header, &[&front, tail], For::New, still)
    }

    /// Cleans a slot of a log: see [`Flash::clean`]. Waits for the device.
    ///
    /// # Errors
    /// See [`CleanError`].
    pub fn clean_log(&self, id: LogId) -> Result<Cleaned, CleanError> {
        match self.log(id) {
            Some(log) => log.clean(self),
            None => Err(CleanError::Nothing),
        }
    }

    /// Stores a new block in a log: only a stub of it is in the pool. `None` for no room for that.
    pub(super) fn insert_in_log(
        &self,
        log: &Flash,
        pages: usize,
        header: Header,
        stub: &mut [u8],
        bytes: &mut [u8],
    ) -> Result<u32, Option<AppendError>> {
        let handle = self.tier.reserve().map_err(|NoRoom| None)?;
        let place = match log.put(handle, bytes) {
            Ok(place) => place,
            Err(error) => {
                self.tier.unreserve(handle);
                return Err(Some(error));
            }
        };
        stub::set_place(stub, place);
        let header = Header { codec: Stored::Stub, framed: false, ..header };
        match self.tier.insert(handle, pages as u32, header, &[stub]) {
            Ok(()) => {
                self.count_far(place.log, pages as u16);
                Ok(handle)
            }
            Err(NoRoom) => {
                log.free(place);
                self.tier.unreserve(handle);
                Err(None)
            }
        }
    }
}

/// What cleaning asks and changes.
impl<T: ObjectTier> Names for Store<T> {
    fn place(&self, handle: u32) -> Option<Place> {
        let place = |header: &Header, payload: &[u8]| Seen::of(header, payload)?.place;
        self.tier.read(handle, place).flatten()
    }

    fn moved(&self, handle: u32, from: Place, to: Place) -> bool {
        let mut stub = Vec::new();
        let header = self.tier.read(handle, |header, payload| {
            stub.extend_from_slice(payload);
            *header
        });
        let Some(header) = header else { return false };
        let old = stub.clone();
        if Seen::of(&header, &stub).and_then(|seen| seen.place) != Some(from) {
            return false;
        }
        stub::set_place(&mut stub, to);
        let still = |found: &Header, payload: &[u8]| found.codec == Stored::Stub && payload == old;
        self.tier.replace(handle, header, &[&stub], For::Leaving, still) == Ok(true)
    }
}

/// The front of a block, which begins its payload, as it is without parts.
fn without_parts(front: &Front<'_>, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() - front.tail.len() - front.parts().len() * 4;
    let mut bytes = payload[..len].to_vec();
    bytes[1] = 0;
    bytes
}

/// As [`without_parts`], of a block whose pages are stored as they are.
fn without_chunks(front: &Front<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = without_parts(front, payload);
    bytes.truncate(bytes.len() - front.table.len());
    let units = u16::from_le_bytes([bytes[2], bytes[3]]);
    bytes[2..4].copy_from_slice(&super::front::without_chunk_units(units).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests;

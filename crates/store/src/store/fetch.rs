//! Reading a block that is in a log, on flash or at a donor: asking for its bytes, and restoring pages from them.
//!
//! A stub is copied when the block is read, and its bytes are those of its place then. Should cleaning carry them
//! elsewhere meanwhile, the place is no place any more, and who asked looks again.

use std::sync::Arc;

use super::get::{Piece, Wanted};
use super::stub::Seen;
use super::{Handle, ReadError, Store};
use crate::codec::{CodecContext, DecodeError, Stored};
use crate::flash::{LogId, Place, ReadFlashError};
use crate::pool::object::Header;
use crate::tier::ObjectTier;

/// A block that is in a log, and where.
#[derive(Clone, Debug)]
pub struct FarBlock {
    handle: Handle,
    checksum: u64,
    stub: Box<[u8]>,
    place: Place,
}

impl FarBlock {
    /// The block of a stub.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn of(handle: Handle, checksum: u64, stub: &[u8]) -> Result<FarBlock, ReadError> {
        let header = Header { checksum, handle: 0, len: 0, codec: Stored::Stub, framed: false };
        let place = Seen::of(&header, stub).and_then(|seen| seen.place);
        let damaged = ReadError::Damaged {
            handle,
            source: DecodeError { codec: "stub", stored_bytes: stub.len(), wanted_bytes: 0 },
        };
        Ok(FarBlock { handle, checksum, stub: stub.into(), place: place.ok_or(damaged)? })
    }

    /// The block.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    pub(super) fn header(&self) -> Header {
        let FarBlock { checksum, .. } = *self;
        Header { checksum, handle: 0, len: 0, codec: Stored::Stub, framed: false }
    }

    pub(super) fn stub(&self) -> &[u8] {
        &self.stub
    }
}

/// The bytes of a block, from flash, with all that is needed to restore its pages.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub(super) block: FarBlock,
    pub(super) bytes: Vec<u8>,
}

impl Fetched {
    /// The block.
    pub fn handle(&self) -> Handle {
        self.block.handle
    }
}

/// Why the bytes of a block did not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// It was moved meanwhile: reading it again tells where it is.
    #[error("block {} has moved", handle.raw())]
    Moved {
        /// The block.
        handle: Handle,
    },
    /// There is no such log.
    #[error("block {} is in {log}, and there is none", handle.raw())]
    NoLog {
        /// The block.
        handle: Handle,
        /// Where it is.
        log: LogId,
    },
    /// The log did not give it, or gave something else.
    #[error("block {} in a log: {source}", handle.raw())]
    Lost {
        /// The block.
        handle: Handle,
        /// What failed.
        source: ReadFlashError,
    },
}

impl<T: ObjectTier> Store<T> {
    /// Asks for the bytes of a block. `told` is called once: before this returns, if they are in memory or
    /// cannot be had, or else from a thread of the flash tier, which must not be held up for long. `pressing` says that a program waits
    /// for it.
    pub fn fetch(
        self: &Arc<Self>,
        block: FarBlock,
        pressing: bool,
        told: impl FnOnce(Result<Fetched, FetchError>) + Send + 'static,
    ) {
        let handle = block.handle;
        let log = block.place.log;
        let Some(flash) = self.log(log) else {
            return told(Err(FetchError::NoLog { handle, log }));
        };
        let store = Arc::clone(self);
        flash.read(handle.raw(), block.place, pressing, move |read| {
            told(match read {
                Ok(bytes) => Ok(Fetched { block, bytes }),
                // A place is given up only after its stub names another.
                Err(ReadFlashError::Moved) if !store.is_at(&block) => {
                    Err(FetchError::Moved { handle })
                }
                Err(source) => Err(FetchError::Lost { handle, source }),
            });
        });
    }

    /// The bytes of a block, if they are in memory. Waits for nothing.
    pub fn fetch_here(&self, block: &FarBlock) -> Option<Fetched> {
        let bytes = self.log(block.place.log)?.read_here(block.handle.raw(), block.place)?;
        Some(Fetched { block: block.clone(), bytes })
    }

    /// Whether the block is still where it was.
    fn is_at(&self, block: &FarBlock) -> bool {
        let same = |header: &Header, payload: &[u8]| {
            header.codec == Stored::Stub && payload == block.stub()
        };
        self.tier.read(block.handle.raw(), same) == Some(true)
    }

    /// As [`Store::get`], from bytes that were fetched.
    ///
    /// # Errors
    /// See [`ReadError`]; `out` holds anything then.
    pub fn get_fetched(
        &self,
        ctx: &mut CodecContext,
        fetched: &Fetched,
        index: u16,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        if out.len() != self.config.page_bytes {
            return Err(ReadError::WrongSize { wanted: self.config.page_bytes, found: out.len() });
        }
        self.read_fetched(ctx, fetched, Wanted::Page(index), out).map(drop)
    }

    /// As [`Store::get_chunk`], from bytes that were fetched: what is decompressed with the page comes along.
    ///
    /// # Errors
    /// See [`ReadError`]; `out` holds anything then.
    pub fn get_chunk_fetched(
        &self,
        ctx: &mut CodecContext,
        fetched: &Fetched,
        index: u16,
        out: &mut [u8],
    ) -> Result<Piece, ReadError> {
        self.read_fetched(ctx, fetched, Wanted::Chunk(index), out)
    }

    fn read_fetched(
        &self,
        ctx: &mut CodecContext,
        fetched: &Fetched,
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<Piece, ReadError> {
        let Fetched { block, bytes } = fetched;
        let handle = block.handle;
        let mut read = || {
            let unknown = ReadError::Unknown { handle };
            let seen = Seen::of(&block.header(), block.stub()).ok_or(unknown)?;
            let front = match seen.framed {
                true => Some(self.front(handle, &seen)?.with_bytes(bytes)),
                false => None,
            };
            let checksum = block.checksum;
            let (piece, expected) =
                self.read_seen(ctx, handle, checksum, &seen, front, bytes, wanted, out)?;
            self.verify_wanted(handle, wanted, &piece, expected, out)?;
            Ok(piece)
        };
        read().map_err(|error| self.count(error))
    }
}

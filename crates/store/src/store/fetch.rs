//! Reading a block that is in a log, on flash or at a donor: asking for its bytes, and restoring pages from them.
//!
//! A stub is copied when the block is read, and its bytes are those of its place then. Should cleaning carry them
//! elsewhere meanwhile, the place is no place any more, and who asked looks again.

use std::sync::Arc;

use super::far::{FarBlock, Fetched};
use super::get::{Piece, Wanted};
use super::stub::Seen;
use super::{FetchError, ReadError, Store};
use crate::codec::{CodecContext, Stored};
use crate::flash::ReadFlashError;
use crate::pool::object::Header;
use crate::tier::ObjectTier;

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

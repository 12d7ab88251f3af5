//! Restoring pages: only the chunks that hold them, and without a lock while a codec works.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use clew_core::Vpn;

use super::far::FarBlock;
use super::front::Front;
use super::stub::Seen;
use super::{Handle, ReadError, Store};
use crate::codec::chunks::{MIN_CHUNK_BYTES, covering};
use crate::codec::{CodecContext, DecodeError, Stored};
use crate::pool::object::{Header, MAX_PAYLOAD_BYTES};
use crate::tier::ObjectTier;

/// What came with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The pages of the block that were restored.
    pub pages: Range<u16>,
    /// How many pages the block has.
    pub of: u16,
    /// The others are to be parked; see [`super::Members::park`].
    pub park: bool,
}

/// What reading a block comes to: it is where it can be read, or it has to be waited for.
#[must_use = "a block on flash has not been read"]
#[derive(Debug)]
pub enum Get<P, F = FarBlock> {
    /// It was read.
    Here(P),
    /// It is in a log: [`Store::fetch`].
    Far(F),
}

impl<P> Get<P> {
    /// What was read, for those who cannot wait.
    ///
    /// # Errors
    /// [`ReadError::Far`] if it is on flash.
    pub fn here(self) -> Result<P, ReadError> {
        match self {
            Get::Here(read) => Ok(read),
            Get::Far(block) => Err(ReadError::Far { handle: block.handle() }),
        }
    }
}

impl<P, F> Get<P, F> {
    fn map<Q>(self, f: impl FnOnce(P) -> Q) -> Get<Q, F> {
        match self {
            Get::Here(read) => Get::Here(f(read)),
            Get::Far(block) => Get::Far(block),
        }
    }
}

/// What is to be restored of a block.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// This page alone.
    Page(u16),
    /// The chunks that hold this page.
    Chunk(u16),
}

impl<T: ObjectTier> Store<T> {
    /// Restores page `index` of a block into `out`, which is one page. Decompresses no chunk that
    /// does not hold it, and takes no lock but the read lock of a size class, for a copy.
    ///
    /// # Errors
    /// See [`ReadError`]; `out` holds anything then.
    pub fn get(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        index: u16,
        out: &mut [u8],
    ) -> Result<Get<()>, ReadError> {
        if out.len() != self.config.page_bytes {
            return Err(ReadError::WrongSize { wanted: self.config.page_bytes, found: out.len() });
        }
        self.read(ctx, handle, Wanted::Page(index), out).map(|read| read.map(drop))
    }

    /// Restores page `index` of a block and what is decompressed with it, one page after the other,
    /// into the front of `out`. Of a block with more pages than these, or with others, `ctx` then
    /// knows where they were ([`CodecContext::sibling`]).
    ///
    /// Only the page that was asked for is compared with its checksum; the others are for
    /// [`Store::check_page`].
    ///
    /// # Errors
    /// See [`ReadError`]; `out` holds anything then.
    pub fn get_chunk(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        index: u16,
        out: &mut [u8],
    ) -> Result<Get<Piece>, ReadError> {
        self.read(ctx, handle, Wanted::Chunk(index), out)
    }

    /// Whether `page`, which was restored along with another, is page `index` of the block.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] if it is not.
    pub fn check_page(&self, handle: Handle, index: u16, page: &[u8]) -> Result<(), ReadError> {
        let checked = self.verify(handle, index, self.checksum(handle, index), page);
        checked.map_err(|error| self.count(error))
    }

    /// How many pages a block has, wherever it is; then `ctx` knows where they were
    /// ([`CodecContext::sibling`]). Zero if there is no such block.
    pub fn look(&self, ctx: &mut CodecContext, handle: Handle) -> u16 {
        ctx.offsets.clear();
        let offsets = &mut ctx.offsets;
        let look = |header: &Header, payload: &[u8]| {
            let seen = Seen::of(header, payload)?;
            if !seen.framed {
                return Some(1);
            }
            let front = self.front(handle, &seen).ok()?;
            offsets.extend(front.offsets());
            Some(front.pages)
        };
        self.tier.read(handle.raw(), look).flatten().unwrap_or(0)
    }

    /// Bytes that a block takes in a log; zero if it is in none.
    pub fn log_bytes(&self, handle: Handle) -> u32 {
        let place = |header: &Header, payload: &[u8]| Seen::of(header, payload)?.place;
        self.tier.read(handle.raw(), place).flatten().map_or(0, |place| place.len)
    }

    fn read(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<Get<Piece>, ReadError> {
        loop {
            let moved = self.moved.load(Acquire);
            let read = self.try_read(ctx, handle, wanted, out);
            let failed = matches!(read, Err(ReadError::Damaged { .. } | ReadError::Corrupt { .. }));
            // Its parts may have been taken away meanwhile, or those of the dictionary it needs.
            if !failed || moved == self.moved.load(Acquire) {
                return read.map_err(|error| self.count(error));
            }
        }
    }

    fn try_read(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<Get<Piece>, ReadError> {
        // A copy of what is compressed, so that nobody who stores or frees waits for a codec.
        let mut payload = std::mem::take(&mut ctx.front);
        payload.clear();
        let header = self.tier.read(handle.raw(), |header, bytes| {
            payload.extend_from_slice(bytes);
            *header
        });
        let read = match header {
            Some(Header { codec: Stored::Part, .. }) | None => Err(ReadError::Unknown { handle }),
            Some(Header { codec: Stored::Stub, checksum, .. }) => {
                FarBlock::of(handle, checksum, &payload).map(Get::Far)
            }
            Some(header) => {
                let read = self.read_copied(ctx, handle, header, &payload, wanted, out);
                read.and_then(|(piece, expected)| {
                    self.verify_wanted(handle, wanted, &piece, expected, out)?;
                    Ok(Get::Here(piece))
                })
            }
        };
        ctx.front = payload;
        read
    }

    /// Compares the page that was asked for with its checksum.
    pub(super) fn verify_wanted(
        &self,
        handle: Handle,
        wanted: Wanted,
        piece: &Piece,
        expected: u64,
        out: &[u8],
    ) -> Result<(), ReadError> {
        let (Wanted::Page(index) | Wanted::Chunk(index)) = wanted;
        let at = usize::from(index - piece.pages.start) * self.config.page_bytes;
        self.verify(handle, index, expected, &out[at..at + self.config.page_bytes])
    }

    /// Restores what is wanted of a block from its first object; with it, the page's checksum.
    fn read_copied(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        header: Header,
        payload: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<(Piece, u64), ReadError> {
        let damaged = || ReadError::Damaged {
            handle,
            source: DecodeError { codec: "block", stored_bytes: payload.len(), wanted_bytes: 0 },
        };
        let seen = Seen::of(&header, payload).ok_or_else(damaged)?;
        let front = if seen.framed { Some(self.front(handle, &seen)?) } else { None };
        self.read_seen(ctx, handle, header.checksum, &seen, front, payload, wanted, out)
    }

    /// Restores what is wanted of a block of which it has front and bytes, those that are in parts apart; `payload` are
    /// the bytes of one that is not framed.
    #[expect(clippy::too_many_arguments, reason = "all that a block consists of")]
    pub(super) fn read_seen(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        checksum: u64,
        seen: &Seen<'_>,
        front: Option<Front<'_>>,
        payload: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<(Piece, u64), ReadError> {
        let (Wanted::Page(index) | Wanted::Chunk(index)) = wanted;
        let page_bytes = self.config.page_bytes;
        let absent = |pages| ReadError::NoSuchPage { handle, index, pages };
        ctx.offsets.clear();
        if let Some(front) = front {
            let expected = front.checksum(checksum, index).ok_or(absent(front.pages))?;
            return Ok((self.read_framed(ctx, handle, &front, wanted, out)?, expected));
        }
        if index != 0 {
            return Err(absent(1));
        }
        let found = out.len();
        let out =
            out.get_mut(..page_bytes).ok_or(ReadError::WrongSize { wanted: page_bytes, found })?;
        match seen.codec {
            Stored::ZstdDictionary => self.decompress_learned(ctx, payload, out),
            codec => ctx.decompress(codec, payload, out),
        }
        .map_err(|source| ReadError::Damaged { handle, source })?;
        Ok((Piece { pages: 0..1, of: 1, park: false }, checksum))
    }

    /// Restores what is wanted of a block whose page it has.
    fn read_framed(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        front: &Front<'_>,
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<Piece, ReadError> {
        let pages = match wanted {
            Wanted::Page(index) => index..index + 1,
            Wanted::Chunk(index) => {
                ctx.offsets.extend(front.offsets());
                self.together(front, index)
            }
        };
        let page_bytes = self.config.page_bytes;
        let range = usize::from(pages.start) * page_bytes..usize::from(pages.end) * page_bytes;
        let found = out.len();
        let out = out
            .get_mut(..range.len())
            .ok_or(ReadError::WrongSize { wanted: range.len(), found })?;
        self.decode(ctx, front, range, out)
            .map_err(|source| ReadError::Damaged { handle, source })?;
        Ok(Piece { pages, of: front.pages, park: front.park })
    }

    /// The pages that lie whole in the chunks that hold page `index`. What is stored raw has no
    /// chunks.
    fn together(&self, front: &Front<'_>, index: u16) -> Range<u16> {
        let page_bytes = self.config.page_bytes;
        let chunk_bytes = usize::from(front.encoded.chunk_units) * MIN_CHUNK_BYTES as usize;
        match (front.encoded.codec, chunk_bytes) {
            (Stored::Raw, _) => index..index + 1,
            (_, 0) => 0..front.pages,
            _ => {
                let page = self.range(index);
                let from = page.start / chunk_bytes * chunk_bytes;
                let to = page.end.next_multiple_of(chunk_bytes);
                let to = to.min(usize::from(front.pages) * page_bytes);
                from.div_ceil(page_bytes) as u16..(to / page_bytes) as u16
            }
        }
    }

    fn range(&self, index: u16) -> Range<usize> {
        let from = usize::from(index) * self.config.page_bytes;
        from..from + self.config.page_bytes
    }

    /// The front of a framed block.
    pub(super) fn front<'a>(
        &self,
        handle: Handle,
        Seen { codec, body, .. }: &Seen<'a>,
    ) -> Result<Front<'a>, ReadError> {
        Front::parse(*codec, body, self.config.page_bytes).ok_or(ReadError::Damaged {
            handle,
            source: DecodeError { codec: "front", stored_bytes: body.len(), wanted_bytes: 0 },
        })
    }

    pub(super) fn count(&self, error: ReadError) -> ReadError {
        if matches!(error, ReadError::Damaged { .. } | ReadError::Corrupt { .. }) {
            self.corrupt_reads.fetch_add(1, Relaxed);
        }
        error
    }

    pub(super) fn verify(
        &self,
        handle: Handle,
        index: u16,
        expected: u64,
        page: &[u8],
    ) -> Result<(), ReadError> {
        match self.hash(page) {
            found if found == expected => Ok(()),
            found => Err(ReadError::Corrupt { handle, index, expected, found }),
        }
    }

    /// Restores `wanted` of a block into `out`.
    pub(super) fn decode(
        &self,
        ctx: &mut CodecContext,
        front: &Front<'_>,
        wanted: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let block_bytes = usize::from(front.pages) * self.config.page_bytes;
        let in_parts = self.bytes_in_parts(front);
        let stored_bytes = in_parts + front.tail.len();
        let short = |range: &Range<usize>| DecodeError {
            codec: "chunk",
            stored_bytes,
            wanted_bytes: range.end,
        };
        if front.encoded.codec == Stored::Raw {
            return match wanted.end <= stored_bytes {
                true => self.gather(front, in_parts, wanted, out),
                false => Err(short(&wanted)),
            };
        }
        for chunk in covering(front.encoded, block_bytes, stored_bytes, front.table, wanted.clone())
        {
            if chunk.stored.end > stored_bytes {
                return Err(short(&chunk.stored));
            }
            if chunk.stored.start >= in_parts {
                let stored =
                    &front.tail[chunk.stored.start - in_parts..chunk.stored.end - in_parts];
                ctx.decode_chunk(&chunk, stored, wanted.clone(), out)?;
                continue;
            }
            let len = chunk.stored.len();
            let mut gathered = std::mem::take(&mut ctx.gathered);
            if gathered.len() < len {
                gathered.resize(len, 0);
            }
            let done = self
                .gather(front, in_parts, chunk.stored.clone(), &mut gathered[..len])
                .and_then(|()| ctx.decode_chunk(&chunk, &gathered[..len], wanted.clone(), out));
            ctx.gathered = gathered;
            done?;
        }
        Ok(())
    }

    /// All parts are full but the last one, which may be short where nothing follows it.
    pub(super) fn bytes_in_parts(&self, front: &Front<'_>) -> usize {
        let parts = front.parts();
        let full = parts.len() * MAX_PAYLOAD_BYTES;
        match parts.last() {
            Some(last) if front.tail.is_empty() => {
                let len = self.tier.read(last, |header, _| usize::from(header.len)).unwrap_or(0);
                full - MAX_PAYLOAD_BYTES + len
            }
            _ => full,
        }
    }

    /// Copies `range` of the stored bytes of a block, from parts and tail.
    pub(super) fn gather(
        &self,
        front: &Front<'_>,
        in_parts: usize,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let missing =
            DecodeError { codec: "part", stored_bytes: in_parts, wanted_bytes: range.end };
        let mut starts = 0;
        for part in front.parts() {
            let ends = (starts + MAX_PAYLOAD_BYTES).min(in_parts);
            let (from, to) = (range.start.max(starts), range.end.min(ends));
            if from < to {
                let out = &mut out[from - range.start..to - range.start];
                let copied = self.tier.read(part, |header, payload| {
                    match payload.get(from - starts..to - starts) {
                        Some(bytes) if header.codec == Stored::Part => {
                            out.copy_from_slice(bytes);
                            true
                        }
                        _ => false,
                    }
                });
                if copied != Some(true) {
                    return Err(missing);
                }
            }
            starts = ends;
        }
        if range.end > in_parts {
            let from = range.start.max(in_parts);
            let tail = front.tail.get(from - in_parts..range.end - in_parts).ok_or(missing)?;
            out[from - range.start..].copy_from_slice(tail);
        }
        Ok(())
    }
}

impl CodecContext {
    /// Where page `other` of the block read last was when the block was stored, if page `index`,
    /// which was stored with it, is at `vpn` now: pages that moved together are found.
    pub fn sibling(&self, index: u16, vpn: Vpn, other: u16) -> Option<Vpn> {
        let offset = |index: u16| self.offsets.get(usize::from(index)).copied().flatten();
        let apart = i64::from(offset(other)?) - i64::from(offset(index)?);
        vpn.0.checked_add_signed(apart).map(Vpn)
    }
}

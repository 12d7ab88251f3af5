//! Storing a block: hash, compress, find room, and take everything back where there is none.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use super::front::{FIXED_BYTES, begin, has_room_for_offsets, offset, parts_needed};
use super::{
    Dictionary, Handle, Limit, MAX_BLOCK_BYTES, MAX_BLOCK_PAGES, Members, PutError, Store,
};
use crate::codec::chunks::{MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, worth_bytes};
use crate::codec::same::repeated_word;
use crate::codec::{CodecContext, Stored};
use crate::flash::{AppendError, Flash, LogId};
use crate::pool::handle::REFS_PINNED;
use crate::pool::object::{Header, MAX_PAYLOAD_BYTES};
use crate::tier::ObjectTier;
use clew_core::CodecKind;

/// Why a block was not stored in a log; it is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutFarError {
    /// There is no such log.
    #[error("there is no {}", .0)]
    NoLog(LogId),
    /// It would not have been stored in the pool either.
    #[error(transparent)]
    Put(PutError),
    /// The log did not take it.
    #[error(transparent)]
    Append(AppendError),
}

/// Where a block is stored.
#[derive(Clone, Copy)]
enum To<'a> {
    Pool,
    Log { log: &'a Flash, refused: &'a Cell<Option<AppendError>> },
}

/// Objects of a block that is not complete yet; dropped, it removes them.
struct Unfinished<'a, T: ObjectTier> {
    store: &'a Store<T>,
    pages: u64,
    parts: Vec<u32>,
    done: bool,
}

impl<T: ObjectTier> Drop for Unfinished<'_, T> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        for part in &self.parts {
            self.store.tier.remove(*part);
        }
        self.store.pages.fetch_sub(self.pages, Relaxed);
    }
}

impl<T: ObjectTier> Store<T> {
    /// Compresses `bytes` (whole pages, up to 512 KiB and 128 pages) in chunks of `chunk_bytes` (a
    /// multiple of 256, up to 128 KiB; more than the block: one chunk) and stores them as a block
    /// with one reference a page. A single page that repeats one word of eight bytes takes the
    /// smallest object, whatever the codec.
    ///
    /// # Errors
    /// [`PutError::Full`] at a limit, and then nothing is stored; the others for wrong arguments.
    pub fn put(
        &self,
        ctx: &mut CodecContext,
        bytes: &[u8],
        codec: CodecKind,
        chunk_bytes: u32,
    ) -> Result<Handle, PutError> {
        self.put_group(ctx, bytes, codec, chunk_bytes, Members::default())
    }

    /// As [`Store::put`], and writes down where the pages are in their program: who restores one
    /// of them is told where the others were ([`Store::get_chunk`]).
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_group(
        &self,
        ctx: &mut CodecContext,
        bytes: &[u8],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutError> {
        self.put_to(To::Pool, ctx, bytes, codec, chunk_bytes, members)
    }

    /// As [`Store::put_group`], but in a log: only a stub takes room in the pool, and nothing of a page that
    /// repeats one word is in the log.
    ///
    /// # Errors
    /// As [`Store::put`], and if the log does not take it. Nothing is stored then.
    pub fn put_far(
        &self,
        to: LogId,
        ctx: &mut CodecContext,
        bytes: &[u8],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutFarError> {
        let log = self.log(to).ok_or(PutFarError::NoLog(to))?;
        let refused = Cell::new(None);
        let to = To::Log { log, refused: &refused };
        let put = self.put_to(to, ctx, bytes, codec, chunk_bytes, members);
        put.map_err(|error| match refused.take() {
            Some(refused) => PutFarError::Append(refused),
            None => PutFarError::Put(error),
        })
    }

    fn put_to(
        &self,
        to: To<'_>,
        ctx: &mut CodecContext,
        bytes: &[u8],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutError> {
        let pages = bytes.len() / self.config.page_bytes;
        if pages == 0
            || pages > MAX_BLOCK_PAGES
            || bytes.len() > MAX_BLOCK_BYTES
            || !bytes.len().is_multiple_of(self.config.page_bytes)
        {
            return Err(PutError::BlockSize {
                bytes: bytes.len(),
                page_bytes: self.config.page_bytes,
            });
        }
        if !(MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&chunk_bytes)
            || !chunk_bytes.is_multiple_of(MIN_CHUNK_BYTES)
        {
            return Err(PutError::ChunkSize { chunk_bytes });
        }
        let limit = match to {
            To::Pool => self.config.disksize_pages,
            To::Log { .. } => u64::MAX,
        };
        let far = self.far_pages.load(Relaxed);
        let fits = |stored: u64| {
            let sum = stored.checked_add(pages as u64)?;
            (sum.saturating_sub(far) <= limit).then_some(sum)
        };
        if let Err(stored) = self.pages.fetch_update(Relaxed, Relaxed, fits) {
            let stored = stored.saturating_sub(far);
            return Err(PutError::Full { limit: Limit::Pages { stored, limit }, pages });
        }
        let mut unfinished =
            Unfinished { store: self, pages: pages as u64, parts: Vec::new(), done: false };
        let parts = &mut unfinished.parts;
        let handle = self.put_block(to, ctx, bytes, pages, codec, chunk_bytes, members, parts);
        unfinished.done = handle.is_some();
        drop(unfinished);
        match handle.and_then(NonZeroU32::new) {
            Some(handle) => {
                self.blocks.fetch_add(1, Relaxed);
                Ok(Handle(handle))
            }
            None => Err(PutError::Full {
                limit: Limit::Bytes {
                    used: self.tier.used_bytes(),
                    limit: self.config.mem_limit_bytes,
                },
                pages,
            }),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what put_group has, and where parts go")]
    fn put_block(
        &self,
        to: To<'_>,
        ctx: &mut CodecContext,
        bytes: &[u8],
        pages: usize,
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
        parts: &mut Vec<u32>,
    ) -> Option<u32> {
        let page_bytes = self.config.page_bytes;
        let checksum = self.hash(&bytes[..page_bytes]);
        let mut header = Header { checksum, handle: 0, len: 0, codec: Stored::Raw, framed: false };
        if pages == 1
            && let Some(word) = repeated_word(bytes)
        {
            header.codec = Stored::Same;
            return self.insert(pages, header, &[&word.to_ne_bytes()]);
        }
        let stored = match codec {
            CodecKind::Raw => Stored::Raw,
            CodecKind::Lz4 => Stored::Lz4,
            CodecKind::Lzo => Stored::Lzo,
            CodecKind::BaseDeltaImmediate => Stored::BaseDeltaImmediate,
            CodecKind::Zstd => Stored::Zstd,
            CodecKind::ZstdDictionary => {
                if pages == 1
                    && chunk_bytes as usize >= page_bytes
                    && let Some(dictionary) = members.dictionary
                    && let Some(len) = self.pack_learned(ctx, bytes, dictionary)
                {
                    header.codec = Stored::ZstdDictionary;
                    let name = Some(dictionary.handle);
                    let packed = &ctx.packed[..len];
                    let handle = match to {
                        To::Pool => self.insert(1, header, &[packed]),
                        To::Log { .. } => self.insert_stub(to, 1, header, name, None, packed),
                    };
                    if handle.is_none() {
                        self.release_dictionary(dictionary.handle);
                    }
                    return handle;
                }
                Stored::Zstd
            }
        };
        let encoded = ctx.encode(bytes, stored, chunk_bytes);
        header.codec = encoded.codec;
        let data = match encoded.codec {
            Stored::Raw => bytes,
            _ => &ctx.packed[..ctx.packed_len],
        };
        if pages == 1 && encoded.chunk_units == 0 {
            match to {
                To::Log { .. } => {
                    return self.insert_stub(to, pages, header, None, None, data);
                }
                To::Pool if data.len() <= MAX_PAYLOAD_BYTES => {
                    return self.insert(pages, header, &[data]);
                }
                To::Pool => {}
            }
        }
        header.framed = true;
        let mut tables = (pages - 1) * 8 + ctx.lengths.len();
        // A hint, which large blocks of very small chunks have no room for.
        let has_offsets = pages > 1
            && members.vpns.len() == pages
            && has_room_for_offsets(pages, data.len(), tables);
        if has_offsets {
            tables += (pages - 1) * 4;
        }
        let needed = match to {
            To::Pool => parts_needed(data.len(), tables),
            To::Log { .. } => 0,
        };
        let front = &mut ctx.front;
        begin(front, pages, needed, encoded.chunk_units, has_offsets, members.park);
        for page in bytes.chunks_exact(page_bytes).skip(1) {
            front.extend_from_slice(&self.hash(page).to_le_bytes());
        }
        if let (true, [first, others @ ..]) = (has_offsets, members.vpns) {
            others.iter().for_each(|vpn| front.extend_from_slice(&offset(*first, *vpn)));
        }
        front.extend_from_slice(&ctx.lengths);
        debug_assert_eq!(front.len(), FIXED_BYTES + tables, "what is written is what was counted");
        if let To::Log { .. } = to {
            return self.insert_stub(to, pages, header, None, Some(front), data);
        }
        let part_header =
            Header { checksum: 0, handle: 0, len: 0, codec: Stored::Part, framed: false };
        for piece in data.chunks(MAX_PAYLOAD_BYTES).take(needed) {
            let part = self.tier.reserve().ok()?;
            if self.tier.insert(part, REFS_PINNED, part_header, &[piece]).is_err() {
                self.tier.unreserve(part);
                return None;
            }
            parts.push(part);
            front.extend_from_slice(&part.to_le_bytes());
        }
        let tail = data.get(needed * MAX_PAYLOAD_BYTES..).unwrap_or(&[]);
        self.insert(pages, header, &[front, tail])
    }

    /// Stores a block in a log.
    fn insert_stub(
        &self,
        to: To<'_>,
        pages: usize,
        header: Header,
        dictionary: Option<Handle>,
        front: Option<&[u8]>,
        data: &[u8],
    ) -> Option<u32> {
        let To::Log { log, refused } = to else { return None };
        let mut stub = Vec::new();
        super::stub::write(&mut stub, header.codec, dictionary, front);
        if stub.len() > MAX_PAYLOAD_BYTES {
            return None;
        }
        let stored = self.insert_in_log(log, pages, header, &mut stub, &mut data.to_vec());
        stored.inspect_err(|error| refused.set(error.clone())).ok()
    }

    /// Compresses a page with a dictionary, and takes a reference of that; `None`, and nothing taken,
    /// if it does not become smaller.
    fn pack_learned(
        &self,
        ctx: &mut CodecContext,
        page: &[u8],
        dictionary: &Dictionary,
    ) -> Option<usize> {
        let name = dictionary.handle;
        ctx.packed.resize(ctx.packed.len().max(page.len()), 0);
        let room = &mut ctx.packed[..worth_bytes(page.len())];
        let len = ctx.dictionary.compress(&dictionary.encoder, name.raw(), page, room);
        len.filter(|len| *len <= MAX_PAYLOAD_BYTES && self.retain(name))
    }

    fn insert(&self, pages: usize, header: Header, pieces: &[&[u8]]) -> Option<u32> {
        let handle = self.tier.reserve().ok()?;
        match self.tier.insert(handle, pages as u32, header, pieces) {
            Ok(()) => Some(handle),
            Err(_) => {
                self.tier.unreserve(handle);
                None
            }
        }
    }
}

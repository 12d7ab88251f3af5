//! Restoring pages: only the chunks that hold them, straight out of the pool where one object
//! holds the block.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::front::Front;
use super::{Handle, ReadError, Store};
use crate::codec::chunks::covering;
use crate::codec::{CodecContext, DecodeError, Stored};
use crate::pool::object::MAX_PAYLOAD_BYTES;

/// How far one look at the first object of a block came.
enum Step {
    /// The page is restored; its checksum should be this.
    Page { expected: u64 },
    /// The front is in `ctx.front`; all is restored if `complete`.
    Front { codec: Stored, first: u64, complete: bool },
}

impl Store {
    /// Restores page `index` of a block into `out`, which is one page. Decompresses no chunk that
    /// does not hold it, and takes no lock but the read lock of a size class.
    ///
    /// # Errors
    /// See [`ReadError`]; `out` holds anything then.
    pub fn get(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        index: u16,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        if out.len() != self.config.page_bytes {
            return Err(ReadError::WrongSize { wanted: self.config.page_bytes, found: out.len() });
        }
        let damaged = |source| ReadError::Damaged { handle, source };
        let step =
            self.pool.read(handle.raw(), |header, payload| {
                if header.codec == Stored::Part {
                    return Err(ReadError::Unknown { handle });
                }
                if !header.framed {
                    if index != 0 {
                        return Err(ReadError::NoSuchPage { handle, index, pages: 1 });
                    }
                    ctx.decompress(header.codec, payload, out).map_err(damaged)?;
                    return Ok(Step::Page { expected: header.checksum });
                }
                let front = self.front(handle, header.codec, payload)?;
                let expected = front
                    .checksum(header.checksum, index)
                    .ok_or(ReadError::NoSuchPage { handle, index, pages: front.pages })?;
                if front.parts().len() == 0 {
                    self.decode(ctx, &front, self.range(index), out).map_err(damaged)?;
                    return Ok(Step::Page { expected });
                }
                ctx.front.clear();
                ctx.front.extend_from_slice(payload);
                Ok(Step::Front { codec: header.codec, first: header.checksum, complete: false })
            });
        let expected = match step.unwrap_or(Err(ReadError::Unknown { handle })) {
            Err(error) => return Err(self.count(error)),
            Ok(Step::Page { expected }) => expected,
            Ok(Step::Front { codec, first, .. }) => {
                let payload = std::mem::take(&mut ctx.front);
                let done = self.front(handle, codec, &payload).and_then(|front| {
                    self.decode(ctx, &front, self.range(index), out).map_err(damaged)?;
                    front.checksum(first, index).ok_or(ReadError::NoSuchPage {
                        handle,
                        index,
                        pages: front.pages,
                    })
                });
                ctx.front = payload;
                done.map_err(|error| self.count(error))?
            }
        };
        self.verify(handle, index, expected, out)
    }

    /// Restores all pages of a block into the front of `out`, each chunk once, and returns how many
    /// they are.
    ///
    /// # Errors
    /// See [`ReadError`]; `out` holds anything then.
    pub fn get_block(
        &self,
        ctx: &mut CodecContext,
        handle: Handle,
        out: &mut [u8],
    ) -> Result<u16, ReadError> {
        let page_bytes = self.config.page_bytes;
        let damaged = |source| ReadError::Damaged { handle, source };
        let fits = |pages: u16, found: usize| match usize::from(pages) * page_bytes {
            wanted if wanted > found => Err(ReadError::WrongSize { wanted, found }),
            wanted => Ok(wanted),
        };
        let step = self.pool.read(handle.raw(), |header, payload| {
            if header.codec == Stored::Part {
                return Err(ReadError::Unknown { handle });
            }
            if !header.framed {
                let wanted = fits(1, out.len())?;
                ctx.decompress(header.codec, payload, &mut out[..wanted]).map_err(damaged)?;
                return Ok(Step::Page { expected: header.checksum });
            }
            let front = self.front(handle, header.codec, payload)?;
            let wanted = fits(front.pages, out.len())?;
            let complete = front.parts().len() == 0;
            if complete {
                self.decode(ctx, &front, 0..wanted, &mut out[..wanted]).map_err(damaged)?;
            }
            ctx.front.clear();
            ctx.front.extend_from_slice(payload);
            Ok(Step::Front { codec: header.codec, first: header.checksum, complete })
        });
        match step.unwrap_or(Err(ReadError::Unknown { handle })) {
            Err(error) => Err(self.count(error)),
            Ok(Step::Page { expected }) => {
                self.verify(handle, 0, expected, &out[..page_bytes])?;
                Ok(1)
            }
            Ok(Step::Front { codec, first, complete }) => {
                let payload = std::mem::take(&mut ctx.front);
                let done = self.front(handle, codec, &payload).and_then(|front| {
                    let all = 0..usize::from(front.pages) * page_bytes;
                    let out = &mut out[all.clone()];
                    if !complete {
                        self.decode(ctx, &front, all, out)
                            .map_err(|source| self.count(damaged(source)))?;
                    }
                    for (index, page) in (0..front.pages).zip(out.chunks_exact(page_bytes)) {
                        let expected = front.checksum(first, index).unwrap_or_default();
                        self.verify(handle, index, expected, page)?;
                    }
                    Ok(front.pages)
                });
                ctx.front = payload;
                done
            }
        }
    }

    fn range(&self, index: u16) -> Range<usize> {
        let from = usize::from(index) * self.config.page_bytes;
        from..from + self.config.page_bytes
    }

    pub(super) fn front<'a>(
        &self,
        handle: Handle,
        codec: Stored,
        payload: &'a [u8],
    ) -> Result<Front<'a>, ReadError> {
        Front::parse(codec, payload, self.config.page_bytes).ok_or(ReadError::Damaged {
            handle,
            source: DecodeError { codec: "front", stored_bytes: payload.len(), wanted_bytes: 0 },
        })
    }

    fn count(&self, error: ReadError) -> ReadError {
        if matches!(error, ReadError::Damaged { .. } | ReadError::Corrupt { .. }) {
            self.corrupt_reads.fetch_add(1, Relaxed);
        }
        error
    }

    fn verify(
        &self,
        handle: Handle,
        index: u16,
        expected: u64,
        page: &[u8],
    ) -> Result<(), ReadError> {
        match self.hash(page) {
            found if found == expected => Ok(()),
            found => Err(self.count(ReadError::Corrupt { handle, index, expected, found })),
        }
    }

    /// Restores `wanted` of a block into `out`.
    fn decode(
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
                let len = self.pool.read(last, |header, _| usize::from(header.len)).unwrap_or(0);
                full - MAX_PAYLOAD_BYTES + len
            }
            _ => full,
        }
    }

    /// Copies `range` of the stored bytes of a block, from parts and tail.
    fn gather(
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
                let copied = self.pool.read(part, |header, payload| {
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

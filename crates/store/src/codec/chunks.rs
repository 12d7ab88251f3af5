//! A block cut into chunks, each compressed alone, and the table of their lengths.
//!
//! The table has one length a chunk: one byte for chunks of up to 256 bytes, two up to 64 KiB, four
//! above; zero says that the chunk is stored as it is. A block of one chunk has no table.

use std::ops::Range;

use super::{CodecContext, DecodeError, Stored};

/// Smallest chunk, bytes; every chunk size is a multiple of it.
pub const MIN_CHUNK_BYTES: u32 = 256;
/// Largest chunk, bytes.
pub const MAX_CHUNK_BYTES: u32 = 128 << 10;

/// What compressing made of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// How its chunks are stored; [`Stored::Raw`] means: the block itself, as it is.
    pub codec: Stored,
    /// Chunk size in units of [`MIN_CHUNK_BYTES`]; zero if the whole block is one chunk.
    pub chunk_units: u16,
}

/// A chunk is stored raw unless compression saves a 32nd of it.
pub(crate) fn worth_bytes(chunk_bytes: usize) -> usize {
    chunk_bytes - (chunk_bytes / 32).max(1)
}

/// Bytes of one entry of the length table.
#[inline]
pub fn length_width(chunk_units: u16) -> usize {
    match chunk_units {
        0 => 0,
        1 => 1,
        2..=256 => 2,
        _ => 4,
    }
}

/// Bytes of the length table of a block.
#[inline]
pub fn table_bytes(block_bytes: usize, chunk_units: u16) -> usize {
    match chunk_units {
        0 => 0,
        units => {
            let chunk_bytes = usize::from(units) * MIN_CHUNK_BYTES as usize;
            block_bytes.div_ceil(chunk_bytes) * length_width(units)
        }
    }
}

/// One chunk of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it is among the stored bytes.
    pub stored: Range<usize>,
    /// Where it belongs in the block.
    pub plain: Range<usize>,
    /// How it is stored.
    pub codec: Stored,
}

/// The chunks that hold `wanted` of a block, by its length table. Damaged tables give ranges behind
/// the stored bytes; whoever slices checks.
#[inline]
pub fn covering(
    encoded: Encoded,
    block_bytes: usize,
    stored_bytes: usize,
    table: &[u8],
    wanted: Range<usize>,
) -> impl Iterator<Item = Chunk> {
    let whole = encoded.chunk_units == 0;
    let chunk_bytes = match whole {
        true => block_bytes,
        false => usize::from(encoded.chunk_units) * MIN_CHUNK_BYTES as usize,
    };
    let width = length_width(encoded.chunk_units);
    let mut at = 0usize;
    let end = wanted.end;
    (0..block_bytes.div_ceil(chunk_bytes.max(1)))
        .map(move |i| {
            let plain = i * chunk_bytes..((i + 1) * chunk_bytes).min(block_bytes);
            let length = match table.get(i * width..(i + 1) * width) {
                Some(&[]) => stored_bytes,
                Some(&[a]) => usize::from(a),
                Some(&[a, b]) => usize::from(u16::from_le_bytes([a, b])),
                Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]) as usize,
                // A table too short: no chunk can be that long, so decoding fails.
                _ => usize::MAX / 2,
            };
            let (codec, length) = match length {
                0 if !whole => (Stored::Raw, plain.len()),
                length => (encoded.codec, length),
            };
            let stored = at..at.saturating_add(length);
            at = stored.end;
            Chunk { stored, plain, codec }
        })
        .take_while(move |chunk| chunk.plain.start < end)
        .filter(move |chunk| chunk.plain.end > wanted.start)
}

impl CodecContext {
    /// Compresses `block` in chunks of `chunk_bytes` into `self.packed` and `self.lengths`.
    pub(crate) fn encode(&mut self, block: &[u8], codec: Stored, chunk_bytes: u32) -> Encoded {
        const RAW: Encoded = Encoded { codec: Stored::Raw, chunk_units: 0 };
        self.lengths.clear();
        if codec == Stored::Raw {
            return RAW;
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(packed.len().max(block.len()), 0);
        let (encoded, len) = if chunk_bytes as usize >= block.len() {
            match self.compress(codec, block, &mut packed[..worth_bytes(block.len())]) {
                Some(len) => (Encoded { codec, chunk_units: 0 }, len),
                None => (RAW, 0),
            }
        } else {
            self.encode_chunks(block, codec, chunk_bytes, &mut packed)
        };
        self.packed = packed;
        self.packed_len = len;
        encoded
    }

    fn encode_chunks(
        &mut self,
        block: &[u8],
        codec: Stored,
        chunk_bytes: u32,
        packed: &mut [u8],
    ) -> (Encoded, usize) {
        let chunk_units = (chunk_bytes / MIN_CHUNK_BYTES) as u16;
        let width = length_width(chunk_units);
        let (mut at, mut any) = (0, false);
        for chunk in block.chunks(chunk_bytes as usize) {
            let limit = at + worth_bytes(chunk.len());
            let length = match self.compress(codec, chunk, &mut packed[at..limit]) {
                Some(length) => {
                    any = true;
                    at += length;
                    length
                }
                None => {
                    packed[at..at + chunk.len()].copy_from_slice(chunk);
                    at += chunk.len();
                    0
                }
            };
            self.lengths.extend_from_slice(&(length as u32).to_le_bytes()[..width]);
        }
        match any {
            true => (Encoded { codec, chunk_units }, at),
            false => {
                self.lengths.clear();
                (Encoded { codec: Stored::Raw, chunk_units: 0 }, 0)
            }
        }
    }

    /// Restores the part of `chunk` that lies in `wanted` to its place in `out`, which stands for
    /// `wanted`. `stored` are the chunk's stored bytes.
    pub(crate) fn decode_chunk(
        &mut self,
        chunk: &Chunk,
        stored: &[u8],
        wanted: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let from = chunk.plain.start.max(wanted.start);
        let to = chunk.plain.end.min(wanted.end);
        let out = &mut out[from - wanted.start..to - wanted.start];
        if from == chunk.plain.start && to == chunk.plain.end {
            return self.decompress(chunk.codec, stored, out);
        }
        if from == chunk.plain.start
            && let Some(done) = self.decompress_prefix(chunk.codec, stored, out)
        {
            return done;
        }
        if chunk.codec == Stored::Raw {
            let at = from - chunk.plain.start;
            let Some(bytes) = stored.get(at..at + out.len()) else {
                return Err(DecodeError {
                    codec: "raw",
                    stored_bytes: stored.len(),
                    wanted_bytes: out.len(),
                });
            };
            out.copy_from_slice(bytes);
            return Ok(());
        }
        // In the middle of a chunk: restore what comes before it too.
        let needed = to - chunk.plain.start;
        let mut plain = std::mem::take(&mut self.plain);
        if plain.len() < chunk.plain.len() {
            plain.resize(chunk.plain.len(), 0);
        }
        let done = match self.decompress_prefix(chunk.codec, stored, &mut plain[..needed]) {
            Some(done) => done,
            None => self.decompress(chunk.codec, stored, &mut plain[..chunk.plain.len()]),
        };
        if done.is_ok() {
            out.copy_from_slice(&plain[from - chunk.plain.start..needed]);
        }
        self.plain = plain;
        done
    }
}

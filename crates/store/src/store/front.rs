//! The front of a block: what a framed object says before the stored bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | pages of the block, minus one |
//! | 1 | parts |
//! | 2 | chunk size in units of 256 bytes (10 bits; 0: the block is one chunk), two flags at the top |
//! | 8 (pages - 1) | checksums of all pages but the first, which is in the object's header |
//! | 4 (pages - 1) | offsets, if any: how many pages behind the first one these pages were |
//! | 1, 2 or 4 a chunk | lengths of the chunks, none if there is one |
//! | 4 a part | handles of the parts |
//! | the rest | the end of the stored bytes, all of them if there are no parts |
//!
//! Offsets are signed, in pages of the program; -2^31 says "too far". They are a hint, which the page
//! table confirms or not, and are left out where they do not fit.
//!
//! Stored bytes that do not fit behind the front are in parts, objects of a whole frame, from the
//! first byte on. Numbers are little-endian.

use clew_core::Vpn;

use crate::codec::Stored;
use crate::codec::chunks::{Encoded, table_bytes};
use crate::pool::object::MAX_PAYLOAD_BYTES;

/// Bytes before the checksums.
pub(super) const FIXED_BYTES: usize = 4;
/// There are offsets.
const HAS_OFFSETS: u16 = 1 << 15;
/// Who restores a page parks the others.
const PARK: u16 = 1 << 14;
const CHUNK_UNITS: u16 = (1 << 10) - 1;
/// An offset that does not fit.
const FAR: i32 = i32::MIN;

/// A parsed front, with the tail that follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front<'a> {
    pub pages: u16,
    pub park: bool,
    pub encoded: Encoded,
    checksums: &'a [u8],
    offsets: &'a [u8],
    pub table: &'a [u8],
    parts: &'a [u8],
    pub tail: &'a [u8],
}

impl<'a> Front<'a> {
    /// Parses a framed payload; `None` if it is too short for what it says.
    #[inline]
    pub fn parse(codec: Stored, payload: &'a [u8], page_bytes: usize) -> Option<Front<'a>> {
        let ([pages, parts, u0, u1], rest) = payload.split_first_chunk::<FIXED_BYTES>()?;
        let pages = u16::from(*pages) + 1;
        let word = u16::from_le_bytes([*u0, *u1]);
        let (chunk_units, park) = (word & CHUNK_UNITS, word & PARK != 0);
        let others = usize::from(pages) - 1;
        let (checksums, rest) = rest.split_at_checked(others * 8)?;
        let offsets = if word & HAS_OFFSETS != 0 { others * 4 } else { 0 };
        let (offsets, rest) = rest.split_at_checked(offsets)?;
        let table = table_bytes(usize::from(pages) * page_bytes, chunk_units);
        let (table, rest) = rest.split_at_checked(table)?;
        let (parts, tail) = rest.split_at_checked(usize::from(*parts) * 4)?;
        let encoded = Encoded { codec, chunk_units };
        Some(Front { pages, park, encoded, checksums, offsets, table, parts, tail })
    }

    /// The front of a block whose stored bytes are `bytes`, none of them in parts.
    pub fn with_bytes<'b>(self, bytes: &'b [u8]) -> Front<'b>
    where
        'a: 'b,
    {
        Front { tail: bytes, ..self }
    }

    /// The checksum of page `index`; `first` is the one in the header.
    #[inline]
    pub fn checksum(&self, first: u64, index: u16) -> Option<u64> {
        match index {
            0 => Some(first),
            index => {
                let word = self.checksums.as_chunks::<8>().0.get(usize::from(index) - 1)?;
                Some(u64::from_le_bytes(*word))
            }
        }
    }

    /// How far each page is from the first one, as far as that is known.
    #[inline]
    pub fn offsets(&self) -> impl Iterator<Item = Option<i32>> + use<'a> {
        let others = self.offsets.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        std::iter::once(0).chain(others).map(|offset| (offset != FAR).then_some(offset))
    }

    /// Handles of the parts.
    #[inline]
    pub fn parts(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.parts.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// How many parts a block of `stored_bytes` needs, with checksums and lengths of `table_bytes` in
/// sum.
pub(super) fn parts_needed(stored_bytes: usize, table_bytes: usize) -> usize {
    let room = MAX_PAYLOAD_BYTES - FIXED_BYTES - table_bytes;
    // The fewest parts whose handles and whose rest fit into the room.
    let mut parts = 0;
    while parts * 4 + stored_bytes.saturating_sub(parts * MAX_PAYLOAD_BYTES) > room {
        parts += 1;
    }
    parts
}

/// Whether there is room for the offsets of a block of `pages` pages, where `table_bytes` are
/// taken by checksums and lengths and there may be `stored_bytes`.
pub(super) fn has_room_for_offsets(pages: usize, stored_bytes: usize, table_bytes: usize) -> bool {
    let handles = (stored_bytes.div_ceil(MAX_PAYLOAD_BYTES) + 1) * 4;
    FIXED_BYTES + table_bytes + (pages - 1) * 4 + handles <= MAX_PAYLOAD_BYTES
}

/// Writes what is of a fixed length, to an empty front.
pub(super) fn begin(
    front: &mut Vec<u8>,
    pages: usize,
    parts: usize,
    chunk_units: u16,
    has_offsets: bool,
    park: bool,
) {
    front.clear();
    front.push((pages - 1) as u8);
    front.push(parts as u8);
    let flags = if has_offsets { HAS_OFFSETS } else { 0 } | if park { PARK } else { 0 };
    front.extend_from_slice(&(chunk_units | flags).to_le_bytes());
}

/// The word of a front that says how it is cut, as it is of a block that is one chunk.
pub(super) fn without_chunk_units(word: u16) -> u16 {
    word & !CHUNK_UNITS
}

/// The offset of the page at `vpn` from the first one at `first`, as it is stored.
pub(super) fn offset(first: Vpn, vpn: Vpn) -> [u8; 4] {
    let offset = (vpn.0 as i64).wrapping_sub(first.0 as i64);
    i32::try_from(offset).unwrap_or(FAR).to_le_bytes()
}

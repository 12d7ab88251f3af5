//! The front of a block: what a framed object says before the stored bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | pages of the block, minus one |
//! | 1 | parts |
//! | 2 | chunk size in units of 256 bytes; 0: the block is one chunk |
//! | 8 (pages - 1) | checksums of all pages but the first, which is in the object's header |
//! | 1, 2 or 4 a chunk | lengths of the chunks, none if there is one |
//! | 4 a part | handles of the parts |
//! | the rest | the end of the stored bytes, all of them if there are no parts |
//!
//! Stored bytes that do not fit behind the front are in parts, objects of a whole frame, from the
//! first byte on. Numbers are little-endian.

use crate::codec::Stored;
use crate::codec::chunks::{Encoded, table_bytes};
use crate::pool::object::MAX_PAYLOAD_BYTES;

/// Bytes before the checksums.
const FIXED_BYTES: usize = 4;

/// A parsed front, with the tail that follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front<'a> {
    pub pages: u16,
    pub encoded: Encoded,
    checksums: &'a [u8],
    pub table: &'a [u8],
    parts: &'a [u8],
    pub tail: &'a [u8],
}

impl<'a> Front<'a> {
    /// Parses a framed payload; `None` if it is too short for what it says.
    pub fn parse(codec: Stored, payload: &'a [u8], page_bytes: usize) -> Option<Front<'a>> {
        let ([pages, parts, u0, u1], rest) = payload.split_first_chunk::<FIXED_BYTES>()?;
        let pages = u16::from(*pages) + 1;
        let chunk_units = u16::from_le_bytes([*u0, *u1]);
        let (checksums, rest) = rest.split_at_checked((usize::from(pages) - 1) * 8)?;
        let table = table_bytes(usize::from(pages) * page_bytes, chunk_units);
        let (table, rest) = rest.split_at_checked(table)?;
        let (parts, tail) = rest.split_at_checked(usize::from(*parts) * 4)?;
        let encoded = Encoded { codec, chunk_units };
        Some(Front { pages, encoded, checksums, table, parts, tail })
    }

    /// The checksum of page `index`; `first` is the one in the header.
    pub fn checksum(&self, first: u64, index: u16) -> Option<u64> {
        match index {
            0 => Some(first),
            index => {
                let word = self.checksums.as_chunks::<8>().0.get(usize::from(index) - 1)?;
                Some(u64::from_le_bytes(*word))
            }
        }
    }

    /// Handles of the parts.
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

/// Writes the first bytes of a front.
pub(super) fn begin(front: &mut Vec<u8>, pages: usize, parts: usize, chunk_units: u16) {
    front.clear();
    front.push((pages - 1) as u8);
    front.push(parts as u8);
    front.extend_from_slice(&chunk_units.to_le_bytes());
}

//! The 14 bytes in front of every object, and how they lie in memory.
//!
//! | bytes | live object | free object |
//! |---|---|---|
//! | 0..8 | checksum of the (first) page | - |
//! | 8..12 | handle, never zero | zero |
//! | 12..14 | payload length (12 bits), codec (3), framed (1) | index of the next free object |
//!
//! Seven is no codec: an object that says so is a stub, if framed, and else a part.

use crate::codec::Stored;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 14;
/// Longest payload, bytes.
pub const MAX_PAYLOAD_BYTES: usize = super::class::MAX_OBJECT_BYTES - HEADER_BYTES;

const NO_CODEC: u16 = 7;

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the first page.
    pub checksum: u64,
    /// Who owns it.
    pub handle: u32,
    /// Payload bytes, up to [`MAX_PAYLOAD_BYTES`].
    pub len: u16,
    /// What the payload is.
    pub codec: Stored,
    /// The payload begins with the front of a block. Never of a stub or a part.
    pub framed: bool,
}

impl Header {
    /// The bytes to store.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (codec, framed) = match self.codec {
            Stored::Stub => (NO_CODEC, true),
            Stored::Part => (NO_CODEC, false),
            codec => (codec as u16, self.framed),
        };
        let meta = self.len | codec << 12 | u16::from(framed) << 15;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.handle.to_le_bytes());
        bytes[12..].copy_from_slice(&meta.to_le_bytes());
        bytes
    }

    /// The header, unless no header looks like this.
    #[inline]
    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Option<Header> {
        let [c0, c1, c2, c3, c4, c5, c6, c7, h0, h1, h2, h3, m0, m1] = bytes;
        let meta = u16::from_le_bytes([m0, m1]);
        let (codec, framed) = match (meta >> 12 & 7, meta >> 15 != 0) {
            (NO_CODEC, true) => (Stored::Stub, false),
            (NO_CODEC, false) => (Stored::Part, false),
            (codec, framed) => (Stored::from_bits(codec as u8)?, framed),
        };
        Some(Header {
            checksum: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            handle: u32::from_le_bytes([h0, h1, h2, h3]),
            len: meta & 0xfff,
            codec,
            framed,
        })
    }

    /// A free object that points to the next one.
    pub fn free_bytes(next: u16) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[12..].copy_from_slice(&next.to_le_bytes());
        bytes
    }

    /// Owner (zero: free) and the last field of a header, read as of a free object.
    pub fn owner_and_next(bytes: [u8; HEADER_BYTES]) -> (u32, u16) {
        let [.., h0, h1, h2, h3, n0, n1] = bytes;
        (u32::from_le_bytes([h0, h1, h2, h3]), u16::from_le_bytes([n0, n1]))
    }
}

/// Bytes of the payload that `pieces` make.
pub(super) fn payload_bytes(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// Writes an object of these pieces, one behind the other.
///
/// # Safety
/// Header and pieces fit there, and nobody else reads or writes it.
pub(super) unsafe fn write(to: *mut u8, header: &Header, pieces: &[&[u8]]) {
    // SAFETY: as the caller says.
    unsafe {
        to.cast::<[u8; HEADER_BYTES]>().write(header.to_bytes());
        let mut to = to.add(HEADER_BYTES);
        for piece in pieces {
            to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            to = to.add(piece.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_their_bytes() {
        use Stored::*;
        for codec in [Raw, Same, Lz4, Zstd, ZstdDictionary, Lzo, BaseDeltaImmediate, Stub, Part] {
            for (len, framed) in [(0, false), (1, true), (MAX_PAYLOAD_BYTES as u16, true)] {
                let framed = framed && !matches!(codec, Stub | Part);
                let header =
                    Header { checksum: u64::MAX - 1, handle: 0x8000_0001, len, codec, framed };
                assert_eq!(Header::from_bytes(header.to_bytes()), Some(header));
                assert_eq!(Header::owner_and_next(header.to_bytes()).0, 0x8000_0001);
            }
        }
        assert_eq!(Header::owner_and_next(Header::free_bytes(77)), (0, 77));
    }
}

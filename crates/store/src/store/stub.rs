//! The stub of a block that is in a log, on flash or at a donor: what stays of it in the pool.
//!
//! | bytes | what |
//! |---|---|
//! | 20 | its place there |
//! | 1 | what its bytes are: codec (3 bits), framed (bit 7) |
//! | 4 | its dictionary, if it needs one |
//! | the rest | if it is framed: its front, without parts and tail |
//!
//! The header in front has the checksum of the first page, as the block's had. On flash are the stored bytes: of a
//! framed block what its parts and its tail had, of another one its payload.

use super::Handle;
use super::dictionary::named;
use crate::codec::Stored;
use crate::flash::{PLACE_BYTES, Place};
use crate::pool::object::Header;

const FRAMED: u8 = 1 << 7;

/// A block, wherever its bytes are: what its object in the pool says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// What the stored bytes are.
    pub codec: Stored,
    /// Whether `body` begins with a front.
    pub framed: bool,
    /// Of a block in the pool: its payload. Of one on flash: its front, if it has one.
    pub body: &'a [u8],
    /// The other block that it needs.
    pub dictionary: Option<Handle>,
    /// Where it is, if that is flash.
    pub place: Option<Place>,
}

impl<'a> Seen<'a> {
    /// What an object says; `None` if it is no block.
    #[inline]
    pub fn of(header: &Header, payload: &'a [u8]) -> Option<Seen<'a>> {
        let Header { codec, framed, .. } = *header;
        match codec {
            Stored::Part => None,
            Stored::Stub => Seen::of_stub(payload),
            _ => {
                let dictionary = named(header, payload);
                Some(Seen { codec, framed, body: payload, dictionary, place: None })
            }
        }
    }

    fn of_stub(payload: &'a [u8]) -> Option<Seen<'a>> {
        let (place, rest) = payload.split_first_chunk::<PLACE_BYTES>()?;
        let (kind, mut body) = rest.split_first()?;
        let codec = Stored::from_bits(kind & !FRAMED)?;
        let framed = kind & FRAMED != 0;
        let mut dictionary = None;
        if codec == Stored::ZstdDictionary && !framed {
            let (name, rest) = body.split_first_chunk::<4>()?;
            dictionary = Some(Handle::from_raw(u32::from_le_bytes(*name))?);
            body = rest;
        }
        let place = Some(Place::from_bytes(*place)?);
        Some(Seen { codec, framed, body, dictionary, place })
    }
}

/// Writes a stub; its place is filled in by [`set_place`].
pub(super) fn write(
    stub: &mut Vec<u8>,
    codec: Stored,
    dictionary: Option<Handle>,
    front: Option<&[u8]>,
) {
    stub.clear();
    stub.extend_from_slice(&[0; PLACE_BYTES]);
    stub.push(codec as u8 | if front.is_some() { FRAMED } else { 0 });
    if let Some(dictionary) = dictionary {
        stub.extend_from_slice(&dictionary.raw().to_le_bytes());
    }
    stub.extend_from_slice(front.unwrap_or(&[]));
}

/// Says where the block of a stub is.
pub(super) fn set_place(stub: &mut [u8], place: Place) {
    stub[..PLACE_BYTES].copy_from_slice(&place.to_bytes());
}

//! LZO1X, in the stream format of Oberhumer's library (as the kernel documents it in
//! `Documentation/staging/lzo.rst`), without the kernel's runs of zeros. The papers measure with LZO.
//!
//! A stream is a list of instructions. Each copies bytes from what was written already, and is followed by
//! up to three literals whose number stands in its lowest two bits; more of them have an instruction of
//! their own. What a byte below 16 means depends on how many literals came before it.
//!
//! | byte | copies | from as far back as |
//! |---|---|---|
//! | `0000 LLLL` after a copy without literals | 4 literals and more | - |
//! | `0000 DDSS`, byte; after 1 to 3 literals | 2 | 1 KiB |
//! | `0000 DDSS`, byte; after 4 and more | 3 | 2 to 3 KiB |
//! | `0001 HLLL`, two bytes | 3 and more | 16 to 48 KiB; 16 KiB itself is the end |
//! | `001L LLLL`, two bytes | 3 and more | 16 KiB |
//! | `01LD DDSS`, byte | 3 or 4 | 2 KiB |
//! | `1LLD DDSS`, byte | 5 to 8 | 2 KiB |
//!
//! A length that does not fit is zero, then bytes of zero for 255 each, then the rest. A stream may begin with
//! `17 + n`, for n literals.

mod read;
mod write;

use super::{Codec, DecodeError, decode_error};
use write::Table;

/// The farthest of each kind of copy.
const FAR_SHORT: usize = 2 << 10;
const FAR_MIDDLE: usize = 16 << 10;
/// Added to the distance of the farthest kind.
const BEYOND: usize = 16 << 10;
const FAR_LONG: usize = (48 << 10) - 1;

/// LZO1X with a search as fast as that of the library's `lzo1x_1`.
#[derive(Default)]
pub struct Lzo {
    table: Table,
}

impl Codec for Lzo {
    const NAME: &'static str = "lzo";

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        write::compress(&mut self.table, src, dst)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        match read::decompress(src, dst) {
            Some(end) if end.is_whole => Ok(()),
            _ => Err(decode_error::<Lzo>(src, dst)),
        }
    }

    fn decompress_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Option<Result<(), DecodeError>> {
        Some(match read::decompress(src, dst) {
            Some(_) => Ok(()),
            None => Err(decode_error::<Lzo>(src, dst)),
        })
    }
}

#[cfg(test)]
mod tests;

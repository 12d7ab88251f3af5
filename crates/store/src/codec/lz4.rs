//! LZ4 block format, by the C library.
//!
//! Measured on 22,000 pages of a running Python (4 KiB chunks): restores in 1.25 us where the Rust
//! implementation takes 1.55; both compress in 4.4 to 5.1 us. The 16 KiB hash table is the
//! binding's own, one a thread, reset by moving its epoch on rather than by clearing it.

use super::{Codec, DecodeError, decode_error};

/// LZ4 at acceleration 1.
pub struct Lz4;

impl Codec for Lz4 {
    const NAME: &'static str = "lz4";

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        lzzzz::lz4::compress(src, dst, lzzzz::lz4::ACC_LEVEL_DEFAULT).ok()
    }

    #[inline]
    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        match lzzzz::lz4::decompress(src, dst) {
            Ok(len) if len == dst.len() => Ok(()),
            _ => Err(decode_error::<Lz4>(src, dst)),
        }
    }

    fn decompress_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Option<Result<(), DecodeError>> {
        let target = dst.len();
        Some(match lzzzz::lz4::decompress_partial(src, dst, target) {
            Ok(len) if len == target => Ok(()),
            _ => Err(decode_error::<Lz4>(src, dst)),
        })
    }
}

//! Bytes stored as they are.

use super::{Codec, DecodeError, decode_error};

/// No compression.
pub struct Raw;

impl Codec for Raw {
    const NAME: &'static str = "raw";

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        dst.get_mut(..src.len())?.copy_from_slice(src);
        Some(src.len())
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        if src.len() != dst.len() {
            return Err(decode_error::<Raw>(src, dst));
        }
        dst.copy_from_slice(src);
        Ok(())
    }

    fn decompress_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Option<Result<(), DecodeError>> {
        Some(match src.get(..dst.len()) {
            Some(front) => {
                dst.copy_from_slice(front);
                Ok(())
            }
            None => Err(decode_error::<Raw>(src, dst)),
        })
    }
}

//! Pages that repeat one word of eight bytes (zram's same-filled pages).

use super::{Codec, DecodeError, decode_error};

/// One word in place of the page.
pub struct Same;

/// The word that `bytes` (a multiple of 8) repeats, if it does. Most pages that do not are told
/// by their last word, then by their first line.
pub fn repeated_word(bytes: &[u8]) -> Option<u64> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    let (first, last) = (words.first()?, words.last()?);
    if first != last {
        return None;
    }
    let word = u64::from_ne_bytes(*first);
    for line in words.chunks(64) {
        // Without a branch a word: vectorised.
        let differing = line.iter().fold(0, |sum, w| sum | (u64::from_ne_bytes(*w) ^ word));
        if differing != 0 {
            return None;
        }
    }
    Some(word)
}

/// Whether `bytes` (a multiple of 8) are all zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    repeated_word(bytes) == Some(0)
}

impl Codec for Same {
    const NAME: &'static str = "same";

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let word = repeated_word(src)?;
        dst.get_mut(..8)?.copy_from_slice(&word.to_ne_bytes());
        Some(8)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let (Ok(word), true) = (<[u8; 8]>::try_from(src), dst.len().is_multiple_of(8)) else {
            return Err(decode_error::<Same>(src, dst));
        };
        for out in dst.as_chunks_mut::<8>().0 {
            *out = word;
        }
        Ok(())
    }

    fn decompress_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Option<Result<(), DecodeError>> {
        Some(self.decompress(src, dst))
    }
}

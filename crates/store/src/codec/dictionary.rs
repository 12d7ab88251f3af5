//! Zstandard at level -1 with a dictionary learned from pages of one program, for single pages.
//!
//! Measured on 5,300 pages of seven live programs (4 KiB chunks, 16 KiB of dictionary from 256
//! pages): 4.4 times smaller where LZ4 makes them 2.7 times smaller and blocks of 16 KiB
//! at level -1 3.9 times, and a page comes back alone, in 5 us, where such a block takes 11 to 25. The
//! dictionary brings what a page is too short for: its tables of symbols, and what recurs. (That was at level 1.
//! At -1, where literals stay as they are, pages of a language server and a notebook are 4 % larger and come back
//! in 2.3 us for 3.1; eight returns took 16.4 s of CPU for 17.6, the programs' own included.)
//!
//! (`clew bench codec` measures one for two programs.) LZ4 with the same dictionary was tried: faults
//! were cheaper, but the pool a third larger, and what the demo's programs use again and again had no
//! room at half their memory.
//!
//! Stored are the handle of the block that holds the dictionary (4 bytes, in the place of the magic
//! number, which is left out) and the rest of the frame.

use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, DParameter, FrameFormat, zstd_sys};

use super::{Codec, DecodeError};

/// Bytes of a dictionary.
pub(crate) const DICTIONARY_BYTES: usize = 16 << 10;
/// Bytes in front of what is left of a frame.
pub(crate) const NAME_BYTES: usize = 4;
const NAME: &str = "zstd-dictionary";
const LEVEL: i32 = -1;
/// What a dictionary is learned for.
const LEARNED_LEVEL: i32 = 1;
/// Where a dictionary has its number, which frames need not repeat if it is zero.
const NUMBER: std::ops::Range<usize> = 4..8;

/// A dictionary made from `samples`, pages of `page_bytes` each; `None` if they are too few or too
/// alike. Takes 25 us a page, and 2 MiB meanwhile.
pub(crate) fn train(samples: &[u8], page_bytes: usize) -> Option<Vec<u8>> {
    let sizes = vec![page_bytes; samples.len() / page_bytes];
    let mut dictionary = vec![0; DICTIONARY_BYTES];
    let parameters = zstd_sys::ZDICT_fastCover_params_t {
        // Segments and their hashed parts, bytes; log of the table; speed.
        k: 512,
        d: 8,
        f: 18,
        steps: 0,
        nbThreads: 1,
        splitPoint: 0.0,
        accel: 4,
        shrinkDict: 0,
        shrinkDictMaxRegression: 0,
        zParams: zstd_sys::ZDICT_params_t {
            compressionLevel: LEARNED_LEVEL,
            notificationLevel: 0,
            dictID: 0,
        },
    };
    // SAFETY: both buffers are as long as is said, and the sizes add up to no more than the samples.
    let len = unsafe {
        zstd_sys::ZDICT_trainFromBuffer_fastCover(
            dictionary.as_mut_ptr().cast(),
            dictionary.len(),
            samples.as_ptr().cast(),
            sizes.as_ptr(),
            sizes.len() as u32,
            parameters,
        )
    };
    // SAFETY: looks at the number only.
    let failed = unsafe { zstd_sys::ZDICT_isError(len) } != 0;
    if failed || len <= NUMBER.end {
        return None;
    }
    dictionary[NUMBER].fill(0);
    Some(dictionary)
}

/// A dictionary for storing pages; about 85 KiB.
pub(crate) struct Encoder(CDict<'static>);

/// A dictionary for reading pages; about 45 KiB.
pub(crate) struct Decoder(DDict<'static>);

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoder")
    }
}

impl Encoder {
    /// `None` without memory, or if it is no dictionary.
    pub fn new(dictionary: &[u8]) -> Option<Encoder> {
        CDict::try_create(dictionary, LEVEL).map(Encoder)
    }
}

impl Decoder {
    /// `None` without memory, or if it is no dictionary.
    pub fn new(dictionary: &[u8]) -> Option<Decoder> {
        DDict::try_create(dictionary).map(Decoder)
    }
}

/// The contexts of a thread, made at the first use.
#[derive(Default)]
pub(crate) struct Contexts {
    compressor: Option<CCtx<'static>>,
    decompressor: Option<DCtx<'static>>,
}

impl Contexts {
    /// Compresses `page` into the front of `dst`, behind `name`, and returns the length of both;
    /// `None` if it does not fit.
    pub fn compress(
        &mut self,
        with: &Encoder,
        name: u32,
        page: &[u8],
        dst: &mut [u8],
    ) -> Option<usize> {
        if self.compressor.is_none() {
            self.compressor = Some(CCtx::try_create()?);
        }
        let len = self.compressor.as_mut()?.compress_using_cdict(dst, page, &with.0).ok()?;
        dst.get_mut(..NAME_BYTES)?.copy_from_slice(&name.to_le_bytes());
        Some(len)
    }

    /// Restores exactly `dst.len()` bytes from `frame`, which follows the name.
    pub fn decompress(
        &mut self,
        with: &Decoder,
        frame: &[u8],
        dst: &mut [u8],
    ) -> Result<(), DecodeError> {
        let failed = || decode_error(frame.len(), dst.len());
        if self.decompressor.is_none() {
            let mut ctx = DCtx::try_create().ok_or_else(failed)?;
            ctx.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(|_| failed())?;
            self.decompressor = Some(ctx);
        }
        let wanted = dst.len();
        let ctx = self.decompressor.as_mut();
        match ctx.map(|ctx| ctx.decompress_using_ddict(dst, frame, &with.0)) {
            Some(Ok(len)) if len == wanted => Ok(()),
            _ => Err(decode_error(frame.len(), wanted)),
        }
    }
}

/// Dictionary and contexts as a codec of its own, for who measures; stored bytes begin with four that
/// mean nothing.
pub struct Learned {
    encoder: Encoder,
    decoder: Decoder,
    contexts: Contexts,
}

impl Learned {
    /// Learns from `samples`, pages of `page_bytes` each; `None` if there is nothing to learn.
    pub fn new(samples: &[u8], page_bytes: usize) -> Option<Learned> {
        let dictionary = train(samples, page_bytes)?;
        let (encoder, decoder) = (Encoder::new(&dictionary)?, Decoder::new(&dictionary)?);
        Some(Learned { encoder, decoder, contexts: Contexts::default() })
    }
}

impl Codec for Learned {
    const NAME: &'static str = NAME;

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        self.contexts.compress(&self.encoder, 0, src, dst)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let frame = src.get(NAME_BYTES..).unwrap_or(&[]);
        self.contexts.decompress(&self.decoder, frame, dst)
    }
}

pub(crate) fn decode_error(stored_bytes: usize, wanted_bytes: usize) -> DecodeError {
    DecodeError { codec: NAME, stored_bytes, wanted_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::block_of;

    const PAGE: usize = 4096;

    fn learned(samples: &[u8]) -> (Encoder, Decoder) {
        let bytes = train(samples, PAGE).expect("a dictionary");
        assert_eq!(bytes.len(), DICTIONARY_BYTES);
        let ready = Encoder::new(&bytes).zip(Decoder::new(&bytes));
        ready.expect("a sound one")
    }

    #[test]
    fn pages_survive_and_are_smaller_than_without() {
        let pages = block_of(400, 9);
        let (samples, others) = pages.split_at(256 * PAGE);
        let (encoder, decoder) = learned(samples);
        let (mut contexts, mut plain) = (Contexts::default(), crate::codec::CodecContext::new());
        let (mut with, mut without) = (0, 0);
        for page in others.chunks_exact(PAGE) {
            let (mut stored, mut back) = ([0; PAGE], [0xaa; PAGE]);
            let Some(len) = contexts.compress(&encoder, 77, page, &mut stored) else { continue };
            assert_eq!(stored[..NAME_BYTES], 77u32.to_le_bytes());
            let frame = &stored[NAME_BYTES..len];
            contexts.decompress(&decoder, frame, &mut back).expect("what was compressed");
            assert_eq!(back, *page);
            with += len;
            plain.encode(page, crate::codec::Stored::Zstd, PAGE as u32);
            without += plain.packed_len;
        }
        assert!(with > 0 && with < without, "{with} bytes with, {without} without a dictionary");
    }

    #[test]
    fn what_is_damaged_or_too_short_is_an_error() {
        let pages = block_of(300, 3);
        let (encoder, decoder) = learned(&pages);
        let mut contexts = Contexts::default();
        let (mut stored, page) = ([0; PAGE], &pages[..PAGE]);
        let len = contexts.compress(&encoder, 1, page, &mut stored).expect("it fits");
        assert_eq!(contexts.compress(&encoder, 1, page, &mut [0; 16]), None);
        for cut in NAME_BYTES..len {
            let cut = &stored[NAME_BYTES..cut];
            assert!(contexts.decompress(&decoder, cut, &mut [0; PAGE]).is_err());
        }
        let whole = &stored[NAME_BYTES..len];
        assert!(contexts.decompress(&decoder, whole, &mut [0; PAGE - 1]).is_err());
        // Whatever the bytes are, nothing is read or written outside.
        for at in NAME_BYTES..len {
            let mut damaged = stored;
            damaged[at] ^= 0x5a;
            let _ = contexts.decompress(&decoder, &damaged[NAME_BYTES..len], &mut [0; PAGE]);
        }
    }

    #[test]
    fn nothing_is_learned_from_nothing() {
        assert_eq!(train(&[], PAGE), None);
        assert_eq!(train(&[0; PAGE], PAGE), None);
    }
}

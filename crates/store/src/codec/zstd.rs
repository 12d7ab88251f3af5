//! Zstandard at level -1, its fastest that still codes entropy well: on process pages it stores
//! 16 KiB chunks 1.67 times denser than LZ4 stores pages, for 1.5 times the CPU.
//!
//! Frames carry no magic number, checksum or dictionary id (the store has its own checksums), which
//! saves four bytes a chunk. Contexts are made at the first use and kept.

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat};

use super::{Codec, DecodeError, decode_error};

const LEVEL: i32 = -1;

/// Zstandard with its two contexts.
#[derive(Default)]
pub struct Zstd {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
}

fn new_compressor() -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::Format(FrameFormat::Magicless))?;
    compressor.set_parameter(CParameter::ChecksumFlag(false))?;
    compressor.set_parameter(CParameter::DictIdFlag(false))?;
    Ok(compressor)
}

fn new_decompressor() -> std::io::Result<Decompressor<'static>> {
    let mut decompressor = Decompressor::new()?;
    decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
    Ok(decompressor)
}

impl Codec for Zstd {
    const NAME: &'static str = "zstd";

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        if self.compressor.is_none() {
            // No memory for a context: the chunk is stored raw.
            self.compressor = Some(new_compressor().ok()?);
        }
        self.compressor.as_mut()?.compress_to_buffer(src, dst).ok()
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let failed = || decode_error::<Zstd>(src, dst);
        if self.decompressor.is_none() {
            self.decompressor = Some(new_decompressor().map_err(|_| failed())?);
        }
        let wanted = dst.len();
        match self.decompressor.as_mut().map(|d| d.decompress_to_buffer(src, dst)) {
            Some(Ok(len)) if len == wanted => Ok(()),
            _ => Err(decode_error::<Zstd>(src, dst)),
        }
    }
}

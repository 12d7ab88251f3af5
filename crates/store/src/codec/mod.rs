//! Codecs: each turns one chunk of bytes into fewer, and back.
//!
//! Decoders are given the exact original length and never read or write outside of what they were
//! handed, whatever the bytes are. All scratch state is in a [`CodecContext`], one a thread; once
//! it is warm, no call allocates. [`chunks`] cuts blocks into chunks.

mod base_delta_immediate;
pub mod chunks;
pub(crate) mod dictionary;
mod lz4;
mod lzo;
mod raw;
pub mod same;
mod zstd;

pub use base_delta_immediate::BaseDeltaImmediate;
pub use dictionary::Learned;
pub use lz4::Lz4;
pub use lzo::Lzo;
pub use raw::Raw;
pub use same::Same;
pub use zstd::Zstd;

/// Why bytes are not what a codec once wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{codec}: {stored_bytes} stored bytes do not decode to {wanted_bytes}")]
pub struct DecodeError {
    /// The codec's name.
    pub codec: &'static str,
    /// Length of the input.
    pub stored_bytes: usize,
    /// Length that should have come out.
    pub wanted_bytes: usize,
}

/// One way to make a chunk smaller.
pub trait Codec {
    /// Name, for messages.
    const NAME: &'static str;

    /// Compresses `src` into the front of `dst` and returns the length; `None` if it does not fit,
    /// and then `dst` holds anything.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize>;

    /// Restores exactly `dst.len()` bytes from exactly `src`. On an error `dst` holds anything.
    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError>;

    /// Restores the first `dst.len()` bytes of a longer chunk, where that is cheaper than all of
    /// it; `None` where it is not.
    fn decompress_prefix(
        &mut self,
        _src: &[u8],
        _dst: &mut [u8],
    ) -> Option<Result<(), DecodeError>> {
        None
    }
}

fn decode_error<C: Codec>(src: &[u8], dst: &[u8]) -> DecodeError {
    DecodeError { codec: C::NAME, stored_bytes: src.len(), wanted_bytes: dst.len() }
}

/// What stored bytes are. All but the last two are codecs, whose numbers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stored {
    /// The bytes themselves.
    Raw = 0,
    /// One repeated word.
    Same = 1,
    /// LZ4 chunks.
    Lz4 = 2,
    /// Zstandard chunks.
    Zstd = 3,
    /// A Zstandard frame that needs the dictionary it names.
    ZstdDictionary = 4,
    /// LZO1X chunks.
    Lzo = 5,
    /// Chunks of [`BaseDeltaImmediate`].
    BaseDeltaImmediate = 6,
    /// The place of a block that is on flash, and its front.
    Stub = 7,
    /// A piece of a block that another object describes.
    Part = 8,
}

impl Stored {
    /// The codec of this number.
    #[inline]
    pub fn from_bits(bits: u8) -> Option<Stored> {
        Some(match bits {
            0 => Stored::Raw,
            1 => Stored::Same,
            2 => Stored::Lz4,
            3 => Stored::Zstd,
            4 => Stored::ZstdDictionary,
            5 => Stored::Lzo,
            6 => Stored::BaseDeltaImmediate,
            _ => return None,
        })
    }
}

/// The scratch memory of one thread.
pub struct CodecContext {
    lz4: Lz4,
    lzo: Lzo,
    zstd: Zstd,
    pub(crate) dictionary: dictionary::Contexts,
    /// Compressed chunks of the block being stored.
    pub(crate) packed: Vec<u8>,
    /// How many bytes of `packed` are in use.
    pub(crate) packed_len: usize,
    /// Lengths of these chunks, as stored.
    pub(crate) lengths: Vec<u8>,
    /// The front of a block, which the store writes before its chunks, or the first object of one
    /// that it reads.
    pub(crate) front: Vec<u8>,
    /// Compressed chunks gathered from several objects.
    pub(crate) gathered: Vec<u8>,
    /// A chunk restored for the sake of a part of it.
    pub(crate) plain: Vec<u8>,
    /// How far the pages of the block read last are from its first one.
    pub(crate) offsets: Vec<Option<i32>>,
}

impl CodecContext {
    /// A cold context. It grows to about 1.5 MiB at most, when blocks of 512 KiB go through it.
    pub fn new() -> CodecContext {
        CodecContext {
            lz4: Lz4,
            lzo: Lzo::default(),
            zstd: Zstd::default(),
            dictionary: dictionary::Contexts::default(),
            packed: Vec::new(),
            packed_len: 0,
            lengths: Vec::new(),
            front: Vec::new(),
            // A page that does not compress is two objects: who answers faults needs no memory for it.
            gathered: Vec::with_capacity(8 << 10),
            plain: Vec::new(),
            offsets: Vec::new(),
        }
    }

    fn compress(&mut self, codec: Stored, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        match codec {
            Stored::Raw => Raw.compress(src, dst),
            Stored::Same => Same.compress(src, dst),
            Stored::Lz4 => self.lz4.compress(src, dst),
            Stored::Lzo => self.lzo.compress(src, dst),
            Stored::BaseDeltaImmediate => BaseDeltaImmediate.compress(src, dst),
            Stored::Zstd => self.zstd.compress(src, dst),
            // What names a dictionary is for the store.
            Stored::ZstdDictionary | Stored::Stub | Stored::Part => None,
        }
    }

    /// Restores a chunk whole.
    pub(crate) fn decompress(
        &mut self,
        codec: Stored,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), DecodeError> {
        match codec {
            Stored::Raw => Raw.decompress(src, dst),
            Stored::Same => Same.decompress(src, dst),
            Stored::Lz4 => self.lz4.decompress(src, dst),
            Stored::Lzo => self.lzo.decompress(src, dst),
            Stored::BaseDeltaImmediate => BaseDeltaImmediate.decompress(src, dst),
            Stored::Zstd => self.zstd.decompress(src, dst),
            Stored::ZstdDictionary | Stored::Stub | Stored::Part => Err(DecodeError {
                codec: "chunk",
                stored_bytes: src.len(),
                wanted_bytes: dst.len(),
            }),
        }
    }

    fn decompress_prefix(
        &mut self,
        codec: Stored,
        src: &[u8],
        dst: &mut [u8],
    ) -> Option<Result<(), DecodeError>> {
        match codec {
            Stored::Raw => Raw.decompress_prefix(src, dst),
            Stored::Same => Same.decompress_prefix(src, dst),
            Stored::Lz4 => self.lz4.decompress_prefix(src, dst),
            Stored::Lzo => self.lzo.decompress_prefix(src, dst),
            Stored::BaseDeltaImmediate => BaseDeltaImmediate.decompress_prefix(src, dst),
            Stored::Zstd => self.zstd.decompress_prefix(src, dst),
            Stored::ZstdDictionary | Stored::Stub | Stored::Part => None,
        }
    }
}

impl Default for CodecContext {
    fn default() -> CodecContext {
        CodecContext::new()
    }
}

#[cfg(test)]
pub(crate) mod tests;

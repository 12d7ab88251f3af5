//! Memory as direct I/O wants it.

use crate::PAGE_BYTES;

/// Bytes that begin at a multiple of a page, kept between reads.
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
}

impl AlignedBuffer {
    /// `len` bytes; what they hold is left from before.
    pub fn take(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + PAGE_BYTES {
            self.bytes.resize(len + PAGE_BYTES, 0);
        }
        let start = self.start();
        &mut self.bytes[start..start + len]
    }

    /// The first `len` bytes, which were taken before.
    pub fn filled(&self, len: usize) -> &[u8] {
        let start = self.start();
        &self.bytes[start..start + len]
    }

    fn start(&self) -> usize {
        self.bytes.as_ptr().align_offset(PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_whatever_its_size() {
        let mut buffer = AlignedBuffer::default();
        for len in [1, 4096, 100_000, 4096, 1 << 20] {
            let bytes = buffer.take(len);
            assert_eq!((bytes.as_ptr() as usize % PAGE_BYTES, bytes.len()), (0, len));
            bytes.fill(len as u8);
            assert!(buffer.filled(len).iter().all(|byte| *byte == len as u8));
        }
    }
}

//! LZO1X by its author's C library (`liblzo2`), where that is installed: the peer of our own. It is looked for when it
//! is to run and not linked, as its licence (GPL) is not ours.

use libloading::Library;

use clew_store::codec::{Codec, DecodeError};

const NAME: &str = "liblzo2";
const FILE: &str = "liblzo2.so.2";
/// What `lzo1x_1_compress` works in: 2^14 pointers (`LZO1X_1_MEM_COMPRESS`).
const WORK_WORDS: usize = 1 << 14;
const LZO_E_OK: i32 = 0;

type Init = unsafe extern "C" fn(u32, i32, i32, i32, i32, i32, i32, i32, i32, i32) -> i32;
/// Source, its length, destination, its length in and out, memory to work in.
type Call = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut u64) -> i32;

/// The library, and what it works in.
pub(super) struct Liblzo2 {
    compress: Call,
    decompress: Call,
    work: Vec<u64>,
    /// It writes beyond what a chunk may take before it is known that it is too long.
    packed: Vec<u8>,
    /// Last: it has the code of the others.
    _library: Library,
}

impl Liblzo2 {
    /// The library, if there is one that can be used.
    pub(super) fn find() -> Option<Liblzo2> {
        // SAFETY: a system's library of that name and version does nothing when it is loaded.
        let library = unsafe { Library::new(FILE) }.ok()?;
        // SAFETY: the functions have these types in every version 2 of the library (`lzo1x.h`, `lzoconf.h`), which
        // its name says it is. They are called only while the library is loaded.
        let (init, compress, decompress) = unsafe {
            let init: Init = *library.get(b"__lzo_init_v2\0").ok()?;
            let compress: Call = *library.get(b"lzo1x_1_compress\0").ok()?;
            let decompress: Call = *library.get(b"lzo1x_decompress_safe\0").ok()?;
            (init, compress, decompress)
        };
        // SAFETY: any numbers may be given; -1 asks for no check of a size.
        let ready = unsafe { init(0x2000, -1, -1, -1, -1, -1, -1, -1, -1, -1) };
        let (work, packed) = (vec![0; WORK_WORDS], Vec::new());
        (ready == LZO_E_OK).then_some(Liblzo2 {
            compress,
            decompress,
            work,
            packed,
            _library: library,
        })
    }
}

impl Codec for Liblzo2 {
    const NAME: &'static str = NAME;

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // The library's own bound of what a source becomes.
        let most = src.len() + src.len() / 16 + 67;
        self.packed.resize(most.max(self.packed.len()), 0);
        let mut length = 0;
        // SAFETY: the destination has room for the longest stream of that source, and the work memory its size.
        let result = unsafe {
            let (to, work) = (self.packed.as_mut_ptr(), self.work.as_mut_ptr());
            (self.compress)(src.as_ptr(), src.len(), to, &raw mut length, work)
        };
        let packed = self.packed.get(..length).filter(|_| result == LZO_E_OK)?;
        dst.get_mut(..length)?.copy_from_slice(packed);
        Some(length)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let mut length = dst.len();
        // SAFETY: this variant writes no more than `length` bytes, and reads none beyond the source; it needs no
        // memory to work in.
        let result = unsafe {
            let none = std::ptr::null_mut();
            (self.decompress)(src.as_ptr(), src.len(), dst.as_mut_ptr(), &raw mut length, none)
        };
        if result == LZO_E_OK && length == dst.len() {
            return Ok(());
        }
        Err(DecodeError { codec: NAME, stored_bytes: src.len(), wanted_bytes: dst.len() })
    }
}

#[cfg(test)]
mod tests {
    use clew_store::codec::Lzo;

    use super::*;
    use crate::skip::skip;

    #[test]
    fn each_reads_what_the_other_has_written() {
        let Some(mut library) = Liblzo2::find() else {
            return skip(
                "liblzo2::each_reads_what_the_other_has_written",
                "liblzo2 is not installed",
            );
        };
        let mut ours = Lzo::default();
        let text: Vec<u8> = (0..4096u32).flat_map(|n| (n / 7 % 251).to_le_bytes()).collect();
        for page in text.chunks(4096) {
            let (mut packed, mut back) = (vec![0; 4095], vec![0; 4096]);
            let length = library.compress(page, &mut packed).unwrap();
            ours.decompress(&packed[..length], &mut back).unwrap();
            assert_eq!(back, page);
            let length = ours.compress(page, &mut packed).unwrap();
            back.fill(0);
            library.decompress(&packed[..length], &mut back).unwrap();
            assert_eq!(back, page);
            assert!(library.decompress(&packed[..length - 1], &mut back).is_err());
        }
    }
}

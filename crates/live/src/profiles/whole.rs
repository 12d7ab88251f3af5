//! The file of a database that has to prove itself. `redb` believes one that was closed in order, without a look at
//! its checksums, and has memory for whatever a page's number says that its length is: one wrong byte asks for 8 TiB,
//! and nobody can catch that. So each file is shown to it as one that was not closed in order, of which it checks
//! all that it follows, from the header on. Of the header's first part there is no checksum: it must fit the file.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// The header: its length, and where in it is what (redb 3, `page_store/header.rs`).
const HEADER: usize = 320;
const FLAGS: usize = 9;
const LAYOUT: usize = 12;
/// Flags: it was not closed in order; and its last transaction was written so carefully that what it says of itself
/// is believed.
const RECOVERY: u8 = 2;
const TWO_PHASE: u8 = 4;
/// Bytes of a page, and the most pages that a region has.
const PAGE: u64 = 4096;
const MOST_PAGES: u64 = 1 << 20;

/// The file.
#[derive(Debug)]
pub struct Whole {
    file: FileBackend,
    is_shown: AtomicBool,
}

impl Whole {
    /// Nothing of `file` has been read yet.
    pub fn new(file: FileBackend) -> Whole {
        Whole { file, is_shown: AtomicBool::new(false) }
    }
}

impl StorageBackend for Whole {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)?;
        let is_header = offset == 0 && out.len() >= HEADER;
        if is_header && !self.is_shown.swap(true, Ordering::Relaxed) {
            if !fits(out, self.file.len()?) {
                let why = "its header says what the file is too short for";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            out[FLAGS] = out[FLAGS] & !TWO_PHASE | RECOVERY;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Whether a file of `len` bytes has room for the regions of this header: some full ones, and one that is not.
fn fits(header: &[u8], len: u64) -> bool {
    let word = |number: usize| {
        let at = LAYOUT + 4 * number;
        u64::from(u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
    };
    let (page, before, most, full, rest) = (word(0), word(1), word(2), word(3), word(4));
    let pages_of = |rest: u64| if rest > 0 { before + rest } else { 0 };
    let pages = full.saturating_mul(pages_of(most)).saturating_add(pages_of(rest));
    page == PAGE
        && (1..=MOST_PAGES).contains(&most)
        && rest <= most
        && (1..len / PAGE).contains(&pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_fits_its_file() {
        let fits = |words: [u32; 5], pages: u64| {
            let layout = words.map(u32::to_le_bytes).concat();
            let mut header = [0xff; HEADER];
            header[LAYOUT..LAYOUT + layout.len()].copy_from_slice(&layout);
            fits(&header, pages * PAGE)
        };
        assert!(fits([4096, 0, 1 << 20, 0, 257], 258));
        assert!(fits([4096, 2, 10, 3, 5], 1 + 3 * 12 + 7));
        for (words, pages) in [
            ([4096, 0, 1 << 20, 0, 257], 257),
            ([4096, 2, 10, 3, 5], 3 * 12 + 7),
            // Of no pages, or too many at once.
            ([4096, 0, 1 << 20, 0, 0], 258),
            ([4096, 0, 0, 1, 0], 258),
            ([4096, 0, u32::MAX, 0, 257], 258),
            ([4096, 0, 256, 0, 257], 258),
            ([512, 0, 1 << 20, 0, 257], 258),
            ([4096, u32::MAX, 1 << 20, u32::MAX, 257], 258),
            ([4096, u32::MAX, 1 << 20, 0, 257], 258),
        ] {
            assert!(!fits(words, pages), "{words:?}");
        }
    }
}

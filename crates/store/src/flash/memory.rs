//! A device in memory, for replays and tests: what is written there dies with the process.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use super::device::{Device, Read, Write};

/// Bytes of a piece: so much is taken where something is written first.
const PIECE: usize = 1 << 20;

/// The device; a clone is the same one. What nothing was written to takes no memory, however large it is.
#[derive(Clone)]
pub struct MemoryDevice {
    bytes: u64,
    pieces: Arc<RwLock<HashMap<u64, Box<[u8]>>>>,
}

impl MemoryDevice {
    /// Of so many bytes, all zeros.
    pub fn new(bytes: u64) -> MemoryDevice {
        MemoryDevice { bytes, pieces: Arc::default() }
    }
}

/// The pieces of `len` bytes at `at`: of each its number, and which of its bytes.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (piece, end) = (PIECE as u64, at + len as u64);
    (at / piece..end.div_ceil(piece)).map(move |number| {
        let first = number * piece;
        let from = at.max(first) - first;
        let to = end.min(first + piece) - first;
        (number, from as usize..to as usize)
    })
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.bytes)
    }
}

impl Device for MemoryDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&self, Write { at, from, offset, len, .. }: Write<'_>) -> Option<io::Result<usize>> {
        if at.checked_add(len as u64).is_none_or(|end| end > self.bytes) {
            return Some(Err(io::ErrorKind::StorageFull.into()));
        }
        let mut all = self.pieces.write();
        let mut done = 0;
        for (number, range) in pieces(at, len) {
            let piece = all.entry(number).or_insert_with(|| vec![0; PIECE].into());
            let to = &mut piece[range];
            if let Err(error) = from.read_at(offset + done, to) {
                return Some(Err(io::Error::other(error)));
            }
            done += to.len();
        }
        Some(Ok(len))
    }

    fn read(&self, read: Read) {
        let Read { at, mut into, told, .. } = read;
        let to = into.bytes_mut();
        let len = self.bytes.saturating_sub(at).min(to.len() as u64) as usize;
        let all = self.pieces.read();
        let mut rest = &mut to[..len];
        for (number, range) in pieces(at, len) {
            let (now, later) = rest.split_at_mut(range.len());
            match all.get(&number) {
                Some(piece) => now.copy_from_slice(&piece[range]),
                None => now.fill(0),
            }
            rest = later;
        }
        drop(all);
        told(Ok(len), into);
    }

    fn way(&self) -> &'static str {
        "memory"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::device::Blocks;
    use super::*;
    use crate::segment::Segment;

    #[test]
    fn a_device_larger_than_any_memory_holds_what_was_written() {
        let device = MemoryDevice::new(16 << 40);
        // Over the edge of a piece.
        let at = (9 << 40) + PIECE as u64 - 4096;
        let from = Segment::new("from", 1 << 20).expect("a segment");
        let told: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
        from.write_at(0, &told).expect("it has room");
        let write = |at| {
            let told = Box::new(|_| panic!("it is over at once"));
            device.write(Write { at, from: &from, offset: 0, len: 8192, told })
        };
        assert_eq!(write(at).and_then(Result::ok), Some(8192));
        assert!(write((16 << 40) - 4096).is_some_and(|written| written.is_err()), "no room");
        let read = |at| {
            let (tell, is_told) = mpsc::channel();
            let told = Box::new(move |got, into: Blocks| {
                tell.send((got, into)).expect("somebody waits");
            });
            let into = Blocks::zeroed(8192);
            device.read(Read { at, into, told, pressing: false, tries: 0 });
            let (got, mut into) = is_told.recv().expect("at once");
            (got.expect("it is there"), into.bytes_mut().to_vec())
        };
        assert_eq!(read(at), (8192, told));
        assert_eq!(read(at - 8192), (8192, vec![0; 8192]), "nothing was written there");
        assert_eq!(read((16 << 40) - 4096).0, 4096, "no more is there");
        assert_eq!(device.pieces.read().len(), 2);
    }
}

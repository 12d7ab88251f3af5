//! A device in memory, for replays and tests: what is written there dies with the process.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use super::device::{Device, Read, Write};

/// The device; a clone is the same one. Memory that nothing was written to is not used.
#[derive(Clone)]
pub struct MemoryDevice(Arc<RwLock<Vec<u8>>>);

impl MemoryDevice {
    /// Of so many bytes, all zeros.
    pub fn new(bytes: usize) -> MemoryDevice {
        MemoryDevice(Arc::new(RwLock::new(vec![0; bytes])))
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.0.read().len())
    }
}

impl Device for MemoryDevice {
    fn bytes(&self) -> u64 {
        self.0.read().len() as u64
    }

    fn write(&self, Write { at, from, offset, len, .. }: Write<'_>) -> Option<io::Result<usize>> {
        let mut bytes = self.0.write();
        let to = (at as usize).checked_add(len).and_then(|end| bytes.get_mut(at as usize..end));
        let Some(to) = to else { return Some(Err(io::ErrorKind::StorageFull.into())) };
        Some(from.read_at(offset, to).map(|()| len).map_err(io::Error::other))
    }

    fn read(&self, read: Read) {
        let Read { at, mut into, told, .. } = read;
        let got = {
            let bytes = self.0.read();
            let from = bytes.get(at as usize..).unwrap_or_default();
            let to = into.bytes_mut();
            let len = from.len().min(to.len());
            to[..len].copy_from_slice(&from[..len]);
            len
        };
        told(Ok(got), into);
    }

    fn way(&self) -> &'static str {
        "memory"
    }
}

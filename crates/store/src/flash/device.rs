//! What a log is written to, whatever it is: a file or a block device ([`super::file`]), or a donor's memory.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::segment::Segment;

/// Addresses, offsets and lengths of files and block devices are multiples of it, bytes.
pub const ALIGN: usize = 4096;
/// Bytes at the front of a device that no log uses.
pub const HEAD_BYTES: u64 = ALIGN as u64;

/// Memory that the kernel reads into without a copy of its own: whole blocks of 4 KiB.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    blocks: Vec<Block>,
    /// Bytes of them that are asked for.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(4096))]
struct Block([u8; ALIGN]);

impl Blocks {
    /// Zeros, `len` bytes of them.
    pub fn zeroed(len: usize) -> Blocks {
        Blocks { blocks: vec![Block([0; ALIGN]); len.div_ceil(ALIGN)], len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: blocks are bytes, one behind the other, without padding, and there are so many of them.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are a block.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len) }
    }
}

/// Who is told that a read is over: how many bytes it gave, from the first on, and the memory.
pub type Told = Box<dyn FnOnce(io::Result<usize>, Blocks) + Send>;

/// A read that is asked for.
pub struct Read {
    /// Offset in the device, bytes; a multiple of [`Device::align`].
    pub at: u64,
    /// Where the bytes go, as many as it has room for: a multiple of [`Device::align`], too.
    pub into: Blocks,
    /// Called once, from any thread.
    pub told: Told,
    /// A program waits for it.
    pub pressing: bool,
    /// How often it was read before, and was not what was written.
    pub tries: u32,
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Read({} bytes at {})", self.into.bytes().len(), self.at)
    }
}

/// Who is told how many bytes were written.
pub type Wrote = Box<dyn FnOnce(io::Result<usize>) + Send>;

/// A write that is asked for. Offset and length are multiples of [`Device::align`].
pub struct Write<'a> {
    /// Offset in the device, bytes.
    pub at: u64,
    /// What has the bytes.
    pub from: &'a Segment,
    /// Where they are there, bytes. They stay as they are until the write is over.
    pub offset: usize,
    /// How many, bytes.
    pub len: usize,
    /// Called once, from any thread, if the write is not over when [`Device::write`] returns.
    pub told: Wrote,
}

impl Write<'_> {
    /// A copy of the bytes.
    ///
    /// # Errors
    /// If the segment has not so many.
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        self.from.read_at(self.offset, &mut bytes).map_err(io::Error::other)?;
        Ok(bytes)
    }
}

/// What a log is written to. It may fail, be slow, cut short what it does, or lie about contents.
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// Its size, bytes.
    fn bytes(&self) -> u64;

    /// Of what offsets and lengths are multiples, bytes; [`ALIGN`] at most.
    fn align(&self) -> usize {
        ALIGN
    }

    /// Writes, and answers how many bytes it wrote, or what the system says; `None` if the write goes on and is told
    /// of later.
    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>>;

    /// Begins a read, and waits for nothing.
    fn read(&self, read: Read);

    /// Nobody needs the `len` bytes from `at` on any more. Called in the order of writes to there, and waits for nothing.
    fn forget(&self, _at: u64, _len: usize) {}

    /// How it is read, for people.
    fn way(&self) -> &'static str;

    /// What a successor needs of it, if it has something.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    fn align(&self) -> usize {
        (**self).align()
    }

    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>> {
        (**self).write(write)
    }

    fn read(&self, read: Read) {
        (**self).read(read);
    }

    fn forget(&self, at: u64, len: usize) {
        (**self).forget(at, len);
    }

    fn way(&self) -> &'static str {
        (**self).way()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).fd()
    }
}

//! A read: from the pool where it can be, from the lower file where not.

use std::cell::RefCell;
use std::ops::Range;
use std::time::SystemTime;

use rustix::io::{Errno, Result};

use crate::buffer::AlignedBuffer;
use crate::counters::add;
use crate::handles::OpenFile;
use crate::lower::{read_full, stat};
use crate::packer::Batch;
use crate::pages::Epoch;
use crate::server::{FRESH_MS, Server};
use crate::stamp::Stamp;
use crate::{PAGE_BYTES, pages_of};

/// The most that is read at once; the kernel asks for no more.
pub const MAX_READ_BYTES: u32 = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::default());
}

/// What was read of a file: whole pages, of which the first is `pages.start`, in the buffer.
struct Read {
    pages: Range<u64>,
    /// Where the answer ends in the file.
    end: u64,
    /// What came from the lower file, past its page cache.
    fresh: Vec<Range<u64>>,
    stamp: Stamp,
    epoch: Option<Epoch>,
}

impl Server {
    /// Reads `size` bytes at `offset` and hands them to `reply`. `cached` says whether the kernel keeps them.
    pub fn read(
        &self,
        open: &OpenFile,
        offset: u64,
        size: u32,
        cached: bool,
        reply: impl FnOnce(Result<&[u8]>),
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let read = match self.read_pages(open, offset, size, buffer) {
                Ok(Some(read)) => read,
                Ok(None) => return reply(Ok(&[])),
                Err(error) => return reply(Err(error)),
            };
            let bytes = buffer.filled((read.pages.end - read.pages.start) as usize * PAGE_BYTES);
            if cached {
                // Before the answer: afterwards it might be too late to take them back.
                let again = self.handed_out.lock().give(open.inode.node, read.pages.clone());
                add(&self.counters.pages_dropped_by_kernel, again);
            }
            let start = offset - read.pages.start * PAGE_BYTES as u64;
            let end = read.end - read.pages.start * PAGE_BYTES as u64;
            reply(Ok(&bytes[start as usize..end.max(start) as usize]));
            self.keep(open, read, buffer);
        });
    }

    /// Reads the pages that hold these bytes; nothing if the file ends before.
    fn read_pages(
        &self,
        open: &OpenFile,
        offset: u64,
        size: u32,
        buffer: &mut AlignedBuffer,
    ) -> Result<Option<Read>> {
        let inode = &open.inode;
        let counters = &self.counters;
        add(&counters.reads, 1);
        let _unchanged = inode.changes.read();
        let stamp = Stamp::of(&stat(&**inode)?);
        let wanted = offset.checked_add(u64::from(size.min(MAX_READ_BYTES))).ok_or(Errno::INVAL)?;
        let mut end = wanted.min(stamp.size);
        let pages = pages_of(offset, end);
        if pages.is_empty() {
            return Ok(None);
        }
        let bytes = buffer.take((pages.end - pages.start) as usize * PAGE_BYTES);
        let epoch = self.pool.as_ref().map(|pool| pool.pages.epoch(inode.key, stamp));
        let missing = match (&self.pool, epoch) {
            (Some(pool), Some(epoch)) => pool.pages.restore(inode.key, epoch, pages.clone(), bytes),
            _ => vec![pages.clone()],
        };

        let fresh_ms = self.now_ms() - FRESH_MS;
        let mut direct = open.direct.as_ref().filter(|_| !inode.was_written_since(fresh_ms));
        let mut fresh = Vec::new();
        let mut is_here = false;
        // Nobody has it: it may be read in a row.
        if let Some(epoch) = epoch
            && direct.is_some()
            && missing == std::slice::from_ref(&pages)
        {
            is_here = open.windows.give(&pages, epoch, bytes);
            self.ahead.asked(open, &pages, stamp, epoch);
            if is_here {
                add(&counters.pages_read_ahead, pages.end - pages.start);
                fresh.push(pages.clone());
            }
        }
        for run in missing.iter().filter(|_| !is_here) {
            let into = part(bytes, &pages, run);
            let at = run.start * PAGE_BYTES as u64;
            let there = (stamp.size - at).min(into.len() as u64) as usize;
            let read = match direct {
                Some(file) => match read_full(file, into, at) {
                    // Its file system cannot, or not here.
                    Err(Errno::INVAL) => {
                        direct = None;
                        read_full(&open.file, into, at)?
                    }
                    read => read?,
                },
                None => read_full(&open.file, into, at)?,
            };
            // What is behind is left from another read.
            into[read..].fill(0);
            if read < there {
                // It became shorter behind our back.
                end = end.min(at + read as u64);
                break;
            }
            if direct.is_some() {
                fresh.push(run.clone());
            }
        }
        let from_disk: u64 = missing.iter().map(|run| run.end - run.start).sum();
        let from_pool = pages.end - pages.start - from_disk;
        add(&counters.pages_from_disk, from_disk);
        add(&counters.pages_from_pool, from_pool);
        match (from_disk, from_pool) {
            (0, _) => add(&counters.reads_whole, 1),
            (_, 0) => {}
            _ => add(&counters.reads_partly, 1),
        }
        let end = end.max(offset);
        Ok(Some(Read { pages, end, fresh, stamp, epoch }))
    }

    /// Hands what was read from disk to the pool, with the buffer that it is in.
    fn keep(&self, open: &OpenFile, read: Read, buffer: &mut AlignedBuffer) {
        let (Some(pool), Some(epoch)) = (&self.pool, read.epoch) else { return };
        if read.fresh.is_empty() {
            return;
        }
        if !read.stamp.is_settled(SystemTime::now()) {
            let pages = read.fresh.iter().map(|run| run.end - run.start).sum();
            return add(&self.counters.pages_unsettled, pages);
        }
        *buffer = pool.packer.offer(Batch {
            key: open.inode.key,
            epoch,
            first: read.pages.start,
            runs: read.fresh,
            buffer: std::mem::take(buffer),
        });
    }
}

/// The bytes of some of the pages.
fn part<'a>(bytes: &'a mut [u8], pages: &Range<u64>, run: &Range<u64>) -> &'a mut [u8] {
    let from = (run.start - pages.start) as usize * PAGE_BYTES;
    let to = (run.end - pages.start) as usize * PAGE_BYTES;
    &mut bytes[from..to]
}

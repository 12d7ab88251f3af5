//! A read: from the pool where it can be, from the lower file where not.

use std::cell::RefCell;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::io::{Errno, Result, pread};

use crate::buffer::AlignedBuffer;
use crate::counters::add;
use crate::handles::OpenFile;
use crate::lower::stat;
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

/// What was read of a file: whole pages, of which the first is `pages.start`.
struct Read<'a> {
    bytes: &'a [u8],
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
            if cached {
                // Before the answer: afterwards it might be too late to take them back.
                let again = self.handed_out.lock().give(open.inode.node, read.pages.clone());
                add(&self.counters.pages_dropped_by_kernel, again);
            }
            let start = offset - read.pages.start * PAGE_BYTES as u64;
            let end = read.end - read.pages.start * PAGE_BYTES as u64;
            reply(Ok(&read.bytes[start as usize..end.max(start) as usize]));
            self.keep(open, &read);
        });
    }

    /// Reads the pages that hold these bytes; nothing if the file ends before.
    fn read_pages<'a>(
        &self,
        open: &OpenFile,
        offset: u64,
        size: u32,
        buffer: &'a mut AlignedBuffer,
    ) -> Result<Option<Read<'a>>> {
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
        let missing = self.read_from_pool(open, epoch, pages.clone(), bytes);

        let fresh_ms = self.now_ms() - FRESH_MS;
        let mut direct = open.direct.as_ref().filter(|_| !inode.was_written_since(fresh_ms));
        let mut fresh = Vec::new();
        for run in &missing {
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
        Ok(Some(Read { bytes, pages, end, fresh, stamp, epoch }))
    }

    /// Restores what the pool has of these pages; the runs that it does not have.
    fn read_from_pool(
        &self,
        open: &OpenFile,
        epoch: Option<Epoch>,
        pages: Range<u64>,
        bytes: &mut [u8],
    ) -> Vec<Range<u64>> {
        let (Some(pool), Some(epoch)) = (&self.pool, epoch) else {
            return vec![pages];
        };
        let mut missing: Vec<Range<u64>> = Vec::new();
        for (page, out) in pages.zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            if pool.pages.get(open.inode.key, epoch, page, out) {
                continue;
            }
            match missing.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => missing.push(page..page + 1),
            }
        }
        missing
    }

    /// Hands what was read from disk to the pool.
    fn keep(&self, open: &OpenFile, read: &Read<'_>) {
        let (Some(pool), Some(epoch)) = (&self.pool, read.epoch) else { return };
        let is_settled = read.stamp.is_settled(SystemTime::now());
        for run in &read.fresh {
            if !is_settled {
                add(&self.counters.pages_unsettled, run.end - run.start);
                continue;
            }
            let from = (run.start - read.pages.start) as usize * PAGE_BYTES;
            let to = (run.end - read.pages.start) as usize * PAGE_BYTES;
            pool.packer.offer(Batch {
                key: open.inode.key,
                epoch,
                first: run.start,
                bytes: read.bytes[from..to].to_vec(),
            });
        }
    }
}

/// The bytes of some of the pages.
fn part<'a>(bytes: &'a mut [u8], pages: &Range<u64>, run: &Range<u64>) -> &'a mut [u8] {
    let from = (run.start - pages.start) as usize * PAGE_BYTES;
    let to = (run.end - pages.start) as usize * PAGE_BYTES;
    &mut bytes[from..to]
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &OwnedFd, into: &mut [u8], at: u64) -> Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match pread(file, &mut into[done..], at + done as u64) {
            Ok(0) => break,
            // The end: direct I/O goes on from whole blocks only.
            Ok(read) if !(done + read).is_multiple_of(PAGE_BYTES) => return Ok(done + read),
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

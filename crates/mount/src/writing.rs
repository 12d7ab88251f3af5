//! Changes of files, through us: the pool learns what they change.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, Statx, fallocate, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, Result, pwrite, pwritev2};

use crate::as_user::AsUser;
use crate::counters::add;
use crate::handles::OpenFile;
use crate::inodes::Inode;
use crate::lower::stat;
use crate::server::Server;
use crate::stamp::{Seen, Stamp};
use crate::{PAGE_BYTES, page_of, pages_of};

/// Who may set its user or group when it is run.
pub const SET_ID: u16 = 0o6000;

/// How something is written.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// For whom, by user and group, or nobody who could be asked: whose the file is, then.
    pub user: Option<(u32, u32)>,
    /// Whether the kernel keeps it.
    pub cached: bool,
    /// Whether it goes to the file's end, wherever the kernel believes that to be.
    pub appends: bool,
}

impl Server {
    /// Does something that changes `pages` of a file, and nothing else of its contents. `change` is told how the file is
    /// before. If its contents have changed at all, the pool drops the whole file: somebody else may have written
    /// it below in the same moment, and nothing would tell that change from ours.
    ///
    /// # Errors
    /// As `change` says, or the system.
    pub fn change<R>(
        &self,
        inode: &Inode,
        pages: Range<u64>,
        change: impl FnOnce(&Statx) -> Result<R>,
    ) -> Result<R> {
        if inode.kind != FileType::RegularFile {
            return change(&stat(inode)?);
        }
        let _alone = inode.changes.write();
        let before = stat(inode)?;
        let changed = change(&before);
        // Even if it failed: in part it may be done.
        let (before, after) = (Stamp::of(&before), Stamp::of(&stat(inode)?));
        let is_same = (before.size, before.mtime) == (after.size, after.mtime);
        let pages = if is_same { pages } else { 0..u64::MAX };
        if let Some(pool) = &self.pool {
            pool.pages.changed(inode.key, before, after, pages);
        }
        let mut seen = inode.seen.lock();
        if let Some(seen) = seen.as_mut().filter(|seen| seen.stamp == before) {
            let is_in_doubt = seen.is_in_doubt;
            *seen = Seen::by_us(after);
            seen.is_in_doubt |= is_in_doubt;
        }
        changed
    }

    /// Changes attributes of a file. What pool and kernel have of it is dropped: somebody may have written it below in the
    /// same moment, and a time that is set hides that.
    ///
    /// # Errors
    /// As `change` says, or the system.
    pub fn change_attributes<R>(
        &self,
        inode: &Inode,
        change: impl FnOnce(&Statx) -> Result<R>,
    ) -> Result<R> {
        let changed = self.change(inode, 0..u64::MAX, change);
        if inode.kind == FileType::RegularFile && inode.seen.lock().take().is_some() {
            self.suspects.lock().push(inode.node);
        }
        changed
    }

    /// Writes `data`, at `offset` or as `how` says. The bytes that were.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, open: &OpenFile, offset: u64, data: &[u8], how: Writing) -> Result<usize> {
        let Writing { user, cached, appends } = how;
        let inode = &open.inode;
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        add(&self.counters.writes, 1);
        let mut is_elsewhere = false;
        let written = self.change(inode, pages_of(offset, end), |before| {
            if before.stx_mode & SET_ID != 0 && user.is_some_and(|(uid, _)| uid != 0) {
                self.drop_set_id(inode, before)?;
            }
            self.note_written(inode);
            let (uid, gid) = user.unwrap_or((before.stx_uid, before.stx_gid));
            let _user = AsUser::become_user(uid, gid)?;
            is_elsewhere = appends && before.stx_size != offset;
            match write_full(open, data, offset, appends) {
                // The kernel takes all pages of a mapping for written, however many bytes it is told: an error it
                // tells who syncs the file.
                (done, Some(error)) if done == 0 || user.is_none() => Err(error),
                (done, _) => Ok(done),
            }
        })?;
        add(&self.counters.bytes_written, written as u64);
        if is_elsewhere {
            // What the kernel has of it now is where it believed the end to be.
            inode.seen.lock().take();
            self.suspects.lock().push(inode.node);
        } else if cached {
            // Whole pages are in the page cache now; others are asked for when they are read.
            let whole = offset.div_ceil(PAGE_BYTES as u64)..page_of(offset + written as u64);
            if whole.start < whole.end {
                self.handed_out.lock().give(inode.node, whole);
            }
        }
        Ok(written)
    }

    /// Somebody else than root writes: as in any file system, it will not be run with another identity again.
    fn drop_set_id(&self, inode: &Inode, before: &Statx) -> Result<()> {
        let group = match before.stx_mode & 0o010 {
            0 => 0,
            _ => 0o2000,
        };
        let mode = Mode::from_raw_mode(u32::from(before.stx_mode & 0o7777 & !(0o4000 | group)));
        self.set_mode(inode, mode)
    }

    /// Sets permissions.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_mode(&self, inode: &Inode, mode: Mode) -> Result<()> {
        let lower = &self.lower;
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::chmodat(lower.directory(), lower.name(inode), mode, flags)
    }

    fn note_written(&self, inode: &Arc<Inode>) {
        let before = inode.written_ms.swap(self.now_ms(), Relaxed);
        if before == 0 || !inode.was_written_since(before) {
            self.written.lock().insert(inode.node, Arc::downgrade(inode));
            return;
        }
        self.written.lock().entry(inode.node).or_insert_with(|| Arc::downgrade(inode));
    }

    /// Makes a file as long as that.
    ///
    /// # Errors
    /// As the system says.
    pub fn truncate(&self, inode: &Arc<Inode>, open: Option<&OpenFile>, size: u64) -> Result<()> {
        self.change(inode, page_of(size)..u64::MAX, |_| {
            self.note_written(inode);
            match open {
                Some(open) => ftruncate(&open.file, size),
                None => ftruncate(self.lower.open(&**inode, OFlags::WRONLY)?, size),
            }
        })
    }

    /// Makes room for this user and group, or a hole.
    ///
    /// # Errors
    /// As the system says.
    pub fn allocate(
        &self,
        open: &OpenFile,
        (uid, gid): (u32, u32),
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let flags = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        // These move what is behind.
        if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            return Err(Errno::OPNOTSUPP);
        }
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        self.change(&open.inode, pages_of(offset, end), |_| {
            self.note_written(&open.inode);
            let _user = AsUser::become_user(uid, gid)?;
            fallocate(&open.file, flags, offset, length)
        })
    }
}

/// Writes as much as it can; how much that was, and what kept it from the rest.
fn write_full(open: &OpenFile, data: &[u8], offset: u64, appends: bool) -> (usize, Option<Errno>) {
    let mut done = 0;
    while done < data.len() {
        let (rest, at) = (&data[done..], offset + done as u64);
        let wrote = match appends {
            true => pwritev2(&open.file, &[IoSlice::new(rest)], at, ReadWriteFlags::APPEND),
            false => pwrite(&open.file, rest, at),
        };
        match wrote {
            Ok(0) => return (done, Some(Errno::IO)),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

//! What is done below for what the kernel asks.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    FileAttr, FileHandle, FopenFlags, INodeNo, OpenAccMode, OpenFlags, RenameFlags, ReplyDirectory,
    Request, TimeOrNow,
};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags as LowerRename, SeekFrom, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno as LowerErrno;
use rustix::process::{Gid, Uid};

use crate::as_user::AsUser;
use crate::counters::STATUS_NAME;
use crate::handles::OpenFile;
use crate::inodes::{Inode, ROOT};
use crate::lower::{self, beneath, checked, stat};
use crate::server::FRESH_MS;
use crate::stamp::{Seen, Stamp};
use crate::writing::SET_ID;

use super::{Files, Result};

/// Bytes of names that are asked of a lower directory at once.
const NAMES_BYTES: usize = 32 << 10;
/// How often a name is looked for again where descriptors are out, and what is waited between.
const FORGETS: (usize, Duration) = (200, Duration::from_millis(5));
/// The longest value of an extended attribute, and the longest list of their names.
const MAX_XATTR_BYTES: usize = 64 << 10;

impl Files {
    pub(super) fn inode(&self, node: INodeNo) -> Result<Arc<Inode>> {
        // Only a kernel that forgot it and asks all the same gets this.
        self.0.inodes.get(node.0).ok_or(LowerErrno::STALE)
    }

    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        self.0.files.get(handle.0).ok_or(LowerErrno::BADF)
    }

    /// The attributes as they are now. A file that somebody changed behind our back is one whose pages the
    /// kernel is to drop.
    pub(super) fn attributes(&self, inode: &Inode) -> Result<FileAttr> {
        let now = stat(inode)?;
        if inode.kind == FileType::RegularFile {
            self.0.suspect_if_changed(inode, Stamp::of(&now));
        }
        Ok(lower::attributes(inode.node, &now))
    }

    /// What has this name. Where descriptors are out, the kernel is just being asked to forget others.
    pub(super) fn find(&self, parent: &Inode, name: &OsStr) -> Result<OwnedFd> {
        for _ in 0..FORGETS.0 {
            match beneath(parent, name) {
                Err(LowerErrno::MFILE) => thread::sleep(FORGETS.1),
                found => return found,
            }
        }
        beneath(parent, name)
    }

    /// Tells the kernel of a lower inode, which has this name.
    pub(super) fn tell(
        &self,
        (parent, name): (INodeNo, &OsStr),
        fd: OwnedFd,
    ) -> Result<(Arc<Inode>, FileAttr)> {
        let now = stat(&fd)?;
        let (inode, is_new) = self.0.inodes.look_up(fd, lower::key(&now), lower::kind(&now));
        if is_new {
            self.0.names.told(parent.0, name, inode.node);
        }
        let is_watched = matches!(inode.kind, FileType::RegularFile | FileType::Directory);
        if self.0.is_believed() && is_watched {
            self.0.watches.watch(inode.node, &self.0.lower.path(&*inode));
        }
        match self.attributes(&inode) {
            Ok(attributes) => Ok((inode, attributes)),
            Err(error) => {
                self.forget_inode(inode.node, 1);
                Err(error)
            }
        }
    }

    pub(super) fn forget_inode(&self, node: u64, lookups: u64) {
        if let Some(gone) = self.0.inodes.forget(node, lookups) {
            self.0.handed_out.lock().forget(node);
            self.0.watches.forget(node);
            if let Some(pool) = &self.0.pool {
                pool.pages.leave(gone.key);
            }
        }
    }

    /// Makes something in a directory for whoever asks, and says what it is.
    pub(super) fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&Inode, &OsStr) -> Result<()>,
    ) -> Result<OwnedFd> {
        let parent = self.inode(parent)?;
        let name = checked(name)?;
        {
            let _user = AsUser::become_user(request.uid(), request.gid())?;
            make(&parent, name)?;
        }
        beneath(&*parent, name)
    }

    /// Does something to a name as whoever asks; the inode that has it keeps what the pool has of it.
    pub(super) fn with_name<R>(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        act: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let fd = beneath(parent, name)?;
        // The kernel has asked whose it is; by now another may have the name, in a directory where only his own is anybody's.
        let act = || {
            let _user = AsUser::become_user(request.uid(), request.gid())?;
            act()
        };
        match self.0.inodes.find(lower::key(&stat(&fd)?)) {
            Some(inode) => self.0.change(&inode, 0..0, |_| act()),
            None => act(),
        }
    }

    /// Gives a number to an open file. Whether the kernel may keep the pages that it has of it: only if the file is
    /// as it was when it got them. `is_made`: it has just been made by us.
    pub(super) fn opened(
        &self,
        inode: Arc<Inode>,
        file: OwnedFd,
        flags: i32,
        is_made: bool,
    ) -> Result<(FileHandle, FopenFlags)> {
        // Before it is looked at: what changes then is told.
        self.0.watches.watch(inode.node, &self.0.lower.path(&*inode));
        let stamp = Stamp::of(&stat(&file)?);
        let direct = match OpenFlags(flags).acc_mode() {
            OpenAccMode::O_WRONLY => None,
            _ => self.0.lower.open(&*inode, OFlags::RDONLY | OFlags::DIRECT).ok().map(Arc::new),
        };
        let keeps = {
            let mut seen = inode.seen.lock();
            let keeps = seen.is_some_and(|seen| seen.is_still(stamp));
            if !keeps {
                let by_us = is_made || inode.was_written_since(self.0.now_ms() - FRESH_MS);
                *seen = Some(if by_us { Seen::by_us(stamp) } else { Seen::of(stamp) });
            }
            keeps
        };
        let mut answer = FopenFlags::empty();
        if keeps {
            answer |= FopenFlags::FOPEN_KEEP_CACHE;
        } else {
            self.0.handed_out.lock().forget(inode.node);
        }
        // The kernel would ask for the attributes before each read, as if it kept what it reads.
        if !is_cached(OpenFlags(flags)) && self.0.passes_direct.load(Relaxed) {
            answer |= FopenFlags::FOPEN_DIRECT_IO;
        }
        let handle = self.0.files.add(OpenFile {
            inode,
            file,
            direct,
            windows: Arc::default(),
            has_locked: AtomicBool::new(false),
        });
        Ok((FileHandle(handle), answer))
    }

    /// Opens an inode as its user did. Only regular files are ours: the kernel opens others itself.
    pub(super) fn open_file(&self, node: INodeNo, flags: i32) -> Result<(FileHandle, FopenFlags)> {
        let inode = self.inode(node)?;
        if inode.kind != FileType::RegularFile {
            return Err(LowerErrno::INVAL);
        }
        let lower = lower_flags(flags);
        let file = match self.0.lower.open(&*inode, lower) {
            // A file to which may only be appended (chattr +a): all that is written goes to its end then.
            Err(LowerErrno::PERM) if appends(flags) => {
                self.0.lower.open(&*inode, lower | OFlags::APPEND)?
            }
            opened => opened?,
        };
        self.opened(inode, file, flags, false)
    }

    /// What is asked for what is made in a directory, less its user's umask, unless that has default access lists: these
    /// say it then.
    pub(super) fn permissions_of_new(&self, parent: INodeNo, mode: u32, umask: u32) -> Mode {
        const LISTS: &str = "system.posix_acl_default";
        let has_lists = self.inode(parent).is_ok_and(|parent| {
            match rustix::fs::getxattr(self.0.lower.path(&*parent), LISTS, &mut [0u8; 512][..]) {
                Ok(bytes) => bytes > 0,
                Err(error) => error == LowerErrno::RANGE,
            }
        });
        let less = if has_lists { 0 } else { umask };
        Mode::from_raw_mode(mode & 0o7777 & !less)
    }

    pub(super) fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: Mode,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle, FopenFlags)> {
        let (told, parent) = (parent, self.inode(parent)?);
        let name = checked(name)?;
        // Whether its user may open what somebody has put there since the kernel looked, nobody has asked.
        let all = lower_flags(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = {
            let _user = AsUser::become_user(request.uid(), request.gid())?;
            rustix::fs::openat2(&*parent, name, all, mode, lower::resolve())
        };
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let file = file.map_err(|error| match error {
            // The kernel looks again, and asks.
            LowerErrno::EXIST if !exclusive => LowerErrno::STALE,
            error => error,
        })?;
        let fd = self.0.lower.open(&file, OFlags::PATH)?;
        let (inode, attributes) = self.tell((told, name), fd)?;
        match self.opened(inode.clone(), file, flags, true) {
            Ok((handle, answer)) => Ok((attributes, handle, answer)),
            Err(error) => {
                self.forget_inode(inode.node, 1);
                Err(error)
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "as the kernel asks")]
    pub(super) fn set_attributes(
        &self,
        user: (u32, u32),
        inode: &Arc<Inode>,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        handle: Option<FileHandle>,
    ) -> Result<FileAttr> {
        if uid.is_some() || gid.is_some() {
            self.0.change_attributes(inode, |now| {
                // The user's other groups, to which this may give it, nobody knows here.
                if user.0 != 0 && user.0 != now.stx_uid {
                    return Err(LowerErrno::PERM);
                }
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(&**inode, "", uid, gid, AtFlags::EMPTY_PATH)
            })?;
        }
        // Of whoever else changes the user, the bits are gone: so the mode comes after.
        if let Some(mode) = mode {
            let mode = mode & 0o7777;
            self.0.change_attributes(inode, |now| {
                let now = u32::from(now.stx_mode) & 0o7777;
                // What the kernel does for who writes: that is no owner's alone.
                let only_drops = mode & !now == 0 && now & !mode & !u32::from(SET_ID) == 0;
                let _user =
                    (!only_drops).then(|| AsUser::become_user(user.0, user.1)).transpose()?;
                self.0.set_mode(inode, Mode::from_raw_mode(mode))
            })?;
        }
        if let Some(size) = size {
            if inode.kind != FileType::RegularFile {
                return Err(LowerErrno::INVAL);
            }
            let open = handle.map(|handle| self.file(handle)).transpose()?;
            self.0.truncate(inode, open.as_deref(), size)?;
        }
        // Who makes a file shorter may not be who owns it, and has set its time by that.
        let is_set = size.is_some() && atime.is_none() && matches!(mtime, Some(TimeOrNow::Now));
        if !is_set && (atime.is_some() || mtime.is_some()) {
            let times =
                Timestamps { last_access: lower_time(atime), last_modification: lower_time(mtime) };
            self.0.change_attributes(inode, |_| {
                let _user = AsUser::become_user(user.0, user.1)?;
                rustix::fs::utimensat(&**inode, "", &times, AtFlags::EMPTY_PATH)
            })?;
        }
        self.attributes(inode)
    }

    pub(super) fn rename_name(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
    ) -> Result<()> {
        let (parent, new_parent) = (self.inode(parent)?, self.inode(new_parent)?);
        let (name, new_name) = (checked(name)?, checked(new_name)?);
        let flags = LowerRename::from_bits(flags.bits()).ok_or(LowerErrno::INVAL)?;
        self.with_name(request, &parent, name, || {
            rustix::fs::renameat_with(&*parent, name, &*new_parent, new_name, flags)
        })
    }

    pub(super) fn remove(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        flags: AtFlags,
    ) -> Result<()> {
        let parent = self.inode(parent)?;
        let name = checked(name)?;
        self.with_name(request, &parent, name, || rustix::fs::unlinkat(&*parent, name, flags))
    }

    pub(super) fn link_name(
        &self,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
    ) -> Result<OwnedFd> {
        let (inode, parent) = (self.inode(node)?, self.inode(parent)?);
        let name = checked(name)?;
        let lower = &self.0.lower;
        self.0.change(&inode, 0..0, |_| {
            let from = lower.name(&*inode);
            rustix::fs::linkat(lower.directory(), from, &*parent, name, AtFlags::SYMLINK_FOLLOW)
        })?;
        beneath(&*parent, name)
    }

    /// Fills the answer with names from where the kernel is.
    pub(super) fn names(
        &self,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<()> {
        let open = self.0.directories.get(handle.0).ok_or(LowerErrno::BADF)?;
        let directory = open.directory.lock();
        rustix::fs::seek(&*directory, SeekFrom::Start(offset))?;
        let mut room = [MaybeUninit::<u8>::uninit(); NAMES_BYTES];
        let mut names = RawDir::new(&*directory, &mut room);
        while let Some(name) = names.next() {
            let name = name?;
            let node = INodeNo(self.0.inodes.number(name.ino()));
            let kind = lower::shown_kind(name.file_type());
            let text = OsStr::from_bytes(name.file_name().to_bytes());
            if reply.add(node, name.next_entry_cookie(), kind, text) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn attribute(&self, node: INodeNo, name: &OsStr) -> Result<Vec<u8>> {
        if node.0 == ROOT && name == STATUS_NAME {
            return serde_json::to_vec(&self.0.status()).map_err(|_| LowerErrno::IO);
        }
        let inode = self.inode(node)?;
        let mut value = vec![0; MAX_XATTR_BYTES];
        let len = rustix::fs::getxattr(self.0.lower.path(&*inode), name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    /// Names of attributes, each with a zero behind it. Those that are root's alone are named to root alone.
    pub(super) fn attribute_names(&self, request: &Request, node: INodeNo) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let mut names = vec![0; MAX_XATTR_BYTES];
        let len = rustix::fs::listxattr(self.0.lower.path(&*inode), &mut names[..])?;
        names.truncate(len);
        if request.uid() == 0 {
            return Ok(names);
        }
        let shown = names.split_inclusive(|byte| *byte == 0);
        Ok(shown.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect())
    }
}

/// How the lower file is opened: as the user did, without what the kernel above does by itself. It says where an
/// append goes, and asks for no more than it wants of direct I/O.
fn lower_flags(flags: i32) -> OFlags {
    let access = match OpenFlags(flags).acc_mode() {
        OpenAccMode::O_RDONLY => OFlags::RDONLY,
        OpenAccMode::O_WRONLY => OFlags::WRONLY,
        OpenAccMode::O_RDWR => OFlags::RDWR,
    };
    access | (OFlags::from_bits_retain(flags as u32) & (OFlags::SYNC | OFlags::DSYNC))
}

/// Whether all that is written with these flags is appended.
pub(super) fn appends(flags: i32) -> bool {
    OFlags::from_bits_retain(flags as u32).contains(OFlags::APPEND)
}

/// Whether the kernel keeps what it reads and writes with these flags.
pub(super) fn is_cached(flags: OpenFlags) -> bool {
    !OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DIRECT)
}

fn lower_time(time: Option<TimeOrNow>) -> Timespec {
    let of = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    match time {
        None => of(UTIME_OMIT),
        Some(TimeOrNow::Now) => of(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timespec {
                tv_sec: since.as_secs() as i64,
                tv_nsec: i64::from(since.subsec_nanos()),
            },
            Err(before) => {
                let before = before.duration();
                let whole = 0i64.wrapping_sub_unsigned(before.as_secs());
                match before.subsec_nanos() {
                    0 => Timespec { tv_sec: whole, tv_nsec: 0 },
                    part => {
                        Timespec { tv_sec: whole - 1, tv_nsec: 1_000_000_000 - i64::from(part) }
                    }
                }
            }
        },
    }
}

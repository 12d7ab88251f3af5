//! What the kernel asks for, operation by operation.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags as LowerRename, SeekFrom, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno as LowerErrno;
use rustix::process::{Gid, Uid};

use crate::as_user::AsUser;
use crate::counters::STATUS_NAME;
use crate::handles::{OpenDirectory, OpenFile};
use crate::inodes::{Inode, ROOT};
use crate::lower::{self, beneath, checked, stat};
use crate::reading::MAX_READ_BYTES;
use crate::server::Server;
use crate::stamp::Stamp;

type Result<T> = std::result::Result<T, LowerErrno>;

/// Bytes of names that are asked of a lower directory at once.
const NAMES_BYTES: usize = 32 << 10;
/// The longest value of an extended attribute, and the longest list of their names.
const MAX_XATTR_BYTES: usize = 64 << 10;
/// Inode numbers are not used again while the kernel knows them.
const GENERATION: Generation = Generation(0);

/// The file system that the kernel sees.
pub struct Files(pub Arc<Server>);

fn shown(error: LowerErrno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

/// Answers with `$reply.error` unless the value is there.
macro_rules! or_error {
    ($value:expr, $reply:expr) => {
        match $value {
            Ok(value) => value,
            Err(error) => return $reply.error(shown(error)),
        }
    };
}

impl Files {
    fn inode(&self, node: INodeNo) -> Result<Arc<Inode>> {
        // Only a kernel that forgot it and asks all the same gets this.
        self.0.inodes.get(node.0).ok_or(LowerErrno::STALE)
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        self.0.files.get(handle.0).ok_or(LowerErrno::BADF)
    }

    /// The attributes as they are now. A file that somebody changed behind our back is one whose pages the
    /// kernel is to drop.
    fn attributes(&self, inode: &Inode) -> Result<FileAttr> {
        let now = stat(inode)?;
        if inode.kind == FileType::RegularFile {
            self.0.suspect_if_changed(inode, Stamp::of(&now));
        }
        Ok(lower::attributes(inode.node, &now))
    }

    /// Tells the kernel of a lower inode.
    fn tell(&self, fd: OwnedFd) -> Result<(Arc<Inode>, FileAttr)> {
        let now = stat(&fd)?;
        let inode = self.0.inodes.look_up(fd, lower::key(&now), lower::kind(&now));
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

    fn entry(&self, entry: Result<OwnedFd>, reply: ReplyEntry) {
        let (_, attributes) = or_error!(entry.and_then(|fd| self.tell(fd)), reply);
        reply.entry(&self.0.timeout, &attributes, GENERATION);
    }

    fn forget_inode(&self, node: u64, lookups: u64) {
        if let Some(gone) = self.0.inodes.forget(node, lookups) {
            self.0.handed_out.lock().forget(node);
            self.0.watches.forget(node);
            if let Some(pool) = &self.0.pool {
                pool.pages.leave(gone.key);
            }
        }
    }

    /// Makes something in a directory for whoever asks, and says what it is.
    fn make(
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

    /// Does something to a name; the inode that has it keeps what the pool has of it.
    fn with_name<R>(
        &self,
        parent: &Inode,
        name: &OsStr,
        act: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let fd = beneath(parent, name)?;
        match self.0.inodes.find(lower::key(&stat(&fd)?)) {
            Some(inode) => self.0.change(&inode, 0..0, |_| act()),
            None => act(),
        }
    }

    /// Gives a number to an open file. Whether the kernel may keep the pages that it has of it: only if the file is
    /// as it was when it got them.
    fn opened(
        &self,
        inode: Arc<Inode>,
        file: OwnedFd,
        flags: i32,
    ) -> Result<(FileHandle, FopenFlags)> {
        // Before it is looked at: what changes then is told.
        self.0.watches.watch(inode.node, &self.0.lower.path(&*inode));
        let stamp = Stamp::of(&stat(&file)?);
        let direct = match OpenFlags(flags).acc_mode() {
            OpenAccMode::O_WRONLY => None,
            _ => self.0.lower.open(&*inode, OFlags::RDONLY | OFlags::DIRECT).ok(),
        };
        let keeps = {
            let mut seen = inode.seen.lock();
            seen.replace(stamp) == Some(stamp)
        };
        let mut answer = FopenFlags::empty();
        if keeps {
            answer |= FopenFlags::FOPEN_KEEP_CACHE;
        } else {
            self.0.handed_out.lock().forget(inode.node);
        }
        let handle = self.0.files.add(OpenFile { inode, file, direct });
        Ok((FileHandle(handle), answer))
    }

    /// Opens an inode as its user did. Only regular files are ours: the kernel opens others itself.
    fn open_file(&self, node: INodeNo, flags: i32) -> Result<(FileHandle, FopenFlags)> {
        let inode = self.inode(node)?;
        if inode.kind != FileType::RegularFile {
            return Err(LowerErrno::INVAL);
        }
        let file = self.0.lower.open(&*inode, lower_flags(flags))?;
        self.opened(inode, file, flags)
    }

    fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle, FopenFlags)> {
        let parent = self.inode(parent)?;
        let name = checked(name)?;
        let exclusive = OFlags::from_bits_retain(flags as u32) & OFlags::EXCL;
        // Somebody may have put a pipe there meanwhile: nobody waits for it.
        let all = lower_flags(flags)
            | exclusive
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = {
            let _user = AsUser::become_user(request.uid(), request.gid())?;
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::openat2(&*parent, name, all, mode, lower::resolve())?
        };
        let fd = self.0.lower.open(&file, OFlags::PATH)?;
        let (inode, attributes) = self.tell(fd)?;
        let opened = match inode.kind {
            FileType::RegularFile => self.opened(inode.clone(), file, flags),
            _ => Err(LowerErrno::EXIST),
        };
        match opened {
            Ok((handle, answer)) => Ok((attributes, handle, answer)),
            Err(error) => {
                self.forget_inode(inode.node, 1);
                Err(error)
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "as the kernel asks")]
    fn set_attributes(
        &self,
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
            self.0.change(inode, 0..0, |_| {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(&**inode, "", uid, gid, AtFlags::EMPTY_PATH)
            })?;
        }
        // Of whoever else changes the user, the bits are gone: so the mode comes after.
        if let Some(mode) = mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            self.0.change(inode, 0..0, |_| self.0.set_mode(inode, mode))?;
        }
        if let Some(size) = size {
            if inode.kind != FileType::RegularFile {
                return Err(LowerErrno::INVAL);
            }
            let open = handle.map(|handle| self.file(handle)).transpose()?;
            self.0.truncate(inode, open.as_deref(), size)?;
        }
        if atime.is_some() || mtime.is_some() {
            let times =
                Timestamps { last_access: lower_time(atime), last_modification: lower_time(mtime) };
            self.0.change(inode, 0..0, |_| {
                rustix::fs::utimensat(&**inode, "", &times, AtFlags::EMPTY_PATH)
            })?;
        }
        self.attributes(inode)
    }

    fn rename_name(
        &self,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
    ) -> Result<()> {
        let (parent, new_parent) = (self.inode(parent)?, self.inode(new_parent)?);
        let (name, new_name) = (checked(name)?, checked(new_name)?);
        let flags = LowerRename::from_bits(flags.bits()).ok_or(LowerErrno::INVAL)?;
        self.with_name(&parent, name, || {
            rustix::fs::renameat_with(&*parent, name, &*new_parent, new_name, flags)
        })
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> Result<()> {
        let parent = self.inode(parent)?;
        let name = checked(name)?;
        self.with_name(&parent, name, || rustix::fs::unlinkat(&*parent, name, flags))
    }

    fn link_name(&self, node: INodeNo, parent: INodeNo, name: &OsStr) -> Result<OwnedFd> {
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
    fn names(&self, handle: FileHandle, offset: u64, reply: &mut ReplyDirectory) -> Result<()> {
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

    fn attribute(&self, node: INodeNo, name: &OsStr) -> Result<Vec<u8>> {
        if node.0 == ROOT && name == STATUS_NAME {
            return serde_json::to_vec(&self.0.status()).map_err(|_| LowerErrno::IO);
        }
        let inode = self.inode(node)?;
        let mut value = vec![0; MAX_XATTR_BYTES];
        let len = rustix::fs::getxattr(self.0.lower.path(&*inode), name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    fn attribute_names(&self, node: INodeNo) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let mut names = vec![0; MAX_XATTR_BYTES];
        let len = rustix::fs::listxattr(self.0.lower.path(&*inode), &mut names[..])?;
        names.truncate(len);
        Ok(names)
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

/// Whether the kernel keeps what it reads and writes with these flags.
fn is_cached(flags: OpenFlags) -> bool {
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
                match before.subsec_nanos() {
                    0 => Timespec { tv_sec: -(before.as_secs() as i64), tv_nsec: 0 },
                    part => Timespec {
                        tv_sec: -(before.as_secs() as i64) - 1,
                        tv_nsec: 1_000_000_000 - i64::from(part),
                    },
                }
            }
        },
    }
}

fn answer_empty(done: Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(shown(error)),
    }
}

/// Answers a question about extended attributes, which may be for the length alone.
fn answer_bytes(bytes: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    let bytes = or_error!(bytes, reply);
    match size {
        0 => reply.size(bytes.len() as u32),
        size if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        _ => reply.data(&bytes),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it, pages would outlive a change below.
        config.add_capabilities(InitFlags::FUSE_AUTO_INVAL_DATA).map_err(|_| {
            std::io::Error::other("the kernel does not drop pages of changed files")
        })?;
        for wanted in
            [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_POSIX_ACL]
        {
            // The kernel goes without.
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(MAX_READ_BYTES);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.inode(parent).and_then(|parent| beneath(&*parent, name)), reply);
    }

    fn forget(&self, _request: &Request, node: INodeNo, lookups: u64) {
        self.forget_inode(node.0, lookups);
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let attributes = self.inode(node).and_then(|inode| self.attributes(&inode));
        let attributes = or_error!(attributes, reply);
        reply.attr(&self.0.timeout, &attributes);
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attributes = self.inode(node).and_then(|inode| {
            self.set_attributes(&inode, mode, uid, gid, size, atime, mtime, handle)
        });
        let attributes = or_error!(attributes, reply);
        reply.attr(&self.0.timeout, &attributes);
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        let target =
            self.inode(node).and_then(|inode| rustix::fs::readlinkat(&*inode, "", Vec::new()));
        let target = or_error!(target, reply);
        reply.data(target.as_bytes());
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, |parent, name| {
            let kind = FileType::from_raw_mode(mode);
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mknodat(parent, name, kind, mode, lower::device(device))
        });
        self.entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, |parent, name| {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o7777))
        });
        self.entry(made, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(parent, name, AtFlags::empty()), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(parent, name, AtFlags::REMOVEDIR), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, |parent, name| {
            rustix::fs::symlinkat(target, parent, name)
        });
        self.entry(made, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer_empty(self.rename_name(parent, name, new_parent, new_name, flags), reply);
    }

    fn link(
        &self,
        _request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.entry(self.link_name(node, new_parent, new_name), reply);
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (handle, answer) = or_error!(self.open_file(node, flags.0), reply);
        reply.opened(handle, answer);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.create_file(request, parent, name, mode, flags);
        let (attributes, handle, answer) = or_error!(created, reply);
        reply.created(&self.0.timeout, &attributes, GENERATION, handle, answer);
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = or_error!(self.file(handle), reply);
        self.0.read(&open, offset, size, is_cached(flags), |read| match read {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(shown(error)),
        });
    }

    fn write(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let open = or_error!(self.file(handle), reply);
        // What leaves a mapping is of nobody who could be asked.
        let of_mapping = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let cached = of_mapping || is_cached(flags);
        let written = self.0.write(&open, offset, data, request.uid(), cached);
        let written = or_error!(written, reply);
        reply.written(written as u32);
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Writes have gone through.
        answer_empty(self.file(handle).map(drop), reply);
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.files.remove(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let synced = self.file(handle).and_then(|open| match data_only {
            true => rustix::fs::fdatasync(&open.file),
            false => rustix::fs::fsync(&open.file),
        });
        answer_empty(synced, reply);
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let opened = self
            .inode(node)
            .and_then(|inode| self.0.lower.open(&*inode, OFlags::RDONLY | OFlags::DIRECTORY));
        let directory = Mutex::new(or_error!(opened, reply));
        let handle = self.0.directories.add(OpenDirectory { directory });
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.names(handle, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(shown(error)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.directories.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let open = self.0.directories.get(handle.0).ok_or(LowerErrno::BADF);
        let synced = open.and_then(|open| {
            let directory = open.directory.lock();
            match data_only {
                true => rustix::fs::fdatasync(&*directory),
                false => rustix::fs::fsync(&*directory),
            }
        });
        answer_empty(synced, reply);
    }

    fn statfs(&self, _request: &Request, node: INodeNo, reply: ReplyStatfs) {
        let facts = self.inode(node).and_then(|inode| rustix::fs::fstatvfs(inode.as_fd()));
        let facts = or_error!(facts, reply);
        reply.statfs(
            facts.f_blocks,
            facts.f_bfree,
            facts.f_bavail,
            facts.f_files,
            facts.f_ffree,
            facts.f_bsize as u32,
            facts.f_namemax as u32,
            facts.f_frsize as u32,
        );
    }

    fn setxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = self.inode(node).and_then(|inode| {
            let flags = XattrFlags::from_bits_retain(flags as u32);
            let path = self.0.lower.path(&*inode);
            self.0.change(&inode, 0..0, |_| rustix::fs::setxattr(path, name, value, flags))
        });
        answer_empty(set, reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        answer_bytes(self.attribute(node, name), size, reply);
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        answer_bytes(self.attribute_names(node), size, reply);
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.inode(node).and_then(|inode| {
            let path = self.0.lower.path(&*inode);
            self.0.change(&inode, 0..0, |_| rustix::fs::removexattr(path, name))
        });
        answer_empty(removed, reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done =
            self.file(handle).and_then(|open| self.0.allocate(&open, mode as u32, offset, length));
        answer_empty(done, reply);
    }

    fn destroy(&mut self) {
        self.0.over.store(true, Relaxed);
    }
}

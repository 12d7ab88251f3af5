//! What the kernel asks for, operation by operation: what is done for it, `below` does.

mod below;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use below::{appends, is_cached};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, RequestId, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, OFlags, XattrFlags};
use rustix::io::Errno as LowerErrno;

use crate::as_user::AsUser;
use crate::handles::OpenDirectory;
use crate::lock_queue::{Asked, TRY_AGAIN};
use crate::locks::Bytes;
use crate::lower;
use crate::reading::MAX_READ_BYTES;
use crate::server::Server;
use crate::writing::Writing;

type Result<T> = std::result::Result<T, LowerErrno>;

/// Inode numbers are not used again while the kernel knows them.
const GENERATION: Generation = Generation(0);

/// Threads that wait for leases at most, and for how long: by then the kernel has taken them
/// (`/proc/sys/fs/lease-break-time`, 45 s).
const MOST_WAITING: usize = 64;
const MOST_WAIT: Duration = Duration::from_secs(60);

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
    fn entry(&self, named: (INodeNo, &OsStr), entry: Result<OwnedFd>, reply: ReplyEntry) {
        let (_, attributes) = or_error!(entry.and_then(|fd| self.tell(named, fd)), reply);
        reply.entry(&self.0.timeout, &attributes, GENERATION);
    }

    /// Answers with what comes of this. While somebody has a lease of the file, a thread that does nothing else tries
    /// again: those who answer the kernel are for all.
    fn past_leases<T: Send + 'static>(
        &self,
        attempt: impl Fn(&Files) -> Result<T> + Send + 'static,
        answer: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let done = attempt(self);
        if !matches!(done, Err(LowerErrno::AGAIN)) {
            return answer(done);
        }
        let server = self.0.clone();
        if server.waiting.fetch_add(1, Relaxed) >= MOST_WAITING {
            server.waiting.fetch_sub(1, Relaxed);
            return answer(done);
        }
        let wait = move || {
            let files = Files(server);
            let (since, mut done) = (Instant::now(), done);
            while matches!(done, Err(LowerErrno::AGAIN))
                && since.elapsed() < MOST_WAIT
                && !files.0.over.load(Relaxed)
            {
                thread::sleep(TRY_AGAIN);
                done = attempt(&files);
            }
            files.0.waiting.fetch_sub(1, Relaxed);
            answer(done);
        };
        // Without a thread the answer is an error.
        if thread::Builder::new().name("clew-mount-wait".to_string()).spawn(wait).is_err() {
            self.0.waiting.fetch_sub(1, Relaxed);
        }
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
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_POSIX_ACL,
            // Whether the umask counts depends on the directory's access lists.
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
        ] {
            // The kernel goes without.
            let _ = config.add_capabilities(wanted);
        }
        // Without it, what is opened for direct I/O could not be mapped to be shared.
        let may_map = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        self.0.passes_direct.store(may_map, Relaxed);
        let _ = config.set_max_write(MAX_READ_BYTES);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.inode(parent).and_then(|parent| self.find(&parent, name));
        self.entry((parent, name), found, reply);
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
        request: &Request,
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
        let timeout = self.0.timeout;
        let user = (request.uid(), request.gid());
        let set = move |files: &Files| {
            let inode = files.inode(node)?;
            files.set_attributes(user, &inode, mode, uid, gid, size, atime, mtime, handle)
        };
        self.past_leases(set, move |attributes| {
            let attributes = or_error!(attributes, reply);
            reply.attr(&timeout, &attributes);
        });
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
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let permissions = self.permissions_of_new(parent, mode, umask);
        let made = self.make(request, parent, name, |parent, name| {
            let (kind, mode) = (FileType::from_raw_mode(mode), permissions);
            rustix::fs::mknodat(parent, name, kind, mode, lower::device(device))
        });
        self.entry((parent, name), made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let permissions = self.permissions_of_new(parent, mode, umask);
        let made = self.make(request, parent, name, |parent, name| {
            rustix::fs::mkdirat(parent, name, permissions)
        });
        self.entry((parent, name), made, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(request, parent, name, AtFlags::empty()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(request, parent, name, AtFlags::REMOVEDIR), reply);
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
        self.entry((parent, name), made, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer_empty(self.rename_name(request, parent, name, new_parent, new_name, flags), reply);
    }

    fn link(
        &self,
        _request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.link_name(node, new_parent, new_name);
        self.entry((new_parent, new_name), made, reply);
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let answer = move |opened| {
            let (handle, answer) = or_error!(opened, reply);
            reply.opened(handle, answer);
        };
        match OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::NONBLOCK) {
            true => answer(self.open_file(node, flags.0)),
            false => self.past_leases(move |files| files.open_file(node, flags.0), answer),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let permissions = self.permissions_of_new(parent, mode, umask);
        let created = self.create_file(request, parent, name, permissions, flags);
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
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = or_error!(self.file(handle), reply);
        // Who reads past the page cache is named; what it reads for itself, also for a mapping of what is open for direct I/O, is
        // for nobody.
        let is_kept = lock_owner.is_none();
        self.0.read(&open, offset, size, is_kept, |read| match read {
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
        let user = (!of_mapping).then(|| (request.uid(), request.gid()));
        let appends = !of_mapping && appends(flags.0);
        let written = self.0.write(&open, offset, data, Writing { user, cached, appends });
        let written = or_error!(written, reply);
        reply.written(written as u32);
    }

    fn flush(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.0.locks.give_up((node.0, owner.0));
        let open = or_error!(self.file(handle), reply);
        if open.has_locked.load(Relaxed) {
            self.0.locks.has_closed(node.0, handle.0);
        }
        // Writes have gone through.
        reply.ok();
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
        let closed = self.0.files.remove(handle.0);
        reply.ok();
        if let Some(closed) = closed {
            self.0.locks.give_up_all_of(closed, handle.0);
        }
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
        request: &Request,
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
            self.0.change_attributes(&inode, |_| {
                let _user = AsUser::become_user(request.uid(), request.gid())?;
                rustix::fs::setxattr(path, name, value, flags)
            })
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

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        answer_bytes(self.attribute_names(request, node), size, reply);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.inode(node).and_then(|inode| {
            let path = self.0.lower.path(&*inode);
            self.0.change_attributes(&inode, |_| {
                let _user = AsUser::become_user(request.uid(), request.gid())?;
                rustix::fs::removexattr(path, name)
            })
        });
        answer_empty(removed, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let user = (request.uid(), request.gid());
        let done = self
            .file(handle)
            .and_then(|open| self.0.allocate(&open, user, mode as u32, offset, length));
        answer_empty(done, reply);
    }

    fn getlk(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let bytes = Bytes { node: node.0, owner: owner.0, range: (first, last), kind, pid };
        let found = self.file(handle).and_then(|open| self.0.locks.find_lock(&open, bytes));
        let found = or_error!(found, reply);
        reply.locked(found.range.0, found.range.1, found.kind, found.pid);
    }

    fn setlk(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        flock: bool,
        reply: ReplyEmpty,
    ) {
        let open = or_error!(self.file(handle), reply);
        let bytes = Bytes { node: node.0, owner: owner.0, range: (first, last), kind, pid };
        let server = self.0.clone();
        let attempt = move || match flock {
            true => server.locks.lock_file(&open, kind),
            false => server.locks.lock_bytes(&server.lower, (&open, handle.0), bytes),
        };
        let done = attempt();
        let at_most = match done {
            Err(LowerErrno::AGAIN) if waits => None,
            // That a file was closed, and its locks with it, is told a moment later.
            Err(LowerErrno::AGAIN) => match self.0.locks.may_be_about_to_end(bytes) {
                Some(at_most) => Some(at_most),
                None if flock => Some(TRY_AGAIN),
                // It may have been told since.
                None => return answer_empty(attempt(), reply),
            },
            done => return answer_empty(done, reply),
        };
        let asked = Asked { unique: request.unique().0, uid: request.uid(), at_most };
        let answer = move |done| answer_empty(done, reply);
        self.0.locks.queue.wait(asked, &self.0.over, attempt, answer);
    }

    fn interrupt(&self, request: RequestId) {
        self.0.locks.queue.interrupt(request.0);
    }

    fn destroy(&mut self) {
        self.0.over.store(true, Relaxed);
    }
}

//! The least that a FUSE server can be: one file, read through the lower page cache by whichever thread is asked. What a
//! mount is compared with; nothing of `clew-mount` is in it.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request, Session,
};

/// The name of the file.
pub const FILE: &str = "row";
/// As many threads as a mount of ours has, and requests as long.
const THREADS: usize = 4;
const MAX_BYTES: u32 = 1 << 20;
const ROOT: INodeNo = INodeNo(1);
const NODE: INodeNo = INodeNo(2);
/// Nobody changes the file.
const BELIEVED: Duration = Duration::from_secs(3600);

/// Serves `directory`'s file at `mount_point` until that is unmounted.
///
/// # Errors
/// If the file cannot be opened, or the kernel has no FUSE for us.
pub fn serve(directory: &Path, mount_point: &Path) -> std::io::Result<()> {
    let file = Arc::new(File::open(directory.join(FILE))?);
    let root = std::fs::metadata(directory)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("clew-bench".to_string())];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    Session::new(Plain { file, root }, mount_point, &config)?.run()
}

struct Plain {
    file: Arc<File>,
    root: Metadata,
}

impl Plain {
    fn attributes(&self, node: INodeNo) -> Result<FileAttr, Errno> {
        match node {
            ROOT => Ok(attributes(node, FileType::Directory, &self.root)),
            NODE => match self.file.metadata() {
                Ok(metadata) => Ok(attributes(node, FileType::RegularFile, &metadata)),
                Err(_) => Err(Errno::EIO),
            },
            _ => Err(Errno::ENOENT),
        }
    }
}

fn attributes(ino: INodeNo, kind: FileType, metadata: &Metadata) -> FileAttr {
    let time = metadata.modified().unwrap_or(UNIX_EPOCH);
    FileAttr {
        ino,
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Plain {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel goes without.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(MAX_BYTES);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent != ROOT || name != FILE {
            return reply.error(Errno::ENOENT);
        }
        match self.attributes(NODE) {
            Ok(attributes) => reply.entry(&BELIEVED, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(node) {
            Ok(attributes) => reply.attr(&BELIEVED, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size.min(MAX_BYTES) as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return reply.error(Errno::EIO),
            }
        }
        reply.data(&bytes[..done]);
    }
}

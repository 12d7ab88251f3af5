//! The lower file system, by descriptors.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fuser::{FileAttr, INodeNo};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx,
};
use rustix::io::{Errno, Result, pread};

use crate::PAGE_BYTES;
use crate::stamp::{FileKey, Stamp, time};

/// What links to our own descriptors are in.
const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// The way from a descriptor that only names an inode to one that opens it.
#[derive(Debug)]
pub struct Lower {
    descriptors: OwnedFd,
}

impl Lower {
    /// Finds it.
    ///
    /// # Errors
    /// If there is no /proc.
    pub fn new() -> Result<Lower> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Lower { descriptors: openat(CWD, OWN_DESCRIPTORS, flags, Mode::empty())? })
    }

    /// Opens the directory itself, as an inode. Unless it `may_follow` them, links on the way are refused (`LOOP`).
    ///
    /// # Errors
    /// As the system says.
    pub fn root(path: &Path, may_follow: bool) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = if may_follow { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        openat2(CWD, path, flags, Mode::empty(), how)
    }

    /// Opens an inode whose descriptor only names it: a regular file or a directory. It waits for nobody who has a lease
    /// of it (`F_SETLEASE`): he is asked to give that up, and it is `EAGAIN` until he has, or his time is over.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(&self, inode: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        openat(&self.descriptors, self.name(inode), flags, Mode::empty())
    }

    /// The name of an inode in [`Lower::directory`]; whoever follows it has the inode.
    pub fn name(&self, inode: impl AsFd) -> String {
        inode.as_fd().as_raw_fd().to_string()
    }

    /// Where these names are.
    pub fn directory(&self) -> &OwnedFd {
        &self.descriptors
    }

    /// The same as a path, for calls that want one.
    pub fn path(&self, inode: impl AsFd) -> PathBuf {
        Path::new(OWN_DESCRIPTORS).join(self.name(inode))
    }
}

/// A name in a directory, and no way to anywhere else.
///
/// # Errors
/// If it is not that.
pub fn checked(name: &OsStr) -> Result<&OsStr> {
    let bytes = name.as_encoded_bytes();
    match bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        true => Err(Errno::INVAL),
        false => Ok(name),
    }
}

/// What a name in a directory is, as an inode; links are not followed, mounts not entered.
///
/// # Errors
/// As the system says.
pub fn beneath(parent: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(parent, checked(name)?, flags, Mode::empty(), resolve())
}

/// How names are looked up in the tree.
pub fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS
}

/// The state of an inode.
///
/// # Errors
/// As the system says.
pub fn stat(inode: impl AsFd) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(inode, "", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, wanted)
}

/// What the pool calls it.
pub fn key(stat: &Statx) -> FileKey {
    FileKey { dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino }
}

/// What it is.
pub fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stat.stx_mode))
}

/// The kind as FUSE has it; a regular file where it is not known.
pub fn shown_kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => fuser::FileType::RegularFile,
    }
}

/// The state as FUSE has it, under the number of the inode.
pub fn attributes(node: u64, stat: &Statx) -> FileAttr {
    let stamp = Stamp::of(stat);
    let atime: SystemTime = time((stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec));
    FileAttr {
        ino: INodeNo(node),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime,
        mtime: time(stamp.mtime),
        ctime: time(stamp.ctime),
        crtime: time(stamp.btime),
        kind: shown_kind(kind(stat)),
        perm: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: packed_device(stat.stx_rdev_major, stat.stx_rdev_minor),
        blksize: stat.stx_blksize,
        flags: 0,
    }
}

/// A device number as the kernel packs it into 32 bits (`new_encode_dev`).
fn packed_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The other way (`new_decode_dev`).
pub fn device(packed: u32) -> u64 {
    let major = (packed & 0xf_ff00) >> 8;
    let minor = (packed & 0xff) | ((packed >> 12) & 0xf_ff00);
    rustix::fs::makedev(major, minor)
}

/// Reads until the buffer is full or the file ends.
///
/// # Errors
/// As the system says; what was read before is lost.
pub fn read_full(file: &OwnedFd, into: &mut [u8], at: u64) -> Result<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name() {
        for bad in ["", ".", "..", "a/b", "/", "../x"] {
            assert_eq!(checked(OsStr::new(bad)), Err(Errno::INVAL), "{bad}");
        }
        assert!(checked(OsStr::new("..x")).is_ok());
    }

    #[test]
    fn nothing_outside_is_found() {
        let tree = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", tree.path().join("out")).unwrap();
        let root = Lower::root(tree.path(), true).unwrap();
        let link = beneath(&root, OsStr::new("out")).unwrap();
        assert_eq!(kind(&stat(&link).unwrap()), FileType::Symlink);
        assert!(beneath(&root, OsStr::new("..")).is_err());
    }

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(1, 3), (259, 70_000), (0xfff, 0xf_ffff)] {
            assert_eq!(device(packed_device(major, minor)), rustix::fs::makedev(major, minor));
        }
    }
}

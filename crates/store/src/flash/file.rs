//! A file or a block device as what a log is written to, without the kernel's cache.
//!
//! Writes wait, and are for threads that may wait. They are plain system calls on purpose: a process that is killed
//! is not gone before such a call is over, so nothing that it was writing arrives after its successor has
//! begun. Reads are begun and told when they are over, through io_uring ([`super::uring`]), or through some
//! threads where the kernel refuses that ([`super::threads`]).
//!
//! The first 4 KiB say whose the device is. They are looked at before anything is written: what has other contents
//! is left alone unless the caller insists.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::device::{ALIGN, Blocks, Device, Read, Write};
use super::threads::Threads;
use super::uring::Ring;

const MAGIC: &[u8; 16] = b"clew flash log 1";
/// Bytes at either end of a device in which a file system would leave a mark.
const LOOKED_AT: u64 = 1 << 20;

/// Why a file or block device is not used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The system refused.
    #[error("{call} of {path}: {source}", path = path.display())]
    System {
        /// The call that failed.
        call: &'static str,
        /// The file or device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody has it: another daemon, or the kernel, which has mounted it.
    #[error("{} is in use", path.display())]
    InUse {
        /// The file or device.
        path: PathBuf,
    },
    /// It holds something that no log of ours has written.
    #[error("{} is not empty and was not written by Clew: it would be lost", path.display())]
    NotOurs {
        /// The file or device.
        path: PathBuf,
    },
    /// Neither a file nor a block device.
    #[error("{} is neither a file nor a block device", path.display())]
    Kind {
        /// What it is called.
        path: PathBuf,
    },
    /// Too small for a log.
    #[error("{bytes} bytes of {} are too few for a log: {least} at least", path.display())]
    TooSmall {
        /// The file or device.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The smallest size that is of use.
        least: u64,
    },
}

/// How a file or block device is opened.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its name; a symbolic link is not followed.
    pub path: PathBuf,
    /// Bytes that a file gets, and that are used of a block device; all of a block device if `None`.
    pub bytes: Option<u64>,
    /// Smallest size that is of use, bytes.
    pub least: u64,
    /// Whether contents that are not ours may be lost.
    pub overwrite: bool,
}

/// A file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<File>,
    bytes: u64,
    reads: Reads,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Reads {
    Ring(Ring),
    Threads(Threads),
}

impl FileDevice {
    /// Opens it for nobody else to use, and gives a file its size and the space for it.
    ///
    /// # Errors
    /// See [`DeviceError`].
    pub fn open(open: &Open) -> Result<FileDevice, DeviceError> {
        let path = &open.path;
        let system = |call, source| DeviceError::System { call, path: path.clone(), source };
        let kind = || DeviceError::Kind { path: path.clone() };
        let (is_block, is_new) = match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_block_device() => (true, false),
            Ok(meta) if meta.is_file() => (false, false),
            Ok(_) => return Err(kind()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (false, true),
            Err(error) => return Err(system("stat", error)),
        };
        let mut notes = Vec::new();
        // For block devices, exclusive: what is mounted, or another's, is busy.
        let exclusive = if is_block { libc::O_EXCL } else { 0 };
        let opened = |flags: i32| {
            let mut options = File::options();
            options.read(true).write(true).create(!is_block).truncate(false).mode(0o600);
            options.custom_flags(flags | exclusive | libc::O_NOFOLLOW).open(path)
        };
        let file = match opened(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                notes.push(format!("{} takes no direct I/O: the kernel caches it", path.display()));
                opened(0)
            }
            other => other,
        };
        let file = match file {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(DeviceError::InUse { path: path.clone() });
            }
            other => other.map_err(|error| system("open", error))?,
        };
        // SAFETY: plain system call on our descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(DeviceError::InUse { path: path.clone() });
        }
        let meta = file.metadata().map_err(|error| system("stat", error))?;
        // What was opened need not be what was looked at.
        if meta.file_type().is_block_device() != is_block || meta.is_file() == is_block {
            return Err(kind());
        }
        let mut unfit = Unfit { file: &file, path, is_new, restore: None };
        let found = match is_block {
            true => block_device_bytes(&file).map_err(|error| system("BLKGETSIZE64", error))?,
            false => meta.len(),
        };
        if !open.overwrite
            && !is_ours(&file, is_block, found).map_err(|error| system("read", error))?
        {
            return Err(DeviceError::NotOurs { path: path.clone() });
        }
        let bytes = open.bytes.unwrap_or(found);
        let bytes = if is_block { bytes.min(found) } else { bytes } & !(ALIGN as u64 - 1);
        if bytes < open.least {
            return Err(DeviceError::TooSmall { path: path.clone(), bytes, least: open.least });
        }
        if !is_block {
            unfit.restore = Some(found);
            file.set_len(bytes).map_err(|error| system("ftruncate", error))?;
            // SAFETY: plain system call on our descriptor.
            if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } != 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EOPNOTSUPP) => notes.push(format!(
                        "{}: space cannot be set aside, it may be found missing later",
                        path.display()
                    )),
                    _ => return Err(system("fallocate", error)),
                }
            }
        }
        let mut head = Blocks::zeroed(ALIGN);
        head.bytes_mut()[..MAGIC.len()].copy_from_slice(MAGIC);
        file.write_all_at(head.bytes(), 0).map_err(|error| system("write", error))?;
        unfit.keep();
        Ok(FileDevice::of(file, bytes, notes))
    }

    /// The one that a predecessor opened; `bytes` is what it was said to have. It may have become shorter: that is
    /// its size then.
    ///
    /// # Errors
    /// If it is no file or block device.
    pub fn adopt(fd: OwnedFd, bytes: u64) -> Result<FileDevice, DeviceError> {
        let (file, path) = (File::from(fd), Path::new("the flash device"));
        let system = |call, source| DeviceError::System { call, path: path.into(), source };
        let meta = file.metadata().map_err(|error| system("stat", error))?;
        let found = match meta.file_type() {
            kind if kind.is_block_device() => {
                block_device_bytes(&file).map_err(|error| system("BLKGETSIZE64", error))?
            }
            kind if kind.is_file() => meta.size(),
            _ => return Err(DeviceError::Kind { path: path.into() }),
        };
        Ok(FileDevice::of(file, bytes.min(found), Vec::new()))
    }

    fn of(file: File, bytes: u64, mut notes: Vec<String>) -> FileDevice {
        let file = Arc::new(file);
        let reads = match Ring::new(Arc::clone(&file)) {
            Ok(ring) => Reads::Ring(ring),
            Err(error) => {
                notes.push(format!("io_uring: {error}; flash is read by threads"));
                Reads::Threads(Threads::new(Arc::clone(&file)))
            }
        };
        FileDevice { file, bytes, reads, notes }
    }

    /// Reads by threads, whatever the kernel can do.
    #[cfg(test)]
    pub(super) fn by_threads(mut self) -> FileDevice {
        self.reads = Reads::Threads(Threads::new(Arc::clone(&self.file)));
        self
    }

    /// What people should know of how it was opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// A file that is not of use after all: it is what it was before, or it is gone.
struct Unfit<'a> {
    file: &'a File,
    path: &'a Path,
    is_new: bool,
    /// Its length, where it was given another one.
    restore: Option<u64>,
}

impl Unfit<'_> {
    fn keep(mut self) {
        (self.is_new, self.restore) = (false, None);
    }
}

impl Drop for Unfit<'_> {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(self.path);
        } else if let Some(bytes) = self.restore {
            let _ = self.file.set_len(bytes);
        }
    }
}

impl Device for FileDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&self, Write { at, from, offset, len, .. }: Write<'_>) -> Option<io::Result<usize>> {
        if offset.checked_add(len).is_none_or(|end| end > from.len()) {
            return Some(Err(io::ErrorKind::InvalidInput.into()));
        }
        let (fd, from) = (self.file.as_raw_fd(), from.at(offset));
        // SAFETY: the segment has `len` bytes from there on, and is mapped until we return.
        let wrote = unsafe { libc::pwrite(fd, from.cast(), len, at as libc::off_t) };
        Some(match wrote {
            wrote if wrote >= 0 => Ok(wrote as usize),
            _ => Err(io::Error::last_os_error()),
        })
    }

    fn read(&self, read: Read) {
        match &self.reads {
            Reads::Ring(ring) => ring.read(read),
            Reads::Threads(threads) => threads.read(read),
        }
    }

    fn way(&self) -> &'static str {
        match &self.reads {
            Reads::Ring(_) => "io_uring",
            Reads::Threads(_) => "threads",
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

fn block_device_bytes(file: &File) -> io::Result<u64> {
    /// `_IOR(0x12, 114, size_t)`.
    const BLKGETSIZE64: u64 = 0x8008_1272;
    let mut bytes = 0u64;
    // SAFETY: the call writes eight bytes there.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64 as _, &mut bytes) };
    if got == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Whether a log of ours has written it, or nobody: a file without a byte, or a device with nothing but zeros where
/// a file system has its marks.
fn is_ours(file: &File, is_block: bool, bytes: u64) -> io::Result<bool> {
    let mut block = Blocks::zeroed(64 << 10);
    let mut read = |at: u64| -> io::Result<(usize, bool, bool)> {
        let got = file.read_at(block.bytes_mut(), at)?;
        let bytes = &block.bytes()[..got];
        Ok((got, bytes.starts_with(MAGIC), bytes.iter().all(|byte| *byte == 0)))
    };
    let (_, is_marked, _) = read(0)?;
    if is_marked || !is_block {
        return Ok(is_marked || bytes == 0);
    }
    let end = (bytes.saturating_sub(LOOKED_AT) & !(ALIGN as u64 - 1)).max(LOOKED_AT);
    for (from, to) in [(0, bytes.min(LOOKED_AT)), (end, bytes)] {
        let mut at = from;
        while at < to {
            let (got, _, is_zero) = read(at)?;
            if !is_zero {
                return Ok(false);
            }
            if got == 0 {
                break;
            }
            at += got as u64;
        }
    }
    Ok(true)
}

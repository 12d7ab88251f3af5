//! A swap file on a disk, from its creation to its removal.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{BenchError, file_error};
use crate::zram::run;

/// A swap file in use. Its end takes it out of use and removes it.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    swapping: bool,
}

impl SwapFile {
    /// Makes a file of `size_bytes` in `directory` and swaps to it before any other device.
    pub fn start(directory: &Path, size_bytes: u64) -> Result<SwapFile, BenchError> {
        let path = directory.join("swap");
        let file = File::create(&path).map_err(file_error("create", &path))?;
        let mut swap = SwapFile { path: path.clone(), swapping: false };
        let private = fs::Permissions::from_mode(0o600);
        file.set_permissions(private).map_err(file_error("protect", &path))?;
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        let status = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size_bytes as i64) };
        if status != 0 {
            let source = std::io::Error::last_os_error();
            return Err(file_error("make room for", &path)(source));
        }
        run(Command::new("mkswap").arg(&path))?;
        run(Command::new("swapon").args(["-p", "32767"]).arg(&path)).map_err(|error| {
            BenchError::Unavailable {
                what: "a swap file",
                reason: format!("{error} (the file system must be one of a disk: set TMPDIR)"),
            }
        })?;
        swap.swapping = true;
        Ok(swap)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        if self.swapping
            && let Err(error) = run(Command::new("swapoff").arg(&self.path))
        {
            clew_core::remark!("{} is still in use: {error}", self.path.display());
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            clew_core::remark!("{} could not be removed: {error}", self.path.display());
        }
    }
}

//! How a file system of ours is made and comes into the tree: at a directory that is open, as its path may lead elsewhere by
//! then where others may change a directory on the way. Who may not mount has `fusermount3` do it, by the path.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::place::{Placed, SOURCE};

const DEVICE: &str = "/dev/fuse";

/// A file system that is not in the tree yet.
pub struct Made {
    /// Of the whole of it; the last one of them ends it.
    tree: OwnedFd,
}

/// Makes one, and opens what its server reads. `None` where this process may not.
///
/// # Errors
/// If it cannot be made.
pub fn make(allow_other: bool, forbids_programs: bool) -> Result<Option<(OwnedFd, Made)>, Errno> {
    let made = match fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
        // The second: a kernel, or who watches over a container, that has no such calls.
        Err(Errno::PERM | Errno::NOSYS) => return Ok(None),
        made => made?,
    };
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let number = |number: u32| number.to_string();
    for (key, value) in [
        ("source", SOURCE.to_string()),
        ("subtype", SOURCE.to_string()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_string()),
        ("user_id", number(rustix::process::getuid().as_raw())),
        ("group_id", number(rustix::process::getgid().as_raw())),
    ] {
        fsconfig_set_string(&made, key, value)?;
    }
    // Who may what is decided by the kernel, from the attributes it is told.
    fsconfig_set_flag(&made, "default_permissions")?;
    if allow_other {
        fsconfig_set_flag(&made, "allow_other")?;
    }
    fsconfig_create(&made)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if forbids_programs {
        attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
    }
    let tree = fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(Some((device, Made { tree })))
}

impl Made {
    /// Mounts it at this directory.
    ///
    /// # Errors
    /// If it cannot be; it is in no tree then.
    pub fn mount_at(self, directory: &OwnedFd) -> Result<Placed, Errno> {
        let placed = Placed::of(&self.tree)?;
        let both =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.tree, "", directory, "", both)?;
        Ok(placed)
    }
}

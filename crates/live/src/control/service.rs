//! The service for all users of this machine, as one of them finds it: root's socket, which members of a group may
//! connect to. It is relied upon as far as only root can have made it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, getegid, getgroups};

use crate::control::client::{Client, ControlError};
use crate::control::trusted_path::{self, own_uid};

/// Where root's daemon is served unless told otherwise, and so a service for all users.
pub const ROOTS_SOCKET: &str = "/run/clew/clew.sock";

/// Where the daemon of this user is served unless told otherwise.
pub fn default_socket() -> PathBuf {
    let uid = trusted_path::own_uid();
    if uid == 0 {
        return PathBuf::from(ROOTS_SOCKET);
    }
    // One that is not absolute is to be ignored.
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("clew/clew.sock"),
        None => std::env::temp_dir().join(format!("clew-{uid}/clew.sock")),
    }
}

/// What is at a socket.
#[derive(Debug)]
pub enum Service {
    /// No service for all users.
    None,
    /// One, for others than this user: members of this group.
    ForOthers { group: u32 },
    /// One that this user may use.
    Ours { group: u32 },
    /// One that this user may use, and that does not answer now.
    Silent { group: u32, error: ControlError },
}

/// What is at this socket, for this process.
pub fn look_at(socket: &Path) -> Service {
    if trusted_path::check(trusted_path::directory_of(socket)).is_err() {
        return Service::None;
    }
    let Ok(found) = fs::symlink_metadata(socket) else { return Service::None };
    // A daemon that serves its own user leaves its socket to that user alone.
    if !found.file_type().is_socket() || found.uid() != 0 || found.mode() & 0o060 != 0o060 {
        return Service::None;
    }
    let group = found.gid();
    let is_ours = |gid: Gid| gid.as_raw() == group;
    let is_member =
        is_ours(getegid()) || getgroups().is_ok_and(|groups| groups.into_iter().any(is_ours));
    if own_uid() != 0 && !is_member {
        return Service::ForOthers { group };
    }
    match Client::connect(socket) {
        Ok(_) => Service::Ours { group },
        // It was there, and nobody is there in its place.
        Err(ControlError::NoDaemon { .. }) => Service::None,
        Err(error) => Service::Silent { group, error },
    }
}

/// What a group is called, with its number.
pub fn group_named(group: u32) -> String {
    match Group::from_gid(Gid::from_raw(group)) {
        Ok(Some(found)) => format!("'{}' ({group})", found.name),
        _ => group.to_string(),
    }
}

/// Where this user's commands find their daemon unless told otherwise: the service for all users where this user
/// may use it, and the user's own socket else; and why not the service, if there is one.
pub fn socket_of_user() -> (PathBuf, Option<String>) {
    if own_uid() == 0 {
        return (default_socket(), None);
    }
    let roots = Path::new(ROOTS_SOCKET);
    let why = match look_at(roots) {
        Service::Ours { .. } => return (roots.to_path_buf(), None),
        Service::None => None,
        Service::ForOthers { group } => Some(format!(
            "the service for all users at {ROOTS_SOCKET} is for members of group {}, and you are in none of \
             that name since you logged in",
            group_named(group)
        )),
        Service::Silent { error, .. } => {
            Some(format!("the service for all users at {ROOTS_SOCKET} cannot be used: {error}"))
        }
    };
    (default_socket(), why)
}

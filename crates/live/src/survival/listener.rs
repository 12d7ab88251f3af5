//! A socket in which a daemon listens, and the file by which others find it: whether it leads there still, and another one in
//! its place where it does not.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use socket2::{Domain, SockAddr, SockRef, Socket};

use super::predecessor::ProcessName;
use crate::agents::seqpacket;
use crate::control::trusted_path::own_uid;

/// Lets members of a group connect to the socket at `path`, which is no link.
///
/// # Errors
/// Those of the system; it is no socket of this user.
pub fn let_in(path: &Path, group: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = socket.metadata()?;
    if !found.file_type().is_socket() || found.uid() != own_uid() {
        let what = format!("{} is no socket of user {}", path.display(), own_uid());
        return Err(io::Error::new(ErrorKind::PermissionDenied, what));
    }
    // By what is open: what has its name may change meanwhile.
    let open = format!("/proc/self/fd/{}", socket.as_raw_fd());
    chown(&open, None, Some(group))?;
    fs::set_permissions(open, Permissions::from_mode(0o660))
}

/// Who listens at `path`: nobody, or a process, zero where it is not seen from here or cannot be told.
///
/// # Errors
/// Those of the system.
pub fn who_listens(path: &Path, kind: libc::c_int) -> io::Result<Option<u32>> {
    let socket = Socket::new(Domain::UNIX, (kind & !libc::SOCK_NONBLOCK).into(), None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(Some(seqpacket::peer(&socket)?.pid as u32)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Of another kind, or too many wait already.
        Err(_) => Ok(Some(0)),
    }
}

/// Whether somebody who lives listens at `path`. (Of a dead daemon a keeper may hold the socket.)
///
/// # Errors
/// As [`who_listens`].
pub fn is_served(path: &Path, kind: libc::c_int) -> io::Result<bool> {
    let is_alive = |pid| ProcessName::of(pid).is_ok_and(|listener| listener.is_alive());
    Ok(who_listens(path, kind)?.is_some_and(|pid| pid == 0 || is_alive(pid)))
}

/// Device and inode of what has this name.
type FileName = (u64, u64);

fn file_at(path: &Path) -> Option<FileName> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// A socket in which this daemon listens.
pub struct Listener {
    path: PathBuf,
    kind: libc::c_int,
    /// Another one comes in its place under the same number, by which a keeper and a successor know it, too.
    socket: BorrowedFd<'static>,
    /// Its file; `None` if what is at its path leads to somebody else.
    file: Option<FileName>,
}

impl Listener {
    /// `kind`: SOCK_STREAM for clients, SOCK_SEQPACKET for agents, with what else the socket is made with.
    pub fn new(path: PathBuf, kind: libc::c_int, socket: BorrowedFd<'static>) -> Listener {
        let leads_here =
            matches!(who_listens(&path, kind), Ok(Some(pid)) if pid == std::process::id());
        let file = file_at(&path).filter(|_| leads_here);
        Listener { path, kind, socket, file }
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what is at its path leads here.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some() && self.file == file_at(&self.path)
    }

    /// What is at its path, if nobody needs that, goes.
    fn make_way(&self) -> io::Result<()> {
        let here = self.path.display();
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let refused = |why: String| Err(io::Error::new(ErrorKind::AlreadyExists, why));
        if !found.file_type().is_socket() {
            return refused(format!(
                "{here} is no socket any more: remove it, and it is made again"
            ));
        }
        if is_served(&self.path, self.kind)? {
            return refused(format!("somebody else listens at {here}, where this daemon did"));
        }
        fs::remove_file(&self.path)
    }

    /// Listens at the same place with a socket that is new, to which members of `group` may connect.
    ///
    /// # Errors
    /// Something else is there that is no socket, or served; those of the system.
    pub(super) fn anew(&mut self, group: Option<u32>) -> io::Result<()> {
        self.make_way()?;
        let new = seqpacket::listen(&self.path, self.kind)?;
        let is_for_agents = self.kind & libc::SOCK_SEQPACKET == libc::SOCK_SEQPACKET;
        seqpacket::takes_descriptors(&new, is_for_agents);
        group.map_or(Ok(()), |group| let_in(&self.path, group))?;
        let old = self.socket.try_clone_to_owned()?;
        become_this(self.socket, &new)?;
        self.file = file_at(&self.path);
        // Who waits in the old one is woken by its end, and waits on unless somebody waits in the one that the number
        // means by then.
        let visitor = Socket::new(Domain::UNIX, (self.kind & !libc::SOCK_NONBLOCK).into(), None)?;
        visitor.connect(&SockAddr::unix(&self.path)?)?;
        SockRef::from(&old).shutdown(Shutdown::Both)
    }
}

/// Has the number of `of` mean what `new` is.
fn become_this(of: BorrowedFd<'static>, new: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes numbers only; that of `of` is an open descriptor before and after it.
    match unsafe { libc::dup3(new.as_raw_fd(), of.as_raw_fd(), libc::O_CLOEXEC) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Whoever may make a link where a socket is to be gives away no file of this user.
    #[test]
    fn a_group_is_let_in_to_sockets_alone() {
        let dir = std::env::temp_dir().join(format!("clew-let-in-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let (file, link, socket) = (dir.join("file"), dir.join("link"), dir.join("socket"));
        fs::write(&file, "mine").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        // SAFETY: takes nothing, cannot fail.
        let group = unsafe { libc::getegid() };
        for other in [&file, &link] {
            assert!(let_in(other, group).is_err(), "{}", other.display());
        }
        assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
        let _listener = UnixListener::bind(&socket).expect("it is free");
        let_in(&socket, group).expect("it is one");
        assert_eq!(fs::metadata(&socket).expect("it is there").mode() & 0o777, 0o660);
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}

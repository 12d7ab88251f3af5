//! What a daemon has where it is served, made again where it is gone: who tidies a directory for temporary files removes
//! what is old, or all of it.
//!
//! Nothing is made where somebody else serves by now: what is beside a socket says which programs wait for whom.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use socket2::{Domain, SockAddr, SockRef, Socket};

use super::predecessor::{
    Predecessor, ProcessName, beside, lock_at_once, numbers, replace, server, write_server,
};
use crate::agents::seqpacket;
use crate::control::trusted_path::{self, own_uid};

/// How often is looked whether it is there.
const LOOK_BESIDE: Duration = Duration::from_secs(1);

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

    fn is_there(&self) -> bool {
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

    /// Listens at the same place with a socket that is new.
    fn anew(&mut self, group: Option<u32>) -> io::Result<()> {
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

/// What is written down beside a socket and the sockets themselves, as the daemon that serves there knows them.
pub struct Beside {
    socket: PathBuf,
    own: ProcessName,
    keeper: ProcessName,
    generation: u64,
    journal: RawFd,
    /// Not those of a service manager.
    listeners: Vec<Listener>,
    /// Who is let in besides the own user.
    group: Option<u32>,
    /// The mode of the directory.
    mode: u32,
    looked: Instant,
    /// What could not be done the last time.
    failed: Option<String>,
}

impl Beside {
    /// Writes down that process `keeper` holds the descriptors of `generation`. From this moment on a successor
    /// goes by them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn commit(
        socket: &Path,
        keeper: u32,
        generation: u64,
        journal: RawFd,
    ) -> io::Result<Beside> {
        let (own, keeper) = (ProcessName::of(std::process::id())?, ProcessName::of(keeper)?);
        let beside = Beside {
            socket: socket.to_path_buf(),
            own,
            keeper,
            generation,
            journal,
            listeners: Vec::new(),
            group: None,
            mode: 0o700,
            looked: Instant::now(),
            failed: None,
        };
        beside.write_keeper()?;
        Ok(beside)
    }

    /// Looks after these sockets, too, in a directory of this mode, to which members of `group` may connect.
    pub fn with_listeners(self, listeners: Vec<Listener>, mode: u32, group: Option<u32>) -> Beside {
        Beside { listeners, mode, group, ..self }
    }

    fn write_keeper(&self) -> io::Result<()> {
        let text = self.keeper_numbers().map(|number| number.to_string()).join(" ");
        replace(&beside(&self.socket, "keeper"), &format!("{text}\n"))
    }

    /// Now and then makes again what is gone; whether the keeper lives, as far as was looked.
    ///
    /// # Errors
    /// It cannot be made: said once, until something else is in the way.
    pub fn look_after(&mut self) -> io::Result<bool> {
        if self.looked.elapsed() < LOOK_BESIDE {
            return Ok(true);
        }
        self.looked = Instant::now();
        if !self.keeper.is_alive() {
            return Ok(false);
        }
        let failed = self.make_again().err();
        let said = std::mem::replace(&mut self.failed, failed.as_ref().map(io::Error::to_string));
        match failed {
            Some(error) if self.failed != said => Err(error),
            _ => Ok(true),
        }
    }

    fn make_again(&mut self) -> io::Result<()> {
        let directory = trusted_path::directory_of(&self.socket);
        match trusted_path::check(directory) {
            Err(error) if !error.is_missing() => return Err(io::Error::other(error)),
            _ => {}
        }
        if self.listeners.iter().all(Listener::is_there)
            && self.is_keeper_named()
            && self.named() == Some(self.own)
        {
            return Ok(());
        }
        trusted_path::make(directory, self.mode).map_err(io::Error::other)?;
        let _lock = lock_at_once(&self.socket)?;
        match self.named() {
            Some(server) if server == self.own => {}
            Some(other) if self.has_place(other)? => return Err(taken(other)),
            Some(_) | None => write_server(&self.socket, self.own)?,
        }
        if !self.is_keeper_named() {
            self.write_keeper()?;
        }
        let mut gone = self.listeners.iter_mut().filter(|listener| !listener.is_there());
        gone.try_for_each(|listener| listener.anew(self.group))
    }

    /// Who serves here, by what is written down; nobody if that makes no sense.
    fn named(&self) -> Option<ProcessName> {
        server(&self.socket).ok().flatten()
    }

    /// Whether this daemon's keeper is what a successor finds.
    fn is_keeper_named(&self) -> bool {
        let found = numbers(&beside(&self.socket, "keeper")).ok().flatten();
        found == Some(self.keeper_numbers())
    }

    fn keeper_numbers(&self) -> [u64; 4] {
        let ProcessName { pid, started } = self.keeper;
        [pid.into(), started, self.generation, self.journal as u64]
    }

    /// Whether `other` serves here, or programs wait for one who takes over from it.
    fn has_place(&self, other: ProcessName) -> io::Result<bool> {
        if other.open()?.is_some_and(|process| !other.is_over(&process)) {
            return Ok(true);
        }
        match Predecessor::find(&self.socket) {
            // It names no keeper.
            Err(error) if error.kind() == ErrorKind::InvalidData => Ok(false),
            left => Ok(left?.is_some_and(|left| left.name != self.keeper)),
        }
    }
}

fn taken(other: ProcessName) -> io::Error {
    let what = "was removed, and process";
    io::Error::other(format!(
        "the directory of the socket {what} {} has begun to serve there: nobody can reach this daemon, nor take over \
         from it, until that one has ended in order",
        other.pid
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::survival::predecessor::claim;

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

    #[test]
    fn where_there_is_a_keeper_all_is_left() {
        let dir = std::env::temp_dir().join(format!("clew-kept-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("clew.sock");
        let claimed =
            || claim(&socket).expect("the files can be written").expect("nobody serves it");
        let mut keeper =
            std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let first = claimed();
        let _beside = Beside::commit(&socket, keeper.id(), 1, 3).expect("the files can be written");
        drop(first);
        for what in ["keeper", "pid", "lock"] {
            assert!(beside(&socket, what).exists(), "{what}");
        }
        keeper.kill().and_then(|()| keeper.wait()).expect("it was ours");
        drop(claimed());
        fs::remove_dir(&dir).expect("nothing is left");
    }

    #[test]
    fn a_file_that_cannot_be_put_in_its_place_goes() {
        let dir = std::env::temp_dir().join(format!("clew-partial-{}", std::process::id()));
        let socket = dir.join("clew.sock");
        let place = beside(&socket, "keeper");
        fs::create_dir_all(&place).expect("a directory, which no file replaces");
        let written = Beside::commit(&socket, std::process::id(), 1, 3);
        assert!(written.is_err(), "it cannot be replaced");
        fs::remove_dir(&place).expect("it is ours");
        fs::remove_dir(&dir).expect("nothing else is left");
    }
}

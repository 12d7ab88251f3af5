//! Where a daemon is served: the files of its sockets, who has them, and which may be replaced.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket};

use super::DaemonError;
use crate::agents::seqpacket;
use crate::control::client::Client;
use crate::control::protocol::Request;
use crate::control::trusted_path;
use crate::survival::last_threads;
use crate::survival::listener::{is_served, let_in};
use crate::survival::predecessor;

/// What the socket for agents is: nobody waits in accept for a peer that has gone away again.
pub(super) const AGENTS: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK;

/// Where the daemon that serves `socket` hears agents.
pub fn agents_socket(socket: &Path) -> PathBuf {
    socket.with_extension("agents")
}

/// Checks that the files beside a socket are others than itself, and that both sockets can be bound.
///
/// # Errors
/// [`DaemonError::Ending`] if one of them has its name, [`DaemonError::TooLong`].
pub fn check_names(socket: &Path) -> Result<(), DaemonError> {
    if [socket, &agents_socket(socket)].into_iter().any(|at| SockAddr::unix(at).is_err()) {
        return Err(DaemonError::TooLong(socket.to_path_buf()));
    }
    let taken = ["agents", "pid", "keeper", "lock"];
    match taken.into_iter().find(|ending| socket.extension() == Some(ending.as_ref())) {
        Some(ending) => Err(DaemonError::Ending(format!(".{ending}"))),
        None => Ok(()),
    }
}

/// Makes `path` free for who listens: what one that is dead left there goes.
pub(super) fn free(path: &Path, kind: libc::c_int) -> Result<(), DaemonError> {
    let fail = |what| {
        let path = path.to_path_buf();
        move |source| DaemonError::File { what, path, source }
    };
    if !is_socket(path)? {
        return Ok(());
    }
    if is_served(path, kind).map_err(fail("looking who serves"))? {
        return Err(DaemonError::Served(path.to_path_buf()));
    }
    fs::remove_file(path).map_err(fail("replacing"))
}

/// Listens at `socket` for clients alone, of this user and root: for who has no programs with agents.
///
/// # Errors
/// Others can change what is there, somebody serves there, or it is no socket.
pub fn listen_for_clients(socket: &Path) -> Result<(UnixListener, Bound), DaemonError> {
    check_names(socket)?;
    trusted_path::make(trusted_path::directory_of(socket), 0o700)?;
    free(socket, libc::SOCK_STREAM)?;
    let mut bound = Bound::default();
    let listener = bound.listen(socket, libc::SOCK_STREAM)?;
    Ok((UnixListener::from(listener), bound))
}

/// Whether there is something at `path`, which must be a socket then.
pub(super) fn is_socket(path: &Path) -> Result<bool, DaemonError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(DaemonError::NoSocket(path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => {
            Err(DaemonError::File { what: "looking at", path: path.to_path_buf(), source })
        }
    }
}

/// The daemon that lives and serves `socket`, whatever is written down about it: its number, zero where it is not seen from
/// here. Of a service manager, who may have made the socket, nobody can tell so whether a daemon serves there.
pub(super) fn living_daemon(path: &Path) -> io::Result<Option<u32>> {
    let socket = Socket::new(Domain::UNIX, libc::SOCK_STREAM.into(), None)?;
    socket.set_nonblocking(true)?;
    // Nobody is there, or too many wait already: then what is written down says who serves.
    if socket.connect(&SockAddr::unix(path)?).is_err() {
        return Ok(None);
    }
    match seqpacket::peer_process(&socket) {
        Ok(process) if !predecessor::has_ended(&process, Duration::ZERO) => {}
        Ok(_) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    }
    let pid = seqpacket::peer(&socket)?.pid as u32;
    if pid > 0 && last_threads::can_do_nothing(pid) {
        return Ok(None);
    }
    let name = |process: &str| fs::read(format!("/proc/{process}/comm")).ok();
    let is_daemon = pid == 0 || name(&pid.to_string()) == name("self");
    Ok(is_daemon.then_some(pid))
}

/// Lets members of a group connect to both sockets; without one nobody but this user, where the sockets are this
/// daemon's own and not a service manager's (`given`).
pub(super) fn open_to(socket: &Path, group: Option<u32>, given: bool) -> Result<(), DaemonError> {
    let agents = socket.with_extension("agents");
    let sockets = [socket, &agents];
    let fail = |path: &Path| {
        let path = path.to_path_buf();
        move |source| DaemonError::File { what: "setting the mode of", path, source }
    };
    let set = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(fail(path))
    };
    let mode =
        |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o7777).map_err(fail(path));
    let Some(group) = group else {
        for path in sockets.into_iter().skip(usize::from(given)) {
            if mode(path)? & 0o077 != 0 {
                set(path, 0o600)?;
            }
        }
        return Ok(());
    };
    let directory = trusted_path::directory_of(socket);
    let whole = fs::canonicalize(directory).map_err(fail(directory))?;
    // Through it, and no more.
    let own = mode(&whole)?;
    if own & 0o011 != 0o011 {
        set(&whole, own | 0o011)?;
    }
    for above in whole.ancestors().skip(1) {
        if mode(above)? & 0o001 == 0 {
            return Err(DaemonError::Unreachable(above.to_path_buf()));
        }
    }
    for path in sockets {
        let_in(path, group).map_err(fail(path))?;
    }
    Ok(())
}

/// Asks the daemon that serves `socket` to end at once, and ends it if it does not. What it leaves
/// is the same as if it had died at any other moment.
pub(super) fn replace_living(socket: &Path) -> Result<(), DaemonError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let fail =
        |source| DaemonError::File { what: "replacing who serves", path: socket.into(), source };
    let Some(name) = predecessor::server(socket).map_err(fail)? else { return Ok(()) };
    let Some(process) = name.open().map_err(fail)? else { return Ok(()) };
    let asked = Client::connect(socket)
        .and_then(|mut c| c.order_within(&Request::HandOver { started: name.started }, PATIENCE));
    if asked.is_ok() && name.ends(&process, PATIENCE) || name.kill(PATIENCE) {
        return Ok(());
    }
    Err(DaemonError::Immortal(name.pid))
}

/// The listening socket for `socket` that a service manager has handed over, if it has.
pub(super) fn given_socket(socket: &Path) -> Option<OwnedFd> {
    // SAFETY: the service manager has passed these descriptors on for us to own; nobody else in
    // this process takes them, and this is asked once.
    let given = sd_notify::listen_fds().ok()?.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let listener = UnixListener::from(given.collect::<Vec<_>>().pop()?);
    let is_ours = |at: std::os::unix::net::SocketAddr| at.as_pathname() == Some(socket);
    listener.local_addr().is_ok_and(is_ours).then(|| listener.into())
}

/// Sockets' files that go when this does: those of a start that failed, after an orderly end all.
#[derive(Default)]
pub struct Bound(pub(super) Vec<PathBuf>);

impl Bound {
    pub(super) fn listen(
        &mut self,
        path: &Path,
        kind: libc::c_int,
    ) -> Result<OwnedFd, DaemonError> {
        let failed = |source| DaemonError::File { what: "listening at", path: path.into(), source };
        let listener = seqpacket::listen(path, kind).map_err(failed)?;
        self.0.push(path.to_path_buf());
        Ok(listener)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_nobody_serves_are_replaced() {
        let dir = std::env::temp_dir().join(format!("clew-places-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            let place = dir.join("s");
            assert!(!is_socket(&place).expect("nothing is there"));
            let listener = Socket::new(Domain::UNIX, kind.into(), None).expect("a socket");
            listener.bind(&SockAddr::unix(&place).expect("short")).expect("free");
            assert!(is_socket(&place).expect("it is one"));
            assert!(!is_served(&place, kind).expect("looked at"), "it does not listen");
            listener.listen(1).expect("it listens");
            assert!(is_served(&place, kind).expect("looked at"));
            let other = libc::SOCK_STREAM + libc::SOCK_SEQPACKET - kind;
            assert!(is_served(&place, other).expect("looked at"), "as something else");
            drop(listener);
            assert!(!is_served(&place, kind).expect("looked at"));
            fs::remove_file(&place).expect("it is ours");
        }
        let notes = dir.join("notes");
        fs::write(&notes, "precious").expect("written");
        assert!(matches!(is_socket(&notes), Err(DaemonError::NoSocket(_))));
        let link = dir.join("link");
        std::os::unix::fs::symlink(&notes, &link).expect("a link");
        assert!(matches!(is_socket(&link), Err(DaemonError::NoSocket(_))));
        for ending in ["agents", "pid", "keeper", "lock"] {
            assert!(check_names(&dir.join("clew").with_extension(ending)).is_err(), "{ending}");
        }
        assert!(check_names(&dir.join("clew.sock")).is_ok());
        for (bytes, fits) in [(100, true), (101, false), (200, false)] {
            assert_eq!(check_names(&Path::new("/").join("x".repeat(bytes - 1))).is_ok(), fits);
        }
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}

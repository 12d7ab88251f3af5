//! The keeper: a process that shares the daemon's descriptor table and does nothing.
//!
//! When the last descriptor of a userfaultfd is closed, missing pages read as zeros. The keeper
//! outlives a daemon that is killed, and with the shared table it holds every descriptor, those of
//! children forked a moment before included. Programs then wait; none reads a wrong byte.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use super::badge::{self, Badge, KEEPER};
use super::predecessor::{self, ProcessName};

/// A running keeper.
pub struct Keeper {
    pid: libc::pid_t,
    badge: Badge,
    /// Programs depend on it: it stays, whatever becomes of this process.
    is_needed: bool,
}

impl Keeper {
    /// Starts one for the daemon of `socket`. To be called before the process has threads.
    ///
    /// One whose daemon dies before it was written down as the one that counts ends too: nobody would
    /// ever ask it, and descriptors that it held would keep programs waiting for events to be read.
    pub fn start(socket: &Path) -> io::Result<Keeper> {
        let socket = socket.to_path_buf();
        let badge = Badge::new()?;
        // SAFETY: takes numbers only; the result is checked and owned by nobody else. Then as fork, with
        // the descriptor table shared; there is one thread, so the child may do what it likes.
        unsafe {
            let daemon = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd;
            if daemon < 0 {
                return Err(io::Error::last_os_error());
            }
            let daemon = OwnedFd::from_raw_fd(daemon);
            let flags = libc::CLONE_FILES | libc::SIGCHLD;
            let pid = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
            if pid < 0 {
                return Err(io::Error::last_os_error());
            }
            if pid == 0 {
                keep(&daemon, &socket, badge);
            }
            // Both have it under this number.
            std::mem::forget(daemon);
            Ok(Keeper { pid: pid as libc::pid_t, badge, is_needed: false })
        }
    }

    /// From now on a successor goes by what it holds: an error or a panic of this process leaves it.
    pub fn keep(&mut self) {
        self.is_needed = true;
    }

    /// An orderly end: every page is back, nothing needs keeping.
    pub fn end(mut self) {
        self.is_needed = false;
    }

    /// What it shows to a successor.
    pub fn badge(&self) -> Badge {
        self.badge
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.is_needed {
            return;
        }
        // SAFETY: our own child, not reaped before this.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Whether a successor may go by this process, a keeper whose daemon has died. In doubt it may.
fn counts(socket: &Path, badge: Badge) -> bool {
    match predecessor::named_keeper(socket) {
        Ok(Some(ProcessName { pid, .. })) if pid == std::process::id() => true,
        // Of a daemon that began anew here, and not of one that took over before this process ran again: that one ends it, or
        // has it stay for what nobody else has.
        Ok(Some(other))
            if badge::is_keeper(other.pid).unwrap_or(false)
                && other.is_alive()
                && !is_later(socket, other.pid)
                && badge::server_elsewhere(socket, other.pid).is_ok_and(|of| of.is_none()) =>
        {
            false
        }
        // None, or no sense: it was removed or changed if it ever named this one.
        Ok(_) => badge.is_written(),
        Err(error) => error.kind() != io::ErrorKind::InvalidData || badge.is_written(),
    }
}

/// Whether that keeper is of a later generation than this one. In doubt it is.
fn is_later(socket: &Path, other: u32) -> bool {
    let of = |pid| badge::generation(socket, pid);
    match (of(std::process::id()), of(other)) {
        (Ok(own), Ok(other)) => own.is_some() && other > own,
        _ => true,
    }
}

/// What a keeper does. `daemon` becomes readable when that is dead.
fn keep(daemon: &OwnedFd, socket: &Path, badge: Badge) -> ! {
    // SAFETY: the set is initialised before use; the name is a constant.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, KEEPER.as_ptr());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // Nobody can block what an instruction of its own raises.
        for own in [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(&mut all, own);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    loop {
        let mut poll = libc::pollfd { fd: daemon.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        let ended = unsafe { libc::poll(&mut poll, 1, -1) } > 0;
        if ended && !counts(socket, badge) {
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(0) };
        }
        if ended {
            break;
        }
    }
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

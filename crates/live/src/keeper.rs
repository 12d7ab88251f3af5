//! The keeper: a process that shares the daemon's descriptor table and does nothing.
//!
//! When the last descriptor of a userfaultfd is closed, missing pages read as zeros. The keeper
//! outlives a daemon that is killed, and with the shared table it holds every descriptor, those of
//! children forked a moment before included. Programs then wait; none reads a wrong byte.

use std::io;

/// A running keeper.
pub struct Keeper {
    pid: libc::pid_t,
    /// Programs depend on it: it stays, whatever becomes of this process.
    is_needed: bool,
}

impl Keeper {
    /// Starts one. To be called before the process has threads.
    pub fn start() -> io::Result<Keeper> {
        // SAFETY: as fork, with the descriptor table shared; the child makes system calls only.
        unsafe {
            let flags = libc::CLONE_FILES | libc::SIGCHLD;
            let pid = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
            if pid < 0 {
                return Err(io::Error::last_os_error());
            }
            if pid == 0 {
                libc::setsid();
                libc::prctl(libc::PR_SET_NAME, c"clew-keeper".as_ptr());
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
                loop {
                    libc::pause();
                }
            }
            Ok(Keeper { pid: pid as libc::pid_t, is_needed: false })
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

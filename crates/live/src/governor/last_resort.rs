//! What is left when memory and pool are full and the scheme says `on_full = "kill"`: ending the
//! background app that the engine names. Never one in front, never one with a protected program.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use clew_core::{AppId, AppState};
use clew_policy::schemes::OnFull;

use super::Governor;
use crate::process::Process;

impl Governor {
    pub(super) fn may_kill(&self) -> bool {
        self.config.scheme.on_full == OnFull::Kill
    }

    pub(super) fn end_app(&mut self, app: AppId, reason: &str) {
        let Some(known) = self.apps.get(&app) else { return };
        let (name, state) = (known.name.clone(), known.state);
        let processes = self.shared.of_app(app);
        let is_protected = processes.iter().any(|p| self.protected.contains(&p.id));
        if !self.may_kill() || state == AppState::Foreground || is_protected {
            tracing::warn!(name, reason, "a policy wants to end an app that may not be ended");
            return;
        }
        let mut ended = 0;
        for process in &processes {
            ended += usize::from(self.kill(process));
        }
        tracing::error!(name, reason, ended, "ended an app (on_full = kill)");
        self.ended.push(name);
    }

    /// SIGKILL to the process of a managed memory; false if that is gone, or has no known process.
    fn kill(&self, process: &Process) -> bool {
        if process.pid() == 0 {
            return false;
        }
        // SAFETY: takes numbers only; the result is checked and owned by nobody else.
        let opened = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, process.pid(), 0) as i32;
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        };
        let Some(opened) = opened else { return false };
        // The file is bound to the process that was managed: as long as it can be read, the number
        // is still that process's, and what was opened is it.
        if self.resident_of(process) == 0 && process.space.table.counts().stored == 0 {
            return false;
        }
        // SAFETY: takes numbers and no info.
        unsafe {
            let none = std::ptr::null::<libc::siginfo_t>();
            let fd = opened.as_raw_fd();
            libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) == 0
        }
    }
}

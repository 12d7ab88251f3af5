//! Programs that are started with a command of ours around them (`clew govern -- COMMAND`, `clew record -- COMMAND`): signals
//! that would end the command are the program's to heed.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, anyhow};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;

/// How soon a signal is passed on, and an end is noticed.
pub const ROUND: Duration = Duration::from_millis(20);

/// Signals that came to this process.
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// From now on these do not end it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn heed(signals: &[i32]) -> Result<Signals, Failure> {
        let said = Arc::new(AtomicUsize::new(0));
        for signal in signals {
            signal_hook::flag::register_usize(*signal, said.clone(), *signal as usize)
                .context("heeding signals")?;
        }
        Ok(Signals(said))
    }

    /// The last one that came since the last time is this child's, which has not been waited for.
    pub fn pass_on(&self, child: Pid) {
        let Some(signal) = Signal::from_named_raw(self.0.swap(0, Relaxed) as i32) else { return };
        // A terminal sends Ctrl-C to all that are in front: the child has it.
        let front = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
        if signal != Signal::INT || front != Ok(rustix::process::getpgrp()) {
            let _ = rustix::process::kill_process(child, signal);
        }
    }
}

/// A program whose processes, also those that it leaves behind, are all below this one. It is killed if this is dropped before it
/// has ended.
pub struct Started {
    pid: Pid,
    ended: Arc<Mutex<Option<WaitStatus>>>,
    over: Arc<AtomicBool>,
}

impl Started {
    /// Starts it.
    ///
    /// # Errors
    /// There is no such program, or it cannot be started.
    pub fn begin(program: &OsString, arguments: &[OsString]) -> Result<Started, Failure> {
        let signals = Signals::heed(&[SIGTERM, SIGINT, SIGHUP])?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("keeping what the program leaves behind")?;
        let child = Command::new(program).args(arguments).spawn().map_err(|error| {
            let text = anyhow!("{}: {error}", program.display());
            match error.kind() {
                io::ErrorKind::NotFound => Failure::NotFound(text),
                _ => Failure::Failed(text),
            }
        })?;
        let (ended, over) = (Arc::default(), Arc::default());
        let started = Started { pid: Pid::from_child(&child), ended, over };
        let (pid, ended, over) = (started.pid, started.ended.clone(), started.over.clone());
        let attend = move || {
            while !over.load(Relaxed) {
                reap(pid, &ended);
                if ended.lock().is_none() {
                    signals.pass_on(pid);
                }
                std::thread::sleep(ROUND);
            }
        };
        std::thread::Builder::new().name("attend".to_string()).spawn(attend).context("a thread")?;
        Ok(started)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid() as u32
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        reap(self.pid, &self.ended);
        self.ended.lock().is_some()
    }

    /// Waits for its end; nothing, if it was a good one.
    ///
    /// # Errors
    /// Its exit code; as shells have it, 128 and the number of the signal that ended it.
    pub fn wait(self) -> Result<(), Failure> {
        loop {
            reap(self.pid, &self.ended);
            if let Some(status) = *self.ended.lock() {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                return match status.exit_status().or(signal) {
                    Some(0) => Ok(()),
                    code => Err(Failure::Said(code.unwrap_or(1) as u8)),
                };
            }
            std::thread::sleep(ROUND);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if !self.has_ended() {
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        }
    }
}

/// Takes note of children that have ended, orphans among them.
fn reap(program: Pid, ended: &Mutex<Option<WaitStatus>>) {
    let mut ended = ended.lock();
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == program {
            *ended = Some(status);
        }
    }
}

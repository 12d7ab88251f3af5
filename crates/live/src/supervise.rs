//! Without a service manager: a process that starts the daemon again when it dies.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// Exit codes with which it makes no sense to start again: it ended as asked, the input is bad,
/// this machine is unfit, or the daemon gave up.
const FINAL: [i32; 4] = [0, 2, 3, 4];

/// Runs `command` again and again until it ends with a code of its own that is final; passes
/// SIGINT, SIGTERM and SIGHUP on to it. To be called before the process has threads.
pub fn run(mut command: Command) -> io::Result<ExitStatus> {
    // SAFETY: the set is initialised before use. Children start with an empty mask.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    loop {
        let mut child = command.spawn()?;
        let status = loop {
            let mut signal = 0;
            // SAFETY: both live across the call.
            if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
                continue;
            }
            if signal == libc::SIGCHLD {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                // A keeper of ours, or a child of a child that was left to us.
                continue;
            }
            // SAFETY: our own child, not reaped yet.
            unsafe { libc::kill(child.id() as i32, signal) };
        };
        if status.code().is_some_and(|code| FINAL.contains(&code)) {
            return Ok(status);
        }
        let why = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with {code}"),
            (_, Some(signal)) => format!("died of signal {signal}"),
            _ => "died".to_string(),
        };
        eprintln!("clew: the daemon {why}; starting the next one");
    }
}

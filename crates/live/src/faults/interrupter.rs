//! A bound for system calls that may never return: this thread is interrupted in them.
//!
//! A timer of the thread's own sends it a signal whose handler does nothing. It comes again and again,
//! for the first one may come before the call has begun.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// From one signal to the next. So a call that waits ends with EINTR within twice that.
const INTERVAL: Duration = Duration::from_millis(5);

/// Interrupts the thread that made it. Costs nothing until it is needed.
#[derive(Default)]
pub struct Interrupter {
    timer: Option<libc::timer_t>,
}

impl Interrupter {
    /// The result of `call`, which must be one system call that does nothing when it is interrupted.
    ///
    /// # Errors
    /// If the system has no timer for this thread; `call` was not made.
    pub fn within<T>(&mut self, call: impl FnOnce() -> T) -> io::Result<T> {
        let timer = match self.timer {
            Some(timer) => timer,
            None => *self.timer.insert(timer()?),
        };
        set(timer, INTERVAL)?;
        let result = call();
        // It has been set before, so it can be.
        let _ = set(timer, Duration::ZERO);
        Ok(result)
    }
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // SAFETY: our own timer, which nobody uses any more.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Reserved for this; its default would end the process.
fn signal() -> io::Result<libc::c_int> {
    static HANDLED: OnceLock<Result<libc::c_int, i32>> = OnceLock::new();
    let handled = HANDLED.get_or_init(|| {
        let signal = libc::SIGRTMIN() + 1;
        // Without SA_RESTART: calls are to end.
        // SAFETY: the action is plain data, its handler touches nothing.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        match done {
            0 => Ok(signal),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
        }
    });
    handled.map_err(io::Error::from_raw_os_error)
}

/// A timer that sends this thread the signal.
fn timer() -> io::Result<libc::timer_t> {
    let signal = signal()?;
    // SAFETY: the structures live across the call; the result is checked.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = std::mem::zeroed();
        match libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) {
            0 => Ok(timer),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Has it fire after, and every, `interval`; never for zero.
fn set(timer: libc::timer_t, interval: Duration) -> io::Result<()> {
    let every = libc::timespec { tv_sec: 0, tv_nsec: interval.subsec_nanos().into() };
    let value = libc::itimerspec { it_interval: every, it_value: every };
    // SAFETY: a timer of ours, and a structure that lives across the call.
    match unsafe { libc::timer_settime(timer, 0, &value, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_read_that_would_never_end_is_interrupted_and_nothing_else_is() {
        let (empty, _writer) = std::io::pipe().expect("a pipe");
        let mut interrupter = Interrupter::default();
        for _ in 0..3 {
            let mut byte = 0u8;
            let read = || {
                // SAFETY: one byte that lives across the call.
                let n = unsafe { libc::read(empty.as_raw_fd(), (&raw mut byte).cast(), 1) };
                (n, io::Error::last_os_error().raw_os_error())
            };
            assert_eq!(interrupter.within(read).expect("a timer"), (-1, Some(libc::EINTR)));
        }
        // Switched off again: this would be interrupted.
        let mut poll = libc::pollfd { fd: empty.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 50) }, 0);
        assert_eq!(interrupter.within(|| 7).expect("a timer"), 7);
    }
}

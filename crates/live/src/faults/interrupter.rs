//! A bound for system calls that may never return: this thread is interrupted in them.
//!
//! A timer of the thread's own sends it a signal whose handler does nothing. It comes again and again,
//! for the first one may come before the call has begun. A timer takes a place in the user's queue of signals, which any
//! program of that user can fill: where none is to be had another thread sends a signal that needs no place.

use std::collections::BTreeSet;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// From one signal to the next. So a call that waits ends with EINTR within twice that.
const INTERVAL: Duration = Duration::from_millis(5);

/// By what a thread is interrupted.
enum Means {
    Timer(libc::timer_t),
    /// The thread that watches.
    Watched,
}

/// Interrupts the thread that made it. Costs nothing until it is needed.
#[derive(Default)]
pub struct Interrupter {
    means: Option<Means>,
}

impl Interrupter {
    /// The result of `call`, which must be one system call that does nothing when it is interrupted.
    ///
    /// # Errors
    /// If the system has neither a timer for this thread nor a thread that watches; `call` was not made.
    pub fn within<T>(&mut self, call: impl FnOnce() -> T) -> io::Result<T> {
        let means = match &self.means {
            Some(means) => means,
            None => {
                let timer = timer().map(Means::Timer);
                self.means.insert(timer.or_else(|_| watcher().map(|()| Means::Watched))?)
            }
        };
        match *means {
            Means::Timer(timer) => {
                set(timer, INTERVAL)?;
                let result = call();
                // It has been set before, so it can be.
                let _ = set(timer, Duration::ZERO);
                Ok(result)
            }
            Means::Watched => {
                // SAFETY: takes nothing, cannot fail.
                let own = unsafe { libc::gettid() };
                WATCHED.threads.lock().insert(own);
                WATCHED.one_more.notify_one();
                let result = call();
                WATCHED.threads.lock().remove(&own);
                Ok(result)
            }
        }
    }
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        if let Some(Means::Timer(timer)) = self.means {
            // SAFETY: our own timer, which nobody uses any more.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

/// Threads that are to be interrupted.
struct Watched {
    threads: Mutex<BTreeSet<libc::pid_t>>,
    one_more: Condvar,
}

static WATCHED: Watched =
    Watched { threads: Mutex::new(BTreeSet::new()), one_more: Condvar::new() };

/// There is a thread that watches.
fn watcher() -> io::Result<()> {
    static IS_THERE: Mutex<bool> = Mutex::new(false);
    let mut is_there = IS_THERE.lock();
    if !*is_there {
        let signal = *handled(&UNQUEUED, libc::SIGUSR2)?;
        std::thread::Builder::new().name("interrupter".into()).spawn(move || watch(signal))?;
        *is_there = true;
    }
    Ok(())
}

/// Sends those that wait the signal, for ever.
fn watch(signal: libc::c_int) {
    loop {
        let mut threads = WATCHED.threads.lock();
        while threads.is_empty() {
            WATCHED.one_more.wait(&mut threads);
        }
        drop(threads);
        std::thread::sleep(INTERVAL);
        // Under the lock: who is in it is in its call still, or about to leave it.
        for thread in WATCHED.threads.lock().iter() {
            // SAFETY: takes numbers only, of a thread of this process.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *thread, signal) };
        }
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Signals that are reserved for this: their default would end the process.
type Handled = OnceLock<Result<libc::c_int, i32>>;
static QUEUED: Handled = OnceLock::new();
static UNQUEUED: Handled = OnceLock::new();

fn handled(known: &'static Handled, signal: libc::c_int) -> io::Result<&'static libc::c_int> {
    let handled = known.get_or_init(|| {
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
    handled.as_ref().map_err(|code| io::Error::from_raw_os_error(*code))
}

/// A timer that sends this thread the signal.
fn timer() -> io::Result<libc::timer_t> {
    let signal = *handled(&QUEUED, libc::SIGRTMIN() + 1)?;
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
        for means in [None, Some(Means::Watched)] {
            watcher().expect("a thread");
            is_interrupted(&empty, Interrupter { means });
        }
    }

    fn is_interrupted(empty: &std::io::PipeReader, mut interrupter: Interrupter) {
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

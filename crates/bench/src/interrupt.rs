//! Ctrl-C and termination become an error that every loop of a benchmark returns, so that guards
//! put the machine back as it was found.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::BenchError;

static ASKED: AtomicBool = AtomicBool::new(false);

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn on_signal(_signal: i32) {
    ASKED.store(true, Ordering::Relaxed);
}

/// While it lives, SIGINT, SIGTERM and SIGHUP are remembered instead of ending this process.
/// One at a time; the former handlers return with its end.
pub struct InterruptGuard {
    former: Vec<(i32, libc::sigaction)>,
}

impl InterruptGuard {
    /// Begins to remember signals.
    pub fn new() -> InterruptGuard {
        ASKED.store(false, Ordering::Relaxed);
        let former = SIGNALS
            .iter()
            .filter_map(|&signal| {
                // SAFETY: both structures live through the call, all-zero is a valid sigaction, and
                // the handler only stores to an atomic, which is async-signal-safe.
                unsafe {
                    let mut action: libc::sigaction = mem::zeroed();
                    action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
                    action.sa_flags = libc::SA_RESTART;
                    let mut former: libc::sigaction = mem::zeroed();
                    (libc::sigaction(signal, &action, &mut former) == 0).then_some((signal, former))
                }
            })
            .collect();
        InterruptGuard { former }
    }
}

impl Default for InterruptGuard {
    fn default() -> InterruptGuard {
        InterruptGuard::new()
    }
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        for (signal, former) in &self.former {
            // SAFETY: `former` is what sigaction filled in for this very signal.
            unsafe { libc::sigaction(*signal, former, std::ptr::null_mut()) };
        }
    }
}

/// An error once a signal came.
pub fn check() -> Result<(), BenchError> {
    if ASKED.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

/// Sleeps, but returns an error soon after a signal came.
pub fn sleep(time: Duration) -> Result<(), BenchError> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

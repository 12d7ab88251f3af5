//! How long a thread that calculates keeps its CPU before another one has its turn.
//!
//! Each turn begins with the caches full of what others needed. Where more processes calculate than there are CPUs, that
//! is a fifth of their time with the kernel's usual slices of some milliseconds. Who wakes up for something short comes
//! first all the same, as its slice ends sooner (`PREEMPT_SHORT` in the kernel's `sched/features.h`).

use std::io;
use std::time::Duration;

/// The longest slice that the kernel gives.
const LONGEST: Duration = Duration::from_millis(100);

/// The calling thread, and threads that it begins from now on, want the longest slices. Before Linux 6.12, and for
/// threads of real-time and idle classes, nothing changes.
///
/// # Errors
/// What the kernel says to it.
pub fn want_long() -> io::Result<()> {
    let mut now = asked()?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH]
        .map(|policy| policy as u32)
        .contains(&now.sched_policy)
    {
        return Ok(());
    }
    now.sched_runtime = LONGEST.as_nanos() as u64;
    // SAFETY: the structure lives through the call and says its own size.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const now, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the calling thread is scheduled by.
fn asked() -> io::Result<libc::sched_attr> {
    // SAFETY: zeros are a valid value of numbers.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&now) as u32;
    // SAFETY: the structure lives through the call, which fills in no more than `size` bytes.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) } {
        0 => Ok(now),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_that_are_begun_want_it_too_and_nothing_else_changes() {
        let slices = thread::spawn(|| {
            let before = asked().expect("the kernel answers");
            want_long().expect("who lowers nothing may");
            let after = thread::spawn(asked).join().expect("no panic").expect("the kernel answers");
            (before, after)
        });
        let (before, after) = slices.join().expect("no panic");
        assert_eq!(
            (before.sched_policy, before.sched_nice, before.sched_flags),
            (after.sched_policy, after.sched_nice, after.sched_flags)
        );
        // Before Linux 6.12 there is none.
        let longest = if before.sched_runtime == 0 { 0 } else { LONGEST.as_nanos() as u64 };
        assert_eq!(after.sched_runtime, longest);
    }
}

//! Processor time that no control group counts: that of a thread which reclaims on behalf of an
//! arm, and that of kernel threads which swap.

use std::fs;
use std::time::Duration;

/// What the calling thread has used so far, user and system.
pub fn this_thread() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call, which fills it in.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "every Linux has a thread clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What the kernel's swap threads (`kswapd*`, anything of zram) have used since boot. Resolution:
/// one clock tick.
pub fn kernel_swap_threads() -> Duration {
    // SAFETY: sysconf only reads a constant of the system.
    let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let Ok(processes) = fs::read_dir("/proc") else { return Duration::ZERO };
    let ticks: u64 = processes
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| swap_thread_ticks(&stat))
        .sum();
    Duration::from_millis(ticks * 1000 / ticks_a_second)
}

/// User and system ticks from a line of `/proc/PID/stat`, if it is a swap thread's.
fn swap_thread_ticks(stat: &str) -> Option<u64> {
    let (head, tail) = stat.rsplit_once(") ")?;
    let name = head.split_once('(')?.1;
    if !(name.starts_with("kswapd") || name.contains("zram")) {
        return None;
    }
    let fields: Vec<&str> = tail.split(' ').collect();
    // PF_KTHREAD: a program of the same name is not one.
    if fields.get(6)?.parse::<u64>().ok()? & 0x0020_0000 == 0 {
        return None;
    }
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_swap_threads_count() {
        let line = |name, flags| {
            format!("45 ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 7 11 0 0 20 0 1 0 40 0 0")
        };
        assert_eq!(swap_thread_ticks(&line("kswapd0", 0x0020_0000)), Some(18));
        assert_eq!(swap_thread_ticks(&line("kswapd0", 0)), None);
        assert_eq!(swap_thread_ticks(&line("redis-server", 0x0020_0000)), None);
    }

    #[test]
    fn work_takes_time() {
        let before = this_thread();
        let mut x = 1u64;
        while this_thread() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(this_thread() > before);
    }
}

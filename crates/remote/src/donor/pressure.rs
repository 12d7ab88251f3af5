//! Whether a donor wants its memory back: what the kernel says is available fell below what the donor wants to have, or
//! somebody asked for it. It says so with its heartbeat, waits, and takes back what it was not given, the largest first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

use super::Shared;
use super::account::Grace;

/// Bytes that are taken back each time that it is looked: of one session, if it has so many, else of several.
const AT_ONCE: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Somebody asked for it.
    pub asked: AtomicBool,
    /// The machine is short of memory.
    short: AtomicBool,
}

impl Pressure {
    pub fn is_on(&self) -> bool {
        self.asked.load(SeqCst) || self.short.load(SeqCst)
    }
}

/// Looks at it until the donor ends.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let mut waits = Grace::default();
    while !shared.ends.load(SeqCst) {
        std::thread::sleep(Grace::EVERY);
        shared.areas.expire(shared.lending.keep);
        let reserve = shared.lending.reserve_bytes;
        if reserve > 0 {
            let available = std::fs::read_to_string("/proc/meminfo");
            let available = available.ok().and_then(|text| available_bytes(&text));
            let is_short = available.is_some_and(|available| available < reserve);
            shared.pressure.short.store(is_short, SeqCst);
        }
        if waits.is_over(shared.pressure.is_on(), Instant::now(), shared.lending.grace) {
            let freed = shared.areas.take_largest(AT_ONCE);
            if freed > 0 {
                tracing::warn!(freed, "memory was taken back that its borrower did not give back");
            }
        }
    }
}

/// What `/proc/meminfo` says of MemAvailable.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read() {
        let text = "MemTotal:       24640000 kB\nMemAvailable:   23100000 kB\n";
        assert_eq!(available_bytes(text), Some(23_100_000 * 1024));
        assert_eq!(available_bytes("MemFree: 1 kB\n"), None);
        let own = std::fs::read_to_string("/proc/meminfo").unwrap();
        assert!(available_bytes(&own).is_some_and(|bytes| bytes > 1 << 20));
    }
}

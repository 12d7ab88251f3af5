//! A message of the kernel's that cannot be read: of a fork, where no descriptor is free for the child.
//!
//! It stays in the kernel, and its thread waits. Where descriptors come and go near their limit,
//! messages can be read one moment and not the next: whoever reads the log is told now and then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long nothing is told after it was.
const QUIET: Duration = Duration::from_secs(10);

/// Whether the next message of a program cannot be read.
#[derive(Default)]
pub struct Unreadable {
    is_so: AtomicBool,
    told: Mutex<Option<Instant>>,
}

impl Unreadable {
    /// It cannot; whether that is to be told.
    pub fn found(&self) -> bool {
        self.is_so.store(true, Ordering::Relaxed);
        let now = Instant::now();
        let mut told = self.told.lock();
        let is_to_be_told = told.is_none_or(|told| now.duration_since(told) >= QUIET);
        if is_to_be_told {
            *told = Some(now);
        }
        is_to_be_told
    }

    /// It could be read.
    pub fn over(&self) {
        self.is_so.store(false, Ordering::Relaxed);
    }

    /// Whether it cannot.
    pub fn is_so(&self) -> bool {
        self.is_so.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_again_after_a_while() {
        let unreadable = Unreadable::default();
        assert!(!unreadable.is_so());
        assert!(unreadable.found() && unreadable.is_so());
        unreadable.over();
        assert!(!unreadable.is_so());
        assert!(!unreadable.found(), "told a moment ago");
        assert!(unreadable.is_so());
        *unreadable.told.lock() = Instant::now().checked_sub(QUIET);
        assert!(unreadable.found(), "told a while ago");
    }
}

//! Which core a channel's worker has (MobileSwap III-B): it stays on one, so that it is not switched between them; two
//! channels may have the same, and never run on it at once.
//!
//! A worker has its core for one burst at a time, so that who waits for a page at one donor waits for no cycle of
//! another.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may run on.
#[derive(Clone, Debug)]
pub struct Cores(Arc<Vec<(usize, Mutex<()>)>>);

/// One of them, for a worker.
#[derive(Clone, Debug)]
pub struct Core {
    cores: Cores,
    index: usize,
}

impl Default for Cores {
    fn default() -> Cores {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let mut cores: Vec<usize> =
            (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        if cores.is_empty() {
            cores.push(0);
        }
        // The last first: interrupts and what nobody has placed go to the first.
        cores.reverse();
        Cores(Arc::new(cores.into_iter().map(|cpu| (cpu, Mutex::new(()))).collect()))
    }
}

impl Cores {
    /// That of the worker of this number.
    pub fn of(&self, worker: usize) -> Core {
        Core { cores: self.clone(), index: worker % self.0.len() }
    }
}

impl Core {
    /// Moves the calling thread there. Where the system refuses, it runs where it may.
    pub fn take_thread(&self) {
        let mut only = CpuSet::new();
        only.set(self.cores.0[self.index].0);
        if let Err(error) = sched_setaffinity(None, &only) {
            tracing::debug!(%error, "a worker has no core of its own");
        }
    }

    /// For a burst of work, which no other worker of this core does meanwhile.
    pub fn burst(&self) -> MutexGuard<'_, ()> {
        self.cores.0[self.index].1.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn no_two_workers_run_on_a_core_at_once() {
        let cores = Cores::default();
        let count = cores.0.len();
        let running: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for worker in 0..3 * count {
                let (core, running) = (cores.of(worker), &running);
                scope.spawn(move || {
                    core.take_thread();
                    for _ in 0..200 {
                        let _burst = core.burst();
                        assert_eq!(running[worker % count].fetch_add(1, SeqCst), 0);
                        std::hint::black_box(0);
                        running[worker % count].fetch_sub(1, SeqCst);
                    }
                });
            }
        });
    }
}

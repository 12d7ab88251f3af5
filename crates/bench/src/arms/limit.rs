//! The limit of a group whose programs use the kernel's swap. The pool of zram or zswap is not charged to the
//! group, so a thread keeps the group's limit at the total minus what that uses at the moment.
//!
//! Lock order: `Shared::limit` is the only lock; it is held while the limit is written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cgroup::Cgroup;
use crate::cpu_time;
use crate::error::BenchError;
use crate::kernel_pool::KernelPool;

const PERIOD: Duration = Duration::from_millis(3);
/// Smaller changes of the pool's size do not move the limit.
const STEP_BYTES: u64 = 256 << 10;
/// A pool grows for a moment before the limit follows; this much is kept back for it. During the fill,
/// when it grows longest, it is the headroom.
pub(super) const MARGIN_BYTES: u64 = 1 << 20;

/// What is reclaimed for a program that waits for memory.
const RELIEF_BYTES: u64 = 8 << 20;

struct Shared {
    group: Arc<Cgroup>,
    total_bytes: u64,
    pool: Option<KernelPool>,
    margin_bytes: AtomicU64,
    stop: AtomicBool,
    /// The limit that was written last.
    limit: Mutex<u64>,
    /// Time that our threads spent reclaiming.
    reclaim_ns: AtomicU64,
}

impl Shared {
    /// The limit that keeps group and pool together within the total.
    fn fitting_limit(&self) -> u64 {
        let used = self.pool.as_ref().map_or(0, |pool| pool.now().used_bytes);
        self.total_bytes.saturating_sub(used + self.margin_bytes.load(Ordering::Relaxed))
    }

    /// Writes a limit. The kernel refuses one that it cannot reach yet: the next call tries again.
    fn write(&self, limit: &mut u64, bytes: u64) {
        let before = cpu_time::this_thread();
        if self.group.limit(bytes).is_ok() {
            *limit = bytes;
        }
        let spent = cpu_time::this_thread() - before;
        self.reclaim_ns.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
    }

    fn govern(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            {
                let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
                let fitting = self.fitting_limit();
                if fitting.abs_diff(*limit) >= STEP_BYTES {
                    self.write(&mut limit, fitting);
                }
                if self.group.is_waited_in() {
                    // Raising the limit again wakes who waits.
                    self.write(&mut limit, fitting.saturating_sub(RELIEF_BYTES));
                    let fitting = self.fitting_limit();
                    self.write(&mut limit, fitting);
                }
            }
            thread::sleep(PERIOD);
        }
    }

    /// Reclaims until `headroom` bytes are free, then gives the limit back.
    fn make_room(&self, headroom: u64) -> Result<(), BenchError> {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..40 {
            let low = self.fitting_limit().saturating_sub(headroom);
            if self.group.usage_bytes()? <= low {
                break;
            }
            self.write(&mut limit, low);
        }
        let fitting = self.fitting_limit();
        self.write(&mut limit, fitting);
        Ok(())
    }
}

/// A thread that keeps the limit.
pub(crate) struct LimitKeeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LimitKeeper {
    /// Keeps what the group and the kernel's pool use within the total, `margin` bytes below
    /// it.
    pub(crate) fn start(
        group: Arc<Cgroup>,
        total_bytes: u64,
        margin: u64,
        pool: Option<KernelPool>,
    ) -> LimitKeeper {
        let shared = Arc::new(Shared {
            group,
            total_bytes,
            pool,
            margin_bytes: AtomicU64::new(margin),
            stop: AtomicBool::new(false),
            limit: Mutex::new(total_bytes),
            reclaim_ns: AtomicU64::new(0),
        });
        let governing = Arc::clone(&shared);
        let thread = thread::spawn(move || governing.govern());
        LimitKeeper { shared, thread: Some(thread) }
    }

    /// From now on so much is kept back.
    pub(super) fn keep_back(&self, margin: u64) {
        self.shared.margin_bytes.store(margin, Ordering::Relaxed);
    }

    /// Reclaims until `headroom` bytes are free.
    pub(super) fn make_room(&self, headroom: u64) -> Result<(), BenchError> {
        self.shared.make_room(headroom)
    }

    /// Time that our threads spent reclaiming.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(self.shared.reclaim_ns.load(Ordering::Relaxed))
    }
}

impl Drop for LimitKeeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

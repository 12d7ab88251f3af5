//! The kernel's zram at its best: LZ4, no read-ahead, swapping preferred to dropping code, and room
//! for the next relaunch made between switches, outside the clock.
//!
//! zram's pool is not charged to the group, so a *governor* thread keeps the group's limit at the
//! total minus what zram uses at the moment. A version 1 group at its limit has no background
//! reclaim; the limit is lowered by the headroom between switches and raised again, which does what
//! kswapd would do on a whole machine. Both reclaim in our threads' time, which is counted.
//!
//! Lock order: `Shared::limit` is the only lock; it is held while the limit is written.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Arm, ArmKind, Ground, Tally};
use crate::cgroup::Cgroup;
use crate::cpu_time;
use crate::error::BenchError;
use crate::knob::Knob;
use crate::programs::Kind;
use crate::totals::zram_use;
use crate::zram::ZramSwap;

const ALGORITHM: &str = "lz4";
const PERIOD: Duration = Duration::from_millis(3);
/// Smaller changes of zram's size do not move the limit.
const STEP_BYTES: u64 = 256 << 10;
/// zram grows for a moment before the limit follows; this much is kept back for it. During the fill,
/// when it grows longest, it is the headroom.
const MARGIN_BYTES: u64 = 1 << 20;

/// The arm on the kernel's zram. Fields end in this order: first nobody moves the limit any more,
/// then the group's processes end, then the device goes, then the settings come back.
#[derive(Default)]
pub struct KernelZram {
    governor: Option<Governor>,
    ground: Option<Ground>,
    zram: Option<ZramSwap>,
    knobs: Vec<Knob>,
}

struct Shared {
    group: Arc<Cgroup>,
    total_bytes: u64,
    mm_stat: PathBuf,
    margin_bytes: AtomicU64,
    stop: AtomicBool,
    /// The limit that was written last.
    limit: Mutex<u64>,
    /// Time that our threads spent reclaiming.
    reclaim_ns: AtomicU64,
}

impl Shared {
    /// The limit that keeps group and zram together within the total.
    fn fitting_limit(&self) -> u64 {
        let used = zram_use(&self.mm_stat).used_bytes;
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

struct Governor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    fn start(ground: &Ground, total_bytes: u64, mm_stat: PathBuf) -> Governor {
        let shared = Arc::new(Shared {
            group: Arc::clone(&ground.group),
            total_bytes,
            mm_stat,
            margin_bytes: AtomicU64::new(ground.headroom_bytes.max(MARGIN_BYTES)),
            stop: AtomicBool::new(false),
            limit: Mutex::new(total_bytes),
            reclaim_ns: AtomicU64::new(0),
        });
        let governing = Arc::clone(&shared);
        let thread = thread::spawn(move || governing.govern());
        Governor { shared, thread: Some(thread) }
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Arm for KernelZram {
    fn kind(&self) -> ArmKind {
        ArmKind::KernelZram
    }

    fn scheme(&self) -> String {
        "zram".to_string()
    }

    fn begin(&mut self, ground: &Ground) -> Result<(), BenchError> {
        let total = ground.total()?;
        self.ground = Some(ground.clone());
        self.knobs.push(Knob::set(Path::new("/proc/sys/vm/page-cluster"), "0")?);
        let zswap = Path::new("/sys/module/zswap/parameters/enabled");
        if zswap.exists() {
            self.knobs.push(Knob::set(zswap, "N")?);
        }
        // Large enough for everything that the programs could have.
        let zram = ZramSwap::start(ALGORITHM, total.saturating_mul(8).next_multiple_of(4096))?;
        ground.group.prefer_swapping()?;
        ground.group.limit(total)?;
        self.governor = Some(Governor::start(ground, total, zram.mm_stat()));
        self.zram = Some(zram);
        Ok(())
    }

    fn fill_ceiling_bytes(&self) -> Option<u64> {
        let ground = self.ground.as_ref()?;
        Some(ground.total_bytes?.saturating_sub(ground.headroom_bytes / 2))
    }

    fn filled(&mut self, _apps: &[Kind]) -> Result<(), BenchError> {
        if let Some(governor) = &self.governor {
            governor.shared.margin_bytes.store(MARGIN_BYTES, Ordering::Relaxed);
        }
        Ok(())
    }

    fn mm_stat(&self) -> Option<PathBuf> {
        self.zram.as_ref().map(ZramSwap::mm_stat)
    }

    fn make_room(&mut self) -> Result<(), BenchError> {
        match (&self.governor, &self.ground) {
            (Some(governor), Some(ground)) => governor.shared.make_room(ground.headroom_bytes),
            _ => Ok(()),
        }
    }

    fn tally(&mut self) -> Result<Tally, BenchError> {
        let faults = match &self.ground {
            Some(ground) => ground.group.major_faults()?,
            None => 0,
        };
        Ok(Tally { faults, ratio: None })
    }

    fn outside_cpu(&self) -> Duration {
        let spent = |governor: &Governor| governor.shared.reclaim_ns.load(Ordering::Relaxed);
        Duration::from_nanos(self.governor.as_ref().map_or(0, spent))
    }
}

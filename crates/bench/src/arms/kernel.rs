//! The kernel's own swap at its best: zram with LZ4 and no read-ahead, or a plain file on the disk
//! with the kernel's read-ahead; swapping preferred to dropping code, and room for the next relaunch
//! made between switches, outside the clock. With hints, the kernel also knows which app comes and
//! goes ([`crate::hint`]).
//!
//! zram's pool is not charged to the group, so a *governor* thread keeps the group's limit at the
//! total minus what zram uses at the moment. A version 1 group at its limit has no background
//! reclaim; the limit is lowered by the headroom between switches and raised again, which does what
//! kswapd would do on a whole machine. Both reclaim in our threads' time, which is counted.
//!
//! Lock order: `Shared::limit` is the only lock; it is held while the limit is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Arm, ArmKind, Ground, Look, Tally, look_of_kernel};
use crate::cgroup::Cgroup;
use crate::cpu_time;
use crate::error::BenchError;
use crate::hint::Hints;
use crate::knob::Knob;
use crate::pagemap::page_bytes;
use crate::programs::Kind;
use crate::swap_file::SwapFile;
use crate::totals::zram_use;
use crate::zram::ZramSwap;

const ALGORITHM: &str = "lz4";
const PERIOD: Duration = Duration::from_millis(3);
/// Smaller changes of zram's size do not move the limit.
const STEP_BYTES: u64 = 256 << 10;
/// zram grows for a moment before the limit follows; this much is kept back for it. During the fill,
/// when it grows longest, it is the headroom.
const MARGIN_BYTES: u64 = 1 << 20;

/// An arm on the kernel's swap. Fields end in this order: first nobody moves the limit any more,
/// then the group's processes end, then the device goes, then the settings come back.
pub struct KernelSwap {
    kind: ArmKind,
    governor: Option<Governor>,
    hints: Option<Hints>,
    ground: Option<Ground>,
    zram: Option<ZramSwap>,
    file: Option<SwapFile>,
    /// Pages that the whole machine had swapped out when the arm began.
    swapped_before: u64,
    knobs: Vec<Knob>,
}

impl KernelSwap {
    /// One of `kernel-zram`, `kernel-zram+hint` and `swap-file`.
    pub fn new(kind: ArmKind) -> KernelSwap {
        KernelSwap {
            kind,
            governor: None,
            hints: None,
            ground: None,
            zram: None,
            file: None,
            swapped_before: 0,
            knobs: Vec::new(),
        }
    }
}

struct Shared {
    group: Arc<Cgroup>,
    total_bytes: u64,
    mm_stat: Option<PathBuf>,
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
        let used = self.mm_stat.as_deref().map_or(0, |path| zram_use(path).used_bytes);
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
    fn start(ground: &Ground, total_bytes: u64, mm_stat: Option<PathBuf>) -> Governor {
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

impl Arm for KernelSwap {
    fn kind(&self) -> ArmKind {
        self.kind
    }

    fn scheme(&self) -> String {
        match self.kind {
            ArmKind::SwapFile => "flash-swap".to_string(),
            _ => "zram".to_string(),
        }
    }

    fn begin(&mut self, ground: &Ground) -> Result<(), BenchError> {
        let total = ground.total()?;
        self.ground = Some(ground.clone());
        let zswap = Path::new("/sys/module/zswap/parameters/enabled");
        if zswap.exists() {
            self.knobs.push(Knob::set(zswap, "N")?);
        }
        // Large enough for everything that the programs could have.
        let size = total.saturating_mul(8).next_multiple_of(4096);
        let page_cluster = Path::new("/proc/sys/vm/page-cluster");
        if self.kind == ArmKind::SwapFile {
            // Read-ahead is what a disk needs; zram is better without.
            self.knobs.push(Knob::set(page_cluster, "3")?);
            self.file = Some(SwapFile::start(&ground.scratch, size)?);
        } else {
            self.knobs.push(Knob::set(page_cluster, "0")?);
            self.zram = Some(ZramSwap::start(ALGORITHM, size)?);
        }
        self.swapped_before = pages_swapped_out();
        ground.group.prefer_swapping()?;
        ground.group.limit(total)?;
        self.governor = Some(Governor::start(ground, total, self.mm_stat()));
        Ok(())
    }

    fn fill_ceiling_bytes(&self) -> Option<u64> {
        let ground = self.ground.as_ref()?;
        Some(ground.total_bytes?.saturating_sub(ground.headroom_bytes / 2))
    }

    fn filled(&mut self, apps: &[(Kind, u32)]) -> Result<(), BenchError> {
        if let Some(governor) = &self.governor {
            governor.shared.margin_bytes.store(MARGIN_BYTES, Ordering::Relaxed);
        }
        if self.kind == ArmKind::KernelZramHint {
            self.hints = Some(Hints::of(apps)?);
        }
        Ok(())
    }

    fn mm_stat(&self) -> Option<PathBuf> {
        self.zram.as_ref().map(ZramSwap::mm_stat)
    }

    fn before_foreground(&mut self, app: Kind) -> Result<(), BenchError> {
        if let Some(hints) = &mut self.hints {
            hints.before_foreground(app);
        }
        Ok(())
    }

    fn to_foreground(&mut self, app: Kind) -> Result<(), BenchError> {
        if let Some(hints) = &mut self.hints {
            hints.to_foreground(app);
        }
        Ok(())
    }

    fn to_background(&mut self, app: Kind) -> Result<(), BenchError> {
        if let Some(hints) = &mut self.hints {
            hints.to_background(app);
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), BenchError> {
        match (&self.governor, &self.ground) {
            (Some(governor), Some(ground)) => governor.shared.make_room(ground.headroom_bytes),
            _ => Ok(()),
        }
    }

    fn look(&mut self, apps: &[(Kind, u32)]) -> Result<Look, BenchError> {
        let ground = self.ground.as_ref().ok_or(BenchError::NoTotal)?;
        let mut look = look_of_kernel(ground, apps, self.mm_stat().as_deref())?;
        if let Some(hints) = &self.hints {
            for (&(app, _), moved) in apps.iter().zip(&mut look.moved) {
                moved.restored_pages = hints.restored_pages(app);
            }
        }
        Ok(look)
    }

    fn tally(&mut self) -> Result<Tally, BenchError> {
        let faults = match &self.ground {
            Some(ground) => ground.group.major_faults()?,
            None => 0,
        };
        Ok(Tally { faults, ratio: None })
    }

    fn swap_bytes_written(&self) -> u64 {
        match self.kind {
            ArmKind::SwapFile => (pages_swapped_out() - self.swapped_before) * page_bytes(),
            _ => 0,
        }
    }

    fn outside_cpu(&self) -> Duration {
        let spent = |governor: &Governor| governor.shared.reclaim_ns.load(Ordering::Relaxed);
        let hints = self.hints.as_ref().map_or(0, Hints::spent_ns);
        Duration::from_nanos(self.governor.as_ref().map_or(0, spent) + hints)
    }
}

/// Pages that this machine has swapped out since it started.
fn pages_swapped_out() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("pswpout "));
    line.and_then(|number| number.parse().ok()).unwrap_or_default()
}

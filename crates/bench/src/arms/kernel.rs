//! The kernel's own swap at its best: zram with LZ4 and no read-ahead, or a file on the disk with
//! the kernel's read-ahead, plain or behind zswap; swapping preferred to dropping code, and room for the next relaunch
//! made between switches, outside the clock. With hints, the kernel also knows which app comes and
//! goes ([`crate::hint`]). Governed, it is told by Clew's policies ([`super::govern`]).
//!
//! A version 1 group at its limit has no background reclaim; the limit ([`super::limit`]) is lowered by
//! the headroom between switches and raised again, which does what kswapd would do on a whole machine.
//! Both reclaim in our threads' time, which is counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::govern::{Governed, Keep};
use super::limit::{LimitKeeper, MARGIN_BYTES};
use super::{Arm, ArmKind, Ground, Look, Tally, look_of_kernel};
use crate::error::BenchError;
use crate::hint::Hints;
use crate::kernel_pool::KernelPool;
use crate::knob::Knob;
use crate::pagemap::page_bytes;
use crate::programs::Kind;
use crate::swap_file::SwapFile;
use crate::zram::ZramSwap;

pub(super) const ALGORITHM: &str = "lz4";

/// A swap device that is large enough for everything that programs could have under this limit.
pub(super) fn swap_bytes(total_bytes: u64) -> u64 {
    total_bytes.saturating_mul(8).next_multiple_of(4096)
}

/// An arm on the kernel's swap. Fields end in this order: first nobody moves the limit any more,
/// then the group's processes end, then the device goes, then the settings come back.
pub struct KernelSwap {
    kind: ArmKind,
    limit: Option<LimitKeeper>,
    hints: Option<Hints>,
    /// Of a governed arm: the `clew` command and what it is told to keep, and its governor once programs run.
    clew: Option<(PathBuf, Keep)>,
    governed: Option<Governed>,
    ground: Option<Ground>,
    zram: Option<ZramSwap>,
    file: Option<SwapFile>,
    /// Pages that the whole machine had swapped out when the arm began.
    swapped_before: u64,
    knobs: Vec<Knob>,
}

impl KernelSwap {
    /// One of `kernel-zram`, `kernel-zram+hint`, `kernel-zswap` and `swap-file`.
    pub fn new(kind: ArmKind) -> KernelSwap {
        KernelSwap {
            kind,
            limit: None,
            hints: None,
            clew: None,
            governed: None,
            ground: None,
            zram: None,
            file: None,
            swapped_before: 0,
            knobs: Vec::new(),
        }
    }

    /// `kernel-zram+govern` and its like, by this `clew` command.
    pub fn governed(clew: PathBuf, keep: Keep) -> KernelSwap {
        KernelSwap { clew: Some((clew, keep)), ..KernelSwap::new(ArmKind::Governed(keep)) }
    }

    /// Whether its device is a file on a disk.
    fn on_disk(&self) -> bool {
        matches!(self.kind, ArmKind::SwapFile | ArmKind::KernelZswap)
    }
}

impl Arm for KernelSwap {
    fn kind(&self) -> ArmKind {
        self.kind
    }

    fn scheme(&self) -> String {
        match self.kind {
            ArmKind::SwapFile => "flash-swap".to_string(),
            ArmKind::KernelZswap => "zswap".to_string(),
            ArmKind::Governed(_) => "govern".to_string(),
            _ => "zram".to_string(),
        }
    }

    fn begin(&mut self, ground: &Ground) -> Result<(), BenchError> {
        let total = ground.total()?;
        self.ground = Some(ground.clone());
        let size = swap_bytes(total);
        if self.on_disk() {
            // Read-ahead is what a disk needs.
            self.knobs.push(Knob::set(Path::new("/proc/sys/vm/page-cluster"), "3")?);
            match self.kind {
                ArmKind::KernelZswap => {
                    let memory = clew_report::Machine::here().memory_bytes;
                    self.knobs.extend(Knob::with_zswap(total / 2, memory)?);
                }
                _ => self.knobs.extend(Knob::without_zswap()?),
            }
            self.file = Some(SwapFile::start(&ground.scratch, size)?);
        } else {
            self.zram = Some(ZramSwap::start(ALGORITHM, size)?);
        }
        self.swapped_before = pages_swapped_out();
        ground.group.prefer_swapping()?;
        ground.group.limit(total)?;
        if ground.fills_freely {
            // Who asks for much at once would be ended where there is enough to reclaim.
            ground.group.wait_for_memory()?;
        }
        self.limit = Some(LimitKeeper::start(
            ground.group.clone(),
            total,
            fill_margin(ground),
            self.kernel_pool(),
        ));
        Ok(())
    }

    fn filling(&mut self) {
        if let (Some(limit), Some(ground)) = (&self.limit, &self.ground) {
            limit.keep_back(fill_margin(ground));
        }
    }

    fn fill_ceiling_bytes(&self) -> Option<u64> {
        let ground = self.ground.as_ref()?;
        Some(ground.total_bytes?.saturating_sub(ground.headroom_bytes / 2))
    }

    fn filled(&mut self, apps: &[(Kind, u32)]) -> Result<(), BenchError> {
        if let Some(limit) = &self.limit {
            limit.keep_back(MARGIN_BYTES);
        }
        if self.kind == ArmKind::KernelZramHint {
            self.hints = Some(Hints::of(apps)?);
        }
        if let (Some((clew, keep)), Some(ground)) = (&self.clew, &self.ground) {
            self.governed = Some(Governed::start(clew.clone(), *keep, ground, apps)?);
        }
        Ok(())
    }

    fn kernel_pool(&self) -> Option<KernelPool> {
        match self.kind {
            ArmKind::KernelZswap => Some(KernelPool::Zswap),
            _ => self.zram.as_ref().map(ZramSwap::pool),
        }
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
        match &mut self.governed {
            Some(governed) => governed.order("fg", app),
            None => Ok(()),
        }
    }

    fn to_background(&mut self, app: Kind) -> Result<(), BenchError> {
        if let Some(hints) = &mut self.hints {
            hints.to_background(app);
        }
        match &mut self.governed {
            Some(governed) => governed.order("bg", app),
            None => Ok(()),
        }
    }

    fn make_room(&mut self) -> Result<(), BenchError> {
        match (&self.limit, &self.ground) {
            (Some(limit), Some(ground)) => limit.make_room(ground.headroom_bytes),
            _ => Ok(()),
        }
    }

    fn look(&mut self, apps: &[(Kind, u32)]) -> Result<Look, BenchError> {
        let ground = self.ground.as_ref().ok_or(BenchError::NoTotal)?;
        let mut look = look_of_kernel(ground, apps, self.kernel_pool().as_ref(), self.on_disk())?;
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
        Ok(Tally { faults, ..Tally::default() })
    }

    fn swap_bytes_written(&mut self) -> Result<u64, BenchError> {
        match self.on_disk() {
            true => Ok((pages_swapped_out() - self.swapped_before) * page_bytes()),
            false => Ok(0),
        }
    }

    fn outside_cpu(&self) -> Duration {
        let hints = self.hints.as_ref().map_or(0, Hints::spent_ns);
        let reclaim = self.limit.as_ref().map_or(Duration::ZERO, LimitKeeper::spent);
        reclaim + Duration::from_nanos(hints)
    }
}

/// What is kept back during a fill, when zram grows longest.
fn fill_margin(ground: &Ground) -> u64 {
    ground.headroom_bytes.max(MARGIN_BYTES)
}

/// Pages that this machine has swapped out since it started.
fn pages_swapped_out() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("pswpout "));
    line.and_then(|number| number.parse().ok()).unwrap_or_default()
}

//! The kernel's side: a worker that pages itself out to the kernel's zram (LZ4, no read-ahead), in a
//! group that counts its time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::MicroConfig;
use super::orders::{Layout, Order};
use super::side::Worker;
use crate::arms::limit::LimitKeeper;
use crate::cgroup::Cgroup;
use crate::cpu_time::kernel_swap_threads;
use crate::error::BenchError;
use crate::session::Launch;
use crate::zram::ZramSwap;

/// Name of this side.
pub const NAME: &str = "kernel-zram";

/// Fields end in this order: the worker, then who keeps its limit, then its group, then the device.
pub struct KernelSide {
    pub worker: Worker,
    limit: Option<LimitKeeper>,
    group: Arc<Cgroup>,
    zram: ZramSwap,
}

impl KernelSide {
    /// Makes the device and starts a worker whose region is filled.
    pub fn start(
        config: &MicroConfig,
        scratch: &Path,
        layout: Layout,
        pages: u64,
    ) -> Result<KernelSide, BenchError> {
        let zram = ZramSwap::start("lz4", pages * 4096 * 4)?;
        let group = Arc::new(Cgroup::create("bench-kernel")?);
        let launch = Launch {
            entrances: group.entrances(),
            scratch: scratch.to_path_buf(),
            ..Launch::default()
        };
        let mut worker = Worker::start(NAME, &config.clew_exe, &launch)?;
        worker.map(config.seed, layout, pages)?;
        Ok(KernelSide { worker, limit: None, group, zram })
    }

    /// Pages everything out, and makes sure of it.
    pub fn page_out(&mut self) -> Result<(), BenchError> {
        self.worker.act(&Order::PageOut)?;
        self.worker.is_out()
    }

    /// Limits the memory of the worker, as a container's would be. Where the kernel finds nothing to swap for it, as
    /// happens in a group of one busy program, it waits, and is not ended.
    pub fn limit(&mut self, bytes: u64) -> Result<(), BenchError> {
        self.group.prefer_swapping()?;
        self.group.limit(bytes)?;
        self.group.wait_for_memory()?;
        self.limit = Some(LimitKeeper::start(self.group.clone(), bytes, 0, None));
        Ok(())
    }

    /// Processor time of the group and of the kernel's own swap threads.
    pub fn cpu_time(&self) -> Result<Duration, BenchError> {
        Ok(self.group.cpu_time()? + kernel_swap_threads())
    }

    /// Original bytes / memory of the device.
    pub fn compression_ratio(&self) -> f64 {
        let zram = self.zram.pool().now();
        zram.original_bytes as f64 / zram.used_bytes.max(1) as f64
    }
}

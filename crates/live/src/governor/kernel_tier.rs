//! The kernel's zram as a tier: whether it is there, what it takes of the budget, and which of the
//! pages lent to it have come back. A look at a process waits for nobody but the kernel while it changes
//! the mappings of that process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::{AppId, SpaceId, Tier, TierFacts};

use super::Governor;
use crate::kernel_swap::KernelSwap;
use crate::programs::lent::look_at_lent;
use crate::programs::process::Process;
use crate::workers::work::Work;

/// How often it is looked whether the kernel swaps to zram.
const LOOK: Duration = Duration::from_secs(1);
/// Resident memory by which a program grows before it is looked what came back, and how long to
/// wait between two looks.
const GROWN_BYTES: u64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(50);

/// What is known of it.
#[derive(Default)]
pub(super) struct KernelTier {
    swap: Option<KernelSwap>,
    looked: Option<Instant>,
    /// What a page takes there, on average.
    pub(super) page_bytes: u32,
    /// Pages have left it for the pool since its memory was last compacted.
    pub(super) to_compact: bool,
    /// When each process was last looked at.
    looks: HashMap<SpaceId, Looked>,
}

/// A look at a process.
#[derive(Clone, Copy)]
struct Looked {
    when: Instant,
    /// What it had resident then, and the least since.
    resident: u64,
    least: u64,
}

impl KernelTier {
    /// A process is gone.
    pub(super) fn forget(&mut self, space: SpaceId) {
        self.looks.remove(&space);
    }
}

impl Governor {
    /// Looks whether the tier is there, from time to time.
    pub(super) fn look_for_kernel_swap(&mut self) {
        let due = self.kernel.looked.is_none_or(|when| when.elapsed() > LOOK);
        if !due || self.config.scheme.kernel_share_pct() == 0 || self.config.record.is_some() {
            return;
        }
        let first = self.kernel.looked.is_none();
        self.kernel.looked = Some(Instant::now());
        let found = KernelSwap::find();
        if let Err(why) = &found
            && (first || self.kernel.swap.is_some())
        {
            tracing::info!("the kernel's zram is not used as a tier: {why}");
        }
        self.kernel.swap = found.ok();
        if let Some(swap) = self.kernel.swap.clone().filter(|_| self.kernel.to_compact) {
            self.hand_out(None, |ticket| Work::Compact { swap, ticket });
        }
        self.kernel.to_compact = false;
    }

    /// Memory that lent pages take, after telling the policies of the tier.
    pub(super) fn kernel_tier_bytes(&mut self, processes: &[Arc<Process>]) -> u64 {
        let lent: u64 = processes.iter().map(|p| p.space.table.counts().lent).sum();
        if self.kernel.swap.is_none() && lent == 0 {
            if self.driver.facts().tiers.contains_key(&Tier::Kernel) {
                self.driver.set_tier(Tier::Kernel, TierFacts::default());
            }
            return 0;
        }
        let page = self.shared.page_bytes;
        let usage = self.kernel.swap.as_ref().map(KernelSwap::usage).unwrap_or_default();
        // Half a page as long as nothing is there. More than a page where a device has much memory
        // that it does not use.
        let average = match usage.original_bytes / page {
            0 => page / 2,
            pages => usage.used_bytes / pages,
        };
        self.kernel.page_bytes = average.min(page) as u32;
        // Some of what is thought to be lent is back.
        let used_bytes = (lent * average).min(usage.used_bytes);
        let budget = self.config.budget(page).total_bytes;
        let free_pages = self.kernel.swap.as_ref().map_or(0, KernelSwap::free_bytes) / page;
        let limit_bytes = match self.kernel.swap {
            Some(_) => budget / 100 * u64::from(self.config.scheme.kernel_share_pct()),
            None => 0,
        };
        let facts = TierFacts {
            used_bytes,
            limit_bytes,
            pages: lent,
            limit_pages: lent + free_pages,
            ..TierFacts::default()
        };
        self.driver.set_tier(Tier::Kernel, facts);
        used_bytes
    }

    /// Finds what came back to an app from the kernel's swap.
    pub(super) fn look_at_lent(&mut self, app: AppId) {
        for process in self.shared.of_app(app) {
            let resident = self.resident_of(&process);
            self.look_at_lent_of(&process, resident);
        }
    }

    fn look_at_lent_of(&mut self, process: &Arc<Process>, resident: u64) {
        if process.space.table.counts().lent == 0 {
            return;
        }
        let looked = Looked { when: Instant::now(), resident, least: resident };
        self.kernel.looks.insert(process.id, looked);
        let mut events = Vec::new();
        look_at_lent(&self.shared, process, &mut events);
        for event in &events {
            self.tell(event);
        }
    }

    /// A program that has grown may have touched what was lent, and nobody has said so; so may one of
    /// which as much was taken out meanwhile.
    pub(super) fn look_where_it_grew(&mut self, process: &Arc<Process>, resident: u64) {
        let never = Looked { when: self.started, resident: 0, least: 0 };
        let last = self.kernel.looks.get(&process.id).copied().unwrap_or(never);
        let since = last.when.elapsed();
        let grown = resident.saturating_sub(last.least) > GROWN_BYTES && since > PAUSE;
        let changed = resident != last.resident && since > LOOK;
        if grown || changed {
            self.look_at_lent_of(process, resident);
        } else if resident < last.least
            && let Some(looked) = self.kernel.looks.get_mut(&process.id)
        {
            looked.least = resident;
        }
    }
}

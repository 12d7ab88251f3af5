//! The swap that the machine has: how much of it is free, and what pages take in memory there.

use std::time::{Duration, Instant};

use clew_core::TierFacts;
use clew_live::kernel_swap::{KernelSwap, ZramUse, free_swap_bytes};

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is known of it.
#[derive(Default)]
pub struct Swap {
    /// For the policies: pages of governed programs, and room for more.
    pub facts: TierFacts,
    looked: Option<Instant>,
    free_bytes: u64,
    /// Of zram, if it is zram that the kernel uses first: what is there takes memory. Else nothing does.
    zram: Option<ZramUse>,
}

impl Swap {
    /// Looks from time to time; `out_pages` are ours.
    pub fn look(&mut self, out_pages: u64, page_bytes: u64) {
        if self.looked.is_none_or(|when| when.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.free_bytes = free_swap_bytes().unwrap_or_default();
            self.zram = KernelSwap::find().ok().map(|swap| swap.usage());
        }
        let used_bytes = self.memory_bytes(out_pages, page_bytes);
        self.facts = TierFacts {
            used_bytes,
            limit_bytes: used_bytes + self.free_bytes,
            pages: out_pages,
            limit_pages: out_pages + self.free_bytes / page_bytes,
            ..TierFacts::default()
        };
    }

    /// What a page takes in swap, bytes: the average of all that is in zram, whoever swapped it out, as the kernel
    /// does not tell it by process. A whole page where that is a disk.
    pub fn page_bytes(&self, page_bytes: u64) -> u32 {
        let average = match self.zram {
            None => page_bytes,
            // Half a page as long as nothing is there.
            Some(usage) if usage.original_bytes < page_bytes => page_bytes / 2,
            Some(usage) => usage.used_bytes / (usage.original_bytes / page_bytes),
        };
        average.min(page_bytes) as u32
    }

    /// Memory that so many pages take in swap, bytes. Nothing where that is a disk.
    pub fn memory_bytes(&self, pages: u64, page_bytes: u64) -> u64 {
        let of_zram =
            |usage: ZramUse| (pages * u64::from(self.page_bytes(page_bytes))).min(usage.used_bytes);
        self.zram.map_or(0, of_zram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_zram_take_their_share_of_its_memory() {
        let zram = Some(ZramUse { original_bytes: 1000 * 4096, used_bytes: 300 * 4096 });
        let swap = Swap { zram, ..Swap::default() };
        assert_eq!(swap.page_bytes(4096), 1228);
        assert_eq!(swap.memory_bytes(100, 4096), 122_800);
        assert_eq!(swap.memory_bytes(5000, 4096), 300 * 4096, "not more than there is");
        let empty = Swap { zram: Some(ZramUse::default()), ..Swap::default() };
        assert_eq!((empty.page_bytes(4096), empty.memory_bytes(9, 4096)), (2048, 0));
        let disk = Swap::default();
        assert_eq!((disk.page_bytes(4096), disk.memory_bytes(9, 4096)), (4096, 0));
    }
}

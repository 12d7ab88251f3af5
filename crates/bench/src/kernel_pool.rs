//! Memory that the kernel's own swap takes and charges to no group: the pool of a zram device, or that of zswap.

use std::fs;
use std::path::PathBuf;

use clew_live::kernel_swap::parse_mm_stat;

/// Where to read what such a pool takes.
#[derive(Clone, Debug)]
pub enum KernelPool {
    /// `mm_stat` of a zram device.
    Zram(PathBuf),
    /// zswap, of which a machine has one: others who swap count with it.
    Zswap,
}

/// What such a pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Memory that it takes.
    pub used_bytes: u64,
    /// Size of the pages in it.
    pub original_bytes: u64,
}

impl KernelPool {
    /// What it holds now; nothing where the kernel does not say.
    pub fn now(&self) -> PoolUse {
        let now = match self {
            KernelPool::Zram(mm_stat) => fs::read_to_string(mm_stat).ok().and_then(|line| {
                let zram = parse_mm_stat(&line)?;
                let (used_bytes, original_bytes) = (zram.used_bytes, zram.original_bytes);
                Some(PoolUse { used_bytes, original_bytes })
            }),
            KernelPool::Zswap => {
                fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo(&text))
            }
        };
        now.unwrap_or_default()
    }
}

/// zswap's two lines of `/proc/meminfo`.
fn parse_meminfo(text: &str) -> Option<PoolUse> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(PoolUse { used_bytes: bytes("Zswap:")?, original_bytes: bytes("Zswapped:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zswap_is_read_from_meminfo() {
        let text = "MemFree: 12 kB\nZswap:             100 kB\nZswapped:          250 kB\n";
        let expected = PoolUse { used_bytes: 100 << 10, original_bytes: 250 << 10 };
        assert_eq!(parse_meminfo(text), Some(expected));
        assert_eq!(parse_meminfo("MemFree: 12 kB\n"), None);
    }

    #[test]
    fn a_pool_that_is_gone_holds_nothing() {
        let gone = KernelPool::Zram(PathBuf::from("/nonexistent/mm_stat"));
        assert_eq!(gone.now(), PoolUse::default());
    }
}

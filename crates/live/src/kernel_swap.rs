//! The kernel's own swap, as far as it is zram: a tier whose pages come back at the price of the
//! kernel's own fault ([`clew_engine`]'s `mover::lend`).
//!
//! It can be used where the swap that the kernel would take next is zram. How much memory a page
//! takes there is the average of all that the devices hold, whoever swapped it out: the kernel does
//! not tell it by process.

use std::fs;
use std::path::{Path, PathBuf};

/// The zram devices that the kernel swaps to first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSwap {
    devices: Vec<PathBuf>,
    /// Bytes that can still be swapped to them, uncompressed.
    free_bytes: u64,
}

/// What pages in zram take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZramUse {
    /// Pages stored, uncompressed.
    pub original_bytes: u64,
    /// Memory taken, allocator overhead included.
    pub used_bytes: u64,
}

impl KernelSwap {
    /// What is there now.
    ///
    /// # Errors
    /// Why it cannot be a tier, for people.
    pub fn find() -> Result<KernelSwap, String> {
        if !may_advise_others() {
            return Err("CAP_SYS_NICE is missing, which giving it pages takes".to_string());
        }
        let text = fs::read_to_string("/proc/swaps").map_err(|e| format!("/proc/swaps: {e}"))?;
        KernelSwap::parse(&text)
    }

    fn parse(swaps: &str) -> Result<KernelSwap, String> {
        let areas: Vec<Area> = swaps.lines().skip(1).filter_map(Area::parse).collect();
        let first = areas.iter().map(|area| area.priority).max().ok_or("no swap is on")?;
        let mut swap = KernelSwap::default();
        for area in areas.iter().filter(|area| area.priority == first) {
            let name = area.device.rsplit('/').next().unwrap_or_default();
            if !name.starts_with("zram") {
                return Err(format!("the swap that is used first is {}, not zram", area.device));
            }
            swap.devices.push(Path::new("/sys/block").join(name));
            swap.free_bytes += area.free_bytes;
        }
        Ok(swap)
    }

    /// Bytes that can still be swapped there, uncompressed.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Has the devices give back memory that they do not use: after many pages have left, as much as
    /// the rest takes. Does nothing where that is not allowed.
    pub fn compact(&self) {
        for device in &self.devices {
            let _ = fs::write(device.join("compact"), "1");
        }
    }

    /// What all pages there take together.
    pub fn usage(&self) -> ZramUse {
        let read =
            |device: &PathBuf| parse_mm_stat(&fs::read_to_string(device.join("mm_stat")).ok()?);
        self.devices.iter().filter_map(read).fold(ZramUse::default(), |sum, device| ZramUse {
            original_bytes: sum.original_bytes + device.original_bytes,
            used_bytes: sum.used_bytes + device.used_bytes,
        })
    }
}

/// Bytes of all swap of this machine that are free, of whatever kind it is; `None` where there is no swap.
pub fn free_swap_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut areas = text.lines().skip(1).filter_map(Area::parse).peekable();
    areas.peek()?;
    Some(areas.map(|area| area.free_bytes).sum())
}

/// Whether this process may advise others about their memory (CAP_SYS_NICE).
pub fn may_advise_others() -> bool {
    may_advise(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Whether a process with this `/proc/PID/status` may advise others about their memory.
fn may_advise(status: &str) -> bool {
    const CAP_SYS_NICE: u64 = 1 << 23;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_SYS_NICE != 0)
}

/// A line of `/proc/swaps`.
struct Area<'a> {
    device: &'a str,
    free_bytes: u64,
    priority: i32,
}

impl Area<'_> {
    fn parse(line: &str) -> Option<Area<'_>> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [device, _, size, used, priority] = fields[..] else { return None };
        let (size, used): (u64, u64) = (size.parse().ok()?, used.parse().ok()?);
        let free_bytes = size.saturating_sub(used) * 1024;
        Some(Area { device, free_bytes, priority: priority.parse().ok()? })
    }
}

/// Original and used bytes from a line of `mm_stat`.
pub fn parse_mm_stat(line: &str) -> Option<ZramUse> {
    let mut fields = line.split_whitespace().map(str::parse);
    let original_bytes = fields.next()?.ok()?;
    let used_bytes = fields.nth(1)?.ok()?;
    Some(ZramUse { original_bytes, used_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

    #[test]
    fn zram_in_front_of_other_swap_can_be_used() {
        let text = format!(
            "{HEAD}/dev/sda2 partition 999 9 -2\n/dev/zram1 partition 1024 24 100\n\
             /dev/zram0 partition 2048 0 100\n"
        );
        let swap = KernelSwap::parse(&text).expect("zram comes first");
        assert_eq!(swap.free_bytes(), 3048 << 10);
        let paths = ["/sys/block/zram1", "/sys/block/zram0"];
        assert_eq!(swap.devices, paths.map(PathBuf::from));
    }

    #[test]
    fn a_disk_in_front_or_beside_cannot() {
        let refused = |lines: &str| KernelSwap::parse(&format!("{HEAD}{lines}")).unwrap_err();
        assert_eq!(refused(""), "no swap is on");
        assert!(refused("/swapfile file 9 0 -2\n").contains("/swapfile"));
        let beside = "/dev/zram0 partition 9 0 5\n/dev/sda2 partition 9 0 5\n";
        assert!(refused(beside).contains("/dev/sda2"));
    }

    #[test]
    fn without_the_privilege_nothing_is_lent() {
        assert!(may_advise("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_advise("CapEff:\t0000000000000000\n"));
        assert!(!may_advise("CapEff:\t000001ffff7fffff\n") && !may_advise(""));
    }

    #[test]
    fn memory_of_a_device_is_the_third_number() {
        let line =
            "  1073741824 314572800 330301440        0 335544320     1024        0        0\n";
        let found = parse_mm_stat(line).expect("numbers");
        assert_eq!((found.original_bytes, found.used_bytes), (1 << 30, 330301440));
        assert_eq!(parse_mm_stat("x"), None);
    }
}

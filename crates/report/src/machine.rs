//! The machine that measured.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub cpus: usize,
    pub memory_bytes: u64,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = memory
            .lines()
            .find_map(|line| {
                line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok()
            })
            .unwrap_or(0u64);
        Machine {
            kernel: kernel.trim().to_string(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib << 10,
        }
    }

    /// In a few words.
    pub fn shown(&self) -> String {
        format!("Linux {}, {} CPUs", self.kernel, self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = Machine::here();
        assert!(!here.kernel.is_empty() && here.cpus > 0 && here.memory_bytes > 0);
    }
}

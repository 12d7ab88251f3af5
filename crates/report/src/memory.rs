//! Where memory is.

use serde::{Deserialize, Serialize};

/// Memory by part, bytes. What a writer does not know, or what is not there, is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// In the programs: resident and anonymous.
    pub resident_bytes: u64,
    /// Pages that wait decompressed for their use.
    pub parked_bytes: u64,
    /// What holds compressed pages, allocator overhead included.
    pub pool_bytes: u64,
    /// Pages that are lent to the kernel's zram.
    #[serde(default)]
    pub kernel_bytes: u64,
    /// Page tables.
    pub tables_bytes: u64,
    /// Resident memory of the daemon beyond its pool.
    pub daemon_bytes: u64,
    /// Not in the programs, as they would see it: uncompressed.
    pub stored_bytes: u64,
    /// On disk.
    pub disk_bytes: u64,
    /// On other machines.
    #[serde(default)]
    pub donor_bytes: u64,
    /// What policies keep of pages; part of no budget.
    pub policies_bytes: u64,
    /// By class, where the scheme has classes.
    pub classes: Option<Classes>,
}

/// Pages by class, in bytes as the programs see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    pub hot_resident_bytes: u64,
    pub warm_resident_bytes: u64,
    pub cold_resident_bytes: u64,
    pub hot_stored_bytes: u64,
    pub warm_stored_bytes: u64,
    pub cold_stored_bytes: u64,
}

impl Memory {
    /// What counts towards a budget.
    pub fn total_bytes(&self) -> u64 {
        self.resident_bytes
            + self.parked_bytes
            + self.pool_bytes
            + self.kernel_bytes
            + self.tables_bytes
            + self.daemon_bytes
    }

    /// The mean of several looks.
    pub fn mean_of(looks: &[Memory]) -> Memory {
        let count = looks.len().max(1) as u64;
        let mean = |of: &dyn Fn(&Memory) -> u64| looks.iter().map(of).sum::<u64>() / count;
        let class = |of: fn(&Classes) -> u64| mean(&|look| look.classes.as_ref().map_or(0, of));
        let has_classes = !looks.is_empty() && looks.iter().all(|look| look.classes.is_some());
        Memory {
            resident_bytes: mean(&|look| look.resident_bytes),
            parked_bytes: mean(&|look| look.parked_bytes),
            pool_bytes: mean(&|look| look.pool_bytes),
            kernel_bytes: mean(&|look| look.kernel_bytes),
            tables_bytes: mean(&|look| look.tables_bytes),
            daemon_bytes: mean(&|look| look.daemon_bytes),
            stored_bytes: mean(&|look| look.stored_bytes),
            disk_bytes: mean(&|look| look.disk_bytes),
            donor_bytes: mean(&|look| look.donor_bytes),
            policies_bytes: mean(&|look| look.policies_bytes),
            classes: has_classes.then(|| Classes {
                hot_resident_bytes: class(|classes| classes.hot_resident_bytes),
                warm_resident_bytes: class(|classes| classes.warm_resident_bytes),
                cold_resident_bytes: class(|classes| classes.cold_resident_bytes),
                hot_stored_bytes: class(|classes| classes.hot_stored_bytes),
                warm_stored_bytes: class(|classes| classes.warm_stored_bytes),
                cold_stored_bytes: class(|classes| classes.cold_stored_bytes),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_classes_only_where_every_look_has() {
        let look = |resident_bytes, hot_stored_bytes| Memory {
            resident_bytes,
            classes: Some(Classes { hot_stored_bytes, ..Classes::default() }),
            ..Memory::default()
        };
        let mean = Memory::mean_of(&[look(100, 10), look(300, 50)]);
        assert_eq!(
            (mean.resident_bytes, mean.classes.map(|c| c.hot_stored_bytes)),
            (200, Some(30))
        );
        assert_eq!(Memory::mean_of(&[look(4, 2), Memory::default()]).classes, None);
        assert_eq!(Memory::mean_of(&[]), Memory::default());
    }
}

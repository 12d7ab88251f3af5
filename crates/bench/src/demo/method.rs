//! How a demo measures, in words, for whoever reads its result.

use std::collections::BTreeMap;

use clew_report::{COVERAGE, percent};
use serde_json::{Value, json};

use super::DemoConfig;

impl DemoConfig {
    /// What was asked for, as a result names it.
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        let all = [
            ("total_parts", json!(self.totals)),
            ("similarities", json!(self.similarities)),
            ("relaunches", json!(self.relaunches)),
            ("rounds", json!(self.rounds)),
            ("data_bytes", json!(self.data_bytes)),
            ("headroom_bytes", json!(self.headroom_bytes)),
            ("updates", json!(self.updates)),
            ("pause_ms", json!(self.pause.as_millis() as u64)),
        ];
        let mut settings: BTreeMap<_, _> =
            all.map(|(name, value)| (name.to_string(), value)).into();
        if let Some(bytes) = self.total_bytes {
            settings.remove("total_parts");
            settings.insert("total_bytes".to_string(), bytes.into());
        }
        settings
    }

    /// What has to be known to read the figures; `total` is that of the base point.
    pub(super) fn notes(&self, total: u64) -> Vec<String> {
        let how = match self.total_bytes {
            Some(_) => "as given".to_string(),
            None => format!("{} % of what dram used", percent(self.totals[0])),
        };
        let scenario = "Scenario scatter: synthetic requests drawn at random, the worst case for \
             whoever learns from what was.";
        let totals = (total > 0)
            .then(|| format!("Equal totals at the base point: {} MiB ({how}).", total >> 20));
        std::iter::once(scenario.to_string()).chain(totals).collect()
    }

    /// As people read it.
    pub(super) fn method(&self) -> Vec<String> {
        vec![
            format!(
                "Unmodified programs of the system, filled with seeded data, switched between in a \
                 seeded order that is the same in every arm: {} measured switches an arm and point \
                 after one visit to each program, in {} round(s) with data of their own. At each \
                 return the given part of the working set is the same as before and the rest is \
                 fresh; {} % of the requests change data. Every answer is compared with what the \
                 data must give.",
                self.relaunches,
                self.rounds,
                percent(self.updates)
            ),
            "A percentage of memory is one of the most that the programs used in dram. Every arm but \
             dram has it, enforced by the limit of one control group, which holds programs, daemon, \
             pool and page tables; the memory of the kernel's zram is not charged to groups and is \
             subtracted from that limit all the time."
                .to_string(),
            format!(
                "The kernel's arms: swappiness 100; {} MiB of headroom are restored between switches, \
                 outside the clock. kernel-zram: LZ4, no read-ahead. kernel-zram+hint: by \
                 process_madvise, a program that leaves loses what its last relaunch did not use, and \
                 one that comes is asked for what it used, while it runs already. swap-file: a file \
                 on the disk, the kernel's read-ahead of eight pages. Clew: the daemon's budget is \
                 lower than the limit by five sixths of that, for what it does not count (page \
                 tables, stacks, file pages), and its watermarks are the default ones.",
                self.headroom_bytes >> 20
            ),
            format!(
                "Arms run one after the other on one machine, in another order at each point, with {} \
                 ms of rest between switches. Nothing is pinned to a processor.",
                self.pause.as_millis()
            ),
            format!(
                "Percentiles are of all relaunches of a group of programs. Intervals cover {COVERAGE} %: \
                 percentile bootstrap, 1000 resamples, stratified by program; ratios resample the \
                 same switches in both arms."
            ),
        ]
    }
}

//! What governed programs ask back from swap: the kernel's stream of major faults, with their addresses.
//!
//! One software event of `perf` a CPU, of every process; what is of no governed program is passed over. It costs a
//! program nothing to speak of and nobody waits for its reader. Where the reader comes too late, records are lost:
//! the kernel says how many, and so does the status. Pages that the kernel read ahead or had not dropped yet come back
//! without a major fault: looks find them ([`crate::governor`]).

use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// Bytes of the ring of each CPU: 10,000 faults.
const RING_BYTES: usize = 256 << 10;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MajorFault {
    /// When, on the kernel's clock for this.
    pub when: u64,
    /// The process that waited.
    pub pid: u32,
    /// The address that it touched.
    pub address: u64,
}

/// The stream.
pub struct MajorFaults {
    rings: Vec<Sampler>,
    lost: u64,
}

impl MajorFaults {
    /// Listens from now on, on the CPUs that are there now.
    ///
    /// # Errors
    /// The kernel does not let this process look at all others (CAP_PERFMON, `kernel.perf_event_paranoid`).
    pub fn listen() -> io::Result<MajorFaults> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        let rings = cpus(&online).into_iter().map(ring).collect::<io::Result<Vec<Sampler>>>()?;
        Ok(MajorFaults { rings, lost: 0 })
    }

    /// The faults since the last time, in the order in which they came.
    pub fn take(&mut self) -> Vec<MajorFault> {
        let mut faults = Vec::new();
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let (when, pid, address) = (sample.time(), sample.pid(), sample.addr());
                        if let (Some(when), Some(pid), Some(address)) = (when, pid, address) {
                            faults.push(MajorFault { when, pid, address });
                        }
                    }
                    Ok(Record::Lost(lost)) => self.lost += lost.lost,
                    // Of what the kernel says in between there is nothing to know.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        faults.sort_unstable();
        faults
    }

    /// Faults that nobody heard of, because rings were full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

fn ring(cpu: usize) -> io::Result<Sampler> {
    let mut event = Builder::new(Software::PAGE_FAULTS_MAJ);
    // The kernel's own accesses on behalf of a program are faults of it as well.
    event.any_pid().one_cpu(cpu).include_kernel().sample_period(1);
    event.sample(SampleFlag::TID).sample(SampleFlag::ADDR).sample(SampleFlag::TIME);
    // Nobody is woken: the governor comes when it comes.
    event.wakeup_watermark(RING_BYTES);
    event.enabled(true).build()?.sampled(RING_BYTES)
}

/// The numbers in a list such as `0-3,6`.
fn cpus(list: &str) -> Vec<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    list.trim().split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpus("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpus("0\n"), [0]);
        assert!(cpus("").is_empty());
    }
}

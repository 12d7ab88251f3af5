//! What governed programs ask back from swap: the kernel's stream of major faults, with their addresses.
//!
//! One software event of `perf` a CPU, of every process; what is of no governed program is passed over. Where records
//! are lost the status says how many. Pages that the kernel read ahead or had not dropped yet come back
//! without a major fault: looks find them ([`crate::governor`]).

use std::io;

use clew_live::perf_rings::PerfRings;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};

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
pub struct MajorFaults(PerfRings);

impl MajorFaults {
    /// Listens from now on, on the CPUs that are there now.
    ///
    /// # Errors
    /// Those of [`PerfRings::listen`].
    pub fn listen() -> io::Result<MajorFaults> {
        let configure = |event: &mut Builder<'_>| {
            event.sample(SampleFlag::TID).sample(SampleFlag::ADDR).sample(SampleFlag::TIME);
        };
        PerfRings::listen(&Software::PAGE_FAULTS_MAJ, configure, RING_BYTES).map(MajorFaults)
    }

    /// The faults since the last time, in the order in which they came.
    pub fn take(&mut self) -> Vec<MajorFault> {
        let mut faults = Vec::new();
        self.0.take(|record| {
            let Record::Sample(sample) = record else { return };
            let (when, pid, address) = (sample.time(), sample.pid(), sample.addr());
            if let (Some(when), Some(pid), Some(address)) = (when, pid, address) {
                faults.push(MajorFault { when, pid, address });
            }
        });
        faults.sort_unstable();
        faults
    }

    /// Faults that nobody heard of, because rings were full.
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }
}

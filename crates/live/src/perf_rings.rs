//! Rings of the kernel's events of one kind, one a CPU (`perf`), of every process of the machine.
//!
//! An event costs a program nothing to speak of, and nobody waits for whoever reads. Where that comes too late
//! records are lost: the kernel says how many.

use std::io;

use perf_event::data::Record;
use perf_event::events::Event;
use perf_event::{Builder, Sampler};

/// The rings.
pub struct PerfRings {
    rings: Vec<Sampler>,
    lost: u64,
}

impl PerfRings {
    /// Listens from now on, on the CPUs that are there now, for `event` with what `configure` asks for. `bytes` of a ring
    /// are a power of two.
    ///
    /// # Errors
    /// The kernel does not let this process look at all others (CAP_PERFMON, `kernel.perf_event_paranoid`).
    pub fn listen<E: Event + Clone>(
        event: &E,
        configure: impl Fn(&mut Builder<'_>),
        bytes: usize,
    ) -> io::Result<PerfRings> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        let ring = |cpu| {
            let mut event = Builder::new(event.clone());
            // The kernel's own accesses on behalf of a program are events of it as well.
            event.any_pid().one_cpu(cpu).include_kernel().sample_period(1);
            configure(&mut event);
            // Nobody is woken: who listens comes when it comes.
            event.wakeup_watermark(bytes);
            event.enabled(true).build()?.sampled(bytes)
        };
        let rings = cpus(&online).into_iter().map(ring).collect::<io::Result<Vec<Sampler>>>()?;
        Ok(PerfRings { rings, lost: 0 })
    }

    /// What was told since the last time, one CPU after the other.
    pub fn take(&mut self, mut heard: impl FnMut(&Record<'_>)) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                match record.parse_record() {
                    Ok(Record::Lost(lost)) => self.lost += lost.lost,
                    Ok(record) => heard(&record),
                    // The kernel says more than the library knows.
                    Err(_) => {}
                }
            }
        }
    }

    /// Events that nobody heard of, because rings were full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
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

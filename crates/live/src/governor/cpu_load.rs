//! How busy the CPUs of the machine are, for policies that put off long work: the first line of
//! `/proc/stat`, once a second.

use std::time::{Duration, Instant};

use super::Governor;

const LOOK: Duration = Duration::from_secs(1);

/// Clock ticks of all CPUs since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    /// user, nice, system, idle, iowait, irq, softirq, steal: what others stole is not to be had.
    fn parse(stat: &str) -> Option<Ticks> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let numbers: Vec<u64> = numbers.take(8).map_while(|word| word.parse().ok()).collect();
        let idle = numbers.get(3)? + numbers.get(4)?;
        let all = numbers.iter().sum();
        Some(Ticks { busy: all - idle, all })
    }

    /// The share of time since `before` that was not idle, 0 to 1. Idle time may be counted back.
    fn load_since(self, before: Ticks) -> f32 {
        let all = self.all.saturating_sub(before.all);
        let busy = self.busy.saturating_sub(before.busy).min(all);
        if all == 0 { 0.0 } else { busy as f32 / all as f32 }
    }
}

/// What was seen last, and when.
#[derive(Default)]
pub(super) struct CpuLoad {
    last: Option<(Instant, Ticks)>,
}

impl Governor {
    /// Tells the policies, from time to time.
    pub(super) fn look_at_cpus(&mut self) {
        if self.cpu_load.last.is_some_and(|(when, _)| when.elapsed() < LOOK) {
            return;
        }
        let now = std::fs::read_to_string("/proc/stat").ok().and_then(|text| Ticks::parse(&text));
        let Some(now) = now else { return };
        if let Some((_, before)) = self.cpu_load.last.replace((Instant::now(), now)) {
            self.driver.set_cpu_load(now.load_since(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_the_share_of_time_that_was_not_idle() {
        let stat = |idle: u64| format!("cpu  10 20 30 {idle} 5 1 2 3 9 9\ncpu0 1 2 3 4 5 6 7 8\n");
        let at = |idle| Ticks::parse(&stat(idle)).expect("the kernel's format");
        assert_eq!(at(100), Ticks { busy: 66, all: 171 });
        assert_eq!(at(100).load_since(Ticks::default()), 66.0 / 171.0);
        assert_eq!(at(200).load_since(at(100)), 0.0);
        assert_eq!(at(100).load_since(at(200)), 0.0, "counted back");
        let later = Ticks { busy: 96, all: 211 };
        assert_eq!(later.load_since(at(100)), 0.75);
        for nonsense in ["", "cpu  1 2 3", "cpu0 1 2 3 4 5 6 7 8", "intr 5"] {
            assert_eq!(Ticks::parse(nonsense), None, "{nonsense:?}");
        }
    }
}

//! What happened between two looks at a daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use clew_live::control::status::{AppStatus, Status};
use serde::Serialize;

/// Rates of everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Processor time of the daemon, per cent of one processor.
    pub daemon_cpu_percent: f64,
    /// Faults a second that brought a stored page back.
    pub stored_faults_per_second: f64,
    /// Half of them took at most so long; `None` where there were none.
    pub stored_fault_p50_us: Option<u64>,
    /// Of 100 of them 99 took at most so long.
    pub stored_fault_p99_us: Option<u64>,
    /// Faults a second on memory that held nothing.
    pub fresh_faults_per_second: f64,
    /// Pages a second that were brought back early and then used.
    pub hits_per_second: f64,
    /// Pages a second brought back, for whatever reason.
    pub restored_pages_per_second: f64,
    /// Pages a second taken out.
    pub swapped_out_pages_per_second: f64,
    /// By app; those that are there for the first time are missing.
    pub apps: BTreeMap<String, AppRates>,
}

/// Rates of one app.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AppRates {
    /// Processor time of its processes, per cent of one processor.
    pub cpu_percent: f64,
    /// Faults a second that brought a stored page back.
    pub demand_faults_per_second: f64,
    /// Pages a second that were brought back early and then used.
    pub hits_per_second: f64,
    /// Pages a second brought back.
    pub restored_pages_per_second: f64,
    /// Pages a second taken out.
    pub swapped_out_pages_per_second: f64,
}

impl Rates {
    /// Between two looks. Counts begin anew with another daemon: then there are no rates.
    pub fn between(before: &Status, after: &Status, took: Duration) -> Rates {
        let seconds = took.as_secs_f64().max(1e-3);
        if before.daemon_pid != after.daemon_pid {
            return Rates::default();
        }
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let cpu = |before: f64, after: f64| ((after - before) / seconds * 100.0).max(0.0);
        let (b, a) = (&before.totals, &after.totals);
        let latency = after.stored_fault_latency.since(&before.stored_fault_latency);
        let app = |b: &AppStatus, a: &AppStatus| AppRates {
            cpu_percent: cpu(b.cpu_seconds, a.cpu_seconds),
            demand_faults_per_second: rate(b.demand_faults, a.demand_faults),
            hits_per_second: rate(b.prefetch_used_pages, a.prefetch_used_pages),
            restored_pages_per_second: rate(b.restored_pages, a.restored_pages),
            swapped_out_pages_per_second: rate(b.swapped_out_pages, a.swapped_out_pages),
        };
        let then: BTreeMap<&str, &AppStatus> =
            before.apps.iter().map(|then| (then.name.as_str(), then)).collect();
        let apps = after
            .apps
            .iter()
            .filter_map(|now| Some((now.name.clone(), app(then.get(now.name.as_str())?, now))));
        Rates {
            daemon_cpu_percent: cpu(before.daemon_cpu_seconds, after.daemon_cpu_seconds),
            stored_faults_per_second: rate(b.demand_faults, a.demand_faults),
            stored_fault_p50_us: latency.at_most_us(0.5),
            stored_fault_p99_us: latency.at_most_us(0.99),
            fresh_faults_per_second: rate(b.fresh_faults, a.fresh_faults),
            hits_per_second: rate(b.prefetch_used_pages, a.prefetch_used_pages),
            restored_pages_per_second: rate(
                b.restored_pages.saturating_add(b.demand_faults),
                a.restored_pages.saturating_add(a.demand_faults),
            ),
            swapped_out_pages_per_second: rate(b.swapped_out_pages, a.swapped_out_pages),
            apps: apps.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_live::control::status::Totals;

    #[test]
    fn rates_are_of_what_happened_in_between() {
        let app = |name: &str, faults, cpu| AppStatus {
            name: name.into(),
            demand_faults: faults,
            cpu_seconds: cpu,
            ..AppStatus::default()
        };
        let status = |apps, demand_faults| Status {
            daemon_pid: 7,
            apps,
            totals: Totals { demand_faults, restored_pages: 100, ..Totals::default() },
            ..Status::default()
        };
        let before = status(vec![app("old", 10, 1.0)], 50);
        let after = status(vec![app("new", 5, 0.5), app("old", 40, 1.5)], 90);
        let rates = Rates::between(&before, &after, Duration::from_secs(2));
        assert_eq!(rates.stored_faults_per_second, 20.0);
        assert_eq!(rates.restored_pages_per_second, 20.0);
        assert_eq!(rates.apps.keys().collect::<Vec<_>>(), ["old"]);
        let old = &rates.apps["old"];
        assert_eq!((old.demand_faults_per_second, old.cpu_percent), (15.0, 25.0));
        // Whatever it counts.
        let most = Totals { demand_faults: u64::MAX, restored_pages: 1, ..Totals::default() };
        let absurd = Status { totals: most, ..after.clone() };
        let rates = Rates::between(&after, &absurd, Duration::from_secs(1));
        assert!(rates.restored_pages_per_second > 1e19);
        // A successor counts from nothing.
        let next = Status { daemon_pid: 8, ..status(vec![app("old", 1, 0.1)], 1) };
        assert_eq!(Rates::between(&after, &next, Duration::from_secs(1)), Rates::default());
    }
}

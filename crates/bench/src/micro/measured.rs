//! The result of a measurement. The names are a promise: they are documented, and other programs
//! read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use clew_report::percentile;

/// `clew bench CASE --format json` is a list of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The benchmark: `fault`, `fault-under-load`, `swap-out`, `restore`, `codec`, `idle`, `sensor`,
    /// `flash`, `donors`, `lottery`, `admission`, `density`, `mount`.
    pub bench: String,
    /// Which variant of it.
    pub case: String,
    /// What one unit of it is, for people: "one fault", "CPU a page".
    pub unit: String,
    pub clew: Costs,
    pub peer: Peer,
    /// Clew / peer at p50: smaller is better.
    pub ratio: f64,
}

/// What Clew was compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// `kernel-zram`, `kernel-zram-willneed`, `unmanaged`, `lz4-4KiB`,
    /// `no sensor`, `fio 1MiB`, `fio 4KiB`, `iperf3`, `bare 4KiB`, `copy`, `plain TCP`,
    /// `remoteswap`, `cloudswap`, `lru`, `lzo`, `liblzo2`, `lz4`, `z3fold`, `disk O_DIRECT`, `plain FUSE`, `no pool`.
    pub name: String,
    #[serde(flatten)]
    pub costs: Costs,
}

/// What one side needed, in microseconds a unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Median over repetitions of what a repetition gave at its median.
    pub p50_us: f64,
    /// Median over repetitions of their 99th percentiles; where a repetition gives one number, the
    /// 99th percentile of these.
    pub p99_us: f64,
    /// The spread: smallest and largest median of a repetition.
    pub min_us: f64,
    pub max_us: f64,
    /// Repetitions.
    pub n: usize,
    /// What else is known of this side (`compression_ratio`, for example).
    #[serde(flatten)]
    pub more: BTreeMap<String, f64>,
}

impl Costs {
    /// Of repetitions that each gave one number.
    pub fn of(samples: &[f64]) -> Costs {
        let sorted = ascending(samples);
        Costs {
            p50_us: percentile(&sorted, 50.0),
            p99_us: percentile(&sorted, 99.0),
            min_us: sorted.first().copied().unwrap_or_default(),
            max_us: sorted.last().copied().unwrap_or_default(),
            n: sorted.len(),
            more: BTreeMap::new(),
        }
    }

    /// Of repetitions that each gave a median and a 99th percentile.
    pub fn of_distributions(medians: &[f64], tails: &[f64]) -> Costs {
        Costs { p99_us: percentile(&ascending(tails), 50.0), ..Costs::of(medians) }
    }

    /// With something else that is known.
    pub fn with(mut self, name: &str, value: f64) -> Costs {
        self.more.insert(name.to_string(), value);
        self
    }
}

fn ascending(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

impl Measured {
    /// Clew beside a peer.
    pub fn of(bench: &str, case: &str, unit: &str, clew: Costs, peer: (&str, Costs)) -> Measured {
        let ratio = if peer.1.p50_us > 0.0 { clew.p50_us / peer.1.p50_us } else { f64::NAN };
        Measured {
            bench: bench.to_string(),
            case: case.to_string(),
            unit: unit.to_string(),
            clew,
            peer: Peer { name: peer.0.to_string(), costs: peer.1 },
            ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable() {
        let clew = Costs::of_distributions(&[3.0, 1.0, 2.0], &[9.0, 7.0, 8.0]);
        let peer = ("kernel-zram", Costs::of(&[4.0]).with("compression_ratio", 2.5));
        let value = serde_json::to_value(Measured::of("fault", "random", "one fault", clew, peer))
            .expect("it is data");
        assert_eq!(value["clew"]["p50_us"], 2.0);
        assert_eq!(value["clew"]["p99_us"], 8.0);
        assert_eq!(
            (&value["clew"]["min_us"], &value["clew"]["max_us"]),
            (&1.0.into(), &3.0.into())
        );
        assert_eq!(value["peer"]["name"], "kernel-zram");
        assert_eq!(value["peer"]["compression_ratio"], 2.5);
        assert_eq!(value["ratio"], 0.5);
    }
}

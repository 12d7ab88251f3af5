//! The phones, costs and workloads of Archer's evaluation (5.1).

use std::sync::Arc;

use clew_core::CodecKind;
use clew_trace::generate::Workload;
use clew_trace::generate::profile::{ARCHER, Profile};
use toml::Value;

use crate::costs::{Clock, CodecCost, Costs};
use crate::device::Device;
use crate::error::LabError;
use crate::replay::Settings;
use crate::reproduce::desk::{BARE, Desk, Run, Workbench, scheme};
use crate::reproduce::launches::{Launch, slowdown};
use crate::reproduce::pressure::{Pressure, find};

/// The schemes that are compared, the baseline first.
pub const SCHEMES: [&str; 4] = ["zram", "asap", "shsc", "archer"];
/// Apps that are tested are the first ones of a trace.
pub const TESTED: u32 = 8;
/// Launches under ZRAM when memory is scarce take so many times as long as regular ones (figure 1a).
pub const SLOWDOWN: f64 = 1.687;

/// A phone.
#[derive(Clone, Copy)]
pub struct Phone {
    pub name: &'static str,
    /// The compression region: how many pages may be stored, MiB.
    region_mib: f64,
    /// Memory that it leaves to apps, as a part of the Pixel 6's.
    memory: f64,
}

pub const PIXEL_6: Phone = Phone { name: "Pixel 6", region_mib: 2048.0, memory: 1.0 };
pub const P20: Phone = Phone { name: "P20", region_mib: 1024.0, memory: 6.0 / 12.0 };
pub const PIXEL_3: Phone = Phone { name: "Pixel 3", region_mib: 512.0, memory: 4.0 / 12.0 };

/// How long compression takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// As Clew's codecs do, on a processor as fast as the phone's.
    Ours,
    /// As the paper says for large blocks.
    Published,
}

impl Speed {
    pub const BOTH: [Speed; 2] = [Speed::Ours, Speed::Published];

    /// For claims.
    pub fn said(self) -> &'static str {
        match self {
            Speed::Ours => "our costs",
            Speed::Published => "published speed",
        }
    }
}

/// The table of costs, where each page stands for `grain`.
pub fn costs(speed: Speed, grain: f64) -> Result<Costs, LabError> {
    /// The chunk of `lz4_512k_bytes_per_second`.
    const LARGE: u64 = 512 << 10;
    const PAGE: u32 = 4096;
    let phone = Device::named("pixel-6-pro")?;
    let mut costs = phone.costs(Costs::reference())?;
    if speed == Speed::Published {
        let hint = "figures of Archer need it";
        let page = costs.codec(CodecKind::Lz4, PAGE, PAGE)?;
        let large = costs.codec(CodecKind::Lz4, LARGE as u32, PAGE)?;
        let bytes_per_second = phone.need("lz4_512k_bytes_per_second", hint)?;
        let large_ns = f64::from(PAGE) / bytes_per_second * 1e9;
        let log = |bytes: u64| (bytes as f64).log2();
        for row in costs.codec.iter_mut().filter(|row| row.codec == CodecKind::Lz4) {
            if row.chunk.0 > u64::from(PAGE) {
                let part = (log(row.chunk.0) - log(PAGE.into())) / (log(LARGE) - log(PAGE.into()));
                row.out_ns = page.out_ns + (large_ns - page.out_ns) * part;
            }
        }
        let chunk = clew_core::ByteSize(LARGE);
        let at =
            costs.codec.partition_point(|row| (row.codec, row.chunk.0) < (CodecKind::Lz4, LARGE));
        costs.codec.insert(at, CodecCost { chunk, out_ns: large_ns, ..large });
    }
    let named = format!("{}, one page for {grain:.0}", speed.said());
    Ok(costs.slowed(grain, &named))
}

/// The workload of a profile, as large as the desk has it.
pub fn workload(desk: &Desk<'_>, profile: &'static Profile, apps: usize) -> Workload {
    let scale = if desk.quick { 0.012 } else { 0.1 };
    let events = (desk.quick && profile.name == ARCHER.name).then_some(220_000);
    Workload { scale, apps, events, contents: false, ..Workload::new(profile, 1) }
}

/// The trace of launches among many apps, or the one that was given.
pub fn launching(desk: &mut Desk<'_>) -> Result<Arc<Workbench>, LabError> {
    let workload = workload(desk, &ARCHER, ARCHER.default_apps);
    desk.usual(&workload)
}

/// How `name` is replayed on a phone whose memory holds `budget_bytes` on the Pixel 6.
pub fn settings(
    bench: &Workbench,
    name: &str,
    phone: Phone,
    speed: Speed,
    budget_bytes: u64,
    parameters: &[(&str, Value)],
) -> Result<Settings, LabError> {
    /// Rounds of so many pages are large (5.1: order above 8).
    const WIDE_PAGES: f64 = 512.0;
    let page_bytes = f64::from(bench.input.trace.header().page_bytes);
    let region = phone.region_mib * f64::from(1 << 20) / page_bytes / bench.grain;
    let wide = (WIDE_PAGES / bench.grain).round().max(1.0);
    let mut all = vec![
        ("on_full", Value::String("kill".to_string())),
        ("disksize_pages", Value::Integer(region as i64)),
    ];
    if name == "archer" {
        all.push(("reclaim.wide_pages", Value::Integer(wide as i64)));
    }
    all.extend(parameters.iter().cloned());
    Ok(Settings {
        pages: BARE,
        clock: Clock::Modelled(costs(speed, bench.grain)?),
        watermarks: (0.1, 0.2),
        ..Settings::new(scheme(name, &all)?, (budget_bytes as f64 * phone.memory) as u64)
    })
}

/// The budget of the Pixel 6 in which hot launches are as slow as published.
pub fn pressure(desk: &Desk<'_>, bench: &Workbench) -> Result<Pressure, LabError> {
    const SHARES: [f64; 8] = [0.9, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5];
    let shares = if desk.quick { &SHARES[2..4] } else { &SHARES[..] };
    let baseline = |bytes| settings(bench, SCHEMES[0], PIXEL_6, Speed::Ours, bytes, &[]);
    find(desk, bench, shares, SLOWDOWN, &baseline, &|run| slowdown(run, Launch::Hot, TESTED))
}

/// Every scheme on one phone, in the order of [`SCHEMES`].
pub fn launches(
    desk: &Desk<'_>,
    bench: &Workbench,
    phone: Phone,
    speed: Speed,
    budget_bytes: u64,
) -> Result<Vec<Run>, LabError> {
    let each = SCHEMES.map(|name| settings(bench, name, phone, speed, budget_bytes, &[]));
    let each: Vec<Settings> = each.into_iter().collect::<Result<_, _>>()?;
    desk.runs(bench, &each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_as_fast_as_published() {
        let speed = |speed, chunk| {
            let cost = costs(speed, 1.0).and_then(|all| all.codec(CodecKind::Lz4, chunk, 4096));
            4096.0 / cost.expect("a row").out_ns * 1e3
        };
        let near =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.01, "{found}");
        near(speed(Speed::Ours, 4096), 205.1);
        near(speed(Speed::Published, 4096), 205.1);
        near(speed(Speed::Published, 512 << 10), 522.6);
        let buffer = speed(Speed::Published, 128 << 10);
        assert!(buffer > 300.0 && buffer < 450.0, "{buffer}");
        assert!(speed(Speed::Ours, 128 << 10) < 215.0, "our large blocks are no faster");
    }
}

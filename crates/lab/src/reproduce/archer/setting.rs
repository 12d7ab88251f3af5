//! The phones, costs and workloads of Archer's evaluation (5.1).

use std::sync::Arc;

use clew_core::{ByteSize, CodecKind};
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
    /// Its name among the devices.
    device: &'static str,
    /// The compression region: how many pages may be stored, MiB.
    region_mib: f64,
}

pub const PIXEL_6: Phone = Phone { name: "Pixel 6", device: "pixel-6-pro", region_mib: 2048.0 };
pub const P20: Phone = Phone { name: "P20", device: "p20", region_mib: 1024.0 };
pub const PIXEL_3: Phone = Phone { name: "Pixel 3", device: "pixel-3", region_mib: 512.0 };

impl Phone {
    /// Why nothing can be run for it.
    pub fn unknown(self) -> Option<String> {
        costs(self, Reading::Letter, 1.0).err().map(|error| error.to_string())
    }
}

/// How the paper is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Support is a fifth of an app's transactions (5.1: 0.2), and compression is as fast as Clew's codecs
    /// on a processor as fast as the phone's.
    Letter,
    /// Any support will do, and large blocks are compressed as fast as the paper says (5.3).
    Favour,
}

impl Reading {
    pub const BOTH: [Reading; 2] = [Reading::Letter, Reading::Favour];

    /// For claims.
    pub fn said(self) -> &'static str {
        match self {
            Reading::Letter => "to the letter",
            Reading::Favour => "in its favour",
        }
    }
}

/// The table of costs, where each page stands for `grain`.
pub fn costs(phone: Phone, reading: Reading, grain: f64) -> Result<Costs, LabError> {
    /// The chunk of `lz4_512k_bytes_per_second`.
    const LARGE: u64 = 512 << 10;
    const PAGE: u32 = 4096;
    let device = Device::named(phone.device)?;
    let mut costs = device.costs(Costs::reference())?;
    if reading == Reading::Favour {
        let hint = "figures of Archer need it";
        let page = costs.codec(CodecKind::Lz4, PAGE, PAGE)?;
        let large = costs.codec(CodecKind::Lz4, LARGE as u32, PAGE)?;
        let bytes_per_second = device.need("lz4_512k_bytes_per_second", hint)?;
        let large_ns = f64::from(PAGE) / bytes_per_second * 1e9;
        let log = |bytes: u64| (bytes as f64).log2();
        for row in costs.codec.iter_mut().filter(|row| row.codec == CodecKind::Lz4) {
            if row.chunk.0 > u64::from(PAGE) {
                let part = (log(row.chunk.0) - log(PAGE.into())) / (log(LARGE) - log(PAGE.into()));
                row.out_ns = page.out_ns + (large_ns - page.out_ns) * part;
            }
        }
        let is_before = |row: &CodecCost| (row.codec, row.chunk.0) < (CodecKind::Lz4, LARGE);
        let at = costs.codec.partition_point(is_before);
        costs.codec.insert(at, CodecCost { chunk: ByteSize(LARGE), out_ns: large_ns, ..large });
    }
    let named = format!("{}, one page for {grain:.0}", reading.said());
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

/// How `name` is replayed with so much memory. The region has no limit here: see [`in_region`].
pub fn settings(
    bench: &Workbench,
    name: &str,
    reading: Reading,
    budget_bytes: u64,
    parameters: &[(&str, Value)],
) -> Result<Settings, LabError> {
    /// Rounds of so many pages are large (5.1: order above 8).
    const WIDE_PAGES: f64 = 512.0;
    let wide = (WIDE_PAGES / bench.grain).round().max(1.0);
    let mut all = vec![("on_full", Value::String("kill".to_string()))];
    if name == "archer" {
        all.push(("reclaim.wide_pages", Value::Integer(wide as i64)));
        if reading == Reading::Favour {
            all.push(("reclaim.support_pct", Value::Integer(0)));
        }
    }
    all.extend(parameters.iter().cloned());
    Ok(Settings {
        pages: BARE,
        clock: Clock::Modelled(costs(PIXEL_6, reading, bench.grain)?),
        watermarks: (0.1, 0.2),
        ..Settings::new(scheme(name, &all)?, budget_bytes)
    })
}

/// ZRAM with the region that the paper gives the phone: when it is full, apps are ended.
pub fn in_region(bench: &Workbench, budget_bytes: u64) -> Result<Settings, LabError> {
    let page_bytes = f64::from(bench.input.trace.header().page_bytes);
    let pages = PIXEL_6.region_mib * f64::from(1 << 20) / page_bytes / bench.grain;
    let region = [("disksize_pages", Value::Integer(pages as i64))];
    settings(bench, SCHEMES[0], Reading::Letter, budget_bytes, &region)
}

/// Parts of what all pages take that are tried.
fn shares(desk: &Desk<'_>) -> &'static [f64] {
    const SHARES: [f64; 9] = [0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4];
    if desk.quick { &SHARES[5..7] } else { &SHARES }
}

/// The budget in which hot launches are as slow as published, as long as the region has no limit.
pub fn pressure(desk: &Desk<'_>, bench: &Workbench) -> Result<Pressure, LabError> {
    let baseline = |bytes| settings(bench, SCHEMES[0], Reading::Letter, bytes, &[]);
    let of = |run: &Run| slowdown(run, Launch::Hot, TESTED);
    find(desk, bench, shares(desk), SLOWDOWN, &baseline, &of)
}

/// The same with the published region.
pub fn pressure_in_region(desk: &Desk<'_>, bench: &Workbench) -> Result<Pressure, LabError> {
    let of = |run: &Run| slowdown(run, Launch::Hot, TESTED);
    find(desk, bench, shares(desk), SLOWDOWN, &|bytes| in_region(bench, bytes), &of)
}

/// Every scheme, in the order of [`SCHEMES`].
pub fn launches(
    desk: &Desk<'_>,
    bench: &Workbench,
    reading: Reading,
    budget_bytes: u64,
) -> Result<Vec<Run>, LabError> {
    let each = SCHEMES.map(|name| settings(bench, name, reading, budget_bytes, &[]));
    let each: Vec<Settings> = each.into_iter().collect::<Result<_, _>>()?;
    desk.runs(bench, &each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_as_fast_as_published() {
        let speed = |reading, chunk| {
            let cost =
                costs(PIXEL_6, reading, 1.0).and_then(|all| all.codec(CodecKind::Lz4, chunk, 4096));
            4096.0 / cost.expect("a row").out_ns * 1e3
        };
        let near =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.01, "{found}");
        near(speed(Reading::Letter, 4096), 205.1);
        near(speed(Reading::Favour, 4096), 205.1);
        near(speed(Reading::Favour, 512 << 10), 522.6);
        let buffer = speed(Reading::Favour, 128 << 10);
        assert!(buffer > 300.0 && buffer < 450.0, "{buffer}");
        assert!(speed(Reading::Letter, 128 << 10) < 215.0, "our large blocks are no faster");
    }

    #[test]
    fn phones_whose_speed_nobody_published_are_told_by_name() {
        assert_eq!(PIXEL_6.unknown(), None);
        for phone in [P20, PIXEL_3] {
            let why = phone.unknown().expect("nobody says how fast it is");
            assert!(why.contains(phone.device) && why.contains("no source"), "{why}");
        }
    }
}

//! The phone, the arms and the clocks of Ariadne's evaluation (section 5, tables 4 and 5).

use std::sync::Arc;

use clew_core::{ByteSize, CodecKind, Tier};
use clew_policy::Scheme;
use clew_trace::generate::Workload;
use clew_trace::generate::profile::MOBILE_2025;
use toml::Value;

use crate::costs::{Clock, CodecCost, Costs};
use crate::device::Device;
use crate::error::LabError;
use crate::replay::{Pages, Settings};
use crate::reproduce::desk::{BARE, Desk, Run, Workbench, scheme};
use crate::reproduce::launches::{Launch, mean, slowdown};
use crate::reproduce::pressure::{Pressure, find};

/// The apps that the paper shows are the first ones of a trace.
pub const SHOWN: u32 = 5;
/// What relaunches took in DRAM and under ZRAM, milliseconds: the authors' published scripts.
pub const PUBLISHED_MS: [(&str, f64, f64); 5] = [
    ("YouTube", 63.0, 122.0),
    ("Twitter", 104.0, 262.0),
    ("Firefox", 56.0, 149.0),
    ("GoogleEarth", 86.0, 170.0),
    ("BangDream", 65.0, 138.0),
];

/// How much slower ZRAM made relaunches, in the mean of the five apps.
pub fn published_slowdown() -> f64 {
    mean(&PUBLISHED_MS.map(|(_, dram, zram)| zram / dram))
}

/// Ariadne's configurations that are run: which lists are compressed, and in which chunks.
pub const CONFIGURATIONS: [(&str, &str); 6] = [
    ("exclude-hot", "1K-2K-16K"),
    ("exclude-hot", "1K-4K-16K"),
    ("exclude-hot", "256B-2K-32K"),
    ("all", "1K-2K-16K"),
    ("all", "512B-2K-16K"),
    ("all", "256B-2K-32K"),
];

/// EHL-1K-2K-16K, as the paper names it.
pub fn named((lists, sizes): (&str, &str)) -> String {
    let lists = if lists == "all" { "AL" } else { "EHL" };
    format!("{lists}-{}", sizes.replace("B-", "-"))
}

/// How durations of chunks are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// As they are.
    True,
    /// In whole microseconds, what is beyond them forgotten.
    Truncated,
}

impl Probe {
    pub const BOTH: [Probe; 2] = [Probe::True, Probe::Truncated];

    /// For claims.
    pub fn said(self) -> &'static str {
        match self {
            Probe::True => "true clock",
            Probe::Truncated => "truncated clock",
        }
    }
}

/// Sizes of chunks, bytes (figure 6).
pub const CHUNKS: [u32; 11] =
    [128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// The codecs that the paper uses.
pub const CODECS: [CodecKind; 2] = [CodecKind::Lz4, CodecKind::Lzo];
const PAGE: u32 = 4096;

/// The table of costs, by that probe, where each page stands for `grain`.
pub fn costs(probe: Probe, grain: f64) -> Result<Costs, LabError> {
    let mut costs = Device::named("pixel-6-pro")?.costs(Costs::reference())?;
    if probe == Probe::Truncated {
        let whole = |page_ns: f64, chunk: u32| {
            let chunks = f64::from(PAGE) / f64::from(chunk);
            (page_ns / chunks / 1e3).floor() * 1e3 * chunks
        };
        let mut rows = Vec::new();
        for codec in CODECS {
            for chunk in CHUNKS {
                let row = costs.codec(codec, chunk, PAGE)?;
                let (out_ns, back_ns) = (whole(row.out_ns, chunk), whole(row.back_ns, chunk));
                rows.push(CodecCost { chunk: ByteSize(chunk.into()), out_ns, back_ns, ..row });
            }
        }
        costs.codec.retain(|row| !CODECS.contains(&row.codec));
        costs.codec.extend(rows);
        costs.codec.sort_by_key(|row| (row.codec, row.chunk.0));
    }
    Ok(costs.slowed(grain, &format!("{}, one page for {grain:.0}", probe.said())))
}

/// The ten apps in one order of launches, or the trace that was given.
pub fn workload(desk: &Desk<'_>, order: u64, contents: bool) -> Workload {
    let scale = match (desk.quick, contents) {
        (true, _) => 0.01,
        (false, true) => 0.05,
        (false, false) => 0.1,
    };
    let events = desk.quick.then_some(60_000);
    Workload { scale, order, events, contents, ..Workload::new(&MOBILE_2025, 1) }
}

/// The three orders of launches that the paper has, or the trace that was given.
pub fn benches(desk: &mut Desk<'_>) -> Result<Vec<Arc<Workbench>>, LabError> {
    let orders = if desk.quick || desk.has_given() { 1 } else { 3 };
    let workloads = (0..orders).map(|order| workload(desk, order, false)).collect::<Vec<_>>();
    workloads.iter().map(|workload| desk.usual(workload)).collect()
}

/// ZRAM with LZO, or another scheme that has no parameters of its own.
pub fn plain(name: &str) -> Result<Scheme, LabError> {
    match name {
        "zram" => scheme(name, &[("packing.codec", Value::String("lzo".to_string()))]),
        name => scheme(name, &[]),
    }
}

/// One of Ariadne's configurations, where each page stands for `grain`.
pub fn ariadne((lists, sizes): (&str, &str), grain: f64) -> Result<Scheme, LabError> {
    /// Hot at the first launch, and pages of the buffer of PreDecomp: the scheme's own, of a whole phone.
    const INITIAL_HOT_KIB: f64 = 32.0 * 1024.0;
    const BUFFER_PAGES: f64 = 64.0;
    let text = |text: &str| Value::String(text.to_string());
    let initial = format!("{:.0}KiB", (INITIAL_HOT_KIB / grain).max(4.0));
    let buffer = (BUFFER_PAGES / grain).round().max(2.0) as i64;
    let parameters = [
        ("packing.hot_codec", text("lzo")),
        ("packing.warm_codec", text("lzo")),
        ("packing.cold_codec", text("lzo")),
        ("packing.sizes", text(sizes)),
        ("reclaim.lists", text(lists)),
        ("reclaim.initial_hot", text(&initial)),
        ("prefetch.buffer_pages", Value::Integer(buffer)),
    ];
    scheme("ariadne-paper", &parameters)
}

/// How a scheme is replayed. Flash is as large as Ariadne's region (table 5: 3 GiB). What a pool holds is limited by the
/// budget alone: the apps of the trace have more pages than a region of that size takes, and what stays outside
/// would be memory beyond the budget.
pub fn settings(
    bench: &Workbench,
    scheme: Scheme,
    probe: Probe,
    budget_bytes: u64,
    pages: Pages,
) -> Result<Settings, LabError> {
    const REGION_BYTES: f64 = 3.0 * (1u64 << 30) as f64;
    let needs_flash = scheme.uses(Tier::Flash);
    Ok(Settings {
        pages,
        clock: Clock::Modelled(costs(probe, bench.grain)?),
        flash_bytes: needs_flash.then_some((REGION_BYTES / bench.grain) as u64),
        ..Settings::new(scheme, budget_bytes)
    })
}

/// The budget in which ZRAM makes relaunches as slow as published.
pub fn pressure(desk: &Desk<'_>, bench: &Workbench) -> Result<Pressure, LabError> {
    const SHARES: [f64; 10] = [0.75, 0.65, 0.6, 0.56, 0.52, 0.5, 0.48, 0.46, 0.44, 0.42];
    let shares = if desk.quick { &SHARES[4..6] } else { &SHARES[..] };
    let baseline = |bytes| settings(bench, plain("zram")?, Probe::True, bytes, BARE);
    let of = |run: &Run| slowdown(run, Launch::Hot, SHOWN);
    find(desk, bench, shares, published_slowdown(), &baseline, &of)
}

/// ZRAM, and every configuration of Ariadne behind it.
pub fn compared(grain: f64) -> Result<Vec<Scheme>, LabError> {
    let configurations = CONFIGURATIONS.into_iter().map(|one| ariadne(one, grain));
    [plain("zram")].into_iter().chain(configurations).collect()
}

/// One order of launches: the trace, its budget, and what each scheme did.
pub struct Order {
    pub bench: Arc<Workbench>,
    pub pressure: Pressure,
    pub runs: Vec<Run>,
}

/// Runs the schemes that there are for a grain in every order of launches.
pub fn orders(
    desk: &mut Desk<'_>,
    probe: Probe,
    schemes: impl Fn(f64) -> Result<Vec<Scheme>, LabError>,
) -> Result<Vec<Order>, LabError> {
    let benches = benches(desk)?;
    let mut all = Vec::new();
    for bench in benches {
        let schemes = schemes(bench.grain)?;
        let pressure = pressure(desk, &bench)?;
        let each = schemes
            .iter()
            .map(|scheme| settings(&bench, scheme.clone(), probe, pressure.budget_bytes, BARE));
        let each: Vec<Settings> = each.collect::<Result<_, _>>()?;
        let runs = desk.runs(&bench, &each)?;
        all.push(Order { bench, pressure, runs });
    }
    Ok(all)
}

/// The mean over orders of what `of` says of one; nothing if no order says anything.
pub fn over(orders: &[Order], of: impl Fn(&Order) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = orders.iter().filter_map(of).filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// What the traces are called together.
pub fn traces(orders: &[Order]) -> String {
    let first = orders.first().map_or("", |order| &order.bench.name);
    match orders.len() {
        0 | 1 => first.to_string(),
        count => format!("{first} to {}", count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truncated_clock_makes_small_chunks_look_fast() {
        let out = |probe, chunk| {
            let table = costs(probe, 1.0).expect("a table");
            table.codec(CodecKind::Lzo, chunk, PAGE).expect("a row").out_ns
        };
        let slower = |probe| out(probe, 128) / out(probe, 128 << 10);
        assert!(slower(Probe::True) > 0.7, "{}", slower(Probe::True));
        assert!(slower(Probe::Truncated) < 0.1, "{}", slower(Probe::Truncated));
        // Large chunks take many microseconds: nothing is lost.
        let part = out(Probe::Truncated, 128 << 10) / out(Probe::True, 128 << 10);
        assert!(part > 0.99 && part <= 1.0, "{part}");
    }

    #[test]
    fn configurations_are_named_as_in_the_paper_and_can_be_built() {
        assert_eq!(named(("all", "512B-2K-16K")), "AL-512-2K-16K");
        assert_eq!(named(("exclude-hot", "1K-2K-16K")), "EHL-1K-2K-16K");
        for configuration in CONFIGURATIONS {
            let scheme = ariadne(configuration, 10.0).unwrap_or_else(|error| panic!("{error}"));
            assert!(scheme.to_toml().contains("lzo"), "{}", scheme.to_toml());
        }
    }
}

//! Figure 10 (6.1): relaunches under ZRAM, under Ariadne's configurations, and in DRAM.

use super::setting::{CONFIGURATIONS, Probe, SHOWN, compared, named, orders, over, traces};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::launches::{Launch, mean, mean_ms, ratio, slowdown};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "10",
    title: "relaunches under Ariadne",
    says: "every configuration halves the relaunch of ZRAM, and is within 10 % of DRAM; whether hot data is compressed \
           (AL) or not (EHL) makes no difference: YouTube takes 73 and 75 ms with 1K-2K-16K. (Its authors' \
           script has 63 ms for DRAM, so that is 16 to 19 % more and not within 10.)",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let ran = orders(desk, Probe::True, compared)?;
    let name = traces(&ran);
    let against_zram = |at: usize| {
        over(&ran, |order| {
            let of = |at: usize| mean_ms(&order.runs[at], Launch::Hot, SHOWN);
            ratio(&of(at), &of(0))
        })
    };
    let against_dram =
        |at: usize| over(&ran, |order| slowdown(&order.runs[at], Launch::Hot, SHOWN));
    let mut claims = Vec::new();
    let mut rows = vec![("DRAM".to_string(), 1.0)];
    rows.extend(against_dram(0).map(|slow| ("ZRAM".to_string(), slow)));
    let mut parts = Vec::new();
    for (at, configuration) in CONFIGURATIONS.into_iter().enumerate() {
        let shown = named(configuration);
        let (zram, dram) = (against_zram(at + 1), against_dram(at + 1));
        parts.extend(zram);
        let claim = Claim::new("10", format!("{shown} / ZRAM"), 0.5, "x", Tolerance::RATIO);
        claims.push(claim.found(zram, Kind::Modelled, &name));
        let near = Tolerance::Below { limit: 1.1 };
        let claim = Claim::new("10", format!("{shown} / DRAM"), None, "x", near);
        claims.push(claim.found(dram, Kind::Modelled, &name));
        rows.extend(dram.map(|slow| (shown, slow)));
    }
    let all = (!parts.is_empty()).then(|| mean(&parts));
    let claim = Claim::new("10", "all configurations / ZRAM, mean", 0.5, "x", Tolerance::RATIO);
    claims.push(claim.found(all, Kind::Modelled, &name));
    let place = |lists: &str| {
        let one = CONFIGURATIONS.iter().position(|one| *one == (lists, "1K-2K-16K"))?;
        over(&ran, |order| mean_ms(&order.runs[one + 1], Launch::Hot, 1).get(&0).copied())
    };
    let both = place("exclude-hot").zip(place("all")).map(|(ehl, al)| ehl / al);
    let same = Tolerance::Within { off: 0.05 };
    let claim = Claim::new("10", "YouTube, 1K-2K-16K: EHL / AL", 75.0 / 73.0, "x", same);
    claims.push(claim.found(both, Kind::Modelled, &name));
    let notes = ran.iter().map(|order| format!("{}: {}.", order.bench.name, order.pressure.said()));
    Ok(Found {
        claims,
        charts: vec![bars("mean relaunch of five apps, as a multiple of DRAM", "x", rows)],
        notes: notes.collect(),
        ..Found::default()
    })
}

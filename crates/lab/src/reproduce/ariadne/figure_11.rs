//! Figure 11 (6.1): processor time of compression and decompression against ZRAM.

use super::setting::{CONFIGURATIONS, Order, Probe, compared, named, orders, over, traces};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::launches::mean;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "11",
    title: "processor time",
    says: "over all configurations, compression and decompression take 15 % less processor time than with ZRAM; EHL \
           takes 25 % off for YouTube and 30 % for Twitter, and adds 3 % for BangDream, which has little hot data.",
    run,
};

/// Of one app, compression and decompression of run `at` as a part of ZRAM's.
fn app_part(order: &Order, at: usize, app: u32) -> Option<f64> {
    let of = |at: usize| {
        let pages = order.runs[at].watched.apps.get(&app)?;
        Some(pages.out_ms + pages.back_ms)
    };
    Some(of(at)? / of(0)?)
}

/// The same of all of them.
fn part(order: &Order, at: usize) -> Option<f64> {
    let of = |at: usize| {
        let replay = order.runs[at].arm.replay.as_ref()?;
        Some(replay.compress_ms + replay.decompress_ms)
    };
    Some(of(at)? / of(0)?)
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let mut found = Found::default();
    for probe in Probe::BOTH {
        let ran = orders(desk, probe, compared)?;
        let name = traces(&ran);
        let mut rows = Vec::new();
        for (at, configuration) in CONFIGURATIONS.into_iter().enumerate() {
            let part = over(&ran, |order| part(order, at + 1));
            rows.extend(part.map(|part| (named(configuration), part)));
        }
        let all: Vec<f64> = rows.iter().map(|row| row.1).collect();
        let mut add = |what: &str, paper: f64, tolerance, here| {
            let claim =
                Claim::new("11", format!("{what} ({})", probe.said()), paper, "x", tolerance);
            found.claims.push(claim.found(here, Kind::Modelled, &name));
        };
        let all = (!all.is_empty()).then(|| mean(&all));
        add("all configurations / ZRAM, mean", 0.85, Tolerance::RATIO, all);
        for (app, shown, paper) in [(0, "YouTube", 0.75), (1, "Twitter", 0.70)] {
            let here = over(&ran, |order| app_part(order, 1, app));
            add(&format!("{shown}: EHL-1K-2K-16K / ZRAM"), paper, Tolerance::RATIO, here);
        }
        let bang = over(&ran, |order| app_part(order, 1, 4));
        add("BangDream: EHL-1K-2K-16K / ZRAM", 1.03, Tolerance::Within { off: 0.05 }, bang);
        let title = format!("compression and decompression / ZRAM, {}", probe.said());
        found.charts.push(bars(&title, "x", rows));
    }
    Ok(found)
}

//! Figure 13 (6.2): compression ratio, app by app. Real bytes, real codecs.

use super::setting::{Probe, SHOWN, ariadne, plain, pressure, settings, workload};
use crate::error::LabError;
use crate::replay::{Pages, Settings};
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::launches::mean;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "13",
    title: "compression ratio",
    says: "EHL-1K-4K-16K has a better ratio than ZRAM for every app; AL-512-2K-16K has about the same as ZRAM.",
    run,
};

/// Original over stored bytes of an app's pages that left.
fn ratio(run: &Run, app: u32) -> Option<f64> {
    let pages = run.watched.apps.get(&app)?;
    (pages.out_bytes > 0).then(|| pages.out_pages as f64 * 4096.0 / pages.out_bytes as f64)
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let workload = workload(desk, 0, true);
    let bench = desk.usual(&workload)?;
    let better = Claim::new(
        "13",
        "apps of five whose ratio is better with EHL-1K-4K-16K",
        5.0,
        "apps",
        Tolerance::Within { off: 0.5 },
    );
    let same = Tolerance::Within { off: 0.08 };
    let alike = Claim::new("13", "ratio of AL-512-2K-16K / of ZRAM, mean", 1.0, "x", same);
    if !bench.has_bytes() {
        let reason = "the trace that was given has no contents of pages";
        let claims = vec![better.not_run(reason), alike.not_run(reason)];
        return Ok(Found { claims, ..Found::default() });
    }
    let budget = pressure(desk, &bench)?.budget_bytes;
    let names = ["ZRAM", "EHL-1K-4K-16K", "AL-512-2K-16K"];
    let schemes = [
        plain("zram")?,
        ariadne(("exclude-hot", "1K-4K-16K"), bench.grain)?,
        ariadne(("all", "512B-2K-16K"), bench.grain)?,
    ];
    let each = schemes.map(|one| settings(&bench, one, Probe::True, budget, Pages::Real));
    let each: Vec<Settings> = each.into_iter().collect::<Result<_, _>>()?;
    let runs = desk.runs(&bench, &each)?;
    let of = |at: usize, app: u32| Some(ratio(&runs[at], app)? / ratio(&runs[0], app)?);
    let gains: Vec<f64> = (0..SHOWN).filter_map(|app| of(1, app)).collect();
    let count = gains.iter().filter(|gain| **gain > 1.0).count() as f64;
    let parts: Vec<f64> = (0..SHOWN).filter_map(|app| of(2, app)).collect();
    let some = (!gains.is_empty()).then_some(count);
    let claims = vec![
        better.found(some, Kind::Computed, &bench.name),
        alike.found((!parts.is_empty()).then(|| mean(&parts)), Kind::Computed, &bench.name),
    ];
    let rows = (0..SHOWN).flat_map(|app| {
        let row = |at: usize| {
            Some((format!("{}, {}", bench.app(app), names[at]), ratio(&runs[at], app)?))
        };
        (0..names.len()).filter_map(row).collect::<Vec<_>>()
    });
    let charts = vec![bars("original / stored bytes of what left", "x", rows)];
    let notes = vec![
        "Bytes that went to the pool over bytes that they took there, by Clew's own LZO; what was compressed anew counts \
         again. Every page that came back was compared with what it had held."
            .to_string(),
    ];
    Ok(Found { claims, charts, notes, ..Found::default() })
}

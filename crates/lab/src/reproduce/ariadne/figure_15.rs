//! Figure 15 (6.3): what wrong chunk sizes cost.

use super::setting::{Order, Probe, ariadne, named, orders, over, traces};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "15",
    title: "sensitivity to chunk sizes",
    says: "chunks that do not suit the hotness of data make compression and decompression slower, or the ratio worse. \
           Very large ones for cold data improve the ratio at no price as long as hotness is told well.",
    run,
};

const SIZES: [(&str, &str); 3] =
    [("exclude-hot", "1K-2K-16K"), ("exclude-hot", "1K-2K-64K"), ("exclude-hot", "4K-4K-4K")];

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let schemes = |grain| SIZES.into_iter().map(|sizes| ariadne(sizes, grain)).collect();
    let ran = orders(desk, Probe::True, schemes)?;
    let name = traces(&ran);
    let of = |at: usize, of: fn(&Order, usize) -> Option<f64>| over(&ran, |order| of(order, at));
    let ratio = |order: &Order, at: usize| order.runs[at].arm.ratio;
    let back = |order: &Order, at: usize| Some(order.runs[at].arm.replay.as_ref()?.decompress_ms);
    let part = |wide: usize, of_it: fn(&Order, usize) -> Option<f64>| {
        Some(of(wide, of_it)? / of(0, of_it)?)
    };
    let claim = |what: &str, tolerance, here| {
        Claim::new("15", what, None, "x", tolerance).found(here, Kind::Modelled, &name)
    };
    let claims = vec![
        claim(
            "ratio, cold chunks of 64K / of 16K",
            Tolerance::Above { limit: 1.0 },
            part(1, ratio),
        )
        .noted("sizes by the table of costs"),
        claim(
            "decompression, cold chunks of 64K / of 16K",
            Tolerance::Below { limit: 1.1 },
            part(1, back),
        ),
        claim("ratio, 4K for all / 1K-2K-16K", Tolerance::Below { limit: 1.0 }, part(2, ratio)),
    ];
    let rows = SIZES.into_iter().enumerate();
    let rows = rows.filter_map(|(at, sizes)| Some((named(sizes), of(at, back)?)));
    let charts = vec![bars("decompression, all apps", "ms", rows)];
    Ok(Found { claims, charts, ..Found::default() })
}

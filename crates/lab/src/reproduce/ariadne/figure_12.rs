//! Figure 12 (6.2): latency of compression and of decompression, app by app.

use super::setting::{Order, Probe, ariadne, orders, over, plain, traces};
use crate::error::LabError;
use crate::replay::AppPages;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "12",
    title: "latency of compression and decompression",
    says: "with 1K-2K-16K, decompressing an app's data takes 60 % less than with ZRAM for YouTube and Twitter and 90 % \
           less for BangDream; compressing it with EHL 20 % less for YouTube and Twitter.",
    run,
};

fn change(order: &Order, app: u32, of: fn(&AppPages) -> f64) -> Option<f64> {
    let of = |at: usize| order.runs[at].watched.apps.get(&app).map(of);
    Some((of(1)? / of(0)? - 1.0) * 100.0)
}

/// The time of a page's way, out or back.
type Time = fn(&AppPages) -> f64;

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let schemes = |grain| Ok(vec![plain("zram")?, ariadne(("exclude-hot", "1K-2K-16K"), grain)?]);
    let mut found = Found::default();
    for probe in Probe::BOTH {
        let ran = orders(desk, probe, schemes)?;
        let name = traces(&ran);
        let says: [(u32, &str, &str, f64, Time); 5] = [
            (0, "YouTube", "decompression", -60.0, |pages| pages.back_ms),
            (1, "Twitter", "decompression", -60.0, |pages| pages.back_ms),
            (4, "BangDream", "decompression", -90.0, |pages| pages.back_ms),
            (0, "YouTube", "compression", -20.0, |pages| pages.out_ms),
            (1, "Twitter", "compression", -20.0, |pages| pages.out_ms),
        ];
        for (app, shown, work, paper, of) in says {
            let here = over(&ran, |order| change(order, app, of));
            let what = format!("{shown}: {work}, EHL-1K-2K-16K against ZRAM ({})", probe.said());
            let claim = Claim::new("12", what, paper, "%", Tolerance::CHANGE);
            found.claims.push(claim.found(here, Kind::Modelled, &name));
        }
    }
    found.notes.push(
        "Processor time of all of an app's pages in the whole trace; the paper compresses and decompresses the data \
         of each trace once."
            .to_string(),
    );
    Ok(found)
}

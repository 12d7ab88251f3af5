//! Figure 5 (3, insight 1): how alike the hot data of two relaunches is.

use super::setting::benches;
use super::table_1::statistics;
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "5",
    title: "hot data of successive relaunches",
    says: "of what a relaunch uses, the one before used 70 %; and of what that one used, 98 % is used again in the next \
           relaunch or after it.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = &benches(desk)?[0];
    let found = statistics(bench)?;
    let claim = |what: &str, paper: f64, off: f64, here: Option<f64>| {
        let claim = Claim::new("5", what, paper, "%", Tolerance::Within { off });
        claim
            .found(here.map(|part| part * 100.0), Kind::Computed, &bench.name)
            .noted("the generator was fitted to this")
    };
    let claims = vec![
        claim("hot data that the relaunch before used, too", 70.0, 5.0, found.similarity),
        claim("hot data that is used again", 98.0, 2.0, found.reuse),
    ];
    let rows = found
        .apps
        .iter()
        .filter_map(|app| Some((app.app.clone(), app.similarity? * 100.0)))
        .collect::<Vec<_>>();
    let charts = vec![bars("alike, by app", "%", rows)];
    Ok(Found { claims, charts, ..Found::default() })
}

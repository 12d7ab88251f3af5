//! Table 1 (2.1): anonymous memory of five apps after 10 s and after 5 minutes.

use clew_trace::statistics::{AppStatistics, Look, Statistics};

use super::setting::{SHOWN, benches};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Workbench};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "T1",
    title: "anonymous memory of apps",
    says: "YouTube, Twitter, Firefox, Google Earth and BangDream have 177, 182, 560, 273 and 326 MB after 10 s, and \
           358, 273, 716, 429 and 821 MB after 5 minutes.",
    run,
};

const SAYS: [(&str, f64, f64); 5] = [
    ("YouTube", 177.0, 358.0),
    ("Twitter", 182.0, 273.0),
    ("Firefox", 560.0, 716.0),
    ("GoogleEarth", 273.0, 429.0),
    ("BangDream", 326.0, 821.0),
];

/// What the trace itself says, without what pages hold.
pub fn statistics(bench: &Workbench) -> Result<Statistics, LabError> {
    let look = Look { pages: 0, ..Look::default() };
    let trace = &bench.input.trace;
    Statistics::of(trace, &look, &mut |_| {}).map_err(LabError::trace(trace.path()))
}

/// One of the apps that the paper shows.
pub fn app<'a>(statistics: &'a Statistics, name: &str) -> Option<&'a AppStatistics> {
    statistics.apps.iter().take(SHOWN as usize).find(|app| app.app == name)
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = &benches(desk)?[0];
    let statistics = statistics(bench)?;
    let mut claims = Vec::new();
    for (name, early, late) in SAYS {
        let app = app(&statistics, name);
        let sizes = [
            ("10 s", early, app.and_then(|app| app.early_mib)),
            ("5 minutes", late, app.map(|app| app.late_mib)),
        ];
        for (when, paper, here) in sizes {
            let tolerance = Tolerance::Factor { factor: 1.1 };
            let claim = Claim::new("T1", format!("{name} after {when}"), paper, "MB", tolerance);
            let here = here.map(|mib| mib * bench.grain);
            claims.push(
                claim
                    .found(here, Kind::Computed, &bench.name)
                    .noted("the generator was fitted to this"),
            );
        }
    }
    Ok(Found { claims, ..Found::default() })
}

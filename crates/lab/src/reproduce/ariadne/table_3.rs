//! Table 3 (3, insight 3): how likely it is that two, or four, pages that lie behind each other in the
//! zpool are used one after the other.

use super::setting::benches;
use super::table_1::{app, statistics};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "T3",
    title: "locality in the zpool",
    says: "the page behind one that a relaunch uses is used too with a probability of 0.86, 0.81, 0.69, 0.77 and 0.61 \
           (YouTube, Twitter, Firefox, Google Earth, BangDream); the three behind it with 0.72, 0.61, 0.43, 0.54 and \
           0.33.",
    run,
};

const SAYS: [(&str, f64, f64); 5] = [
    ("YouTube", 0.86, 0.72),
    ("Twitter", 0.81, 0.61),
    ("Firefox", 0.69, 0.43),
    ("GoogleEarth", 0.77, 0.54),
    ("BangDream", 0.61, 0.33),
];

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = &benches(desk)?[0];
    let statistics = statistics(bench)?;
    let mut claims = Vec::new();
    for (name, two, four) in SAYS {
        let app = app(&statistics, name);
        let both = [
            ("two", two, app.and_then(|app| app.next_1)),
            ("four", four, app.and_then(|app| app.next_3)),
        ];
        for (count, paper, here) in both {
            let what = format!("{name}: {count} consecutive pages");
            let claim = Claim::new("T3", what, paper, "part", Tolerance::Within { off: 0.06 });
            claims.push(
                claim
                    .found(here, Kind::Computed, &bench.name)
                    .noted("the generator was fitted to this"),
            );
        }
    }
    let notes = vec![
        "Consecutive: in the order of their last use, which is the order of sectors of a swap-out by LRU.".to_string(),
    ];
    Ok(Found { claims, notes, ..Found::default() })
}

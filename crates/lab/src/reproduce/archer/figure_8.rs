//! Figure 8 (5.2.2): photos and frames a second, with apps in the background.

use super::bursts::{GIVEN, Kind as Burst, rate, runs, scarce};
use super::setting::{P20, PIXEL_3, PIXEL_6, Phone, Reading, SCHEMES};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "8",
    title: "photos in a row, and frames of short videos",
    says: "on the Pixel 6, 24 photos are taken if no app is in the background and 13 when memory is exhausted; with \
           Archer 1.42 times as many as with ZRAM (P20 1.22, Pixel 3 1.34). Videos have 37.5 frames a second \
           with ZRAM and 31 % more with Archer (Pixel 3 36 %, P20 39 %).",
    run,
};

/// Archer over ZRAM: photos, frames.
const SAYS: [(Phone, [f64; 2]); 3] =
    [(PIXEL_6, [1.42, 1.31]), (P20, [1.22, 1.39]), (PIXEL_3, [1.34, 1.36])];
/// How many apps are in the background.
const APPS: [usize; 3] = [0, 4, 8];

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let mut found = Found::default();
    for (at, burst) in Burst::BOTH.into_iter().enumerate() {
        let figure = ["8a", "8b"][at];
        for (phone, says) in SAYS {
            let why = match phone.unknown() {
                _ if desk.has_given() => GIVEN.to_string(),
                Some(why) => why,
                None => continue,
            };
            let what = format!("{}: {}, archer over zram", phone.name, burst.said());
            let claim = Claim::new(figure, what, says[at], "x", Tolerance::RATIO);
            found.claims.push(claim.not_run(&why));
        }
        if !desk.has_given() {
            of_burst(desk, burst, figure, SAYS[0].1[at], &mut found)?;
        }
    }
    Ok(found)
}

fn of_burst(
    desk: &mut Desk<'_>,
    burst: Burst,
    figure: &str,
    says: f64,
    found: &mut Found,
) -> Result<(), LabError> {
    let scarce = scarce(desk, burst, 8)?;
    found.notes.push(format!("{}: {}", burst.said(), scarce.said));
    let first = Claim::new(
        figure,
        format!("{} with zram: nothing in the way / 8 apps in the background", burst.said()),
        burst.slowdown(),
        "x",
        Tolerance::Effect { neutral: 1.0, factor: 1.5 },
    );
    let first = first.found(scarce.reached, Kind::Modelled, &scarce.trace);
    found.claims.push(first.noted("the budget was chosen for this"));
    let plain = SCHEMES.map(|name| (name, &[][..]));
    for reading in Reading::BOTH {
        let ran = runs(desk, burst, 8, reading, scarce.budget_bytes, &plain)?;
        let rates: Vec<Option<f64>> = ran.iter().map(|run| rate(run, burst)).collect();
        for (name, paper, tolerance) in [
            ("archer", Some(says), Tolerance::RATIO),
            ("shsc", None, Tolerance::Above { limit: 1.0 }),
        ] {
            let place = SCHEMES.iter().position(|one| *one == name);
            let over = place.and_then(|place| Some(rates[place]? / rates[0]?));
            let what = format!("{}, {name} over zram ({})", burst.said(), reading.said());
            let claim = Claim::new(figure, what, paper, "x", tolerance);
            found.claims.push(claim.found(over, Kind::Modelled, &scarce.trace));
        }
        let rows = SCHEMES.iter().zip(&rates);
        let rows = rows.filter_map(|(name, rate)| Some((name.to_string(), (*rate)?)));
        let title = format!("8 apps in the background, {}", reading.said());
        found.charts.push(bars(&title, burst.said(), rows));
    }
    let mut rows = Vec::new();
    for apps in APPS {
        let both = [("zram", &[][..]), ("archer", &[][..])];
        let ran = runs(desk, burst, apps, Reading::Favour, scarce.budget_bytes, &both)?;
        for (run, (name, _)) in ran.iter().zip(both) {
            rows.extend(rate(run, burst).map(|rate| (format!("{apps} apps, {name}"), rate)));
        }
    }
    let title = "by apps in the background, in its favour";
    found.charts.push(bars(title, burst.said(), rows));
    Ok(())
}

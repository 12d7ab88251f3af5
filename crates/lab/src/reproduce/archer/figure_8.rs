//! Figure 8 (5.2.2): photos and frames a second, with apps in the background.

use super::bursts::{GIVEN, Kind as Burst, rate, runs, scarce};
use super::setting::{P20, PIXEL_3, PIXEL_6, Phone, SCHEMES, Speed};
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
        if desk.has_given() {
            for (phone, says) in SAYS {
                let what = format!("{}: {}, archer over zram", phone.name, burst.said());
                let claim = Claim::new(figure, what, says[at], "x", Tolerance::RATIO);
                found.claims.push(claim.not_run(GIVEN));
            }
            continue;
        }
        let scarce = scarce(desk, burst, 8)?;
        found.notes.push(format!("{}: {}", burst.said(), scarce.said));
        let first = Claim::new(
            figure,
            format!("Pixel 6: {} with zram, none in the background / 8 apps", burst.said()),
            scarce.target,
            "x",
            Tolerance::Effect { neutral: 1.0, factor: 1.5 },
        );
        let first = first.found(scarce.reached, Kind::Modelled, &scarce.trace);
        found.claims.push(first.noted("the budget was chosen for this"));
        let plain = SCHEMES.map(|name| (name, &[][..]));
        for speed in Speed::BOTH {
            for (phone, says) in SAYS {
                let ran = runs(desk, burst, 8, (phone, speed), scarce.budget_bytes, &plain)?;
                let rates: Vec<Option<f64>> = ran.iter().map(|run| rate(run, burst)).collect();
                let over = |name: &str| {
                    let place = SCHEMES.iter().position(|one| *one == name)?;
                    Some(rates[place]? / rates[0]?)
                };
                let what = |name: &str| {
                    format!("{}: {}, {name} over zram ({})", phone.name, burst.said(), speed.said())
                };
                let claim = Claim::new(figure, what("archer"), says[at], "x", Tolerance::RATIO);
                found.claims.push(claim.found(over("archer"), Kind::Modelled, &scarce.trace));
                if phone.name == PIXEL_6.name {
                    let faster = Tolerance::Above { limit: 1.0 };
                    let claim = Claim::new(figure, what("shsc"), None, "x", faster);
                    found.claims.push(claim.found(over("shsc"), Kind::Modelled, &scarce.trace));
                    let rows = SCHEMES.iter().zip(&rates);
                    let rows = rows.filter_map(|(name, rate)| Some((name.to_string(), (*rate)?)));
                    let title = format!("Pixel 6, 8 apps, {}", speed.said());
                    found.charts.push(bars(&title, burst.said(), rows));
                }
            }
        }
        let mut rows = Vec::new();
        for apps in APPS {
            let one = [("zram", &[][..]), ("archer", &[][..])];
            let ran =
                runs(desk, burst, apps, (PIXEL_6, Speed::Published), scarce.budget_bytes, &one)?;
            for (run, (name, _)) in ran.iter().zip(one) {
                rows.extend(rate(run, burst).map(|rate| (format!("{apps} apps, {name}"), rate)));
            }
        }
        let title =
            format!("{}, Pixel 6, by apps in the background, published speed", burst.said());
        found.charts.push(bars(&title, burst.said(), rows));
    }
    Ok(found)
}

//! Figures 1 (I) and 6 (IV-B): what apps wait for flash while something is swapped.

use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Tolerance};

pub const FIGURE_1: Figure = Figure {
    number: "1",
    title: "reads of apps while others are swapped to flash",
    says: "what an app reads from flash comes much later while something is written there in the background.",
    run: figure_1,
};

pub const FIGURE_6: Figure = Figure {
    number: "6",
    title: "reads of apps, beside LocalSwap and MobileSwap",
    says: "an app's read takes 469 us with MobileSwap, 1.1 times what it takes without swap, and 53.7 % less than with LocalSwap.",
    run: figure_6,
};

const WHY: &str = "the model's flash has no queue in which reads wait for writes, so it would say nothing of its own; clew bench donors measures it (app-read)";

fn figure_1(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let claim =
        Claim::new("1", "a read, LocalSwap / NoSwap", None, "x", Tolerance::Above { limit: 1.0 });
    Ok(Found { claims: vec![claim.not_run(WHY)], ..Found::default() })
}

fn figure_6(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let of = |what: &str, paper: f64, unit: &str, tolerance| {
        Claim::new("6", what, paper, unit, tolerance).not_run(WHY)
    };
    let claims = vec![
        of("a read, MobileSwap / NoSwap", 1.1, "x", Tolerance::RATIO),
        of("a read, MobileSwap against LocalSwap", -53.7, "%", Tolerance::CHANGE),
    ];
    Ok(Found { claims, ..Found::default() })
}

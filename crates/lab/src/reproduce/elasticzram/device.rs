//! Figure 3b (2.2.2): bandwidth of flash by how full it is.

use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Tolerance};

pub const FIGURE_3B: Figure = Figure {
    number: "3b",
    title: "bandwidth by how full the device is",
    says: "above 90 % in use, sequential reads are 43 % slower than at 20 %, and writes 52 %.",
    run,
};

fn run(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let why = "these two numbers are the device model itself: only a phone could say them again";
    let claim = |what: &str, paper: f64| {
        Claim::new(
            "3b",
            format!("sequential {what}, 90 % in use against 20 %"),
            paper,
            "%",
            Tolerance::CHANGE,
        )
        .not_run(why)
    };
    Ok(Found { claims: vec![claim("reads", -43.0), claim("writes", -52.0)], ..Found::default() })
}

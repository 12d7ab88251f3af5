//! Figure 10 (IV-C): what selective admission saves of compression.

use super::setting::{arms, compressed, compression_ms};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "10",
    title: "compressions, and their processor time",
    says: "with selective admission 76 % fewer pages are compressed than with all-page accommodation alone, and with the \
           time of computing entropy counted, 62 % less processor time is spent.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let arms = arms(desk, &["APA", "APA+SA"])?;
    let (trace, grain) = (&arms.bench.name, arms.bench.grain);
    let sum =
        |run: &_| compression_ms(run, grain).map(|(sampling, compressing)| sampling + compressing);
    let change = |part: Option<f64>| part.map(|part| (part - 1.0) * 100.0);
    let pages = Claim::new("10", "pages compressed", -76.0, "%", Tolerance::CHANGE);
    let time = Claim::new("10", "processor time, entropy included", -62.0, "%", Tolerance::CHANGE);
    let claims = vec![
        pages.found(change(arms.part("APA+SA", "APA", compressed)), Kind::Modelled, trace),
        time.found(change(arms.part("APA+SA", "APA", sum)), Kind::Modelled, trace),
    ];
    let charts = vec![
        bars("pages compressed", "pages", arms.each(compressed)),
        bars(
            "processor time of computing entropy",
            "ms",
            arms.each(|run| compression_ms(run, grain).map(|(sampling, _)| sampling)),
        ),
        bars(
            "processor time of compressing",
            "ms",
            arms.each(|run| compression_ms(run, grain).map(|(_, compressing)| compressing)),
        ),
    ];
    Ok(Found { claims, charts, ..Found::default() })
}

//! Figure 1 (2.2.2): launches, photos in a row and frames of short videos when memory is abundant, regular
//! and scarce, under page-grained compression.

use super::bursts::{self, Kind as Burst};
use super::setting::{
    Reading, SCHEMES, SLOWDOWN, TESTED, launching, pressure, pressure_in_region, settings,
};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::launches::{Launch, slowdown};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "1",
    title: "response under pressure, with page-grained compression",
    says: "when twenty apps have filled memory, launches take 68.7 % longer than in regular use; 10 photos a \
           second can be taken in place of 16; videos have 27 frames a second in place of 50.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = launching(desk)?;
    let pressure = pressure(desk, &bench)?;
    let scarce = settings(&bench, SCHEMES[0], Reading::Letter, pressure.budget_bytes, &[])?;
    let regular = bench.input.footprint_bytes() * 5 / 4;
    let regular = settings(&bench, SCHEMES[0], Reading::Letter, regular, &[])?;
    let runs = desk.runs(&bench, &[scarce, regular])?;
    let times = |kind| {
        let of = |at: usize| slowdown(&runs[at], kind, TESTED);
        Some(of(0)? / of(1)?)
    };
    let region = pressure_in_region(desk, &bench)?;
    let mut claims = vec![
        region
            .claim(
                "1a",
                "hot launches, scarce / regular, in the published region",
                SLOWDOWN,
                &bench.name,
            )
            .noted("as soon as the region is full, apps are ended, and those that are left fit"),
        pressure.claim(
            "1a",
            "hot launches, scarce / regular, no limit to the region",
            SLOWDOWN,
            &bench.name,
        ),
        Claim::new("1a", "cold launches, scarce / regular", SLOWDOWN, "x", Tolerance::RATIO)
            .found(times(Launch::Cold), Kind::Modelled, &bench.name)
            .noted("in the budget that was chosen for hot launches"),
    ];
    let mut rows = Vec::new();
    for (figure, burst, slow) in
        [("1b", Burst::Photos, 16.0 / 10.0), ("1c", Burst::Frames, 50.0 / 27.0)]
    {
        let claim = Claim::new(
            figure,
            format!("{}, abundant / scarce", burst.said()),
            slow,
            "x",
            Tolerance::RATIO,
        );
        if desk.has_given() {
            claims.push(claim.not_run(bursts::GIVEN));
            continue;
        }
        let scarce = bursts::scarce(desk, burst, 8)?;
        let claim = claim.found(scarce.reached, Kind::Modelled, &scarce.trace);
        claims.push(claim.noted("the budget was chosen for this"));
        rows.extend(scarce.reached.map(|slow| (burst.said().to_string(), slow)));
    }
    rows.extend(times(Launch::Hot).map(|slow| ("hot launches".to_string(), slow)));
    rows.extend(times(Launch::Cold).map(|slow| ("cold launches".to_string(), slow)));
    Ok(Found {
        claims,
        charts: vec![bars("how much slower when memory is scarce", "x", rows)],
        notes: vec![
            format!("No limit to the region: {}.", pressure.said()),
            format!("In the published region: {}.", region.said()),
            "All that follows is compared in the budget that was chosen here, without a limit to the region: with the \
             published one apps are ended as soon as it is full, and what is timed is as slow as those that are left."
                .to_string(),
            "With the Pixel 6's speed and region; the paper has a P20 here.".to_string(),
        ],
        ..Found::default()
    })
}

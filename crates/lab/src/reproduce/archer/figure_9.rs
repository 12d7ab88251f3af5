//! Figure 9 (5.2.3): the worst of all rounds.

use std::collections::BTreeMap;

use super::bursts::{self, Kind as Burst};
use super::setting::{Reading, TESTED, launches, launching, pressure};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::launches::{Launch, ratio, worst_ms};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "9",
    title: "the worst of ten rounds",
    says: "on the Pixel 6, Archer makes the longest cold launch of the eight apps 44.9 % shorter than ZRAM's and the \
           longest hot one 60.3 %; the slowest photos come 1.6 times as fast and the slowest frames 1.3 times.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = launching(desk)?;
    let budget = pressure(desk, &bench)?.budget_bytes;
    let mut claims = Vec::new();
    for reading in Reading::BOTH {
        let runs = launches(desk, &bench, reading, budget)?;
        let (zram, archer) = (&runs[0], &runs[3]);
        for (kind, named, paper) in [(Launch::Cold, "cold", -44.9), (Launch::Hot, "hot", -60.3)] {
            let worst = |run| -> BTreeMap<u32, f64> { worst_ms(run, kind, TESTED) };
            let change = ratio(&worst(archer), &worst(zram)).map(|part| (part - 1.0) * 100.0);
            let what = format!("longest {named} launch, archer against zram ({})", reading.said());
            let claim = Claim::new("9a", what, paper, "%", Tolerance::CHANGE);
            claims.push(claim.found(change, Kind::Modelled, &bench.name));
        }
        for (burst, paper) in [(Burst::Photos, 1.6), (Burst::Frames, 1.3)] {
            let what = format!("worst {}, archer over zram ({})", burst.said(), reading.said());
            let claim = Claim::new("9b", what, paper, "x", Tolerance::RATIO);
            if desk.has_given() {
                claims.push(claim.not_run(bursts::GIVEN));
                continue;
            }
            let scarce = bursts::scarce(desk, burst, 8)?;
            let both = [("zram", &[][..]), ("archer", &[][..])];
            let ran = bursts::runs(desk, burst, 8, reading, scarce.budget_bytes, &both)?;
            let worst: Vec<Option<f64>> = ran.iter().map(|run| bursts::worst(run, burst)).collect();
            let over = worst[1].zip(worst[0]).map(|(archer, zram)| archer / zram);
            claims.push(claim.found(over, Kind::Modelled, &scarce.trace));
        }
    }
    let notes = vec![format!(
        "The worst of {} rounds of launches and of {} bursts; the paper has ten of each.",
        clew_trace::generate::profile::ARCHER.relaunches,
        clew_trace::generate::profile::ARCHER_VIDEO.relaunches
    )];
    Ok(Found { claims, notes, ..Found::default() })
}

//! Table 3 (IV-C): zpages for each MiB of the pool.

use super::setting::{ARMS, arms, marks};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::launches::mean;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "T3",
    title: "zpages a MiB",
    says: "a MiB of the pool holds 684 zpages with zswap, 698 with SA+CA, 397 with APA, 469 with APA+SA, 504 with APA+CA and \
           534 with ezswap: 35 % more than APA. (\"35 % in comparison to the original zswap\", in the conclusion, contradicts \
           the table.)",
    run,
};

const SAYS: [(&str, f64); 6] = [
    ("zswap", 684.0),
    ("SA+CA", 698.0),
    ("APA", 397.0),
    ("APA+SA", 469.0),
    ("APA+CA", 504.0),
    ("ezswap", 534.0),
];

/// Zpages for each MiB that they take, mean of the moments at which an app comes to the front.
fn density(run: &Run) -> Option<f64> {
    const MIB: f64 = (1u64 << 20) as f64;
    let known = marks(run).iter().filter(|mark| mark.pool_bytes > 0);
    let all: Vec<f64> =
        known.map(|mark| mark.pool_pages as f64 / (mark.pool_bytes as f64 / MIB)).collect();
    (!all.is_empty()).then(|| mean(&all))
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let arms = arms(desk, &ARMS.map(|(shown, _)| shown))?;
    let trace = &arms.bench.name;
    let mut claims = Vec::new();
    for (arm, paper) in SAYS {
        let claim =
            Claim::new("T3", arm, paper, "zpages a MiB", Tolerance::Factor { factor: 1.25 });
        claims.push(claim.found(arms.of(arm, density), Kind::Modelled, trace));
    }
    for (arm, paper) in SAYS.into_iter().filter(|(arm, _)| *arm != "APA") {
        let claim = Claim::new("T3", format!("{arm} / APA"), paper / 397.0, "x", Tolerance::RATIO);
        claims.push(claim.found(arms.part(arm, "APA", density), Kind::Modelled, trace));
    }
    let charts = vec![bars("zpages a MiB", "zpages", arms.each(density))];
    let notes = vec![
        "Of the memory that the pool uses, with what stays there of pages that are on flash. Pages of one repeated word are \
         zpages that take no part of a frame."
            .to_string(),
    ];
    Ok(Found { claims, charts, notes, ..Found::default() })
}

//! Figure 8 (IV-D): apps that live, by number and size of the donors, and while these are lost one after the other.

use super::setting::{AREA_MIB, How, OURS, bench};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "8",
    title: "number and size of donors",
    says: "two donors of 1 GB let as many apps live as one of 2 GB or four of 512 MB; while they are lost one after the other, \
           fewer and fewer do, and none crashes.",
    run,
};

/// The round in whose middle the first donor is lost; the next one a round later.
const FIRST_LOST: usize = 5;

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = bench(desk)?;
    let trace = bench.bench.name.clone();
    let of = |count: usize| {
        let donors = vec![(AREA_MIB / count as f64, None); count];
        (OURS, How { donors, ..How::default() })
    };
    let runs = bench.runs(desk, &[of(1), of(2), of(4)])?;
    let cached: Vec<f64> = runs.iter().map(|run| bench.cached(run)).collect();
    let alike = Tolerance::Factor { factor: 1.1 };
    let mut claims: Vec<Claim> = [(1, "2 donors of 1 GB"), (2, "4 donors of 512 MB")]
        .map(|(at, what)| {
            let claim =
                Claim::new("8", format!("apps cached, {what} / 1 of 2 GB"), 1.0, "x", alike);
            claim.found(Some(cached[at] / cached[0]), Kind::Modelled, &trace)
        })
        .into();
    let donors = (0..4).map(|donor| (AREA_MIB / 4.0, Some(FIRST_LOST + donor))).collect();
    let run = bench.runs(desk, &[(OURS, How { donors, ..How::default() })])?;
    let mut rows = Vec::new();
    for lost in 0..5 {
        // From the middle of one round to that of the next.
        let marks = bench.after(&run[0], FIRST_LOST + lost - 1);
        let part = &marks[..marks.len().min(bench.apps)];
        let mean = part.iter().map(|mark| mark.cached_apps as f64).sum::<f64>() / part.len() as f64;
        if mean.is_finite() {
            rows.push((format!("{lost} of 4 donors lost"), mean));
        }
    }
    let fewer = match rows.as_slice() {
        [(_, first), .., (_, last)] if rows.len() == 5 => Some(last / first),
        _ => None,
    };
    let below = Tolerance::Below { limit: 0.9 };
    claims.push(Claim::new("8", "apps cached, all donors lost / none", None, "x", below).found(
        fewer,
        Kind::Modelled,
        &trace,
    ));
    let crashes = run[0].watched.marks.last().map(|mark| mark.crashes as f64);
    claims.push(
        Claim::new("8", "apps that crash", 0.0, "apps", Tolerance::Within { off: 0.0 }).found(
            crashes,
            Kind::Modelled,
            &trace,
        ),
    );
    let charts = vec![bars("apps that live while donors are lost", "apps", rows)];
    Ok(Found { claims, charts, ..Found::default() })
}

//! In the text (IV-C): the network is disconnected, and then every app is wanted.

use super::setting::{AREA_MIB, Bench, How, OURS, WITHOUT_SWAP, bench};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const EXPERIMENT: Figure = Figure {
    number: "text",
    title: "the network is disconnected",
    says: "six apps crash with RemoteSwap, four with CloudSwap, none with MobileSwap, of which six can be brought back warm \
           then: about as many as live without any swap.",
    run,
};

/// The round in whose middle all donors are lost, the last one but one.
const LOST: usize = 8;

/// Apps that crash when they are wanted after that, once each.
fn crashes(run: &Run) -> Option<f64> {
    run.watched.marks.last().map(|mark| mark.crashes as f64)
}

/// Apps that live right after it.
fn warm(bench: &Bench, run: &Run) -> Option<f64> {
    bench.after(run, LOST).first().map(|mark| mark.cached_apps as f64)
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = bench(desk)?;
    let trace = bench.bench.name.clone();
    let lost = || How { donors: vec![(AREA_MIB, Some(LOST))], ..How::default() };
    let runs = bench.runs(desk, &["remoteswap", "cloudswap", OURS].map(|name| (name, lost())))?;
    let few = Tolerance::Factor { factor: 1.5 };
    let mut claims = Vec::new();
    for (shown, at, paper, tolerance) in [
        ("RemoteSwap", 0, 6.0, few),
        ("CloudSwap", 1, 4.0, few),
        ("MobileSwap", 2, 0.0, Tolerance::Within { off: 0.0 }),
    ] {
        let claim =
            Claim::new("text", format!("apps that crash, {shown}"), paper, "apps", tolerance);
        let claim = claim.found(crashes(&runs[at]), Kind::Modelled, &trace);
        claims.push(match at {
            2 => claim,
            _ => claim.noted(
                "without its swap area memory is so short that apps are ended before they are wanted, and so cannot crash",
            ),
        });
    }
    claims.push(
        Claim::new("text", "apps that live then, MobileSwap", 6.0, "apps", few)
            .found(warm(&bench, &runs[2]), Kind::Modelled, &trace)
            .noted(&format!(
                "right after it; {WITHOUT_SWAP} live without any swap. By then nearly every app had pages at a donor"
            )),
    );
    Ok(Found { claims, ..Found::default() })
}

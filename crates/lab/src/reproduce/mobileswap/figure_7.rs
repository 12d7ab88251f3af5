//! Figure 7 (IV-C): apps that live, and throughput.

use super::figure_4::in_turn;
use super::setting::{ARMS, How, NUMBERS, OURS, WITHOUT_SWAP, bench, client, link};
use crate::costs::LinkCost;
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "7",
    title: "cached apps, and throughput of swapping",
    says: "14 apps are cached with MobileSwap, 1.4 times as many as with RemoteSwap, 1.17 times as many as with CloudSwap and \
           twice as many as without swap. It swaps 828 Mbit/s: 2.3 times RemoteSwap, 1.72 times CloudSwap, and more than \
           LocalSwap's 781.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = bench(desk)?;
    let trace = bench.bench.name.clone();
    let arms = ARMS.map(|(_, name)| (name, How::default()));
    let runs = bench.runs(desk, &arms)?;
    let cached: Vec<f64> = runs.iter().map(|run| bench.cached(run)).collect();
    let of = |scheme: &str| {
        let at = ARMS.iter().position(|(_, name)| *name == scheme);
        at.map_or(f64::NAN, |at| cached[at])
    };
    let seven = Tolerance::Factor { factor: 1.15 };
    let mut claims = vec![
        Claim::new("7a", "apps cached without swap", WITHOUT_SWAP, "apps", seven)
            .found(Some(of("nosw")), Kind::Modelled, &trace)
            .noted(&format!(
                "the memory was chosen for this: {:.0} % of what all pages take",
                bench.pressure.share * 100.0
            )),
        Claim::new(
            "7a",
            "apps cached with MobileSwap",
            14.0,
            "apps",
            Tolerance::Factor { factor: 1.25 },
        )
        .found(Some(of(OURS)), Kind::Modelled, &trace),
    ];
    for (shown, name, paper) in [
        ("NoSwap", "nosw", 2.0),
        ("RemoteSwap", "remoteswap", 1.4),
        ("CloudSwap", "cloudswap", 1.17),
    ] {
        let what = format!("apps cached, MobileSwap / {shown}");
        let claim = Claim::new("7a", what, paper, "x", Tolerance::RATIO);
        let claim = claim.found(Some(of(OURS) / of(name)), Kind::Modelled, &trace);
        claims.push(match name {
            "nosw" => claim,
            _ => claim.noted(
                "in the paper the system ends apps while reclaim is slower than what wants memory; here who wants memory \
                 waits for reclaim",
            ),
        });
    }
    claims.extend(throughput()?);
    let rows = ARMS.iter().zip(&cached).map(|((shown, _), apps)| (shown.to_string(), *apps));
    let charts = vec![bars("apps that live", "apps", rows)];
    Ok(Found { claims, charts, notes: vec![bench.pressure.said()], ..Found::default() })
}

/// By the model of the link alone.
fn throughput() -> Result<Vec<Claim>, LabError> {
    const MBIT: f64 = 1e6;
    let link = link()?;
    let ours = link.bits_per_second() / MBIT;
    let remote = LinkCost { chunk_bytes: 4096, ..link }.bits_per_second() / MBIT;
    let local = client()?.need("local_swap_bits_per_second", "LocalSwap's")? / MBIT;
    // Half of it goes to each place, one after the other.
    let cloud = 2.0 * in_turn(local, remote);
    let claim = |what: &str, paper: f64, unit: &str, tolerance, here: f64| {
        let claim = Claim::new("7b", what, paper, unit, tolerance);
        claim.found(Some(here), Kind::Computed, NUMBERS)
    };
    Ok(vec![
        claim("throughput of MobileSwap", 828.0, "Mbit/s", Tolerance::Factor { factor: 1.1 }, ours)
            .noted("what a chunk costs follows from RemoteSwap's 355 Mbit/s"),
        claim("MobileSwap / RemoteSwap", 2.3, "x", Tolerance::RATIO, ours / remote),
        claim("MobileSwap / CloudSwap", 1.72, "x", Tolerance::RATIO, ours / cloud)
            .noted("CloudSwap as half to flash and half page by page over the network, in turn"),
        claim("MobileSwap / LocalSwap", 828.0 / 781.0, "x", Tolerance::RATIO, ours / local),
    ])
}

//! Figure 8 (IV-B): launches, and what is read and written, by which parts of ezswap are there.

use super::setting::{ARMS, arms, launch_ms, metric, read, written};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "8",
    title: "launches, reads and writes",
    says: "against swapping to flash alone, zswap writes 66 % less, but reads 31 % more and launches 6 % slower, as its pool \
           takes memory. All-page accommodation reads 47 % less than zswap; selective admission takes 11 % off its reads and \
           22 % off its launches, compressibility-aware replacement 19 % off its writes and 8 % off its launches. All together \
           reads 55 % less than zswap and launches 22 % faster. Without pages of files, selective admission lets 110,000 of \
           340,000 pages in.",
    run,
};

/// Launch, read and written of each arm as parts of those of swap, chained from what the text says.
const SAYS: [(&str, [f64; 3]); 5] = [
    ("zswap", [1.06, 1.31, 0.34]),
    ("APA", [1.16, 0.69, 0.40]),
    ("APA+SA", [0.90, 0.61, 0.42]),
    ("APA+CA", [1.06, 0.72, 0.33]),
    ("ezswap", [0.83, 0.59, 0.38]),
];

/// What a run says.
type Of = fn(&Run) -> Option<f64>;

/// What is compared.
const OF: [(&str, Of); 3] =
    [("launch", launch_ms), ("read from flash", read), ("written to flash", written)];

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let arms = arms(desk, &ARMS.map(|(shown, _)| shown))?;
    let trace = &arms.bench.name;
    let mut claims = Vec::new();
    for (arm, says) in SAYS {
        for ((what, of), paper) in OF.into_iter().zip(says) {
            let claim =
                Claim::new("8", format!("{what}, {arm} / swap"), paper, "x", Tolerance::RATIO);
            claims.push(claim.found(arms.part(arm, "swap", of), Kind::Modelled, trace));
        }
    }
    let change = |of: Of, arm, peer| Some((arms.part(arm, peer, of)? - 1.0) * 100.0);
    for (what, of, arm, peer, paper) in [
        ("read from flash", OF[1].1, "ezswap", "zswap", -55.0),
        ("launch", OF[0].1, "ezswap", "zswap", -22.0),
        ("launch", OF[0].1, "APA+SA", "APA", -22.0),
        ("read from flash", OF[1].1, "APA+SA", "APA", -11.0),
        ("written to flash", OF[2].1, "APA+CA", "APA", -19.0),
        ("launch", OF[0].1, "APA+CA", "APA", -8.0),
    ] {
        let what = format!("{what}, {arm} against {peer}");
        let claim = Claim::new("8", what, paper, "%", Tolerance::CHANGE);
        claims.push(claim.found(change(of, arm, peer), Kind::Modelled, trace));
    }
    let admitted = arms.of("SA+CA", |run| {
        let yes = metric(run, "selective_admitted_pages")?;
        Some(yes / (yes + metric(run, "selective_rejected_pages")?) * 100.0)
    });
    let claim = Claim::new(
        "8",
        "pages that SA+CA lets in",
        110.0 / 340.0 * 100.0,
        "%",
        Tolerance::Factor { factor: 1.5 },
    );
    claims.push(claim.found(admitted, Kind::Modelled, trace).noted("from the beginning"));
    let charts = OF.into_iter().map(|(what, of)| {
        let swap = arms.of("swap", of).unwrap_or(f64::NAN);
        let rows: Vec<(String, f64)> =
            arms.each(of).map(|(arm, value)| (arm, value / swap)).collect();
        bars(&format!("{what}, as a part of swap's"), "x", rows)
    });
    let charts = charts.collect();
    let total =
        |of: Of| arms.of("swap", of).map_or(f64::NAN, |bytes: f64| bytes * arms.bench.grain / 1e6);
    let notes = vec![
        format!(
            "swap alone reads {:.0} MB and writes {:.0} MB here, in all that its pages stand for; the paper has 6,900 and 375.",
            total(read),
            total(written)
        ),
        "The figures of the arms are chained from the changes that the text tells: the chart itself has no numbers. What \
         it says of SA+CA is a direction only."
            .to_string(),
    ];
    Ok(Found { claims, charts, notes, ..Found::default() })
}

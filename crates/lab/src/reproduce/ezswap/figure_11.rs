//! Figure 11 (IV-C): of what kinds the frames are that leave the pool.

use clew_report::Table;

use super::setting::{Arms, arms, metric};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "11",
    title: "frames that leave the pool, by what they hold",
    says: "with compressibility-aware replacement more of the frames that leave hold one page of a file and nothing else, and \
           fewer are of any other kind; with selective admission fewer have one zpage and more have three.",
    run,
};

/// Zpages and, of these, pages of files.
const KINDS: [(&str, &str); 9] = [
    ("1/0", "evicted_frames_1_0"),
    ("1/1", "evicted_frames_1_1"),
    ("2/0", "evicted_frames_2_0"),
    ("2/1", "evicted_frames_2_1"),
    ("2/2", "evicted_frames_2_2"),
    ("3/0", "evicted_frames_3_0"),
    ("3/1", "evicted_frames_3_1"),
    ("3/2", "evicted_frames_3_2"),
    ("3/3", "evicted_frames_3_3"),
];

/// Of all frames that left, those whose kind begins so, per cent.
fn share(arms: &Arms, arm: &str, kind: &str) -> Option<f64> {
    arms.of(arm, |run| {
        let sum = |of: &str| {
            let kinds = KINDS.iter().filter(|(shown, _)| shown.starts_with(of));
            kinds.map(|(_, name)| metric(run, name)).sum::<Option<f64>>()
        };
        Some(sum(kind)? / sum("")? * 100.0)
    })
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    const NAMES: [&str; 4] = ["APA", "APA+SA", "APA+CA", "ezswap"];
    let arms = arms(desk, &NAMES)?;
    let claim = |kind: &str, arm: &str, peer: &str, tolerance| {
        let what = format!("share of {kind}, {arm} - {peer}");
        let here = share(&arms, arm, kind.trim_end_matches('*')).zip(share(
            &arms,
            peer,
            kind.trim_end_matches('*'),
        ));
        Claim::new("11", what, None, "points", tolerance)
            .found(here.map(|(arm, peer)| arm - peer), Kind::Modelled, &arms.bench.name)
            .noted("from the beginning")
    };
    let (more, less) = (Tolerance::Above { limit: 0.0 }, Tolerance::Below { limit: 0.0 });
    let claims = vec![
        claim("1/1", "APA+CA", "APA", more),
        claim("1/1", "ezswap", "APA+SA", more),
        claim("1/*", "APA+SA", "APA", less),
        claim("1/*", "ezswap", "APA+CA", less),
        claim("3/*", "APA+SA", "APA", more),
        claim("3/*", "ezswap", "APA+CA", more),
    ];
    let cell = |arm: &str, kind: &str| share(&arms, arm, kind).map(|share| format!("{share:.1} %"));
    let table = Table::of(
        "frames that left, by zpages and, of these, pages of files",
        1,
        KINDS.map(|(shown, _)| shown),
        &[
            ("kind", &|kind: &&str| Some(kind.to_string())),
            (NAMES[0], &|kind| cell(NAMES[0], kind)),
            (NAMES[1], &|kind| cell(NAMES[1], kind)),
            (NAMES[2], &|kind| cell(NAMES[2], kind)),
            (NAMES[3], &|kind| cell(NAMES[3], kind)),
        ],
    );
    Ok(Found { claims, tables: vec![table], ..Found::default() })
}

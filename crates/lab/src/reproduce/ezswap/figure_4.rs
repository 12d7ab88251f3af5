//! Figure 4 (III-A): pages of files and anonymous pages that are evicted from DRAM.

use super::setting::{arms, counted, marks};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "4",
    title: "what is evicted from DRAM",
    says: "while fourteen apps are used in turn, 20.3 times as many clean pages of files are evicted as anonymous ones.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let arms = arms(desk, &["swap"])?;
    let Some(run) = arms.run("swap") else { return Ok(Found::default()) };
    let (anonymous, files) =
        (counted(run, |mark| mark.out_pages), counted(run, |mark| mark.out_file_pages));
    let claim = Claim::new(
        "4",
        "pages of files for each anonymous one",
        20.3,
        "x",
        Tolerance::Factor { factor: 1.5 },
    );
    let here = files.zip(anonymous).map(|(files, anonymous)| files / anonymous);
    let claim = claim.found(here, Kind::Modelled, &arms.bench.name).noted(
        "the sizes of the generated apps were chosen so that this comes out of DRAM with two plain LRU lists",
    );
    let by_app = |of: fn(&crate::replay::Mark) -> u64| {
        let mut sums = std::collections::BTreeMap::<u32, f64>::new();
        for pair in marks(run).windows(2) {
            if let Some(app) = pair[0].app {
                *sums.entry(app).or_default() += (of(&pair[1]) - of(&pair[0])) as f64;
            }
        }
        sums.into_iter().map(|(app, pages)| (arms.bench.app(app), pages)).collect::<Vec<_>>()
    };
    let charts = vec![
        bars("pages of files, evicted while an app is used", "pages", by_app(|m| m.out_file_pages)),
        bars("anonymous pages, evicted while an app is used", "pages", by_app(|m| m.out_pages)),
    ];
    Ok(Found { claims: vec![claim], charts, ..Found::default() })
}

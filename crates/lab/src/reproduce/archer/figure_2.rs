//! Figure 2 (2.2.3, 2.3): is it the reclaim of file pages or the compression of anonymous ones that makes
//! launches slow, and how busy are processors meanwhile?

use super::setting::{Reading, SCHEMES, TESTED, launching, pressure, settings};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::launches::{Launch, slowdown};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "2",
    title: "what makes launches slow",
    says: "cold launches in scarce memory take 72.1 % longer with both kinds of reclaim, 26.2 % with that of file \
           pages alone and 58.7 % with compression alone; the processors are no more than half busy meanwhile, \
           as pages are compressed one by one with other work in between.",
    run,
};

const NO_FILES: &str = "no scheme here takes pages of files out";
const NO_CPU: &str = "how busy a program keeps a processor is in no trace";

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = launching(desk)?;
    let budget = pressure(desk, &bench)?.budget_bytes;
    let only = settings(&bench, SCHEMES[0], Reading::Letter, budget, &[])?;
    let runs = desk.runs(&bench, &[only])?;
    let more = slowdown(&runs[0], Launch::Cold, TESTED).map(|slow| (slow - 1.0) * 100.0);
    let longer = |what: &str, paper: f64| {
        Claim::new("2a", format!("cold launches, {what}: longer by"), paper, "%", Tolerance::CHANGE)
    };
    let busy = |what: &str, paper: f64| {
        let tolerance = Tolerance::Within { off: 10.0 };
        Claim::new("2b", format!("processors busy in launches, {what}"), paper, "%", tolerance)
            .not_run(NO_CPU)
    };
    let claims = vec![
        longer("compression alone", 58.7).found(more, Kind::Modelled, &bench.name),
        longer("files alone", 26.2).not_run(NO_FILES),
        longer("both", 72.1).not_run(NO_FILES),
        busy("no reclaim", 46.9),
        busy("files alone", 51.6),
        busy("compression alone", 53.8),
    ];
    let notes = vec![
        "In the budget in which hot launches are as slow as published (figure 1). The paper has a P20 here."
            .to_string(),
    ];
    Ok(Found { claims, notes, ..Found::default() })
}

//! Figure 14 (6.2): coverage and accuracy of the hot list.

use super::setting::{Order, Probe, ariadne, orders, over, traces};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "14",
    title: "what the hot list knows",
    says: "of what a relaunch uses, about 70 % is on the hot list; of what is on it, about 92 % is used in the relaunch or \
           after it.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let schemes = |grain| Ok(vec![ariadne(("exclude-hot", "1K-2K-16K"), grain)?]);
    let ran = orders(desk, Probe::True, schemes)?;
    let name = traces(&ran);
    let sets = |order: &Order| Some(order.runs[0].arm.replay.as_ref()?.hot_sets);
    let claim = |what: &str, paper: f64, here: Option<f64>| {
        let claim = Claim::new("14", what, paper, "%", Tolerance::Within { off: 6.0 });
        claim.found(here.map(|part| part * 100.0), Kind::Modelled, &name)
    };
    let claims = vec![
        claim("coverage", 70.0, over(&ran, |order| sets(order)?.coverage)),
        claim("accuracy", 92.0, over(&ran, |order| sets(order)?.accuracy)),
    ];
    let notes = vec![
        "With every use told, the hot list is what the last relaunch used: coverage is then the trace's similarity, to \
         which the generator was fitted, and accuracy its reuse."
            .to_string(),
    ];
    Ok(Found { claims, notes, ..Found::default() })
}

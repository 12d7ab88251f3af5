//! Figure 3 (3): how pages are associated. And what the text says of it: associations are within apps
//! (4.3.2), three quarters of the pages have none, and they last (5.3).

use clew_trace::statistics::{Look, Statistics};

use clew_trace::generate::Workload;
use clew_trace::generate::profile::MOBILE_2025;

use crate::error::LabError;
use crate::reproduce::desk::{Desk, Workbench};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "3",
    title: "how pages are associated",
    says: "of all pairs of pages, 26.3 % are used together more than 8 times in 10, and 71.1 % less than 2 times \
           in 10: there is little in between. 93.1 % of the associated pages are so with a page of their own app, \
           75.3 % of all pages are associated with none, and two hours later 96.3 % of the associated ones still \
           are.",
    run,
};

/// Association of the trace.
pub fn association(bench: &Workbench) -> Result<clew_trace::statistics::Association, LabError> {
    // Contents do not matter.
    let look = Look { pages: 0, ..Look::default() };
    let trace = &bench.input.trace;
    let failed = LabError::trace(trace.path());
    Ok(Statistics::of(trace, &look, &mut |_| {}).map_err(failed)?.association)
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    // The workload whose associations were fitted, at the size at which they were.
    let scale = if desk.quick { 0.02 } else { 0.2 };
    let workload = Workload { scale, contents: false, ..Workload::new(&MOBILE_2025, 1) };
    let bench = desk.usual(&workload)?;
    let found = association(&bench)?;
    let is_generated = bench.input.trace.header().provenance.notes.contains_key("profile");
    let built = is_generated.then_some("the generator was fitted to this");
    let claim = |figure: &str, what: &str, paper: f64, off: f64, share: f64| {
        let claim = Claim::new(figure, what, paper, "%", Tolerance::Within { off });
        if found.pairs == 0 {
            return claim.not_run(
                "no page in the trace is used sixteen times and, close to it, another three times",
            );
        }
        let claim = claim.found(Some(share * 100.0), Kind::Computed, &bench.name);
        built.into_iter().fold(claim, Claim::noted)
    };
    let claims = vec![
        claim("3", "pairs of confidence above 80 %", 26.3, 8.0, found.strong),
        claim("3", "pairs of confidence below 20 %", 71.1, 10.0, found.weak),
        claim("3", "pairs in between", 2.6, 5.0, 1.0 - found.strong - found.weak),
        claim("text", "associated pages that are so within their app", 93.1, 5.0, found.within_app),
        claim("text", "pages without association", 75.3, 10.0, 1.0 - found.associated),
        claim("text", "associated pages that still are, later", 96.3, 5.0, found.stable)
            .noted("in the second half of the trace, beside the first"),
        Claim::new("3", "pages used in launches alone", 36.2, "%", Tolerance::Within { off: 10.0 })
            .not_run("the generator has no pages that only a launch uses"),
        Claim::new(
            "text",
            "pages of the camera used by nothing else",
            92.1,
            "%",
            Tolerance::Within { off: 5.0 },
        )
        .not_run("the generator has no memory that apps share with a camera"),
    ];
    let rows = [
        ("above 80 %".to_string(), found.strong * 100.0),
        ("in between".to_string(), (1.0 - found.strong - found.weak) * 100.0),
        ("below 20 %".to_string(), found.weak * 100.0),
    ];
    Ok(Found {
        claims,
        charts: vec![bars(&format!("{} pairs by confidence", found.pairs), "%", rows)],
        notes: vec![
            "A pair: used within 32 accesses of each other three times or more, the first page sixteen times or \
             more. The paper names no such threshold."
                .to_string(),
        ],
        ..Found::default()
    })
}

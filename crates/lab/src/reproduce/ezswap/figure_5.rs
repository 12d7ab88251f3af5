//! Figure 5 (III-B): the entropy of the beginning of a page against that of all of it.

use clew_policy::admission::entropy::{BIT, entropy as of_beginning};

use super::sample::{correlation, entropy, pages};
use super::setting::usual;
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "5",
    title: "entropy of the beginning of a page, and of all of it",
    says: "the entropy of a page's first 512 bytes and that of the whole page have a correlation of 0.955, with 256 bytes \
           of 0.938.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = usual(desk)?;
    let (bytes, page_bytes) = pages(&bench)?;
    let mut claims = Vec::new();
    for (sample, paper) in [(512, 0.955), (256, 0.938)] {
        let of = |page: &[u8]| {
            (f64::from(of_beginning(&page[..sample])) / f64::from(BIT), entropy(page))
        };
        let pairs: Vec<(f64, f64)> = bytes.chunks_exact(page_bytes).map(of).collect();
        let what = format!("correlation, first {sample} bytes");
        let claim = Claim::new("5", what, paper, "r", Tolerance::Within { off: 0.05 });
        claims.push(claim.found(correlation(&pairs), Kind::Computed, &bench.name));
    }
    let notes = vec![format!(
        "{} different pages of the trace, anonymous ones and pages of files, each once.",
        bytes.len() / page_bytes
    )];
    Ok(Found { claims, notes, ..Found::default() })
}

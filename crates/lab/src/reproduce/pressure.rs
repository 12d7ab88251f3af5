//! How much memory there is: so much that the paper's baseline is as slow here as it is there.
//!
//! How much DRAM a phone leaves to its apps is published nowhere. So the baseline is replayed in several
//! amounts, and the one in which it comes closest to its published slowdown is taken, for every scheme. If
//! none comes near, that is said before anything is compared.

use crate::error::LabError;
use crate::replay::Settings;

use super::Kind;
use super::claim::{Claim, Tolerance};
use super::desk::{Desk, Run, Workbench};

/// What was tried, and what was taken.
pub struct Pressure {
    /// The budget that was taken, bytes.
    pub budget_bytes: u64,
    /// It, as a part of what all pages take.
    pub share: f64,
    /// What the baseline says there.
    pub reached: Option<f64>,
    /// Every share and what it gave.
    pub tried: Vec<(f64, f64)>,
}

/// Tries `shares` of what all pages take; `of` says what the baseline gives, which should be `target`.
pub fn find(
    desk: &Desk<'_>,
    bench: &Workbench,
    shares: &[f64],
    target: f64,
    baseline: &dyn Fn(u64) -> Result<Settings, LabError>,
    of: &dyn Fn(&Run) -> Option<f64>,
) -> Result<Pressure, LabError> {
    let footprint = bench.input.footprint_bytes() as f64;
    let budgets: Vec<u64> = shares.iter().map(|share| (footprint * share) as u64).collect();
    let settings: Vec<Settings> =
        budgets.iter().map(|bytes| baseline(*bytes)).collect::<Result<_, _>>()?;
    let runs = desk.runs(bench, &settings)?;
    let given: Vec<Option<f64>> = runs.iter().map(of).collect();
    let off = |at: &usize| given[*at].map_or(f64::INFINITY, |value| (value - target).abs());
    let best = (0..shares.len()).min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_default();
    let tried = shares.iter().zip(&given).filter_map(|(share, given)| Some((*share, (*given)?)));
    Ok(Pressure {
        budget_bytes: budgets.get(best).copied().unwrap_or_default(),
        share: shares.get(best).copied().unwrap_or_default(),
        reached: given.get(best).copied().flatten(),
        tried: tried.collect(),
    })
}

impl Pressure {
    /// Whether the baseline is as slow as it should be.
    pub fn claim(&self, figure: &str, what: &str, target: f64, trace: &str) -> Claim {
        let tolerance = Tolerance::Effect { neutral: 1.0, factor: 1.5 };
        let claim = Claim::new(figure, what, target, "x", tolerance);
        let claim = claim.found(self.reached, Kind::Modelled, trace);
        claim.noted(&format!(
            "the budget was chosen for this: {:.0} % of what all pages take",
            self.share * 100.0
        ))
    }

    /// What was tried, in a sentence.
    pub fn said(&self) -> String {
        let tried: Vec<String> = self
            .tried
            .iter()
            .map(|(share, given)| format!("{:.0} %: {given:.2}", share * 100.0))
            .collect();
        format!(
            "how slow the baseline is by the part of all pages that memory holds: {}",
            tried.join(", ")
        )
    }
}

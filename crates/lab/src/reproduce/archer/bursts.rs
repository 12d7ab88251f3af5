//! Photos in a row and frames of short videos: an app that wants memory in bursts (2.2.1, 5.2.2).

use std::sync::Arc;

use clew_trace::generate::profile::{ARCHER_CAMERA, ARCHER_VIDEO, Order, Profile};
use toml::Value;

use super::setting::{Reading, SCHEMES, settings, workload};
use crate::error::LabError;
use crate::replay::Settings;
use crate::reproduce::desk::{Desk, Run, Workbench};
use crate::reproduce::launches::{Launch, of};
use crate::reproduce::pressure::{Pressure, find};

/// Why a burst cannot be taken from a trace that somebody gave.
pub const GIVEN: &str = "the trace that was given has no bursts";
/// The app with the bursts is the first of its trace.
const ONE: u32 = 1;

/// What is made in a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Photos,
    Frames,
}

impl Kind {
    pub const BOTH: [Kind; 2] = [Kind::Photos, Kind::Frames];

    fn profile(self) -> &'static Profile {
        match self {
            Kind::Photos => &ARCHER_CAMERA,
            Kind::Frames => &ARCHER_VIDEO,
        }
    }

    /// For claims.
    pub fn said(self) -> &'static str {
        match self {
            Kind::Photos => "photos a second",
            Kind::Frames => "frames a second",
        }
    }

    /// How many times as slow the Pixel 6 is under pressure: 13 photos in place of 24 (figure 8a), 37.5 frames
    /// (figure 8b) in place of the 60 that its screen shows.
    pub fn slowdown(self) -> f64 {
        match self {
            Kind::Photos => 24.0 / 13.0,
            Kind::Frames => 60.0 / 37.5,
        }
    }
}

/// The trace with so many apps in the background.
pub fn bench(desk: &mut Desk<'_>, kind: Kind, apps: usize) -> Result<Arc<Workbench>, LabError> {
    let workload = workload(desk, kind.profile(), apps + 1);
    desk.generated(&workload)
}

/// Each burst of a run: how many a second.
fn rates<'a>(run: &'a Run, kind: Kind) -> impl Iterator<Item = f64> + 'a {
    let shots = match kind.profile().order {
        Order::Bursts(burst) => f64::from(burst.shots),
        _ => f64::NAN,
    };
    of(run, Launch::Hot, ONE).map(move |switch| shots / (switch.took_ms / 1e3))
}

/// The mean of them.
pub fn rate(run: &Run, kind: Kind) -> Option<f64> {
    let all: Vec<f64> = rates(run, kind).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// The worst of them.
pub fn worst(run: &Run, kind: Kind) -> Option<f64> {
    rates(run, kind).reduce(f64::min)
}

/// How much slower bursts are than without any swapping.
fn slowdown(run: &Run) -> Option<f64> {
    let (mut took, mut own) = (0.0, 0.0);
    for switch in of(run, Launch::Hot, ONE) {
        took += switch.took_ms;
        own += switch.own_ms;
    }
    (own > 0.0).then_some(took / own)
}

/// The amount of memory in which ZRAM is as slow as published, with so many apps in the background.
pub struct Scarce {
    pub budget_bytes: u64,
    pub reached: Option<f64>,
    pub trace: String,
    pub said: String,
}

/// Finds it.
pub fn scarce(desk: &mut Desk<'_>, kind: Kind, apps: usize) -> Result<Scarce, LabError> {
    const SHARES: [f64; 6] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.45];
    let shares = if desk.quick { &SHARES[3..4] } else { &SHARES[..] };
    let bench = bench(desk, kind, apps)?;
    let baseline = |bytes| settings(&bench, SCHEMES[0], Reading::Letter, bytes, &[]);
    let found = find(desk, &bench, shares, kind.slowdown(), &baseline, &slowdown)?;
    let said = found.said();
    let Pressure { budget_bytes, reached, .. } = found;
    Ok(Scarce { budget_bytes, reached, trace: bench.name.clone(), said })
}

/// Runs each of `schemes` with so many apps in the background.
pub fn runs(
    desk: &mut Desk<'_>,
    kind: Kind,
    apps: usize,
    reading: Reading,
    budget_bytes: u64,
    schemes: &[(&str, &[(&str, Value)])],
) -> Result<Vec<Run>, LabError> {
    let bench = bench(desk, kind, apps)?;
    let each = schemes
        .iter()
        .map(|(name, parameters)| settings(&bench, name, reading, budget_bytes, parameters));
    let each: Vec<Settings> = each.collect::<Result<_, _>>()?;
    desk.runs(&bench, &each)
}

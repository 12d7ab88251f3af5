//! The workload generator: traces as the papers describe theirs, which were not published.
//!
//! A profile ([`profile`]) holds the numbers, each with its source. [`memory`] decides which pages
//! an app uses when it is brought back, [`session`] puts that in time and writes it,
//! [`contents`] makes pages. Everything is a function of the seed: the same workload gives the same
//! bytes of trace. Whether a trace is as the papers say is computed from the trace itself
//! ([`crate::statistics`]), never from the numbers here.

pub mod contents;
mod memory;
mod plan;
pub mod profile;
mod session;

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;

use clew_core::{AppId, Seeded};

use crate::error::TraceError;
use crate::header::{ContentsKind, Header, Provenance, Source};
use crate::statistics::DRAM_NOTE;
use crate::totals::Totals;
use crate::writer::Writer;
use profile::{Order, Profile};
use session::Device;

/// What is to be generated.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Apps, sizes, habits.
    pub profile: &'static Profile,
    /// Everything random follows from it.
    pub seed: u64,
    /// Which order of launches, of those that a seed has (Ariadne uses three a target).
    pub order: u64,
    /// Size of the apps, as a part of the real ones. Times stay what they are.
    pub scale: f64,
    /// The first so many apps of the profile.
    pub apps: usize,
    /// Relaunches go on, or end early, until there are so many records.
    pub events: Option<u64>,
    /// Whether pages have contents.
    pub contents: bool,
}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A number makes no sense.
    #[error("{field}: {why}")]
    Workload {
        /// Which.
        field: &'static str,
        /// What is wrong with it, and what it may be.
        why: String,
    },
    /// It could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Whoever was told of the progress wanted no more.
    #[error("interrupted")]
    Interrupted,
}

/// Pages of an app at the least: below that there are no groups to choose from.
const FEWEST_PAGES: f64 = 64.0;

impl Workload {
    /// All of `profile`.
    pub fn new(profile: &'static Profile, seed: u64) -> Workload {
        let apps = profile.default_apps;
        Workload { profile, seed, order: 0, scale: 1.0, apps, events: None, contents: true }
    }

    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), GenerateError> {
        let bad = |field, why| Err(GenerateError::Workload { field, why });
        let apps = &self.profile.apps[..self.apps.min(self.profile.apps.len())];
        let page_mib = f64::from(self.profile.page_bytes) / f64::from(1 << 20);
        let smallest = apps.iter().map(|app| app.early_mib).fold(f64::INFINITY, f64::min);
        let least = FEWEST_PAGES * page_mib / smallest;
        if self.apps == 0 || self.apps > self.profile.apps.len() {
            let why = format!(
                "{}; {} has 1 to {}",
                self.apps,
                self.profile.name,
                self.profile.apps.len()
            );
            return bad("apps", why);
        }
        if !(self.scale >= least && self.scale <= 16.0) {
            let why = format!("{}; it may be {least:.4} to 16", self.scale);
            return bad("scale", why);
        }
        if self.events == Some(0) {
            return bad("events", "0; at least one".to_string());
        }
        Ok(())
    }

    /// How its trace begins.
    pub fn header(&self) -> Header {
        let tool = concat!("clew gen ", env!("CARGO_PKG_VERSION"));
        let mut provenance = Provenance::new(Source::Generated, tool);
        provenance.seed = Some(self.seed);
        provenance.notes = BTreeMap::from([
            ("profile".to_string(), self.profile.name.to_string()),
            ("calibrated to".to_string(), self.profile.source.to_string()),
            ("order".to_string(), self.order.to_string()),
            ("scale".to_string(), self.scale.to_string()),
            ("apps".to_string(), self.apps.to_string()),
        ]);
        let dram = self.profile.dram_mib * self.scale * f64::from(1 << 20);
        provenance.notes.insert(DRAM_NOTE.to_string(), (dram as u64).to_string());
        if let Some(events) = self.events {
            provenance.notes.insert("events".to_string(), events.to_string());
        }
        let contents = if self.contents { ContentsKind::Bytes } else { ContentsKind::None };
        Header { page_bytes: self.profile.page_bytes, contents, provenance }
    }
}

/// Writes the trace of `workload` to `out`. `progress` is told now and then which part of it is
/// done, 0 to 1, and whether to go on is its answer.
pub fn generate<W: Write>(
    workload: &Workload,
    out: W,
    progress: &mut dyn FnMut(f64) -> ControlFlow<()>,
) -> Result<(W, Totals), GenerateError> {
    workload.check()?;
    let writer = Writer::new(out, &workload.header())?;
    let mut device = Device::new(workload, writer, progress)?;
    match workload.profile.order {
        Order::Tested { tested, between } => {
            plan::tested(workload, &mut device, tested, between)?;
            return device.finish();
        }
        Order::Bursts(burst) => {
            plan::bursts(workload, &mut device, &burst)?;
            return device.finish();
        }
        Order::Shuffled | Order::Listed => {}
    }
    let mut random = Seeded::of(workload.seed, &[1, workload.order]);
    let mut order: Vec<usize> = (0..workload.apps).collect();
    let mut round = 0;
    loop {
        if workload.profile.order == Order::Shuffled {
            random.shuffle(&mut order);
        }
        for (done, &app) in order.iter().enumerate() {
            let sessions = (round * workload.apps + done) as f64;
            let all = (workload.profile.relaunches as usize + 1) * workload.apps;
            let over = match workload.events {
                Some(events) => {
                    device.progress(device.records() as f64 / events as f64)?;
                    device.records() >= events
                }
                None => {
                    device.progress(sessions / all as f64)?;
                    round > workload.profile.relaunches as usize
                }
            };
            if over {
                return device.finish();
            }
            device.session(app, round == 0)?;
        }
        round += 1;
    }
}

/// The app that owns the pages of services that apps share.
pub(crate) fn system(apps: usize) -> AppId {
    AppId(apps as u32)
}

//! What a trace is like, in the terms of the papers: computed from its records and contents alone,
//! recorded or generated.

mod association;
mod evictions;
mod ratios;
mod working_sets;

use std::collections::{HashMap, HashSet};

use clew_core::{AccessKind, AppId, Ns, PageId, PageRun, SpaceId};
use foldhash::fast::FixedState;
use serde::Serialize;

use crate::error::TraceError;
use crate::kind::Kind;
use crate::record::{ContentId, Record};
use crate::trace::Trace;

pub use association::Association;
pub use evictions::Evictions;
pub use ratios::{CHUNKS, Ratio, ratios};
pub use working_sets::AppStatistics;

/// What a trace is like.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Of each app that was launched.
    pub apps: Vec<AppStatistics>,
    /// Mean of the apps that were relaunched twice or more (Ariadne, figure 5).
    pub similarity: Option<f64>,
    /// Mean of the same apps (figure 5).
    pub reuse: Option<f64>,
    /// Pages that are used together.
    pub association: Association,
    /// What leaves DRAM, where its size is known.
    pub evictions: Option<Evictions>,
    /// How anonymous pages compress, without pages of zeros, if their bytes are there.
    pub ratios: Vec<Ratio>,
    /// The same of pages of files.
    pub file_ratios: Vec<Ratio>,
    /// Zeros among the anonymous pages.
    pub zero_share: Option<f64>,
}

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// DRAM for [`Evictions`]; without it what the trace says of it, if it does.
    pub dram_bytes: Option<u64>,
    /// About how many pages are compressed.
    pub pages: usize,
}

impl Default for Look {
    fn default() -> Look {
        Look { dram_bytes: None, pages: 16_384 }
    }
}

/// Name of the note that says how much DRAM the apps of a generated trace have, in bytes.
pub(crate) const DRAM_NOTE: &str = "dram bytes";

impl Statistics {
    /// Those of `trace`. `progress` is told which part of it is done, 0 to 1.
    pub fn of(
        trace: &Trace,
        look: &Look,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Statistics, TraceError> {
        let notes = &trace.header().provenance.notes;
        let noted = notes.get(DRAM_NOTE).and_then(|bytes| bytes.parse().ok());
        let page_bytes = u64::from(trace.header().page_bytes);
        let pages = look.dram_bytes.or(noted).map(|bytes: u64| (bytes / page_bytes) as usize);
        let totals = trace.totals();
        let middle = Ns(totals.first.0 + totals.last.since(totals.first).0 / 2);
        let touched = totals.count(Kind::AccessFresh).max(1);
        let mut spaces = Spaces::default();
        let mut working_sets = working_sets::WorkingSets::new(page_bytes);
        let mut association = association::Miner::new(touched, middle);
        let mut evictions = pages.map(evictions::Dram::new);
        let mut last = ByPage::default();
        for (number, stamped) in trace.records()?.enumerate() {
            let stamped = stamped?;
            if number % 65_536 == 0 {
                progress(0.9 * number as f64 / totals.records().max(1) as f64);
            }
            spaces.take(&stamped.record);
            working_sets.take(&spaces, &stamped);
            association.take(&spaces, &stamped);
            if let Some(dram) = &mut evictions {
                dram.take(&spaces, &stamped);
            }
            match stamped.record {
                Record::Contents { page, content } => {
                    last.insert(page, content);
                }
                _ => follow(&mut last, &stamped.record),
            }
        }
        let mut last: Vec<(PageId, ContentId)> = last.into_iter().collect();
        last.sort_unstable_by_key(|(page, _)| *page);
        let apps = working_sets.finish(&totals.apps);
        let mean = |of: fn(&AppStatistics) -> Option<f64>| {
            let values: Vec<f64> = apps.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let (anonymous, files): (Vec<_>, Vec<_>) =
            last.into_iter().partition(|(page, _)| !spaces.is_file(page.space()));
        let compressed = ratios::of_trace(trace, &anonymous, look.pages)?;
        progress(0.95);
        let (file_ratios, _) = ratios::of_trace(trace, &files, look.pages)?;
        progress(1.0);
        Ok(Statistics {
            similarity: mean(|app| app.similarity),
            reuse: mean(|app| app.reuse),
            association: association.finish(),
            evictions: evictions.map(evictions::Dram::finish),
            ratios: compressed.0,
            file_ratios,
            zero_share: compressed.1,
            apps,
        })
    }
}

/// Whose each space is.
#[derive(Default)]
struct Spaces {
    owners: HashMap<SpaceId, (AppId, bool)>,
    front: Option<AppId>,
}

impl Spaces {
    fn take(&mut self, record: &Record) {
        match *record {
            Record::SpaceStart { space, app, file } => {
                self.owners.insert(space, (app, file));
            }
            Record::Launch { app } | Record::Relaunch { app } => self.front = Some(app),
            Record::Background { app } | Record::Exit { app } if self.front == Some(app) => {
                self.front = None;
            }
            _ => {}
        }
    }

    fn app(&self, space: SpaceId) -> Option<AppId> {
        self.owners.get(&space).map(|owner| owner.0)
    }

    fn is_file(&self, space: SpaceId) -> bool {
        self.owners.get(&space).is_some_and(|owner| owner.1)
    }
}

/// The page of an access to anonymous memory.
fn anonymous_access(spaces: &Spaces, record: &Record) -> Option<(PageId, AccessKind)> {
    match *record {
        Record::Access { page, kind, .. } if !spaces.is_file(page.space()) => Some((page, kind)),
        _ => None,
    }
}

/// A table by page, and a set of pages.
type ByPage<T> = HashMap<PageId, T, FixedState>;
type Pages = HashSet<PageId, FixedState>;

/// Keeps `table` to pages that are there, when some are given up or move.
fn follow<T>(table: &mut ByPage<T>, record: &Record) {
    match *record {
        Record::Freed { run } => drop(take_run(table, run)),
        Record::Moved { from, to } => {
            for (page, value) in take_run(table, from) {
                table.insert(to.plus(page.raw() - from.first.raw()), value);
            }
        }
        Record::SpaceEnd { space } => table.retain(|page, _| page.space() != space),
        _ => {}
    }
}

/// What the table has of these pages. Of a long run it may have few.
fn take_run<T>(table: &mut ByPage<T>, run: PageRun) -> Vec<(PageId, T)> {
    let pages: Vec<PageId> = match table.len() < run.count as usize {
        true => table.keys().copied().filter(|page| run.contains(*page)).collect(),
        false => run.pages().filter(|page| table.contains_key(page)).collect(),
    };
    pages.into_iter().filter_map(|page| Some((page, table.remove(&page)?))).collect()
}

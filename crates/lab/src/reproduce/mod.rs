//! Published results, run again: a paper is a table of figures, a figure is a file that says which runs it
//! needs, makes them by the replay that everybody else uses, and yields [claims](Claim).
//!
//! Nothing is a figure of ours that was not run: a mechanism, a peer or a trace that is not there makes a
//! claim "not run", with the reason. Schemes are looked up by name when a figure runs, so it begins to
//! run on the day its scheme is there.
//!
//! A generated trace is a sample: each of its pages stands for so many of the real workload (its *grain*).
//! Work on a page costs as much more, so that times are those of the whole.

mod archer;
mod ariadne;
mod claim;
mod desk;
mod elasticzram;
mod ezswap;
mod launches;
mod mobileswap;
mod pressure;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use clew_report::{Chart, Column, Part, ReportError, Row, Section, Shade, Study, Table, json};

use crate::error::LabError;
pub use claim::{Claim, Kind, Tolerance};
use desk::Desk;

/// What a figure yields.
#[derive(Default)]
struct Found {
    claims: Vec<Claim>,
    charts: Vec<Chart>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// One figure, table, or measurement in the text.
pub struct Figure {
    /// What the paper calls it: `7`, `T2`, `text`.
    pub number: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What the paper says there, in our words.
    says: &'static str,
    run: fn(&mut Desk<'_>) -> Result<Found, LabError>,
}

/// A paper.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title, and where it was published.
    pub title: &'static str,
    /// What has to be known to read any of its figures.
    about: &'static [&'static str],
    /// In the paper's order.
    pub figures: &'static [Figure],
}

/// The papers there are.
pub const PAPERS: [&Paper; 5] =
    [&archer::PAPER, &ariadne::PAPER, &elasticzram::PAPER, &ezswap::PAPER, &mobileswap::PAPER];

impl Paper {
    /// The paper called `name`.
    ///
    /// # Errors
    /// [`LabError::Setting`], with the names that there are.
    pub fn named(name: &str) -> Result<&'static Paper, LabError> {
        PAPERS.into_iter().find(|paper| paper.name == name).ok_or_else(|| {
            let names: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
            let why = format!("there is none; there are {}", names.join(", "));
            LabError::Setting { what: format!("paper '{name}'"), why }
        })
    }

    fn figures(&self, number: Option<&str>) -> Result<Vec<&Figure>, LabError> {
        let Some(number) = number else { return Ok(self.figures.iter().collect()) };
        let asked = number.trim_start_matches(['F', 'f']);
        let is_it = |figure: &&Figure| figure.number.eq_ignore_ascii_case(asked);
        match self.figures.iter().find(is_it) {
            Some(figure) => Ok(vec![figure]),
            None => {
                let numbers: Vec<&str> = self.figures.iter().map(|one| one.number).collect();
                let why = format!("{} has none; it has {}", self.name, numbers.join(", "));
                Err(LabError::Setting { what: format!("figure '{number}'"), why })
            }
        }
    }
}

/// What is asked for.
pub struct Asked<'a> {
    /// The paper.
    pub paper: &'static Paper,
    /// One of its figures; all of them if absent.
    pub figure: Option<&'a str>,
    /// As small as it can be: what comes out says little.
    pub quick: bool,
    /// In place of the paper's usual workload.
    pub trace: Option<&'a Path>,
    /// Where traces, runs and results are kept.
    pub directory: &'a Path,
    /// Replays at once.
    pub jobs: usize,
}

/// What came of it.
pub struct Reproduced {
    /// Every claim, in the paper's order.
    pub claims: Vec<Claim>,
    study: Study,
    name: String,
}

/// Hears which figure is under way, and which part of all is done; whether to go on is its answer.
pub type Telling<'a> = &'a (dyn Fn(&str, f64) -> ControlFlow<()> + Sync);

/// Runs what is asked for, but for what is there already.
pub fn reproduce(asked: &Asked<'_>, telling: Telling<'_>) -> Result<Reproduced, LabError> {
    let figures = asked.paper.figures(asked.figure)?;
    let at = AtomicUsize::new(0);
    let count = figures.len();
    let going = |part: f64| {
        let at = at.load(Relaxed);
        telling(figures[at].number, (at as f64 + part) / count as f64)
    };
    let mut desk = Desk::new(asked.directory, asked.quick, asked.trace, asked.jobs, &going)?;
    let (mut claims, mut sections) = (Vec::new(), Vec::new());
    for (number, figure) in figures.iter().enumerate() {
        at.store(number, Relaxed);
        let found = (figure.run)(&mut desk)?;
        sections.push(section(figure, &found.claims, found.charts, found.tables, found.notes));
        claims.extend(found.claims);
    }
    let name = match asked.figure {
        Some(_) => format!("{}-{}", asked.paper.name, figures[0].number),
        None => asked.paper.name.to_string(),
    };
    let verdict = verdict(&claims);
    let quick = "made with --quick: far too small for its numbers to mean anything".to_string();
    let before = asked.paper.about.iter().map(|line| line.to_string());
    let study = Study {
        title: format!("{}, run again", asked.paper.title),
        verdict,
        facts: format!("clew {}", env!("CARGO_PKG_VERSION")),
        before: asked.quick.then_some(quick).into_iter().chain(before).collect(),
        sections,
        all: Some(table("every claim", &claims, true)),
        method: METHOD.map(str::to_string).to_vec(),
        ..Study::default()
    };
    Ok(Reproduced { claims, study, name })
}

const METHOD: [&str; 4] = [
    "Modelled: a trace is played to the engine that serves live programs; what work costs is taken from a \
     table. Computed: it follows from the trace or from the paper's own numbers. Nothing here was timed.",
    "A claim holds by the tolerance that it carries, which was stated before the run: the effect in the \
     paper's direction and between half and twice its size, unless it says otherwise.",
    "A generated trace is a sample of a workload: each page stands for so many, and costs as much more.",
    "Claims whose mechanism, peer or trace is not there were not run, and have no number.",
];

fn section(
    figure: &Figure,
    claims: &[Claim],
    charts: Vec<Chart>,
    tables: Vec<Table>,
    notes: Vec<String>,
) -> Section {
    let title = match figure.number {
        "text" => format!("In the text: {}", figure.title),
        number if number.starts_with('T') => format!("Table {}: {}", &number[1..], figure.title),
        number => format!("Figure {number}: {}", figure.title),
    };
    let own = table("what it says, and what came out", claims, false);
    Section {
        title,
        says: figure.says.to_string(),
        charts,
        tables: [own].into_iter().chain(tables).collect(),
        notes,
    }
}

/// How many claims hold.
fn verdict(claims: &[Claim]) -> String {
    let count = |holds: Option<bool>| claims.iter().filter(|claim| claim.holds == holds).count();
    let (yes, no, not_run) = (count(Some(true)), count(Some(false)), count(None));
    format!("{yes} of {} claims that could be run hold; {not_run} were not run", yes + no)
}

fn number(value: Option<f64>) -> Option<String> {
    value.map(|value| match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        some if some >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    })
}

fn holds(claim: &Claim) -> &'static str {
    match claim.holds {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not run",
    }
}

fn table(title: &str, claims: &[Claim], with_figure: bool) -> Table {
    let figure = |claim: &Claim| Some(claim.figure.clone());
    let mut columns: Vec<Column<'_, Claim>> = vec![
        ("claim", &|claim| Some(claim.claim.clone())),
        ("paper", &|claim| number(claim.paper)),
        ("here", &|claim| number(claim.measured)),
        ("unit", &|claim| Some(claim.unit.clone())),
        ("kind", &|claim| claim.measured.map(|_| claim.kind.to_string())),
        ("holds", &|claim| Some(holds(claim).to_string())),
        ("if", &|claim| Some(claim.tolerance.to_string())),
        ("note", &|claim| (!claim.note.is_empty()).then(|| claim.note.clone())),
        ("trace", &|claim| (!claim.trace.is_empty()).then(|| claim.trace.clone())),
    ];
    if with_figure {
        columns.insert(0, ("figure", &figure));
    }
    let keys = if with_figure { 2 } else { 1 };
    Table::of(title, keys, claims.iter().cloned(), &columns)
}

impl Reproduced {
    /// One line about all of it.
    pub fn verdict(&self) -> &str {
        &self.study.verdict
    }

    /// Rows for a terminal: figure, claim, paper, here, unit, kind, whether it holds.
    pub fn rows(&self) -> Vec<[String; 7]> {
        let dash = || "-".to_string();
        let row = |claim: &Claim| {
            [
                claim.figure.clone(),
                claim.claim.clone(),
                number(claim.paper).unwrap_or_else(dash),
                number(claim.measured).unwrap_or_else(dash),
                claim.unit.clone(),
                claim.measured.map_or_else(dash, |_| claim.kind.to_string()),
                holds(claim).to_string(),
            ]
        };
        self.claims.iter().map(row).collect()
    }

    /// Why claims were not run: each reason once, with the figures it is about.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.holds.is_none()) {
            match reasons.iter_mut().find(|(note, _)| *note == claim.note) {
                Some((_, figures)) if figures.last() == Some(&claim.figure.as_str()) => {}
                Some((_, figures)) => figures.push(&claim.figure),
                None => reasons.push((&claim.note, vec![&claim.figure])),
            }
        }
        reasons.iter().map(|(note, figures)| format!("{}: {note}", figures.join(", "))).collect()
    }

    /// The claims as JSON.
    pub fn json(&self) -> Result<String, ReportError> {
        json(&self.claims)
    }

    /// Writes claims and page into `directory` and tells where they are.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, LabError> {
        Ok(self.study.write(&self.json()?, directory, &self.name)?)
    }
}

/// One bar a row.
const BAR: &[Part] = &[Part { name: "here", shade: Shade::Full }];

/// A chart of plain bars.
fn bars(title: &str, unit: &'static str, rows: impl IntoIterator<Item = (String, f64)>) -> Chart {
    let row = |(name, size): (String, f64)| Row {
        name,
        sizes: vec![size],
        note: number(Some(size)).unwrap_or_default(),
    };
    let rows = rows.into_iter().filter(|(_, size)| size.is_finite()).map(row).collect();
    Chart { title: title.to_string(), unit, parts: BAR, rows }
}

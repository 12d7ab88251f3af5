//! The programs of the demo: unmodified, from what the system ships, one file each.
//!
//! A program is a pure model of its data (what was written, so what each query must answer) plus
//! the way to start it and to speak with it. Requests and the answers that are right are made before
//! the clock starts; [`crate::session::Session`] sends the ones and compares the others.

mod memcached;
mod node;
mod python;
mod record_lines;
mod redis;
mod sqlite;
mod versions;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use clew_report::Layout;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::wire::Wire;

/// Requests that are sent together, and the answers that are right, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub request: Vec<u8>,
    pub expected: Vec<Vec<u8>>,
}

impl Batch {
    /// With the line upon which scripts write their answers out.
    fn closed(mut self) -> Batch {
        self.request.extend_from_slice(b".\n");
        self
    }
}

/// How one speaks with a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// Over its standard input and output.
    Stdio,
    /// Over the unix socket that it makes.
    Socket(PathBuf),
}

/// What a program is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Seed of data and queries.
    pub seed: u64,
    /// About how much anonymous memory the data takes.
    pub data_bytes: u64,
    /// Part of the working set that is the same at each visit, 0 to 1.
    pub similarity: f64,
    /// Part of the queries that change data, 0 to 1.
    pub updates: f64,
}

/// One program with its data.
pub trait Program: Send {
    /// What it is.
    fn kind(&self) -> Kind;

    /// The file to execute.
    fn executable(&self) -> Result<PathBuf, BenchError> {
        self.kind().executable()
    }

    /// Its arguments; it may put files into `scratch`.
    fn arguments(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError>;

    /// How one speaks with it.
    fn link(&self, _scratch: &Path) -> Link {
        Link::Stdio
    }

    /// Number of batches that fill it.
    fn fill_batches(&self) -> u32;

    /// One of them. Batches are sent in order.
    fn fill_batch(&self, index: u32) -> Batch;

    /// The batches of interaction number `visit`. Updates among them are remembered as done.
    fn interaction(&mut self, visit: u32) -> Vec<Batch>;

    /// Reads one answer.
    fn read_answer(&self, wire: &mut Wire, into: &mut Vec<u8>) -> Result<(), BenchError> {
        wire.line(into)
    }

    /// The request upon which it ends; the end of its input does the same where this is empty.
    fn goodbye(&self) -> &'static [u8] {
        b""
    }
}

/// The programs there are.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    #[default]
    Redis,
    Python,
    Node,
    Sqlite,
    Perl,
    Java,
    Memcached,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Redis,
        Kind::Node,
        Kind::Python,
        Kind::Sqlite,
        Kind::Perl,
        Kind::Memcached,
        Kind::Java,
    ];
    /// Those of the quick comparison.
    pub const QUICK: [Kind; 4] = [Kind::Redis, Kind::Python, Kind::Node, Kind::Sqlite];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Redis => "redis",
            Kind::Python => "python",
            Kind::Node => "node",
            Kind::Sqlite => "sqlite",
            Kind::Perl => "perl",
            Kind::Java => "java",
            Kind::Memcached => "memcached",
        }
    }

    /// How its working set lies in memory.
    pub fn layout(self) -> Layout {
        match self {
            Kind::Redis | Kind::Python | Kind::Perl | Kind::Java => Layout::Scattered,
            Kind::Node | Kind::Sqlite | Kind::Memcached => Layout::Clustered,
        }
    }

    /// What it holds and does, in a line.
    pub fn description(self) -> &'static str {
        match self {
            Kind::Redis => "redis-server: JSON strings under random keys, pipelined GET and SET",
            Kind::Python => "python3: parsed JSON objects in a dict, looked up one by one",
            Kind::Node => "node: documents and number series in typed arrays, read whole",
            Kind::Sqlite => "sqlite3: a table in memory, ranges of rows summed up",
            Kind::Perl => "perl: records in a hash, looked up one by one",
            Kind::Java => "java: records in a HashMap, looked up one by one",
            Kind::Memcached => "memcached: rendered pages of 20 to 60 KiB, fetched whole",
        }
    }

    /// Candidates for its executable, best first, and the package that has it.
    fn candidates(self) -> (&'static [&'static str], &'static str) {
        match self {
            Kind::Redis => (&["redis-server", "valkey-server"], "redis-server"),
            // The system's own interpreter, not one that a user put in front of it.
            Kind::Python => (&["/usr/bin/python3", "python3"], "python3"),
            Kind::Node => (&["/usr/bin/node", "node", "nodejs"], "nodejs"),
            Kind::Sqlite => (&["sqlite3"], "sqlite3"),
            Kind::Perl => (&["/usr/bin/perl", "perl"], "perl"),
            Kind::Java => (&["java"], "default-jdk-headless"),
            Kind::Memcached => (&["memcached"], "memcached"),
        }
    }

    /// The file to execute.
    pub fn executable(self) -> Result<PathBuf, BenchError> {
        let (names, package) = self.candidates();
        names.iter().find_map(|name| find(name)).ok_or_else(|| BenchError::ProgramMissing {
            program: self.name(),
            looked_for: names.join(", "),
            package,
        })
    }

    /// The program with data as `load` says.
    pub fn with(self, load: Load) -> Box<dyn Program> {
        match self {
            Kind::Redis => Box::new(redis::Redis::new(load)),
            Kind::Python => Box::new(python::Python::new(load)),
            Kind::Node => Box::new(node::Node::new(load)),
            Kind::Sqlite => Box::new(sqlite::Sqlite::new(load)),
            Kind::Perl => Box::new(record_lines::RecordLines::perl(load)),
            Kind::Java => Box::new(record_lines::RecordLines::java(load)),
            Kind::Memcached => Box::new(memcached::Memcached::new(load)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Kind, BenchError> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            BenchError::Setting(format!("there is no program '{text}' (there are {names})"))
        })
    }
}

/// An executable by its path, or by its name in `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.is_absolute() {
        return path.is_file().then(|| path.to_path_buf());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// How many units of `unit_bytes` make `bytes`; at least a hundred, so that small tests have data.
fn units(bytes: u64, unit_bytes: u64) -> u32 {
    (bytes / unit_bytes).max(100) as u32
}

/// Joins single requests into batches of `size`.
fn batches(requests: impl Iterator<Item = (Vec<u8>, Vec<u8>)>, size: usize) -> Vec<Batch> {
    let mut all = Vec::new();
    let mut batch = Batch::default();
    for (request, expected) in requests {
        batch.request.extend(request);
        batch.expected.push(expected);
        if batch.expected.len() == size {
            all.push(std::mem::take(&mut batch));
        }
    }
    if !batch.expected.is_empty() {
        all.push(batch);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { seed: 3, data_bytes: 2 << 20, similarity: 0.7, updates: 0.1 };

    #[test]
    fn names_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse::<Kind>().ok(), Some(kind));
        }
        assert!("emacs".parse::<Kind>().is_err());
        assert!(find("sh").is_some() && find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn both_layouts_are_there() {
        let layouts = Kind::ALL.map(Kind::layout);
        assert!(layouts.contains(&Layout::Clustered) && layouts.contains(&Layout::Scattered));
    }

    #[test]
    fn equal_seeds_make_equal_requests() {
        for kind in Kind::ALL {
            let (mut one, mut two) = (kind.with(LOAD), kind.with(LOAD));
            assert_eq!(one.fill_batches(), two.fill_batches());
            assert_eq!(one.fill_batch(1), two.fill_batch(1));
            for visit in 0..3 {
                let batches = one.interaction(visit);
                assert!(!batches.is_empty(), "{kind} has nothing to ask");
                assert_eq!(batches, two.interaction(visit), "{kind}, visit {visit}");
            }
            let other = kind.with(Load { seed: 4, ..LOAD });
            assert_ne!(one.fill_batch(1), other.fill_batch(1));
        }
    }

    #[test]
    fn updates_change_the_answers_that_are_expected() {
        for kind in Kind::ALL {
            let mut reads_only = kind.with(Load { updates: 0.0, similarity: 1.0, ..LOAD });
            let mut updating = kind.with(Load { updates: 0.5, similarity: 1.0, ..LOAD });
            let expected = |batches: Vec<Batch>| -> Vec<Vec<u8>> {
                batches.into_iter().flat_map(|batch| batch.expected).collect()
            };
            let mut first = expected(reads_only.interaction(0));
            let mut later = expected(reads_only.interaction(1));
            first.sort_unstable();
            later.sort_unstable();
            assert_eq!(first, later, "{kind}: nothing was changed");
            updating.interaction(0);
            let changed = expected(updating.interaction(1));
            let stale = changed.iter().filter(|answer| first.contains(answer)).count();
            assert!(stale < changed.len(), "{kind}: updates leave no mark");
        }
    }
}

//! The programs of the demo: unmodified, from what the system ships, one file each.
//!
//! A program says how it is started, filled and visited. Synthetic ones are pure models of their data
//! ([`modelled`]): the right answers are made before the clock starts. Natural ones do what their users
//! have them do, scripted from a seed: an answer is right if it is the same in memory.

mod cache;
mod chromium;
mod clangd;
mod compile;
mod framed;
mod jupyter;
mod libreoffice;
mod lsp;
mod memcached;
mod modelled;
mod node;
mod pyright;
mod python;
mod record_lines;
mod redis;
mod source;
mod sqlite;
mod tsserver;
mod versions;
mod zmtp;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

pub use clew_report::Layout;
pub use modelled::{Batch, Model, Modelled};
use serde::{Deserialize, Serialize};

use crate::checksum::crc32;
use crate::error::BenchError;
use crate::wire::Wire;

/// By what Python speaks with LibreOffice.
const UNO: &str = "/usr/lib/python3/dist-packages/uno.py";

/// What a visit has answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    pub count: u64,
    /// Those that are known to be wrong by themselves.
    pub wrong: u64,
    /// A digest of each that is right if the same visit has the same in memory.
    pub digests: Vec<u32>,
}

impl Answers {
    /// One more, to be compared with what it is in memory.
    pub fn see(&mut self, answer: &[u8]) {
        self.count += 1;
        self.digests.push(crc32(answer));
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
    /// Whether it is the program in front of all others, which goes over its data again and again.
    pub is_front: bool,
}

/// One program with its data.
pub trait Program: Send {
    /// What it is.
    fn kind(&self) -> Kind;

    /// The file to execute and its arguments; it may put files into `scratch`.
    fn command(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError>;

    /// What it finds in its environment besides.
    fn environment(&self, _scratch: &Path) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }

    /// How one speaks with it.
    fn link(&self, _scratch: &Path) -> Link {
        Link::Stdio
    }

    /// Longer silence of it is an error: far above any visit, far below a user's patience.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Brings it to where its user has it all day, calling `pace` in between.
    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError>;

    /// Makes up what its user does at that visit, before the clock starts.
    fn prepare(&mut self, visit: u32) -> Result<(), BenchError>;

    /// Does it, and waits for every answer.
    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError>;

    /// Asks it to end; the end of its input does the same where nothing is said.
    fn goodbye(&mut self, _wire: &mut Wire) {}
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
    Tsserver,
    Jupyter,
    Compile,
    Clangd,
    Pyright,
    Chromium,
    Libreoffice,
}

impl Kind {
    /// Those of which a model knows every answer.
    pub const SYNTHETIC: [Kind; 7] = [
        Kind::Redis,
        Kind::Node,
        Kind::Python,
        Kind::Sqlite,
        Kind::Perl,
        Kind::Memcached,
        Kind::Java,
    ];
    /// Those that do what their users have them do; those that only work in front come last.
    pub const NATURAL: [Kind; 7] = [
        Kind::Tsserver,
        Kind::Jupyter,
        Kind::Pyright,
        Kind::Clangd,
        Kind::Chromium,
        Kind::Libreoffice,
        Kind::Compile,
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
            Kind::Tsserver => "tsserver",
            Kind::Jupyter => "jupyter",
            Kind::Compile => "compile",
            Kind::Clangd => "clangd",
            Kind::Pyright => "pyright",
            Kind::Chromium => "chromium",
            Kind::Libreoffice => "libreoffice",
        }
    }

    /// How its working set lies in memory.
    pub fn layout(self) -> Layout {
        match self {
            Kind::Redis
            | Kind::Python
            | Kind::Perl
            | Kind::Java
            | Kind::Tsserver
            | Kind::Pyright
            | Kind::Chromium
            | Kind::Libreoffice => Layout::Scattered,
            Kind::Node
            | Kind::Sqlite
            | Kind::Memcached
            | Kind::Jupyter
            | Kind::Compile
            | Kind::Clangd => Layout::Clustered,
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
            Kind::Tsserver => {
                "tsserver: a project over the types of five libraries, asked as an editor asks"
            }
            Kind::Jupyter => "jupyter: an ipykernel with tables of pandas, two cells at a visit",
            Kind::Compile => "compile: gcc -O2 on sqlite3.c",
            Kind::Clangd => "clangd: C sources of libgit2 and zstd, asked as an editor asks",
            Kind::Pyright => "pyright: pandas, numpy and IPython, asked as an editor asks",
            Kind::Chromium => {
                "chromium: tabs with an editor and TypeScript in each, typed and read in"
            }
            Kind::Libreoffice => {
                "libreoffice: six sheets and two long texts, two things done in them"
            }
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
            Kind::Tsserver => (&["/usr/bin/node", "node", "nodejs"], "nodejs"),
            Kind::Compile => (&["gcc"], "gcc"),
            Kind::Clangd => (&["clangd"], "clangd"),
            Kind::Pyright => (&["/usr/bin/node", "node", "nodejs"], "nodejs"),
            Kind::Chromium => (&["chromium", "chromium-browser"], "chromium"),
            Kind::Libreoffice => (&["soffice"], "libreoffice-calc-nogui"),
            Kind::Jupyter => (&[], ""),
        }
    }

    /// The file to execute.
    ///
    /// # Errors
    /// If it, or what else its program needs, is not there.
    pub fn executable(self) -> Result<PathBuf, BenchError> {
        match self {
            Kind::Jupyter => {
                cache::place(self.name(), "python/installed")?;
                return cache::place(self.name(), "python/bin/python");
            }
            Kind::Tsserver => cache::place(self.name(), "tsserver/installed").map(|_| ())?,
            Kind::Compile => cache::place(self.name(), "sources/installed").map(|_| ())?,
            Kind::Clangd => cache::place(self.name(), "clangd/installed").map(|_| ())?,
            Kind::Pyright => {
                cache::place(self.name(), "python/installed")?;
                cache::place(self.name(), "pyright/installed").map(|_| ())?;
            }
            Kind::Chromium => {
                cache::place(self.name(), "tsserver/installed")?;
                cache::place(self.name(), "chromium/installed").map(|_| ())?;
            }
            Kind::Libreoffice if find(UNO).is_none() => {
                return Err(BenchError::ProgramMissing {
                    program: self.name(),
                    looked_for: UNO.to_string(),
                    package: "python3-uno",
                });
            }
            _ => {}
        }
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
            Kind::Tsserver => Box::new(tsserver::Tsserver::new(load)),
            Kind::Jupyter => Box::new(jupyter::Jupyter::new(load)),
            Kind::Compile => Box::new(compile::Compile::default()),
            Kind::Clangd => Box::new(clangd::Clangd::new(load)),
            Kind::Pyright => Box::new(pyright::Pyright::new(load)),
            Kind::Chromium => Box::new(chromium::Chromium::new(load)),
            Kind::Libreoffice => Box::new(libreoffice::Libreoffice::new(load)),
            synthetic => {
                let model = synthetic.model(load).expect("a synthetic program has a model");
                Box::new(Modelled::new(model))
            }
        }
    }

    /// The model of its data; natural programs have none.
    fn model(self, load: Load) -> Option<Box<dyn Model>> {
        Some(match self {
            Kind::Redis => Box::new(redis::Redis::new(load)),
            Kind::Python => Box::new(python::Python::new(load)),
            Kind::Node => Box::new(node::Node::new(load)),
            Kind::Sqlite => Box::new(sqlite::Sqlite::new(load)),
            Kind::Perl => Box::new(record_lines::RecordLines::perl(load)),
            Kind::Java => Box::new(record_lines::RecordLines::java(load)),
            Kind::Memcached => Box::new(memcached::Memcached::new(load)),
            Kind::Tsserver
            | Kind::Jupyter
            | Kind::Compile
            | Kind::Clangd
            | Kind::Pyright
            | Kind::Chromium
            | Kind::Libreoffice => return None,
        })
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
        let all = [&Kind::SYNTHETIC[..], &Kind::NATURAL].concat();
        all.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = all.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
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

    const LOAD: Load =
        Load { seed: 3, data_bytes: 2 << 20, similarity: 0.7, updates: 0.1, is_front: false };

    fn model(kind: Kind, load: Load) -> Box<dyn Model> {
        kind.model(load).expect("a synthetic program")
    }

    #[test]
    fn names_are_read_back() {
        for kind in Kind::SYNTHETIC.into_iter().chain(Kind::NATURAL) {
            assert_eq!(kind.name().parse::<Kind>().ok(), Some(kind));
        }
        assert!("emacs".parse::<Kind>().is_err());
        assert!(find("sh").is_some() && find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn both_layouts_are_there() {
        let layouts = Kind::SYNTHETIC.map(Kind::layout);
        assert!(layouts.contains(&Layout::Clustered) && layouts.contains(&Layout::Scattered));
    }

    #[test]
    fn equal_seeds_make_equal_requests() {
        for kind in Kind::SYNTHETIC {
            let (mut one, mut two) = (model(kind, LOAD), model(kind, LOAD));
            assert_eq!(one.fill_batches(), two.fill_batches());
            assert_eq!(one.fill_batch(1), two.fill_batch(1));
            for visit in 0..3 {
                let batches = one.interaction(visit);
                assert!(!batches.is_empty(), "{kind} has nothing to ask");
                assert_eq!(batches, two.interaction(visit), "{kind}, visit {visit}");
            }
            let other = model(kind, Load { seed: 4, ..LOAD });
            assert_ne!(one.fill_batch(1), other.fill_batch(1));
        }
    }

    #[test]
    fn updates_change_the_answers_that_are_expected() {
        for kind in Kind::SYNTHETIC {
            let still = Load { updates: 0.0, similarity: 1.0, ..LOAD };
            let mut reads_only = model(kind, still);
            let mut updating = model(kind, Load { updates: 0.5, ..still });
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

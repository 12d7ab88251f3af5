//! pyright over the Python packages that the notebook runs on: at each visit its user opens another file,
//! waits for what is wrong in it, and asks what stands there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clew_core::Seeded;

use super::lsp::{Diagnostics, Editor};
use super::{Answers, Kind, Load, Program, cache, source};
use crate::error::{BenchError, file_error};
use crate::wire::Wire;

/// Packages of which files are opened.
const OPENED: [&str; 3] = ["pandas/core", "IPython/core", "numpy/lib"];

/// Where the packages are: below the version that the environment was made with.
fn packages() -> Result<PathBuf, BenchError> {
    let lib = cache::place("pyright", "python/lib")?;
    let missing = || BenchError::NotFetched { program: "pyright", path: lib.clone() };
    let versions = std::fs::read_dir(&lib).map_err(file_error("read", &lib))?;
    let found = versions.flatten().map(|entry| entry.path().join("site-packages"));
    found.filter(|path| path.is_dir()).min().ok_or_else(missing)
}

/// The editor's side of pyright.
pub struct Pyright {
    seed: u64,
    editor: Editor,
}

impl Pyright {
    pub fn new(load: Load) -> Pyright {
        let seed = Seeded::of(load.seed, &[80]).draw();
        Pyright { seed, editor: Editor::new("python", Diagnostics::Asked) }
    }
}

impl Program for Pyright {
    fn kind(&self) -> Kind {
        Kind::Pyright
    }

    fn command(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let script = cache::place("pyright", "pyright/node_modules/pyright/langserver.index.js")?;
        let node = Kind::Pyright.executable()?;
        Ok(vec![node.into(), script.into(), "--stdio".into()])
    }

    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let root = packages()?;
        let mut files = Vec::new();
        for package in OPENED {
            files.extend(source::files(&root.join(package), ".py", (3_000, 80_000))?);
        }
        // A directory without files: only what is opened is looked at, and what that imports.
        self.editor.begin(wire, &root.join("pandas/core"), files)?;
        for tab in 0..4 {
            pace()?;
            self.editor.prepare(&mut Seeded::of(self.seed, &[81, tab]))?;
            self.editor.visit(wire)?;
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        self.editor.prepare(&mut Seeded::of(self.seed, &[82, u64::from(visit)]))
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        self.editor.visit(wire)
    }

    fn goodbye(&mut self, wire: &mut Wire) {
        self.editor.goodbye(wire);
    }
}

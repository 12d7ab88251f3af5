//! clangd over the C sources that two crates bundle (libgit2, zstd): at each visit its user opens another
//! file, waits for what is wrong in it, and asks what stands there.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clew_core::Seeded;

use super::lsp::{Diagnostics, Editor};
use super::{Answers, Kind, Load, Program, cache, source};
use crate::error::{BenchError, file_error};
use crate::wire::Wire;

/// Flags for every file, one a line.
const FLAGS: &str = "-Ilibgit2-sys/libgit2/include\n-Ilibgit2-sys/libgit2/src/libgit2\n\
    -Ilibgit2-sys/libgit2/src/util\n-Izstd-sys/zstd/lib\n-I.\n-DZSTD_MULTITHREAD\n";
/// What a build of libgit2 would have found out.
const FEATURES: &str =
    "#define GIT_THREADS 1\n#define GIT_ARCH_64 1\n#define GIT_USE_STAT_MTIM 1\n";

/// The editor's side of clangd.
pub struct Clangd {
    seed: u64,
    editor: Editor,
}

impl Clangd {
    pub fn new(load: Load) -> Clangd {
        let seed = Seeded::of(load.seed, &[70]).draw();
        Clangd { seed, editor: Editor::new("c", Diagnostics::Published) }
    }
}

impl Program for Clangd {
    fn kind(&self) -> Kind {
        Kind::Clangd
    }

    /// Without an index of files that nobody opened: when it is ready, answers change.
    fn command(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let options = ["--background-index=false", "--pch-storage=memory", "--log=error", "-j=2"];
        let mut command = vec![Kind::Clangd.executable()?.into_os_string()];
        command.extend(options.map(OsString::from));
        Ok(command)
    }

    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let root = cache::place("clangd", "clangd/sources")?;
        for (name, text) in [("compile_flags.txt", FLAGS), ("git2_features.h", FEATURES)] {
            let path = root.join(name);
            fs::write(&path, text).map_err(file_error("write", &path))?;
        }
        let mut files = Vec::new();
        for below in ["libgit2-sys/libgit2/src", "zstd-sys/zstd/lib"] {
            files.extend(source::files(&root.join(below), ".c", (8_000, 200_000))?);
        }
        self.editor.begin(wire, &root, files)?;
        // A few files are open all day.
        for tab in 0..4 {
            pace()?;
            self.editor.prepare(&mut Seeded::of(self.seed, &[71, tab]))?;
            self.editor.visit(wire)?;
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        self.editor.prepare(&mut Seeded::of(self.seed, &[72, u64::from(visit)]))
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        self.editor.visit(wire)
    }

    fn goodbye(&mut self, wire: &mut Wire) {
        self.editor.goodbye(wire);
    }
}

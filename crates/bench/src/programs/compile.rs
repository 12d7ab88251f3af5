//! A compiler in front: a shell that compiles one large file at each visit. It wants fresh memory all
//! the time, and each of its processes lives for one file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answers, Kind, Program, cache};
use crate::error::BenchError;
use crate::wire::Wire;

const SCRIPT: &str = include_str!("compile.sh");

/// The shell's user.
#[derive(Default)]
pub struct Compile {
    scratch: std::cell::OnceCell<PathBuf>,
    request: String,
}

impl Program for Compile {
    fn kind(&self) -> Kind {
        Kind::Compile
    }

    fn command(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        Kind::Compile.executable()?;
        let _ = self.scratch.set(scratch.to_path_buf());
        Ok(["/bin/sh", "-c", SCRIPT].map(OsString::from).to_vec())
    }

    /// A compiler says nothing until it has done.
    fn patience(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn fill(
        &mut self,
        _wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        pace()
    }

    /// The first visit, which nobody measures, does not optimise.
    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        let level = if visit == 0 { "-O0" } else { "-O2" };
        let file = cache::place("compile", "sources/sources/libsqlite3-sys/sqlite3/sqlite3.c")?;
        let out = self.scratch.get().cloned().unwrap_or_default().join("sqlite3.o");
        self.request = format!("{level} {} {}\n", file.display(), out.display());
        Ok(())
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        wire.send(self.request.as_bytes())?;
        let mut said = Vec::new();
        wire.line(&mut said)?;
        let mut answers = Answers::default();
        match said.as_slice() {
            b"failed" => Err(wire.nonsense("no object file")),
            sum => {
                answers.see(sum);
                Ok(answers)
            }
        }
    }
}

//! What comes before any comparison: which programs are there, and whether they work.

use std::fs;
use std::path::Path;

use clew_report::Skipped;

use crate::error::{BenchError, file_error};
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::run::Work;
use crate::session::{Launch, Session};

/// The programs that are there; the others are named as missing.
pub fn installed(programs: &[Kind], skipped: &mut Vec<Skipped>) -> Result<Vec<Kind>, BenchError> {
    let mut there = Vec::new();
    let mut reason = None;
    for &kind in programs {
        match kind.executable() {
            Ok(_) => there.push(kind),
            Err(error) => {
                skipped.push(Skipped { name: kind.to_string(), reason: error.to_string() });
                reason = Some(error);
            }
        }
    }
    match reason {
        Some(error) if there.is_empty() => Err(error),
        _ => Ok(there),
    }
}

/// Every program runs once with little data, outside all groups: their code is in the page cache
/// then, charged to no arm, and a program that does not work here is noticed before the clock runs.
pub fn rehearse(work: &Work, scratch: &Path, progress: &dyn Progress) -> Result<(), BenchError> {
    progress.begin("rehearsal", work.programs.len() as u64);
    let scratch = scratch.join("rehearsal");
    fs::create_dir_all(&scratch).map_err(file_error("create", &scratch))?;
    let load = Load { data_bytes: 4 << 20, ..work.load };
    for &kind in &work.programs {
        let launch = Launch { scratch: scratch.clone(), ..Launch::default() };
        let mut session = Session::start(kind.with(load), &launch)?;
        session.fill(&crate::interrupt::check)?;
        session.prepare(0)?;
        session.visit()?;
        progress.step(kind.name());
    }
    progress.done(&format!("{} programs work here", work.programs.len()));
    Ok(())
}

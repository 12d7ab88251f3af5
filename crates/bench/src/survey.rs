//! What a relaunch of each program really touches: everything is paged out to a zram device, the
//! program is visited, and the kernel's page table tells which pages came back. From that the label
//! of its layout, how alike the sets of two relaunches are, and how much memory a relaunch uses.

use std::path::Path;
use std::time::Duration;

use clew_live::programs::advice::pidfd;
use clew_report::{Layout, Touched};

use crate::cgroup::Cgroup;
use crate::error::BenchError;
use crate::hint::advise_pages;
use crate::interrupt;
use crate::pagemap::{Snapshot, adjacent_share, intersection, page_bytes, runs};
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::session::{Launch, Session};
use crate::zram::ZramSwap;

/// Relaunches that are looked at.
const RELAUNCHES: u32 = 3;
/// From this share of neighbours on, a touched set is called clustered.
pub const CLUSTERED: f64 = 0.85;

/// Looks at each program alone, with as much memory as it wants.
pub fn survey(
    programs: &[Kind],
    load: Load,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Touched>, BenchError> {
    progress.begin("what relaunches touch", programs.len() as u64);
    let _zram = ZramSwap::start("lz4", (load.data_bytes * 8).next_multiple_of(4096))?;
    let group = Cgroup::create("survey")?;
    let mut all = Vec::new();
    for &program in programs {
        let launch = Launch {
            entrances: group.entrances(),
            launcher: Vec::new(),
            scratch: scratch.to_path_buf(),
        };
        let touched = of_program(program, load, &launch)?;
        progress.step(&format!("{program}: {}", touched.layout));
        all.push(touched);
    }
    progress.done(&format!("{} programs are labelled by what they touch", all.len()));
    Ok(all)
}

fn of_program(program: Kind, load: Load, launch: &Launch) -> Result<Touched, BenchError> {
    let mut session = Session::start(program.with(load), launch)?;
    session.fill(&interrupt::check)?;
    let mut sets: Vec<Vec<u64>> = Vec::new();
    let mut data_bytes = 0;
    // The first visit is a first time for much that later ones do again.
    for visit in 0..=RELAUNCHES {
        session.prepare(visit)?;
        let out = page_out(session.pid())?;
        session.visit()?;
        let after = look(session.pid())?;
        if visit > 0 {
            data_bytes = out.len() as u64 * page_bytes();
            sets.push(intersection(&out, &after.present));
        }
    }
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let adjacent_share = mean(sets.iter().map(|set| adjacent_share(set)).collect());
    let similar = |pair: &[Vec<u64>]| {
        intersection(&pair[1], &pair[0]).len() as f64 / pair[1].len().max(1) as f64
    };
    let run = |set: &Vec<u64>| set.len() as f64 / runs(set).len().max(1) as f64;
    Ok(Touched {
        program: program.to_string(),
        layout: if adjacent_share >= CLUSTERED { Layout::Clustered } else { Layout::Scattered },
        adjacent_share,
        run_pages: mean(sets.iter().map(run).collect()),
        touched_pages: mean(sets.iter().map(|set| set.len() as f64).collect()),
        data_bytes,
        similarity: mean(sets.windows(2).map(similar).collect()),
    })
}

fn look(pid: u32) -> Result<Snapshot, BenchError> {
    Snapshot::take(pid).map_err(|error| BenchError::Unavailable {
        what: "/proc/PID/pagemap",
        reason: error.to_string(),
    })
}

/// Pages everything of a process out; the pages that are out then.
fn page_out(pid: u32) -> Result<Vec<u64>, BenchError> {
    let refused = |error: std::io::Error| BenchError::Unavailable {
        what: "process_madvise",
        reason: error.to_string(),
    };
    let process = pidfd(pid).map_err(refused)?;
    // A page that is just being used by somebody stays; a second call finds it idle.
    for _ in 0..3 {
        let present = look(pid)?.present;
        advise_pages(&process, &present, libc::MADV_PAGEOUT).map_err(refused)?;
        interrupt::sleep(Duration::from_millis(20))?;
    }
    Ok(look(pid)?.swapped)
}

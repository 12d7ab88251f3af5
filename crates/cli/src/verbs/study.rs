//! `clew study`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clew_bench::cpu_time;
use clew_core::ByteSize;
use clew_lab::Memory;
use clew_lab::association::{self, Association, Way};

use super::compare::jobs;
use super::replay::{failure, open};
use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// What is studied.
#[derive(clap::Subcommand)]
pub enum Of {
    /// Which pages are used together, by what each way of knowing it saves: replays in which only what
    /// comes along with a fault differs.
    Association(Args),
}

/// The trace, and how it is replayed.
#[derive(clap::Args)]
pub struct Args {
    /// The trace. Best a recording with windows: then a return finds nothing in memory.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Memory for pages, pool and page tables: a size, or a share of what all pages take [default:
    /// 50%; of a recording with windows 200%].
    #[arg(long, value_name = "SIZE|PERCENT%")]
    budget: Option<Memory>,
    /// Replays at once; with more than one, learning is measured less well.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
}

/// `clew study`.
pub fn study(format: Format, of: Of) -> Result<(), Failure> {
    match of {
        Of::Association(args) => of_association(format, args),
    }
}

fn of_association(format: Format, args: Args) -> Result<(), Failure> {
    let (jobs, input) = (jobs(Some(args.jobs))?, open(&args.trace)?);
    let usual = if association::has_windows(&input) { 200.0 } else { 50.0 };
    let budget = args.budget.unwrap_or(Memory::Percent(usual));
    let bytes = budget.bytes(&input).map_err(failure)?;
    let each = input.trace.file_bytes();
    let bar = Bar::of_bytes("replaying", each * association::count() as u64);
    let done: Vec<AtomicU64> = (0..association::count()).map(|_| AtomicU64::new(0)).collect();
    let progress = |at: usize, so_far: u64, _| {
        done[at].store(so_far, Ordering::Relaxed);
        bar.at(done.iter().map(|done| done.load(Ordering::Relaxed)).sum());
    };
    let found = association::association(&input, bytes, jobs, cpu_time::this_thread, &progress);
    bar.end();
    let found = found.map_err(failure)?;
    match format {
        Format::Json => json(&found)?,
        Format::Text => tell(&found),
    }
    Ok(())
}

fn tell(found: &Association) {
    let header = ["ALONG", "FAULTS", "LEFT", "CAME", "USED", "LOADED/USED", "METADATA", "LEARNING"];
    say!("{}", table(&header, found.ways.iter().map(cells).collect()));
    let Association { trace, seconds, budget_bytes, footprint_bytes, windows, returns, .. } = found;
    let leaves = match windows {
        true => "everything of an app leaves where it did in the recording",
        false => "what the budget asks for leaves",
    };
    say!("{trace}: {seconds:.0} s, {returns} returns; {leaves}");
    let (budget, all) = (ByteSize(*budget_bytes), ByteSize(*footprint_bytes));
    say!("{budget} of memory for {all} of pages; LRU, LZ4, every page stored alone");
    say!("LEARNING is measured: processor time, and its part of the trace's time");
    for way in &found.ways {
        say!("  {:<17}  {}", way.name, way.about);
    }
}

fn cells(way: &Way) -> Vec<String> {
    let or = |value: Option<f64>, shown: &dyn Fn(f64) -> String| match value {
        Some(value) => shown(value),
        None => "-".to_string(),
    };
    let part = or(way.learning_part, &|part| format!(" ({:.2}%)", part * 100.0));
    vec![
        way.name.to_string(),
        way.faults.to_string(),
        or(way.faults_left, &|left| format!("{:.1}%", left * 100.0)),
        way.along_pages.to_string(),
        way.along_used.to_string(),
        or(way.loaded_for_used, &|ratio| format!("{ratio:.2}")),
        ByteSize(way.metadata_bytes).to_string(),
        format!("{:.0} ms{part}", way.learning_ms),
    ]
}

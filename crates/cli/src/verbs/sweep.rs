//! `clew sweep`.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::anyhow;
use clew_bench::time_slice;
use clew_core::ByteSize;
use clew_lab::Sweep;
use clew_lab::sweep::shard::{Shard, merge};
use clew_lab::sweep::{Row, Step, parquet};

use super::compare::jobs;
use super::replay::failure;
use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// What to sweep over.
#[derive(clap::Args)]
pub struct Args {
    /// What to replay: traces, schemes, budgets, parameters.
    #[arg(required_unless_present = "merge", conflicts_with = "merge")]
    file: Option<PathBuf>,
    /// Where rows, sweep.csv and sweep.json go [default: beside the file, named as it is].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replays at once; with measured time always one [default: the CPUs].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Only the I-th of N parts of it, on this machine or others; --merge puts them together.
    #[arg(long, value_name = "I/N", requires = "out", conflicts_with = "merge")]
    shard: Option<Shard>,
    /// Put what all shards left in DIR together, as sweep.csv and sweep.json there.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "jobs"])]
    merge: Option<PathBuf>,
    /// The same rows as a Parquet file.
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    parquet: Option<PathBuf>,
}

/// `clew sweep FILE.toml`, `clew sweep --merge DIR`.
pub fn sweep(format: Format, args: Args) -> Result<(), Failure> {
    let Args { file, out, jobs: threads, shard, merge: of_shards, parquet: as_parquet } = args;
    let (rows, kept, mut wrote) = match (file, of_shards) {
        (_, Some(out)) => (merge(&out).map_err(failure)?, 0, tables(&out)),
        (Some(file), None) => {
            let out = out.unwrap_or_else(|| file.with_extension("sweep"));
            let (rows, kept) = replay_rows(&file, &out, jobs(threads)?, shard)?;
            (rows, kept, if shard.is_none() { tables(&out) } else { Vec::new() })
        }
        (None, None) => return Err(Failure::Input(anyhow!("name a file, or --merge DIR"))),
    };
    if let Some(path) = as_parquet {
        parquet::write(&path, &rows).map_err(failure)?;
        wrote.push(path);
    }
    match format {
        Format::Json => json(&rows)?,
        Format::Text => {
            let header = [
                "TRACE",
                "SCHEME",
                "PARAMETERS",
                "BUDGET",
                "FLASH",
                "P50",
                "P95",
                "CPU MS",
                "RATIO",
                "FAULTS",
            ];
            say!("{}", table(&header, rows.iter().map(cells).collect()));
            say!("{} replays, {kept} of them found from before", rows.len());
            for path in wrote {
                say!("wrote {}", path.display());
            }
        }
    }
    Ok(())
}

fn tables(out: &Path) -> Vec<PathBuf> {
    ["sweep.csv", "sweep.json"].map(|name| out.join(name)).to_vec()
}

/// All rows, or those of a shard; and how many of them were found.
fn replay_rows(
    file: &Path,
    out: &Path,
    jobs: usize,
    shard: Option<Shard>,
) -> Result<(Vec<Row>, usize), Failure> {
    let sweep = Sweep::read(file).map_err(failure)?;
    if let Err(error) = time_slice::want_long() {
        tracing::debug!("slices of the usual length: {error}");
    }
    let bar = Bar::of_steps("replays", sweep.rows_of(shard) as u64);
    let found = Mutex::new(0);
    let progress = |step: Step<'_>| {
        if let Step::Done { rows, kept, .. } = step {
            bar.at(rows as u64);
            *found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = kept;
        }
    };
    let rows = match shard {
        Some(shard) => sweep.run_shard(shard, out, jobs, &progress),
        None => sweep.run(out, jobs, &progress),
    };
    bar.end();
    Ok((rows.map_err(failure)?, found.into_inner().unwrap_or_default()))
}

fn cells(row: &Row) -> Vec<String> {
    let outcome = &row.outcome;
    let parameters: Vec<String> =
        row.parameters.iter().map(|(path, value)| format!("{path}={value}")).collect();
    vec![
        row.trace.clone(),
        outcome.name.clone(),
        parameters.join(" "),
        row.budget.clone(),
        match row.flash_bytes {
            Some(bytes) => format!("{}, {} %", ByteSize(bytes), row.flash_used_pct),
            None => "-".to_string(),
        },
        format!("{:.2}", outcome.relaunch_ms.p50),
        format!("{:.2}", outcome.relaunch_ms.p95),
        outcome.swapping_cpu_ms.map_or("-".to_string(), |ms| format!("{ms:.1}")),
        outcome.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
        outcome.faults.to_string(),
    ]
}

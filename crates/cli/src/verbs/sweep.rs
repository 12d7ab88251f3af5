//! `clew sweep`.

use std::path::PathBuf;
use std::sync::Mutex;

use clew_core::ByteSize;
use clew_lab::Sweep;
use clew_lab::sweep::{Row, Step};

use super::compare::jobs;
use super::replay::failure;
use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// What to sweep over.
#[derive(clap::Args)]
pub struct Args {
    /// What to replay: traces, schemes, budgets, parameters.
    file: PathBuf,
    /// Where rows, sweep.csv and sweep.json go [default: beside the file, named as it is].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replays at once; with measured time always one [default: the CPUs].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// `clew sweep FILE.toml`.
pub fn sweep(format: Format, args: Args) -> Result<(), Failure> {
    let jobs = jobs(args.jobs)?;
    let sweep = Sweep::read(&args.file).map_err(failure)?;
    let out = args.out.unwrap_or_else(|| args.file.with_extension("sweep"));
    let bar = Bar::of_steps("replays", sweep.rows() as u64);
    let found = Mutex::new(0);
    let progress = |step: Step<'_>| {
        if let Step::Done { rows, kept, .. } = step {
            bar.at(rows as u64);
            *found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = kept;
        }
    };
    let rows = sweep.run(&out, jobs, &progress);
    bar.end();
    let rows = rows.map_err(failure)?;
    let kept = found.into_inner().unwrap_or_default();
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
            for name in ["sweep.csv", "sweep.json"] {
                say!("wrote {}", out.join(name).display());
            }
        }
    }
    Ok(())
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

//! `clew compare`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::anyhow;
use clew_lab::{compare as compare_schemes, report};
use clew_policy::{Scheme, schemes};
use clew_trace::write_whole;

use super::replay::{Options, failure, open, print_table, scheme};
use super::trace::writing;
use crate::Failure;
use crate::output::{Format, json_text};
use crate::progress::Bar;

/// What to compare.
#[derive(clap::Args)]
pub struct Args {
    /// The trace.
    trace: PathBuf,
    /// Presets or TOML files; all: every preset.
    #[arg(long, value_name = "NAME|FILE.toml,…", value_delimiter = ',', default_value = "all")]
    schemes: Vec<String>,
    #[command(flatten)]
    options: Options,
    /// Schemes replayed at once; with measured time always one [default: the CPUs].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where compare.json and compare.html go.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How many at once, if nobody says.
pub fn jobs(asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        Some(0) => Err(Failure::Input(anyhow!("--jobs 0: at least 1"))),
        Some(jobs) => Ok(jobs),
        None => Ok(std::thread::available_parallelism().map_or(1, |cpus| cpus.get())),
    }
}

fn chosen(names: &[String]) -> Result<Vec<Scheme>, Failure> {
    match names {
        [all] if all == "all" => Ok(schemes::all()),
        names => names.iter().map(|name| scheme(name)).collect(),
    }
}

/// `clew compare TRACE`.
pub fn compare(format: Format, args: Args) -> Result<(), Failure> {
    let (schemes, jobs) = (chosen(&args.schemes)?, jobs(args.jobs)?);
    let Some(first) = schemes.first().cloned() else {
        return Err(Failure::Input(anyhow!("--schemes names none")));
    };
    let input = open(&args.trace)?;
    let settings = args.options.settings(&input, first)?;
    let bytes = input.trace.file_bytes();
    let bar = Bar::of_bytes("replaying", bytes * schemes.len() as u64);
    let done: Vec<AtomicU64> = schemes.iter().map(|_| AtomicU64::new(0)).collect();
    let progress = |at: usize, bytes: u64, _: u64| {
        done[at].store(bytes, Ordering::Relaxed);
        bar.at(done.iter().map(|done| done.load(Ordering::Relaxed)).sum());
    };
    let compared = compare_schemes(&input, &schemes, &settings, jobs, &progress);
    bar.end();
    let compared = compared.map_err(failure)?;
    let text = report::json(&compared.outcomes).map_err(failure)?;
    let mut files = Vec::new();
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)
            .map_err(|error| anyhow!("cannot make {}: {error}", out.display()))?;
        for (name, text) in [("compare.json", &text), ("compare.html", &report::page(&compared))] {
            let path = out.join(name);
            write_whole(&path, text).map_err(|error| writing(&path, error))?;
            files.push(path);
        }
    }
    match format {
        Format::Json => json_text(&text),
        Format::Text => {
            print_table(&compared.outcomes);
            report::notes(&compared).iter().for_each(|note| say!("{note}"));
            files.iter().for_each(|path| say!("wrote {}", path.display()));
        }
    }
    Ok(())
}

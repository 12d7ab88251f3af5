//! `clew compare`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::anyhow;
use clew_lab::compare as compare_schemes;
use clew_policy::{Scheme, schemes};

use super::replay::{Options, failure, open, scheme};
use super::report::{tell, write};
use crate::Failure;
use crate::output::Format;
use crate::progress::Bar;

/// What to compare.
#[derive(clap::Args)]
pub struct Args {
    /// The trace.
    trace: PathBuf,
    /// Presets or TOML files; all: every preset (those that are nothing without flash or donors only with --flash
    /// or --donors).
    #[arg(long, value_name = "NAME|FILE.toml,…", value_delimiter = ',', default_value = "all")]
    schemes: Vec<String>,
    #[command(flatten)]
    options: Options,
    /// Schemes replayed at once; with measured time always one [default: the CPUs].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where compare.json, compare.html and compare.svg go.
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

fn chosen(names: &[String], options: &Options) -> Result<Vec<Scheme>, Failure> {
    match names {
        [all] if all == "all" => {
            let fits = |scheme: &Scheme| {
                // What some admit depends on what pages hold.
                let is_known = !options.policy_only() || !scheme.admission.about().rejects;
                is_known
                    && (options.has_flash() || !scheme.needs_flash())
                    && (options.has_donors() || !scheme.needs_donors())
            };
            Ok(schemes::all().into_iter().filter(fits).collect())
        }
        names => names.iter().map(|name| scheme(name)).collect(),
    }
}

/// `clew compare TRACE`.
pub fn compare(format: Format, args: Args) -> Result<(), Failure> {
    let (schemes, jobs) = (chosen(&args.schemes, &args.options)?, jobs(args.jobs)?);
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
    let files = write(&compared, args.out.as_deref(), "compare")?;
    tell(format, &compared, &files)
}

//! `clew bench`.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clew_bench::micro::{self, Cases, MicroConfig, mount::plain, table::table, worker};
use clew_bench::progress::Console;

use super::demo::failure;
use crate::Failure;
use crate::output::{Format, json};

/// What to measure, and how.
#[derive(clap::Args)]
pub struct Args {
    /// fault, fault-under-load, swap-out, restore, codec, idle, sensor, flash, donors, lottery, admission, density,
    /// mount, or all of them.
    #[arg(value_name = "CASE", required_unless_present_any = ["touch_worker", "plain_fuse"])]
    case: Option<Cases>,
    /// Repetitions, Clew and its peer in turn.
    #[arg(long, value_name = "N", default_value_t = 7)]
    repetitions: usize,
    /// Pages that are swapped.
    #[arg(long, value_name = "N", default_value_t = 25_600)]
    pages: u64,
    /// Seed of contents and of the order of touches.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where files are that are measured [default: the directory for temporary files].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Be the program that is measured: takes orders from standard input.
    #[arg(long, hide = true)]
    touch_worker: bool,
    /// Be the plain FUSE server that a mount is compared with: shows one file of the first directory at the second.
    #[arg(long, hide = true, num_args = 2)]
    plain_fuse: Option<Vec<PathBuf>>,
}

/// `clew bench CASE`.
pub fn bench(format: Format, args: Args) -> Result<(), Failure> {
    if args.touch_worker {
        return Ok(worker::work()?);
    }
    if let Some([directory, mount_point]) = args.plain_fuse.as_deref() {
        return Ok(plain::serve(directory, mount_point).context("serving a plain FUSE")?);
    }
    let own = std::env::current_exe().context("finding this program")?;
    let config = MicroConfig {
        repetitions: args.repetitions,
        pages: args.pages,
        seed: args.seed,
        dir: args.dir,
        ..MicroConfig::new(own)
    };
    let cases = args.case.map(|cases| cases.0).unwrap_or_default();
    let one = cases.len() == 1;
    let mut measured = Vec::new();
    let mut left_out = Vec::new();
    for case in cases {
        match micro::measure(case, &config, &Console::new()) {
            Ok(more) => measured.extend(more),
            Err(error) => match failure(error) {
                // Of all cases, those that can run do.
                Failure::Unfit(error) if !one => left_out.push(format!("{case}: {error}")),
                other => return Err(other),
            },
        }
    }
    for reason in &left_out {
        remark!("not run: {reason}");
    }
    if measured.is_empty() {
        return Err(Failure::Unfit(anyhow!("nothing could be measured")));
    }
    match format {
        Format::Json => json(&measured)?,
        Format::Text => say_part!("{}", table(&measured)),
    }
    Ok(())
}

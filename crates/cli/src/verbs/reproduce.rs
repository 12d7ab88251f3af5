//! `clew reproduce`.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clew_bench::interrupt::{self, InterruptGuard};
use clew_lab::reproduce::{Asked, Paper, reproduce as run};

use super::compare::jobs;
use super::replay::failure;
use crate::Failure;
use crate::output::{Format, json_text, table};
use crate::progress::Bar;

/// What to run again.
#[derive(clap::Args)]
pub struct Args {
    /// archer, ariadne, elasticzram or ezswap.
    paper: String,
    /// One figure or table only: 7, T2, or text for what the text measures [default: all].
    #[arg(long, value_name = "N")]
    figure: Option<String>,
    /// As small as it can be: to see that it runs, not for its numbers.
    #[arg(long)]
    quick: bool,
    /// A trace in place of the one that is generated as the paper's workload.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where traces, runs, claims and the page are kept; what is there is not run again [default:
    /// reproduce-PAPER].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replays at once [default: the CPUs].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// `clew reproduce PAPER`.
pub fn reproduce(format: Format, args: Args) -> Result<(), Failure> {
    let paper = Paper::named(&args.paper).map_err(failure)?;
    let directory = args.output.unwrap_or_else(|| format!("reproduce-{}", paper.name).into());
    let asked = Asked {
        paper,
        figure: args.figure.as_deref(),
        quick: args.quick,
        trace: args.trace.as_deref(),
        directory: &directory,
        jobs: jobs(args.jobs)?,
    };
    let bar = Bar::of_steps(paper.name, 1000);
    let _guard = InterruptGuard::new();
    let telling = |figure: &str, part: f64| {
        bar.about(format!("{} {figure}", paper.name));
        bar.at((part * 1000.0) as u64);
        match interrupt::check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let found = run(&asked, &telling);
    bar.end();
    let found = found.map_err(failure)?;
    let files = found.write(&directory).map_err(failure)?;
    match format {
        Format::Json => {
            json_text(&found.json().map_err(|error| Failure::Failed(error.into()))?);
        }
        Format::Text => {
            let header = ["FIGURE", "CLAIM", "PAPER", "HERE", "UNIT", "KIND", "HOLDS"];
            say!("{}", table(&header, found.rows().into_iter().map(Vec::from).collect()));
            for reason in found.reasons() {
                say!("{reason}");
            }
            say!("{}", found.verdict());
            files.iter().for_each(|path| say!("wrote {}", path.display()));
        }
    }
    Ok(())
}

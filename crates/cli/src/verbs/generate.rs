//! `clew gen`.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::anyhow;
use clew_bench::interrupt::{self, InterruptGuard};
use clew_trace::generate::profile::Profile;
use clew_trace::generate::{GenerateError, Workload, generate};
use clew_trace::{Draft, TraceError};

use super::trace::{show, writing};
use crate::Failure;
use crate::output::Format;
use crate::progress::Bar;

/// What to generate.
#[derive(clap::Args)]
pub struct Args {
    /// mobile-2025 (Ariadne: ten apps on a Pixel 7), mobile-2019 (ezswap: fourteen on 2 GB), archer (launches
    /// among 28 apps), archer-camera or archer-video (an app with bursts among eight), elasticzram (eight apps
    /// switched between, beside twenty others).
    profile: String,
    /// The trace.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Everything random follows from it: the same seed gives the same bytes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Another order of launches with the same apps.
    #[arg(long, value_name = "N", default_value_t = 0)]
    order: u64,
    /// Size of the apps, as a part of the real ones.
    #[arg(long, value_name = "PART", default_value_t = 1.0)]
    scale: f64,
    /// Relaunches go on, or end early, until there are so many records.
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// The first so many apps of the profile [default: 10, 14, 28, 9 and 9].
    #[arg(long, value_name = "N")]
    apps: Option<usize>,
    /// Leave out what pages hold.
    #[arg(long)]
    no_contents: bool,
}

/// `clew gen PROFILE`.
pub fn gen_trace(format: Format, args: Args) -> Result<(), Failure> {
    let profile = Profile::named(&args.profile).ok_or_else(|| {
        let names: Vec<&str> = Profile::ALL.iter().map(|profile| profile.name).collect();
        Failure::Input(anyhow!("no profile '{}', but {}", args.profile, names.join(", ")))
    })?;
    let mut workload = Workload::new(profile, args.seed);
    workload.order = args.order;
    workload.scale = args.scale;
    workload.events = args.events;
    workload.apps = args.apps.unwrap_or(workload.apps);
    workload.contents = !args.no_contents;
    workload.check().map_err(|error| Failure::Input(anyhow!("--{error}")))?;
    let output = args.output;
    let draft = Draft::new(&output, false).map_err(|error| writing(&output, error))?;
    let bar = Bar::of_parts("generating");
    let _guard = InterruptGuard::new();
    let mut progress = |part: f64| {
        bar.at((part * 100.0) as u64);
        match interrupt::check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let generated = generate(&workload, draft, &mut progress);
    let (draft, totals) = generated.map_err(|error| match error {
        GenerateError::Trace(TraceError::Write { source, .. }) => writing(&output, source),
        GenerateError::Interrupted => writing(&output, io::ErrorKind::Interrupted.into()),
        error => Failure::Failed(error.into()),
    })?;
    draft.commit().map_err(|error| writing(&output, error))?;
    bar.end();
    let bytes = output.metadata().map_or(0, |metadata| metadata.len());
    show(format, &workload.header(), &totals, bytes, &format!("wrote {}", output.display()))
}

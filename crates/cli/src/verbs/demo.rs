//! `clew demo`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use clew_bench::arms::ArmKind;
use clew_bench::progress::Console;
use clew_bench::{BenchError, DemoConfig, DemoResult, report};
use clew_core::ByteSize;

use crate::Failure;
use crate::output::Format;

/// What to compare, and where the report goes.
#[derive(clap::Args)]
pub struct Args {
    /// The settings that end within three minutes on two CPUs: the default, said aloud.
    #[arg(long, conflicts_with_all = ["switches", "fraction", "total"])]
    quick: bool,
    /// Where demo.json, demo.html and demo.svg go.
    #[arg(long, value_name = "DIR", default_value = "clew-demo")]
    out: PathBuf,
    /// Memory of the arms, as a part of what the programs use without a limit [default: 0.6].
    #[arg(long, value_name = "PART", conflicts_with = "total")]
    fraction: Option<f64>,
    /// Memory of the arms.
    #[arg(long, value_name = "SIZE")]
    total: Option<ByteSize>,
    /// Measured switches of each arm [default: 32].
    #[arg(long, value_name = "N")]
    switches: Option<usize>,
    /// Seed of data, queries and the sequence of switches.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Arms to run: dram, kernel-zram, clew [default: all].
    #[arg(long, value_name = "ARM,…", value_delimiter = ',')]
    arms: Vec<ArmKind>,
    /// Scheme of the clew arm: a preset's name, or a TOML file.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "zram")]
    scheme: String,
}

/// `clew demo`.
pub fn demo(format: Format, args: Args) -> Result<(), Failure> {
    clew_live::config::load_scheme(&args.scheme).map_err(|e| Failure::Input(e.into()))?;
    let own = std::env::current_exe().context("finding this program")?;
    let defaults = DemoConfig::default();
    let config = DemoConfig {
        commit: commit_of(&own),
        clew_exe: Some(own),
        clew_scheme: absolute_scheme(&args.scheme),
        total_fraction: args.fraction.unwrap_or(defaults.total_fraction),
        total_bytes: args.total.map(|total| total.0),
        switches: args.switches.unwrap_or(defaults.switches),
        seed: args.seed,
        arms: if args.arms.is_empty() { defaults.arms.clone() } else { args.arms },
        ..defaults
    };
    let result = clew_bench::demo(&config, &Console::new()).map_err(failure)?;
    if result.arms.is_empty() {
        return Err(Failure::Unfit(anyhow!("no arm could run{}", reasons(&result))));
    }
    let files = report::write_all(&result, &args.out)?;
    match format {
        Format::Json => println!("{}", report::json(&result)?),
        Format::Text => {
            print!("{}", report::table(&result));
            println!();
            for path in &files {
                println!("wrote {}", path.display());
            }
        }
    }
    match result.wrong_answers() {
        0 => Ok(()),
        wrong => Err(Failure::Failed(anyhow!("{wrong} answers were wrong"))),
    }
}

/// What kind of failure an error of a benchmark is. Its text names its causes itself.
pub fn failure(error: BenchError) -> Failure {
    let text = anyhow!("{error}");
    match error {
        BenchError::Setting(_) => Failure::Input(text),
        BenchError::Unavailable { .. } | BenchError::ProgramMissing { .. } => Failure::Unfit(text),
        BenchError::File { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Failure::Unfit(text.context("run this as root"))
        }
        _ => Failure::Failed(text),
    }
}

fn reasons(result: &DemoResult) -> String {
    result.skipped.iter().map(|one| format!("\n  {}: {}", one.name, one.reason)).collect()
}

/// The daemon runs in another directory than we do.
fn absolute_scheme(scheme: &str) -> String {
    match Path::new(scheme).canonicalize() {
        Ok(path) if scheme.ends_with(".toml") => path.display().to_string(),
        _ => scheme.to_string(),
    }
}

/// The commit that `own` was built from, if it lies in its work tree.
fn commit_of(own: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(own.parent()?)
        .args(["rev-parse", "--short", "HEAD"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

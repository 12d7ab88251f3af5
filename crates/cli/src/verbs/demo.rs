//! `clew demo`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, anyhow};
use clew_bench::arms::{Ablation, ArmKind};
use clew_bench::programs::Kind;
use clew_bench::progress::Console;
use clew_bench::scenario::{growth_sheet, sheet};
use clew_bench::{BenchError, DemoConfig, Scenario, ScenarioConfig};
use clew_core::ByteSize;
use clew_report::{Results, Skipped};

use super::report::{tell, write};
use crate::Failure;
use crate::output::{Format, json_text};

/// What to compare, and where the report goes.
#[derive(clap::Args)]
pub struct Args {
    /// What is done: `scatter`, synthetic requests drawn at random, the worst case for whoever
    /// learns from what was; or natural programs: `return`, in turn, `pressure`, beside one that
    /// works in front, `growth`, one more after the other. Natural ones need `make scenarios` once.
    #[arg(long, value_name = "NAME", default_value = "scatter")]
    scenario: Which,
    /// The settings that end within three minutes on two CPUs: the default, said aloud.
    #[arg(long, conflicts_with_all = ["switches", "fraction", "total", "full"])]
    quick: bool,
    /// All arms at several totals and similarities, with intervals: about an hour. What is finished
    /// is kept in the results' directory, and the same command goes on from there.
    #[arg(long, conflicts_with_all = ["switches", "fraction", "total"])]
    full: bool,
    /// Where the results go [default: clew-demo, with --full clew-demo-full].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Memory of the arms, as a part of what the programs use without a limit [default: 0.6; of
    /// natural programs 0.5].
    #[arg(long, value_name = "PART", conflicts_with = "total")]
    fraction: Option<f64>,
    /// Memory of the arms.
    #[arg(long, value_name = "SIZE")]
    total: Option<ByteSize>,
    /// Measured switches of each arm [default: 32; of natural programs by scenario].
    #[arg(long, value_name = "N")]
    switches: Option<usize>,
    /// Seed of data, queries and the sequence of switches.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Arms to run [default: dram, kernel-zram, clew; with --full all].
    #[arg(long, value_name = "ARM,…", value_delimiter = ',')]
    arms: Vec<ArmKind>,
    /// Programs [default: redis, python, node, sqlite; with --full all; those of a scenario].
    #[arg(long, value_name = "PROGRAM,…", value_delimiter = ',')]
    programs: Vec<Kind>,
    /// Scheme of the clew arm: a preset's name, or a TOML file.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "clew")]
    scheme: String,
    #[command(flatten)]
    of_full: OfFull,
}

/// What `--scenario` names.
#[derive(Clone, Copy, Debug)]
enum Which {
    Scatter,
    Natural(Scenario),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        let names = Scenario::ALL.map(Scenario::name).join(", ");
        match text {
            "scatter" => Ok(Which::Scatter),
            other => other
                .parse()
                .map(Which::Natural)
                .map_err(|_: BenchError| format!("there are scatter, {names}")),
        }
    }
}

/// What only the full comparison knows.
#[derive(clap::Args)]
#[command(next_help_heading = "With --full")]
struct OfFull {
    /// Ariadne without each of its mechanisms too, at the base point.
    #[arg(long, requires = "full")]
    ablations: bool,
    /// Memory of the arms, in percent of what the programs use without a limit; the first one is
    /// the base point's [default: 50,40,60,75].
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', requires = "full")]
    totals: Vec<f64>,
    /// How much of a working set is the same each time, in percent; the first one is the base
    /// point's [default: 70,0,30,95].
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', requires = "full")]
    similarity: Vec<f64>,
    /// Measured relaunches of each arm at each point [default: 112].
    #[arg(long, value_name = "N", requires = "full")]
    relaunches: Option<usize>,
    /// Rounds among which they are divided, each with data of its own and another order of arms
    /// [default: 2].
    #[arg(long, value_name = "N", requires = "full")]
    rounds: Option<usize>,
    /// Data of each program [default: 112MiB].
    #[arg(long, value_name = "SIZE", requires = "full")]
    data: Option<ByteSize>,
    /// Run nothing: only report what is finished.
    #[arg(long, requires = "full")]
    report: bool,
}

/// `clew demo`.
pub fn demo(format: Format, args: Args) -> Result<(), Failure> {
    clew_live::config::load_scheme(&args.scheme).map_err(|e| Failure::Input(e.into()))?;
    if args.total.is_some_and(|total| total.0 == 0) {
        return Err(Failure::Input(anyhow!("--total 0: no arm could run in that")));
    }
    let own = std::env::current_exe().context("finding this program")?;
    if let Which::Natural(scenario) = args.scenario {
        return natural(format, args, scenario, own);
    }
    let (name, place) = if args.full { ("full", "clew-demo-full") } else { ("demo", "clew-demo") };
    let out = args.out.unwrap_or_else(|| place.into());
    let defaults = match args.full {
        true => DemoConfig::full(out.join("runs")),
        false => DemoConfig::default(),
    };
    let asked = args.of_full;
    let mut arms = or(args.arms, defaults.arms.clone());
    if asked.ablations {
        arms.extend(Ablation::ALL.map(ArmKind::Without));
    }
    let parts = |percents: Vec<f64>| percents.into_iter().map(|percent| percent / 100.0).collect();
    let totals = or(args.fraction.into_iter().collect(), parts(asked.totals));
    let config = DemoConfig {
        commit: commit_of(&own),
        clew_exe: Some(own),
        clew_scheme: absolute_scheme(&args.scheme),
        totals: or(totals, defaults.totals.clone()),
        total_bytes: args.total.map(|total| total.0),
        similarities: or(parts(asked.similarity), defaults.similarities.clone()),
        arms,
        relaunches: asked.relaunches.or(args.switches).unwrap_or(defaults.relaunches),
        rounds: asked.rounds.unwrap_or(defaults.rounds),
        programs: or(args.programs, defaults.programs.clone()),
        data_bytes: asked.data.map_or(defaults.data_bytes, |data| data.0),
        // Less data, smaller relaunches.
        headroom_bytes: asked.data.map_or(defaults.headroom_bytes, |data| {
            (data.0 as f64 / defaults.data_bytes as f64 * defaults.headroom_bytes as f64) as u64
        }),
        seed: args.seed,
        only_finished: asked.report,
        ..defaults
    };
    let result = clew_bench::demo(&config, &Console::new()).map_err(|error| {
        match (error, &config.kept_in) {
            (BenchError::Interrupted, Some(directory)) => Failure::Failed(anyhow!(
                "interrupted; what is finished is kept in {}: the same command goes on from there, \
             and with --report it only reports",
                directory.display()
            )),
            (other, _) => failure(other),
        }
    })?;
    if result.is_empty() {
        return Err(Failure::Unfit(anyhow!("no arm could run{}", reasons(&result.skipped))));
    }
    let files = write(&result, Some(&out), name)?;
    tell(format, &result, &files)?;
    right_answers(&result)
}

/// `clew demo --scenario`.
fn natural(format: Format, args: Args, scenario: Scenario, own: PathBuf) -> Result<(), Failure> {
    if args.full || args.quick {
        return Err(Failure::Input(anyhow!("--full and --quick are for scenario scatter only")));
    }
    let defaults = ScenarioConfig::new(scenario);
    let config = ScenarioConfig {
        commit: commit_of(&own),
        clew_exe: Some(own),
        clew_scheme: absolute_scheme(&args.scheme),
        arms: or(args.arms, defaults.arms.clone()),
        programs: args.programs,
        fraction: args.fraction.unwrap_or(defaults.fraction),
        total_bytes: args.total.map(|total| total.0),
        returns: args.switches,
        seed: args.seed,
        ..defaults
    };
    let out = args.out.unwrap_or_else(|| "clew-demo".into());
    let (sheet, json, wrong) = if scenario == Scenario::Growth {
        let result = clew_bench::growth(&config, &Console::new()).map_err(failure)?;
        (growth_sheet(&result), clew_report::json(&result), result.wrong_answers())
    } else {
        let result = clew_bench::scenario(&config, &Console::new()).map_err(failure)?;
        if result.parts.is_empty() {
            return Err(Failure::Unfit(anyhow!("no part could run{}", reasons(&result.skipped))));
        }
        (sheet(&result), clew_report::json(&result), result.wrong_answers())
    };
    let failed = |error| Failure::Failed(anyhow!("{error}"));
    let json = json.map_err(failed)?;
    let files =
        clew_report::write_sheet(json.clone(), &sheet, &out, scenario.name()).map_err(failed)?;
    match format {
        Format::Json => json_text(&json),
        Format::Text => {
            say_part!("{}", sheet.text());
            files.iter().for_each(|path| say!("wrote {}", path.display()));
        }
    }
    all_right(wrong)
}

/// What was asked for, or else the default.
fn or<T>(asked: Vec<T>, default: Vec<T>) -> Vec<T> {
    if asked.is_empty() { default } else { asked }
}

/// An error if any answer was wrong.
pub fn right_answers(result: &Results) -> Result<(), Failure> {
    all_right(result.wrong_answers())
}

fn all_right(wrong: u64) -> Result<(), Failure> {
    match wrong {
        0 => Ok(()),
        wrong => Err(Failure::Failed(anyhow!("{wrong} answers were wrong"))),
    }
}

/// What kind of failure an error of a benchmark is. Its text names its causes itself.
pub fn failure(error: BenchError) -> Failure {
    let text = anyhow!("{error}");
    match error {
        BenchError::Setting(_) => Failure::Input(text),
        BenchError::Unavailable { .. }
        | BenchError::ProgramMissing { .. }
        | BenchError::NotFetched { .. } => Failure::Unfit(text),
        BenchError::File { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Failure::Unfit(text.context("run this as root"))
        }
        _ => Failure::Failed(text),
    }
}

/// What did not run, and why.
pub fn reasons(skipped: &[Skipped]) -> String {
    skipped.iter().map(|one| format!("\n  {}: {}", one.name, one.reason)).collect()
}

/// The daemon runs in another directory than we do.
pub fn absolute_scheme(scheme: &str) -> String {
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

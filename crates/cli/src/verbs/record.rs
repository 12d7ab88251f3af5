//! `clew record`: a daemon that writes down what it is told and decides, and programs for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clew_bench::arms::ArmKind;
use clew_bench::interrupt::InterruptGuard;
use clew_bench::programs::Kind;
use clew_bench::progress::Console;
use clew_bench::scratch::Scratch;
use clew_bench::{DemoConfig, Scenario, ScenarioConfig};
use clew_core::ByteSize;
use clew_live::config::Recording;
use clew_live::control::client::Client;
use clew_live::control::protocol::Request;
use clew_live::survival::predecessor::ProcessName;
use clew_report::text;
use clew_trace::{ContentsKind, Trace};
use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::demo::{absolute_scheme, failure, reasons, right_answers};
use super::started::{ROUND, Signals};
use super::trace::{reading, show};
use crate::Failure;
use crate::output::Format;

/// What is written down of pages that leave their program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Contents {
    /// Nothing.
    None,
    /// How each compresses, and which are equal.
    Stats,
    /// All of it, whatever secrets it holds.
    Bytes,
}

/// What a recording daemon is told.
#[derive(clap::Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordArgs {
    /// Write a trace of what is told and decided. It gets its name when the daemon ends; of a daemon
    /// that is killed there is none.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// What is written down of pages that leave. Memory holds secrets: with bytes they are in the
    /// trace, which only its owner may read.
    #[arg(long, value_name = "WHAT", default_value = "stats", requires = "record")]
    record_contents: Contents,
    /// Take everything out every so many seconds, and whenever an app goes to the background, so
    /// that each first access in between is seen. Programs are slower then.
    #[arg(long, value_name = "SECONDS", requires = "record")]
    record_windows: Option<f64>,
    /// Also write down which pages of files programs read and map (root, Linux 6.11).
    #[arg(long, requires = "record")]
    record_files: bool,
    /// Something to remember in the trace.
    #[arg(long, value_name = "NAME=TEXT", hide = true, requires = "record")]
    record_note: Vec<String>,
}

impl RecordArgs {
    /// What is recorded, if anything.
    pub fn recording(self) -> Result<Option<Recording>, Failure> {
        let Some(file) = self.record else { return Ok(None) };
        let mut notes = BTreeMap::new();
        for note in &self.record_note {
            let (name, text) = note.split_once('=').unwrap_or(("note", note));
            notes.insert(name.to_string(), text.to_string());
        }
        let contents = match self.record_contents {
            Contents::None => ContentsKind::None,
            Contents::Stats => ContentsKind::Stats,
            Contents::Bytes => ContentsKind::Bytes,
        };
        let windows = self.record_windows.map(window).transpose()?;
        Ok(Some(Recording { file, contents, windows, files: self.record_files, notes }))
    }
}

fn window(seconds: f64) -> Result<Duration, Failure> {
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err(Failure::Input(anyhow!("a window has 0.01 to 86400 seconds, not {seconds}")));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// What to record, and where to.
#[derive(clap::Args)]
pub struct Args {
    /// The trace.
    #[arg(short, long, value_name = "FILE", default_value = "record.trace")]
    output: PathBuf,
    /// What is written down of pages that leave. Memory holds secrets (keys, passwords, letters):
    /// with bytes they are in the trace, which only its owner may read.
    #[arg(long, value_name = "WHAT", default_value = "stats")]
    contents: Contents,
    /// Take everything out every so many seconds, and whenever an app goes to the background, so
    /// that each first access in between is seen. Programs are slower then. 0: take out only what
    /// the budget asks for [default: 1; with --demo 0].
    #[arg(long, value_name = "SECONDS")]
    windows: Option<f64>,
    /// Also write down which pages of files the programs read and map, and what these hold (root, Linux 6.11): for
    /// schemes that keep pages of files, too, such as ezswap. With windows mappings of files are taken from programs
    /// as well.
    #[arg(long)]
    files: bool,
    /// Scheme of the daemon: a preset's name, or a TOML file. One that prefetches hides accesses.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "zram")]
    scheme: String,
    /// Budget of the daemon [default: half the memory].
    #[arg(long, value_name = "SIZE", conflicts_with = "demo")]
    budget: Option<ByteSize>,
    /// Name of the app [default: the program's file name].
    #[arg(long, value_name = "NAME", conflicts_with = "demo")]
    app: Option<String>,
    /// Record the programs of `clew demo`, as its clew arm runs them (root).
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    of_demo: OfDemo,
    /// The program and its arguments. It is in front; `clew --socket PATH bg APP`, with the path
    /// that is said at the beginning, says otherwise.
    #[arg(last = true, required_unless_present = "demo", conflicts_with = "demo")]
    command: Vec<OsString>,
}

/// What only the demo knows.
#[derive(clap::Args)]
#[command(next_help_heading = "With --demo")]
struct OfDemo {
    /// Natural programs in place of synthetic ones: return. With windows everything of a
    /// program has left before it returns, so that a return shows each page that it touches.
    #[arg(long, value_name = "NAME", requires = "demo")]
    scenario: Option<Scenario>,
    /// Memory, as a part of what the programs use without a limit [default: 0.6].
    #[arg(long, value_name = "PART", conflicts_with = "total")]
    fraction: Option<f64>,
    /// Memory.
    #[arg(long, value_name = "SIZE")]
    total: Option<ByteSize>,
    /// Switches [default: 32].
    #[arg(long, value_name = "N")]
    switches: Option<usize>,
    /// Seed of data, queries and the sequence of switches [default: 1].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Programs [default: redis, python, node, sqlite; those of a scenario].
    #[arg(long, value_name = "PROGRAM,…", value_delimiter = ',')]
    programs: Vec<Kind>,
}

/// How long a program of a scenario is away at least: so long takes what it has to leave.
const AWAY: Duration = Duration::from_secs(4);

/// `clew record`.
pub fn record(format: Format, args: Args) -> Result<(), Failure> {
    clew_live::config::load_scheme(&args.scheme).map_err(|e| Failure::Input(e.into()))?;
    let OfDemo { scenario: _, fraction, total, switches, seed, programs } = &args.of_demo;
    let of_demo = (fraction.is_some(), total.is_some(), switches.is_some(), seed.is_some());
    if !args.demo && (of_demo != (false, false, false, false) || !programs.is_empty()) {
        let why = "--fraction, --total, --switches, --seed and --programs are for --demo";
        return Err(Failure::Input(anyhow!(why)));
    }
    let output = absolute(&args.output)?;
    // The trace gets its name at the very end: what cannot be written is to be known now.
    drop(clew_trace::Draft::new(&output, true).map_err(|e| super::trace::writing(&output, e))?);
    let before = modified(&output);
    let windows = args.windows.unwrap_or(if args.demo { 0.0 } else { 1.0 });
    let mut options: Vec<OsString> = vec!["--record".into(), output.clone().into()];
    let contents = match args.contents {
        Contents::None => "none",
        Contents::Stats => "stats",
        Contents::Bytes => "bytes",
    };
    options.extend(["--record-contents".into(), contents.into()]);
    if args.files {
        options.push("--record-files".into());
    }
    if windows != 0.0 {
        window(windows)?;
        options.extend(["--record-windows".into(), windows.to_string().into()]);
    }
    let status = match args.demo {
        true => match args.of_demo.scenario {
            Some(scenario) => natural(args, scenario, windows, options).map(|()| 0)?,
            None => demo(args, options).map(|()| 0)?,
        },
        false => program(args, options)?,
    };
    if modified(&output) == before {
        return Err(Failure::Failed(anyhow!("the daemon wrote no trace")));
    }
    let trace = Trace::open(&output).map_err(|error| reading(&output, error))?;
    let outcome = format!("wrote {}", output.display());
    show(format, trace.header(), trace.totals(), trace.file_bytes(), &outcome)?;
    if status == 0 { Ok(()) } else { Err(Failure::Said(status)) }
}

/// The daemon runs in another directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    Ok(std::path::absolute(path).with_context(|| path.display().to_string())?)
}

fn modified(path: &Path) -> Option<(u64, std::time::SystemTime)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = path.metadata().ok()?;
    Some((metadata.ino(), metadata.modified().ok()?))
}

/// Natural programs, as the clew arm of their scenario runs them, after the same in memory.
fn natural(
    args: Args,
    scenario: Scenario,
    windows: f64,
    mut options: Vec<OsString>,
) -> Result<(), Failure> {
    // A trace is of one daemon: the others have none that returns, or several parts.
    if scenario != Scenario::Return {
        return Err(Failure::Input(anyhow!("of {scenario} nothing is recorded: there is return")));
    }
    options.extend([
        "--record-note".into(),
        format!("command=clew demo --scenario {scenario}").into(),
    ]);
    let OfDemo { scenario: _, fraction, total, switches, seed, programs } = args.of_demo;
    let defaults = ScenarioConfig::new(scenario);
    let config = ScenarioConfig {
        clew_exe: Some(std::env::current_exe().context("finding this program")?),
        clew_scheme: absolute_scheme(&args.scheme),
        daemon_options: options,
        arms: vec![ArmKind::Clew],
        programs,
        fraction: fraction.unwrap_or(defaults.fraction),
        total_bytes: total.map(|total| total.0),
        returns: switches,
        seed: seed.unwrap_or(defaults.seed),
        pause: if windows > 0.0 { AWAY } else { defaults.pause },
        ..defaults
    };
    let result = clew_bench::scenario(&config, &Console::new()).map_err(failure)?;
    let ran = result.parts.iter().flat_map(|part| &part.arms);
    if !ran.clone().any(|arm| arm.name == ArmKind::Clew.name()) {
        let reasons = reasons(&result.skipped);
        return Err(Failure::Unfit(anyhow!("nothing could be recorded{reasons}")));
    }
    match result.wrong_answers() {
        0 => Ok(()),
        wrong => Err(Failure::Failed(anyhow!("{wrong} wrong answers"))),
    }
}

fn demo(args: Args, mut options: Vec<OsString>) -> Result<(), Failure> {
    let OfDemo { scenario: _, fraction, total, switches, seed, programs } = args.of_demo;
    let defaults = DemoConfig::default();
    options.extend(["--record-note".into(), "command=clew demo".into()]);
    let config = DemoConfig {
        clew_exe: Some(std::env::current_exe().context("finding this program")?),
        clew_scheme: absolute_scheme(&args.scheme),
        daemon_options: options,
        totals: fraction.map_or(defaults.totals.clone(), |part| vec![part]),
        total_bytes: total.map(|total| total.0),
        relaunches: switches.unwrap_or(defaults.relaunches),
        seed: seed.unwrap_or(defaults.seed),
        programs: if programs.is_empty() { defaults.programs.clone() } else { programs },
        // How much the programs need is found out without a limit.
        arms: match total {
            Some(_) => vec![ArmKind::Clew],
            None => vec![ArmKind::Dram, ArmKind::Clew],
        },
        ..defaults
    };
    let result = clew_bench::demo(&config, &Console::new()).map_err(failure)?;
    if result.at(result.base(), ArmKind::Clew.name()).is_none() {
        let reasons = reasons(&result.skipped);
        return Err(Failure::Unfit(anyhow!("nothing could be recorded{reasons}")));
    }
    remark!("{}", text(&result).trim_end());
    right_answers(&result)
}

/// Runs the program under a daemon of its own; answers its exit code.
fn program(args: Args, options: Vec<OsString>) -> Result<u8, Failure> {
    if let Some(missing) = clew_live::doctor::first_missing() {
        return Err(Failure::Unfit(anyhow!("{missing} ('clew doctor' says more)")));
    }
    super::run::find_program(&args.command[0]).map_err(Failure::NotFound)?;
    let app = match args.app {
        Some(app) => app,
        None => {
            let name = Path::new(&args.command[0]).file_name().unwrap_or_default();
            name.to_string_lossy().chars().take(30).collect()
        }
    };
    let scratch = Scratch::new("clew-record-").map_err(failure)?;
    let own = std::env::current_exe().context("finding this program")?;
    let socket = scratch.path().join("clew.sock");
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let mut daemon = Command::new(&own);
    daemon.arg("daemon").arg("--socket").arg(&socket);
    daemon.arg("--scheme").arg(absolute_scheme(&args.scheme));
    if let Some(budget) = args.budget {
        daemon.args(["--budget".to_string(), budget.0.to_string()]);
    }
    daemon.args(options);
    // Whatever becomes of this process.
    let own_name = ProcessName::of(std::process::id()).context("finding this process")?;
    daemon.args(["--recorder".to_string(), own_name.to_string()]);
    daemon.args(["--record-note".to_string(), format!("command={}", words.join(" "))]);
    // Ctrl-C is for the program: the daemon ends after it.
    let _interrupts = InterruptGuard::new();
    let signals = Signals::heed(&[SIGTERM, SIGHUP])?;
    let mut daemon = Daemon::start(daemon, &socket, scratch.path())?;
    remark!("clew: recording; 'clew --socket {} bg {app}' and fg", socket.display());
    let mut command = Command::new(&own);
    command.arg("run").arg("--socket").arg(&socket);
    command.args(["--app", &app, "--"]).args(&args.command);
    let mut child = command.spawn().context("starting the program")?;
    daemon.bring_to_front(&app, &mut child);
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for the program")? {
            break status;
        }
        signals.pass_on(Pid::from_child(&child));
        std::thread::sleep(ROUND);
    };
    daemon.stop()?;
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    Ok(status.code().or(signal).unwrap_or(1) as u8)
}

/// The daemon that records.
struct Daemon {
    child: Child,
    client: Client,
    said: PathBuf,
}

impl Daemon {
    fn start(mut command: Command, socket: &Path, scratch: &Path) -> Result<Daemon, Failure> {
        use std::os::unix::process::CommandExt;
        let said = scratch.join("daemon.stderr");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said)?)
            .process_group(0)
            .spawn()
            .context("starting the daemon")?;
        let began = Instant::now();
        loop {
            if let Ok(mut client) = Client::connect(socket)
                && client.status().is_ok()
            {
                return Ok(Daemon { child, client, said });
            }
            if let Some(status) = child.try_wait()? {
                let code = status.code().unwrap_or(1);
                let error = reason(&last_words(&said));
                return Err(match code {
                    2 => Failure::Input(error),
                    3 => Failure::Unfit(error),
                    _ => Failure::Failed(error),
                });
            }
            if began.elapsed() > Duration::from_secs(15) {
                let _ = child.kill();
                return Err(Failure::Failed(anyhow!("the daemon did not come up")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As soon as the daemon knows it.
    fn bring_to_front(&mut self, app: &str, program: &mut Child) {
        while self.client.order(&Request::Fg { app: app.to_string() }).is_err() {
            if !matches!(program.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it, so that the trace gets its name.
    fn stop(mut self) -> Result<(), Failure> {
        self.client.order(&Request::Stop)?;
        let status = self.child.wait().context("waiting for the daemon")?;
        let words = last_words(&self.said);
        if !status.success() {
            return Err(Failure::Failed(reason(&words)));
        }
        // It says what it could not keep up with.
        let lost = words.lines().filter(|line| line.contains("could not keep up"));
        lost.for_each(|line| remark!("clew: {line}"));
        Ok(())
    }
}

impl Drop for Daemon {
    /// After a failure it ends by itself, as when it is told to: no page is lost.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.client.order(&Request::Stop);
            let _ = self.child.wait();
        }
    }
}

/// Why it has ended: what it said last, and not that it began.
fn reason(words: &str) -> anyhow::Error {
    let last = words.lines().next_back().unwrap_or(words);
    anyhow!("{}", last.strip_prefix("clew: ").unwrap_or(last))
}

fn last_words(said: &Path) -> String {
    let mut text = String::new();
    if let Ok(file) = File::open(said) {
        let _ = file.take(64 << 10).read_to_string(&mut text);
    }
    match text.trim() {
        "" => "the daemon ended without a word".to_string(),
        text => text.to_string(),
    }
}

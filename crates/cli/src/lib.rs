//! The `clew` command, one file a verb. It is a library so that a command with more policies
//! ([`clew_policy::schemes::Registry::install`]) is a `main` of two lines.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line or a file makes no sense, 3 privileges or
//! kernel features are missing. `clew run` ends as the program that it runs, or with 127 if there
//! is none of that name.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

mod log;
#[macro_use]
mod output;
mod progress;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand, ValueHint};
use clew_core::shown::shown;
use clew_live::control::client::ControlError;
use clew_live::control::service;
use signal_hook::consts::SIGXFSZ;

use output::Format;

/// Compressed swap in user space: keeps more programs alive in the same memory, and makes each of
/// them answer at once when its user returns.
#[derive(Parser)]
#[command(name = "clew", version, max_term_width = 100)]
struct Cli {
    /// Socket of the daemon [default: /run/clew/clew.sock for root, and for whom a service for all users
    /// serves there; else in the user's runtime directory].
    #[arg(long, global = true, value_name = "PATH", env = "CLEW_SOCKET")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from), value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// How tables are printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Say what this machine offers, what is missing, and what to do.
    Doctor,
    /// Serve programs until told to stop.
    Daemon(verbs::daemon::Args),
    /// Run a program so that its memory is managed.
    Run(verbs::run::Args),
    /// List apps, their memory and faults; and what is not managed, and why.
    Ps,
    /// Watch apps and tiers live: memory, its classes, faults, hits, processor time.
    Top(verbs::top::Args),
    /// Bring an app to the foreground: its relaunch begins.
    Fg(verbs::app::Args),
    /// Send an app to the background.
    Bg(verbs::app::Args),
    /// Take out every page of an app that can be taken out, now.
    SwapOut(verbs::app::Args),
    /// Bring every page of an app back, now (before gdb, or a core dump).
    Restore(verbs::app::Args),
    /// Bring every page of every app back and end the daemon.
    Stop,
    /// Show the schemes and what each answers to the six questions.
    Schemes(verbs::schemes::Args),
    /// Compare Clew with the kernel's zram on real programs (root; three minutes).
    Demo(verbs::demo::Args),
    /// Measure one mechanism beside its peer in the kernel.
    Bench(verbs::bench::Args),
    /// Show a directory elsewhere, and keep the pages of its files compressed when the kernel drops
    /// them.
    Mount(verbs::mount::Args),
    /// Govern programs without an agent through the kernel's own swap: static ones, those in a sandbox,
    /// and whoever was there before (root).
    Govern(verbs::govern::Args),
    /// Manage all programs of this user's session, without starting each by hand.
    #[command(subcommand)]
    Session(verbs::session::Action),
    /// Lend memory to machines nearby, or come to know one of them.
    Donate(verbs::donate::Args),
    /// Come to know a machine that lends memory, by the code that it shows.
    Pair(verbs::donate::PairArgs),
    /// Write down what programs do with their memory, as a trace.
    Record(verbs::record::Args),
    /// Look at traces, and make traces of traces.
    #[command(subcommand)]
    Trace(verbs::trace::Action),
    /// Make a trace of apps as the papers describe theirs.
    Gen(verbs::generate::Args),
    /// Make a trace of a trace in another format.
    #[command(subcommand)]
    Import(verbs::import::From),
    /// Play a trace to the engine under a scheme, in so much memory.
    Replay(verbs::replay::Args),
    /// Compare schemes on a trace: one table, and a page with plots.
    Compare(verbs::compare::Args),
    /// Show a result again that a demo, a replay or a comparison wrote as JSON.
    Report(verbs::report::Args),
    /// Run a paper's figures again, and say which of its claims hold.
    Reproduce(verbs::reproduce::Args),
    /// Replay traces x schemes x budgets x parameters, as a file says; goes on where it was.
    Sweep(verbs::sweep::Args),
    /// Simulate many machines that lend each other memory, with donors that come and go.
    Simulate(verbs::simulate::Args),
    /// Ask of a trace what no single scheme says.
    #[command(subcommand)]
    Study(verbs::study::Of),
    /// Measure what codecs and pool cost on this machine, for modelled time.
    Costs(verbs::costs::Args),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory.
    Man {
        /// The directory.
        directory: PathBuf,
    },
}

/// What went wrong, with the exit code that says so.
pub enum Failure {
    /// It failed: 1.
    Failed(anyhow::Error),
    /// Bad input: 2.
    Input(anyhow::Error),
    /// Missing privileges or kernel features: 3.
    Unfit(anyhow::Error),
    /// The daemon brought every page back and gave up: 4.
    GaveUp(anyhow::Error),
    /// There is no such program: 127, as of shells.
    NotFound(anyhow::Error),
    /// Another process of ours has failed with this code and said why.
    Said(u8),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        let error = error.into();
        let refused = |error: &ControlError| {
            matches!(error, ControlError::Untrusted { .. } | ControlError::Foreign { .. })
        };
        if error.downcast_ref().is_some_and(refused) {
            return Failure::Input(error);
        }
        Failure::Failed(error)
    }
}

/// An error and its causes, as far as they are not said yet.
fn whole(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The whole command, with the words of this process.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    tracing_subscriber::fmt()
        .with_writer(|| log::Log)
        .with_target(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("CLEW_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .init();
    // Beyond the limit of what a file may hold (`ulimit -f`) a write fails, which is said. What is started here has the
    // signal as it was.
    let _ = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
    // Daemon and programs work elsewhere.
    let absolute = |socket: PathBuf| std::path::absolute(&socket).unwrap_or(socket);
    // A variable that says nothing names no socket.
    let named = cli.socket.filter(|socket| !socket.as_os_str().is_empty()).map(absolute);
    let format = cli.format;
    // Asked only where it is needed: it looks who serves.
    let socket = || named.clone().unwrap_or_else(|| absolute(service::socket_of_user().0));
    // Of a daemon of the user's own.
    let own_socket =
        || named.clone().unwrap_or_else(|| absolute(clew_live::control::service::default_socket()));
    let result = match cli.verb {
        Verb::Doctor => verbs::doctor::doctor(format),
        Verb::Daemon(args) => verbs::daemon::daemon(&own_socket(), format, args),
        Verb::Run(args) => verbs::run::run_somewhere(named.clone(), args),
        Verb::Ps => verbs::ps::ps(&socket(), format),
        Verb::Top(args) => verbs::top::top(&socket(), format, args),
        Verb::Fg(args) => verbs::app::fg(&socket(), args),
        Verb::Bg(args) => verbs::app::bg(&socket(), args),
        Verb::SwapOut(args) => verbs::app::swap_out(&socket(), args),
        Verb::Restore(args) => verbs::app::restore(&socket(), args),
        Verb::Stop => verbs::app::stop(&socket()),
        Verb::Schemes(args) => verbs::schemes::schemes(format, args),
        Verb::Demo(args) => verbs::demo::demo(format, args),
        Verb::Bench(args) => verbs::bench::bench(format, args),
        Verb::Mount(args) => verbs::mount::mount(socket, format, args),
        Verb::Govern(args) => verbs::govern::govern(socket, format, args),
        Verb::Session(action) => verbs::session::session(&own_socket(), format, action),
        Verb::Donate(args) => verbs::donate::donate(format, args),
        Verb::Pair(args) => verbs::donate::pair(args),
        Verb::Record(args) => verbs::record::record(format, args),
        Verb::Trace(action) => verbs::trace::trace(format, action),
        Verb::Gen(args) => verbs::generate::gen_trace(format, args),
        Verb::Import(from) => verbs::import::import(format, from),
        Verb::Replay(args) => verbs::replay::replay(format, args),
        Verb::Compare(args) => verbs::compare::compare(format, args),
        Verb::Report(args) => verbs::report::report(format, args),
        Verb::Reproduce(args) => verbs::reproduce::reproduce(format, args),
        Verb::Sweep(args) => verbs::sweep::sweep(format, args),
        Verb::Simulate(args) => verbs::simulate::simulate(format, args),
        Verb::Study(of) => verbs::study::study(format, of),
        Verb::Costs(args) => verbs::costs::costs(format, args),
        Verb::Completions { shell } => {
            let mut command = <Cli as clap::CommandFactory>::command();
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "clew", &mut text);
            output::raw(&text);
            Ok(())
        }
        Verb::Man { directory } => {
            let command = <Cli as clap::CommandFactory>::command();
            verbs::man::man(command, &directory)
        }
    };
    let (code, error) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => (1, error),
        Err(Failure::Input(error)) => (2, error),
        Err(Failure::Unfit(error)) => (3, error),
        Err(Failure::GaveUp(error)) => (4, error),
        Err(Failure::NotFound(error)) => (127, error),
        Err(Failure::Said(code)) => return ExitCode::from(code),
    };
    remark!("clew: {}", one_line(&whole(&error)));
    ExitCode::from(code)
}

/// An error as it is said: on one line, whatever names and messages are in it.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    shown(&lines.join("; ")).into_owned()
}

/// The words of this process. What makes no sense is said as other errors are, without the usage.
fn parse() -> Result<Cli, ExitCode> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Help and version.
        let _ = error.print();
        return Err(ExitCode::from(error.exit_code() as u8));
    }
    let text = error.render().to_string();
    let is_said = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let said: Vec<&str> = text.lines().take_while(is_said).map(str::trim).collect();
    let said = said.join(" ");
    let said = said.trim().trim_start_matches("error: ");
    remark!("clew: {} (--help says what there is)", shown(said));
    Err(ExitCode::from(2))
}

//! `clew daemon`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clew_core::ByteSize;
use clew_live::config::{Config, DonorsFile, FlashPlace, Overrides, UsersFile};
use clew_live::daemon::{DaemonError, check_takeover, run};
use clew_live::survival::predecessor::ProcessName;
use clew_live::survival::rehearsal::Prospect;
use serde::Serialize;

use super::record::RecordArgs;
use crate::Failure;
use crate::output::{Format, json};

/// What the daemon is told.
#[derive(clap::Args)]
pub struct Args {
    /// What managed programs, pool and daemon may use together [default: half the memory].
    #[arg(long, value_name = "SIZE")]
    budget: Option<ByteSize>,
    /// A preset's name, or a TOML file with a [scheme] table [default: zram].
    #[arg(long, value_name = "NAME|FILE.toml")]
    scheme: Option<String>,
    /// Configuration file [default: /etc/clew.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve metrics for Prometheus at IP:PORT, or at PORT on this machine.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// Serve metrics to others than this machine, too.
    #[arg(long)]
    metrics_public: bool,
    /// A file or block device for what leaves the pool, if the scheme has it leave. What it held is lost;
    /// what is written there is encrypted, and worth nothing after this daemon and its successors.
    #[arg(long, value_name = "FILE|DEVICE")]
    flash: Option<PathBuf>,
    /// Bytes of it; a file gets that size [default: all of a device].
    #[arg(long, value_name = "SIZE", requires = "flash")]
    flash_size: Option<ByteSize>,
    /// A machine that lends memory ('clew donate'), or a Redis server (redis://HOST:PORT), if the scheme puts
    /// something there; can be said again.
    #[arg(long, value_name = "HOST:PORT")]
    donor: Vec<String>,
    /// What of each may be used at most [default: 4GiB].
    #[arg(long, value_name = "SIZE", requires = "donor")]
    donor_size: Option<ByteSize>,
    /// How many of them have each page: 1 or 2 [default: 1].
    #[arg(long, value_name = "N", requires = "donor")]
    donor_copies: Option<u32>,
    /// A file that has every page too: what is lost with a donor comes back from it.
    #[arg(long, value_name = "FILE", requires = "donor")]
    donor_copies_file: Option<PathBuf>,
    /// What is sent to a donor at once [default: 64KiB].
    #[arg(long, value_name = "SIZE", requires = "donor")]
    donor_chunk: Option<ByteSize>,
    /// Where this machine's keys are, and those that it knows ('clew pair').
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// A file for what is known of how apps are used, which is there for the next daemon; made if it is not
    /// there [default: none].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Serve every user who is in a group, too: each sees and orders what is the own. Root only.
    #[arg(long)]
    all_users: bool,
    /// That group, by name or number [default: clew]; says --all-users, too.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// What the apps of each user but root may use [default: what all may]; says --all-users, too.
    #[arg(long, value_name = "SIZE")]
    user_budget: Option<ByteSize>,
    #[command(flatten)]
    record: RecordArgs,
    /// End when the last program has ended.
    #[arg(long)]
    exit_when_idle: bool,
    /// Write down every input of the policies and every answer: what golden transcripts are made of.
    #[arg(long, hide = true, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// Whose private daemon this is.
    #[arg(long, hide = true, value_name = "PID:STARTED", requires = "exit_when_idle")]
    starter: Option<ProcessName>,
    /// Who ends it otherwise.
    #[arg(long, hide = true, value_name = "PID:STARTED")]
    recorder: Option<ProcessName>,
    /// Replace the daemon that serves the socket, without a pause of more than a second. Where this one
    /// could not take over, that is said first, and nobody is ended.
    #[arg(long)]
    takeover: bool,
    /// Only say whether it could take over: exit code 0 if so, else another one and the reason.
    #[arg(long, requires = "takeover", conflicts_with = "supervise")]
    check: bool,
    /// Stay, and start the next daemon whenever one dies (without a service manager).
    #[arg(long)]
    supervise: bool,
}

/// `clew daemon`.
pub fn daemon(socket: &Path, format: Format, args: Args) -> Result<(), Failure> {
    if args.starter.is_some() {
        clew_live::daemon::leave_starter().context("leaving who started this daemon")?;
    }
    if args.supervise {
        return supervise();
    }
    let fallback = Path::new("/etc/clew.toml");
    let file = args.config.as_deref().or_else(|| fallback.exists().then_some(fallback));
    let over = Overrides {
        budget: args.budget,
        scheme: args.scheme,
        metrics: args.metrics,
        metrics_public: args.metrics_public,
        flash: args.flash.map(|path| FlashPlace { path, size: args.flash_size }),
        donors: DonorsFile {
            at: args.donor,
            keys: args.keys,
            each: args.donor_size,
            copies: args.donor_copies,
            copies_file: args.donor_copies_file,
            chunk: args.donor_chunk,
        },
        profiles: args.profiles,
        users: (args.all_users || args.group.is_some() || args.user_budget.is_some())
            .then_some(UsersFile { group: args.group, budget: args.user_budget }),
        exit_when_idle: args.exit_when_idle,
        starter: args.starter,
        recorder: args.recorder,
        record: args.record.recording()?,
        transcript: args.transcript,
    };
    let config = Config::load(file, &over).map_err(|e| Failure::Input(e.into()))?;
    if args.check {
        return check(socket, format, &config);
    }
    let for_all = match config.users {
        Some(users) => format!(", for all users in group {}", users.group),
        None => String::new(),
    };
    let line = format!("budget {}, scheme {}{for_all}", config.budget, config.scheme_name);
    let is_private = args.starter.is_some();
    let ready = |what: &str, metrics: Option<SocketAddr>| {
        if is_private && clew_live::daemon::hush().is_ok() {
            return;
        }
        remark!("clew: {what} {} ({line})", socket.display());
        if let Some(at) = metrics {
            remark!("clew: metrics at http://{at}/metrics");
        }
    };
    run(socket, config, args.takeover, ready).map_err(|error| match error {
        // Its starter asks that one: nothing is wrong.
        DaemonError::Running(..) if is_private => Failure::Said(1),
        error => failure(error),
    })
}

fn failure(error: DaemonError) -> Failure {
    match error {
        DaemonError::Unfit(_) | DaemonError::FileReads(_) => Failure::Unfit(error.into()),
        DaemonError::Place(_)
        | DaemonError::NoSocket(_)
        | DaemonError::TooLong(_)
        | DaemonError::Ending(_)
        | DaemonError::Unreachable(_)
        | DaemonError::NeedsFlash(_)
        | DaemonError::Flash { .. }
        | DaemonError::Profiles(_)
        | DaemonError::Served(_) => Failure::Input(error.into()),
        DaemonError::GaveUp(_) => Failure::GaveUp(error.into()),
        _ => Failure::Failed(error.into()),
    }
}

/// What `--check` says.
#[derive(Serialize)]
struct Could {
    /// The daemon that would be replaced, if one lives.
    living: Option<u32>,
    /// Address spaces that would be taken over.
    spaces: usize,
}

fn check(socket: &Path, format: Format, config: &Config) -> Result<(), Failure> {
    let Prospect { living, spaces } = check_takeover(socket, config).map_err(failure)?;
    let could = Could { living, spaces: spaces.unwrap_or(0) };
    let (at, spaces) = (socket.display(), could.spaces);
    match (format, living) {
        (Format::Json, _) => json(&could)?,
        (Format::Text, Some(pid)) => {
            say!("could take over from process {pid} at {at}: {spaces} address spaces");
        }
        (Format::Text, None) if could.spaces > 0 => {
            say!("could take over from a daemon that died at {at}: {spaces} address spaces");
        }
        (Format::Text, None) => say!("no daemon serves {at}: there is nothing to take over"),
    }
    Ok(())
}

/// The same command without `--supervise`, again and again.
fn supervise() -> Result<(), Failure> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1).filter(|word| word != "--supervise"));
    let status = clew_live::survival::supervise::run(command)?;
    match status.code() {
        Some(0) => Ok(()),
        code => Err(Failure::Said(code.unwrap_or(1) as u8)),
    }
}

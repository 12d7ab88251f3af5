//! `clew govern`.

use std::ffi::OsString;
use std::io::{BufReader, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clew_core::{AppState, ByteSize};
use clew_govern::{GovernError, Governor, Order, Settings, Status, USUAL_KEPT_PCT, heed};
use clew_live::control::trusted_path::own_uid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::started::Started;
use crate::Failure;
use crate::output::{self, Format};

/// Orders that are read and not yet carried out, at most.
const MOST_ORDERS: usize = 64;
/// Answers to `status` that nobody has read yet, at most: later ones are left out.
const MOST_SHOWN: usize = 64;
/// How long somebody may take at the end to read what is left.
const SHOWING: Duration = Duration::from_secs(2);

/// Who is governed, and how.
#[derive(clap::Args)]
pub struct Args {
    /// A process id (its descendants are governed too), or the directory of a control group.
    #[arg(required_unless_present_any = ["run", "session"], value_name = "PID|CGROUP")]
    target: Vec<String>,
    /// All processes of a user's session: this user's, or of whoever called sudo, or of the user with this
    /// number. Those with an agent are left to their daemon.
    #[arg(long, value_name = "UID", num_args = 0..=1, require_equals = true)]
    session: Option<Option<u32>>,
    /// Answer 'clew --socket PATH ps', 'top', 'fg', 'bg', 'swap-out' and 'stop' of this user and root.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The budget is for the daemon (at --socket) and its programs, too: what they use counts.
    #[arg(long)]
    with_daemon: bool,
    /// What these programs, their swapped pages as far as they are in memory, and this command may use
    /// together [default: half the memory].
    #[arg(long, value_name = "SIZE")]
    budget: Option<ByteSize>,
    /// A preset's name, or a TOML file with a [scheme] table [default: one of its own, near to 'clew'].
    #[arg(long, value_name = "NAME|FILE.toml")]
    scheme: Option<String>,
    /// So much of what is resident, per cent, may stay with programs behind for their return, whatever the
    /// one in front wants: more has them return sooner, and the one in front wait more. Of the usual scheme.
    #[arg(long, value_name = "PERCENT", default_value_t = USUAL_KEPT_PCT, conflicts_with = "scheme")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    keep: u8,
    /// Heed lines on standard input: 'fg PID', 'bg PID', 'status'.
    #[arg(long, conflicts_with = "run")]
    orders: bool,
    /// Start this program and govern it; ends as it does.
    #[arg(last = true, value_name = "COMMAND")]
    run: Vec<OsString>,
}

/// `clew govern`. Until a signal comes, or nothing is left to govern; beside a program that it has started, until nothing of
/// that is left.
pub fn govern(daemon: impl FnOnce() -> PathBuf, format: Format, args: Args) -> Result<(), Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let started = match args.run.split_first() {
        Some((program, arguments)) => Some(Started::begin(program, arguments)?),
        None => {
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                signal_hook::flag::register(signal, over.clone()).context("heeding signals")?;
            }
            None
        }
    };
    let settings = Settings {
        targets: args.target,
        command: started.as_ref().map(Started::pid),
        budget: args.budget,
        scheme: args.scheme,
        kept_pct: args.keep,
        session: args.session.map(|uid| uid.unwrap_or_else(session_user)),
        beside: args.with_daemon.then(daemon),
    };
    let mut governor = match (Governor::new(&settings), started) {
        (Ok(governor), None) => governor,
        (Ok(governor), Some(program)) => return beside(program, governor, format, &args.control),
        // It was quicker than we are.
        (Err(_), Some(program)) if program.has_ended() => return program.wait(),
        (Err(error), _) => return Err(failure(error)),
    };
    begin(&mut governor, &args.control)?;
    // Who writes more than is carried out waits.
    let (to, orders) = crossbeam_channel::bounded::<Order>(MOST_ORDERS);
    if args.orders {
        std::thread::spawn(move || {
            heed(BufReader::new(stdin()), &to, |why| remark!("clew: {why}"));
        });
    }
    // Nobody may read what is shown: whoever governs waits for nobody.
    let (to_show, shown) = crossbeam_channel::bounded::<Status>(MOST_SHOWN);
    let shows =
        std::thread::spawn(move || shown.iter().try_for_each(|status| show(format, &status)));
    governor.run(&orders, &over, |status| {
        let _ = to_show.try_send(status.clone());
    });
    clew_govern::finish();
    let _ = to_show.try_send(governor.status());
    drop(to_show);
    let until = Instant::now() + SHOWING;
    while !shows.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    match shows.is_finished() {
        true => shows.join().map_err(|_| Failure::Failed(anyhow!("what shows it panicked")))?,
        false => Err(Failure::Failed(anyhow!("nobody reads what is written"))),
    }
}

/// Answers clients, and says that it governs.
fn begin(governor: &mut Governor, control: &Option<PathBuf>) -> Result<(), Failure> {
    if let Some(socket) = control {
        governor.serve_at(socket).map_err(failure)?;
    }
    let status = governor.status();
    remark!("clew: governing (budget {}, scheme {})", ByteSize(status.budget_bytes), status.scheme);
    Ok(())
}

/// Governs what was started, and whatever else was named, as long as any process of that is left.
fn beside(
    program: Started,
    mut governor: Governor,
    format: Format,
    control: &Option<PathBuf>,
) -> Result<(), Failure> {
    begin(&mut governor, control)?;
    let never = Arc::new(AtomicBool::new(false));
    governor.run(&crossbeam_channel::never(), &never, |status| {
        let _ = show(format, status);
    });
    clew_govern::finish();
    program.wait()
}

/// Whose session is meant where nobody says it.
fn session_user() -> u32 {
    let called = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    called.unwrap_or_else(own_uid)
}

fn failure(error: GovernError) -> Failure {
    match error {
        GovernError::Scheme(_) | GovernError::Target { .. } | GovernError::Budget(_) => {
            Failure::Input(error.into())
        }
        GovernError::Socket { .. } => Failure::Input(error.into()),
        GovernError::NoSwap | GovernError::Forbidden { .. } => Failure::Unfit(error.into()),
    }
}

fn show(format: Format, status: &Status) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(status);
    }
    let bytes = |bytes: u64| ByteSize(bytes).to_string();
    let row = |name: &str, value: String| vec![name.to_string(), value];
    let rows = vec![
        row("used", format!("{} of {}", bytes(status.used_bytes), bytes(status.budget_bytes))),
        row("by programs", bytes(status.used.programs_bytes)),
        row("by what was read ahead of them", bytes(status.used.brought_bytes)),
        row("by their pages in zram", bytes(status.used.swap_bytes)),
        row("by this command", bytes(status.used.governor_bytes)),
        row("by the daemon and its programs", bytes(status.used.daemon_bytes)),
        row("free swap", bytes(status.swap_free_bytes)),
        row("pages taken out", status.paged_out_pages.to_string()),
        row("pages the kernel took by itself", status.kernel_out_pages.to_string()),
        row("pages read ahead", status.brought_pages.to_string()),
        row("of these used", status.brought_used_pages.to_string()),
        row("of these left unused", status.brought_unused_pages.to_string()),
        row("pages kept young", status.kept_young_pages.to_string()),
        row("blind: records of faults lost", status.lost_faults.to_string()),
        row("blind: pages back without a fault", status.unheard_pages.to_string()),
    ];
    say!("{}", output::table(&["what", "how much"], rows));
    let mut rows = Vec::new();
    for app in &status.apps {
        let state = match app.state {
            AppState::Foreground => "front",
            AppState::Background => "",
        };
        for program in &app.programs {
            rows.push(vec![
                app.name.clone(),
                state.to_string(),
                program.pid.to_string(),
                program.command.clone(),
                program.resident_pages.to_string(),
                program.swapped_pages.to_string(),
                program.faults.to_string(),
            ]);
        }
        if app.programs.is_empty() {
            let (root, none) = (app.root.to_string(), String::new());
            let note = "nothing governed yet".to_string();
            let row = [app.name.clone(), state.to_string(), root, note];
            rows.push(row.into_iter().chain(std::iter::repeat_n(none, 3)).collect());
        }
    }
    let header = ["APP", "", "PID", "COMMAND", "RESIDENT", "SWAPPED", "FAULTS"];
    say!("{}", output::table(&header, rows));
    Ok(())
}

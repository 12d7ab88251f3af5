//! `clew session`: all programs of a user's session, and who of them is in front.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use clap::{Subcommand, ValueEnum};
use clew_session::exceptions::Exceptions;
use clew_session::files::{self, Content, State};
use clew_session::front::{self, Desktop, tmux};
use clew_session::places::Places;
use clew_session::setup::Session;
use clew_session::status::{self, exceptions};
use clew_session::{SessionError, manager, watch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::output::{self, Format, json, table};

/// What is to be done with the session.
#[derive(Subcommand)]
pub enum Action {
    /// Have all programs of this user's sessions begin with an agent, from the next login on.
    Enable(EnableArgs),
    /// Take away all that 'enable' has put there.
    Disable {
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Say what of it is there, who is left alone, and which app is in front.
    Status,
    /// Leave these programs alone from their next start on.
    Except(Names),
    /// Leave these programs alone no longer.
    Include(Names),
    /// Write the files that a session without systemd needs, and print what it evaluates: eval "$(clew session env)" in ~/.profile.
    Env,
    /// Tell the daemon which app is in front, as the desktop has it, until told to stop.
    Watch(WatchArgs),
    /// Tell the daemon that the app of this process is in front.
    Front {
        /// The process: its app's, who started it or whom it has started.
        pid: u32,
    },
    /// Print lines for ~/.tmux.conf: whose pane is looked at is in front.
    TmuxHook,
}

/// How a session is managed.
#[derive(clap::Args)]
pub struct EnableArgs {
    /// Only say what would be written.
    #[arg(long)]
    dry_run: bool,
    /// Begin now, too: have the user's service manager start the daemon, and what it starts from now on
    /// begin with an agent.
    #[arg(long, conflicts_with = "dry_run")]
    now: bool,
    /// Somebody else serves the socket: no unit for a daemon.
    #[arg(long)]
    no_daemon: bool,
}

/// Executables.
#[derive(clap::Args)]
pub struct Names {
    /// Name of an executable, as it is started: 'steam', not '/usr/bin/steam'.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Whom to watch.
#[derive(clap::Args)]
pub struct WatchArgs {
    /// What is asked [default: what the environment names].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DESKTOP,…")]
    desktop: Vec<Asked>,
}

/// A desktop by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Asked {
    /// sway's own socket (SWAYSOCK).
    Sway,
    /// The X server (DISPLAY): i3, openbox, Xfce and others.
    X11,
    /// Calls of org.clew.Session1.Front on the session's D-Bus.
    Dbus,
}

/// `clew session ACTION`.
pub fn session(socket: &Path, format: Format, action: Action) -> Result<(), Failure> {
    let places = || Places::of_this_user().map_err(failure);
    let of = |has_daemon| -> Result<Session, Failure> {
        let command = own_command()?;
        Ok(Session { places: places()?, socket: socket.to_path_buf(), command, has_daemon })
    };
    match action {
        Action::Enable(args) => enable(&of(!args.no_daemon)?, &args),
        Action::Disable { dry_run } => disable(&of(true)?, dry_run),
        Action::Status => show(&of(true)?, format),
        Action::Except(names) => change(&of(true)?, |list| {
            names.names.iter().try_for_each(|name| list.add(name).map(drop))
        }),
        Action::Include(names) => change(&of(true)?, |list| {
            for name in &names.names {
                if !list.remove(name) {
                    remark!("clew: '{name}' was not on the list");
                }
            }
            Ok(())
        }),
        Action::Env => {
            let session = of(true)?;
            session.put_object().map_err(failure)?;
            output::raw(session.environment().for_shell().map_err(failure)?.as_bytes());
            Ok(())
        }
        Action::Watch(args) => follow(socket, args),
        Action::Front { pid } => watch::bring_to_front(socket, pid).map_err(failure),
        Action::TmuxHook => {
            let lines = tmux::lines(&own_command()?, socket).map_err(failure)?;
            output::raw(lines.as_bytes());
            Ok(())
        }
    }
}

fn own_command() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().context("finding this program")?)
}

fn failure(error: SessionError) -> Failure {
    match error {
        SessionError::Daemon(error) => error.into(),
        error if error.is_refusal() => Failure::Input(error.into()),
        error => Failure::Failed(error.into()),
    }
}

fn enable(session: &Session, args: &EnableArgs) -> Result<(), Failure> {
    let items = session.items().map_err(failure)?;
    if args.dry_run {
        let object = session.places.object();
        match session.object_state() {
            State::Theirs => {
                say!("REFUSED: {} is there, and is not of 'clew session enable'.", object.display())
            }
            _ => say!("Would write {}: the agent's object.", object.display()),
        }
        let list = session.places.exceptions();
        match list.exists() {
            true => say!("Would leave {} as it is.", list.display()),
            false => say!("Would write {}: who is left alone.", list.display()),
        }
        for item in items {
            let (path, state) =
                (item.path.display(), item.content.look(&item.path).map_err(failure)?);
            match (state, &item.content) {
                (State::Theirs, _) => {
                    say!("REFUSED: {path} is there, and is not of 'clew session enable'.")
                }
                (State::There, _) => say!("{path} is there already."),
                (_, Content::Link(to)) => say!("Would link {path} to {}.", to.display()),
                (_, Content::Text(text)) => {
                    say!("Would write {path}:");
                    text.lines().for_each(|line| say!("    {line}"));
                }
            }
        }
        return Ok(());
    }
    session.enable().map_err(failure)?;
    if let Some(missing) = clew_live::doctor::first_missing().filter(|_| session.has_daemon) {
        remark!(
            "clew: a daemon of yours would not start here: {missing} ('clew doctor' says more)"
        );
    }
    if !args.now {
        say!("Programs are managed from the next login on. 'clew session disable' undoes it.");
        return Ok(());
    }
    if !manager::is_running() {
        return Err(Failure::Unfit(anyhow!(
            "all is written, but no service manager of yours runs that could begin now: log in again, or put \
             eval \"$(clew session env)\" into ~/.profile"
        )));
    }
    session.begin_now().map_err(|why| Failure::Failed(anyhow!("all is written, but {why}")))?;
    say!("Programs that are started from now on are managed. 'clew session disable' undoes it.");
    Ok(())
}

fn disable(session: &Session, dry_run: bool) -> Result<(), Failure> {
    if dry_run {
        for item in session.items().map_err(failure)?.iter().rev() {
            let path = item.path.display();
            match item.content.look(&item.path).map_err(failure)? {
                State::There | State::Older => say!("Would remove {path}."),
                State::Theirs => say!("Would leave {path}: somebody has changed or made it."),
                State::Missing => {}
            }
        }
        let (list, object) = (session.places.exceptions(), session.places.object());
        let is_object_theirs = session.object_state() == State::Theirs;
        for (path, is_theirs) in [(list, session.is_list_changed()), (object, is_object_theirs)] {
            match (path.exists(), is_theirs) {
                (false, _) => {}
                (true, true) => {
                    say!("Would leave {}: somebody has changed or made it.", path.display())
                }
                (true, false) => say!("Would remove {}.", path.display()),
            }
        }
        return Ok(());
    }
    if manager::is_running()
        && let Err(why) = session.end_now()
    {
        remark!("clew: {why}");
    }
    let left = session.disable().map_err(failure)?;
    if manager::is_running() {
        // It has forgotten the units when it has read its files again.
        let _ = manager::tell(&["daemon-reload"]);
    }
    for path in &left.theirs {
        remark!("clew: {} stays: somebody has changed or made it", path.display());
    }
    if left.users > 0 {
        say!("{} processes hand this object to what they start, so it stays:", left.users);
        say!("  {}", session.places.object().display());
        say!("After the next login 'clew session disable' removes it.");
    }
    Ok(())
}

fn show(session: &Session, format: Format) -> Result<(), Failure> {
    let status = status::status(session).map_err(failure)?;
    if format == Format::Json {
        return json(&status);
    }
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_string();
    let daemon = match status.daemon_pid {
        Some(pid) => format!("process {pid}"),
        None => format!("none serves {}", status.socket.display()),
    };
    let rows = [
        ("programs of the next login are managed", yes(status.enabled)),
        ("programs started here are managed", yes(status.here && status.daemon_pid.is_some())),
        ("daemon", daemon),
        ("in front", status.front.clone().unwrap_or_else(|| "nobody".to_string())),
        ("left alone", status.exceptions.join(" ")),
    ];
    say!("{}", table(&["SESSION", ""], rows.map(|(what, found)| vec![what.into(), found]).into()));
    say!();
    let word = |state| match state {
        State::Missing => "missing",
        State::There => "there",
        State::Older => "of another version or other options",
        State::Theirs => "not of 'clew session enable'",
    };
    let row = |file: &status::File| {
        vec![file.what.to_string(), word(file.state).to_string(), file.path.display().to_string()]
    };
    say!("{}", table(&["FILE", "STATE", "PATH"], status.files.iter().map(row).collect()));
    Ok(())
}

fn change(
    session: &Session,
    act: impl FnOnce(&mut Exceptions) -> Result<(), SessionError>,
) -> Result<(), Failure> {
    let path = session.places.exceptions();
    clew_live::control::trusted_path::make(path.parent().unwrap_or(&path), 0o755)
        .map_err(|error| Failure::Input(error.into()))?;
    let _locked = session.locked();
    let before = exceptions(session).map_err(failure)?;
    // As it is at first.
    let mut list = if path.exists() { before.clone() } else { Exceptions::usual() };
    act(&mut list).map_err(failure)?;
    if list != before {
        if list.is_too_long() {
            let most = clew_session::exceptions::MAX_LIST;
            return Err(failure(SessionError::LongList { path, most }));
        }
        // A link stays, and leads to it.
        let path = path.canonicalize().unwrap_or(path);
        files::replace(&path, &list.text()).map_err(failure)?;
    }
    Ok(())
}

fn follow(socket: &Path, args: WatchArgs) -> Result<(), Failure> {
    let asked = args.desktop.iter().map(|asked| match asked {
        Asked::Sway => Desktop::Sway,
        Asked::X11 => Desktop::X11,
        Asked::Dbus => Desktop::Bus,
    });
    let desktops = match args.desktop.is_empty() {
        true => front::there_are(|name| std::env::var_os(name)),
        false => asked.collect(),
    };
    if desktops.is_empty() {
        return Err(Failure::Input(anyhow!(
            "the environment names no desktop (SWAYSOCK, DISPLAY, DBUS_SESSION_BUS_ADDRESS)"
        )));
    }
    let open = |desktop| {
        front::open(desktop)
            .ok_or_else(|| Failure::Input(anyhow!("SWAYSOCK does not say where sway is")))
    };
    let desktops = desktops.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = desktops.iter().map(|desktop| desktop.name()).collect();
    say!("clew: watching {}", names.join(", "));
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, over.clone()).context("heeding signals")?;
    }
    watch::watch(socket, desktops, || over.load(Ordering::Relaxed));
    Ok(())
}

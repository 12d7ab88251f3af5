//! `clew run`: puts the agent into a program's environment and becomes the program.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clew_core::ByteSize;
use clew_live::agents::preload;
use clew_live::config::Overrides;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::{Environment, MAX_NAME, Request};
use clew_live::control::service::{self, ROOTS_SOCKET, default_socket};
use clew_live::control::trusted_path::own_uid;
use clew_live::programs::without_agent;
use clew_live::survival::predecessor::{self, Predecessor, ProcessName};

use crate::Failure;

/// What to run, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the app [default: the program's file name].
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Scheme of the private daemon, if none serves yet.
    #[arg(long, value_name = "NAME|FILE.toml")]
    scheme: Option<String>,
    /// Budget of the private daemon, if none serves yet.
    #[arg(long, value_name = "SIZE")]
    budget: Option<ByteSize>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `clew run -- CMD…` under the daemon that is `named`, else under the service for all users where this user may use
/// it, else under the user's own.
pub fn run_somewhere(named: Option<PathBuf>, args: Args) -> Result<(), Failure> {
    if let Some(socket) = named {
        return run(&socket, args, true);
    }
    // Who says how a private daemon is to be wants one.
    let (socket, why_not) = match args.scheme.is_some() || args.budget.is_some() {
        true => (default_socket(), None),
        false => service::socket_of_user(),
    };
    if let Some(why) = why_not {
        remark!("clew: {why}; a daemon of your own is used");
    }
    let socket = std::path::absolute(&socket).unwrap_or(socket);
    // Nobody takes the place of the service: root's next daemon does.
    let may_start = socket != Path::new(ROOTS_SOCKET) || own_uid() == 0;
    run(&socket, args, may_start)
}

/// Returns only if the program could not be started.
fn run(socket: &Path, args: Args, may_start: bool) -> Result<(), Failure> {
    let program = find_program(&args.command[0]).map_err(Failure::NotFound)?;
    let app = match args.app {
        Some(name) if name.is_empty() || name.len() > MAX_NAME => {
            return Err(Failure::Input(anyhow!("an app's name has 1 to {MAX_NAME} bytes")));
        }
        Some(name) => name,
        None => {
            let mut name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.truncate(name.floor_char_boundary(MAX_NAME));
            name
        }
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut nobody = Nobody::since_now(socket, may_start);
    let (environment, unmanaged) = loop {
        let attempt = ask_environment(socket).and_then(|(mut client, environment)| {
            if nobody.starts == 0 && (args.scheme.is_some() || args.budget.is_some()) {
                return Ok(None);
            }
            let unmanaged = why_unmanaged(&program, &environment);
            client.order(&Request::Started {
                app: app.clone(),
                pid: std::process::id(),
                command: name.clone(),
                unmanaged: unmanaged.clone(),
            })?;
            Ok(Some((environment, unmanaged)))
        });
        match attempt {
            Ok(Some(told)) => break told,
            Ok(None) => {
                return Err(Failure::Input(anyhow!(
                    "a daemon serves {} already: --scheme and --budget are for a private one \
                     (name another --socket)",
                    socket.display()
                )));
            }
            Err(error) => {
                nobody.wait(error, || start_private(socket, &args.scheme, args.budget))?;
            }
        }
    };
    if let Some(reason) = &unmanaged {
        remark!("clew: {} runs unmanaged: {reason}", program.display());
    }
    // Ours, whatever the daemon has: what it named would be code that runs in the program.
    let mut preload = preload::object(socket)?.into_os_string();
    let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    // The loader divides at blanks, too. That of a session is one of ours.
    for other in others.as_bytes().split(|b| b": \t\n".contains(b)).map(OsStr::from_bytes) {
        if !other.is_empty() && !preload::is_object(Path::new(other)) {
            preload.push(":");
            preload.push(other);
        }
    }
    let error = Command::new(&program)
        .arg0(&args.command[0])
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload)
        .env(SANITIZER, with_any_link_order(std::env::var_os(SANITIZER)))
        .env("CLEW_AGENT_SOCKET", &environment.agent_socket)
        .env("CLEW_APP", &app)
        .exec();
    Err(Failure::Failed(anyhow!("cannot run {}: {error}", program.display())))
}

/// What AddressSanitizer goes by.
const SANITIZER: &str = "ASAN_OPTIONS";

/// A program that was built with AddressSanitizer ends at once where anything is preloaded before that, unless it is told that
/// the order does not matter: to what is not built so this says nothing. What has been said of it stays.
fn with_any_link_order(options: Option<OsString>) -> OsString {
    let mut options = options.unwrap_or_default();
    if !options.to_string_lossy().contains("verify_asan_link_order") {
        if !options.is_empty() {
            options.push(":");
        }
        options.push("verify_asan_link_order=0");
    }
    options
}

fn ask_environment(socket: &Path) -> Result<(Client, Environment), ControlError> {
    let mut client = Client::connect(socket)?;
    let environment: Environment = client.call(&Request::Environment)?;
    environment.check()?;
    Ok((client, environment))
}

fn why_unmanaged(program: &Path, environment: &Environment) -> Option<String> {
    without_agent::why(program).map(str::to_string).or_else(|| {
        let agents = environment.agent_protocol;
        (agents != preload::PROTOCOL)
            .then(|| format!("the daemon is of another version of Clew (its agents: {agents})"))
    })
}

/// How long a daemon may take to end, and a private one to begin.
const PATIENCE: Duration = Duration::from_secs(15);

/// The same of somebody who answers nothing and is not written down beside the socket: no daemon.
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_secs(1);

/// How long the next daemon is waited for where one has died and its keeper lives: whoever starts it (a service manager) has
/// given it another budget and scheme than a private one would have that took over from the dead.
const PATIENCE_WITH_SUCCESSORS: Duration = Duration::from_secs(3);

/// Private daemons that may end without a word, as one does that finds another which serves, or is just
/// ending, before no more are started.
const MAX_STARTS: u32 = 5;

/// Bytes kept of what a private daemon says.
const MAX_SAID: u64 = 4 << 10;

/// Nobody has answered so far: one daemon may be just ending, another just beginning.
struct Nobody<'a> {
    socket: &'a Path,
    /// Where there is no daemon, a private one may be started.
    may_start: bool,
    since: Instant,
    /// Since when a stranger answers nothing.
    stranger_since: Option<Instant>,
    /// The private daemon that was started last.
    private: Option<Private>,
    starts: u32,
}

/// A private daemon that was started.
struct Private {
    /// Ends when it serves, or has ended, with what it said until then.
    saying: JoinHandle<String>,
    was_over: bool,
}

impl Private {
    /// Whether its saying was over when this was asked last: it does not serve if it was not found since.
    fn was_over(&mut self) -> bool {
        std::mem::replace(&mut self.was_over, self.saying.is_finished())
    }
}

impl Nobody<'_> {
    fn since_now(socket: &Path, may_start: bool) -> Nobody<'_> {
        Nobody {
            socket,
            may_start,
            since: Instant::now(),
            stranger_since: None,
            private: None,
            starts: 0,
        }
    }

    /// To be called when asking ended so; starts a daemon where there is none. Asking again makes
    /// sense when this returns `Ok`.
    fn wait(
        &mut self,
        error: ControlError,
        start: impl FnOnce() -> Result<Private, Failure>,
    ) -> Result<(), Failure> {
        let none_listens =
            matches!(error, ControlError::NoDaemon { .. } | ControlError::Dead { .. });
        if !none_listens && !error.is_ended() {
            return Err(error.into());
        }
        let now = Instant::now();
        let server = predecessor::server(self.socket).ok().flatten();
        let lives = server.is_some_and(|daemon| daemon.is_alive());
        if none_listens || lives {
            self.stranger_since = None;
        } else if now - *self.stranger_since.get_or_insert(now) > PATIENCE_WITH_STRANGERS {
            return Err(error.into());
        }
        if now - self.since > PATIENCE {
            return Err(match self.starts {
                0 => error.into(),
                _ => self.failed("did not come up (try 'clew daemon' to see why)"),
            });
        }
        let over = self.private.as_mut().is_none_or(Private::was_over);
        // Asked last: where no file names a keeper all processes are looked through.
        let is_awaited = || {
            self.starts == 0
                && now - self.since < PATIENCE_WITH_SUCCESSORS
                && matches!(Predecessor::find(self.socket), Ok(Some(_)))
        };
        if none_listens && !lives && over && self.may_start && !is_awaited() {
            if let Some(private) = self.private.take() {
                let said = private.saying.join().unwrap_or_default();
                if !said.is_empty() {
                    return Err(self.failed(&format!("has ended: {said}")));
                } else if self.starts == MAX_STARTS {
                    return Err(self.failed("has ended without a word"));
                }
            }
            self.private = Some(start()?);
            self.starts += 1;
        }
        thread::sleep(Duration::from_millis(10));
        Ok(())
    }

    fn failed(&self, what: &str) -> Failure {
        Failure::Failed(anyhow!("the private daemon at {} {what}", self.socket.display()))
    }
}

/// The file that `name` means, as a shell would find it.
pub fn find_program(name: &OsString) -> anyhow::Result<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        let found = path.metadata().with_context(|| format!("cannot run {}", path.display()))?;
        if !found.is_file() {
            return Err(anyhow!("cannot run {}: it is no regular file", path.display()));
        }
        return Ok(path.to_path_buf());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs)
        .map(|dir| dir.join(name))
        .find(|file| {
            use std::os::unix::fs::PermissionsExt;
            file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| anyhow!("no program '{}' in PATH", path.display()))
}

/// What an environment says to this process alone: of a service manager, or of a daemon under which it
/// runs itself.
const STARTERS_OWN: [&str; 9] = [
    "LD_PRELOAD",
    "CLEW_AGENT_SOCKET",
    "CLEW_APP",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// Starts a daemon that ends with its last program, as nobody's child of ours.
fn start_private(
    socket: &Path,
    scheme: &Option<String>,
    budget: Option<ByteSize>,
) -> Result<Private, Failure> {
    if let Some(missing) = clew_live::doctor::first_missing() {
        return Err(Failure::Unfit(anyhow!("{missing} ('clew doctor' says more)")));
    }
    clew_live::daemon::check_names(socket).map_err(|e| Failure::Input(e.into()))?;
    let over =
        Overrides { budget, scheme: scheme.clone(), exit_when_idle: true, ..Overrides::default() };
    clew_live::config::Config::load(None, &over).map_err(|e| Failure::Input(e.into()))?;
    let own = std::env::current_exe().context("finding this program")?;
    let mut words: Vec<OsString> =
        vec![own.into(), "--socket".into(), socket.into(), "daemon".into()];
    let starter = ProcessName::of(std::process::id()).context("finding this process")?;
    words.extend(["--exit-when-idle".into(), "--starter".into(), starter.to_string().into()]);
    if let Some(scheme) = scheme {
        // It works in another directory.
        let scheme = match scheme.ends_with(".toml") {
            true => std::path::absolute(scheme).context("finding the scheme")?.into_os_string(),
            false => scheme.into(),
        };
        words.extend(["--scheme".into(), scheme]);
    }
    if let Some(budget) = budget {
        words.extend(["--budget".into(), budget.0.to_string().into()]);
    }
    let (mut says, pipe) = io::pipe().context("making a pipe")?;
    // A shell in between ends at once, so the daemon is not the program's child: the program would
    // see it when it waits for its own.
    let mut shell = Command::new("/bin/sh");
    for name in STARTERS_OWN {
        shell.env_remove(name);
    }
    let status = shell
        .args(["-c", "\"$@\" </dev/null >/dev/null &", "sh"])
        .args(&words)
        .stdin(Stdio::null())
        .stderr(pipe)
        .process_group(0)
        .status()
        .context("starting a private daemon")?;
    if !status.success() {
        return Err(Failure::Failed(anyhow!("starting a private daemon: {status}")));
    }
    let saying = thread::spawn(move || {
        let mut said = Vec::new();
        let _ = (&mut says).take(MAX_SAID).read_to_end(&mut said);
        // It must not wait until somebody reads the rest.
        let _ = io::copy(&mut says, &mut io::sink());
        let said = String::from_utf8_lossy(&said);
        said.trim().trim_start_matches("clew: ").to_string()
    });
    Ok(Private { saying, was_over: false })
}

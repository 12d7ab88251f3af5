//! `clew daemon` as a child of a benchmark: started, asked, and told to stop at the end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::Request;
use clew_live::control::status::Status;

use crate::cgroup::Cgroup;
use crate::error::{BenchError, file_error};
use crate::interrupt;
use crate::session::{Launch, last_words};

const START_PATIENCE: Duration = Duration::from_secs(15);
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// What a daemon is started with.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSettings<'a> {
    /// The `clew` command.
    pub exe: &'a Path,
    /// A preset's name, or a TOML file.
    pub scheme: &'a str,
    /// The daemon's own default if `None`.
    pub budget_bytes: Option<u64>,
    /// Its `clew.toml`; empty for none.
    pub toml: &'a str,
    /// For its socket and for what it says.
    pub scratch: &'a Path,
    /// Further options.
    pub options: &'a [OsString],
}

/// A running daemon. Its end stops it: every page comes back first.
pub struct Daemon {
    exe: PathBuf,
    child: Child,
    client: Option<Client>,
    socket: PathBuf,
    said: PathBuf,
}

impl Daemon {
    /// Starts a daemon inside `group` and waits until it serves.
    pub fn start(settings: DaemonSettings<'_>, group: &Cgroup) -> Result<Daemon, BenchError> {
        let socket = settings.scratch.join("clew.sock");
        let said = settings.scratch.join("daemon.stderr");
        let stderr = File::create(&said).map_err(file_error("create", &said))?;
        let mut argv: Vec<OsString> = vec![
            settings.exe.into(),
            "daemon".into(),
            "--socket".into(),
            socket.clone().into(),
            "--scheme".into(),
            settings.scheme.into(),
        ];
        if let Some(budget) = settings.budget_bytes {
            argv.extend(["--budget".into(), budget.to_string().into()]);
        }
        if !settings.toml.is_empty() {
            let config = settings.scratch.join("clew.toml");
            fs::write(&config, settings.toml).map_err(file_error("create", &config))?;
            argv.extend(["--config".into(), config.into()]);
        }
        argv.extend_from_slice(settings.options);
        let launch = Launch { entrances: group.entrances(), ..Launch::default() };
        let child = launch
            .command(&argv)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|source| BenchError::Start { program: "clew daemon".to_string(), source })?;
        let exe = settings.exe.to_path_buf();
        let mut daemon = Daemon { exe, child, client: None, socket, said };
        daemon.wait_until_it_serves()?;
        Ok(daemon)
    }

    /// What stands in front of a program's command so that it belongs to `app` of this daemon.
    pub fn launcher(&self, app: &str) -> Vec<OsString> {
        vec![
            self.exe.clone().into(),
            "run".into(),
            "--socket".into(),
            self.socket.clone().into(),
            "--app".into(),
            app.into(),
            "--".into(),
        ]
    }

    /// A request whose answer carries nothing.
    pub fn order(&mut self, request: &Request) -> Result<(), BenchError> {
        self.call(|client| client.order(request))
    }

    /// The state of everything.
    pub fn status(&mut self) -> Result<Status, BenchError> {
        self.call(Client::status)
    }

    /// A second connection, for another thread.
    pub fn connect(&self) -> Result<Client, BenchError> {
        Ok(Client::connect(&self.socket)?)
    }

    fn wait_until_it_serves(&mut self) -> Result<(), BenchError> {
        let since = Instant::now();
        loop {
            interrupt::check()?;
            let answer = Client::connect(&self.socket).and_then(|mut client| {
                client.status()?;
                Ok(client)
            });
            match answer {
                Ok(client) => {
                    self.client = Some(client);
                    return Ok(());
                }
                Err(error) => {
                    self.alive()?;
                    let early = matches!(error, ControlError::NoDaemon { .. });
                    if !early || since.elapsed() > START_PATIENCE {
                        return Err(error.into());
                    }
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// An error with the reason if the daemon has ended.
    fn alive(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(BenchError::Ended {
                program: "clew daemon".to_string(),
                status: status.to_string(),
                last_words: last_words(&self.said),
            }),
            _ => Ok(()),
        }
    }

    fn call<T>(
        &mut self,
        ask: impl FnOnce(&mut Client) -> Result<T, ControlError>,
    ) -> Result<T, BenchError> {
        let client = self.client.as_mut().expect("a started daemon has a client");
        ask(client).map_err(|error| match self.alive() {
            Err(ended) => ended,
            Ok(()) => error.into(),
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(client) = &mut self.client {
            let _ = client.order(&Request::Stop);
        }
        let patience = Instant::now() + STOP_PATIENCE;
        while self.client.is_some() && Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Clew's side: a daemon and a worker that it manages, in a group that counts their time.

use std::path::Path;
use std::time::{Duration, Instant};

use clew_live::control::protocol::Request;
use clew_live::control::status::{AppStatus, HotPages};

use super::MicroConfig;
use super::orders::Layout;
use super::side::Worker;
use crate::cgroup::Cgroup;
use crate::daemon::{Daemon, DaemonSettings};
use crate::error::BenchError;
use crate::interrupt;
use crate::session::Launch;

/// Name of this side in messages.
pub const NAME: &str = "clew";
/// The name of its app.
pub const APP: &str = "worker";
const MANAGED_PATIENCE: Duration = Duration::from_secs(5);

/// Fields end in this order: the worker, then the daemon, then the group.
pub struct ClewSide {
    pub worker: Worker,
    pub daemon: Daemon,
    pub group: Cgroup,
}

impl ClewSide {
    /// Starts daemon and worker; the worker's region is filled and managed.
    pub fn start(
        config: &MicroConfig,
        scratch: &Path,
        layout: Layout,
        pages: u64,
    ) -> Result<ClewSide, BenchError> {
        ClewSide::start_with(config, scratch, layout, pages, None, "")
    }

    /// The same with a budget and the configuration `toml`.
    pub fn start_with(
        config: &MicroConfig,
        scratch: &Path,
        layout: Layout,
        pages: u64,
        budget_bytes: Option<u64>,
        toml: &str,
    ) -> Result<ClewSide, BenchError> {
        let group = Cgroup::create("bench-clew")?;
        let settings = DaemonSettings {
            exe: &config.clew_exe,
            scheme: &config.scheme,
            budget_bytes,
            toml,
            scratch,
            options: &[],
        };
        let daemon = Daemon::start(settings, &group)?;
        let launch = Launch {
            entrances: group.entrances(),
            launcher: daemon.launcher(APP),
            scratch: scratch.to_path_buf(),
        };
        let mut worker = Worker::start(NAME, &config.clew_exe, &launch)?;
        worker.map(config.seed, layout, pages)?;
        let mut side = ClewSide { worker, daemon, group };
        side.wait_until_managed()?;
        Ok(side)
    }

    fn wait_until_managed(&mut self) -> Result<(), BenchError> {
        let since = Instant::now();
        loop {
            let app = self.app()?;
            if app.processes.iter().any(|process| process.managed) {
                return Ok(());
            }
            if since.elapsed() > MANAGED_PATIENCE {
                let reason = match app.processes.first() {
                    Some(process) => format!("it does not manage a worker: {}", process.reason),
                    None => "its daemon does not know the worker".to_string(),
                };
                return Err(BenchError::Unavailable { what: NAME, reason });
            }
            interrupt::sleep(Duration::from_millis(20))?;
        }
    }

    /// The worker as the daemon sees it.
    pub fn app(&mut self) -> Result<AppStatus, BenchError> {
        let status = self.daemon.status()?;
        Ok(status.apps.into_iter().find(|app| app.name == APP).unwrap_or_default())
    }

    /// Takes every page out, and makes sure of it.
    pub fn swap_out(&mut self) -> Result<(), BenchError> {
        self.daemon.order(&Request::SwapOut { app: APP.to_string() })?;
        self.worker.is_out()
    }

    /// Brings every page back.
    pub fn restore(&mut self) -> Result<(), BenchError> {
        self.daemon.order(&restore())
    }

    /// A relaunch begins.
    pub fn foreground(&mut self) -> Result<(), BenchError> {
        self.daemon.order(&Request::Fg { app: APP.to_string() })
    }

    /// It has answered.
    pub fn responded(&mut self, after: Duration) -> Result<(), BenchError> {
        let response_ns = after.as_nanos() as u64;
        self.daemon.order(&Request::Responded { app: APP.to_string(), response_ns })
    }

    /// What the daemon holds for hot.
    pub fn hot_pages(&mut self) -> Result<Vec<HotPages>, BenchError> {
        Ok(self.daemon.connect()?.call(&Request::HotPages { app: APP.to_string() })?)
    }

    /// It is over.
    pub fn background(&mut self) -> Result<(), BenchError> {
        self.daemon.order(&Request::Bg { app: APP.to_string() })
    }
}

/// The request that brings every page of the worker back.
pub fn restore() -> Request {
    Request::Restore { app: APP.to_string() }
}

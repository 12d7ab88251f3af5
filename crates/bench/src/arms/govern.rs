//! `clew govern` beside an arm on the kernel's zram: in the group, of whose memory and processor time it is part, and
//! told which app comes and goes.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};

use super::Ground;
use crate::error::{BenchError, file_error};
use crate::programs::Kind;
use crate::session::{Launch, last_words};

/// How much of what is resident stays with programs behind: a point of the curve between who returns and who is in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// What `clew govern` does by itself.
    Usual,
    /// Nothing.
    None,
    /// Four tenths.
    More,
    /// Eight tenths.
    Most,
}

impl Keep {
    /// All of them.
    pub const ALL: [Keep; 4] = [Keep::Usual, Keep::None, Keep::More, Keep::Most];

    /// The name of the arm.
    pub fn arm_name(self) -> &'static str {
        match self {
            Keep::Usual => "kernel-zram+govern",
            Keep::None => "kernel-zram+govern-keep-0",
            Keep::More => "kernel-zram+govern-keep-40",
            Keep::Most => "kernel-zram+govern-keep-80",
        }
    }

    /// What `clew govern --keep` is told, if anything.
    fn percent(self) -> Option<&'static str> {
        match self {
            Keep::Usual => None,
            Keep::None => Some("0"),
            Keep::More => Some("40"),
            Keep::Most => Some("80"),
        }
    }
}

/// A running governor. Its end ends it; what is swapped out stays with the kernel.
pub struct Governed {
    child: Child,
    orders: Option<ChildStdin>,
    apps: Vec<(Kind, u32)>,
    said: PathBuf,
}

impl Governed {
    /// Starts one for these processes.
    pub fn start(
        exe: PathBuf,
        keep: Keep,
        ground: &Ground,
        apps: &[(Kind, u32)],
    ) -> Result<Governed, BenchError> {
        let said = ground.scratch.join("govern.stderr");
        let stderr = File::create(&said).map_err(file_error("create", &said))?;
        let budget = ground.total()?;
        let mut argv: Vec<OsString> = vec![exe.into(), "govern".into(), "--orders".into()];
        argv.extend(["--budget".into(), budget.to_string().into()]);
        if let Some(percent) = keep.percent() {
            argv.extend(["--keep".into(), percent.into()]);
        }
        argv.extend(apps.iter().map(|(_, pid)| OsString::from(pid.to_string())));
        let launch = Launch { entrances: ground.group.entrances(), ..Launch::default() };
        let mut child = launch
            .command(&argv)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|source| BenchError::Start { program: "clew govern".to_string(), source })?;
        let orders = child.stdin.take();
        Ok(Governed { child, orders, apps: apps.to_vec(), said })
    }

    /// Tells it where an app goes: `fg` or `bg`.
    ///
    /// # Errors
    /// It has ended; with what it said.
    pub fn order(&mut self, verb: &str, app: Kind) -> Result<(), BenchError> {
        let pid = self.apps.iter().find(|(kind, _)| *kind == app).map(|(_, pid)| *pid);
        let (Some(pid), Some(orders)) = (pid, &mut self.orders) else { return Ok(()) };
        orders.write_all(format!("{verb} {pid}\n").as_bytes()).map_err(|error| {
            BenchError::Unavailable {
                what: "clew govern",
                reason: format!("{error}; it said: {}", last_words(&self.said)),
            }
        })
    }
}

impl Drop for Governed {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

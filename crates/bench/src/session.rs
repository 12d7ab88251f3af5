//! One running program: started (inside a group, behind a launcher), filled, asked, ended.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{BenchError, file_error};
use crate::interrupt;
use crate::programs::{Answers, Link, Program};
use crate::wire::Wire;

/// Where and how programs are started.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// `cgroup.procs` files that the program enters before it runs.
    pub entrances: Vec<PathBuf>,
    /// Arguments in front of the program's own: a launcher.
    pub launcher: Vec<OsString>,
    /// A directory for sockets and what the program says on its standard error.
    pub scratch: PathBuf,
}

impl Launch {
    /// A command that enters the group, then becomes `argv` behind the launcher. The child has its
    /// own process group, so that Ctrl-C at the terminal is for us alone.
    pub fn command(&self, argv: &[OsString]) -> Command {
        let mut whole: Vec<OsString> = Vec::new();
        if !self.entrances.is_empty() {
            let enter = "while [ \"$1\" != -- ]; do echo $$ >\"$1\" || exit 125; shift; done; \
                         shift; exec \"$@\"";
            whole.extend(["/bin/sh", "-c", enter, "enter"].map(OsString::from));
            whole.extend(self.entrances.iter().map(OsString::from));
            whole.push("--".into());
        }
        whole.extend_from_slice(&self.launcher);
        whole.extend_from_slice(argv);
        let mut command = Command::new(&whole[0]);
        command.args(&whole[1..]).process_group(0);
        command
    }
}

/// A running program and the connection to it.
pub struct Session {
    program: Box<dyn Program>,
    child: Child,
    wire: Option<Wire>,
    said: PathBuf,
}

impl Session {
    /// Starts `program` and connects to it.
    pub fn start(program: Box<dyn Program>, launch: &Launch) -> Result<Session, BenchError> {
        let name = program.kind().name();
        let fail = |source| BenchError::Start { program: name.to_string(), source };
        let said = launch.scratch.join(format!("{name}.stderr"));
        let stderr = File::create(&said).map_err(file_error("create", &said))?;
        let mut command = launch.command(&program.command(&launch.scratch)?);
        command.envs(program.environment(&launch.scratch)).stderr(stderr);
        let link = program.link(&launch.scratch);
        let ours = match &link {
            Link::Stdio => {
                let (ours, theirs) = UnixStream::pair().map_err(fail)?;
                let input = theirs.try_clone().map_err(fail)?;
                command.stdin(Stdio::from(OwnedFd::from(input)));
                command.stdout(Stdio::from(OwnedFd::from(theirs)));
                Some(ours)
            }
            Link::Socket(_) => {
                command.stdin(Stdio::null()).stdout(Stdio::null());
                None
            }
        };
        let child = command.spawn().map_err(fail)?;
        // With it go our copies of the child's ends.
        drop(command);
        let mut session = Session { program, child, wire: None, said };
        let stream = match (ours, link) {
            (Some(ours), _) => ours,
            (None, Link::Socket(path)) => session.connect(&path)?,
            (None, Link::Stdio) => unreachable!("stdio links were made above"),
        };
        session.wire = Some(Wire::new(name, stream, session.program.patience())?);
        Ok(session)
    }

    fn connect(&mut self, path: &Path) -> Result<UnixStream, BenchError> {
        let since = Instant::now();
        loop {
            interrupt::check()?;
            match UnixStream::connect(path) {
                Ok(stream) => return Ok(stream),
                Err(_) if self.child.try_wait().is_ok_and(|status| status.is_some()) => {
                    return Err(self.ended());
                }
                Err(source) if since.elapsed() > Duration::from_secs(20) => {
                    let program = self.program.kind().name().to_string();
                    return Err(BenchError::Connection { program, source });
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// The program.
    pub fn program(&self) -> &dyn Program {
        &*self.program
    }

    /// Its process id (the launcher's, where there is one that stays).
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fills it with its data, calling `pace` in between. Any wrong answer is an error.
    pub fn fill(&mut self, pace: &dyn Fn() -> Result<(), BenchError>) -> Result<(), BenchError> {
        self.speak(|program, wire| program.fill(wire, pace))
    }

    /// Makes up what its user does at that visit. Outside the clock.
    pub fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        self.program.prepare(visit)
    }

    /// Does it, and waits for all answers.
    pub fn visit(&mut self) -> Result<Answers, BenchError> {
        self.speak(|program, wire| program.visit(wire))
    }

    fn speak<T>(
        &mut self,
        what: impl FnOnce(&mut dyn Program, &mut Wire) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let wire = self.wire.as_mut().expect("a session is connected until it ends");
        match what(&mut *self.program, wire) {
            // The end of a program is the reason; the broken connection is only what it looks like.
            Err(BenchError::Connection { .. }) if self.has_ended() => Err(self.ended()),
            other => other,
        }
    }

    /// A broken connection may come a moment before the process is gone.
    fn has_ended(&mut self) -> bool {
        (0..50).any(|_| {
            thread::sleep(Duration::from_millis(10));
            self.child.try_wait().is_ok_and(|status| status.is_some())
        })
    }

    fn ended(&mut self) -> BenchError {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            _ => "no status".to_string(),
        };
        BenchError::Ended {
            program: self.program.kind().name().to_string(),
            status,
            last_words: last_words(&self.said),
        }
    }

    /// Asks the program to end, waits for it, and kills it if it does not.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(mut wire) = self.wire.take() {
            self.program.goodbye(&mut wire);
        }
        let patience = Instant::now() + Duration::from_secs(5);
        while Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It was asked and did not listen. The guard of its group ends what is behind a launcher.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of what a program said, as a continuation of an error text.
pub fn last_words(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(4).collect();
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    format!("; it said: {}", lines.join(" / "))
}

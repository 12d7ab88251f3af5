//! Puts a session's files where they belong, and takes them away again. What makes programs begin with an agent
//! comes last and goes first, so that nothing is named that is not there.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_live::agents::preload;
use clew_live::control::trusted_path;
use clew_live::daemon::agents_socket;
use clew_live::programs::proc_stat::user_of;
use clew_trace::regular;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::environment::{self, Environment};
use crate::error::SessionError;
use crate::exceptions::Exceptions;
use crate::files::{self, Content, MOST_BYTES, State, failed};
use crate::manager;
use crate::places::Places;
use crate::units;

/// How long another command of the same user is waited for: each takes a moment.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session as it is to be.
#[derive(Clone, Debug)]
pub struct Session {
    /// Where its files are.
    pub places: Places,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The `clew` that is to be started.
    pub command: PathBuf,
    /// Whether a unit of the session's own runs the daemon; else somebody serves the socket already.
    pub has_daemon: bool,
}

/// One of its files.
#[derive(Clone, Debug)]
pub struct Item {
    /// What it is for.
    pub what: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// What is there.
    pub content: Content,
}

/// What taking a session away has left.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Files that somebody has changed or made.
    pub theirs: Vec<PathBuf>,
    /// Processes that have the agent's object in their environment: what they start would not find it.
    pub users: usize,
}

impl Session {
    /// What its programs are told.
    pub fn environment(&self) -> Environment {
        Environment {
            object: self.places.object(),
            agents: agents_socket(&self.socket),
            exceptions: self.places.exceptions(),
        }
    }

    /// Its files but for object and list, in the order in which they are made.
    ///
    /// # Errors
    /// Where a path cannot be written there.
    pub fn items(&self) -> Result<Vec<Item>, SessionError> {
        let mut items = Vec::new();
        for (target, unit) in units::WANTED {
            if unit == units::DAEMON && !self.has_daemon {
                continue;
            }
            let what = if unit == units::DAEMON { "daemon" } else { "watch" };
            let text = units::text(unit, &self.command, &self.socket)?;
            let path = self.places.unit(unit);
            items.push(Item { what, path, content: Content::Text(text) });
            let path = self.places.wanted_by(target, unit);
            let content = Content::Link(Path::new("..").join(unit));
            items.push(Item { what, path, content });
        }
        let content = Content::Text(self.environment().for_systemd()?);
        items.push(Item { what: "environment", path: self.places.environment(), content });
        Ok(items)
    }

    /// What is where the object is to be.
    pub fn object_state(&self) -> State {
        let object = self.places.object();
        match fs::symlink_metadata(&object) {
            Err(_) => State::Missing,
            Ok(_) if preload::is_this_object(&object) => State::There,
            Ok(_) if preload::is_an_object(&object) => State::Older,
            Ok(_) => State::Theirs,
        }
    }

    /// Keeps other commands from changing this session meanwhile, as long as what is answered lives. Where nobody can be
    /// kept from it (file systems without locks, or who holds the lock does not let go: every user may who may read
    /// this directory), nobody is.
    pub fn locked(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let home = File::from(rustix::fs::open(self.places.home(), flags, Mode::empty()).ok()?);
        let until = Instant::now() + PATIENCE;
        loop {
            match rustix::fs::flock(&home, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(home),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(_) => return None,
            }
        }
    }

    /// Puts the object and, if there is none, the list of exceptions where they belong.
    ///
    /// # Errors
    /// Those of writing.
    pub fn put_object(&self) -> Result<(), SessionError> {
        let (object, list) = (self.places.object(), self.places.exceptions());
        environment::plain(&object, "LD_PRELOAD")?;
        if self.object_state() == State::Theirs {
            return Err(SessionError::Theirs { path: object });
        }
        let name = object.file_name().unwrap_or_default().to_string_lossy();
        preload::put(trusted_path::directory_of(&object), &name)?;
        trusted_path::make(trusted_path::directory_of(&list), 0o755)?;
        match files::write_new(&list, &Exceptions::usual().text()) {
            Err(SessionError::Theirs { .. }) => Ok(()),
            written => written,
        }
    }

    /// Puts all of it there, or, where something of somebody else's is in the way, nothing.
    ///
    /// # Errors
    /// What is in the way; those of writing.
    pub fn enable(&self) -> Result<(), SessionError> {
        trusted_path::make(self.places.home(), 0o755)?;
        let _locked = self.locked();
        let items = self.items()?;
        for item in &items {
            if item.content.look(&item.path)? == State::Theirs {
                return Err(SessionError::Theirs { path: item.path.clone() });
            }
        }
        self.put_object()?;
        items.iter().try_for_each(|item| item.content.put(&item.path))
    }

    /// Takes all of it away but what is somebody else's, and the object as long as who runs names it.
    ///
    /// # Errors
    /// Those of looking and removing.
    pub fn disable(&self) -> Result<Left, SessionError> {
        let _locked = self.locked();
        let mut left = Left::default();
        let with_daemon = Session { has_daemon: true, ..self.clone() };
        for item in with_daemon.items()?.iter().rev() {
            if item.content.take_away(&item.path)? == State::Theirs {
                left.theirs.push(item.path.clone());
            }
            if matches!(item.content, Content::Link(_)) {
                files::remove_if_empty(trusted_path::directory_of(&item.path));
            }
        }
        let list = self.places.exceptions();
        match self.is_list_changed() {
            true => left.theirs.push(list),
            false => remove(&list)?,
        }
        left.users = users_of(&self.places.object());
        match self.object_state() {
            State::Theirs => left.theirs.push(self.places.object()),
            _ if left.users == 0 => remove(&self.places.object())?,
            _ => {}
        }
        self.places.directories().iter().for_each(|made| files::remove_if_empty(made));
        Ok(left)
    }

    /// Has the user's service manager begin with it now: who is started from now on has an agent.
    ///
    /// # Errors
    /// What the service manager says.
    pub fn begin_now(&self) -> Result<(), String> {
        manager::tell(&["daemon-reload"])?;
        let environment = self.environment();
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut preload = path(&environment.object);
        let before = manager::variable(environment::ENV_PRELOAD).unwrap_or_default();
        let others = environment.without_object(&before);
        let others = others.map_or(before.clone(), |others| others.join(":"));
        if !others.is_empty() {
            preload = format!("{preload}:{others}");
        }
        let values = [preload, path(&environment.agents), path(&environment.exceptions)];
        let pairs =
            environment::NAMES.iter().zip(values).map(|(name, value)| format!("{name}={value}"));
        let units = units::WANTED.iter().map(|(_, unit)| *unit);
        let units = units.filter(|unit| self.has_daemon || *unit != units::DAEMON);
        manager::tell(&["start"].into_iter().chain(units).collect::<Vec<_>>())?;
        manager::tell(&["set-environment".to_string()].into_iter().chain(pairs).collect::<Vec<_>>())
    }

    /// Whether its user has made the list of exceptions, or changed it.
    pub fn is_list_changed(&self) -> bool {
        let text = regular::read_text(&self.places.exceptions(), MOST_BYTES, 0);
        match text {
            Ok(text) => text != Exceptions::usual().text(),
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// Has the user's service manager end it: units, and what it gives to what it starts.
    ///
    /// # Errors
    /// What the service manager says; what else there is to be told is told all the same.
    pub fn end_now(&self) -> Result<(), String> {
        let before = manager::variable(environment::ENV_PRELOAD).unwrap_or_default();
        let mut told = Ok(());
        if let Some(others) = self.environment().without_object(&before) {
            told = manager::tell(&[&["unset-environment"][..], &environment::NAMES].concat());
            if !others.is_empty() {
                let others = format!("{}={}", environment::ENV_PRELOAD, others.join(":"));
                told = told.and(manager::tell(&["set-environment", &others]));
            }
        }
        let units = [units::WATCH, units::DAEMON];
        told.and(manager::tell(&[&["stop"][..], &units].concat()))
    }
}

fn remove(path: &Path) -> Result<(), SessionError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Processes of this user that have this object to be preloaded into what they start.
fn users_of(object: &Path) -> usize {
    let own = trusted_path::own_uid();
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let object = object.to_string_lossy();
    let has = |pid: &u32| {
        let preload = clew_live::programs::environment::of(*pid, "LD_PRELOAD").ok().flatten();
        preload.is_some_and(|value| String::from_utf8_lossy(&value).contains(&*object))
    };
    let is_own = |pid: &u32| user_of(*pid) == Some(own) && *pid != std::process::id();
    pids.filter(is_own).filter(has).count()
}

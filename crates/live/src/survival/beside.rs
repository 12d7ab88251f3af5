//! What a daemon has where it is served, made again where it is gone: who tidies a directory for temporary files removes
//! what is old, or all of it.
//!
//! Nothing is made where somebody else serves by now: what is beside a socket says which programs wait for whom.

use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_store::points;

use super::badge::{Badge, KeeperNumbers, Says};
use super::listener::Listener;
use super::lock::LockApart;
use super::predecessor::{
    Predecessor, ProcessName, beside, numbers, replace, server, write_server,
};
use crate::control::trusted_path;

/// How often is looked whether it is there.
const LOOK_BESIDE: Duration = Duration::from_secs(1);

/// What is written down beside a socket and the sockets themselves, as the daemon that serves there knows them.
pub struct Beside {
    socket: PathBuf,
    own: ProcessName,
    keeper: ProcessName,
    badge: Badge,
    generation: u64,
    journal: RawFd,
    /// Not those of a service manager.
    listeners: Vec<Listener>,
    /// Who is let in besides the own user.
    group: Option<u32>,
    /// The mode of the directory.
    mode: u32,
    looked: Instant,
    /// What could not be done the last time.
    failed: Option<String>,
}

impl Beside {
    /// Writes down that process `keeper` holds the descriptors of `generation`. From this moment on a successor
    /// goes by them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn commit(
        socket: &Path,
        (keeper, badge): (u32, Badge),
        generation: u64,
        journal: RawFd,
    ) -> io::Result<Beside> {
        let (own, keeper) = (ProcessName::of(std::process::id())?, ProcessName::of(keeper)?);
        let beside = Beside {
            socket: socket.to_path_buf(),
            own,
            keeper,
            badge,
            generation,
            journal,
            listeners: Vec::new(),
            group: None,
            mode: 0o700,
            looked: Instant::now(),
            failed: None,
        };
        beside.write_badge()?;
        points::start_badged();
        beside.write_keeper()?;
        Ok(beside)
    }

    /// Looks after these sockets, too, in a directory of this mode, to which members of `group` may connect.
    pub fn with_listeners(self, listeners: Vec<Listener>, mode: u32, group: Option<u32>) -> Beside {
        Beside { listeners, mode, group, ..self }
    }

    fn write_badge(&self) -> io::Result<()> {
        let server = [self.own.pid.into(), self.own.started];
        self.badge.write(&self.socket, &Says { keeper: self.keeper_numbers(), server })
    }

    fn write_keeper(&self) -> io::Result<()> {
        let text = self.keeper_numbers().map(|number| number.to_string()).join(" ");
        replace(&beside(&self.socket, "keeper"), &format!("{text}\n"))
    }

    /// Now and then makes again what is gone; whether the keeper lives, as far as was looked.
    ///
    /// # Errors
    /// It cannot be made: said once, until something else is in the way.
    pub fn look_after(&mut self) -> io::Result<bool> {
        if self.looked.elapsed() < LOOK_BESIDE {
            return Ok(true);
        }
        self.looked = Instant::now();
        if !self.keeper.is_alive() {
            return Ok(false);
        }
        let failed = self.make_again().err();
        let said = std::mem::replace(&mut self.failed, failed.as_ref().map(io::Error::to_string));
        match failed {
            Some(error) if self.failed != said => Err(error),
            _ => Ok(true),
        }
    }

    fn make_again(&mut self) -> io::Result<()> {
        let directory = trusted_path::directory_of(&self.socket);
        match trusted_path::check(directory) {
            Err(error) if !error.is_missing() => return Err(io::Error::other(error)),
            _ => {}
        }
        if self.listeners.iter().all(Listener::is_there)
            && self.is_keeper_named()
            && self.named() == Some(self.own)
        {
            return Ok(());
        }
        trusted_path::make(directory, self.mode).map_err(io::Error::other)?;
        let _lock = LockApart::take(&self.socket)?;
        points::beside_locked();
        match self.named() {
            Some(server) if server == self.own => {}
            Some(other) if self.has_place(other)? => return Err(taken(other)),
            Some(_) | None => write_server(&self.socket, self.own)?,
        }
        if !self.is_keeper_named() {
            // The directory may be another one now.
            self.write_badge()?;
            self.write_keeper()?;
        }
        let mut gone = self.listeners.iter_mut().filter(|listener| !listener.is_there());
        gone.try_for_each(|listener| listener.anew(self.group))
    }

    /// Who serves here, by what is written down; nobody if that makes no sense.
    fn named(&self) -> Option<ProcessName> {
        server(&self.socket).ok().flatten()
    }

    /// Whether this daemon's keeper is what a successor finds.
    fn is_keeper_named(&self) -> bool {
        let found = numbers(&beside(&self.socket, "keeper")).ok().flatten();
        found == Some(self.keeper_numbers())
    }

    fn keeper_numbers(&self) -> KeeperNumbers {
        let ProcessName { pid, started } = self.keeper;
        [pid.into(), started, self.generation, self.journal as u64]
    }

    /// Whether `other` serves here, or programs wait for one who takes over from it.
    fn has_place(&self, other: ProcessName) -> io::Result<bool> {
        if other.open()?.is_some_and(|process| !other.is_over(&process)) {
            return Ok(true);
        }
        match Predecessor::find(&self.socket) {
            // It names no keeper.
            Err(error) if error.kind() == ErrorKind::InvalidData => Ok(false),
            left => Ok(left?.is_some_and(|left| left.name != self.keeper)),
        }
    }
}

fn taken(other: ProcessName) -> io::Error {
    let what = "was removed, and process";
    io::Error::other(format!(
        "the directory of the socket {what} {} has begun to serve there: nobody can reach this daemon, nor take over \
         from it, until that one has ended in order",
        other.pid
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::survival::predecessor::claim;

    #[test]
    fn where_there_is_a_keeper_all_is_left() {
        let dir = std::env::temp_dir().join(format!("clew-kept-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("clew.sock");
        let claimed =
            || claim(&socket).expect("the files can be written").expect("nobody serves it");
        let mut keeper =
            std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let badge = Badge::new().expect("memory");
        let first = claimed();
        let _beside =
            Beside::commit(&socket, (keeper.id(), badge), 1, 3).expect("the files can be written");
        drop(first);
        for what in ["keeper", "pid", "lock"] {
            assert!(beside(&socket, what).exists(), "{what}");
        }
        keeper.kill().and_then(|()| keeper.wait()).expect("it was ours");
        drop(claimed());
        fs::remove_dir(&dir).expect("nothing is left");
    }

    #[test]
    fn a_file_that_cannot_be_put_in_its_place_goes() {
        let dir = std::env::temp_dir().join(format!("clew-partial-{}", std::process::id()));
        let socket = dir.join("clew.sock");
        let place = beside(&socket, "keeper");
        fs::create_dir_all(&place).expect("a directory, which no file replaces");
        let badge = Badge::new().expect("memory");
        let written = Beside::commit(&socket, (std::process::id(), badge), 1, 3);
        assert!(written.is_err(), "it cannot be replaced");
        fs::remove_dir(&place).expect("it is ours");
        fs::remove_dir(&dir).expect("nothing else is left");
    }
}

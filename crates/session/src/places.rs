//! Where a session has its files.

use std::env;
use std::path::{Path, PathBuf};

use crate::error::SessionError;

/// The directories of one user's files (XDG Base Directory Specification 0.8).
#[derive(Clone, Debug)]
pub struct Places {
    config: PathBuf,
    data: PathBuf,
}

impl Places {
    /// Those of this process's environment.
    ///
    /// # Errors
    /// Where neither HOME nor what stands for it is an absolute path.
    pub fn of_this_user() -> Result<Places, SessionError> {
        let absolute =
            |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home =
            |below: &str| absolute("HOME").map(|home| home.join(below)).ok_or(SessionError::NoHome);
        Ok(Places {
            config: absolute("XDG_CONFIG_HOME").map_or_else(|| home(".config"), Ok)?,
            data: absolute("XDG_DATA_HOME").map_or_else(|| home(".local/share"), Ok)?,
        })
    }

    /// Those below this directory.
    pub fn below(home: &Path) -> Places {
        Places { config: home.join(".config"), data: home.join(".local/share") }
    }

    /// The directory in which all of its settings are.
    pub fn home(&self) -> &Path {
        &self.config
    }

    /// What the user's service manager gives to all that it starts (environment.d(5)).
    pub fn environment(&self) -> PathBuf {
        self.config.join("environment.d/60-clew.conf")
    }

    /// A unit of the user's.
    pub fn unit(&self, name: &str) -> PathBuf {
        self.config.join("systemd/user").join(name)
    }

    /// What has the unit started with a target.
    pub fn wanted_by(&self, target: &str, unit: &str) -> PathBuf {
        self.config.join("systemd/user").join(format!("{target}.wants")).join(unit)
    }

    /// The list of exceptions.
    pub fn exceptions(&self) -> PathBuf {
        self.config.join("clew/exceptions")
    }

    /// Where the agent's object is. It is no cache: programs that run hand its path to each one that they
    /// start.
    pub fn object(&self) -> PathBuf {
        self.data.join("clew").join(format!("{}.so", clew_live::agents::preload::NAME))
    }

    /// Directories that may have been made for these files, the deepest first.
    pub fn directories(&self) -> Vec<PathBuf> {
        let config = ["clew", "environment.d", "systemd/user", "systemd"];
        config.iter().map(|name| self.config.join(name)).chain([self.data.join("clew")]).collect()
    }
}

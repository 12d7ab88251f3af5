//! Where the sockets, sources and messages of the programs are while they run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clew_live::control::trusted_path;
use tempfile::TempDir;

use crate::error::{BenchError, file_error};

/// A directory of this process alone: what lies in it is run, as whoever measures. Its name is nobody's
/// to foresee, and it ends with this.
pub struct Scratch(TempDir);

impl Scratch {
    /// A fresh one in the directory for temporary files, of mode 0700.
    ///
    /// # Errors
    /// If there is no place for it, or others can change what is on the way to it.
    pub fn new(prefix: &str) -> Result<Scratch, BenchError> {
        Scratch::below(&std::env::temp_dir(), prefix)
    }

    /// The same in a directory that is there.
    ///
    /// # Errors
    /// As [`Scratch::new`].
    pub fn below(parent: &Path, prefix: &str) -> Result<Scratch, BenchError> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(file_error("create a directory in", parent))?;
        trusted_path::check(dir.path()).map_err(|error| BenchError::Unavailable {
            what: "the directory for temporary files (TMPDIR, --dir)",
            reason: error.to_string(),
        })?;
        Ok(Scratch(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_others_have_made_ready_is_not_used() {
        // By the only name that could be foreseen.
        let prefix = format!("clew-scratch-{}", std::process::id());
        let trap = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&trap).expect("a directory");
        let [one, other] = [(); 2].map(|()| Scratch::new(&prefix).expect("a directory"));
        assert!(one.path() != trap && one.path() != other.path());
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode(one.path()) & 0o777, 0o700);
        let gone = one.path().to_path_buf();
        drop(one);
        assert!(!gone.exists() && trap.exists());
        fs::remove_dir(&trap).expect("nothing is in it");
    }
}

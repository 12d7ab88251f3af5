//! Files that are put among a user's own and taken away again. What is ours is told by the file itself: its
//! first line has the checksum of the rest. What somebody has changed, or has made, is theirs: it is neither
//! written over nor removed.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clew_live::control::trusted_path;
use rustix::fs::{CWD, RenameFlags};
use serde::Serialize;
use twox_hash::XxHash3_64;

use crate::error::SessionError;

/// How the first line begins; the checksum follows, as 16 hexadecimal digits.
const STAMP: &str =
    "# Of 'clew session enable'; 'clew session disable' removes it unless it was changed: ";

/// Most bytes of a file that is looked at.
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// What there is to be at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file with a stamp and this text.
    Text(String),
    /// A symbolic link to this.
    Link(PathBuf),
}

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing.
    Missing,
    /// What is to be there.
    There,
    /// What is ours, and says something else: of another version, or of other options.
    Older,
    /// Something else, which is not ours.
    Theirs,
}

impl Content {
    /// What is at `path`, beside this.
    ///
    /// # Errors
    /// Where that cannot be told.
    pub fn look(&self, path: &Path) -> Result<State, SessionError> {
        let found = match fs::symlink_metadata(path) {
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) =>
            {
                return Ok(State::Missing);
            }
            found => found.map_err(failed("look at", path))?,
        };
        match self {
            Content::Link(to) if found.is_symlink() => {
                let is_same = fs::read_link(path).map_err(failed("look at", path))? == *to;
                Ok(if is_same { State::There } else { State::Theirs })
            }
            Content::Text(text) if found.is_file() && found.len() <= MOST_BYTES => {
                let there = fs::read(path).map_err(failed("read", path))?;
                let there = String::from_utf8(there).unwrap_or_default();
                Ok(match unstamped(&there) {
                    Some(said) if said == text => State::There,
                    Some(_) => State::Older,
                    None => State::Theirs,
                })
            }
            _ => Ok(State::Theirs),
        }
    }

    /// Puts it at `path`, whole or not at all.
    ///
    /// # Errors
    /// Where something of somebody else's is there; those of writing.
    pub fn put(&self, path: &Path) -> Result<(), SessionError> {
        trusted_path::make(trusted_path::directory_of(path), 0o755)?;
        let state = self.look(path)?;
        match (self, state) {
            (_, State::There) => Ok(()),
            (_, State::Theirs) => Err(SessionError::Theirs { path: path.to_path_buf() }),
            (Content::Link(to), _) => std::os::unix::fs::symlink(to, path).map_err(taken(path)),
            (Content::Text(text), State::Missing) => write_new(path, &stamped(text)),
            (Content::Text(text), State::Older) => replace(path, &stamped(text)),
        }
    }

    /// Takes away what is ours at `path`; what was there.
    ///
    /// # Errors
    /// Those of looking and removing.
    pub fn take_away(&self, path: &Path) -> Result<State, SessionError> {
        let state = self.look(path)?;
        if matches!(state, State::There | State::Older) {
            fs::remove_file(path).map_err(failed("remove", path))?;
        }
        Ok(state)
    }
}

fn stamped(text: &str) -> String {
    format!("{STAMP}{:016x}\n{text}", XxHash3_64::oneshot(text.as_bytes()))
}

/// The text of a stamped file, if it is as it was stamped.
fn unstamped(file: &str) -> Option<&str> {
    let (first, text) = file.split_once('\n')?;
    let sum = first.strip_prefix(STAMP)?;
    (sum == format!("{:016x}", XxHash3_64::oneshot(text.as_bytes()))).then_some(text)
}

/// Makes a file of mode 0644 where nothing may be.
///
/// # Errors
/// Those of writing; what came there meanwhile stays.
pub fn write_new(path: &Path, text: &str) -> Result<(), SessionError> {
    let draft = draft(path, text)?;
    let moved = rustix::fs::renameat_with(CWD, &*draft, CWD, path, RenameFlags::NOREPLACE);
    moved.map_err(|error| taken(path)(error.into()))?;
    // It has another name now.
    let _ = draft.keep();
    Ok(())
}

/// Makes a file of mode 0644 in place of what is there.
///
/// # Errors
/// Those of writing.
pub fn replace(path: &Path, text: &str) -> Result<(), SessionError> {
    draft(path, text)?.persist(path).map_err(failed("write", path))
}

fn draft(path: &Path, text: &str) -> Result<tempfile::TempPath, SessionError> {
    let mut file = tempfile::Builder::new()
        .prefix(".clew-")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(trusted_path::directory_of(path))
        .map_err(failed("write", path))?;
    file.write_all(text.as_bytes()).map_err(failed("write", path))?;
    // The system's mask does not hold here: service managers read it.
    let file_of = file.as_file();
    file_of.set_permissions(Permissions::from_mode(0o644)).map_err(failed("write", path))?;
    file_of.sync_all().map_err(failed("write", path))?;
    Ok(file.into_temp_path())
}

/// Removes a directory in which nothing is.
pub fn remove_if_empty(directory: &Path) {
    let _ = fs::remove_dir(directory);
}

pub(crate) fn failed<E: Into<io::Error>>(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> SessionError {
    let path = path.to_path_buf();
    move |source| SessionError::File { action, path, source: source.into() }
}

fn taken(path: &Path) -> impl FnOnce(io::Error) -> SessionError {
    let path = path.to_path_buf();
    move |source| match source.kind() {
        ErrorKind::AlreadyExists => SessionError::Theirs { path },
        _ => SessionError::File { action: "make", path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_has_made_or_changed_is_theirs() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b/file");
        let text = Content::Text("A=1\n".into());
        assert_eq!(text.look(&path).expect("nothing"), State::Missing);
        text.put(&path).expect("it is made");
        assert_eq!(text.look(&path).expect("ours"), State::There);
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o644);
        let newer = Content::Text("A=2\n".into());
        assert_eq!(newer.look(&path).expect("ours"), State::Older);
        newer.put(&path).expect("it is ours");
        assert!(fs::read_to_string(&path).expect("readable").ends_with("\nA=2\n"));
        // Any change makes it theirs, and so does any other file.
        let mut changed = fs::read_to_string(&path).expect("readable");
        changed.push_str("B=1\n");
        for theirs in [changed.as_str(), "", "A=2\n", "# Of 'clew session enable'"] {
            fs::write(&path, theirs).expect("written");
            assert!(matches!(newer.put(&path), Err(SessionError::Theirs { .. })), "{theirs}");
            assert_eq!(newer.take_away(&path).expect("looked at"), State::Theirs);
            assert_eq!(fs::read_to_string(&path).expect("it stays"), theirs);
        }
        fs::remove_file(&path).expect("removed");
        let precious = dir.path().join("precious");
        fs::write(&precious, stamped("A=2\n")).expect("written");
        std::os::unix::fs::symlink(&precious, &path).expect("a link");
        assert!(matches!(newer.put(&path), Err(SessionError::Theirs { .. })), "a link is no file");
        assert_eq!(newer.take_away(&path).expect("looked at"), State::Theirs);
        assert!(matches!(write_new(&path, ""), Err(SessionError::Theirs { .. })));
        let left = fs::read_dir(path.parent().expect("a directory")).expect("readable").count();
        assert_eq!(left, 1, "drafts are left");
    }

    #[test]
    fn links_are_ours_if_they_lead_where_ours_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("wants/unit");
        let (ours, other) = (Content::Link("../unit".into()), Content::Link("/etc/unit".into()));
        ours.put(&path).expect("it is made");
        ours.put(&path).expect("it is there");
        assert_eq!(other.take_away(&path).expect("looked at"), State::Theirs);
        assert!(matches!(other.put(&path), Err(SessionError::Theirs { .. })));
        assert_eq!(ours.take_away(&path).expect("removed"), State::There);
        assert_eq!(ours.take_away(&path).expect("nothing"), State::Missing);
    }
}

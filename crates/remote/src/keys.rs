//! Who a machine is: a key pair (X25519), and the keys of the machines that it knows.
//!
//! Both lie in one directory, which is nobody else's: `identity`, the private key, and `known`, one line for each
//! machine: its public key, in hexadecimal digits, and what it is called.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The protocol's name: it says what keys are.
pub const PATTERN: &str = "Noise_IK_25519_AESGCM_SHA256";
/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Machines that are known, at most.
const MOST_KNOWN: usize = 1024;
/// Digits of a key in the name of a machine that named itself, at least.
const LEAST_DIGITS: usize = 8;
/// Bytes of the file of known machines, at most.
const MOST_BYTES: u64 = 1 << 20;

/// A machine's public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl PublicKey {
    /// The key of these digits.
    pub fn parse(text: &str) -> Option<PublicKey> {
        let mut key = [0; KEY_BYTES];
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES || !digits.is_ascii() {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(PublicKey(key))
    }
}

/// A machine's own keys.
#[derive(Clone)]
pub struct Identity {
    private: [u8; KEY_BYTES],
    public: PublicKey,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    /// It is not what it should be.
    #[error("{}: {why}", path.display())]
    Unsound { path: PathBuf, why: &'static str },
    /// There is no randomness.
    #[error("no key could be made: {0}")]
    Make(String),
}

impl Identity {
    /// New keys, at random.
    ///
    /// # Errors
    /// [`KeyError::Make`].
    pub fn random() -> Result<Identity, KeyError> {
        let made = |error: snow::Error| KeyError::Make(error.to_string());
        let pattern = PATTERN.parse().map_err(made)?;
        let pair = snow::Builder::new(pattern).generate_keypair().map_err(made)?;
        let wrong = |_| KeyError::Make("a key of another length".to_string());
        let private = pair.private.as_slice().try_into().map_err(wrong)?;
        let public = pair.public.as_slice().try_into().map_err(wrong)?;
        Ok(Identity { private, public: PublicKey(public) })
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn private(&self) -> &[u8; KEY_BYTES] {
        &self.private
    }
}

/// A directory of keys.
#[derive(Clone, Debug)]
pub struct Keys {
    directory: PathBuf,
    /// This machine's own.
    pub identity: Identity,
}

impl Keys {
    /// Those of a directory, which is made if it is not there, and gets an identity if it has none.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn open(directory: &Path) -> Result<Keys, KeyError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| KeyError::System { path, source }
        };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(failed(directory))?;
        let whose = fs::metadata(directory).map_err(failed(directory))?;
        ours(directory, &whose)?;
        let path = directory.join("identity");
        let unsound = |why| KeyError::Unsound { path: path.clone(), why };
        match fs::symlink_metadata(&path) {
            Ok(meta) if !meta.is_file() => return Err(unsound("it is not a regular file")),
            Ok(meta) if !is_ours(&meta) => return Err(unsound(ANOTHERS)),
            Ok(meta) if meta.mode() & 0o077 != 0 => {
                return Err(unsound(
                    "others may read it: a private key is its owner's (chmod 600)",
                ));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::random()?;
                let hex =
                    |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                let text = format!("{}\n{}\n", hex(&identity.private), identity.public);
                // Whole or not there: what is half written would be refused from then on.
                let written = draft(directory, &text).map_err(failed(&path))?;
                match written.persist_noclobber(&path) {
                    // Somebody was quicker.
                    Err(refused) if refused.error.kind() == io::ErrorKind::AlreadyExists => {}
                    written => drop(written.map_err(|refused| failed(&path)(refused.error))?),
                }
            }
            Err(error) => return Err(failed(&path)(error)),
        }
        if fs::metadata(&path).map_err(failed(&path))?.len() > MOST_BYTES {
            return Err(unsound("it is larger than 1 MiB"));
        }
        let text = fs::read_to_string(&path).map_err(failed(&path))?;
        let mut lines = text.lines().map(PublicKey::parse);
        match (lines.next().flatten(), lines.next().flatten(), lines.next()) {
            (Some(private), Some(public), None) => Ok(Keys {
                directory: directory.to_path_buf(),
                identity: Identity { private: private.0, public },
            }),
            _ => Err(unsound("it has no two lines of 64 hexadecimal digits")),
        }
    }

    /// The machines that are known: key and name.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn known(&self) -> Result<Vec<(PublicKey, String)>, KeyError> {
        let path = self.directory.join("known");
        let failed = |source| KeyError::System { path: path.clone(), source };
        // Asked first: what is no file may have no end, or nobody at the other.
        match fs::metadata(&path) {
            Ok(meta) if !meta.is_file() => {
                return Err(KeyError::Unsound { path, why: "it is not a regular file" });
            }
            Ok(meta) if meta.len() > MOST_BYTES => {
                return Err(KeyError::Unsound { path, why: "it is larger than 1 MiB" });
            }
            Ok(meta) => ours(&path, &meta)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let known = lines.map(|line| {
            let (key, name) = line.split_once(' ').unwrap_or((line, ""));
            PublicKey::parse(key).map(|key| (key, name.trim().to_string()))
        });
        known.collect::<Option<Vec<_>>>().ok_or(KeyError::Unsound {
            path,
            why: "a line is not 64 hexadecimal digits and a name",
        })
    }

    /// Knows a machine by this name, and no other one by it; the same by no other.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn know(&self, key: PublicKey, name: &str) -> Result<(), KeyError> {
        self.change(key, |known| {
            known.retain(|(_, of)| of != name);
            name.to_string()
        })?;
        Ok(())
    }

    /// Knows one more machine: by what it calls itself and as many digits of its key as tell it from others, whom nobody
    /// forgets for it. What it is called.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn know_one_more(&self, key: PublicKey, calls_itself: &str) -> Result<String, KeyError> {
        let digits = key.to_string();
        self.change(key, |known| {
            let mut names = (LEAST_DIGITS..=digits.len())
                .map(|count| format!("{calls_itself}-{}", &digits[..count]));
            let is_free = |name: &String| known.iter().all(|(_, of)| of != name);
            names.find(is_free).unwrap_or(digits.clone())
        })
    }

    /// Adds a machine by the name that `called` gives it, which may take others off.
    fn change(
        &self,
        key: PublicKey,
        called: impl FnOnce(&mut Vec<(PublicKey, String)>) -> String,
    ) -> Result<String, KeyError> {
        let path = self.directory.join("known");
        let failed = |source| KeyError::System { path: path.clone(), source };
        // Several may be told of machines at once; nobody forgets what another has written.
        let directory = File::open(&self.directory).map_err(failed)?;
        directory.lock().map_err(failed)?;
        let mut known = self.known()?;
        known.retain(|(other, _)| *other != key);
        let name = called(&mut known);
        if known.len() >= MOST_KNOWN {
            return Err(KeyError::Unsound {
                path,
                why: "it knows 1024 machines: remove some lines",
            });
        }
        known.push((key, name.clone()));
        let text: String = known.iter().map(|(key, name)| format!("{key} {name}\n")).collect();
        let written = draft(&self.directory, &text).map_err(failed)?;
        written.persist(&path).map_err(|refused| failed(refused.error))?;
        Ok(name)
    }
}

const ANOTHERS: &str =
    "it is another user's, who could read the private key, and say whom this machine knows (chown)";

fn is_ours(meta: &fs::Metadata) -> bool {
    meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw()
}

/// Whether nobody else says what is in it.
fn ours(path: &Path, meta: &fs::Metadata) -> Result<(), KeyError> {
    let unsound = |why| Err(KeyError::Unsound { path: path.to_path_buf(), why });
    match () {
        () if !is_ours(meta) => unsound(ANOTHERS),
        () if meta.mode() & 0o022 != 0 => {
            unsound("others may write to it, and say whom this machine knows (chmod go-w)")
        }
        () => Ok(()),
    }
}

/// A file of this text, on disk, which has no name yet that anybody looks for; its owner's alone.
fn draft(directory: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_stays_and_machines_are_known_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(&dir.path().join("keys")).unwrap();
        let again = Keys::open(&dir.path().join("keys")).unwrap();
        assert_eq!(keys.identity.public(), again.identity.public());
        assert_eq!(keys.identity.private(), again.identity.private());
        let (one, other) =
            (Identity::random().unwrap().public(), Identity::random().unwrap().public());
        keys.know(one, "tv").unwrap();
        keys.know(other, "tablet").unwrap();
        keys.know(other, "tv").unwrap();
        assert_eq!(again.known().unwrap(), [(other, "tv".to_string())]);
    }

    /// A disk is full, or a first start is killed.
    #[test]
    fn an_identity_is_whole_and_one_whoever_begins_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        let begin = || Keys::open(dir.path()).expect("whole, or not there").identity.public;
        let known: Vec<PublicKey> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(known, [begin(); 8]);
        let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["identity"]);
        assert_eq!(fs::metadata(dir.path().join("identity")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn machines_that_are_told_of_at_once_are_all_known() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let keys = &keys;
                scope.spawn(move || {
                    for machine in 0..8 {
                        let key = Identity::random().unwrap().public();
                        keys.know(key, &format!("machine {thread} {machine}")).unwrap();
                    }
                });
            }
        });
        assert_eq!(keys.known().unwrap().len(), 64);
    }

    #[test]
    fn nobody_is_forgotten_for_who_calls_itself_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        let key =
            |last| PublicKey([[7; KEY_BYTES - 1].as_slice(), &[last]].concat().try_into().unwrap());
        let names = [1, 2, 3].map(|last| keys.know_one_more(key(last), "tv").unwrap());
        assert_eq!(names[0], "tv-07070707");
        assert_eq!(names[1], "tv-070707070");
        let known = keys.known().unwrap();
        assert_eq!(known.len(), 3);
        assert!(known.iter().zip(&names).all(|((_, of), name)| of == name), "{known:?}");
        assert_eq!(keys.know_one_more(key(2), "tv").unwrap(), "tv-070707070", "as before");
        assert_eq!(keys.known().unwrap().len(), 3);
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("known")).unwrap();
        assert!(keys.known().unwrap_err().to_string().contains("regular"));
        fs::remove_file(dir.path().join("known")).unwrap();
        fs::write(dir.path().join("known"), "00ff tv\n").unwrap();
        assert!(keys.known().unwrap_err().to_string().contains("64 hexadecimal"));
        fs::remove_file(dir.path().join("known")).unwrap();
        fs::write(dir.path().join("identity"), "x").unwrap();
        assert!(Keys::open(dir.path()).unwrap_err().to_string().contains("identity"));
        // Of which nothing is read.
        File::options()
            .write(true)
            .open(dir.path().join("identity"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(Keys::open(dir.path()).unwrap_err().to_string().contains("larger than 1 MiB"));
        use std::os::unix::fs::PermissionsExt;
        let open = fs::Permissions::from_mode(0o644);
        fs::set_permissions(dir.path().join("identity"), open).unwrap();
        assert!(Keys::open(dir.path()).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn what_others_may_write_or_have_is_not_believed() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        keys.know(Identity::random().unwrap().public(), "tv").unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let (known, identity) = (dir.path().join("known"), dir.path().join("identity"));
        for (path, lets_others_write, own) in [(&*known, 0o620, 0o600), (dir.path(), 0o777, 0o700)]
        {
            mode(path, lets_others_write);
            let refused = Keys::open(dir.path()).and_then(|keys| keys.known()).unwrap_err();
            assert!(refused.to_string().contains("chmod go-w"), "{refused}");
            mode(path, own);
        }
        if !rustix::process::geteuid().is_root() {
            return crate::skip::skip("keys::owners", "only root gives files to others");
        }
        for path in [&*known, &identity, dir.path()] {
            chown(path, Some(65534), None).unwrap();
            let refused = Keys::open(dir.path()).and_then(|keys| keys.known()).unwrap_err();
            assert!(refused.to_string().contains("another user's"), "{refused}");
            chown(path, Some(0), None).unwrap();
        }
        assert_eq!(Keys::open(dir.path()).unwrap().known().unwrap().len(), 1);
    }
}

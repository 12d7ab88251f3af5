//! Where mounts of ours are in the tree, and how they are taken out.
//!
//! A mount is known by its file system and its number, and taken out by a descriptor of it: its path may lead to anything by
//! then, as it may lie in a directory that others may change.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat2, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::patience::within;

/// What is mounted, as the list of mounts has it.
pub const SOURCE: &str = "clew";
/// Of these types: which of them depends on who mounted it.
const TYPES: [&[u8]; 2] = [b"fuse.clew", b"fuse"];
const MOUNTS: &str = "/proc/self/mountinfo";
/// How often one is looked for that others are just moving.
const LOOKS: u32 = 20;

/// A mount of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    device: (u32, u32),
    number: u64,
}

impl Placed {
    /// The one that was just mounted at `path`.
    ///
    /// # Errors
    /// If something else is there, or nobody can tell.
    pub fn at(path: &Path) -> Result<Placed, Errno> {
        let placed = Placed::of(&named(path)?)?;
        match entry(&mounts()?, placed.number).is_some_and(|entry| entry.is_ours()) {
            true => Ok(placed),
            false => Err(Errno::NOENT),
        }
    }

    /// The one of which this is a descriptor.
    ///
    /// # Errors
    /// If nobody can tell.
    pub fn of(root: impl AsFd) -> Result<Placed, Errno> {
        // Nobody is asked, who may not answer.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(root, c"", flags, StatxFlags::MNT_ID)?;
        match StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
            true => Ok(Placed {
                device: (found.stx_dev_major, found.stx_dev_minor),
                number: found.stx_mnt_id,
            }),
            false => Err(Errno::NOSYS),
        }
    }

    /// Names its root, wherever that is now.
    ///
    /// # Errors
    /// `NOENT` if it is not in the tree any more, `BUSY` if nothing leads there: something else is mounted over it.
    pub fn find(self) -> Result<OwnedFd, Errno> {
        Ok(self.find_with_path()?.0)
    }

    fn find_with_path(self) -> Result<(OwnedFd, PathBuf), Errno> {
        for _ in 0..LOOKS {
            let entry = entry(&mounts()?, self.number).ok_or(Errno::NOENT)?;
            if let Ok(root) = named(&entry.path)
                && Placed::of(&root) == Ok(self)
            {
                return Ok((root, entry.path));
            }
        }
        Err(Errno::BUSY)
    }

    /// The same as [`Placed::take_out`] where it is served no more: who has its number by now may be another, who is alive.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn take_out_dead(self) -> Result<(), Errno> {
        match self.find_with_path() {
            Ok((root, path)) if fstat(&root).is_err_and(is_of_the_dead) => {
                take_out(&root, &path, UnmountFlags::empty())
            }
            _ => Ok(()),
        }
    }

    /// Takes it out of the tree, whoever uses it; nothing, if it is not there.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn take_out(self, how: UnmountFlags) -> Result<(), Errno> {
        match self.find_with_path() {
            Ok((root, path)) => take_out(&root, &path, how),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A descriptor of its root holds it, and so it is never idle: out of the tree all the same.
fn take_out(root: &OwnedFd, path: &Path, how: UnmountFlags) -> Result<(), Errno> {
    match unmount(link_to(root), how | UnmountFlags::DETACH) {
        Err(Errno::PERM) => have_taken_out(path),
        done => done,
    }
}

/// Users may not, but may have it done, of what is theirs.
fn have_taken_out(path: &Path) -> Result<(), Errno> {
    let done = ["fusermount3", "fusermount"].into_iter().find_map(|program| {
        std::process::Command::new(program).arg("-uz").arg("--").arg(path).status().ok()
    });
    match done {
        Some(status) if status.success() => Ok(()),
        _ => Err(Errno::PERM),
    }
}

/// Whoever follows it has what is open, and by no other path.
pub fn link_to(open: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

/// A directory, and its path as the list of mounts has it: without links, `..` and the like. It may be a mount whose server
/// is dead, of which nothing can be asked. Unless it `may_follow` them, links on the way are refused (`LOOP`).
pub fn place(directory: &Path, may_follow: bool) -> Result<(OwnedFd, PathBuf), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = if may_follow { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
    let directory = openat2(CWD, directory, flags, Mode::empty(), how)?;
    let path = rustix::fs::readlink(link_to(&directory), Vec::new())?;
    Ok((directory, PathBuf::from(OsString::from_vec(path.into_bytes()))))
}

/// Takes a mount of ours out of the tree whose server is dead; true if there was one. Others are left alone.
///
/// # Errors
/// As the system says; `TIMEDOUT` if its server is there, and does not answer.
pub fn clear_dead(path: &Path) -> Result<bool, Errno> {
    let root = named(path)?;
    let asked = root.try_clone().map_err(|_| Errno::MFILE)?;
    match within(move || fstat(asked)) {
        Ok(_) => return Ok(false),
        Err(error) if is_of_the_dead(error) => {}
        Err(error) => return Err(error),
    }
    let number = Placed::of(&root)?.number;
    if !entry(&mounts()?, number).is_some_and(|entry| entry.is_ours()) {
        return Err(Errno::NOTCONN);
    }
    take_out(&root, path, UnmountFlags::empty()).map_err(|_| Errno::NOTCONN)?;
    Ok(true)
}

/// Whether a mount answers so whose server is dead, or which was asked while it died.
fn is_of_the_dead(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}

/// Names a directory, without a link in its place.
fn named(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn mounts() -> Result<Vec<u8>, Errno> {
    std::fs::read(MOUNTS).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// What the list says of a mount.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    kind: Vec<u8>,
    source: Vec<u8>,
}

impl Entry {
    fn is_ours(&self) -> bool {
        TYPES.contains(&&self.kind[..]) && self.source == SOURCE.as_bytes()
    }
}

/// The mount of this number.
fn entry(mounts: &[u8], number: u64) -> Option<Entry> {
    let number = number.to_string();
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        if words.next() != Some(number.as_bytes()) {
            continue;
        }
        let path = PathBuf::from(OsString::from_vec(plain(words.nth(3)?)));
        // What is before the dash is of any number.
        let mut words = words.skip_while(|word| *word != b"-").skip(1).map(plain);
        return Some(Entry { path, kind: words.next()?, source: words.next()? });
    }
    None
}

/// A word of that file, where blanks and the like are in octal.
fn plain(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_number() {
        let mounts = b"22 1 0:1 / /a\\040b rw shared:1 - ext4 /dev/x rw\n\
            23 22 0:50 / /a\\040b rw,nosuid shared:2 master:3 - fuse.clew clew rw\n\
            2 1 0:2 / /c rw - tmpfs none rw\n";
        let of = |number| {
            let entry = entry(mounts, number)?;
            Some((entry.path.to_str().unwrap().to_string(), entry.is_ours()))
        };
        assert_eq!(of(22), Some(("/a b".into(), false)));
        assert_eq!(of(23), Some(("/a b".into(), true)));
        assert_eq!(of(2), Some(("/c".into(), false)));
        assert_eq!(of(3), None);
    }

    #[test]
    fn what_is_none_of_ours_is_not_taken_for_one() {
        assert_eq!(Placed::at(Path::new("/")), Err(Errno::NOENT));
        let root = Placed::of(named(Path::new("/")).unwrap()).unwrap();
        assert!(root.find().is_ok());
        let other = Placed { device: (root.device.0, root.device.1 + 1), ..root };
        assert_eq!(other.find().unwrap_err(), Errno::BUSY);
        let gone = Placed { number: u64::MAX, ..root };
        assert_eq!(gone.find().unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn a_place_is_the_same_however_it_is_spelt() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let wanted = there.canonicalize().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let at = |spelt: &str, may_follow| Ok(place(&base.join(spelt), may_follow)?.1);
        for spelt in ["there", "there/", "there/../there", "./link/", "link"] {
            assert_eq!(at(spelt, true), Ok(wanted.clone()), "{spelt}");
            let with_link = spelt.contains("link");
            let wanted = if with_link { Err(Errno::LOOP) } else { Ok(wanted.clone()) };
            assert_eq!(at(spelt, false), wanted, "{spelt}");
        }
        assert_eq!(at("file", true), Err(Errno::NOTDIR));
        assert_eq!(at("nothing", true), Err(Errno::NOENT));
    }

    #[test]
    fn what_is_alive_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(clear_dead(place.path()), Ok(false));
        assert_eq!(clear_dead(&place.path().join("nowhere")), Err(Errno::NOENT));
    }
}

//! Whose directories are on the way to a socket, to a file that programs load, or to one that holds their
//! pages. Whoever can change one of them decides who is met there, so each belongs to this user or to root,
//! and nobody else can write to it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

pub use clew_trace::directory_of;

/// Why a directory cannot be relied upon.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("{path} belongs to user {uid}, who may change what is there: name another place")]
    Foreign { path: PathBuf, uid: u32 },
    #[error(
        "others may write to {path} (mode {mode:04o}), and so decide what is met there: \
         'chmod go-w {path}', or name another place"
    )]
    Open { path: PathBuf, mode: u32 },
    #[error(
        "this user namespace does not map all users, and shows the others as user {uid}, who you are: \
         it cannot be told what is yours"
    )]
    Unmapped { uid: u32 },
    #[error("{path} is no directory: name another place")]
    NoDirectory { path: PathBuf },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
}

impl PathError {
    /// Whether nothing is there at all.
    pub fn is_missing(&self) -> bool {
        matches!(self, PathError::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// As many symbolic links as the kernel follows.
const MAX_LINKS: usize = 40;

/// Bits of a mode: group and others may write; only its owner may remove what is in a directory.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// As whom the kernel shows users that it cannot name, unless told otherwise.
const OVERFLOW: u32 = 65534;

/// The user that this process acts as.
pub fn own_uid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> PathError {
    let path = path.to_path_buf();
    move |source| PathError::File { path, source }
}

/// Checks a directory and all those on the way to it, also where symbolic links lead.
///
/// # Errors
/// The first of them that others can change. Those on the way may be like /tmp (sticky); the
/// directory itself may not.
pub fn check(directory: &Path) -> Result<(), PathError> {
    let at = follow(directory)?;
    let mode = fs::symlink_metadata(&at).map_err(file(&at))?.mode();
    if mode & OTHERS_WRITE != 0 {
        return Err(PathError::Open { path: at, mode: mode & 0o7777 });
    }
    Ok(())
}

/// Where a file is whose name may be a symbolic link, or a chain of them: its directory, and those on the way, are
/// checked as by [`check`]. Nothing need be there.
///
/// # Errors
/// As [`check`].
pub fn resolve(name: &Path) -> Result<PathBuf, PathError> {
    let mut at = name.to_path_buf();
    for _ in 0..=MAX_LINKS {
        check(directory_of(&at))?;
        let Some(last) = at.file_name() else {
            return Err(file(&at)(io::Error::from_raw_os_error(libc::EISDIR)));
        };
        let whole = follow(directory_of(&at))?.join(last);
        match fs::read_link(&whole) {
            Ok(to) => at = directory_of(&whole).join(to),
            // No link, or nothing at all.
            Err(_) => return Ok(whole),
        }
    }
    Err(file(name)(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// Where a directory is, checked as one on the way.
fn follow(directory: &Path) -> Result<PathBuf, PathError> {
    if others_look_like(own_uid()) {
        return Err(PathError::Unmapped { uid: own_uid() });
    }
    let whole = std::path::absolute(directory).map_err(file(directory))?;
    let mut at = PathBuf::from("/");
    check_one(&at, &fs::symlink_metadata(&at).map_err(file(&at))?)?;
    let mut to_come = names(&whole);
    let mut links = 0;
    while let Some(name) = to_come.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        // Nobody else can change what `at` holds: that has been checked.
        let found = fs::symlink_metadata(&next).map_err(file(&next))?;
        if found.is_symlink() {
            owned(&next, &found)?;
            links += 1;
            if links > MAX_LINKS {
                return Err(file(&next)(io::Error::from_raw_os_error(libc::ELOOP)));
            }
            let to = fs::read_link(&next).map_err(file(&next))?;
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            to_come.extend(names(&to));
            continue;
        }
        check_one(&next, &found)?;
        at = next;
    }
    Ok(at)
}

/// Makes a directory, and those on the way to it, with this mode unless they are there, and checks it.
/// Nothing is made where others can change it.
///
/// # Errors
/// As [`check`].
pub fn make(directory: &Path, mode: u32) -> Result<(), PathError> {
    make_on_the_way(&std::path::absolute(directory).map_err(file(directory))?, mode)?;
    check(directory)
}

fn make_on_the_way(directory: &Path, mode: u32) -> Result<(), PathError> {
    match follow(directory) {
        Err(error) if error.is_missing() => {}
        found => return found.map(drop),
    }
    if let Some(above) = directory.parent() {
        make_on_the_way(above, mode)?;
    }
    match DirBuilder::new().mode(mode).create(directory) {
        // Of `..`, or somebody was faster: what it is, is checked.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(file(directory)),
    }
}

/// The names of a path, the first one last.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// Whether the kernel may show other users as this one, as it does of all that a user namespace does not
/// map: their files, and who they are at the other end of a socket.
fn others_look_like(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    uid == overflow.trim().parse().unwrap_or(OVERFLOW)
        && !maps_all(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
}

/// Whether the kernel shows this process every user and every group as themselves.
pub fn names_every_user() -> bool {
    let has_all = |map| maps_all(&fs::read_to_string(map).unwrap_or_default());
    has_all("/proc/self/uid_map") && has_all("/proc/self/gid_map")
}

/// Whether a user namespace of this `uid_map` (lines: first id inside, first one outside, how many) has
/// every user.
fn maps_all(uid_map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    uid_map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

fn owned(path: &Path, found: &fs::Metadata) -> Result<(), PathError> {
    let uid = found.uid();
    if uid != 0 && uid != own_uid() {
        return Err(PathError::Foreign { path: path.to_path_buf(), uid });
    }
    Ok(())
}

/// Checks a directory on the way.
fn check_one(path: &Path, found: &fs::Metadata) -> Result<(), PathError> {
    let path = path.to_path_buf();
    if !found.is_dir() {
        return Err(PathError::NoDirectory { path });
    }
    owned(&path, found)?;
    let mode = found.mode();
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        return Err(PathError::Open { path, mode: mode & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A directory of the test's own, made by [`make`].
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path =
                std::env::temp_dir().join(format!("clew-path-{name}-{}", std::process::id()));
            make(&path, 0o700).expect("a directory of our own");
            Place(path)
        }

        fn dir(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            make(&path, 0o700).expect("a directory of our own");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            path
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_only_its_owner_can_change_is_relied_upon() {
        let place = Place::new("good");
        assert_eq!(fs::metadata(&place.0).expect("it is there").mode() & 0o7777, 0o700);
        check(&place.dir("own", 0o755)).expect("nobody else can change it");
        symlink(place.0.join("own"), place.0.join("link")).expect("a link");
        check(&place.0.join("link")).expect("the link is ours too");
        check(&place.0.join("own/../own/.")).expect("the same directory");
        // On the way to it one may be like /tmp.
        let sticky = place.dir("sticky", 0o1777);
        make(&sticky.join("below"), 0o700).expect("nobody else can remove it");
        assert!(check(&place.0.join("none")).is_err_and(|e| e.is_missing()));
    }

    #[test]
    fn what_others_can_change_is_not() {
        let place = Place::new("bad");
        for (name, mode) in [("all", 0o777), ("group", 0o770), ("tmp", 0o1777)] {
            let dir = place.dir(name, mode);
            assert!(matches!(check(&dir), Err(PathError::Open { .. })), "{name}");
            let up = dir.join("below/..");
            fs::create_dir(dir.join("below")).expect("a directory");
            assert!(matches!(check(&up), Err(PathError::Open { .. })), "{name}/below/..");
            symlink(&dir, place.0.join(format!("to-{name}"))).expect("a link");
            let link = check(&place.0.join(format!("to-{name}")));
            assert!(matches!(link, Err(PathError::Open { .. })), "a link to {name}");
        }
        // Whoever can rename a directory on the way decides as well.
        let below = place.0.join("all/below");
        assert!(matches!(check(&below), Err(PathError::Open { .. })));
        symlink("loop", place.0.join("loop")).expect("a link");
        assert!(matches!(check(&place.0.join("loop")), Err(PathError::File { .. })));
        fs::write(place.0.join("file"), "").expect("a file");
        let file = check(&place.0.join("file"));
        assert!(matches!(file, Err(PathError::NoDirectory { .. })), "{file:?}");
    }

    #[test]
    fn a_name_leads_where_nobody_else_can_change_what_is_there() {
        let place = Place::new("names");
        let (own, all) = (place.dir("own", 0o755), place.dir("all", 0o777));
        let at = |name: &str| place.0.join(name);
        for (name, to) in [("a", "own/file"), ("b", "a"), ("c", "all/file"), ("loop", "loop")] {
            symlink(to, at(name)).expect("a link");
        }
        symlink(at("b"), all.join("d")).expect("a link");
        let real = fs::canonicalize(&own).expect("it is there").join("file");
        for name in ["own/file", "a", "b", "own/../b"] {
            assert_eq!(resolve(&at(name)).expect("nobody else can change it"), real, "{name}");
        }
        for name in ["all/file", "c", "all/d"] {
            let refused = resolve(&at(name));
            assert!(matches!(refused, Err(PathError::Open { .. })), "{name}: {refused:?}");
        }
        assert!(matches!(resolve(&at("loop")), Err(PathError::File { .. })));
        assert!(resolve(&at("none/file")).is_err_and(|error| error.is_missing()));
    }

    #[test]
    fn not_every_namespace_has_every_user() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(maps_all("0 0 65534\n65534 65534 4294901761\n"));
        for few in ["", "0 1000 1\n", "0 100000 65536\n"] {
            assert!(!maps_all(few), "{few}");
        }
    }

    #[test]
    fn nothing_is_made_where_others_can_change_it() {
        let place = Place::new("made");
        let all = place.dir("all", 0o777);
        symlink(&all, place.0.join("link")).expect("a link");
        for way in ["all", "link"] {
            let made = make(&place.0.join(way).join("new/deep"), 0o700);
            assert!(matches!(made, Err(PathError::Open { .. })), "{made:?}");
            assert!(!all.join("new").exists(), "{way}: it is not refused before");
        }
        make(&place.0.join("new/deep/../other/."), 0o700).expect("nobody else can change it");
        for new in ["new", "new/deep", "new/other"] {
            let mode = fs::metadata(place.0.join(new)).expect("it is there").mode();
            assert_eq!(mode & 0o7777, 0o700, "{new}");
        }
    }
}

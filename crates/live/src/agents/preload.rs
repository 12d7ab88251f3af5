//! The object that is preloaded into programs: each `clew` carries its own, and puts it where programs
//! can map it.

use std::fs::{self, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::control::trusted_path::{self, PathError};

/// The version of the agent protocol that the object speaks.
pub const PROTOCOL: u32 = clew_agent::protocol::VERSION;

/// How the names of objects begin.
pub const NAME: &str = "libclew_agent";

const OBJECT: &[u8] = include_bytes!(env!("CLEW_AGENT_OBJECT"));

/// Why the object can be put nowhere.
#[derive(Debug, thiserror::Error)]
pub enum PreloadError {
    #[error("the agent's object has no place: {0}")]
    Directory(#[from] PathError),
    #[error("writing the agent's object to {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "the agent's object has no place: LD_PRELOAD cannot name {path} (it must be absolute, and have \
         no blank, colon or '$'): set XDG_CACHE_HOME"
    )]
    Name { path: PathBuf },
}

/// Where this version's object is, for `LD_PRELOAD`; written if it is not there yet.
///
/// /run is often mounted noexec, and the file stays: programs that run on hand its path to every child
/// they start. Its name is its content's, so one file serves all daemons and users of a version. What
/// is there already is used only if nobody else can change it and it is the same.
pub fn object(socket: &Path) -> Result<PathBuf, PreloadError> {
    let mut hasher = std::hash::DefaultHasher::new();
    OBJECT.hash(&mut hasher);
    let name = format!("{NAME}-{:016x}.so", hasher.finish());
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let mut places = vec![PathBuf::from("/var/lib/clew")];
    places.extend(cache.map(|dir| dir.join("clew")));
    let mut last = None;
    for place in &places {
        match put(place, &name) {
            Ok(path) => return Ok(path),
            Err(error) => last = Some(error),
        }
    }
    // Whoever speaks of places means this one.
    put(trusted_path::directory_of(socket), &name).map_err(|error| last.unwrap_or(error))
}

/// Whether the loader takes this path for what it is. It divides at blanks and colons and fills in what
/// begins with `$`; what is relative then lies wherever the program is.
fn can_be_named(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    path.is_absolute() && !bytes.iter().any(|b| b.is_ascii_whitespace() || b":;$".contains(b))
}

/// Whether an entry of `LD_PRELOAD` is such an object: what puts one there takes others out, for a program
/// has one agent.
pub fn is_object(entry: &Path) -> bool {
    entry.file_name().is_some_and(|name| name.as_bytes().starts_with(NAME.as_bytes()))
}

/// The object in this directory, by this name, for `LD_PRELOAD`: what has the name and is another is replaced.
///
/// # Errors
/// Where it cannot be there, or the loader would not find it.
pub fn put(place: &Path, name: &str) -> Result<PathBuf, PreloadError> {
    let path = place.join(name);
    if !can_be_named(&path) {
        return Err(PreloadError::Name { path });
    }
    let fail = |source| PreloadError::File { path: path.clone(), source };
    // Programs that have changed their user map it too.
    trusted_path::make(place, 0o755)?;
    if is_this_object(&path) && mappable(&path) {
        return Ok(path);
    }
    // Written under another name first: nobody maps half an object.
    let partial = place.join(format!("{name}.{}", std::process::id()));
    let _ = fs::remove_file(&partial);
    fs::File::options()
        .write(true)
        .create_new(true)
        .open(&partial)
        .and_then(|mut file| file.write_all(OBJECT))
        .and_then(|()| fs::set_permissions(&partial, Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&partial, &path))
        .inspect_err(|_| drop(fs::remove_file(&partial)))
        .map_err(fail)?;
    if !mappable(&path) {
        let _ = fs::remove_file(&path);
        return Err(fail(io::Error::new(io::ErrorKind::PermissionDenied, "mounted noexec")));
    }
    Ok(path)
}

/// Whether a file in a directory that only we can change is this object, and stays it.
pub fn is_this_object(path: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    let owned = found.uid() == 0 || found.uid() == trusted_path::own_uid();
    found.is_file()
        && owned
        && found.mode() & 0o022 == 0
        && found.len() == OBJECT.len() as u64
        && fs::read(path).is_ok_and(|bytes| bytes == OBJECT)
}

/// Whether a file is an agent's object, of whatever version: it is for the loader, and knows what agents call
/// themselves.
pub fn is_an_object(path: &Path) -> bool {
    let is_plain = fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_file() && found.len() <= OBJECT.len() as u64 * 16);
    // A pipe, or a file without an end, is not read.
    let Some(bytes) = is_plain.then(|| fs::read(path).ok()).flatten() else { return false };
    let name = b"clew-agent";
    bytes.starts_with(b"\x7fELF") && bytes.windows(name.len()).any(|part| part == name)
}

fn mappable(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    // SAFETY: a fresh mapping that is removed at once.
    unsafe {
        let flags = libc::PROT_READ | libc::PROT_EXEC;
        let fd = file.as_raw_fd();
        let base = libc::mmap(std::ptr::null_mut(), 4096, flags, libc::MAP_PRIVATE, fd, 0);
        base != libc::MAP_FAILED && libc::munmap(base, 4096) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_loader_takes_for_one_absolute_path_is_named() {
        let missing = std::env::temp_dir().join(format!("clew-named-{}", std::process::id()));
        let below = |name: &str| missing.join(name);
        for place in ["", "clew", "./clew", "../clew"].map(PathBuf::from).into_iter().chain([
            below("a b"),
            below("a:b"),
            below("$LIB"),
            below("a\nb"),
        ]) {
            let put = put(&place, "object.so");
            assert!(matches!(put, Err(PreloadError::Name { .. })), "{place:?}: {put:?}");
        }
        assert!(!missing.exists(), "made before it was looked at");
    }

    #[test]
    fn what_lies_in_its_place_is_replaced_unless_it_is_the_same() {
        let dir = std::env::temp_dir().join(format!("clew-preload-{}", std::process::id()));
        let path = put(&dir, "object.so").expect("it is written");
        assert!(is_this_object(&path));
        let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
        let first = inode(&path);
        assert_eq!(put(&dir, "object.so").expect("it is there").as_path(), path);
        assert_eq!(inode(&path), first, "written again");
        // Others could still change it.
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("a mode");
        put(&dir, "object.so").expect("it is written");
        assert_ne!(inode(&path), first);
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, 0o644);
        let mut other = OBJECT.to_vec();
        other[OBJECT.len() / 2] ^= 1;
        fs::write(&path, other).expect("written");
        put(&dir, "object.so").expect("it is written");
        assert_eq!(fs::read(&path).expect("readable"), OBJECT);
        // A link to what is the same now may lead elsewhere later.
        let elsewhere = dir.join("elsewhere");
        fs::rename(&path, &elsewhere).expect("moved");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
        put(&dir, "object.so").expect("it is written");
        assert!(fs::symlink_metadata(&path).expect("it is there").is_file());
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).expect("a mode");
        assert!(matches!(put(&dir, "object.so"), Err(PreloadError::Directory(_))));
        fs::remove_dir_all(&dir).expect("removed");
    }
}

//! What is written down beside a socket about a keeper, once more: in memory that lives as long as the keeper does.
//!
//! Whoever may write beside the socket can remove the file that names the keeper, or change it. A successor that believed
//! what is left would begin anew, and the programs of a dead daemon would wait for it for ever. The badge is among the
//! descriptors that keeper and daemon share, found by its name, and says the same as the file. Who commits writes it before
//! that: a keeper that the file has named can be found without it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::control::trusted_path::{directory_of, own_uid};
use crate::programs::proc_stat::{is_gone, users_of};

/// Its name, and what a link to it says.
const NAME: &std::ffi::CStr = c"clew-keeper-badge";
const LINK: &str = "/memfd:clew-keeper-badge (deleted)";

/// What is written down about a keeper: its id, when it began, the generation, the journal's descriptor.
pub(super) type KeeperNumbers = [u64; 4];

/// What is written down of who serves: its id, and when it began.
pub(super) type ServerNumbers = [u64; 2];

/// What a badge says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub keeper: KeeperNumbers,
    pub server: ServerNumbers,
}

/// What a keeper is called.
pub(super) const KEEPER: &std::ffi::CStr = c"clew-keeper";

/// Badges of one process that are looked at, at most.
const MOST: usize = 64;

/// Bytes of a badge, at most: the numbers, and the name of a file.
const MAX_BYTES: usize = 1024;

/// The badge of this process's keeper.
#[derive(Clone, Copy)]
pub struct Badge {
    memory: BorrowedFd<'static>,
}

impl Badge {
    /// One that says nothing yet: a keeper with it does not count. It is never closed.
    ///
    /// # Errors
    /// Those of `memfd_create`.
    pub(super) fn new() -> io::Result<Badge> {
        let memory = memory(NAME)?.into_raw_fd();
        // SAFETY: just opened, and nobody closes it.
        Ok(Badge { memory: unsafe { BorrowedFd::borrow_raw(memory) } })
    }

    /// Says what the files beside `socket` say: of the keeper, and who serves.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn write(&self, socket: &Path, says: &Says) -> io::Result<()> {
        let text = Place::of(socket)?.text(says);
        if text.len() > MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the socket's name is too long",
            ));
        }
        let memory = File::from(self.memory.try_clone_to_owned()?);
        memory.write_all_at(&text, 0)?;
        memory.set_len(text.len() as u64)
    }

    /// Whether it says anything.
    pub(super) fn is_written(&self) -> bool {
        let memory = self.memory.try_clone_to_owned().map(File::from);
        // In doubt its keeper stays.
        memory.and_then(|memory| memory.metadata()).map_or(true, |metadata| metadata.len() > 0)
    }
}

/// Memory that is a file, for this user alone.
fn memory(name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name outlives the call; the result is checked and owned by nobody else.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        // Born 0777.
        match libc::fchmod(fd.as_raw_fd(), 0o600) {
            0 => Ok(fd),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A socket's directory, by its own numbers, and its name there: paths are told differently, and lead elsewhere, from one
/// namespace to the next.
struct Place<'a> {
    directory: [u64; 2],
    name: &'a [u8],
}

impl Place<'_> {
    fn of(socket: &Path) -> io::Result<Place<'_>> {
        let directory = fs::metadata(directory_of(socket))?;
        let name = socket.file_name().unwrap_or_default().as_bytes();
        Ok(Place { directory: [directory.dev(), directory.ino()], name })
    }

    /// What a badge says that is of a keeper of this place.
    fn parse(&self, badge: &[u8]) -> Option<Says> {
        parse(badge).filter(|says| self.text(says) == badge)
    }

    fn text(&self, says: &Says) -> Vec<u8> {
        let numbers = says.keeper.into_iter().chain(says.server).chain(self.directory);
        let mut text = numbers.flat_map(|n| format!("{n} ").into_bytes()).collect::<Vec<u8>>();
        text.extend(self.name);
        text
    }
}

/// What a badge says, wherever its keeper is.
fn parse(badge: &[u8]) -> Option<Says> {
    let mut words = badge.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let keeper = [number()?, number()?, number()?, number()?];
    Some(Says { keeper, server: [number()?, number()?] })
}

/// Who served at another place, if process `pid` is the keeper of that one and not of `socket`; nobody where it does not say.
///
/// # Errors
/// If that cannot be told.
pub(super) fn server_elsewhere(socket: &Path, pid: u32) -> io::Result<Option<ServerNumbers>> {
    let place = Place::of(socket)?;
    let badges = match badges_of(pid, &mount_of_memory()?) {
        Err(error) if is_gone(&error) || is_refused(&error) => return Ok(None),
        badges => badges?,
    };
    let is_own = |says: &Says| says.keeper[0] == u64::from(pid);
    if badges.iter().filter_map(|badge| place.parse(badge)).any(|says| is_own(&says)) {
        return Ok(None);
    }
    Ok(badges.iter().filter_map(|badge| parse(badge)).find(is_own).map(|says| says.server))
}

/// The generation that process `pid` has as a keeper of `socket`, by its badge; nothing where it says none.
///
/// # Errors
/// If that cannot be told.
pub(super) fn generation(socket: &Path, pid: u32) -> io::Result<Option<u64>> {
    let (place, badges) = (Place::of(socket)?, badges_of(pid, &mount_of_memory()?)?);
    let own = badges.iter().filter_map(|badge| place.parse(badge));
    Ok(own.filter(|says| says.keeper[0] == u64::from(pid)).map(|says| says.keeper[2]).max())
}

/// The keeper of `socket` that counts, by the badges of this user's processes: of several, the one whose daemon came last.
///
/// # Errors
/// If it cannot be told which processes there are, or of one of them what it has (no descriptors, no memory).
pub(super) fn find(socket: &Path) -> io::Result<Option<Says>> {
    let place = match Place::of(socket) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        place => place?,
    };
    let mount = mount_of_memory()?;
    let mut newest: Option<Says> = None;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let badges = match is_keeper(pid)?.then(|| badges_of(pid, &mount)) {
            None => continue,
            // It has ended meanwhile, or is one whose descriptors nobody here could have.
            Some(Err(error)) if is_gone(&error) || is_refused(&error) => continue,
            Some(badges) => badges?,
        };
        let says = badges.iter().filter_map(|badge| place.parse(badge));
        // Who it says that it is, and no other.
        let says = says.filter(|says| says.keeper[0] == u64::from(pid));
        newest = newest.into_iter().chain(says).max_by_key(|says| says.keeper[2]);
    }
    Ok(newest)
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Whether a process calls itself what keepers are called, is this user's, and of no container: who is root there is not
/// root here.
///
/// # Errors
/// If that cannot be told.
pub(super) fn is_keeper(pid: u32) -> io::Result<bool> {
    let told = |error: io::Error| match is_gone(&error) || is_refused(&error) {
        true => Ok(false),
        false => Err(error),
    };
    let look = || {
        let called = fs::read(format!("/proc/{pid}/comm"))?;
        if called.strip_suffix(b"\n") != Some(KEEPER.to_bytes()) {
            return Ok(false);
        }
        let users = users_of(pid)?;
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/pid"));
        Ok(!users.is_empty()
            && users.iter().all(|user| *user == own_uid())
            && namespace(&pid.to_string())? == namespace("self")?)
    };
    look().or_else(told)
}

/// What the badges of a keeper say: its own, and what else its table has of that name, on this mount, that this user made.
fn badges_of(pid: u32, mount: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut badges = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        let to = match fs::read_link(&path) {
            // Closed meanwhile.
            Err(error) if is_gone(&error) => continue,
            to => to?,
        };
        if to.as_os_str() != LINK || badges.len() == MOST {
            continue;
        }
        let number = path.file_name().unwrap_or_default().to_string_lossy();
        // Memory, and no file of a path like this, whose file system may never answer.
        if mount_of(&format!("/proc/{pid}/fdinfo/{number}"))? != mount {
            continue;
        }
        let mut text = vec![0; MAX_BYTES];
        // What the number is of may have changed since: nobody waits for the other end of a pipe.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        // Who executes a program that becomes root says what that is called and what it has.
        if file.metadata()?.uid() != own_uid() {
            continue;
        }
        let read = file.read_at(&mut text, 0)?;
        text.truncate(read);
        badges.push(text);
    }
    Ok(badges)
}

/// The mount that badges are on.
fn mount_of_memory() -> io::Result<String> {
    // Not called as they are: whoever looks may be killed, and what it has stays with its keeper.
    let own = memory(c"clew-keeper-mount")?;
    mount_of(&format!("/proc/self/fdinfo/{}", own.as_raw_fd()))
}

/// The mount that a descriptor's file is on, by its `fdinfo`; memory is on one that no path leads to.
fn mount_of(fdinfo: &str) -> io::Result<String> {
    let info = fs::read_to_string(fdinfo)?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    Ok(mount.unwrap_or_default().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_of_one_socket() {
        let dir = std::env::temp_dir().join(format!("clew-badge-{}", std::process::id()));
        let other = dir.join("other");
        fs::create_dir_all(&other).expect("directories");
        let socket = dir.join("a name with spaces.sock");
        let says = Says { keeper: [7, 123, 4, 30], server: [6, 122] };
        let longer = Says { keeper: [70_000, 123_456, 4, 30], server: [6, 122] };
        fn of(socket: &Path) -> Place<'_> {
            Place::of(socket).expect("a directory")
        }
        let (_empty, badge) = (Badge::new().expect("memory"), Badge::new().expect("memory"));
        assert!(!badge.is_written());
        badge.write(&socket, &longer).expect("written");
        badge.write(&socket, &says).expect("shorter than before");
        assert!(badge.is_written());
        let read = || {
            let file = File::from(badge.memory.try_clone_to_owned().expect("a descriptor"));
            let mut text = vec![0; MAX_BYTES];
            let read = file.read_at(&mut text, 0).expect("readable");
            text.truncate(read);
            text
        };
        assert_eq!(of(&socket).parse(&read()), Some(says));
        assert_eq!(of(&dir.join("a name with spaces")).parse(&read()), None);
        assert_eq!(of(&other.join("a name with spaces.sock")).parse(&read()), None);
        for hostile in [
            &b""[..],
            b"1 2 3",
            b"7 123 4 -1 6 122 0 0 s",
            b"7 123 4 30 6 122 0 0 s",
            b"\xff 1 2 3",
        ] {
            assert_eq!(of(&socket).parse(hostile), None);
        }
        let own = std::process::id();
        let mount = mount_of(&format!("/proc/self/fdinfo/{}", badge.memory.as_raw_fd()));
        let badges = badges_of(own, &mount.expect("readable")).expect("readable");
        let is_it = |badge: &&Vec<u8>| of(&socket).parse(badge).is_some();
        assert_eq!(badges.iter().filter(is_it).count(), 1);
        // This process is no keeper, whatever it has.
        assert_eq!(find(&socket).expect("/proc"), None);
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}

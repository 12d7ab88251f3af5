//! The lock under which changes what is written down beside a socket.
//!
//! It is on a file, and so on a descriptor; a keeper has the daemon's descriptors, and has them when that is killed. A lock that
//! is taken with one of these would be held then by who never lets go, and whoever takes over would wait for ever. So who has a keeper holds it in a
//! thread with a table of descriptors of its own ([`LockApart`]), which ends with the daemon.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use clew_trace::regular;
use crossbeam_channel::{Sender, bounded};

/// What the thread needs that holds it.
const STACK_BYTES: usize = 64 << 10;

/// Who begins, takes over or ends holds it for moments. After so many tries it is said who does.
const QUIET_TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Takes it, for a process that has no keeper: others wait as long as this lives.
///
/// # Errors
/// Those of the system; there is something else than a file.
pub(super) fn lock(socket: &Path) -> io::Result<File> {
    locked(socket, |lock, path| {
        for _ in 0..QUIET_TRIES {
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => sleep(BETWEEN_TRIES),
                done => return done.map_err(io::Error::from),
            }
        }
        // Whoever ends it by hand must know whom.
        let who = holder(lock).map_or("somebody".to_string(), |pid| format!("process {pid}"));
        tracing::warn!("{} is locked by {who}: waiting until that lets go", path.display());
        lock.lock()
    })
}

/// Who holds a lock on this file, as the kernel says.
fn holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK ADVISORY WRITE 4711 fe:00:131 0 EOF"; who waits has an arrow before the kind.
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, pid) = (words.next()?, words.nth(2)?);
        (kind == "FLOCK" && words.next()?.ends_with(&inode)).then(|| pid.parse().ok())?
    })
}

fn locked(socket: &Path, take: impl Fn(&File, &Path) -> io::Result<()>) -> io::Result<File> {
    let path = socket.with_extension("lock");
    let fail = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    loop {
        let lock = regular::open(
            &path,
            File::options().write(true).create(true).truncate(false).mode(0o600),
            libc::O_NOFOLLOW,
        )
        .map_err(fail)?;
        take(&lock, &path).map_err(fail)?;
        // Else who held it has removed it, and the next one locks another.
        if fs::metadata(&path).is_ok_and(|m| lock.metadata().is_ok_and(|l| l.ino() == m.ino())) {
            return Ok(lock);
        }
    }
}

/// The same for a daemon that has a keeper, and waits for nobody: held as long as this lives, and no longer than this
/// process.
pub(super) struct LockApart {
    /// Its end tells the thread to let go.
    holds: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LockApart {
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody has it; those of [`lock`]; no thread.
    pub(super) fn take(socket: &Path) -> io::Result<LockApart> {
        let ((holds, is_held), (says, said)) = (bounded(0), bounded(1));
        let path = socket.to_path_buf();
        let hold = move || {
            let lock = leave_table()
                .and_then(|()| locked(&path, |lock, _| lock.try_lock().map_err(io::Error::from)));
            match lock {
                // Nobody ever sends.
                Ok(_lock) if says.send(Ok(())).is_ok() => drop::<Result<(), _>>(is_held.recv()),
                Ok(_) => {}
                Err(error) => drop(says.send(Err(error))),
            }
        };
        let thread =
            std::thread::Builder::new().name("lock".into()).stack_size(STACK_BYTES).spawn(hold)?;
        let apart = LockApart { holds: Some(holds), thread: Some(thread) };
        said.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))?;
        Ok(apart)
    }
}

impl Drop for LockApart {
    fn drop(&mut self) {
        drop(self.holds.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives this thread a table of descriptors of its own, with nothing in it. None is closed: of those of strangers that may
/// take for ever.
fn leave_table() -> io::Result<()> {
    // SAFETY: takes numbers only, and changes what this thread's descriptors mean, which has none.
    match unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_as_long_as_it_lives_and_by_no_descriptor_of_the_process() {
        let dir = std::env::temp_dir().join(format!("clew-apart-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("clew.sock");
        let path = socket.with_extension("lock");
        let held = LockApart::take(&socket).expect("nobody has it");
        let again = LockApart::take(&socket).err().map(|error| error.kind());
        assert_eq!(again, Some(io::ErrorKind::WouldBlock));
        let descriptors = fs::read_dir("/proc/self/fd").expect("our own");
        let is_it = |entry: io::Result<fs::DirEntry>| {
            fs::read_link(entry.expect("an entry").path()).is_ok_and(|name| name == path)
        };
        assert!(!descriptors.into_iter().any(is_it), "a keeper would hold it");
        let file = File::open(&path).expect("it is there");
        assert_eq!(holder(&file), Some(std::process::id()));
        drop(held);
        assert_eq!(holder(&file), None);
        drop(LockApart::take(&socket).expect("it was let go"));
        drop(lock(&socket).expect("it was let go"));
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}

//! Finding what a daemon left behind: who serves a socket, whose keeper holds its descriptors.
//!
//! Two small files beside the socket, which `beside` looks after. `.pid` names who serves it, or is about to; it is changed
//! under a lock on `.lock` (`lock`), and so are all three removed, `.lock` last. `.keeper` names the keeper, the generation whose column of the
//! records is true for it, and the journal's descriptor. It is replaced as a whole, and that is the
//! moment in which a takeover becomes true.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_trace::regular;

use super::badge::{self, KeeperNumbers};
use super::last_threads;
use super::lock::lock;
use crate::control::trusted_path::own_uid;
use crate::programs::proc_stat::{Stat, is_all_of, is_gone};

/// How often is looked what the last threads of a process do that does not end.
const LOOK_AT_THREADS: Duration = Duration::from_millis(100);

/// Whether a descriptor names a process. Waits for nobody, whatever it is.
fn is_pidfd(fd: &OwnedFd) -> bool {
    let what = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    what.is_ok_and(|what| what.as_os_str() == "anon_inode:[pidfd]")
}

/// A process, named so that no later one is mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName {
    /// Its id.
    pub pid: u32,
    /// When it began, in clock ticks since the machine did.
    pub started: u64,
}

impl std::fmt::Display for ProcessName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.pid, self.started)
    }
}

impl std::str::FromStr for ProcessName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessName, String> {
        let name = || {
            let (pid, started) = text.split_once(':')?;
            Some(ProcessName { pid: pid.parse().ok()?, started: started.parse().ok()? })
        };
        name().ok_or_else(|| format!("'{text}' is not PID:STARTED"))
    }
}

impl ProcessName {
    /// The process that has this id now.
    pub fn of(pid: u32) -> io::Result<ProcessName> {
        Ok(ProcessName { pid, started: Stat::of(pid)?.started })
    }

    /// The process that a descriptor is of, whoever gave it; `None` if it is of none, or of one that
    /// has ended.
    pub fn behind(process: &OwnedFd) -> Option<ProcessName> {
        // Asked first: of another file the kernel may wait for who uses it, for ever, to say anything more.
        if !is_pidfd(process) {
            return None;
        }
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        let pid = pid.trim().parse().ok().filter(|pid| *pid > 0)?;
        let name = ProcessName::of(pid).ok()?;
        // The number was its own all the time if it has not ended since.
        (!has_ended(process, Duration::ZERO)).then_some(name)
    }

    /// A descriptor of it; `None` if it has been reaped.
    ///
    /// # Errors
    /// If that cannot be told: no descriptors, no memory.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        // SAFETY: takes numbers only; the result is checked and owned by nobody else.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, self.pid, 0) as RawFd;
            if fd < 0 {
                // Asked twice: who took one that lives for gone would begin anew beside it, and its programs would
                // wait for ever.
                let error = io::Error::last_os_error();
                return match ProcessName::of(self.pid) {
                    Ok(now) if now == *self => Err(error),
                    Ok(_) => Ok(None),
                    Err(gone) if is_gone(&error) && is_gone(&gone) => Ok(None),
                    Err(_) => Err(error),
                };
            }
            OwnedFd::from_raw_fd(fd)
        };
        // Looked at after it was opened: the id cannot have passed to another since.
        match ProcessName::of(self.pid) {
            Ok(now) => Ok((now == *self).then_some(fd)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether one of its threads can still do something. Where that cannot be told it is taken to.
    pub fn is_alive(&self) -> bool {
        match self.open() {
            Ok(process) => process.is_some_and(|process| !self.is_over(&process)),
            Err(_) => true,
        }
    }

    /// Whether it has ended, whose descriptor `process` is, or its last threads can do nothing any more.
    pub(super) fn is_over(&self, process: &OwnedFd) -> bool {
        has_ended(process, Duration::ZERO) || last_threads::can_do_nothing(self.pid)
    }

    /// Whether that comes to be within `patience`.
    pub fn ends(&self, process: &OwnedFd, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if has_ended(process, left.min(LOOK_AT_THREADS)) || self.is_over(process) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Sends it SIGKILL; its descriptor, or `None` where there was nobody to be killed.
    pub fn send_kill(&self) -> Option<OwnedFd> {
        let process = self.open().ok()??;
        // SAFETY: takes numbers and no info.
        let sent = unsafe {
            let none = std::ptr::null::<libc::siginfo_t>();
            libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), libc::SIGKILL, none, 0)
        };
        (sent == 0).then_some(process)
    }

    /// Kills it and waits until none of its threads can do anything; false if that takes too long, or it may
    /// not be killed.
    pub fn kill(&self, patience: Duration) -> bool {
        match self.send_kill() {
            Some(process) => self.ends(&process, patience),
            None => !self.is_alive(),
        }
    }
}

/// Whether the process ends within `patience`: then its descriptor is readable.
pub fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        match unsafe { libc::poll(&mut poll, 1, left.min(i32::MAX as u128) as i32) } {
            // Interrupted, or no memory.
            n if n < 0 && Instant::now() < until => {}
            n => return n > 0,
        }
    }
}

/// Bytes of the files beside a socket, at most: far more than they have.
const MAX_FILE: u64 = 64 << 10;

pub(super) fn beside(socket: &Path, what: &str) -> PathBuf {
    socket.with_extension(what)
}

pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension(format!("new.{}", std::process::id()));
    let _ = fs::remove_file(&partial);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
    let replaced = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&partial, path));
    replaced.inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}

/// The numbers in a file; `None` if there is none.
pub(super) fn numbers<const N: usize>(path: &Path) -> io::Result<Option<[u64; N]>> {
    let text = match regular::read_text(path, MAX_FILE, libc::O_NOFOLLOW) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?,
    };
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
    let damaged = || {
        let what = format!(
            "{} is not what a daemon writes: is it damaged? (if no daemon serves there, remove it: a keeper that programs \
             wait for is found without it)",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    numbers.try_into().map(Some).map_err(|_| damaged())
}

/// Makes this process the one that serves `socket`, or names the living one that does.
pub fn claim(socket: &Path) -> io::Result<Result<Claim, ProcessName>> {
    let _lock = lock(socket)?;
    if let Some(other) = server(socket)?
        && other.pid != std::process::id()
        && other.open()?.is_some_and(|process| !other.is_over(&process))
    {
        return Ok(Err(other));
    }
    let own = ProcessName::of(std::process::id())?;
    write_server(socket, own)?;
    Ok(Ok(Claim { socket: socket.to_path_buf() }))
}

/// Whether this process could write down beside `socket` that it serves it; nothing has changed then.
///
/// # Errors
/// Why it could not.
pub fn try_to_claim(socket: &Path) -> io::Result<()> {
    let _lock = lock(socket)?;
    let tried = beside(socket, "pid").with_extension(format!("tried.{}", std::process::id()));
    replace(&tried, "0 0\n")?;
    fs::remove_file(tried)
}

/// Under the lock.
pub(super) fn write_server(socket: &Path, own: ProcessName) -> io::Result<()> {
    replace(&beside(socket, "pid"), &format!("{} {}\n", own.pid, own.started))
}

/// That this process is the one that serves a socket. When it goes, after an orderly end or a start
/// that failed, so does what was written about the socket; unless there is a keeper, or that cannot be
/// told: the next one goes by it, and all is left as a daemon leaves it that dies.
#[derive(Debug, PartialEq, Eq)]
pub struct Claim {
    socket: PathBuf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Without the lock two could claim it while this one removes what the first has written.
        let Ok(_lock) = lock(&self.socket) else { return };
        if matches!(Predecessor::find(&self.socket), Ok(None)) {
            for what in ["keeper", "pid", "lock"] {
                let _ = fs::remove_file(beside(&self.socket, what));
            }
        }
    }
}

/// Who serves `socket`, as far as is written down.
pub fn server(socket: &Path) -> io::Result<Option<ProcessName>> {
    let name = |[pid, started]: [u64; 2]| ProcessName { pid: pid as u32, started };
    Ok(numbers(&beside(socket, "pid"))?.map(name))
}

/// Whether what is written down beside `socket` is of a daemon, which process `pid` may be.
pub fn is_told_of(socket: &Path, pid: u32) -> io::Result<bool> {
    Ok(server(socket)?.is_some_and(|server| server.pid == pid)
        || numbers::<4>(&beside(socket, "keeper"))?.is_some())
}

/// The keeper that holds what a daemon had.
pub struct Predecessor {
    keeper: OwnedFd,
    /// The keeper.
    pub name: ProcessName,
    /// The generation whose descriptors it holds.
    pub generation: u64,
    journal: RawFd,
    /// Whose it is, as its badge says, where the file beside the socket does not name it. That one may live.
    pub unnamed_of: Option<ProcessName>,
}

/// The keeper that the file beside `socket` names, whether it lives or not.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if what is written there makes no sense; those of reading it.
pub(super) fn named_keeper(socket: &Path) -> io::Result<Option<ProcessName>> {
    let named: Option<KeeperNumbers> = numbers(&beside(socket, "keeper"))?;
    Ok(named.map(|[pid, started, ..]| ProcessName { pid: pid as u32, started }))
}

impl Predecessor {
    /// The keeper of whoever served `socket` before, if it still runs: the one that the file beside it names, or, where that
    /// is gone or names none that lives, or one that says that it is another place's, the one that says so itself ([`badge`]).
    ///
    /// # Errors
    /// If that cannot be told: to begin anew then would leave its programs waiting for ever. If the process is of another
    /// user: who may execute a file with capabilities may have it take what is others'.
    pub fn find(socket: &Path) -> io::Result<Option<Predecessor>> {
        let named = numbers(&beside(socket, "keeper"))?;
        let mut elsewhere = None;
        if let Some(left) = named.map_or(Ok(None), |numbers| Self::living(socket, numbers, None))? {
            let Some([pid, started]) = badge::server_elsewhere(socket, left.name.pid)? else {
                return Ok(Some(left));
            };
            // The file is another's, or all of the directory was copied.
            let server = ProcessName { pid: pid as u32, started };
            elsewhere = Some(Predecessor { unnamed_of: Some(server), ..left });
        }
        let Some(says) = badge::find(socket)? else { return Ok(elsewhere) };
        let [pid, started] = says.server;
        let server = ProcessName { pid: pid as u32, started };
        let left = Self::living(socket, says.keeper, Some(server))?;
        let keeper = says.keeper[0] as u32;
        if left.is_none() && badge::is_keeper(keeper)? {
            return Err(io::Error::other(format!(
                "process {keeper} is the keeper of a daemon that served here, and seems to have begun at another time than it \
                 says: is this another time namespace?"
            )));
        }
        Ok(left)
    }

    fn living(
        socket: &Path,
        [pid, started, generation, journal]: KeeperNumbers,
        unnamed_of: Option<ProcessName>,
    ) -> io::Result<Option<Predecessor>> {
        let name = ProcessName { pid: pid as u32, started };
        let Some(keeper) = name.open()? else { return Ok(None) };
        let is_own = is_all_of(name.pid, own_uid());
        // Looked at last, so that what was asked was asked of this process.
        if has_ended(&keeper, Duration::ZERO) {
            return Ok(None);
        }
        if !is_own {
            let file = beside(socket, "keeper");
            let what = format!(
                "{} names process {pid}, which is another user's: remove it",
                file.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Some(Predecessor { keeper, name, generation, journal: journal as RawFd, unnamed_of }))
    }

    /// A copy of the keeper's descriptor `number`.
    pub fn take(&self, number: RawFd) -> io::Result<OwnedFd> {
        // SAFETY: takes numbers only; the result is checked and owned by nobody else.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_getfd, self.keeper.as_raw_fd(), number, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(OwnedFd::from_raw_fd(fd as RawFd))
        }
    }

    /// The journal.
    ///
    /// # Errors
    /// Those of the system; it is memory that another user made, whatever process has it.
    pub fn journal(&self) -> io::Result<OwnedFd> {
        let journal = File::from(self.take(self.journal)?);
        match journal.metadata()?.uid() == own_uid() {
            true => Ok(journal.into()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("process {} has another user's memory in its place", self.name.pid),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_of_a_pidfd_is_asked_whose_it_is() {
        let own = ProcessName::of(std::process::id()).expect("we are there");
        let process = own.open().expect("descriptors").expect("we live");
        assert!(is_pidfd(&process));
        assert_eq!(ProcessName::behind(&process), Some(own));
        let (pipe, _) = std::io::pipe().expect("a pipe");
        let file = File::open("/proc/self/stat").expect("a file");
        // SAFETY: takes flags only; the result is owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        for other in [OwnedFd::from(pipe), OwnedFd::from(file), epoll] {
            assert!(!is_pidfd(&other));
            assert_eq!(ProcessName::behind(&other), None);
        }
    }

    #[test]
    fn nothing_that_lies_beside_a_socket_makes_anybody_wait() {
        let dir = std::env::temp_dir().join(format!("clew-fifos-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("clew.sock");
        let fifo = |what: &str| {
            let path = beside(&socket, what);
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.expect("mkfifo starts").success());
            path
        };
        let lock = fifo("lock");
        claim(&socket).expect_err("a pipe cannot be locked");
        // Nor can one that somebody reads, which can be opened.
        let reader = File::options().read(true).write(true).open(&lock).expect("it is opened");
        let error = claim(&socket).expect_err("a pipe is no file of ours");
        assert!(error.to_string().contains("no regular file"), "{error}");
        drop(reader);
        fs::remove_file(lock).expect("it is ours");
        let keeper = fifo("keeper");
        assert!(Predecessor::find(&socket).is_err() && named_keeper(&socket).is_err());
        fs::remove_file(keeper).expect("it is ours");
        let pid = fifo("pid");
        assert!(server(&socket).is_err());
        fs::remove_file(&pid).expect("it is ours");
        fs::write(&pid, "1 2 ".repeat(1 << 20)).expect("written");
        assert!(server(&socket).expect_err("too long").to_string().contains("more than"));
        fs::remove_file(&pid).expect("it is ours");
        std::os::unix::fs::symlink("/dev/zero", &pid).expect("a link");
        assert!(server(&socket).is_err());
        fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn one_of_two_serves_and_the_dead_do_not() {
        let dir = std::env::temp_dir().join(format!("clew-claim-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("clew.sock");
        let mut other =
            std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let name = ProcessName::of(other.id()).expect("it runs");
        fs::write(beside(&socket, "pid"), format!("{} {}\n", name.pid, name.started))
            .expect("written");
        assert_eq!(claim(&socket).expect("the files can be written"), Err(name));
        assert!(name.kill(Duration::from_secs(10)), "it does not die");
        assert!(!name.is_alive(), "a corpse serves nobody");
        let claimed = claim(&socket).expect("the files can be written").expect("nobody serves it");
        other.wait().expect("it was ours");
        assert_eq!(server(&socket).expect("readable").map(|s| s.pid), Some(std::process::id()));
        // The same id, another process.
        let own = ProcessName::of(std::process::id()).expect("it runs");
        assert!(!ProcessName { started: own.started + 1, ..own }.is_alive());
        drop(claimed);
        fs::remove_dir(&dir).expect("nothing is left");
    }

    #[test]
    fn a_lock_that_somebody_holds_stays() {
        let dir = std::env::temp_dir().join(format!("clew-forget-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("clew.sock");
        let claimed = claim(&socket).expect("the files can be written").expect("nobody serves it");
        let path = beside(&socket, "lock");
        let held = File::options().write(true).open(&path).expect("it is there");
        held.lock().expect("nobody else has it");
        let inode = format!(":{} ", held.metadata().expect("it is there").ino());
        std::thread::scope(|scope| {
            let forgets = scope.spawn(|| drop(claimed));
            // Until it waits, as the kernel says, or has not waited.
            let waits = || {
                let locks = fs::read_to_string("/proc/locks").expect("/proc/locks");
                locks.lines().any(|line| line.contains("->") && line.contains(&inode))
            };
            while !forgets.is_finished() && !waits() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let left = ["lock", "pid"].map(|what| beside(&socket, what).exists());
            held.unlock().expect("it was ours");
            assert_eq!(left, [true, true], "somebody else locks another one now");
        });
        fs::remove_dir(&dir).expect("nothing is left");
    }
}

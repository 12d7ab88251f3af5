//! From a directory to a mount, and to its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clew_core::CodecKind;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Resource, Rlimit};

use crate::PAGE_BYTES;
use crate::as_user::leave_reserves;
use crate::counters::{Counters, Status};
use crate::evictor;
use crate::handed_out::HandedOut;
use crate::handles::Handles;
use crate::inodes::{Inodes, ROOT};
use crate::lower::{self, Lower};
use crate::names::Names;
use crate::operations::Files;
use crate::packer::Packer;
use crate::pages::{FilePages, FilePagesConfig, Leaves};
use crate::server::{Pool, Server};
use crate::watches::Watches;

/// What is mounted, as the list of mounts has it.
const SOURCE: &str = "clew";
/// Of these types: which of them depends on who mounted it.
const TYPES: [&[u8]; 2] = [b"fuse.clew", b"fuse"];
/// Who answers the kernel at once.
const THREADS: usize = 4;

/// How a mount is made.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The directory below.
    pub directory: PathBuf,
    /// Where it is seen.
    pub mount_point: PathBuf,
    /// Limit of the pool; zero for none: the files are only passed through.
    pub memory_bytes: u64,
    /// How much of the kernel's page cache is left to these files.
    pub cache_bytes: u64,
    /// What compresses pages.
    pub codec: CodecKind,
    /// What leaves the pool.
    pub leaves: Leaves,
    /// Whether only pages that are worth their room enter it (ezswap's selective admission); otherwise all do.
    pub selective: bool,
    /// Whether other users may use it: for root only.
    pub allow_other: bool,
    /// How long the kernel may believe what it was told of names and attributes. If it is not zero, a change
    /// below may be seen that much later.
    pub timeout: Duration,
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Something about a path.
    #[error("{path}: {source}")]
    Path {
        /// Which.
        path: PathBuf,
        /// What.
        source: Errno,
    },
    /// It is for root.
    #[error("only root may let other users use a mount")]
    NotRoot,
    /// The kernel has no FUSE, or not for us.
    #[error("mounting at {path}: {source}")]
    Mounting {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no memory for the pool.
    #[error("the pool: {0}")]
    Pool(#[from] clew_store::StoreError),
    /// There is no thread.
    #[error("starting a thread: {0}")]
    Thread(io::Error),
}

/// How a mount has ended.
#[derive(Debug)]
pub enum Ending {
    /// It was unmounted.
    Unmounted,
    /// The server failed.
    Failed(io::Error),
}

/// A mount; unmounted when it is dropped.
#[derive(Debug)]
pub struct Mounted {
    server: Arc<Server>,
    unmounter: SessionUnmounter,
    session: Option<JoinHandle<io::Result<()>>>,
    evictor: Option<JoinHandle<()>>,
    path: PathBuf,
    /// Whether a dead mount was cleared away first.
    pub cleared: bool,
}

impl Mounted {
    /// What it has done.
    pub fn status(&self) -> Status {
        self.server.status()
    }

    /// Its pool, if it has one.
    pub fn pool(&self) -> Option<&Arc<FilePages>> {
        self.server.pool.as_ref().map(|pool| &pool.pages)
    }

    /// Whether it has ended by itself: somebody unmounted it, or the server failed.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Unmounts it, whoever uses it: files that are open get errors from now on.
    pub fn end(mut self) -> Ending {
        match self.end_session() {
            Ok(()) => Ending::Unmounted,
            Err(error) => Ending::Failed(error),
        }
    }

    fn end_session(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let mut served = Ok(());
        if !session.is_finished() {
            self.have_written();
            // Busy: out of the tree all the same. Whoever holds a file of it loses it with this process.
            if self.unmounter.unmount().is_err() {
                served = unmount(&self.path, UnmountFlags::DETACH).map_err(io::Error::from);
            }
            let until = Instant::now() + Duration::from_secs(1);
            while !session.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.server.over.store(true, Relaxed);
        if session.is_finished() {
            served =
                served.and(session.join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        }
        if let Some(evictor) = self.evictor.take()
            && evictor.join().is_err()
        {
            served = served.and(Err(io::Error::other("the evictor panicked")));
        }
        served
    }
}

/// How long an end waits for what programs have written by mappings.
const WRITING: Duration = Duration::from_secs(10);

/// Nothing has come for so long: that was all.
const QUIET: Duration = Duration::from_millis(50);

impl Mounted {
    /// Has the kernel write what programs have changed by mappings, as long as somebody is here to take it.
    fn have_written(&self) {
        let path = self.path.clone();
        // It waits for whoever answers, perhaps for ever: not this thread.
        let syncing = thread::Builder::new().name("clew-mount-sync".to_string()).spawn(move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(path, flags, Mode::empty())?;
            rustix::fs::syncfs(root)
        });
        let Ok(syncing) = syncing else { return };
        let until = Instant::now() + WRITING;
        let mut writes = self.status().writes;
        // The kernel may not wait for what it asks to be written.
        while Instant::now() < until {
            thread::sleep(QUIET);
            let before = std::mem::replace(&mut writes, self.status().writes);
            if syncing.is_finished() && writes == before {
                return;
            }
        }
        tracing::warn!("what mappings have changed may not be written: {}", self.path.display());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end_session() {
            tracing::warn!("the mount at {} ended badly: {error}", self.path.display());
        }
    }
}

/// Mounts it. From now on this process makes files with exactly the permissions it is told (umask).
///
/// # Errors
/// If it cannot be.
pub fn mount(config: MountConfig) -> Result<Mounted, MountError> {
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |source| MountError::Path { path, source }
    };
    if config.allow_other && !rustix::process::geteuid().is_root() {
        return Err(MountError::NotRoot);
    }
    let root = Lower::root(&config.directory).map_err(at(&config.directory))?;
    let key = lower::key(&lower::stat(&root).map_err(at(&config.directory))?);
    let forbids_programs = forbids_programs(&root).map_err(at(&config.directory))?;
    let path = place(&config.mount_point).map_err(at(&config.mount_point))?;
    let cleared = clear_dead(&path).map_err(at(&path))?;
    rustix::process::umask(Mode::empty());
    let most_inodes = raise_descriptors() / 4 * 3;

    let counters = Arc::new(Counters::default());
    let pool = match config.memory_bytes {
        0 => None,
        limit_bytes => {
            let pages = FilePages::new(FilePagesConfig {
                limit_bytes,
                codec: config.codec,
                leaves: config.leaves,
                selective: config.selective,
            })?;
            let pages = Arc::new(pages);
            // It ends when nobody gives it anything any more.
            let (packer, _thread) =
                Packer::start(pages.clone(), counters.clone()).map_err(MountError::Thread)?;
            Some(Pool { pages, packer })
        }
    };
    let server = Arc::new(Server {
        lower: Lower::new().map_err(at(Path::new("/proc")))?,
        inodes: Inodes::new(root, key),
        names: Names::new(most_inodes),
        files: Handles::default(),
        directories: Handles::default(),
        handed_out: Mutex::new(HandedOut::default()),
        cache_pages: config.cache_bytes / PAGE_BYTES as u64,
        pool,
        counters,
        timeout: config.timeout,
        written: Mutex::new(HashMap::new()),
        suspects: Mutex::new(Vec::new()),
        watches: Watches::new(),
        waiting: AtomicUsize::new(0),
        over: Arc::new(AtomicBool::new(false)),
        directory: config.directory.clone(),
        started: Instant::now(),
    });
    if server.is_believed()
        && let Some(root) = server.inodes.get(ROOT)
    {
        server.watches.watch(ROOT, &server.lower.path(&*root));
    }
    let mut session =
        Session::new(Files(server.clone()), &path, &options(&config, forbids_programs))
            .map_err(|source| MountError::Mounting { path: path.clone(), source })?;
    let notifier = session.notifier();
    let unmounter = session.unmount_callable();
    let evictor = evictor::start(server.clone(), notifier, server.over.clone())
        .map_err(MountError::Thread)?;
    let session = thread::Builder::new()
        .name("clew-mount".to_string())
        .spawn(move || {
            leave_reserves()?;
            session.run()
        })
        .map_err(MountError::Thread)?;
    let (session, evictor) = (Some(session), Some(evictor));
    Ok(Mounted { server, unmounter, session, evictor, path, cleared })
}

/// Whether nothing may be executed that lies below.
fn forbids_programs(root: &OwnedFd) -> Result<bool, Errno> {
    Ok(fstatvfs(root)?.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

fn options(config: &MountConfig, forbids_programs: bool) -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::FSName(SOURCE.to_string()),
        MountOption::Subtype("clew".to_string()),
        // Who may what is decided by the kernel, from the attributes it is told.
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    if forbids_programs {
        options.mount_options.push(MountOption::NoExec);
    }
    options.acl = match config.allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    options.n_threads = Some(THREADS);
    options.clone_fd = true;
    options
}

/// As many files as the hard limit allows: every inode that the kernel knows is one.
fn raise_descriptors() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let most = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!("the limit of open files stays: {error}");
            limit.current
        }
    };
    most.map_or(usize::MAX, |most| most as usize)
}

/// A directory as the list of mounts has it: without links, `..` and the like. It may be a mount whose server is dead,
/// of which nothing can be asked.
fn place(directory: &Path) -> Result<PathBuf, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

/// Takes a mount of ours out of the tree whose server is dead; true if there was one. Others are left alone.
fn clear_dead(path: &Path) -> Result<bool, Errno> {
    match rustix::fs::stat(path) {
        Ok(_) => return Ok(false),
        Err(Errno::NOTCONN) => {}
        Err(error) => return Err(error),
    }
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(|_| Errno::NOTCONN)?;
    let is_ours = mounted_at(&mounts, path)
        .is_some_and(|(kind, source)| TYPES.contains(&&kind[..]) && source == SOURCE.as_bytes());
    if !is_ours {
        return Err(Errno::NOTCONN);
    }
    if unmount(path, UnmountFlags::DETACH).is_ok() {
        return Ok(true);
    }
    // Users may not, but may have it done.
    let done = std::process::Command::new("fusermount3").arg("-uz").arg("--").arg(path).status();
    match done {
        Ok(status) if status.success() => Ok(true),
        _ => Err(Errno::NOTCONN),
    }
}

/// Type and source of the last thing that was mounted there.
fn mounted_at(mounts: &[u8], path: &Path) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut found = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        if words.nth(4).map(plain).as_deref() != Some(path.as_os_str().as_bytes()) {
            continue;
        }
        // What is before the dash is of any number.
        let mut words = words.skip_while(|word| *word != b"-").skip(1).map(plain);
        found = words.next().zip(words.next());
    }
    found
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
    fn the_last_mount_of_a_place_counts() {
        let mounts = b"22 1 0:1 / /a\\040b rw shared:1 - ext4 /dev/x rw\n\
            23 22 0:50 / /a\\040b rw,nosuid shared:2 master:3 - fuse.clew clew rw\n\
            24 1 0:2 / /c rw - tmpfs none rw\n";
        let at = |path| mounted_at(mounts, Path::new(path));
        let of = |kind: &str, source: &str| Some((kind.into(), source.into()));
        assert_eq!(at("/a b"), of("fuse.clew", "clew"));
        assert_eq!(at("/c"), of("tmpfs", "none"));
        assert_eq!(at("/d"), None);
    }

    #[test]
    fn a_place_is_the_same_however_it_is_spelt() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let wanted = there.canonicalize().unwrap();
        for spelt in ["there", "there/", "there/../there", "./link/", "link"] {
            assert_eq!(place(&dir.path().join(spelt)), Ok(wanted.clone()), "{spelt}");
        }
        assert_eq!(place(&dir.path().join("file")), Err(Errno::NOTDIR));
        assert_eq!(place(&dir.path().join("nothing")), Err(Errno::NOENT));
    }

    #[test]
    fn what_is_alive_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(clear_dead(place.path()), Ok(false));
        assert_eq!(clear_dead(&place.path().join("nowhere")), Err(Errno::NOENT));
    }
}

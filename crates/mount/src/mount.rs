//! From a directory to a mount, and to its end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clew_core::CodecKind;
use fuser::{Config, MountOption, Session, SessionACL};
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit};

use crate::PAGE_BYTES;
use crate::ahead::Ahead;
use crate::as_user::leave_reserves;
use crate::changed::Changed;
use crate::counters::{Counters, Status};
use crate::evictor;
use crate::forgetting;
use crate::handed_out::HandedOut;
use crate::handles::Handles;
use crate::inodes::{Inodes, ROOT};
use crate::lower::{self, Lower};
use crate::mounting;
use crate::names::Names;
use crate::operations::Files;
use crate::packer::Packer;
use crate::pages::{FilePages, FilePagesConfig, Leaves};
use crate::place::{Placed, SOURCE, clear_dead, link_to, place};
use crate::server::{Pool, Server};
use crate::watches::Watches;

/// Who answers the kernel at once.
const THREADS: usize = 4;
/// The same for each CPU, where requests come by io_uring.
const RING_THREADS: usize = 2;

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
    /// Whether links on the way to the mount point are followed: who can change them decides where it is.
    pub may_follow: bool,
    /// The same of links on the way to the directory below: who can change them decides what others are shown.
    pub may_follow_below: bool,
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
    /// What is mounted there does not answer.
    #[error("{0}: a mount is there whose server does not answer: is it stopped?")]
    Silent(PathBuf),
    /// It is for root.
    #[error("only root may let other users use a mount")]
    NotRoot,
    /// Whoever has the root directory has it still, and nobody could take such a mount out by a path.
    #[error(
        "over the root directory nothing can be mounted that anybody would see; name another directory"
    )]
    RootDirectory,
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
    session: Option<JoinHandle<io::Result<()>>>,
    evictor: Option<JoinHandle<()>>,
    forgetting: Option<JoinHandle<()>>,
    path: PathBuf,
    placed: Placed,
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
        let mut session = self.session.take();
        if session.is_none() {
            return Ok(());
        }
        let by_itself = session.take_if(|session| session.is_finished());
        if session.is_some() {
            self.have_written();
        }
        self.server.over.store(true, Relaxed);
        let is_kept = !self.forgetting.as_ref().is_none_or(has_ended);
        let served = by_itself.map(|session| joined("the server", session).and_then(|end| end));
        let taken_out = match &served {
            // Somebody has unmounted it, or ended its connection.
            Some(Ok(())) => self.placed.take_out_dead(),
            // Nobody answers any more.
            Some(Err(_)) => self.placed.take_out(UnmountFlags::FORCE),
            None if is_kept => {
                // This process may stay, and keep the connection: who uses the mount gets an error now.
                let at = self.path.display();
                tracing::warn!("a user keeps a directory of {at}: this process ends when he does");
                self.placed.take_out(UnmountFlags::FORCE)
            }
            // Whoever holds a file of it loses it with this process.
            None => self.placed.take_out(UnmountFlags::empty()),
        };
        let mut ended = served.unwrap_or(Ok(())).and(taken_out.map_err(io::Error::from));
        if let Some(session) = session.filter(has_ended) {
            ended = ended.and(joined("the server", session).and_then(|end| end));
        }
        if let Some(evictor) = self.evictor.take() {
            ended = ended.and(joined("the evictor", evictor));
        }
        if let Some(forgetting) = self.forgetting.take().filter(|_| !is_kept) {
            ended = ended.and(joined("who forgets names", forgetting));
        }
        ended
    }
}

fn joined<T>(what: &str, thread: JoinHandle<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other(format!("{what} panicked")))
}

/// How long an end waits for a thread.
const ENDING: Duration = Duration::from_secs(1);

/// Whether it has, after a while at most.
fn has_ended<T>(thread: &JoinHandle<T>) -> bool {
    let until = Instant::now() + ENDING;
    while !thread.is_finished() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    thread.is_finished()
}

/// How long an end waits for what programs have written by mappings.
const WRITING: Duration = Duration::from_secs(10);

/// Nothing has come for so long: that was all.
const QUIET: Duration = Duration::from_millis(50);

impl Mounted {
    /// Has the kernel write what programs have changed by mappings, as long as somebody is here to take it.
    fn have_written(&self) {
        // It is not in the tree.
        let Ok(root) = self.placed.find() else { return };
        // It waits for whoever answers, perhaps for ever: not this thread.
        let syncing = thread::Builder::new().name("clew-mount-sync".to_string()).spawn(move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(link_to(&root), flags, Mode::empty())?;
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
    let root =
        Lower::root(&config.directory, config.may_follow_below).map_err(at(&config.directory))?;
    let key = lower::key(&lower::stat(&root).map_err(at(&config.directory))?);
    let forbids_programs = forbids_programs(&root).map_err(at(&config.directory))?;
    let find = || place(&config.mount_point, config.may_follow).map_err(at(&config.mount_point));
    let (mut directory, mut path) = find()?;
    let cleared = clear_dead(&path).map_err(|error| match error {
        Errno::TIMEDOUT => MountError::Silent(path.clone()),
        error => at(&path)(error),
    })?;
    if cleared {
        (directory, path) = find()?;
    }
    if is_root_directory(&directory).map_err(at(&path))? {
        return Err(MountError::RootDirectory);
    }
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
        changed: Changed::default(),
        files: Handles::default(),
        directories: Handles::default(),
        locks: Arc::default(),
        handed_out: Mutex::new(HandedOut::default()),
        cache_pages: config.cache_bytes / PAGE_BYTES as u64,
        pool,
        ahead: Ahead::start().map_err(MountError::Thread)?,
        passes_direct: AtomicBool::new(false),
        has_rings: AtomicBool::new(false),
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
    let mounting = |source| MountError::Mounting { path: path.clone(), source };
    let (files, fuser) = (Files(server.clone()), options(&config, forbids_programs));
    let made = mounting::make(config.allow_other, forbids_programs);
    let (session, placed) = match made.map_err(|error| mounting(error.into()))? {
        Some((device, made)) => {
            let session = Session::from_fd(files, device, fuser.acl, fuser).map_err(mounting)?;
            let placed = made.mount_at(&directory).map_err(|error| mounting(error.into()))?;
            (session, placed)
        }
        None => {
            let mut session = Session::new(files, &path, &fuser).map_err(mounting)?;
            let placed = Placed::at(&path).map_err(|error| mounting(error.into()))?;
            // What is mounted is taken out from now on by who knows it, and not by its path.
            session.unmount_callable().leave();
            (session, placed)
        }
    };
    let without = |error| {
        let _ = placed.take_out(UnmountFlags::FORCE);
        MountError::Thread(error)
    };
    server.has_rings.store(session.has_rings(), Relaxed);
    let notifier = session.notifier();
    let forgetting = forgetting::start(server.clone(), notifier.clone()).map_err(without)?;
    let evictor = evictor::start(server.clone(), notifier, server.over.clone()).map_err(without)?;
    let session = thread::Builder::new()
        .name("clew-mount".to_string())
        .spawn(move || {
            leave_reserves()?;
            session.run()
        })
        .map_err(without)?;
    let (session, evictor, forgetting) = (Some(session), Some(evictor), Some(forgetting));
    Ok(Mounted { server, session, evictor, forgetting, path, placed, cleared })
}

/// Whether this is the root directory of this process, and not the same directory elsewhere.
fn is_root_directory(directory: &OwnedFd) -> Result<bool, Errno> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let is_same = lower::key(&lower::stat(directory)?) == lower::key(&lower::stat(&root)?);
    Ok(is_same && Placed::of(directory)? == Placed::of(&root)?)
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
    options.ring_threads = RING_THREADS;
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

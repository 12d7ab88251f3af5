//! Locks of files (`fcntl`, `flock`): who uses the mount and who uses the directory below see each other's.
//!
//! A lock of `fcntl` belongs to an *owner*: the table of descriptors of a process, or an open file. Each owner that has locked
//! something of a file has that file open once more below, where its locks are those of this open file (`F_OFD_SETLK`)
//! and end with it. One of `flock` belongs to an open file, and is taken by the one below that its user has opened.
//!
//! Nobody waits below, where nothing could interrupt it: one thread tries again for all who wait ([`crate::lock_queue`]).
//!
//! Lock order: `owners` is held only during calls that do not wait; files are opened without.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use parking_lot::Mutex;
use rangemap::RangeInclusiveSet;
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, flock};
use rustix::io::Errno;

use crate::handles::OpenFile;
use crate::lock_queue::LockQueue;
use crate::lower::Lower;

type Result<T> = std::result::Result<T, Errno>;

/// The last byte of a file that goes to its end (`OFFSET_MAX` of the kernel).
const TO_THE_END: u64 = i64::MAX as u64;

/// How long after one of its descriptors was closed an open file may be about to be told closed itself.
const ABOUT_TO_CLOSE: Duration = Duration::from_millis(100);

/// Bytes of a file that an owner locks, or asks about.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The inode, by the kernel's number.
    pub node: u64,
    /// Whose locks.
    pub owner: u64,
    /// The first byte and the last.
    pub range: (u64, u64),
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process, as the mount's server knows it.
    pub pid: u32,
}

/// A lock that keeps another one away, as FUSE says it: `F_UNLCK` if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The first byte and the last.
    pub range: (u64, u64),
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// Of which process; zero where nobody can say.
    pub pid: u32,
}

/// Who has locks of `fcntl` of a file.
#[derive(Debug)]
struct Owner {
    /// What has them below.
    file: Arc<OwnedFd>,
    /// Whether that may be for writing: nobody could execute a file that is open so, so it is not where its user has it
    /// for reading.
    may_write: bool,
    /// Until then: what is locked, for reading.
    read: RangeInclusiveSet<u64>,
    /// The process that has locked last.
    pid: u32,
    /// The open files, by handle, by which it has locked.
    handles: Vec<u64>,
    /// When a descriptor of one of these was closed last.
    closed: Option<Instant>,
}

/// The locks of a mount.
#[derive(Default)]
pub struct Locks {
    /// By inode and owner.
    owners: Mutex<HashMap<(u64, u64), Owner>>,
    /// How many times locks are being given up just now, which are in `owners` no more and below perhaps still.
    ending: AtomicUsize,
    /// Who waits for one.
    pub queue: Arc<LockQueue>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("owners", &self.owners.lock().len()).finish_non_exhaustive()
    }
}

impl Locks {
    /// Tries to lock bytes of an open file, or unlocks them.
    ///
    /// # Errors
    /// `EAGAIN` if somebody else has a lock there; else as the system says.
    pub fn lock_bytes(
        &self,
        lower: &Lower,
        (open, handle): (&OpenFile, u64),
        bytes: Bytes,
    ) -> Result<()> {
        let asked = below(bytes)?;
        let of = (bytes.node, bytes.owner);
        let unlocks = bytes.kind == libc::F_UNLCK;
        if unlocks && bytes.range == (0, TO_THE_END) {
            self.give_up(of);
            return Ok(());
        }
        let may_write = fcntl_getfl(&open.file)? & OFlags::ACCMODE != OFlags::RDONLY;
        let known = self.owners.lock().get(&of).map(|owner| owner.may_write);
        let opened = match known {
            Some(does) if does || !may_write => None,
            None if unlocks => return Ok(()),
            _ => Some(Arc::new(open_for_locks(lower, open, may_write)?)),
        };
        // No call below waits.
        let mut owners = self.owners.lock();
        let owner = match (owners.entry(of), opened) {
            (Entry::Occupied(there), None) => there.into_mut(),
            (Entry::Occupied(there), Some(file)) => {
                let owner = there.into_mut();
                if may_write && !owner.may_write {
                    owner.may_write_from_now_on(file)?;
                }
                owner
            }
            (Entry::Vacant(place), Some(file)) => {
                let (read, handles) = (RangeInclusiveSet::new(), Vec::new());
                let (pid, closed) = (bytes.pid, None);
                place.insert(Owner { file, may_write, read, pid, handles, closed })
            }
            // It was closed meanwhile, by another thread.
            (Entry::Vacant(_), None) if unlocks => return Ok(()),
            (Entry::Vacant(_), None) => return Err(Errno::AGAIN),
        };
        if !owner.handles.contains(&handle) {
            owner.handles.push(handle);
            open.has_locked.store(true, Relaxed);
        }
        owner.lock(&asked)?;
        let range = bytes.range.0..=bytes.range.1;
        match unlocks {
            true => owner.read.remove(range),
            false => {
                owner.pid = bytes.pid;
                if !owner.may_write {
                    owner.read.insert(range);
                }
            }
        }
        drop(owners);
        if unlocks {
            self.queue.try_now();
        }
        Ok(())
    }

    /// What keeps this lock away.
    ///
    /// # Errors
    /// As the system says.
    pub fn find_lock(&self, open: &OpenFile, bytes: Bytes) -> Result<Found> {
        let asked = below(bytes)?;
        let owners = self.owners.lock();
        let own = owners.get(&(bytes.node, bytes.owner)).map(|owner| owner.file.clone());
        let of_file = owners.iter().filter(|((node, _), _)| *node == bytes.node);
        let all: Vec<(Arc<OwnedFd>, u32)> =
            of_file.map(|(_, owner)| (owner.file.clone(), owner.pid)).collect();
        drop(owners);
        let look = |file: &OwnedFd| {
            let mut found = asked;
            fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(raw)?;
            Ok(found)
        };
        let found = look(own.as_deref().unwrap_or(&open.file))?;
        let shown = |lock: libc::flock| {
            let length = lock.l_len.unsigned_abs();
            let first = lock.l_start.unsigned_abs();
            let last = if length == 0 { TO_THE_END } else { first + (length - 1) };
            (i32::from(lock.l_type), (first, last))
        };
        let (kind, range) = shown(found);
        let pid = match u32::try_from(found.l_pid) {
            Ok(pid) => pid,
            // An open file's, perhaps one of ours: who has it does not find it.
            Err(_) => {
                let has_it =
                    |file: &OwnedFd| look(file).is_ok_and(|other| shown(other) != shown(found));
                all.iter().find(|(file, _)| has_it(file)).map_or(0, |(_, pid)| *pid)
            }
        };
        Ok(Found { range, kind, pid })
    }

    /// Tries to lock an open file as a whole (`flock`), or unlocks it.
    ///
    /// # Errors
    /// `EAGAIN` if somebody else has a lock of it; else as the system says.
    pub fn lock_file(&self, open: &OpenFile, kind: i32) -> Result<()> {
        let operation = match kind {
            libc::F_RDLCK => FlockOperation::NonBlockingLockShared,
            libc::F_WRLCK => FlockOperation::NonBlockingLockExclusive,
            libc::F_UNLCK => FlockOperation::NonBlockingUnlock,
            _ => return Err(Errno::INVAL),
        };
        flock(&open.file, operation)?;
        if kind == libc::F_UNLCK {
            self.queue.try_now();
        }
        Ok(())
    }

    /// For how long who was just refused a lock is tried for again: a descriptor of another who has locked there was closed, and
    /// with it perhaps the file, of which one is told a moment later.
    pub fn may_be_about_to_end(&self, bytes: Bytes) -> Option<Duration> {
        let owners = self.owners.lock();
        let is_others = |(node, owner): &(u64, u64)| *node == bytes.node && *owner != bytes.owner;
        let of_others = owners.iter().filter(|(of, _)| is_others(of));
        let mut closed = of_others.filter_map(|(_, owner)| owner.closed);
        let is_closing = closed.any(|since| since.elapsed() < ABOUT_TO_CLOSE);
        (is_closing || self.ending.load(Acquire) > 0).then_some(ABOUT_TO_CLOSE)
    }

    /// A descriptor of an open file was closed, by which bytes of this inode were locked.
    pub fn has_closed(&self, node: u64, handle: u64) {
        let mut owners = self.owners.lock();
        let by_it = owners
            .iter_mut()
            .filter(|((of, _), owner)| *of == node && owner.handles.contains(&handle));
        by_it.for_each(|(_, owner)| owner.closed = Some(Instant::now()));
    }

    /// An owner has closed a file, by whichever of its descriptors: all of its locks of it end.
    pub fn give_up(&self, (node, owner): (u64, u64)) {
        let ended = self.owners.lock().remove(&(node, owner));
        if ended.is_some() {
            drop(ended);
            self.queue.try_now();
        }
    }

    /// Nobody has this open file any more. What was locked by it is an open file's, of which no other end is told.
    pub fn give_up_all_of(&self, closed: Arc<OpenFile>, handle: u64) {
        let has_locked = closed.has_locked.load(Relaxed);
        // One of flock ends with it.
        drop(closed);
        if has_locked {
            self.ending.fetch_add(1, AcqRel);
            let ended: Vec<Owner> = {
                let mut owners = self.owners.lock();
                let with = owners.extract_if(|_, owner| owner.handles.contains(&handle));
                with.map(|(_, owner)| owner).collect()
            };
            drop(ended);
            self.ending.fetch_sub(1, AcqRel);
        }
        self.queue.try_now();
    }
}

impl Owner {
    fn lock(&self, asked: &libc::flock) -> Result<()> {
        let done = fcntl(&*self.file, FcntlArg::F_OFD_SETLK(asked));
        done.map(drop).map_err(|error| match raw(error) {
            Errno::ACCESS => Errno::AGAIN,
            // Its user may lock so and whoever serves the mount may not.
            Errno::BADF => Errno::NOLCK,
            error => error,
        })
    }

    /// Has its locks by this file, which may be for writing. They are all for reading, so both have them for a moment.
    fn may_write_from_now_on(&mut self, file: Arc<OwnedFd>) -> Result<()> {
        let before = std::mem::replace(&mut self.file, file);
        let locked = self.read.iter().try_for_each(|range| {
            self.lock(&asked_below(libc::F_RDLCK, (*range.start(), *range.end())))
        });
        if let Err(error) = locked {
            self.file = before;
            return Err(error);
        }
        self.may_write = true;
        self.read.clear();
        Ok(())
    }
}

/// The file once more, whose locks are one owner's.
fn open_for_locks(lower: &Lower, open: &OpenFile, may_write: bool) -> Result<OwnedFd> {
    let wanted = if may_write { OFlags::RDWR } else { OFlags::RDONLY };
    let opened = lower.open(&open.file, wanted).or_else(|_| {
        let flags = fcntl_getfl(&open.file)? & (OFlags::ACCMODE | OFlags::APPEND);
        lower.open(&open.file, flags)
    });
    opened.map_err(|error| match error {
        Errno::MFILE | Errno::NFILE => Errno::NOLCK,
        error => error,
    })
}

/// As the system below is asked.
fn below(bytes: Bytes) -> Result<libc::flock> {
    let (first, last) = bytes.range;
    if first > last || last > TO_THE_END {
        return Err(Errno::INVAL);
    }
    Ok(asked_below(bytes.kind, bytes.range))
}

fn asked_below(kind: i32, (first, last): (u64, u64)) -> libc::flock {
    let length = if last == TO_THE_END { 0 } else { last - first + 1 };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first as i64,
        l_len: length as i64,
        l_pid: 0,
    }
}

fn raw(error: nix::Error) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

//! Changes below, told at once: inotify on the files that the kernel has opened here, and, where it believes names for a
//! while, on what it was told of.
//!
//! So many are watched at most; then those that were opened longest ago are not any more, and are asked for as all are where there
//! is no inotify: when they are looked at. The same holds for events that the kernel has no room for.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hashbrown::HashMap;
use lru::LruCache;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};

/// Watches at most, and at most this part of what the system gives its user.
const MOST: usize = 16_384;
const PART: usize = 4;
const SYSTEMS_LIMIT: &str = "/proc/sys/fs/inotify/max_user_watches";
/// Bytes of events that are read at once, and how often before others have their turn.
const EVENT_BYTES: usize = 16 << 10;
const READS: usize = 64;

/// What was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Inodes that may be others than they were, and whether their contents were written.
    pub nodes: BTreeMap<u64, bool>,
    /// Names in directories that may mean something else.
    pub names: BTreeSet<(u64, OsString)>,
    /// More was lost: anything may have changed.
    pub lost: bool,
}

/// What is watched.
#[derive(Debug)]
pub struct Watches {
    inotify: Option<OwnedFd>,
    known: Mutex<Known>,
    most: usize,
    /// Those that could not be watched, or are not any more for others.
    pub unwatched: AtomicU64,
}

#[derive(Debug)]
struct Known {
    /// Those that were opened longest ago last.
    by_node: LruCache<u64, i32>,
    by_watch: HashMap<i32, u64>,
}

impl Watches {
    /// Nothing yet. Where the system has no inotify, nothing ever.
    pub fn new() -> Watches {
        let limit = std::fs::read_to_string(SYSTEMS_LIMIT).ok();
        let limit = limit.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
        Watches::of_at_most(MOST.min(limit / PART))
    }

    fn of_at_most(most: usize) -> Watches {
        let inotify = match init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => Some(inotify),
            Err(error) => {
                tracing::info!("changes below are seen when files are looked at: {error}");
                None
            }
        };
        let known = Known { by_node: LruCache::unbounded(), by_watch: HashMap::new() };
        Watches { inotify, known: Mutex::new(known), most, unwatched: AtomicU64::new(0) }
    }

    /// Watches an inode from now on, which `path` leads to. What changed before is not told.
    pub fn watch(&self, node: u64, path: &Path) {
        let Some(inotify) = &self.inotify else { return };
        let mut known = self.known.lock();
        if known.by_node.get(&node).is_some() {
            return;
        }
        if known.by_node.len() >= self.most {
            match known.by_node.pop_lru() {
                Some((_, watch)) => {
                    known.by_watch.remove(&watch);
                    let _ = remove_watch(inotify, watch);
                    self.unwatched.fetch_add(1, Relaxed);
                }
                None => {
                    self.unwatched.fetch_add(1, Relaxed);
                    return;
                }
            }
        }
        let events = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE;
        match add_watch(inotify, path, events) {
            Ok(watch) => {
                known.by_node.put(node, watch);
                known.by_watch.insert(watch, node);
            }
            Err(error) => {
                tracing::debug!("a file is not watched: {error}");
                self.unwatched.fetch_add(1, Relaxed);
            }
        }
    }

    /// Ends it; nothing, if it is not watched.
    pub fn forget(&self, node: u64) {
        let Some(inotify) = &self.inotify else { return };
        let mut known = self.known.lock();
        if let Some(watch) = known.by_node.pop(&node) {
            known.by_watch.remove(&watch);
            let _ = remove_watch(inotify, watch);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.lock().by_node.len()
    }

    /// All that are watched.
    pub fn nodes(&self) -> Vec<u64> {
        self.known.lock().by_node.iter().map(|(node, _)| *node).collect()
    }

    /// Waits until something is to be told, or for that long. True if something is.
    pub fn wait(&self, most: Duration) -> bool {
        let Some(inotify) = &self.inotify else {
            std::thread::sleep(most);
            return false;
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.as_nanos().min(999_999_999) as i64 };
        poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&timeout))
            .is_ok_and(|ready| ready > 0)
    }

    /// What was told since this was asked last, or much of it.
    pub fn told(&self) -> Told {
        let mut told = Told::default();
        let Some(inotify) = &self.inotify else { return told };
        let mut room = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(inotify, &mut room);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                reads += 1;
                if reads > READS {
                    break;
                }
            }
            // There are no more for now.
            let Ok(event) = reader.next() else { break };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told.lost = true;
                continue;
            }
            let mut known = self.known.lock();
            let Some(node) = known.by_watch.get(&event.wd()).copied() else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                // The inode is gone.
                known.by_watch.remove(&event.wd());
                known.by_node.pop(&node);
                continue;
            }
            match event.file_name() {
                Some(name) => {
                    told.names.insert((node, OsString::from_vec(name.to_bytes().to_vec())));
                }
                None => {
                    *told.nodes.entry(node).or_default() |=
                        event.events().contains(ReadFlags::MODIFY);
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn told_in_time(watches: &Watches) -> Told {
        assert!(watches.wait(Duration::from_millis(900)), "nothing is told");
        watches.told()
    }

    #[test]
    fn changes_are_told_of_what_is_watched() {
        let place = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| place.path().join(name));
        paths.iter().for_each(|path| fs::write(path, "before").unwrap());
        let watches = Watches::of_at_most(2);
        watches.watch(10, &paths[0]);
        watches.watch(11, &paths[1]);
        let permissions = fs::metadata(&paths[0]).unwrap().permissions();
        fs::set_permissions(&paths[0], permissions).unwrap();
        assert_eq!(told_in_time(&watches).nodes, BTreeMap::from([(10, false)]));
        fs::write(&paths[0], "after").unwrap();
        assert_eq!(told_in_time(&watches).nodes, BTreeMap::from([(10, true)]));
        assert!(!watches.wait(Duration::ZERO), "that was all");

        // One more is one too many: what was opened longest ago is not watched any more.
        watches.watch(10, &paths[0]);
        watches.watch(12, &paths[2]);
        assert_eq!((watches.len(), watches.unwatched.load(Relaxed)), (2, 1));
        fs::write(&paths[1], "after").unwrap();
        fs::write(&paths[2], "after").unwrap();
        assert_eq!(told_in_time(&watches).nodes, BTreeMap::from([(12, true)]));

        watches.forget(12);
        watches.told();
        fs::write(&paths[2], "later").unwrap();
        assert_eq!(watches.told(), Told::default());
        assert_eq!(watches.nodes(), [10]);
        fs::remove_file(&paths[0]).unwrap();
        told_in_time(&watches);
        assert_eq!(watches.len(), 0, "it is gone");
    }

    #[test]
    fn names_are_told_of_directories() {
        let place = tempfile::tempdir().unwrap();
        let watches = Watches::of_at_most(9);
        watches.watch(10, place.path());
        fs::write(place.path().join("new"), "").unwrap();
        let told = told_in_time(&watches);
        assert_eq!(told.names, BTreeSet::from([(10, OsString::from("new"))]));
        assert!(told.nodes.is_empty() && !told.lost);
    }
}

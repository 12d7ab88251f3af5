//! Who has the kernel forget names: those that mean something else now, and the oldest where it knows too many inodes.
//!
//! The kernel waits for the directory's lock then, which a user may keep for as long as he likes (he lists the directory into
//! memory that does not come), and nothing ends that. So a thread does this and nothing else, for which nobody waits. Names
//! that are to be told are kept until they are; of more than so many which they are is not kept, and all that the kernel may know are told.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FileType, OFlags};

use crate::server::Server;

/// How often it looks for too many inodes.
const ROUND: Duration = Duration::from_millis(10);
/// Names that are forgotten in one go, as there are too many.
const OLDEST: usize = 256;
/// Names that are kept until they are told.
const MOST: usize = 4096;

/// A name in a directory, as the kernel calls that.
type InDirectory = (u64, OsString);

/// Names that are to be told.
#[derive(Debug, Default)]
pub struct Changed {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Waiting {
    names: BTreeSet<InDirectory>,
    /// More than are kept.
    all: bool,
}

impl Changed {
    /// These mean something else now, perhaps.
    pub fn add(&self, names: BTreeSet<InDirectory>) {
        if names.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.all {
            waiting.names.extend(names);
            waiting.all = waiting.names.len() > MOST;
        }
        if waiting.all {
            waiting.names.clear();
        }
        self.more.notify_one();
    }

    /// Which ones nobody knows.
    pub fn add_all(&self) {
        *self.waiting.lock() = Waiting { names: BTreeSet::new(), all: true };
        self.more.notify_one();
    }

    /// What waits, after a while if there is nothing.
    fn take(&self, most: Duration) -> Waiting {
        let mut waiting = self.waiting.lock();
        if *waiting == Waiting::default() {
            self.more.wait_for(&mut waiting, most);
        }
        std::mem::take(&mut waiting)
    }
}

/// Starts it; it ends with the mount, unless somebody keeps a directory's lock.
///
/// # Errors
/// If the system gives no thread.
pub fn start(server: Arc<Server>, notifier: Notifier) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("clew-names".to_string()).spawn(move || {
        while goes_on(&server) {
            let waiting = server.changed.take(ROUND);
            for (node, name) in waiting.names.iter().take_while(|_| goes_on(&server)) {
                forget(&server, &notifier, *node, name);
            }
            if waiting.all {
                forget_all(&server, &notifier);
            }
            forget_oldest(&server, &notifier);
        }
    })
}

/// Of what goes no names are told: its end waits for a thread that is kept, and for no other.
fn goes_on(server: &Server) -> bool {
    !server.over.load(Relaxed)
}

/// The kernel asks for a name when it is used next.
fn forget(server: &Server, notifier: &Notifier, node: u64, name: &OsStr) {
    if server.inodes.get(node).is_none() {
        return;
    }
    if let Err(error) = notifier.inval_entry(INodeNo(node), name) {
        tracing::debug!("the kernel keeps a name: {error}");
    }
}

/// All names that the kernel may know in watched directories, those that are there now and those that it was told of.
fn forget_all(server: &Server, notifier: &Notifier) {
    for (node, name) in server.names.all().into_iter().take_while(|_| goes_on(server)) {
        forget(server, notifier, node, &name);
    }
    for node in server.watches.nodes() {
        let Some(directory) = server.inodes.get(node) else { continue };
        if directory.kind != FileType::Directory {
            continue;
        }
        let opened = server.lower.open(&*directory, OFlags::RDONLY | OFlags::DIRECTORY);
        let listed = opened.and_then(rustix::fs::Dir::new);
        let entries = listed.into_iter().flatten().flatten();
        for entry in entries.take_while(|_| goes_on(server)) {
            forget(server, notifier, node, OsStr::from_bytes(entry.file_name().to_bytes()));
        }
    }
}

/// The oldest names, where the kernel knows too many inodes.
fn forget_oldest(server: &Server, notifier: &Notifier) {
    let is_known = |node| server.inodes.get(node).is_some();
    for name in server.names.too_many(server.inodes.len(), OLDEST, is_known) {
        if let Err(error) = notifier.inval_entry(INodeNo(name.parent), &name.name) {
            tracing::debug!("the kernel keeps a name: {error}");
        }
        server.names.kept(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: std::ops::Range<usize>) -> BTreeSet<InDirectory> {
        numbers.map(|number| (1, number.to_string().into())).collect()
    }

    #[test]
    fn names_wait_until_they_are_told_and_of_many_all_are() {
        let changed = Changed::default();
        let take = || changed.take(Duration::ZERO);
        assert_eq!(take(), Waiting::default());
        changed.add(names(0..2));
        changed.add(names(1..3));
        assert_eq!(take(), Waiting { names: names(0..3), all: false });
        changed.add(names(0..MOST));
        changed.add(names(MOST..MOST + 1));
        changed.add(names(0..1));
        let all = Waiting { all: true, ..Waiting::default() };
        assert_eq!(take(), all);
        changed.add(names(0..1));
        changed.add_all();
        assert_eq!((take(), take()), (all, Waiting::default()));
    }
}

//! The inodes that the kernel knows: each is one descriptor of the lower inode (O_PATH), so that no path is
//! ever followed again, whatever is renamed, and a number of the lower file system means the same inode for as long.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use rustix::fs::FileType;

use crate::stamp::{FileKey, Seen};

/// The root, in FUSE's numbers.
pub const ROOT: u64 = 1;
/// Numbers from here on are of inodes whose own number is taken, or is of another device.
const FIRST_FOREIGN: u64 = 1 << 63;

/// One lower inode.
#[derive(Debug)]
pub struct Inode {
    /// What the kernel calls it.
    pub node: u64,
    /// What the pool calls it.
    pub key: FileKey,
    /// What it is; that never changes.
    pub kind: FileType,
    fd: OwnedFd,
    /// Held by whoever changes the file through us for as long as the change takes, and shared by readers: so the pool
    /// knows changes of ours from those behind our back.
    pub changes: RwLock<()>,
    /// Its stamp when the kernel last began to keep pages of it.
    pub seen: Mutex<Option<Seen>>,
    /// When it was last written through us, ms of [`crate::server::Server::now_ms`]; zero for never.
    pub written_ms: AtomicU64,
}

impl AsFd for Inode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Inode {
    /// Whether the lower page cache has something of it that is not on disk yet, most likely.
    pub fn was_written_since(&self, ms: u64) -> bool {
        self.written_ms.load(Relaxed) > ms
    }
}

#[derive(Debug)]
struct Known {
    inode: Arc<Inode>,
    /// How often the kernel was told of it.
    lookups: u64,
}

#[derive(Debug, Default)]
struct Tables {
    by_node: HashMap<u64, Known>,
    by_key: HashMap<FileKey, u64>,
    next_foreign: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Inodes {
    tables: Mutex<Tables>,
    dev: u64,
}

impl Inodes {
    /// The root alone.
    pub fn new(root: OwnedFd, key: FileKey) -> Inodes {
        let inodes = Inodes { tables: Mutex::new(Tables::default()), dev: key.dev };
        inodes.tables.lock().add(ROOT, root, key, FileType::Directory);
        inodes
    }

    /// The number by which the kernel is told of a lower inode in a list of names.
    pub fn number(&self, ino: u64) -> u64 {
        let key = FileKey { dev: self.dev, ino };
        self.tables.lock().by_key.get(&key).copied().unwrap_or(ino)
    }

    /// The inode of a number that the kernel was told.
    pub fn get(&self, node: u64) -> Option<Arc<Inode>> {
        self.tables.lock().by_node.get(&node).map(|known| known.inode.clone())
    }

    /// The inode of a lower inode, if the kernel knows it.
    pub fn find(&self, key: FileKey) -> Option<Arc<Inode>> {
        let tables = self.tables.lock();
        tables.by_node.get(tables.by_key.get(&key)?).map(|known| known.inode.clone())
    }

    /// Tells the kernel of a lower inode once more: what it is to be called, and whether it is new.
    pub fn look_up(&self, fd: OwnedFd, key: FileKey, kind: FileType) -> (Arc<Inode>, bool) {
        let mut tables = self.tables.lock();
        let node = match tables.by_key.get(&key) {
            Some(node) => *node,
            None => {
                let own = key.dev == self.dev
                    && key.ino > ROOT
                    && key.ino < FIRST_FOREIGN
                    && !tables.by_node.contains_key(&key.ino);
                let node = match own {
                    true => key.ino,
                    false => {
                        tables.next_foreign += 1;
                        FIRST_FOREIGN + tables.next_foreign
                    }
                };
                tables.add(node, fd, key, kind);
                node
            }
        };
        let known = tables.by_node.get_mut(&node).expect("both tables have it");
        known.lookups += 1;
        (known.inode.clone(), known.lookups == 1)
    }

    /// The kernel forgets `lookups` of the times that it was told of an inode. What is gone if these were all.
    pub fn forget(&self, node: u64, lookups: u64) -> Option<Arc<Inode>> {
        if node == ROOT {
            return None;
        }
        let mut tables = self.tables.lock();
        let known = tables.by_node.get_mut(&node)?;
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return None;
        }
        let known = tables.by_node.remove(&node)?;
        tables.by_key.remove(&known.inode.key);
        Some(known.inode)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tables.lock().by_node.len()
    }
}

impl Tables {
    fn add(&mut self, node: u64, fd: OwnedFd, key: FileKey, kind: FileType) {
        let inode = Arc::new(Inode {
            node,
            key,
            kind,
            fd,
            changes: RwLock::new(()),
            seen: Mutex::new(None),
            written_ms: AtomicU64::new(0),
        });
        self.by_node.insert(node, Known { inode, lookups: 0 });
        self.by_key.insert(key, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> OwnedFd {
        std::fs::File::open("/").unwrap().into()
    }

    fn key(dev: u64, ino: u64) -> FileKey {
        FileKey { dev, ino }
    }

    #[test]
    fn an_inode_keeps_its_number_until_it_is_forgotten() {
        let inodes = Inodes::new(fd(), key(9, 2));
        let file = |key| inodes.look_up(fd(), key, FileType::RegularFile).0.node;
        assert_eq!(file(key(9, 2)), ROOT, "the root by whatever way");
        assert_eq!((file(key(9, 40)), file(key(9, 40))), (40, 40));
        let foreign = [file(key(9, 1)), file(key(8, 40)), file(key(9, 1 << 63))];
        assert!(foreign.iter().all(|node| *node > FIRST_FOREIGN), "{foreign:?}");
        assert_eq!(file(key(8, 40)), foreign[1]);
        assert_eq!((inodes.number(40), inodes.number(1), inodes.number(77)), (40, foreign[0], 77));

        assert!(inodes.forget(40, 1).is_none());
        assert_eq!(inodes.forget(40, 1).unwrap().key, key(9, 40));
        assert!(inodes.get(40).is_none() && inodes.find(key(9, 40)).is_none());
        assert!(inodes.forget(40, 1).is_none() && inodes.forget(ROOT, 99).is_none());
        assert!(inodes.get(ROOT).is_some());
    }
}

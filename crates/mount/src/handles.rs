//! What the kernel has opened.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::inodes::Inode;
use crate::windows::Windows;

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// Which.
    pub inode: Arc<Inode>,
    /// Opened as its user did, through the lower page cache.
    pub file: OwnedFd,
    /// For reading past that, where the lower file system can.
    pub direct: Option<Arc<OwnedFd>>,
    /// What was read ahead of who reads it in a row.
    pub windows: Arc<Windows>,
    /// Whether bytes of it were locked by this one.
    pub has_locked: AtomicBool,
}

/// An open directory.
#[derive(Debug)]
pub struct OpenDirectory {
    /// The lower one; its position is whoever's turn it is.
    pub directory: Mutex<OwnedFd>,
}

/// Open things by number.
#[derive(Debug)]
pub struct Handles<T> {
    open: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles { open: RwLock::new(HashMap::new()), next: AtomicU64::new(1) }
    }
}

impl<T> Handles<T> {
    /// Its number.
    pub fn add(&self, opened: T) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        self.open.write().insert(number, Arc::new(opened));
        number
    }

    /// What has this number.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.open.read().get(&number).cloned()
    }

    /// It has no number any more, and is closed once nobody uses it.
    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.open.write().remove(&number)
    }
}

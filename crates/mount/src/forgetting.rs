//! Who has the kernel forget names: those that mean something else now, and the oldest where it knows too many inodes.
//!
//! The kernel waits for the directory's lock then, which a user may keep for as long as he likes (he lists the directory into
//! memory that does not come), and nothing ends that. So a thread does this and nothing else, for which nobody waits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use rustix::fs::{FileType, OFlags};

use crate::server::Server;

/// How often it looks for too many inodes.
const ROUND: Duration = Duration::from_millis(10);
/// Names that are forgotten in one go, as there are too many.
const OLDEST: usize = 256;

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

//! Who picks what leaves the kernel's page cache, and has it dropped there.
//!
//! The choice is the order in which pages were handed out: the kernel does not say which of them are used. A page
//! that is used again costs one read from the pool, and is the youngest then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use crate::PAGE_BYTES;
use crate::counters::add;
use crate::server::Server;

/// How often it looks. What is read within that time is what the page cache has too much.
const ROUND: Duration = Duration::from_millis(10);
/// Words to the kernel in one go.
const RUNS: usize = 64;
/// How often files that were written are looked after.
const TIDY: Duration = Duration::from_secs(2);

/// Starts it; it ends when `over` is set.
///
/// # Errors
/// If the system gives no thread.
pub fn start(
    server: Arc<Server>,
    notifier: Notifier,
    over: Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("clew-evictor".to_string())
        .spawn(move || evict(&server, &notifier, &over))
}

fn evict(server: &Server, notifier: &Notifier, over: &AtomicBool) {
    let mut tidied = Instant::now();
    while !over.load(Relaxed) {
        if tidied.elapsed() >= TIDY {
            server.tidy_written();
            tidied = Instant::now();
        }
        let suspects = std::mem::take(&mut *server.suspects.lock());
        for node in suspects {
            server.handed_out.lock().forget(node);
            // All of it.
            if let Err(error) = notifier.inval_inode(INodeNo(node), 0, 0) {
                tracing::debug!("the kernel keeps pages: {error}");
            }
        }
        let runs = server.handed_out.lock().take_back(server.cache_pages, RUNS);
        if runs.is_empty() {
            thread::sleep(ROUND);
            continue;
        }
        for run in runs {
            let len = (run.pages.end - run.pages.start) * PAGE_BYTES as u64;
            let at = run.pages.start * PAGE_BYTES as u64;
            // Waits for reads of these pages, which others answer meanwhile.
            match notifier.inval_inode(INodeNo(run.node), at as i64, len as i64) {
                Ok(()) => add(&server.counters.pages_evicted, run.pages.end - run.pages.start),
                // The mount is going.
                Err(error) => tracing::debug!("the kernel keeps pages: {error}"),
            }
        }
    }
}

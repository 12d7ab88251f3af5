//! What one can tell the kernel about apps that come and go: `process_madvise` in another process.
//!
//! When an app comes to the foreground, the pages that its last relaunch used and that are swapped
//! out by now are asked for (MADV_WILLNEED) by a thread of ours, while the app runs already. When it
//! goes to the background, what it did not use is paged out (MADV_PAGEOUT), so that the memory is
//! there for what others use. What a relaunch used is seen exactly where it was swapped in: the page
//! table holds a page only once it was touched, read ahead or not.
//!
//! Tried beside it at equal totals: asking for everything that is swapped out (ten times the pages,
//! three times the processor time), and paging everything out (what was used has to come back each
//! time). Both were slower than no hint at all.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use clew_live::programs::advice::{advise, pidfd};

use crate::cpu_time;
use crate::error::BenchError;
use crate::pagemap::{Snapshot, intersection, page_bytes, runs};
use crate::programs::Kind;

/// Hints for all apps.
#[derive(Default)]
pub struct Hints {
    apps: HashMap<Kind, Hinted>,
    /// Time that giving hints has cost.
    spent_ns: Arc<AtomicU64>,
}

struct Hinted {
    pid: u32,
    descriptor: Arc<OwnedFd>,
    /// As it was before the relaunch.
    before: Snapshot,
    /// Pages that the last relaunch used, as far as that can be known.
    used: Vec<u64>,
    asking: Option<JoinHandle<u64>>,
    /// Pages that hints have brought back before they were touched.
    restored_pages: u64,
}

fn refused(error: io::Error) -> BenchError {
    BenchError::Unavailable { what: "process_madvise", reason: error.to_string() }
}

impl Hints {
    /// Hints for these processes.
    pub fn of(apps: &[(Kind, u32)]) -> Result<Hints, BenchError> {
        let mut hints = Hints::default();
        for &(app, pid) in apps {
            let descriptor = pidfd(pid).map_err(refused)?;
            let hinted = Hinted {
                pid,
                descriptor: Arc::new(descriptor),
                before: Snapshot::default(),
                used: Vec::new(),
                asking: None,
                restored_pages: 0,
            };
            hints.apps.insert(app, hinted);
        }
        Ok(hints)
    }

    /// Looks what is swapped out, outside the clock.
    pub fn before_foreground(&mut self, app: Kind) {
        if let Some(hinted) = self.apps.get_mut(&app) {
            hinted.before = Snapshot::take(hinted.pid).unwrap_or_default();
        }
    }

    /// Asks for what the last relaunch used; returns at once.
    pub fn to_foreground(&mut self, app: Kind) {
        let Some(hinted) = self.apps.get_mut(&app) else { return };
        let wanted = intersection(&hinted.used, &hinted.before.swapped);
        if wanted.is_empty() {
            return;
        }
        let (descriptor, spent) = (Arc::clone(&hinted.descriptor), Arc::clone(&self.spent_ns));
        hinted.asking = Some(thread::spawn(move || {
            let before = cpu_time::this_thread();
            // A program that ends meanwhile needs no page.
            let advised =
                advise_pages(&descriptor, &wanted, libc::MADV_WILLNEED).unwrap_or_default();
            let time = cpu_time::this_thread() - before;
            spent.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
            advised
        }));
    }

    /// Learns what the relaunch used, and pages out the rest.
    pub fn to_background(&mut self, app: Kind) {
        let Some(hinted) = self.apps.get_mut(&app) else { return };
        if let Some(asking) = hinted.asking.take() {
            hinted.restored_pages += asking.join().unwrap_or_default();
        }
        let after = Snapshot::take(hinted.pid).unwrap_or_default();
        let mut used = intersection(&hinted.before.swapped, &after.present);
        // What was in memory all the time may have been used as it was the last time.
        used.extend(intersection(&hinted.used, &hinted.before.present));
        used.sort_unstable();
        let unused = |page: &u64| used.binary_search(page).is_err();
        let rest: Vec<u64> = after.present.iter().copied().filter(unused).collect();
        let before = cpu_time::this_thread();
        // A program that has ended holds nothing that could be paged out.
        let _ = advise_pages(&hinted.descriptor, &rest, libc::MADV_PAGEOUT);
        let time = cpu_time::this_thread() - before;
        self.spent_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        hinted.used = used;
    }

    /// Pages of `app` that were asked for and were swapped out.
    pub fn restored_pages(&self, app: Kind) -> u64 {
        self.apps.get(&app).map_or(0, |hinted| hinted.restored_pages)
    }

    /// Time that hints have cost so far, in nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns.load(Ordering::Relaxed)
    }
}

/// Gives `advice` for pages of another process; returns for how many.
pub fn advise_pages(process: &OwnedFd, pages: &[u64], advice: i32) -> io::Result<u64> {
    let page_bytes = page_bytes();
    let range =
        |run: std::ops::Range<u64>| (run.start * page_bytes, (run.end - run.start) * page_bytes);
    let ranges: Vec<(u64, u64)> = runs(pages).into_iter().map(range).collect();
    Ok(advise(process, &ranges, advice)? / page_bytes)
}

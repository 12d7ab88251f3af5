//! What an app that reads its files waits for the disk while pages of others leave: to the same disk, to another machine, or not
//! at all (MobileSwap, figures 1 and 6).
//!
//! As many bytes leave in the same time either way, which is what the link carries. The disk is that of the directory for
//! temporary files; reads are of 4 KiB at random, past the page cache.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clew_live::config::CHUNK_BYTES;
use clew_store::flash::Flash;

use super::{Bench, PAGE, READS, costs, us};
use crate::error::BenchError;
use crate::interrupt;
use crate::micro::measured::Measured;
use crate::micro::mount::reads::{at_random, direct, read_error};
use crate::micro::mount::text_file;
use crate::micro::objects::{Objects, Times};
use crate::micro::{flash, place};
use crate::network::LINK_MBIT;

/// Pages that leave at once; then it is waited until the link would be done with them.
const BATCH: u64 = 256;
/// Beside what it reads: nothing, the disk, a donor.
const SIDES: u64 = 3;

impl Bench<'_> {
    /// Reads beside nothing, beside swapping to the disk and to a donor, in turn.
    pub(super) fn app_reads(&self, scratch: &Path) -> Result<Vec<Measured>, BenchError> {
        let bytes = self.config.pages * PAGE as u64;
        let steps = 1 + SIDES * self.config.repetitions as u64;
        self.progress.begin("donors: reads of an app while pages of others leave", steps);
        let path = place(scratch, "app")?.join("file");
        text_file(&path, bytes, self.config.seed)?;
        let file = direct(&path).map_err(read_error)?;
        self.progress.step("a file is on disk");
        let swap = path.with_file_name("swap");
        let (mut alone, mut local, mut remote) = (vec![], vec![], vec![]);
        for seed in self.repetitions() {
            let read = || Ok(at_random(&file, bytes, PAGE, READS as usize, seed)?.times);
            alone.push(read()?);
            self.progress.step("read beside nothing");
            local.push(beside(&flash::log_on(&swap, bytes)?, self.config.pages, "flash", read)?);
            self.progress.step("read beside swapping to the disk");
            let donor = self.lends.donor(self.network, 2 * bytes)?;
            let at = donor.log(None, self.config.pages, CHUNK_BYTES)?;
            remote.push(beside(&at.log, self.config.pages, "a donor", read)?);
            self.progress.step("read beside swapping to the donor");
        }
        self.progress.done("donors: an app has read its file");
        let remote = costs(&remote);
        let [alone, local] = [alone, local].map(|times| costs(&times));
        let of = |ours, peer| Measured::of("donors", "app-read", "one read", ours, peer);
        Ok(vec![of(remote.clone(), ("no swapping", alone)), of(remote, ("swap to disk", local))])
    }
}

/// What reads take while pages leave.
fn beside(
    log: &Flash,
    pages: u64,
    what: &'static str,
    read: impl FnOnce() -> Result<Times, BenchError>,
) -> Result<Times, BenchError> {
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let leaves = scope.spawn(|| {
            let begin = Instant::now();
            let mut left = 0;
            while !over.load(Relaxed) && left + BATCH <= pages {
                Objects::write(log, BATCH, PAGE, what)?;
                left += BATCH;
                begun.store(true, Relaxed);
                let due = Duration::from_secs_f64(us(f64::from(LINK_MBIT)) * left as f64 / 1e6);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            Ok(left)
        });
        while !begun.load(Relaxed) && !leaves.is_finished() {
            interrupt::sleep(Duration::from_millis(1))?;
        }
        let times = read();
        over.store(true, Relaxed);
        let left: Result<u64, BenchError> = leaves.join().expect("it does not panic");
        if left? + BATCH > pages {
            let reason = "all pages had left before the reads were over: say a larger --pages";
            return Err(BenchError::Unavailable { what, reason: reason.to_string() });
        }
        times
    })
}

//! Watches what an arm uses in total: its group, and the memory that is not charged to it (the pool
//! of the kernel's own swap). A thread samples both together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clew_report::TotalPoint;

use crate::cgroup::read_number;
use crate::kernel_pool::{KernelPool, PoolUse};

const PERIOD: Duration = Duration::from_millis(5);
/// A curve keeps about this many points; the highest of those that a point stands for.
const POINTS: usize = 600;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The highest total.
    pub peak_bytes: u64,
    /// The mean total.
    pub mean_bytes: u64,
    /// What the kernel's pool held when it took most memory.
    pub pool_peak: PoolUse,
    /// The total over time.
    pub curve: Vec<TotalPoint>,
}

/// A running watch.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Totals>>,
}

impl Watch {
    /// Samples `usage` (a file with a number of bytes) and, where there is one, `pool`.
    pub fn start(usage: PathBuf, pool: Option<KernelPool>) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || watch(&usage, pool.as_ref(), &asked));
        Watch { stop, thread: Some(thread) }
    }

    /// Ends the watch.
    pub fn finish(mut self) -> Totals {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Totals> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(usage: &Path, pool: Option<&KernelPool>, stop: &AtomicBool) -> Totals {
    let begin = Instant::now();
    let mut totals = Totals::default();
    let mut sum = 0u128;
    while !stop.load(Ordering::Relaxed) {
        let pool = pool.map(KernelPool::now).unwrap_or_default();
        let bytes = read_number(usage).unwrap_or_default() + pool.used_bytes;
        totals.peak_bytes = totals.peak_bytes.max(bytes);
        sum += u128::from(bytes);
        if pool.used_bytes > totals.pool_peak.used_bytes {
            totals.pool_peak = pool;
        }
        totals.curve.push(TotalPoint { at_ms: begin.elapsed().as_millis() as u64, bytes });
        thread::sleep(PERIOD);
    }
    totals.mean_bytes = (sum / totals.curve.len().max(1) as u128) as u64;
    totals.curve = thinned(&totals.curve, POINTS);
    totals
}

/// At most `points` points; each is the highest of its neighbours, so that no peak is lost.
fn thinned(curve: &[TotalPoint], points: usize) -> Vec<TotalPoint> {
    let width = curve.len().div_ceil(points).max(1);
    curve
        .chunks(width)
        .filter_map(|chunk| chunk.iter().copied().max_by_key(|point| point.bytes))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn thinning_keeps_the_peak() {
        let curve: Vec<TotalPoint> = (0..5000)
            .map(|at_ms| TotalPoint { at_ms, bytes: if at_ms == 3333 { 9 } else { at_ms % 7 } })
            .collect();
        let thin = thinned(&curve, 100);
        assert!(thin.len() <= 100);
        assert!(thin.contains(&TotalPoint { at_ms: 3333, bytes: 9 }));
        assert!(thinned(&[], 100).is_empty());
    }

    #[test]
    fn a_watch_sees_what_is_there() {
        let path = std::env::temp_dir().join(format!("clew-totals-{}", std::process::id()));
        fs::write(&path, "4096\n").expect("a temporary file");
        let watch = Watch::start(path.clone(), None);
        thread::sleep(Duration::from_millis(30));
        let totals = watch.finish();
        assert_eq!((totals.peak_bytes, totals.mean_bytes), (4096, 4096));
        fs::remove_file(&path).expect("still there");
    }
}

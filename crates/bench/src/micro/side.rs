//! One side of a comparison, from outside: a worker process that is asked, and how much of its
//! memory is where.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use super::WORKER_FLAG;
use super::orders::{Answer, Layout, Order};
use super::region::runs;
use crate::error::{BenchError, file_error};
use crate::interrupt;
use crate::session::{Launch, last_words};

/// A page of the region is in memory.
const PRESENT: u64 = 1 << 63;

/// How long single touches took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touches {
    /// One touch, microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Reads that met a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faulted {
    /// How many.
    pub faults: u64,
    /// One of them, microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Share of their time that those of more than 100 us took.
    pub slow_share: f64,
}

/// A running worker.
pub struct Worker {
    /// Whose it is, in messages.
    side: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    said: PathBuf,
    address: u64,
    region_pages: u64,
    /// Runs of pages with data: first page of the region, length.
    runs: Vec<(u64, u64)>,
}

impl Worker {
    /// Starts a worker of this side with the command `exe`. What it says goes to `scratch`.
    pub fn start(side: &'static str, exe: &Path, launch: &Launch) -> Result<Worker, BenchError> {
        let fail = |source| BenchError::Start { program: "a worker".to_string(), source };
        let said = launch.scratch.join("worker.stderr");
        let stderr = File::create(&said).map_err(file_error("create", &said))?;
        let argv: Vec<OsString> = vec![exe.into(), "bench".into(), WORKER_FLAG.into()];
        let mut command = launch.command(&argv);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().map_err(fail)?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().ok_or_else(|| fail(std::io::ErrorKind::Other.into()))?;
        let answers = BufReader::new(answers);
        let (address, region_pages, runs) = (0, 0, Vec::new());
        Ok(Worker { side, child, orders, answers, said, address, region_pages, runs })
    }

    /// Gives an order and waits for the answer.
    fn ask(&mut self, order: &Order) -> Result<Answer, BenchError> {
        interrupt::check()?;
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let sent = self.orders.as_mut().is_some_and(|to| to.write_all(line.as_bytes()).is_ok());
        let mut answer = String::new();
        if !sent || !self.answers.read_line(&mut answer).is_ok_and(|n| n > 0) {
            let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
            let last_words = last_words(&self.said);
            let program = format!("the worker of {}", self.side);
            return Err(BenchError::Ended { program, status, last_words });
        }
        match serde_json::from_str(&answer)? {
            Answer::Failed { reason } => {
                Err(BenchError::Command { command: format!("a worker's {order:?}"), reason })
            }
            answer => Ok(answer),
        }
    }

    /// Makes the region.
    pub fn map(&mut self, seed: u64, layout: Layout, pages: u64) -> Result<(), BenchError> {
        let answer = self.ask(&Order::Map { seed, layout, pages })?;
        let Answer::Mapped { address, region_pages } = answer else {
            return Err(mistaken(&answer));
        };
        (self.address, self.region_pages) = (address, region_pages);
        (self.runs, _) = runs(seed, layout, pages);
        Ok(())
    }

    /// Where its region is.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Touches pages.
    pub fn touch(
        &mut self,
        seed: u64,
        count: u64,
        gap: Duration,
        willneed: bool,
    ) -> Result<Touches, BenchError> {
        let gap_ns = gap.as_nanos() as u64;
        let answer = self.ask(&Order::Touch { seed, count, gap_ns, willneed })?;
        let Answer::Touched { p50_ns, p99_ns } = answer else { return Err(mistaken(&answer)) };
        Ok(Touches { p50_us: p50_ns / 1e3, p99_us: p99_ns / 1e3 })
    }

    /// Reads from random pages.
    pub fn wander(&mut self, seed: u64, count: u64, gap: Duration) -> Result<Faulted, BenchError> {
        let gap_ns = gap.as_nanos() as u64;
        let answer = self.ask(&Order::Wander { seed, count, gap_ns })?;
        let Answer::Faulted { faults, p50_ns, p99_ns, p999_ns, slow_share } = answer else {
            return Err(mistaken(&answer));
        };
        let [p50_us, p99_us, p999_us] = [p50_ns, p99_ns, p999_ns].map(|ns| ns / 1e3);
        Ok(Faulted { faults, p50_us, p99_us, p999_us, slow_share })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order whose answer is only how long it took.
    pub fn act(&mut self, order: &Order) -> Result<Duration, BenchError> {
        let answer = self.ask(order)?;
        let Answer::Done { wall_ns } = answer else { return Err(mistaken(&answer)) };
        Ok(Duration::from_nanos(wall_ns))
    }

    /// An error if a page holds something else than what was written to it.
    pub fn verify(&mut self) -> Result<(), BenchError> {
        match self.ask(&Order::Verify)? {
            Answer::Verified { wrong: 0 } => Ok(()),
            Answer::Verified { wrong } => {
                Err(BenchError::WrongContents { side: self.side, pages: wrong })
            }
            other => Err(mistaken(&other)),
        }
    }

    /// Pages with data that are in memory. Asks the kernel, not the worker.
    ///
    /// The others are nobody's: after a restore the page that all zeros share may be there.
    pub fn resident_pages(&self) -> Result<u64, BenchError> {
        let path = PathBuf::from(format!("/proc/{}/pagemap", self.child.id()));
        let mut bytes = vec![0u8; self.region_pages as usize * 8];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut bytes, self.address / 4096 * 8))
            .map_err(file_error("read", &path))?;
        let (entries, _) = bytes.as_chunks::<8>();
        let of_run =
            |&(first, len): &(u64, u64)| entries[first as usize..(first + len) as usize].iter();
        let entries = self.runs.iter().flat_map(of_run);
        Ok(entries.filter(|word| u64::from_le_bytes(**word) & PRESENT != 0).count() as u64)
    }

    /// An error if more than 2 % of the pages with data are still in memory.
    pub fn is_out(&self) -> Result<(), BenchError> {
        let resident = self.resident_pages()?;
        let pages = self.runs.iter().map(|(_, len)| len).sum();
        if resident * 50 <= pages {
            return Ok(());
        }
        Err(BenchError::StaysResident { side: self.side, resident, pages })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        let patience = std::time::Instant::now() + Duration::from_secs(2);
        while std::time::Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mistaken(answer: &Answer) -> BenchError {
    let reason = format!("it answered {answer:?}");
    BenchError::Command { command: "a worker's order".to_string(), reason }
}

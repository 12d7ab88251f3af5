//! `clew mount`: a read that the pool answers, beside the same one of the disk past the page cache, and beside the same one of a
//! plain FUSE server whose file is in the page cache below: the way to a server and back, which no mount can do without; and a file
//! that is read in a row with nothing of it in the pool, beside a plain FUSE server and beside the same server without a pool.
//!
//! All in one run, in turn. The same places are read of both sides, and what they gave is compared. Before each reading in
//! a row the file is given another time, so that the pool has nothing of it and takes its pages, as it would of
//! a file that is read first.

pub mod plain;
pub(super) mod reads;

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use clew_core::seeded::Seeded;
use clew_mount::{Status, status};
use rustix::fs::statfs;
use rustix::process::{Pid, Signal, kill_process};

use self::reads::{Aligned, AtRandom, at_random, direct, forget, in_a_row, read_error};
use super::measured::{Costs, Measured};
use super::{MicroConfig, place};
use crate::content::prose;
use crate::error::{BenchError, file_error};
use crate::interrupt;
use crate::progress::Progress;

/// The flag with which the command becomes the plain server.
pub const PLAIN_FLAG: &str = "--plain-fuse";

const PAGE: u64 = 4096;
const MIB: usize = 1 << 20;
/// Bytes of the reads at random, and how many of them a repetition has.
const READS: [(usize, &str, usize); 2] =
    [(4096, "hit-4KiB", 2_000), (128 << 10, "hit-128KiB", 400)];
/// The file that the pool has.
const HIT: &str = "hit";
/// How long a file must have been left alone before a mount takes its pages (`Stamp::is_settled`).
const SETTLED: Duration = Duration::from_millis(1_300);
/// How long a server may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the file is read until the pool has it.
const PASSES: usize = 20;
/// File systems that are memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Measures it, in `scratch`.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    check_place(scratch)?;
    let steps = 3 + 7 * config.repetitions as u64;
    progress.begin("mount: writing two files", steps);
    let lower = place(scratch, "lower")?;
    let bytes = config.pages * PAGE;
    let (hit, row) = (lower.join(HIT), lower.join(plain::FILE));
    for path in [&hit, &row] {
        text_file(path, bytes, config.seed)?;
        progress.step("a file is on disk");
    }
    std::thread::sleep(SETTLED);
    // Room for all of both files, however they compress.
    let budget = 3 * bytes;
    let with = Server::mount(config, &lower, place(scratch, "with")?, budget)?;
    let without = Server::mount(config, &lower, place(scratch, "without")?, 0)?;
    let bare = Server::plain(config, &lower, place(scratch, "plain")?)?;
    let held = fill(&with, bytes)?;
    progress.step("the pool has the first of them");

    let (pool, disk) = (direct(&with.at.join(HIT)), direct(&hit));
    let (pool, disk) = (pool.map_err(read_error)?, disk.map_err(read_error)?);
    let warm = direct(&bare.at.join(plain::FILE)).map_err(read_error)?;
    let mut hits: [[Sides; 3]; 2] = Default::default();
    let mut rows: [Vec<f64>; 3] = Default::default();
    for repetition in 0..config.repetitions {
        let seed = config.seed + repetition as u64;
        for ((len, _, count), [ours, theirs, way]) in READS.iter().zip(&mut hits) {
            let from_pool = at_random(&pool, bytes, *len, *count, seed)?;
            let from_disk = at_random(&disk, bytes, *len, *count, seed)?;
            if from_pool.checksum != from_disk.checksum {
                return Err(BenchError::WrongContents { side: "the mount", pages: 1 });
            }
            progress.step("reads at random, of the pool and of the disk");
            read_through(&row)?;
            let from_plain = at_random(&warm, bytes, *len, *count, seed)?;
            if from_pool.checksum != from_plain.checksum {
                return Err(BenchError::WrongContents { side: "the plain server", pages: 1 });
            }
            ours.add(from_pool);
            theirs.add(from_disk);
            way.add(from_plain);
            progress.step("reads at random, of a plain server");
        }
        for (server, us) in [&with, &bare, &without].into_iter().zip(&mut rows) {
            renew(&row)?;
            us.push(in_a_row(&server.at.join(plain::FILE))?);
            progress.step("a file in a row");
        }
    }
    let whole = with.status()?;
    let way = if whole.by_io_uring { "io_uring" } else { "/dev/fuse" };
    progress.done(&format!("mount: what the mount gave, asked by {way}, is what the disk has"));
    let mut measured = Vec::new();
    for ((_, case, _), [ours, theirs, way]) in READS.iter().zip(&hits) {
        let by_io_uring = f64::from(u8::from(whole.by_io_uring));
        let ours = ours.costs().with("pool_pages_pct", held).with("by_io_uring", by_io_uring);
        for (name, peer) in [("disk O_DIRECT", theirs), ("plain FUSE", way)] {
            measured.push(Measured::of(
                "mount",
                case,
                "one read",
                ours.clone(),
                (name, peer.costs()),
            ));
        }
    }
    let [ours, plain, without] = rows.map(|us| {
        let costs = Costs::of(&us);
        let rate = 1e6 / costs.p50_us.max(1e-9);
        costs.with("mib_per_second", rate)
    });
    let ours = ours.with("pages_too_many", whole.pages_too_many as f64);
    for (name, peer) in [("plain FUSE", plain), ("no pool", without)] {
        measured.push(Measured::of("mount", "in-a-row", "one MiB", ours.clone(), (name, peer)));
    }
    Ok(measured)
}

/// Refuses a place that is in memory: there is no disk to compare with.
fn check_place(scratch: &Path) -> Result<(), BenchError> {
    let found = statfs(scratch).map_err(|error| read_error(error.into()))?;
    if IN_MEMORY.contains(&(found.f_type as u64)) {
        let reason =
            format!("{} is in memory: name a directory on a disk by --dir", scratch.display());
        return Err(BenchError::Unavailable { what: "mount", reason });
    }
    Ok(())
}

/// A file of text, on disk and not in the page cache.
pub(super) fn text_file(path: &Path, bytes: u64, seed: u64) -> Result<(), BenchError> {
    let failed = file_error("write", path);
    let written = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        let mut seeded = Seeded::of(seed, &[5]);
        let mut left = bytes as usize;
        let mut text = String::new();
        while left > 0 {
            text.clear();
            prose(&mut seeded, MIB.min(left), &mut text);
            file.write_all(text.as_bytes())?;
            left -= text.len();
        }
        file.sync_all()
    };
    written().map_err(failed)?;
    forget(path)
}

/// Has the page cache have all of a file.
fn read_through(path: &Path) -> Result<(), BenchError> {
    let read = || std::io::copy(&mut File::open(path)?, &mut std::io::sink());
    read().map_err(read_error)?;
    interrupt::check()
}

/// Has a file be another for whoever goes by its time, with the same contents, and waits until it counts as left alone.
fn renew(path: &Path) -> Result<(), BenchError> {
    let file = File::open(path).map_err(file_error("open", path))?;
    let times = FileTimes::new().set_modified(SystemTime::now());
    file.set_times(times).map_err(file_error("change", path))?;
    forget(path)?;
    std::thread::sleep(SETTLED);
    interrupt::check()
}

/// Reads the first file until the pool has it; the part that it has, per cent.
fn fill(server: &Server, bytes: u64) -> Result<f64, BenchError> {
    let file = direct(&server.at.join(HIT)).map_err(read_error)?;
    let mut room = Aligned::new(128 << 10);
    let pages = bytes / PAGE;
    let mut held = 0;
    for _ in 0..PASSES {
        for at in (0..bytes).step_by(128 << 10) {
            interrupt::check()?;
            let len = (bytes - at).min(128 << 10) as usize;
            std::os::unix::fs::FileExt::read_exact_at(&file, room.bytes(len), at)
                .map_err(read_error)?;
            // Whoever compresses is behind: what it has no time for is left out.
            if at % (8 << 20) == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        std::thread::sleep(Duration::from_millis(200));
        held = server.status()?.pool_pages.min(pages);
        if held == pages {
            break;
        }
    }
    let part = held as f64 / pages as f64 * 100.0;
    if part < 99.0 {
        let reason = format!("only {held} of {pages} pages got into the pool");
        return Err(BenchError::Unavailable { what: "mount", reason });
    }
    Ok(part)
}

/// Medians and 99th percentiles of the repetitions.
#[derive(Default)]
struct Sides {
    medians: Vec<f64>,
    tails: Vec<f64>,
}

impl Sides {
    fn add(&mut self, read: AtRandom) {
        self.medians.push(read.times.p50);
        self.tails.push(read.times.p99);
    }

    fn costs(&self) -> Costs {
        Costs::of_distributions(&self.medians, &self.tails)
    }
}

/// A FUSE server, in a process of its own; unmounted with it.
struct Server {
    at: PathBuf,
    child: Child,
}

impl Server {
    /// `clew mount` with so much for compressed pages.
    fn mount(
        config: &MicroConfig,
        lower: &Path,
        at: PathBuf,
        budget: u64,
    ) -> Result<Server, BenchError> {
        let mut command = Command::new(&config.clew_exe);
        command.arg("mount").arg(lower).arg(&at).args(["--budget", &budget.to_string()]);
        let server = Server::start(command, at)?;
        let child = server.child.id();
        server.until(|at| status(at).is_ok_and(|status| status.pid == child))
    }

    /// The plain one.
    fn plain(config: &MicroConfig, lower: &Path, at: PathBuf) -> Result<Server, BenchError> {
        let mut command = Command::new(&config.clew_exe);
        command.args(["bench", PLAIN_FLAG]).arg(lower).arg(&at);
        Server::start(command, at)?.until(|at| at.join(plain::FILE).exists())
    }

    fn start(mut command: Command, at: PathBuf) -> Result<Server, BenchError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|source| BenchError::Start {
            program: format!("{:?}", command.get_program()),
            source,
        })?;
        Ok(Server { at, child })
    }

    fn until(mut self, serves: impl Fn(&Path) -> bool) -> Result<Server, BenchError> {
        let until = Instant::now() + PATIENCE;
        while !serves(&self.at) {
            interrupt::check()?;
            let ended = self.child.try_wait().map_err(read_error)?;
            if ended.is_some() || Instant::now() > until {
                let reason = "a FUSE server does not begin: is there /dev/fuse, and is this root?";
                return Err(BenchError::Unavailable { what: "mount", reason: reason.to_string() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(self)
    }

    fn status(&self) -> Result<Status, BenchError> {
        status(&self.at)
            .map_err(|error| BenchError::Unavailable { what: "mount", reason: error.to_string() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let detach = rustix::mount::UnmountFlags::DETACH;
        if rustix::mount::unmount(&self.at, detach).is_err() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        // It has gone by now, or nobody waits for it any longer.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_memory_is_refused() {
        let shm = Path::new("/dev/shm");
        if !statfs(shm).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64))) {
            return crate::skip::skip("a_place_in_memory_is_refused", "no tmpfs at /dev/shm");
        }
        let error = check_place(shm).expect_err("it is in memory").to_string();
        assert!(error.contains("--dir"), "{error}");
    }
}

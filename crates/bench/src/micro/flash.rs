//! The flash tier beside fio on the same file: how quickly much is written, and how long one read takes. The file
//! lies in the directory for temporary files, which should be on the disk that is meant.
//!
//! fio writes what the log writes, two requests of 1 MiB at a time, and reads single blocks, one at a time; both go past the
//! kernel's cache. What the log writes is encrypted first; what lies around an object
//! is read behind it, and not while reads are at random.

use std::path::Path;
use std::process::Command;

use clew_store::flash::file::{FileDevice, Open};
use clew_store::flash::{Flash, FlashConfig};
use serde_json::Value;

use super::MicroConfig;
use super::measured::{Costs, Measured};
use super::objects::{Objects, Times};
use crate::error::BenchError;
use crate::progress::Progress;

/// Bytes of an object that takes 4 KiB with its tag.
const OBJECT: usize = 4096 - 16;
/// Reads of one repetition.
const READS: u64 = 2_000;
/// fio's, which begins where the log's first slot does.
const FIRST_SLOT: &str = "4096";

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let bytes = config.pages * 4096;
    let file = scratch.join("flash");
    let fio = Fio { file: &file, bytes };
    progress.begin("flash: writing and reading a file", 1 + 3 * config.repetitions as u64);
    drop(log_on(&file, bytes)?);
    fio.write()?;
    progress.step("fio has written it once");
    let (mut ours, mut theirs) = (Sides::default(), Sides::default());
    for repetition in 0..config.repetitions {
        let seed = config.seed + repetition as u64;
        ours.add(of_the_log(&log_on(&file, bytes)?, config.pages, seed)?);
        progress.step("the log has written and read");
        let written = fio.write()?;
        progress.step("fio has written");
        let (p50, p99) = fio.read(seed)?;
        theirs.add(Side { written, p50, p99 });
        progress.step("fio has read 4 KiB each");
    }
    progress.done("flash: every object held what was written to it");
    let writes = |side: &Sides| {
        let costs = Costs::of(&side.written);
        let mib_s = 4096.0 / costs.p50_us.max(1e-9) * 1e6 / f64::from(1 << 20);
        costs.with("mib_per_second", mib_s)
    };
    let reads = Costs::of_distributions(&ours.p50, &ours.p99);
    let fio_reads = Costs::of_distributions(&theirs.p50, &theirs.p99);
    Ok(vec![
        Measured::of(
            "flash",
            "write",
            "4 KiB of many",
            writes(&ours),
            ("fio 1MiB", writes(&theirs)),
        ),
        Measured::of("flash", "read", "one read", reads, ("fio 4KiB", fio_reads)),
    ])
}

/// One repetition: microseconds for each 4 KiB written, and of a read.
struct Side {
    written: f64,
    p50: f64,
    p99: f64,
}

#[derive(Default)]
struct Sides {
    written: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Sides {
    fn add(&mut self, Side { written, p50, p99 }: Side) {
        self.written.push(written);
        self.p50.push(p50);
        self.p99.push(p99);
    }
}

fn unavailable(reason: impl ToString) -> BenchError {
    BenchError::Unavailable { what: "flash", reason: reason.to_string() }
}

/// An empty log that has room for `bytes`.
pub(super) fn log_on(file: &Path, bytes: u64) -> Result<Flash, BenchError> {
    let config = FlashConfig::default();
    let slot = u64::from(config.segment_bytes);
    let device = FileDevice::open(&Open {
        path: file.to_path_buf(),
        bytes: Some(4096 + (bytes.div_ceil(slot) + 8) * slot),
        least: config.least_bytes(),
        // fio has written there.
        overwrite: true,
    });
    let device = device.map_err(unavailable)?;
    Flash::new(config, Box::new(device)).map_err(unavailable)
}

/// Writes `pages` objects, then reads some of them at random.
fn of_the_log(flash: &Flash, pages: u64, seed: u64) -> Result<Side, BenchError> {
    let (objects, written) = Objects::write(flash, pages, OBJECT, "flash")?;
    let Times { p50, p99 } = objects.read(READS, seed)?;
    Ok(Side { written, p50, p99 })
}

/// fio on the same file.
struct Fio<'a> {
    file: &'a Path,
    bytes: u64,
}

impl Fio<'_> {
    fn run(&self, options: &[&str]) -> Result<Value, BenchError> {
        let output = Command::new("fio")
            .args(["--name=clew", "--direct=1", "--ioengine=io_uring", "--output-format=json"])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--offset={FIRST_SLOT}"))
            .arg(format!("--size={}", self.bytes))
            .args(options)
            .output()
            .map_err(|error| BenchError::Unavailable { what: "fio", reason: error.to_string() })?;
        let said = String::from_utf8_lossy(&output.stdout);
        // Notes come before the result.
        let from = said.find('{').unwrap_or_default();
        let result = serde_json::from_str(&said[from..]);
        match result {
            Ok(result) if output.status.success() => Ok(result),
            _ => Err(BenchError::Command {
                command: "fio".to_string(),
                reason: String::from_utf8_lossy(&output.stderr).trim().to_string(),
            }),
        }
    }

    /// Microseconds for each 4 KiB, all of it written.
    fn write(&self) -> Result<f64, BenchError> {
        let result = self.run(&["--rw=write", "--bs=1M", "--iodepth=2", "--end_fsync=0"])?;
        let bytes_per_second = result["jobs"][0]["write"]["bw_bytes"].as_f64().unwrap_or_default();
        Ok(4096.0 / bytes_per_second.max(1.0) * 1e6)
    }

    /// Median and 99th percentile of a read of a block, microseconds.
    fn read(&self, seed: u64) -> Result<(f64, f64), BenchError> {
        let result = self.run(&[
            "--rw=randread",
            "--bs=4k",
            "--iodepth=1",
            &format!("--number_ios={READS}"),
            &format!("--randseed={seed}"),
            "--lat_percentiles=1",
        ])?;
        let percentiles = &result["jobs"][0]["read"]["lat_ns"]["percentile"];
        let us = |name: &str| percentiles[name].as_f64().map(|ns| ns / 1e3);
        us("50.000000").zip(us("99.000000")).ok_or_else(|| BenchError::Command {
            command: "fio".to_string(),
            reason: "it said no percentiles".to_string(),
        })
    }
}

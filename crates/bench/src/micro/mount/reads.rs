//! Reads of one file by offset, timed one by one, or from its beginning to its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use clew_core::seeded::Seeded;
use rustix::fs::{Advice, OFlags, fadvise};

use super::super::objects::Times;
use crate::checksum::fnv1a_words;
use crate::error::BenchError;
use crate::interrupt;

const PAGE: usize = 4096;
/// Bytes of one read in a row.
const ROW: usize = 1 << 20;

/// Memory that begins at a page, as direct I/O wants it.
pub struct Aligned(Vec<u8>);

impl Aligned {
    /// So many bytes.
    pub fn new(len: usize) -> Aligned {
        Aligned(vec![0; len + PAGE])
    }

    /// The first `len` of them.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(PAGE);
        &mut self.0[start..start + len]
    }
}

/// Opens a file for reads past the page cache.
///
/// # Errors
/// As the system says.
pub fn direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// What reads at random took, and a checksum of what they gave: of the same places it is the same.
pub struct AtRandom {
    pub times: Times,
    pub checksum: u32,
}

/// Reads `len` bytes `count` times, at places by chance that follow from the seed.
///
/// # Errors
/// If one fails, or the user interrupts.
pub fn at_random(
    file: &File,
    bytes: u64,
    len: usize,
    count: usize,
    seed: u64,
) -> Result<AtRandom, BenchError> {
    let mut random = Seeded::of(seed, &[4, len as u64]);
    let mut room = Aligned::new(len);
    let into = room.bytes(len);
    let mut us = Vec::with_capacity(count);
    let mut checksum = 0u32;
    for _ in 0..count {
        interrupt::check()?;
        let at = random.below(bytes / len as u64) * len as u64;
        let begin = Instant::now();
        file.read_exact_at(into, at).map_err(read_error)?;
        us.push(begin.elapsed().as_secs_f64() * 1e6);
        checksum = checksum.rotate_left(1) ^ fnv1a_words(into);
    }
    Ok(AtRandom { times: Times::of(us), checksum })
}

/// Reads all of a file in a row, through the page cache, which holds nothing of it before. Microseconds a MiB.
///
/// # Errors
/// If it cannot be read.
pub fn in_a_row(path: &Path) -> Result<f64, BenchError> {
    let mut file = File::open(path).map_err(read_error)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| read_error(error.into()))?;
    let mut room = vec![0; ROW];
    let mut total = 0;
    let begin = Instant::now();
    loop {
        match file.read(&mut room) {
            Ok(0) => break,
            Ok(read) => total += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_error(error)),
        }
        interrupt::check()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / (total as f64 / f64::from(1 << 20)))
}

/// Has the page cache forget a file that is on disk.
///
/// # Errors
/// If it cannot be opened.
pub fn forget(path: &Path) -> Result<(), BenchError> {
    let file = File::open(path).map_err(read_error)?;
    file.sync_all().map_err(read_error)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| read_error(error.into()))
}

pub fn read_error(error: io::Error) -> BenchError {
    BenchError::Unavailable { what: "mount", reason: error.to_string() }
}

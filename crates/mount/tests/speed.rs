//! What a read costs, side by side: from the pool, from the disk, and through a server without a pool.
//!
//! `cargo test -p clew-mount --test speed -- --ignored measure --nocapture`

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Chance, Mount, can_run, settle};

const ROUNDS: usize = 7;
const MIB: usize = 1 << 20;

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

fn direct(path: &Path) -> File {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap()
}

/// Microseconds that a read of `len` bytes takes at the median, at places by chance.
fn reads(file: &File, len: usize, count: usize, chance: &mut Chance) -> f64 {
    let size = file.metadata().unwrap().len();
    let mut room = vec![0; len + 4096];
    let start = room.as_ptr().align_offset(4096);
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let at = chance.below(size / len as u64) * len as u64;
            let begin = Instant::now();
            file.read_exact_at(&mut room[start..start + len], at).unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[count / 2].as_secs_f64() * 1e6
}

/// MiB a second, from the first to the last byte.
fn sequential(path: &Path) -> f64 {
    let mut file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut room = vec![0; MIB];
    let begin = Instant::now();
    while file.read(&mut room).unwrap() > 0 {}
    size as f64 / MIB as f64 / begin.elapsed().as_secs_f64()
}

/// Median, smallest and largest of the repetitions.
fn shown(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (first, last) = (values[0], values[values.len() - 1]);
    format!("{:8.1} ({first:.1} to {last:.1})", values[values.len() / 2])
}

#[test]
#[ignore = "a measurement"]
fn measure() {
    if !can_run("measure", &[]) {
        return;
    }
    let mut chance = Chance::new(21);
    let mount = Mount::new(256 << 20, 64 << 20);
    let lower = mount.lower().join("f");
    fs::write(&lower, chance.bytes(64 * MIB)).unwrap();
    let without = Mount::new(0, 64 << 20);
    fs::write(without.lower().join("s"), chance.bytes(256 * MIB)).unwrap();
    fs::copy(without.lower().join("s"), mount.lower().join("s")).unwrap();
    for path in [&lower, &mount.lower().join("s"), &without.lower().join("s")] {
        let file = File::open(path).unwrap();
        rustix::fs::fsync(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    settle();
    // All of the short file into the pool.
    let (pool, disk) = (direct(&mount.at().join("f")), direct(&lower));
    let mut room = vec![0; 132 * 1024];
    let start = room.as_ptr().align_offset(4096);
    for at in (0..64 * MIB).step_by(128 * 1024) {
        pool.read_exact_at(&mut room[start..start + 128 * 1024], at as u64).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_secs(1));
    eprintln!("{} of {} pages are in the pool", mount.status().pool_pages, 64 * MIB / 4096);
    for (len, count) in [(4096, 2000), (128 * 1024, 400)] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(reads(&pool, len, count, &mut chance));
            times[1].push(reads(&disk, len, count, &mut chance));
        }
        let [pool, disk] = times.map(shown);
        eprintln!("{len:6} bytes: pool {pool} us, disk {disk} us");
    }
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rates[0].push(sequential(&mount.at().join("s")));
        rates[1].push(sequential(&without.at().join("s")));
    }
    let [with, without] = rates.map(shown);
    eprintln!("in a row: with a pool {with} MiB/s, without {without} MiB/s");
}

//! What the fuzzing tests share: a corpus, a way to spoil it, a time limit.
//!
//! `CLEW_FUZZ_SECONDS` sets how long each target runs (2), `CLEW_FUZZ_SEED` what it tries (1). A test
//! prints its seed, and the input that it failed with.

#![allow(dead_code)] // each test program uses its part

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Numbers that a seed decides (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// How long and with what seed a target runs.
pub struct Run {
    pub target: &'static str,
    pub random: Random,
    pub seed: u64,
    pub cases: u64,
    until: Instant,
}

impl Run {
    pub fn start(target: &'static str) -> Run {
        let number = |name: &str, otherwise: u64| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: '{text}'")),
            Err(_) => otherwise,
        };
        let (seconds, seed) = (number("CLEW_FUZZ_SECONDS", 2), number("CLEW_FUZZ_SEED", 1));
        println!("fuzz {target}: CLEW_FUZZ_SEED={seed}, {seconds} s");
        let until = Instant::now() + Duration::from_secs(seconds);
        Run { target, random: Random::new(seed), seed, cases: 0, until }
    }

    /// Whether there is time for another case.
    pub fn goes_on(&mut self) -> bool {
        self.cases += 1;
        Instant::now() < self.until
    }
}

/// The files of tests/corpus/TARGET, in the order of their names.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus")).join(target);
    let files = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no corpus in {}", dir.display());
    paths.iter().map(|path| fs::read(path).expect("readable")).collect()
}

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e400",
    "-0.0",
    "nan",
    "0x7fffffff",
];

/// One of `corpus`, spoiled in a few places; now and then it is left as it is.
pub fn spoiled(random: &mut Random, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = random.pick(corpus);
    for _ in 0..random.below(5) {
        let at = random.below(bytes.len() + 1);
        let len = random.below(20).min(bytes.len() - at);
        match random.below(9) {
            0 if len > 0 => bytes[at] ^= 1 << random.below(8),
            1 if len > 0 => bytes[at] = random.next() as u8,
            2 => drop(bytes.drain(at..at + len)),
            3 => {
                let part = bytes[at..at + len].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            4 => drop(bytes.splice(at..at, random.pick(words).bytes())),
            5 => drop(bytes.splice(at..at + len, random.pick(words).bytes())),
            6 => {
                // A number becomes another one.
                let is_digit = |i: &usize| bytes[*i].is_ascii_digit();
                let Some(from) = (at..bytes.len()).find(is_digit) else { continue };
                let to = (from..bytes.len()).find(|i| !is_digit(i)).unwrap_or(bytes.len());
                bytes.splice(from..to, random.pick(&NUMBERS).bytes());
            }
            7 => {
                let other = random.pick(corpus);
                bytes.truncate(at);
                bytes.extend(&other[random.below(other.len() + 1)..]);
            }
            _ => {
                let times = random.below(4);
                let part = bytes[at..at + len].repeat(times);
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

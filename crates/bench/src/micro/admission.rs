//! What ezswap's admission costs, the entropy of the first 512 bytes of a page, beside compressing that page with LZO
//! and with LZ4; all three on the same pages, in turn.
//!
//! Pages are few enough to stay in the processor's second cache, for all sides alike.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use clew_policy::admission::entropy::entropy;
use clew_store::codec::{Codec, Lz4, Lzo};

use super::MicroConfig;
use super::measured::{Costs, Measured};
use super::objects::Times;
use super::page_samples::{Sample, samples};
use crate::error::BenchError;
use crate::interrupt;
use crate::progress::Progress;

const PAGE: usize = 4096;
/// Pages of one look at the clock.
const BATCH: usize = 32;
/// As the policy's `sample_bytes` has it.
const SAMPLE_BYTES: usize = 512;

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    progress.begin("admission: filling python3 and node", 1 + config.repetitions as u64);
    let samples = samples(config.seed, scratch)?;
    progress.step("pages are there");
    let mut sides: Vec<[Side; 3]> = samples.iter().map(|_| Default::default()).collect();
    let mut packed = vec![0; 2 * PAGE];
    for _ in 0..config.repetitions {
        for (sample, [looked, lzo, lz4]) in samples.iter().zip(&mut sides) {
            interrupt::check()?;
            looked.run(sample, |page| entropy(&page[..SAMPLE_BYTES]) as usize);
            let mut codec = Lzo::default();
            lzo.run(sample, |page| codec.compress(page, &mut packed).unwrap_or(PAGE));
            lz4.run(sample, |page| Lz4.compress(page, &mut packed).unwrap_or(PAGE));
        }
        progress.step("entropy, LZO and LZ4 of the same pages");
    }
    progress.done("admission: done");
    let mut measured = Vec::new();
    for (sample, [looked, lzo, lz4]) in samples.iter().zip(&sides) {
        for (name, peer) in [("lzo", lzo), ("lz4", lz4)] {
            let peer = (name, peer.costs());
            let of = Measured::of("admission", sample.name, "one page", looked.costs(), peer);
            measured.push(of);
        }
    }
    Ok(measured)
}

#[derive(Default)]
struct Side {
    medians: Vec<f64>,
    tails: Vec<f64>,
}

impl Side {
    /// One repetition: all pages, batch by batch.
    fn run(&mut self, sample: &Sample, mut act: impl FnMut(&[u8]) -> usize) {
        let us = sample.pages.chunks_exact(BATCH * PAGE).map(|batch| {
            let begin = Instant::now();
            for page in batch.chunks_exact(PAGE) {
                black_box(act(page));
            }
            begin.elapsed().as_secs_f64() * 1e6 / BATCH as f64
        });
        let Times { p50, p99 } = Times::of(us.collect());
        self.medians.push(p50);
        self.tails.push(p99);
    }

    fn costs(&self) -> Costs {
        Costs::of_distributions(&self.medians, &self.tails)
    }
}

//! How many pages a MiB of the pool holds: in slabs of size classes, page by page and as blocks of several pages, beside
//! z3fold; the same pages in all of them, with the same codec. And what storing them took.
//!
//! A MiB is one of all that the pool takes, tables and what is free in its frames included.

use std::path::Path;
use std::time::Instant;

use clew_core::{CodecKind, PoolKind};
use clew_store::{CodecContext, Handle, Store, StoreConfig};

use super::MicroConfig;
use super::measured::{Costs, Measured};
use super::page_samples::{Sample, samples};
use crate::error::BenchError;
use crate::interrupt;
use crate::progress::Progress;

const PAGE: usize = 4096;
const MIB: f64 = (1 << 20) as f64;
/// Pages of the blocks.
const BLOCKS: [usize; 3] = [1, 4, 16];
const CODECS: [(CodecKind, &str); 2] = [(CodecKind::Lzo, "lzo"), (CodecKind::Lz4, "lz4")];

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let steps = 1 + (config.repetitions * CODECS.len()) as u64;
    progress.begin("density: filling python3 and node", steps);
    let samples = samples(config.seed, scratch)?;
    progress.step("pages are there");
    let mut rows = Vec::new();
    for sample in &samples {
        for codec in CODECS {
            let peer = Column::new(PoolKind::Z3fold, codec.0, 1);
            let columns =
                BLOCKS.map(|pages| Column::new(PoolKind::SizeClasses, codec.0, pages)).into();
            rows.push(Row { sample, codec: codec.1, peer, columns });
        }
    }
    for _ in 0..config.repetitions {
        for row in &mut rows {
            for column in std::iter::once(&mut row.peer).chain(&mut row.columns) {
                interrupt::check()?;
                column.run(row.sample)?;
            }
        }
        CODECS.iter().for_each(|_| progress.step("storing pages in each pool"));
    }
    progress.done("density: every page came back as it was");
    Ok(rows.iter().flat_map(Row::measured).collect())
}

/// The same pages with the same codec, in every pool.
struct Row<'a> {
    sample: &'a Sample,
    codec: &'static str,
    peer: Column,
    columns: Vec<Column>,
}

impl Row<'_> {
    fn measured(&self) -> Vec<Measured> {
        let of = |column: &Column| {
            let case = match column.block_pages {
                1 => format!("{}-{}-slabs", self.sample.name, self.codec),
                pages => format!("{}-{}-blocks-{pages}", self.sample.name, self.codec),
            };
            let peer = ("z3fold", self.peer.costs());
            Measured::of("density", &case, "storing a page", column.costs(), peer)
        };
        self.columns.iter().map(of).collect()
    }
}

/// One pool.
struct Column {
    pool: PoolKind,
    codec: CodecKind,
    block_pages: usize,
    /// Microseconds a page, by repetition.
    put: Vec<f64>,
    pages_per_mib: f64,
}

impl Column {
    fn new(pool: PoolKind, codec: CodecKind, block_pages: usize) -> Column {
        Column { pool, codec, block_pages, put: Vec::new(), pages_per_mib: 0.0 }
    }

    /// Stores all pages in an empty pool, and reads them back.
    fn run(&mut self, sample: &Sample) -> Result<(), BenchError> {
        let pages = (sample.pages.len() / PAGE) as u64;
        let unavailable = |reason: String| BenchError::Unavailable { what: "density", reason };
        let store = Store::of(
            self.pool,
            StoreConfig {
                page_bytes: PAGE,
                mem_limit_bytes: 2 * sample.pages.len() as u64 + (16 << 20),
                disksize_pages: pages,
            },
        )
        .map_err(|error| unavailable(error.to_string()))?;
        let mut context = CodecContext::new();
        let block_bytes = self.block_pages * PAGE;
        let mut handles: Vec<Handle> = Vec::new();
        let begin = Instant::now();
        for block in sample.pages.chunks_exact(block_bytes) {
            let put = store.put(&mut context, block, self.codec, block_bytes as u32);
            handles.push(put.map_err(|error| unavailable(error.to_string()))?);
        }
        let stored = (handles.len() * self.block_pages) as f64;
        self.put.push(begin.elapsed().as_secs_f64() * 1e6 / stored.max(1.0));
        self.pages_per_mib = stored / (store.used_bytes() as f64 / MIB);
        let mut back = vec![0; PAGE];
        for (handle, block) in handles.iter().zip(sample.pages.chunks_exact(block_bytes)) {
            for (index, page) in block.chunks_exact(PAGE).enumerate() {
                let got = store.get(&mut context, *handle, index as u16, &mut back);
                if got.and_then(clew_store::Get::here).is_err() || back != page {
                    return Err(BenchError::WrongContents { side: "density", pages: 1 });
                }
            }
        }
        Ok(())
    }

    fn costs(&self) -> Costs {
        Costs::of(&self.put).with("pages_per_mib", self.pages_per_mib)
    }
}

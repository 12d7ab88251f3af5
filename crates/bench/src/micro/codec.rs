//! Every codec and chunk size on pages of live programs: python3 and node holding data, their
//! anonymous memory read through /proc. The peer is what the kernel's zram does: LZ4, page by page.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use clew_store::codec::{BaseDeltaImmediate, Codec, Learned, Lz4, Lzo, Zstd};

use super::liblzo2::Liblzo2;
use super::measured::{Costs, Measured};
use super::{MicroConfig, place};
use crate::error::{BenchError, file_error};
use crate::programs::{Kind, Load};
use crate::progress::Progress;
use crate::session::{Launch, Session};
use clew_report::percentile;

const PAGE: usize = 4096;
/// Largest chunk, and what is read from a program in one piece.
const BLOCK: usize = 128 << 10;
/// Pieces of each program.
const BLOCKS: usize = 48;
const CHUNKS: [usize; 10] =
    [256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
const PEER: &str = "lz4-4KiB";
/// Where that is installed, what our LZO stands beside: each way by itself, with these chunks.
const LZO_PEER: &str = Liblzo2::NAME;
const LZO_CHUNKS: [usize; 2] = [4 << 10, 64 << 10];

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    progress.begin("codec: filling python3 and node", 2 + config.repetitions as u64);
    let mut blocks = Vec::new();
    for kind in [Kind::Python, Kind::Node] {
        blocks.extend(pages_of(kind, config.seed, &place(scratch, kind.name())?)?);
        progress.step("reading their memory");
    }
    let mut columns: Vec<Column> = CHUNKS
        .iter()
        .flat_map(|&chunk| {
            ["lz4", Lzo::NAME, BaseDeltaImmediate::NAME, "zstd"]
                .map(|codec| Column::new(codec, chunk))
        })
        .chain([Column::new(Learned::NAME, PAGE)])
        .collect();
    let mut library = Liblzo2::find();
    if library.is_some() {
        columns.extend(LZO_CHUNKS.map(|chunk| Column::new(LZO_PEER, chunk)));
    } else {
        progress.step("liblzo2 is not installed: LZO is measured without it");
    }
    // One page in sixteen, of both programs together; the daemon has a dictionary for each.
    let pages = blocks.iter().flat_map(|block| block.chunks_exact(PAGE)).step_by(16);
    let samples: Vec<u8> = pages.flatten().copied().collect();
    let mut learned = Learned::new(&samples, PAGE).ok_or(BenchError::Unavailable {
        what: Learned::NAME,
        reason: "nothing was learned from the programs' pages".to_string(),
    })?;
    for _ in 0..config.repetitions {
        for column in &mut columns {
            match column.codec {
                "lz4" => column.run(&mut Lz4, &blocks)?,
                Lzo::NAME => column.run(&mut Lzo::default(), &blocks)?,
                BaseDeltaImmediate::NAME => column.run(&mut BaseDeltaImmediate, &blocks)?,
                Learned::NAME => column.run(&mut learned, &blocks)?,
                LZO_PEER => match &mut library {
                    Some(library) => column.run(library, &blocks)?,
                    None => continue,
                },
                _ => column.run(&mut Zstd::default(), &blocks)?,
            }
        }
        progress.step("compressing and decompressing");
    }
    progress.done("codec: every page came back as it was");
    let of = |codec, chunk| {
        columns.iter().find(|column| column.codec == codec && column.chunk_bytes == chunk)
    };
    let peer = of("lz4", PAGE).map(Column::costs).unwrap_or_default();
    let ours = columns.iter().filter(|column| column.codec != LZO_PEER);
    let mut measured: Vec<Measured> = ours
        .map(|column| {
            let case = format!("{}-{}", column.codec, size(column.chunk_bytes));
            Measured::of("codec", &case, "in and out", column.costs(), (PEER, peer.clone()))
        })
        .collect();
    for chunk in LZO_CHUNKS {
        if let (Some(ours), Some(library)) = (of(Lzo::NAME, chunk), of(LZO_PEER, chunk)) {
            measured.extend(beside(chunk, ours, library));
        }
    }
    Ok(measured)
}

/// Our LZO beside the library's, each way by itself.
fn beside(chunk: usize, ours: &Column, library: &Column) -> [Measured; 2] {
    let ways = [
        ("compress", &ours.compress, &library.compress),
        ("decompress", &ours.decompress, &library.decompress),
    ];
    ways.map(|(way, ours_us, library_us)| {
        let of =
            |column: &Column, us: &[f64]| Costs::of(us).with("compression_ratio", column.ratio);
        let case = format!("lzo-{way}-{}", size(chunk));
        Measured::of(
            "codec",
            &case,
            "4 KiB",
            of(ours, ours_us),
            (LZO_PEER, of(library, library_us)),
        )
    })
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes}B") } else { format!("{}KiB", bytes >> 10) }
}

/// One codec with one chunk size.
struct Column {
    codec: &'static str,
    chunk_bytes: usize,
    /// Medians of the repetitions, microseconds per 4 KiB.
    compress: Vec<f64>,
    decompress: Vec<f64>,
    both: Vec<f64>,
    tails: Vec<f64>,
    ratio: f64,
}

impl Column {
    fn new(codec: &'static str, chunk_bytes: usize) -> Column {
        let none = Vec::new;
        Column {
            codec,
            chunk_bytes,
            compress: none(),
            decompress: none(),
            both: none(),
            tails: none(),
            ratio: 0.0,
        }
    }

    /// One repetition. A chunk that does not become smaller is kept as it is.
    fn run<C: Codec>(&mut self, codec: &mut C, blocks: &[Vec<u8>]) -> Result<(), BenchError> {
        let mut packed = vec![0u8; 2 * BLOCK];
        let mut back = vec![0u8; BLOCK];
        let pages = (BLOCK / PAGE) as f64;
        let (mut compress, mut decompress, mut both) = (Vec::new(), Vec::new(), Vec::new());
        let mut stored = 0;
        for block in blocks {
            let mut lengths = [0usize; BLOCK / 256];
            let begin = Instant::now();
            let mut at = 0;
            for (chunk, length) in block.chunks(self.chunk_bytes).zip(&mut lengths) {
                *length = match codec.compress(chunk, &mut packed[at..at + chunk.len() - 1]) {
                    Some(length) => length,
                    None => {
                        packed[at..at + chunk.len()].copy_from_slice(chunk);
                        chunk.len()
                    }
                };
                at += *length;
            }
            let packing = begin.elapsed().as_secs_f64() * 1e6 / pages;
            stored += at;
            let begin = Instant::now();
            let mut at = 0;
            for (chunk, &length) in back.chunks_mut(self.chunk_bytes).zip(&lengths) {
                let from = &packed[at..at + length];
                at += length;
                if length == chunk.len() {
                    chunk.copy_from_slice(from);
                } else {
                    codec.decompress(from, chunk).map_err(|error| BenchError::Command {
                        command: format!("decompressing by {}", self.codec),
                        reason: error.to_string(),
                    })?;
                }
            }
            let unpacking = begin.elapsed().as_secs_f64() * 1e6 / pages;
            if black_box(&back) != block {
                return Err(BenchError::WrongContents { side: self.codec, pages: 1 });
            }
            compress.push(packing);
            decompress.push(unpacking);
            both.push(packing + unpacking);
        }
        for samples in [&mut compress, &mut decompress, &mut both] {
            samples.sort_by(f64::total_cmp);
        }
        self.compress.push(percentile(&compress, 50.0));
        self.decompress.push(percentile(&decompress, 50.0));
        self.both.push(percentile(&both, 50.0));
        self.tails.push(percentile(&both, 99.0));
        self.ratio = (blocks.len() * BLOCK) as f64 / stored as f64;
        Ok(())
    }

    fn costs(&self) -> Costs {
        Costs::of_distributions(&self.both, &self.tails)
            .with("compress_us", Costs::of(&self.compress).p50_us)
            .with("decompress_us", Costs::of(&self.decompress).p50_us)
            .with("compression_ratio", self.ratio)
    }
}

/// Pieces of the anonymous memory of a program that holds data, spread over all of it.
pub(super) fn pages_of(kind: Kind, seed: u64, scratch: &Path) -> Result<Vec<Vec<u8>>, BenchError> {
    let load = Load { seed, data_bytes: 48 << 20, similarity: 0.7, updates: 0.1, is_front: false };
    let launch = Launch { scratch: scratch.to_path_buf(), ..Launch::default() };
    let mut session = Session::start(kind.with(load), &launch)?;
    session.fill(&crate::interrupt::check)?;
    let pid = session.pid();
    let maps = Path::new("/proc").join(pid.to_string()).join("maps");
    let text = fs::read_to_string(&maps).map_err(file_error("read", &maps))?;
    let mem = maps.with_file_name("mem");
    let file = fs::File::open(&mem).map_err(file_error("open", &mem))?;
    let places: Vec<u64> = text.lines().filter_map(anonymous).flat_map(pieces).collect();
    let mut blocks = Vec::new();
    let step = (places.len() / (BLOCKS * 2)).max(1);
    for &place in places.iter().step_by(step) {
        let mut block = vec![0u8; BLOCK];
        // Memory that was never touched reads as zeros, and is not what anybody swaps.
        let read = file.read_exact_at(&mut block, place).is_ok();
        let empty = block.chunks(PAGE).filter(|page| page.iter().all(|&byte| byte == 0)).count();
        if read && empty * 8 < BLOCK / PAGE && blocks.len() < BLOCKS {
            blocks.push(block);
        }
    }
    session.end();
    if blocks.is_empty() {
        let reason = format!("{kind} has no anonymous memory that could be read");
        return Err(BenchError::Unavailable { what: "codec", reason });
    }
    Ok(blocks)
}

/// The range of a line of `maps` that is private, anonymous, writable memory.
fn anonymous(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or_default();
    let fits = permissions.starts_with("rw") && permissions.ends_with('p') && inode == "0";
    if !fits || !(name.is_empty() || name == "[heap]") {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn pieces((start, end): (u64, u64)) -> impl Iterator<Item = u64> {
    (start..end.saturating_sub(BLOCK as u64 - 1)).step_by(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anonymous_memory_is_read() {
        assert_eq!(anonymous("1000-3000 rw-p 00000000 00:00 0 "), Some((0x1000, 0x3000)));
        assert_eq!(anonymous("1000-3000 rw-p 00000000 00:00 0   [heap]"), Some((0x1000, 0x3000)));
        assert_eq!(anonymous("1000-3000 rw-p 00000000 00:00 0   [stack]"), None);
        assert_eq!(anonymous("1000-3000 r--p 00000000 00:00 0 "), None);
        assert_eq!(anonymous("1000-3000 rw-p 00000000 fe:00 12 /usr/bin/x"), None);
        assert_eq!(pieces((0, 3 * BLOCK as u64 - 1)).count(), 2);
    }
}

//! Measures a table of costs on this machine: the store's own codecs, pool and checks, on the pages
//! of a trace. What crosses to the kernel is taken from the reference table, and says so: it needs a
//! live program (`clew bench fault`, `clew bench restore`).
//!
//! Each figure is the least of several passes over all pages, each timed as a whole: the sum that a
//! pass takes, and never a sum of rounded durations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::{ByteSize, CodecKind};
use clew_policy::admission::entropy::entropy;
use clew_store::{CodecContext, Handle, Members, Store, StoreConfig};
use clew_trace::{Content, ContentId, Trace};

use super::{CodecCost, Costs};
use crate::error::LabError;

/// Pages that are measured, of a trace that has more: every n-th.
const SAMPLE_PAGES: u32 = 8192;
const PASSES: usize = 3;
const CHUNKS: [u32; 8] = [256, 512, 1024, 2048, 4096, 16_384, 32_768, 131_072];

/// Measures on the contents of `trace`; `progress` hears of rows done, and how many there are.
pub fn measure(trace: &Trace, progress: &mut dyn FnMut(u64, u64)) -> Result<Costs, LabError> {
    let page = trace.header().page_bytes as usize;
    let bytes = sample(trace)?;
    let pages = bytes.len() / page;
    if pages < 64 {
        let why = format!("{pages} different pages with bytes; 64 are the least");
        return Err(LabError::Setting { what: trace.path().display().to_string(), why });
    }
    let codecs = [
        CodecKind::Raw,
        CodecKind::Lz4,
        CodecKind::Lzo,
        CodecKind::BaseDeltaImmediate,
        CodecKind::Zstd,
        CodecKind::ZstdDictionary,
    ];
    let rows = (codecs.len() * CHUNKS.len()) as u64;
    let mut codec = Vec::new();
    for (position, kind) in codecs.into_iter().enumerate() {
        for (at, chunk) in CHUNKS.into_iter().enumerate() {
            let of_pages = kind == CodecKind::Raw || kind.learns();
            if !of_pages || chunk as usize == page {
                codec.push(row(&bytes, page, kind, chunk)?);
            }
            progress((position * CHUNKS.len() + at + 1) as u64, rows);
        }
    }
    // The table is about pages of 4 KiB.
    let scale = 4096.0 / page as f64;
    for row in &mut codec {
        row.out_ns *= scale;
        row.back_ns *= scale;
    }
    let reference = Costs::reference();
    Ok(Costs {
        // What no device was named for is not measured.
        flash: None,
        name: "measured".to_string(),
        source: format!(
            "measured on {pages} pages of {}; crossings to the kernel as in the reference table",
            trace.path().file_name().unwrap_or_default().to_string_lossy()
        ),
        look_ns: look(&bytes, page) * scale,
        copy_ns: copy(&bytes, page) * scale,
        sample_ns: sampling(&bytes, page),
        codec,
        ..reference
    })
}

/// Pages that are not one repeated word.
fn sample(trace: &Trace) -> Result<Vec<u8>, LabError> {
    let failed = LabError::trace;
    let mut contents = trace.contents().map_err(failed(trace.path()))?;
    let count = contents.count();
    let step = (count / SAMPLE_PAGES).max(1);
    let mut bytes = Vec::new();
    for id in (0..count).step_by(step as usize) {
        if let Content::Bytes(page) = contents.get(ContentId(id)).map_err(failed(trace.path()))?
            && page.chunks_exact(8).any(|word| word != &page[..8])
        {
            bytes.extend_from_slice(page);
        }
    }
    Ok(bytes)
}

fn row(bytes: &[u8], page: usize, codec: CodecKind, chunk: u32) -> Result<CodecCost, LabError> {
    let block = (chunk as usize).max(page);
    let limits = StoreConfig {
        page_bytes: page,
        mem_limit_bytes: 4 * bytes.len() as u64 + (64 << 20),
        disksize_pages: (bytes.len() / page) as u64,
    };
    let mut ctx = CodecContext::new();
    let (mut out, mut back) = (Duration::MAX, Duration::MAX);
    let mut ratio = 1.0;
    for _ in 0..PASSES {
        let store = Arc::new(Store::new(limits)?);
        // From one page in sixteen, as live; not timed.
        let dictionary = codec.learns().then(|| {
            let samples: Vec<u8> =
                bytes.chunks_exact(page).step_by(16).take(256).flatten().copied().collect();
            store.learn(&mut ctx, &samples)
        });
        let dictionary = dictionary.flatten();
        let members = Members { dictionary: dictionary.as_ref(), ..Members::default() };
        let began = Instant::now();
        let mut handles: Vec<(Handle, usize)> = Vec::new();
        let mut copy = vec![0; block];
        for part in bytes.chunks(block) {
            copy[..part.len()].copy_from_slice(part);
            let stored = store.put_group(&mut ctx, &copy[..part.len()], codec, chunk, members);
            let stored = stored.map_err(|error| LabError::Setting {
                what: format!("{codec:?} in chunks of {chunk}"),
                why: error.to_string(),
            })?;
            handles.push((stored, part.len()));
        }
        out = out.min(began.elapsed());
        ratio = bytes.len() as f64 / store.facts().payload_bytes.max(1) as f64;
        let mut whole = vec![0; block];
        let began = Instant::now();
        for (handle, length) in &handles {
            let read = store
                .get_chunk(&mut ctx, *handle, 0, &mut whole[..*length])
                .and_then(clew_store::Get::here);
            read.map_err(|error| LabError::Setting {
                what: format!("{codec:?} in chunks of {chunk}"),
                why: error.to_string(),
            })?;
        }
        back = back.min(began.elapsed());
    }
    let pages = (bytes.len() / page) as f64;
    let each = |took: Duration| (took.as_nanos() as f64 / pages).round();
    let ratio = (ratio.max(1.0) * 1000.0).round() / 1000.0;
    Ok(CodecCost {
        codec,
        chunk: ByteSize(chunk.into()),
        out_ns: each(out),
        back_ns: each(back),
        ratio,
    })
}

/// A page that is copied, looked through and hashed.
fn look(bytes: &[u8], page: usize) -> f64 {
    let mut copy = vec![0; page];
    least(bytes, page, |source| {
        copy.copy_from_slice(source);
        let hash = twox_hash::XxHash3_64::oneshot(&copy);
        std::hint::black_box((hash, copy.iter().all(|byte| *byte == 0)));
    })
}

/// What selective admission does of a page. It is the same of a larger page.
fn sampling(bytes: &[u8], page: usize) -> f64 {
    least(bytes, page, |source| {
        std::hint::black_box(entropy(source));
    })
}

fn copy(bytes: &[u8], page: usize) -> f64 {
    let mut copy = vec![0; page];
    least(bytes, page, |source| {
        copy.copy_from_slice(source);
        std::hint::black_box(&copy);
    })
}

fn least(bytes: &[u8], page: usize, mut work: impl FnMut(&[u8])) -> f64 {
    let mut least = Duration::MAX;
    for _ in 0..PASSES {
        let began = Instant::now();
        bytes.chunks_exact(page).for_each(&mut work);
        least = least.min(began.elapsed());
    }
    (least.as_nanos() as f64 / (bytes.len() / page) as f64).round()
}

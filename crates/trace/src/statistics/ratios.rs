//! How pages compress, by codec and chunk size.

use clew_core::{PageId, Seeded};
use serde::Serialize;

use crate::contents::Content;
use crate::error::TraceError;
use crate::header::ContentsKind;
use crate::record::ContentId;
use crate::trace::Trace;

/// Sizes of chunks, bytes (Ariadne, figure 6).
pub const CHUNKS: [usize; 11] =
    [128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// Pages are taken in pieces of the largest chunk.
const BLOCK: usize = 128 << 10;
/// Zstandard's level: Clew's.
const ZSTD_LEVEL: i32 = -1;

/// Original size divided by compressed size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// `lz4` or `zstd`.
    pub codec: &'static str,
    /// Bytes that are compressed together, and apart from all others.
    pub chunk_bytes: usize,
    /// The ratio. A chunk that does not become smaller is stored as it is.
    pub ratio: f64,
}

/// The ratios of `blocks` of 128 KiB each.
pub fn ratios<'a>(blocks: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<Ratio> {
    let mut packed = vec![0; 2 * BLOCK];
    let mut zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
    let mut ratios = Vec::new();
    for codec in ["lz4", "zstd"] {
        for chunk_bytes in CHUNKS {
            let (mut original, mut compressed) = (0usize, 0usize);
            for chunk in blocks.clone().flat_map(|block| block.chunks_exact(chunk_bytes)) {
                let length = match codec {
                    "lz4" => {
                        lzzzz::lz4::compress(chunk, &mut packed, lzzzz::lz4::ACC_LEVEL_DEFAULT).ok()
                    }
                    _ => zstd
                        .as_mut()
                        .and_then(|zstd| zstd.compress_to_buffer(chunk, &mut packed[..]).ok()),
                };
                original += chunk.len();
                compressed += length.unwrap_or(chunk.len()).min(chunk.len());
            }
            if original > 0 {
                ratios.push(Ratio {
                    codec,
                    chunk_bytes,
                    ratio: original as f64 / compressed.max(1) as f64,
                });
            }
        }
    }
    ratios
}

/// The ratios of contents, in the order of the addresses of their pages and without zeros; and the
/// share of zeros.
pub(super) fn of_trace(
    trace: &Trace,
    held: &[(PageId, ContentId)],
    pages: usize,
) -> Result<(Vec<Ratio>, Option<f64>), TraceError> {
    if trace.header().contents != ContentsKind::Bytes || held.is_empty() {
        return Ok((Vec::new(), None));
    }
    let page_bytes = trace.header().page_bytes as usize;
    let piece = BLOCK / page_bytes;
    let part = pages as f64 / held.len() as f64;
    let mut contents = trace.contents()?;
    let (mut bytes, mut zeros, mut seen) = (Vec::new(), 0usize, 0usize);
    for (number, neighbours) in held.chunks(piece).enumerate() {
        // A piece here and there: at equal distances, what recurs would be met too often, or never.
        if Seeded::of(number as u64, &[]).unit() >= part {
            continue;
        }
        for (_, content) in neighbours {
            let Content::Bytes(page) = contents.get(*content)? else { continue };
            seen += 1;
            if page.iter().all(|byte| *byte == 0) {
                zeros += 1;
            } else {
                bytes.extend(page);
            }
        }
    }
    let zero_share = (seen > 0).then(|| zeros as f64 / seen as f64);
    Ok((ratios(bytes.chunks_exact(BLOCK)), zero_share))
}

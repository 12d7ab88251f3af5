//! One suite for every codec and chunk size.

use proptest::prelude::*;

use super::chunks::{Encoded, covering};
use super::*;

const CODECS: [Stored; 5] =
    [Stored::Raw, Stored::Lz4, Stored::Lzo, Stored::BaseDeltaImmediate, Stored::Zstd];
const CHUNKS: [u32; 10] = [256, 512, 768, 1024, 2048, 4096, 12288, 16 << 10, 64 << 10, 128 << 10];

/// Pages as programs have them: runs, text, pointers, noise.
pub(crate) fn block_of(pages: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut block = Vec::with_capacity(pages * 4096);
    while block.len() < pages * 4096 {
        match next() % 4 {
            0 => block.extend(std::iter::repeat_n(next() as u8, 700)),
            1 => block.extend(b"the clew leads back through the maze ".iter().cycle().take(900)),
            2 => (0..100).for_each(|_| {
                let pointer = 0x7f00_0000_0000 + next() % 65536 * 16;
                block.extend(pointer.to_le_bytes());
            }),
            _ => (0..100).for_each(|_| block.extend(next().to_le_bytes())),
        }
    }
    block.truncate(pages * 4096);
    block
}

fn stored_bytes<'a>(ctx: &'a CodecContext, encoded: Encoded, block: &'a [u8]) -> &'a [u8] {
    match encoded.codec {
        Stored::Raw => block,
        _ => &ctx.packed[..ctx.packed_len],
    }
}

fn restore(
    ctx: &mut CodecContext,
    encoded: Encoded,
    block_bytes: usize,
    stored: &[u8],
    table: &[u8],
    wanted: std::ops::Range<usize>,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = vec![0xaa; wanted.len()];
    let chunks: Vec<_> =
        covering(encoded, block_bytes, stored.len(), table, wanted.clone()).collect();
    for chunk in chunks {
        let bytes = stored.get(chunk.stored.clone()).ok_or(DecodeError {
            codec: "chunk",
            stored_bytes: stored.len(),
            wanted_bytes: chunk.stored.end,
        })?;
        ctx.decode_chunk(&chunk, bytes, wanted.clone(), &mut out)?;
    }
    Ok(out)
}

#[test]
fn every_codec_restores_every_page_at_every_chunk_size() {
    let mut ctx = CodecContext::new();
    for pages in [1, 2, 3, 16, 37] {
        let mut block = block_of(pages, pages as u64);
        // One page of noise, so that some chunks are stored raw.
        let noise: Vec<u8> = (0..4096u64).map(|i| ((i * i * 2654435761) >> 13) as u8).collect();
        block[..4096].copy_from_slice(&noise);
        for codec in CODECS {
            for chunk_bytes in CHUNKS {
                let encoded = ctx.encode(&block, codec, chunk_bytes);
                let stored = stored_bytes(&ctx, encoded, &block).to_vec();
                let table = ctx.lengths.clone();
                assert!(stored.len() <= block.len());
                let all = restore(&mut ctx, encoded, block.len(), &stored, &table, 0..block.len());
                assert_eq!(all.unwrap(), block, "{codec:?} {chunk_bytes}");
                for page in 0..pages {
                    let range = page * 4096..(page + 1) * 4096;
                    let one =
                        restore(&mut ctx, encoded, block.len(), &stored, &table, range.clone());
                    assert_eq!(one.unwrap(), block[range], "{codec:?} {chunk_bytes} {page}");
                }
            }
        }
    }
}

#[test]
fn noise_is_stored_as_it_is() {
    let mut ctx = CodecContext::new();
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(8192)
    .collect();
    for codec in CODECS {
        for chunk_bytes in [256, 4096, 8192] {
            assert_eq!(ctx.encode(&noise, codec, chunk_bytes).codec, Stored::Raw);
            assert!(ctx.lengths.is_empty());
        }
    }
}

#[test]
fn same_filled_is_one_word_or_nothing() {
    let page = [7u8; 4096];
    let mut word = [0; 8];
    assert_eq!(Same.compress(&page, &mut word), Some(8));
    let mut out = [0; 4096];
    Same.decompress(&word, &mut out).unwrap();
    assert_eq!(out, page);
    for at in [0, 8, 511, 2048, 4095] {
        let mut page = page;
        page[at] = 8;
        assert_eq!(same::repeated_word(&page), None, "byte {at}");
    }
    assert!(same::is_zero(&[0; 4096]) && !same::is_zero(&[1; 4096]));
    assert!(Same.decompress(&word[..7], &mut out).is_err());
}

#[test]
fn warm_contexts_do_not_grow() {
    let mut ctx = CodecContext::new();
    let block = block_of(16, 3);
    let mut sizes = Vec::new();
    for _ in 0..3 {
        for codec in CODECS {
            let encoded = ctx.encode(&block, codec, 16 << 10);
            let stored = stored_bytes(&ctx, encoded, &block).to_vec();
            let table = ctx.lengths.clone();
            restore(&mut ctx, encoded, block.len(), &stored, &table, 8192..12288).unwrap();
        }
        sizes.push((ctx.packed.capacity(), ctx.lengths.capacity(), ctx.plain.capacity()));
    }
    assert_eq!(sizes[0], sizes[2]);
}

fn any_codec() -> impl Strategy<Value = Stored> {
    proptest::sample::select(vec![
        Stored::Raw,
        Stored::Same,
        Stored::Lz4,
        Stored::Lzo,
        Stored::BaseDeltaImmediate,
        Stored::Zstd,
    ])
}

proptest! {
    #[test]
    fn round_trips(
        bytes in proptest::collection::vec(any::<u8>(), 1..64),
        pages in 1usize..8,
        codec in any_codec(),
        chunk in 0usize..CHUNKS.len(),
    ) {
        prop_assume!(codec != Stored::Same);
        let block: Vec<u8> = bytes.iter().copied().cycle().take(pages * 4096).collect();
        let mut ctx = CodecContext::new();
        let encoded = ctx.encode(&block, codec, CHUNKS[chunk]);
        let stored = stored_bytes(&ctx, encoded, &block).to_vec();
        let table = ctx.lengths.clone();
        let all = restore(&mut ctx, encoded, block.len(), &stored, &table, 0..block.len());
        prop_assert_eq!(all.unwrap(), block);
    }

    /// Garbage is an error or gives garbage, but never more than was asked for.
    #[test]
    fn garbage_does_no_harm(
        garbage in proptest::collection::vec(any::<u8>(), 0..600),
        table in proptest::collection::vec(any::<u8>(), 0..64),
        codec in any_codec(),
        chunk_units in 0u16..=512,
        wanted in 1usize..4096,
    ) {
        let mut ctx = CodecContext::new();
        let mut out = vec![0x55; wanted + 64];
        let _ = ctx.decompress(codec, &garbage, &mut out[..wanted]);
        prop_assert!(out[wanted..].iter().all(|b| *b == 0x55));
        let _ = ctx.decompress_prefix(codec, &garbage, &mut out[..wanted]);
        prop_assert!(out[wanted..].iter().all(|b| *b == 0x55));
        let encoded = Encoded { codec, chunk_units };
        let _ = restore(&mut ctx, encoded, 16384, &garbage, &table, 4096..8192);
    }

    /// What was cut short or changed is an error or comes out in its full length.
    #[test]
    fn truncation_and_flips_do_no_harm(
        seed in any::<u64>(),
        cut in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
        codec in any_codec(),
    ) {
        prop_assume!(![Stored::Raw, Stored::Same].contains(&codec));
        let mut ctx = CodecContext::new();
        let block = block_of(4, seed);
        let encoded = ctx.encode(&block, codec, 16 << 10);
        prop_assume!(encoded.codec != Stored::Raw);
        let mut stored = ctx.packed[..ctx.packed_len].to_vec();
        let cut = cut.index(stored.len());
        let short = restore(&mut ctx, encoded, block.len(), &stored[..cut], &[], 0..block.len());
        prop_assert!(short.is_err());
        let at = flip.index(stored.len());
        stored[at] ^= 0x10;
        if let Ok(out) = restore(&mut ctx, encoded, block.len(), &stored, &[], 4096..8192) {
            prop_assert_eq!(out.len(), 4096);
        }
    }
}

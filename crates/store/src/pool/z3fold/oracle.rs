//! Where zpages lie, against a naive transcription of mm/z3fold.c: frames are searched from the first to the last, and
//! everything about one follows from a picture of its 64 chunks.

use std::collections::HashMap;

use clew_core::Seeded;

use super::*;
use crate::codec::Stored;
use crate::tier::ObjectTier;

/// A frame as a picture: which zpage has each chunk.
type Picture = [Option<u32>; 64];

/// One shard's frames, in the order in which they came to their lists, the newest last.
#[derive(Default)]
struct Naive {
    frames: Vec<Picture>,
}

/// What the picture says of a zpage: its first chunk, and how many.
fn extent(frame: &Picture, zpage: u32) -> Option<(usize, usize)> {
    let start = frame.iter().position(|chunk| *chunk == Some(zpage))?;
    Some((start, frame.iter().filter(|chunk| **chunk == Some(zpage)).count()))
}

/// First, middle, last: whoever has the first chunk, whoever has the last one, and who is neither.
fn buddies(frame: &Picture) -> [Option<u32>; 3] {
    let (first, last) = (frame[0], frame[63]);
    // One that fills the frame is the first.
    let last = last.filter(|_| last != first);
    let middle = frame.iter().flatten().copied().find(|z| Some(*z) != first && Some(*z) != last);
    [first, middle, last]
}

/// `num_free_chunks`.
fn free_chunks(frame: &Picture) -> usize {
    let [first, middle, last] = buddies(frame);
    let chunks = |zpage: Option<u32>| zpage.map_or(0, |z| extent(frame, z).unwrap().1);
    let Some((start, count)) = middle.map(|z| extent(frame, z).unwrap()) else {
        return 64 - chunks(first) - chunks(last);
    };
    let before = if first.is_none() { start } else { 0 };
    let after = if last.is_none() { 64 - start - count } else { 0 };
    before.max(after)
}

fn draw(frame: &mut Picture, zpage: u32, start: usize, count: usize) {
    frame[start..start + count].fill(Some(zpage));
}

impl Naive {
    /// `z3fold_alloc`: of those with just enough room the newest, else of those with a chunk more, and so on.
    fn alloc(&mut self, zpage: u32, count: usize) {
        let found = (count..=64)
            .find_map(|free| self.frames.iter().rposition(|frame| free_chunks(frame) == free));
        let mut frame = found.map_or([None; 64], |at| self.frames.remove(at));
        let [first, middle, last] = buddies(&frame);
        let start = match (first, middle, last) {
            (None, None, _) => 0,
            (Some(_), None, None) => 64 - count,
            (Some(z), None, Some(_)) => extent(&frame, z).unwrap().1,
            (None, Some(z), _) if count <= extent(&frame, z).unwrap().0 => 0,
            (_, Some(_), None) => 64 - count,
            (_, Some(_), Some(_)) => unreachable!("it has no room"),
        };
        draw(&mut frame, zpage, start, count);
        self.frames.push(frame);
    }

    /// `z3fold_free`, with `z3fold_compact_page`.
    fn free(&mut self, zpage: u32) {
        let at = self.frames.iter().position(|frame| extent(frame, zpage).is_some()).unwrap();
        let mut frame = self.frames.remove(at);
        // What it is does not change by another's going.
        let [first, middle, last] = buddies(&frame).map(|z| z.filter(|z| *z != zpage));
        frame.iter_mut().filter(|chunk| **chunk == Some(zpage)).for_each(|chunk| *chunk = None);
        if let Some(middle) = middle {
            let (start, count) = extent(&frame, middle).unwrap();
            let end_of_first = first.map_or(0, |z| extent(&frame, z).unwrap().1);
            let start_of_last = last.map_or(64, |z| extent(&frame, z).unwrap().0);
            let to = match (first, last) {
                (None, None) => 0,
                (Some(_), None) if start - end_of_first >= 3 => end_of_first,
                (None, Some(_)) if start_of_last - (start + count) >= 3 => start_of_last - count,
                _ => start,
            };
            frame.iter_mut().filter(|c| **c == Some(middle)).for_each(|chunk| *chunk = None);
            draw(&mut frame, middle, to, count);
        }
        if frame.iter().any(Option::is_some) {
            self.frames.push(frame);
        }
    }
}

#[test]
fn zpages_lie_where_the_kernel_would_put_them() {
    for seed in 0..30 {
        let mut random = Seeded::of(seed, &[1]);
        let tier = Z3fold::new(64 << 20, 1 << 16, 0).unwrap();
        let mut shards: Vec<Naive> = (0..SHARDS).map(|_| Naive::default()).collect();
        let mut zpages: Vec<(u32, u8)> = Vec::new();
        // Of the sizes that LZO makes of pages, or of any.
        let largest = [30, 64][seed as usize % 2];
        for step in 0..1500 {
            let grows = if step % 500 < 300 { 3 } else { 1 };
            if random.below(4) < grows || zpages.is_empty() {
                let chunks = 2 + random.below(largest - 1) as u8;
                let handle = tier.reserve().unwrap();
                let header =
                    Header { checksum: 0, handle: 0, len: 0, codec: Stored::Lzo, framed: false };
                let payload = vec![chunks; usize::from(chunks) * CHUNK_BYTES - HEADER_BYTES];
                tier.insert(handle, 1, header, &[&payload]).unwrap();
                shards[shard_number(handle) as usize].alloc(handle, usize::from(chunks));
                zpages.push((handle, chunks));
            } else {
                let at = random.below(zpages.len() as u64) as usize;
                let (handle, _) = zpages.swap_remove(at);
                tier.remove(handle);
                shards[shard_number(handle) as usize].free(handle);
            }
            if step % 50 > 0 {
                continue;
            }
            let mut numbers: HashMap<u32, u32> = HashMap::new();
            for (shard, naive) in shards.iter().enumerate() {
                for (number, picture) in (0..).zip(&naive.frames) {
                    let there = buddies(picture);
                    for zpage in there.into_iter().flatten() {
                        let place = tier.small.handles.load(zpage).unwrap().place();
                        let (start, _) = extent(picture, zpage).unwrap();
                        assert_eq!(usize::from(place.object), start, "{zpage} in {there:?}");
                        // Together here, together there, and nobody else with them.
                        let number = (shard as u32) << 24 | number;
                        assert_eq!(*numbers.entry(place.slab).or_insert(number), number);
                        let facts = ObjectTier::frame(&tier, zpage).unwrap();
                        let holds = (usize::from(facts.free_chunks), usize::from(facts.zpages));
                        let count = there.iter().flatten().count();
                        let expected = (free_chunks(picture), count);
                        assert_eq!((holds, facts.frame), (expected, place.slab));
                    }
                }
            }
            let in_frames = tier.usage().slabs - tier.small.usage().slabs;
            assert_eq!(in_frames, shards.iter().map(|shard| shard.frames.len() as u64).sum());
        }
        Z3fold::check(&tier);
        for (handle, chunks) in zpages {
            let is_it = |_: &Header, payload: &[u8]| payload.iter().all(|byte| *byte == chunks);
            assert_eq!(tier.read(handle, is_it), Some(true));
        }
    }
}

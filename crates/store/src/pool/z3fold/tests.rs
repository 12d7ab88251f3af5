//! z3fold's own promises; that it is a tier is the suite's.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::adopt::tests::step;
use crate::codec::Stored;
use crate::tier::ObjectTier;

const FRAME: u64 = FRAME_BYTES as u64;

impl Z3fold {
    /// Panics unless the invariants hold. Nobody else may use it meanwhile.
    pub(super) fn check(&self) {
        let mut memory = 0;
        let spares: Vec<u32> =
            self.shards.iter().filter_map(|shard| shard.0.read().spare).collect();
        let handles = (1..self.small.handles.known()).filter_map(|handle| {
            let entry = self.small.handles.load(handle)?;
            (entry.class() == Some(IN_FRAME)).then_some((handle, entry.place()))
        });
        let mut zpages: Vec<(Place, u32)> =
            handles.map(|(handle, place)| (place, handle)).collect();
        zpages.sort_unstable_by_key(|(place, _)| (place.slab, place.object));
        let mut listed: Vec<Vec<(u32, u8)>> =
            self.shards.iter().map(|shard| shard.0.read().lists.all(&self.frames)).collect();
        for frame in 0..self.frames.high() {
            let record = self.frames.get(frame);
            if self.frames.is_free(frame) {
                continue;
            }
            memory += u64::from(record.memory);
            let within = zpages.iter().filter(|(place, _)| place.slab == frame);
            let found: Vec<(u8, u32)> = within.map(|(p, h)| (p.object as u8, *h)).collect();
            assert_eq!(found.len(), usize::from(record.zpages()), "frame {frame}: {record:?}");
            for (start, handle) in &found {
                assert!(record.at(*start).is_some(), "{handle} in {record:?}");
                let at = Place { slab: frame, object: u16::from(*start) };
                assert_eq!(self.zpage(at).unwrap().0.handle, *handle);
                assert_eq!(shard_number(*handle), shard_number(found[0].1));
            }
            match found.first() {
                None => assert!(spares.contains(&frame), "frame {frame} is nobody's"),
                Some((_, handle)) => {
                    let list = &mut listed[shard_number(*handle) as usize];
                    let before = list.len();
                    list.retain(|entry| *entry != (frame, record.free_chunks()));
                    let is_in_one = usize::from(record.free_chunks() > 0);
                    assert_eq!(before - list.len(), is_in_one, "frame {frame}: {record:?}");
                }
            }
        }
        assert!(listed.iter().all(Vec::is_empty), "{listed:?}");
        let usage = Z3fold::usage(self);
        let of_slabs = self.small.usage();
        assert_eq!(usage.objects - of_slabs.objects, zpages.len() as u64);
        let chunks: u64 = zpages
            .iter()
            .map(|(place, _)| {
                let record = self.frames.get(place.slab);
                u64::from(record.chunks(record.at(place.object as u8).unwrap()))
            })
            .sum();
        assert_eq!(usage.object_bytes - of_slabs.object_bytes, chunks * CHUNK_BYTES as u64);
        let held: u64 = self.segments().iter().map(|s| s.resident_bytes().unwrap()).sum();
        assert_eq!(held, self.used_bytes(), "the kernel counts as we do");
        let frames = self.frames.arena().resident_bytes().unwrap() / FRAME;
        assert_eq!(frames, memory + self.frames.kept_frames());
    }
}

fn header() -> Header {
    Header { checksum: 1, handle: 0, len: 0, codec: Stored::Lzo, framed: false }
}

/// An object of so many chunks, each byte its number.
fn put(tier: &Z3fold, chunks: usize, number: u8) -> Option<u32> {
    let handle = tier.reserve().ok()?;
    let payload = vec![number; chunks * CHUNK_BYTES - HEADER_BYTES];
    let done = tier.insert(handle, 1, header(), &[&payload]);
    done.inspect_err(|_| tier.unreserve(handle)).ok().map(|()| handle)
}

fn holds(tier: &Z3fold, handle: u32, chunks: usize, number: u8) {
    let payload = vec![number; chunks * CHUNK_BYTES - HEADER_BYTES];
    assert_eq!(tier.read(handle, |_, found| *found == payload), Some(true), "{handle}");
}

fn place(tier: &Z3fold, handle: u32) -> (u32, u16) {
    let place = tier.small.handles.load(handle).unwrap().place();
    (place.slab, place.object)
}

#[test]
fn three_share_a_frame_and_the_middle_one_moves_when_one_goes() {
    let tier = Z3fold::new(1 << 20, 1000, 0).unwrap();
    let [a, b, c] = [(20, 1), (30, 2), (10, 3)].map(|(n, of)| put(&tier, n, of).unwrap());
    let (frame, _) = place(&tier, a);
    assert_eq!([a, b, c].map(|h| place(&tier, h)), [(frame, 0), (frame, 34), (frame, 20)]);
    assert_eq!((tier.usage().slabs, tier.usage().objects), (1, 3));
    tier.check();
    // Four chunks are between the middle one and the last; the ten chunks overlap, so the spare frame is used.
    tier.remove(a);
    assert_eq!(place(&tier, c), (frame, 24));
    holds(&tier, c, 10, 3);
    tier.check();
    tier.remove(b);
    assert_eq!(place(&tier, c), (frame, 0), "alone, it is the first");
    holds(&tier, c, 10, 3);
    tier.check();
    tier.remove(c);
    assert_eq!((tier.usage().slabs, tier.usage().objects), (0, 0));
    tier.check();
}

#[test]
fn the_frame_that_fits_best_takes_a_zpage() {
    let tier = Z3fold::new(1 << 20, 1000, 0).unwrap();
    let [large, small] = [10, 40].map(|chunks| put(&tier, chunks, 1).unwrap());
    let other = put(&tier, 60, 1).unwrap();
    assert_eq!(place(&tier, large).0, place(&tier, small).0, "there was room for both");
    assert_ne!(place(&tier, other).0, place(&tier, small).0);
    let fits = put(&tier, 4, 2).unwrap();
    assert_eq!(place(&tier, fits).0, place(&tier, other).0, "four chunks are left there, and 14");
    let whole = tier.insert_len(4096 - HEADER_BYTES).unwrap();
    assert_eq!((place(&tier, whole).1, tier.object_bytes(4096 - HEADER_BYTES)), (0, 4096));
    tier.check();
}

impl Z3fold {
    fn insert_len(&self, bytes: usize) -> Option<u32> {
        let handle = self.reserve().ok()?;
        self.insert(handle, 1, header(), &[&vec![7; bytes]]).ok().map(|()| handle)
    }
}

#[test]
fn what_is_no_larger_than_a_chunk_is_in_no_frame() {
    let tier = Z3fold::new(1 << 20, 1000, 0).unwrap();
    let small = tier.insert_len(CHUNK_BYTES - HEADER_BYTES).unwrap();
    assert_eq!((tier.usage().objects, tier.small.usage().objects), (1, 1));
    let zpage = tier.insert_len(CHUNK_BYTES - HEADER_BYTES + 1).unwrap();
    assert_eq!((tier.usage().objects, tier.small.usage().objects), (2, 1));
    assert_eq!(tier.object_bytes(CHUNK_BYTES - HEADER_BYTES + 1), 2 * CHUNK_BYTES);
    // A zpage that is replaced by a stub leaves its frame, and comes back to one.
    let yes = |_: &Header, _: &[u8]| true;
    assert_eq!(tier.replace(zpage, header(), &[&[1; 25]], For::Leaving, yes), Ok(true));
    assert_eq!((tier.usage().objects, tier.small.usage().objects), (2, 2));
    assert_eq!(tier.usage().slabs, tier.small.usage().slabs, "no frame has a zpage");
    tier.check();
    assert_eq!(tier.replace(zpage, header(), &[&[1; 2500]], For::New, yes), Ok(true));
    assert_eq!(tier.read(zpage, |_, payload| payload.len()), Some(2500));
    tier.remove(small);
    tier.check();
}

/// What a frame gives up is enough for the stubs of what was in it, and more comes in.
#[test]
fn a_full_pool_evicts_and_takes_more() {
    let tier = Z3fold::new(64 * FRAME, 1 << 16, 0).unwrap();
    tier.keep_for_replacing(4 * FRAME);
    let all: Vec<u32> = std::iter::from_fn(|| put(&tier, 20, 1)).collect();
    assert!(all.len() > 100, "{} zpages", all.len());
    assert_eq!(put(&tier, 20, 1), None);
    for handle in &all[..30] {
        let yes = |_: &Header, _: &[u8]| true;
        assert_eq!(tier.replace(*handle, header(), &[&[1; 25]], For::Leaving, yes), Ok(true));
    }
    let more = std::iter::from_fn(|| put(&tier, 20, 2)).count();
    assert!(more >= 15, "{more} came in after 30 had left");
    tier.check();
}

fn left(tier: &Z3fold) -> [OwnedFd; 5] {
    tier.segments().map(|segment| segment.as_fd().try_clone_to_owned().unwrap())
}

/// Whoever moves the middle zpage, by way of the spare frame or not, and dies at any instruction, leaves it whole.
#[test]
fn a_move_may_end_anywhere() {
    for (goes, steps) in [(0, 20), (1, 20), (2, 11)] {
        let mut ended = false;
        for at in 0..300 {
            let tier = Z3fold::new(1 << 20, 1000, 0).unwrap();
            let zpages = [(20, 1), (30, 2), (10, 3)];
            let handles = zpages.map(|(chunks, of)| put(&tier, chunks, of).unwrap());
            if goes == 2 {
                // Between the middle one and the last is room enough that they do not overlap.
                tier.remove(handles[1]);
            }
            let gone = handles[goes % 2];
            let Some(mut child) = step::traced("a_move_may_end_anywhere", || tier.remove(gone))
            else {
                return;
            };
            ended = !(0..at * steps).all(|_| child.step());
            child.kill();
            let left = left(&tier);
            drop(tier);
            let stays: Vec<usize> = if goes == 2 { vec![2] } else { vec![1 - goes, 2] };
            let named = stays.iter().map(|i| handles[*i]);
            let adopted = Z3fold::adopt(1 << 20, left, named, |_, _| None, |_, _, _| Some(1));
            let (next, found) = adopted.unwrap();
            assert_eq!((found.blocks, found.lost.len()), (stays.len() as u64, 0), "at {at}");
            for i in stays {
                let (chunks, of) = zpages[i];
                holds(&next, handles[i], chunks, of);
            }
            Z3fold::check(&next);
            if ended {
                break;
            }
        }
        assert!(ended, "removing takes more instructions than were tried");
    }
}

/// For the suite that every tier is given to.
struct Frames;

impl crate::tier::conformance::Subject for Frames {
    type Tier = Z3fold;

    fn make(&self, limit_bytes: u64) -> Z3fold {
        Z3fold::new(limit_bytes, 1 << 16, 9).unwrap()
    }

    fn left(&self, tier: &Z3fold) -> [OwnedFd; 5] {
        left(tier)
    }
}

#[test]
fn it_is_a_tier() {
    crate::tier::conformance::all("it_is_a_tier", &Frames);
}

//! The pool's own promises: what it counts, and that no memory lies idle where it is wanted.

use super::*;
use crate::codec::Stored;

const FRAME: u64 = FRAME_BYTES as u64;

fn header() -> Header {
    Header { checksum: 1, handle: 0, len: 0, codec: Stored::Raw, framed: false }
}

/// An object of so many bytes, each its number.
fn put(pool: &Pool, bytes: usize, number: u8) -> Result<u32, NoRoom> {
    let handle = pool.reserve()?;
    let done = pool.insert(handle, 1, header(), &[&vec![number; bytes]]);
    done.map(|()| handle).inspect_err(|_| pool.unreserve(handle))
}

fn holds(pool: &Pool, handle: u32, bytes: usize, number: u8) {
    let is_it = |_: &Header, payload: &[u8]| *payload == vec![number; bytes];
    assert_eq!(pool.read(handle, is_it), Some(true));
}

#[test]
fn usage_says_what_is_there() {
    let pool = Pool::new(64 << 20, 5000, 0).unwrap();
    let empty = pool.usage();
    let tables = Usage { used_bytes: FRAME, handle_table_bytes: FRAME, ..Usage::default() };
    assert_eq!(empty, tables, "the first handles");
    // Objects of 100 and of 2000 bytes; the handles of the second take another frame.
    let small: Vec<u32> = (0..3).map(|n| put(&pool, 100, n).unwrap()).collect();
    let large: Vec<u32> = (0..600).map(|n| put(&pool, 2000, n as u8).unwrap()).collect();
    let usage = pool.usage();
    assert_eq!((usage.objects, usage.payload_bytes), (603, 3 * 100 + 600 * 2000));
    let object_bytes = 3 * pool.object_bytes(100) + 600 * pool.object_bytes(2000);
    assert_eq!(usage.object_bytes, object_bytes as u64);
    assert!(pool.object_bytes(100) >= 114 && pool.object_bytes(2000) >= 2014, "and a header");
    assert_eq!((usage.handle_table_bytes, usage.slab_table_bytes), (2 * FRAME, FRAME));
    // Two objects a frame, eight frames a slab.
    assert!(usage.slabs > 600 / 17 && usage.slabs < 600 / 12, "{usage:?}");
    assert_eq!(usage.used_bytes, pool.used_bytes());
    assert!(usage.used_bytes >= usage.object_bytes + 3 * FRAME);
    pool.check();
    small.iter().for_each(|handle| pool.remove(*handle));
    assert_eq!((pool.usage().objects, pool.usage().payload_bytes), (600, 600 * 2000));
    large.iter().for_each(|handle| pool.remove(*handle));
    let usage = pool.usage();
    assert_eq!((usage.objects, usage.object_bytes, usage.payload_bytes, usage.slabs), (0, 0, 0, 0));
    pool.check();
}

/// Fills a pool with objects of a frame each; their handles.
fn fill(pool: &Pool) -> Vec<u32> {
    std::iter::from_fn(|| put(pool, 4000, 4).ok()).collect()
}

#[test]
fn a_slab_that_grows_gets_the_frames_that_others_left() {
    let pool = Pool::new(40 * FRAME, 1 << 20, 0).unwrap();
    // One object in a slab that has a frame and could have more.
    let first = put(&pool, 1500, 1).unwrap();
    let pages = fill(&pool);
    pool.check();
    pages.iter().take(8).for_each(|handle| pool.remove(*handle));
    // 16 frames' worth is more than was left; all that was left is used.
    let more: Vec<u32> = std::iter::from_fn(|| put(&pool, 1500, 2).ok()).collect();
    assert!(more.len() >= 8 * 2, "only {} of at least 16", more.len());
    pool.check();
    holds(&pool, first, 1500, 1);
    more.iter().for_each(|handle| holds(&pool, *handle, 1500, 2));
    pages.iter().skip(8).for_each(|handle| holds(&pool, *handle, 4000, 4));
}

#[test]
fn handles_get_the_frames_that_slabs_left() {
    let pool = Pool::new(64 * FRAME, 1 << 20, 0).unwrap();
    let pages = fill(&pool);
    // As many handles as their first frame has room for.
    let in_use = pages.len() as u64 + 1;
    let reserved: Vec<u32> = (in_use..512).map(|_| pool.reserve().unwrap()).collect();
    assert_eq!(pool.reserve(), Err(NoRoom), "there is no frame for more");
    // A slab of eight goes, and its handles are wanted at once.
    pages.iter().take(8).for_each(|handle| pool.remove(*handle));
    assert!(pool.slabs.kept_frames() >= 8);
    assert!((0..8).all(|_| pool.reserve().is_ok()));
    assert!(pool.reserve().is_ok(), "the frames that were kept are for whoever needs one");
    reserved.iter().for_each(|handle| pool.unreserve(*handle));
}

#[test]
fn what_leaves_keeps_a_little_memory_and_the_rest_goes_to_the_kernel() {
    let pool = Pool::new(64 << 20, 1 << 20, 0).unwrap();
    let held = |pool: &Pool| pool.segments()[0].resident_bytes().unwrap() / FRAME;
    let pages: Vec<u32> = (0..1000).map(|_| put(&pool, 4000, 4).unwrap()).collect();
    assert!(held(&pool) >= 1000);
    for handle in pages {
        pool.remove(handle);
        // And the tables' own, and what a class has in advance.
        assert!(pool.slabs.kept_frames() <= 16 + 1100 / 64);
    }
    assert!((16..=32).contains(&pool.slabs.kept_frames()), "the next ones find some");
    assert_eq!(held(&pool), pool.slabs.kept_frames());
    let kept = pool.slabs.kept_frames();
    assert_eq!(pool.slabs.trim(&pool.budget), kept);
    assert_eq!((held(&pool), pool.slabs.kept_frames()), (0, 0));
    assert_eq!(pool.slabs.trim(&pool.budget), 0);
    pool.check();
}

/// For the suite that every tier is given to.
struct Pools;

impl crate::tier::conformance::Subject for Pools {
    type Tier = Pool;

    fn make(&self, limit_bytes: u64) -> Pool {
        Pool::new(limit_bytes, 1 << 16, 9).unwrap()
    }

    fn left(&self, pool: &Pool) -> [std::os::fd::OwnedFd; 3] {
        use std::os::fd::AsFd;
        pool.segments().map(|segment| segment.as_fd().try_clone_to_owned().unwrap())
    }
}

#[test]
fn it_is_a_tier() {
    crate::tier::conformance::all("it_is_a_tier", &Pools);
}

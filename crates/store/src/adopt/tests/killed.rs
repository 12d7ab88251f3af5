//! Killed between two operations, inside of one, and by surprise.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use clew_core::{CodecKind, PoolKind, Vpn};
use proptest::prelude::*;

use super::image::{ARENA, FRAME, HANDLES, RECORDS};
use super::step::{self, Child};
use super::world::{PAGE, config, op};
use super::{Content, Image, Model, Op, POOLS, Random, World};
use crate::codec::CodecContext;
use crate::segment::in_order;
use crate::{Entry, Segment, State, StoreConfig};

#[derive(Clone, Copy, Debug)]
enum Death {
    /// Between this operation and the next.
    Between,
    /// In this one, behind so many instructions.
    Inside(u32),
}

fn death() -> impl Strategy<Value = Option<Death>> {
    prop_oneof![
        12 => Just(None),
        3 => Just(Some(Death::Between)),
        1 => (0u32..12_000).prop_map(|steps| Some(Death::Inside(steps))),
        2 => (0u32..2000).prop_map(|steps| Some(Death::Inside(steps))),
    ]
}

/// Does `op` in a child; the successor of that child, and what is stored then.
fn die_inside(world: &mut World, model: &Model, op: &Op, steps: u32) -> Option<(World, Model)> {
    world.prepared = matches!(op, Op::Put { .. }).then(|| op.block());
    let mut scratch = model.clone();
    let child = step::traced("random_operations_survive", || world.apply(op, &mut scratch));
    world.prepared = None;
    let mut child = child?;
    for _ in 0..steps {
        if !child.step() {
            break;
        }
    }
    child.kill();
    let ids = world.ids();
    let (mut successor, _) = World::of_image(&world.image(), &ids);
    let now = successor.verify(model, &op.predict(&ids, model));
    Some((successor, now))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_survive(
        pool in proptest::sample::select(&POOLS),
        ops in proptest::collection::vec((op(), death()), 1..60),
    ) {
        let (mut world, mut model) = (World::of(pool), Model::new());
        for (op, death) in &ops {
            match death {
                Some(Death::Inside(steps)) => {
                    match die_inside(&mut world, &model, op, *steps) {
                        Some(successor) => (world, model) = successor,
                        None => world.apply(op, &mut model),
                    }
                }
                Some(Death::Between) => {
                    world.apply(op, &mut model);
                    let facts = world.store.facts();
                    let (mut successor, adopted) = world.succeeded();
                    prop_assert_eq!(&successor.verify(&model, &model), &model);
                    // All is as it was, but for what is kept free.
                    let found = successor.store.facts();
                    prop_assert_eq!(adopted.freed, 0);
                    prop_assert_eq!((adopted.blocks, adopted.pages), (facts.blocks, facts.pages));
                    prop_assert_eq!(
                        (found.objects, found.payload_bytes, found.object_bytes),
                        (facts.objects, facts.payload_bytes, facts.object_bytes)
                    );
                    prop_assert!(found.used_bytes <= facts.used_bytes);
                    world = successor;
                }
                None => world.apply(op, &mut model),
            }
        }
        prop_assert_eq!(&world.verify(&model, &model), &model);
        world.check();
        world.end();
    }
}

/// What is in `segments` at every instruction that changes them, while `child` does its work; the
/// last one is said to be so.
fn at_every_state(
    name: &str,
    child: Option<Child>,
    segments: &[&Segment],
    mut last: Image,
    mut look: impl FnMut(&Image, u64, bool),
) {
    let Some(mut child) = child else { return };
    let (mut steps, mut states) = (0u64, 0u64);
    loop {
        let runs = child.step();
        steps += 1;
        if !last.is_of(segments) {
            states += 1;
            let image = Image::of(segments);
            // Byte after byte of a payload: some of them will do.
            if states.is_multiple_of(32) || !image.is_a_byte_from(&last) {
                look(&image, states, !runs);
            }
            last = image;
        }
        if !runs {
            break;
        }
    }
    println!("{name}: {steps} instructions, {states} states");
    assert!(states > 0, "{name} changed nothing");
}

/// At every instruction of `op` that changes a segment: its successor has every page, and goes on.
fn at_every_instruction(name: &str, setup: &[Op], op: Op) {
    for pool in POOLS {
        at_every_instruction_of(pool, name, setup, &op);
    }
}

fn at_every_instruction_of(pool: PoolKind, name: &str, setup: &[Op], op: &Op) {
    let (mut world, mut model) = (World::sized(pool, config(), 300), Model::new());
    setup.iter().for_each(|op| world.apply(op, &mut model));
    let ids = world.ids();
    let after = op.predict(&ids, &model);
    let before = world.image();
    world.prepared = matches!(op, Op::Put { .. }).then(|| op.block());
    let mut scratch = model.clone();
    let child = step::traced(name, || world.apply(op, &mut scratch));
    at_every_state(name, child, &world.segments(), before, |image, state, last| {
        adopts(image, &ids, &model, &after, state.is_multiple_of(16) || last);
    });
}

fn adopts(image: &Image, ids: &[u32], before: &Model, after: &Model, thorough: bool) {
    let (mut world, _) = World::of_image(image, ids);
    let mut model = world.verify(before, after);
    if thorough {
        // Its successor dies too, without having done anything.
        let (mut second, adopted) = world.succeeded();
        assert_eq!(adopted.freed, 0, "the first one has freed all that there was");
        assert_eq!(second.verify(&model, &model), model);
        let put = Op::Put { space: 1, first: 100, pages: 3, kind: 0, seed: 9, codec: 0, chunk: 2 };
        second.apply(&put, &mut model);
        assert_eq!(second.verify(&model, &model), model);
        second.check();
        second.end();
    }
}

fn put(space: usize, first: u64, pages: u64, kind: u8, codec: usize) -> Op {
    Op::Put { space, first, pages, kind, seed: first * 1000 + u64::from(kind), codec, chunk: 2 }
}

/// Some of everything, with holes in the slabs.
fn some() -> Vec<Op> {
    let mut ops: Vec<Op> = (0..24).map(|i| put(0, i, 1, (i % 3) as u8 + 1, 1)).collect();
    ops.push(put(0, 30, 4, 0, 0));
    ops.push(put(1, 0, 3, 2, 1));
    ops.push(Op::Share { from: 0, first: 0, pages: 8, to: 1, at: 10 });
    ops.extend((0..24).step_by(5).map(|first| Op::Clear { space: 0, first, pages: 2 }));
    ops
}

#[test]
fn a_put_may_end_anywhere() {
    at_every_instruction("put of one word", &some(), put(0, 0, 1, 1, 1));
    at_every_instruction("put over another", &some(), put(0, 3, 1, 2, 1));
    at_every_instruction("put of a block with parts", &some(), put(0, 1, 2, 0, 0));
    at_every_instruction("first put of all", &[], put(0, 512, 1, 1, 0));
}

#[test]
fn a_release_may_end_anywhere() {
    let clear = |first, pages| Op::Clear { space: 0, first, pages };
    at_every_instruction("release of single pages", &some(), clear(2, 3));
    at_every_instruction("release of a block with parts", &some(), clear(30, 4));
    at_every_instruction("release of all", &some(), clear(0, 40));
    at_every_instruction("release with its slab", &[put(0, 0, 3, 0, 0)], clear(0, 3));
}

#[test]
fn a_compaction_may_end_anywhere() {
    // Blocks of about 2 KiB, 16 a slab, every other one of which goes.
    let block = |i: u64| Op::Put {
        space: 0,
        first: i * 8,
        pages: 8,
        kind: 2,
        seed: i * 100,
        codec: 1,
        chunk: 0,
    };
    let mut sparse: Vec<Op> = (0..60).map(block).collect();
    let clear = |i: u64| Op::Clear { space: 0, first: i * 16, pages: 8 };
    sparse.extend((0..30).map(clear));
    // Of z3fold, see its own tests: there is nothing to be moved but by a release.
    let pool = PoolKind::SizeClasses;
    at_every_instruction_of(pool, "compaction", &sparse, &Op::Compact { objects: 12 });
    at_every_instruction_of(pool, "trim", &some(), &Op::Compact { objects: 0 });
}

#[test]
fn a_space_may_come_and_go_anywhere() {
    let mut far = some();
    far.extend((1..6).map(|i| put(2, i * 512, 1, 1, 1)));
    at_every_instruction("end of a space", &far, Op::End { space: 2 });
    let zeros = (0..6).map(|i| Op::Zero { space: 2, first: i * 700, pages: 5 });
    let zeros: Vec<Op> = some().into_iter().chain(zeros).collect();
    at_every_instruction("a space with entries is dropped", &zeros, Op::Drop { space: 2 });
    far.push(Op::End { space: 2 });
    at_every_instruction("a leaf taken again", &far, put(1, 5000, 1, 1, 1));
    let zero = Op::Zero { space: 1, first: 510, pages: 4 };
    at_every_instruction("zeros over a border", &some(), zero);
    let share = Op::Share { from: 0, first: 0, pages: 6, to: 2, at: 1 << 40 };
    at_every_instruction("a share", &some(), share);
    let turn = Op::Turn { space: 0, first: 0, pages: 6, state: 3 };
    at_every_instruction("turns", &some(), turn);
}

#[test]
fn tables_may_grow_anywhere() {
    let word = |i: u64| put(0, i, 1, 1, 0);
    let handles: Vec<Op> = (0..511).map(word).collect();
    at_every_instruction("a second page of handles", &handles, word(511));
    let zero = |i: u64| Op::Zero { space: 0, first: i * 512, pages: 1 };
    let owners: Vec<Op> = (0..255).map(zero).collect();
    at_every_instruction("a second page of owners", &owners, zero(255));
}

/// More than one page of everything.
#[test]
fn a_large_store_is_found_again() {
    let config = StoreConfig { mem_limit_bytes: 64 << 20, disksize_pages: 1 << 20, ..config() };
    for pool in POOLS {
        large_store_is_found_again(World::sized(pool, config, 600), config);
    }
}

fn large_store_is_found_again(mut world: World, config: StoreConfig) {
    let mut model = Model::new();
    for i in 0..2200 {
        world.apply(&put(0, i * 131, 1, (i % 4 * 3 % 4) as u8, 1), &mut model);
        world.apply(&put(1, i * 3, 3, 0, 0), &mut model);
    }
    for i in 0..2000 {
        world.apply(&Op::Clear { space: (i % 2) as usize, first: i * 57, pages: 40 }, &mut model);
    }
    for _ in 0..2 {
        let before = world.store.facts();
        let fds = world.image().write();
        let (mut next, adopted, _) = World::adopt(fds, &world.ids(), config).unwrap();
        assert_eq!((adopted.freed, adopted.blocks), (0, before.blocks));
        assert!(next.store.facts().slab_table_bytes > 4096);
        next.check();
        next.verify(&model, &model);
        world = next;
        world.store.compact(300);
    }
    world.end();
}

/// The successor is killed too, on the way.
#[test]
fn an_adoption_may_end_anywhere() {
    POOLS.map(World::of).into_iter().for_each(adoption_may_end_anywhere);
}

fn adoption_may_end_anywhere(mut world: World) {
    let mut model = Model::new();
    some().iter().for_each(|op| world.apply(op, &mut model));
    // Blocks that nobody names, a space that nobody wants, memory that was not used yet.
    let mut ctx = CodecContext::new();
    for op in [put(0, 0, 3, 0, 0), put(0, 0, 1, 1, 0), put(0, 0, 9, 2, 0)] {
        world.store.put(&mut ctx, &op.block(), CodecKind::Lz4, 1024).unwrap();
    }
    world.apply(&put(2, 700, 5, 3, 1), &mut model);
    world.apply(&put(2, 7000, 5, 1, 1), &mut model);
    model.retain(|(space, _), _| *space != 2);
    let image = world.image();
    let next_slab = image.0[ARENA].frames.keys().max().unwrap() / 8 * 8 + 8;
    world.segments()[ARENA].populate(next_slab * FRAME, 2 * FRAME).unwrap();
    let ids = [0, 1];
    let before = world.image();
    let fds = world.fds();
    let child = step::traced("an_adoption_may_end_anywhere", || {
        // Dropped, it would free the leaves.
        std::mem::forget(World::adopt(fds, &ids, config()).unwrap());
    });
    let segments = world.segments();
    at_every_state("adoption", child, &segments, before, |image, state, last| {
        if state.is_multiple_of(3) || last {
            let (mut second, _) = World::of_image(image, &ids);
            assert_eq!(second.verify(&model, &model), model);
            second.end();
        }
    });
}

/// The kernel gives and takes memory page by page, and may be stopped on the way.
#[test]
fn memory_may_be_given_or_taken_by_halves() {
    let (mut world, mut model) = (World::new(), Model::new());
    some().iter().for_each(|op| world.apply(op, &mut model));
    let (ids, image) = (world.ids(), world.image());
    let arena = &image.0[ARENA].frames;
    let used = |slab: usize| (slab * 8..slab * 8 + 8).filter(|f| arena.contains_key(f)).count();
    let high = arena.keys().max().unwrap() / 8 + 1;
    let mut given = image.clone();
    for slab in (0..high).filter(|slab| used(*slab) < 8) {
        given.0[ARENA].frames.insert(slab * 8 + used(slab), vec![0; FRAME]);
    }
    // A slab begun, whose record there is; one whose record there is not; a page of each table.
    (0..3).for_each(|frame| drop(given.0[ARENA].frames.insert(high * 8 + frame, vec![0; FRAME])));
    given.0[ARENA].frames.insert(260 * 8, vec![0; FRAME]);
    for table in [RECORDS, HANDLES] {
        given.0[table].frames.insert(1, vec![0; FRAME]);
    }
    let mut taken = given.clone();
    // An empty slab of which the first frames are gone, and the last frame of each other.
    taken.0[ARENA].frames.remove(&(high * 8));
    for image in [&given, &taken] {
        let (mut next, _) = World::of_image(image, &ids);
        assert_eq!(next.verify(&model, &model), model);
        assert_eq!(next.store.facts().handle_table_bytes, 4096);
        next.end();
    }
}

// ---- several threads, killed by surprise ----------------------------------------------------

const THREADS: u64 = 3;
const OWN_PAGES: u64 = 96;

/// What each page should be: before, and behind what is being done to it. A number is a content;
/// zero is an absent page.
struct Ledger(Segment);

fn content(number: u64) -> Content {
    match number {
        0 => Content::Absent,
        1 => Content::Zero,
        number => Content::Page { kind: (number % 4) as u8, seed: number },
    }
}

impl Ledger {
    fn begin(&self, page: u64, number: u64) {
        self.0.word(page as usize * 2 + 1).store(number, Release);
        in_order();
    }

    fn done(&self, page: u64) {
        in_order();
        let number = self.0.word(page as usize * 2 + 1).load(Acquire);
        self.0.word(page as usize * 2).store(number, Release);
    }

    fn before(&self, page: u64) -> u64 {
        self.0.word(page as usize * 2).load(Acquire)
    }

    fn after(&self, page: u64) -> u64 {
        self.0.word(page as usize * 2 + 1).load(Acquire)
    }
}

/// Pages of all threads, side by side, in two spaces.
fn place(page: u64) -> (usize, Vpn) {
    ((page % 2) as usize, Vpn(page / 2 * 37))
}

fn work(world: &World, ledger: &Ledger, thread: u64, seed: u64) {
    let (mut random, mut ctx) = (Random(seed), CodecContext::new());
    let publish = |page: u64, number: u64, entry: Entry| {
        ledger.begin(page, number);
        let (space, vpn) = place(page);
        let old = world.spaces[space].store(vpn, entry).unwrap();
        ledger.done(page);
        world.release(old);
    };
    loop {
        let own = |i: u64| i % OWN_PAGES * THREADS + thread;
        let first = random.below(OWN_PAGES);
        match random.below(8) {
            0..4 => {
                let count = [1, 1, 1, 2, 4, 9][random.below(6) as usize];
                let numbers: Vec<u64> = (0..count).map(|_| random.next() | 2).collect();
                let block: Vec<u8> =
                    numbers.iter().flat_map(|number| content(*number).bytes()).collect();
                let codec = [CodecKind::Raw, CodecKind::Lz4][random.below(2) as usize];
                let Ok(handle) = world.store.put(&mut ctx, &block, codec, 4096) else { continue };
                for (i, number) in (0..).zip(numbers) {
                    let entry = Entry::with_block(State::Stored, handle, i as u16);
                    publish(own(first + i), number, entry);
                }
            }
            4 => publish(own(first), 1, Entry::new(State::Stored)),
            5 => {
                let (space, vpn) = place(own(first));
                let entry = world.spaces[space].load(vpn);
                if let Some(handle) = entry.handle() {
                    assert!(world.store.retain(handle));
                    let number = ledger.before(own(first));
                    publish(own(first + 1 + random.below(7)), number, entry);
                }
            }
            6 => (0..random.below(20)).for_each(|i| publish(own(first + i), 0, Entry::ABSENT)),
            _ => {
                world.store.compact(random.below(40) as usize);
            }
        }
    }
}

#[test]
fn threads_may_be_killed_by_surprise() {
    let limits = StoreConfig { mem_limit_bytes: 400 * 4096, ..config() };
    for pool in POOLS {
        threads_are_killed(World::of(pool), limits);
    }
}

fn threads_are_killed(mut world: World, limits: StoreConfig) {
    let seed = 0x5eed;
    let mut random = Random(seed);
    let ledger = Ledger(Segment::new("clew-ledger", 64 << 10).unwrap());
    let ids = world.ids();
    let mut freed = 0;
    for round in 0..40 {
        let child: Child = step::fork(|| {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (world, ledger) = (&world, &ledger);
                    let seed = seed + round * THREADS + thread;
                    scope.spawn(move || work(world, ledger, thread, seed));
                }
            });
        });
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        child.kill();
        let fds = world.fds();
        // It would free the leaves that it knows of.
        std::mem::forget(world);
        let (mut successor, adopted, damage) = World::adopt(fds, &ids, limits).unwrap();
        assert!(damage.iter().all(|d| d.pages.is_empty()) && adopted.damaged.is_empty());
        successor.check();
        freed += adopted.freed;
        let mut seen = BTreeMap::new();
        for page in 0..OWN_PAGES * THREADS {
            let (space, vpn) = place(page);
            let read = successor.read(ids[space], vpn.0).map(|read| read.unwrap());
            let may_be = [ledger.before(page), ledger.after(page)];
            let is = may_be.into_iter().find(|number| match content(*number) {
                Content::Absent => read.is_none(),
                content => read.as_deref() == Some(&content.bytes()[..]),
            });
            let Some(number) = is else {
                panic!("page {page} in round {round} is neither what it was nor what it should be")
            };
            assert!(read.is_none_or(|read| read.len() == PAGE));
            seen.insert(page, number);
        }
        for (page, number) in seen {
            ledger.begin(page, number);
            ledger.done(page);
        }
        world = successor;
    }
    println!("{freed} objects were put and not published");
    world.end();
}

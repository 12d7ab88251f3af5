//! A store with spaces, as the engine uses them, and a model of what every page should read.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use clew_core::{CodecKind, PoolKind, SpaceId, Vpn};
use proptest::prelude::*;

use super::Image;
use crate::codec::CodecContext;
use crate::codec::tests::block_of;
use crate::{
    AdoptError, Adopted, Damage, Entry, Handle, PutError, ReadError, Segment, Space, State, Store,
    StoreConfig, Tables,
};

pub const PAGE: usize = 4096;
const SPACES: usize = 3;
const CODECS: [CodecKind; 5] = [
    CodecKind::Raw,
    CodecKind::Lz4,
    CodecKind::Lzo,
    CodecKind::BaseDeltaImmediate,
    CodecKind::Zstd,
];
const CHUNKS: [u32; 5] = [256, 1024, 4096, 16384, 131072];
const STATES: [State; 6] =
    [State::Resident, State::Moving, State::Stored, State::Restoring, State::Parked, State::Lent];

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    Absent,
    Zero,
    Page { kind: u8, seed: u64 },
}

impl Content {
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Content::Absent | Content::Zero => vec![0; PAGE],
            Content::Page { kind: 0, seed } => {
                let mut random = super::Random(seed);
                (0..PAGE / 8).flat_map(|_| random.next().to_le_bytes()).collect()
            }
            Content::Page { kind: 1, seed } => (seed | 1).to_le_bytes().repeat(PAGE / 8),
            Content::Page { kind: 2, seed } => {
                let mut page = vec![(seed >> 8) as u8 | 1; PAGE];
                page[..8].copy_from_slice(&seed.to_le_bytes());
                page
            }
            Content::Page { seed, .. } => block_of(1, seed),
        }
    }
}

/// Page (space, page number) to what it holds; absent ones are not there.
pub type Model = BTreeMap<(u32, u64), Content>;

#[derive(Clone, Debug)]
pub enum Op {
    Put {
        space: usize,
        first: u64,
        pages: u64,
        kind: u8,
        seed: u64,
        codec: usize,
        chunk: usize,
    },
    Zero {
        space: usize,
        first: u64,
        pages: u64,
    },
    Clear {
        space: usize,
        first: u64,
        pages: u64,
    },
    Share {
        from: usize,
        first: u64,
        pages: u64,
        to: usize,
        at: u64,
    },
    Turn {
        space: usize,
        first: u64,
        pages: u64,
        state: usize,
    },
    Compact {
        objects: usize,
    },
    End {
        space: usize,
    },
    /// Without a look at what is in it, which must be no blocks.
    Drop {
        space: usize,
    },
}

fn vpn() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..40, 1 => 500u64..530, 1 => (1u64 << 40)..(1 << 40) + 20]
}

pub fn op() -> impl Strategy<Value = Op> {
    let space = || 0..SPACES;
    let put = (space(), vpn(), 0u8..4, any::<u64>(), 0usize..3, 0usize..5);
    let pages = prop_oneof![4 => Just(1u64), 2 => 2u64..8, 1 => 8u64..40];
    prop_oneof![
        8 => (put, pages).prop_map(|((space, first, kind, seed, codec, chunk), pages)| {
            Op::Put { space, first, pages, kind, seed, codec, chunk }
        }),
        1 => (space(), vpn(), 1u64..20)
            .prop_map(|(space, first, pages)| Op::Zero { space, first, pages }),
        4 => (space(), vpn(), 1u64..40)
            .prop_map(|(space, first, pages)| Op::Clear { space, first, pages }),
        2 => (space(), vpn(), 1u64..20, space(), vpn())
            .prop_map(|(from, first, pages, to, at)| Op::Share { from, first, pages, to, at }),
        2 => (space(), vpn(), 1u64..20, 0..STATES.len())
            .prop_map(|(space, first, pages, state)| Op::Turn { space, first, pages, state }),
        2 => (0usize..200).prop_map(|objects| Op::Compact { objects }),
        1 => space().prop_map(|space| Op::End { space }),
    ]
}

pub struct World {
    pub tables: Arc<Tables>,
    pub store: Store,
    pub spaces: Vec<Space>,
    next_space: u32,
    ctx: CodecContext,
    /// What is to be put next, if somebody made it already.
    pub prepared: Option<Vec<u8>>,
}

/// Whatever the pool, a successor has the same.
pub const POOLS: [PoolKind; 2] = [PoolKind::SizeClasses, PoolKind::Z3fold];

pub fn config() -> StoreConfig {
    StoreConfig { page_bytes: PAGE, mem_limit_bytes: 200 * 4096, disksize_pages: 600 }
}

impl World {
    pub fn new() -> World {
        World::of(PoolKind::SizeClasses)
    }

    pub fn of(pool: PoolKind) -> World {
        World::sized(pool, config(), 64)
    }

    /// With `leaves` leaves.
    pub fn sized(pool: PoolKind, config: StoreConfig, leaves: u64) -> World {
        let tables = Arc::new(Tables::new(leaves * 512).unwrap());
        let space = |id| Space::new(SpaceId(id), Arc::clone(&tables));
        World {
            store: Store::of(pool, config).unwrap(),
            spaces: (0..SPACES as u32).map(space).collect(),
            next_space: SPACES as u32,
            ctx: CodecContext::new(),
            tables,
            prepared: None,
        }
    }

    pub fn segments(&self) -> Vec<&Segment> {
        self.tables.segments().into_iter().chain(self.store.segments()).collect()
    }

    pub fn fds(&self) -> Vec<OwnedFd> {
        let fd = |segment: &Segment| segment.as_fd().try_clone_to_owned().unwrap();
        self.segments().into_iter().map(fd).collect()
    }

    pub fn image(&self) -> Image {
        Image::of(&self.segments())
    }

    /// The successor that wants `ids`.
    pub fn adopt(
        mut fds: Vec<OwnedFd>,
        ids: &[u32],
        config: StoreConfig,
    ) -> Result<(World, Adopted, Vec<Damage>), AdoptError> {
        let of_store = fds.split_off(2);
        let (tables, mut found) = Tables::adopt(fds.try_into().unwrap())?;
        tables.settle();
        let tables = Arc::new(tables);
        let (spaces, damage): (Vec<Space>, Vec<Damage>) = ids
            .iter()
            .map(|id| {
                let leaves = found.remove(&SpaceId(*id)).unwrap_or_default();
                Space::adopt(SpaceId(*id), Arc::clone(&tables), leaves)
            })
            .unzip();
        found.into_values().for_each(|leaves| tables.discard(leaves));
        let references: Vec<Handle> = spaces.iter().flat_map(Space::handles).collect();
        let (store, adopted) = Store::adopt(config, of_store, references)?;
        let next_space = ids.iter().max().map_or(0, |id| id + 1);
        let ctx = CodecContext::new();
        Ok((World { tables, store, spaces, next_space, ctx, prepared: None }, adopted, damage))
    }

    pub fn ids(&self) -> Vec<u32> {
        self.spaces.iter().map(|space| space.id().0).collect()
    }

    /// A successor by way of a copy; without damage there is no error.
    pub fn succeeded(&self) -> (World, Adopted) {
        World::of_image(&self.image(), &self.ids())
    }

    pub fn of_image(image: &Image, ids: &[u32]) -> (World, Adopted) {
        let (world, adopted, damage) = World::adopt(image.write(), ids, config()).unwrap();
        assert!(damage.iter().all(|damage| damage.pages.is_empty()), "{damage:?}");
        assert_eq!(adopted.damaged, []);
        world.check();
        (world, adopted)
    }

    pub fn release(&self, entry: Entry) {
        if let Some(handle) = entry.handle() {
            self.store.release(handle);
        }
    }

    fn publish(&self, space: usize, vpn: u64, entry: Entry) -> bool {
        match self.spaces[space].store(Vpn(vpn), entry) {
            Ok(old) => {
                self.release(old);
                true
            }
            Err(_) => {
                self.release(entry);
                false
            }
        }
    }

    /// Does it, and tells what changed; where there was no room it is not done.
    pub fn apply(&mut self, op: &Op, model: &mut Model) {
        match *op {
            Op::Put { space, first, pages, codec, chunk, .. } => {
                let id = self.spaces[space].id().0;
                let contents: Vec<_> = op.put_contents().collect();
                let block = self.prepared.take().unwrap_or_else(|| op.block());
                match self.store.put(&mut self.ctx, &block, CODECS[codec], CHUNKS[chunk]) {
                    Ok(handle) => {
                        for (i, content) in (0..pages).zip(contents) {
                            let entry = Entry::with_block(State::Stored, handle, i as u16);
                            if self.publish(space, first + i, entry) {
                                model.insert((id, first + i), content);
                            }
                        }
                    }
                    Err(PutError::Full { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Zero { space, first, pages } => {
                let id = self.spaces[space].id().0;
                for vpn in first..first + pages {
                    if self.publish(space, vpn, Entry::new(State::Stored)) {
                        model.insert((id, vpn), Content::Zero);
                    }
                }
            }
            Op::Clear { space, first, pages } => self.clear(space, first, pages, model),
            Op::Share { from, first, pages, to, at } => {
                let (from_id, to_id) = (self.spaces[from].id().0, self.spaces[to].id().0);
                for i in 0..pages {
                    let entry = self.spaces[from].load(Vpn(first + i));
                    let Some(content) = model.get(&(from_id, first + i)).copied() else { continue };
                    if let Some(handle) = entry.handle() {
                        assert!(self.store.retain(handle));
                    }
                    let entry = entry.with_state(State::Stored);
                    if self.publish(to, at + i, entry) {
                        model.insert((to_id, at + i), content);
                    }
                }
            }
            Op::Turn { space, first, pages, state } => {
                for vpn in (first..first + pages).map(Vpn) {
                    let entry = self.spaces[space].load(vpn);
                    if entry.handle().is_some() {
                        let turned = entry.with_state(STATES[state]).with(Entry::WANTED);
                        self.spaces[space].compare_exchange(vpn, entry, turned).unwrap();
                    }
                }
            }
            Op::Compact { objects } => {
                self.store.compact(objects);
            }
            Op::End { space } | Op::Drop { space } => {
                if matches!(op, Op::End { .. }) {
                    self.clear(space, 0, u64::MAX, model);
                }
                let old = self.spaces[space].id().0;
                model.retain(|(id, _), _| *id != old);
                let id = SpaceId(self.next_space);
                self.next_space += 1;
                self.spaces[space] = Space::new(id, Arc::clone(&self.tables));
            }
        }
    }

    fn clear(&self, space: usize, first: u64, pages: u64, model: &mut Model) {
        let id = self.spaces[space].id().0;
        clear(&self.spaces[space], first, pages, |vpn, entry| {
            self.release(entry);
            model.remove(&(id, vpn.0));
        });
    }

    /// Reads a page as a program would; `None` if there is none.
    pub fn read(&mut self, space: u32, vpn: u64) -> Option<Result<Vec<u8>, ReadError>> {
        let table = self.spaces.iter().find(|s| s.id().0 == space)?;
        let entry = table.load(Vpn(vpn));
        if entry.is_absent() {
            return None;
        }
        let mut out = vec![0; PAGE];
        Some(match entry.handle() {
            None => Ok(out),
            Some(handle) => self
                .store
                .get(&mut self.ctx, handle, entry.index(), &mut out)
                .and_then(crate::Get::here)
                .map(|()| out),
        })
    }

    /// Every page holds what it should: what it did before an operation, or what it would behind it.
    /// Answers what it is.
    pub fn verify(&mut self, before: &Model, after: &Model) -> Model {
        let mut now = Model::new();
        let keys: Vec<_> = before.keys().chain(after.keys()).copied().collect();
        for key in keys {
            let read = self.read(key.0, key.1).map(|read| read.unwrap());
            let may = [before, after].map(|model| model.get(&key).copied());
            let is = may.into_iter().flatten().find(|c| Some(c.bytes()) == read);
            match (is, read) {
                (Some(content), _) => {
                    now.insert(key, content);
                }
                (None, None) => assert!(may.contains(&None), "page {key:?} is lost: {may:?}"),
                (None, Some(_)) => panic!("page {key:?} is another, not {may:?}"),
            }
        }
        let pages: usize = self
            .spaces
            .iter()
            .map(|space| {
                let mut pages = 0;
                space.for_range(Vpn(0), u64::MAX, |_, _| pages += 1);
                let counts = space.counts();
                let sum = counts.resident + counts.moving + counts.stored + counts.restoring;
                assert_eq!(sum + counts.parked + counts.lent, pages);
                pages as usize
            })
            .sum();
        assert_eq!(pages, now.len(), "there are pages that nobody wrote");
        now
    }

    /// The invariants of store and tables, and that the kernel counts as we do.
    pub fn check(&self) {
        self.store.check();
        let held: u64 = self.tables.segments().iter().map(|s| s.resident_bytes().unwrap()).sum();
        assert_eq!(held, self.tables.used_bytes(), "the kernel counts tables as we do");
    }

    /// Gives everything back: nothing is left.
    pub fn end(mut self) {
        let mut model = Model::new();
        for space in 0..self.spaces.len() {
            self.clear(space, 0, u64::MAX, &mut model);
        }
        self.check();
        self.store.compact(0);
        let facts = self.store.facts();
        assert_eq!((facts.blocks, facts.pages, facts.objects, facts.payload_bytes), (0, 0, 0, 0));
        assert_eq!(facts.used_bytes, facts.handle_table_bytes + facts.slab_table_bytes);
        self.spaces.clear();
        assert_eq!(self.tables.used_bytes() % 4096, 0);
        self.check();
        // Nobody has anything: no more than the page with the seed.
        let (world, adopted) = self.succeeded();
        assert_eq!(adopted, Adopted::default());
        assert_eq!((world.store.used_bytes(), world.tables.used_bytes()), (4096, 0));
    }
}

impl Op {
    /// The bytes that a put puts.
    pub fn block(&self) -> Vec<u8> {
        self.put_contents().flat_map(Content::bytes).collect()
    }

    fn put_contents(&self) -> impl Iterator<Item = Content> + use<> {
        let Op::Put { pages, kind, seed, .. } = *self else { unreachable!() };
        (0..pages).map(move |i| Content::Page { kind, seed: seed.wrapping_add(i) })
    }

    /// What it makes of `model`, for spaces with these ids.
    pub fn predict(&self, ids: &[u32], model: &Model) -> Model {
        let mut after = model.clone();
        match *self {
            Op::Put { space, first, .. } => {
                let pages = (first..).zip(self.put_contents());
                after.extend(pages.map(|(vpn, content)| ((ids[space], vpn), content)));
            }
            Op::Zero { space, first, pages } => {
                let pages = first..first + pages;
                after.extend(pages.map(|vpn| ((ids[space], vpn), Content::Zero)));
            }
            Op::Clear { space, first, pages } => after
                .retain(|(id, vpn), _| *id != ids[space] || !(first..first + pages).contains(vpn)),
            Op::Share { from, first, pages, to, at } => {
                for i in 0..pages {
                    if let Some(content) = after.get(&(ids[from], first + i)).copied() {
                        after.insert((ids[to], at + i), content);
                    }
                }
            }
            Op::Turn { .. } | Op::Compact { .. } => {}
            Op::End { space } | Op::Drop { space } => after.retain(|(id, _), _| *id != ids[space]),
        }
        after
    }
}

/// Makes pages absent and calls `f` with what each of them was.
pub fn clear(space: &Space, first: u64, pages: u64, mut f: impl FnMut(Vpn, Entry)) {
    let mut found = Vec::new();
    space.for_range(Vpn(first), pages, |vpn, entry| found.push((vpn, entry)));
    for (vpn, entry) in found {
        space.store(vpn, Entry::ABSENT).unwrap();
        f(vpn, entry);
    }
}

//! The mechanism that only counts tells what the real one tells.

use std::collections::BTreeMap;

use clew_core::{
    CodecKind, DonorId, Event, FlashForm, Group, PageFacts, PageId, PageRun, PoolKind, SpaceId,
    TierFacts, Vpn,
};
use clew_store::flash::LogId;
use clew_store::{State, StoreConfig};
use clew_trace::{ContentId, ContentsKind, Draft, Header, Provenance, Source, Trace, Writer};
use proptest::prelude::*;

use super::{Buffer, Bytes, FarTier, Mechanism, SizeModel, Sizes};
use crate::costs::{Clock, Costs, FarCost, LinkCost};
use crate::world::{Lookahead, World};

const PAGES: u64 = 80;
const CONTENTS: u32 = 400;
const SPACE: SpaceId = SpaceId(3);

fn page(vpn: u64) -> PageId {
    PageId::new(SPACE, Vpn(0x1000 + vpn))
}

fn run(vpn: u64, count: u32) -> PageRun {
    PageRun { first: page(vpn), count }
}

/// Contents that all differ, a third of each as good as random, and none of which are zeros.
fn trace(directory: &std::path::Path) -> Trace {
    let path = directory.join("contents.clew");
    let provenance = Provenance::new(Source::Generated, "a test");
    let header = Header { page_bytes: 4096, contents: ContentsKind::Bytes, provenance };
    let mut writer =
        Writer::new(Draft::new(&path, false).expect("a draft"), &header).expect("a writer");
    for id in 0..CONTENTS {
        let mut bytes = vec![id as u8 ^ 0x5a; 4096];
        let mut random = u64::from(id) + 1;
        bytes[..1300].fill_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        });
        bytes[..4].copy_from_slice(&(id + 1).to_le_bytes());
        assert_eq!(writer.bytes(&bytes).expect("contents"), ContentId(id));
    }
    let (draft, _) = writer.finish().expect("the end");
    draft.commit().expect("a file");
    Trace::open(&path).expect("what was written")
}

#[derive(Clone, Debug)]
enum Act {
    Touch(u64),
    Write(u64),
    Out(Vec<(u64, u64)>, u32, bool),
    /// Onto flash, past the pool.
    Far(u64, u64, FlashForm),
    /// From the pool to flash.
    Evict(u64, u64, FlashForm),
    Restore(u64, u64, bool),
    Free(u64, u32),
    Move(u64, u32, u64),
    DropKept(u64),
    Adopt(u64, u32),
}

fn act() -> impl Strategy<Value = Act> {
    let vpn = || 0..PAGES - 16;
    let form = || prop_oneof![Just(FlashForm::AsStored), Just(FlashForm::Pages)];
    let groups = prop::collection::vec((vpn(), 1u64..9), 1..6);
    let chunk = prop_oneof![Just(1024u32), Just(4096), Just(8192), Just(32768)];
    prop_oneof![
        4 => vpn().prop_map(Act::Touch),
        2 => vpn().prop_map(Act::Write),
        4 => (groups, chunk, any::<bool>()).prop_map(|(g, c, p)| Act::Out(g, c, p)),
        1 => (vpn(), 1u64..9, form()).prop_map(|(a, n, form)| Act::Far(a, n, form)),
        2 => (vpn(), 1u64..16, form()).prop_map(|(a, n, form)| Act::Evict(a, n, form)),
        3 => (vpn(), 1u64..50, any::<bool>()).prop_map(|(a, n, p)| Act::Restore(a, n, p)),
        1 => (vpn(), 1u32..12).prop_map(|(a, n)| Act::Free(a, n)),
        1 => (vpn(), 1u32..12, PAGES..2 * PAGES).prop_map(|(a, n, to)| Act::Move(a, n, to)),
        1 => vpn().prop_map(Act::DropKept),
        2 => (vpn(), 1u32..16).prop_map(|(a, n)| Act::Adopt(a, n)),
    ]
}

/// Pages as one group, in chunks of a page.
fn single(first: u64, count: u64) -> Group {
    Group {
        pages: (first..first + count).map(page).collect(),
        hotness: None,
        codec: CodecKind::Lz4,
        chunk_bytes: 4096,
        park_siblings: false,
    }
}

/// Both, side by side, and what pages hold.
struct Both<'a> {
    bytes: Bytes,
    sizes: Sizes,
    world: World<'a>,
    next: u32,
}

impl Both<'_> {
    fn same(&mut self, act: impl Fn(&mut dyn Mechanism, &World<'_>, &mut Vec<Event>)) {
        let (mut real, mut counted) = (Vec::new(), Vec::new());
        act(&mut self.bytes, &self.world, &mut real);
        act(&mut self.sizes, &self.world, &mut counted);
        let shown = |events: &[Event]| {
            let without_bytes = |event: &Event| match *event {
                Event::Stored { page, tier, .. } => Event::Stored { page, tier, bytes: 0 },
                ref other => other.clone(),
            };
            format!("{:?}", events.iter().map(without_bytes).collect::<Vec<_>>())
        };
        assert_eq!(shown(&real), shown(&counted));
        assert_eq!(self.bytes.resident_pages(), self.sizes.resident_pages());
        assert_eq!(self.bytes.parked_pages(), self.sizes.parked_pages());
        assert_eq!(self.bytes.counts(SPACE), self.sizes.counts(SPACE));
        assert_eq!(self.bytes.pool().pages, self.sizes.pool().pages);
        let far = |logs: Vec<(LogId, TierFacts)>| -> Vec<(LogId, u64)> {
            logs.into_iter().map(|(log, facts)| (log, facts.pages)).collect()
        };
        assert_eq!(far(self.bytes.logs()), far(self.sizes.logs()));
        for vpn in 0..3 * PAGES {
            assert_eq!(self.bytes.state(page(vpn)), self.sizes.state(page(vpn)), "page {vpn}");
        }
    }

    /// A new page gets contents: where all pages are as large, zeros are no exception.
    fn touch(&mut self, vpn: u64) {
        let is_new = self.bytes.state(page(vpn)) == State::Absent;
        self.fault(vpn);
        if is_new {
            self.fill(vpn);
        }
    }

    fn fault(&mut self, vpn: u64) {
        if self.bytes.state(page(vpn)) != State::Resident {
            self.same(|mechanism, world, events| {
                mechanism.fault(page(vpn), Some(world), events).expect("a fault");
            });
        }
    }

    fn write(&mut self, vpn: u64) {
        self.fault(vpn);
        self.fill(vpn);
    }

    fn fill(&mut self, vpn: u64) {
        self.world.set(page(vpn), ContentId(self.next % CONTENTS));
        self.next += 1;
        self.bytes.written(page(vpn));
        self.sizes.written(page(vpn));
    }

    fn play(&mut self, act: Act) {
        match act {
            Act::Touch(vpn) => self.touch(vpn),
            Act::Write(vpn) => self.write(vpn),
            Act::Out(groups, chunk, park) => {
                let mut seen = std::collections::HashSet::new();
                let groups: Vec<Group> = groups
                    .into_iter()
                    .map(|(first, count)| {
                        let new = (first..first + count).filter(|vpn| seen.insert(*vpn));
                        new.map(page).collect::<Vec<_>>()
                    })
                    .filter(|pages| !pages.is_empty())
                    .map(|pages| Group {
                        chunk_bytes: chunk.min(pages.len() as u32 * 4096),
                        pages,
                        hotness: None,
                        codec: CodecKind::Lz4,
                        park_siblings: park,
                    })
                    .collect();
                self.same(|mechanism, world, events| {
                    mechanism.swap_out(SPACE, &groups, Some(world), events).expect("a swap-out");
                });
            }
            Act::Far(first, count, form) => {
                let group = single(first, count);
                self.same(|mechanism, world, events| {
                    let groups = std::slice::from_ref(&group);
                    let to = (log_of(first), form);
                    mechanism.put_far(SPACE, groups, to, Some(world), events).expect("a swap-out");
                });
            }
            Act::Evict(first, count, form) => {
                let group = single(first, count);
                self.same(|mechanism, _, events| {
                    let groups = std::slice::from_ref(&group);
                    let to = (log_of(first), form);
                    mechanism.evict(SPACE, groups, to, events).expect("an eviction");
                });
            }
            Act::Restore(first, count, park) => {
                let pages: Vec<PageId> = (first..first + count).map(page).collect();
                self.same(|mechanism, world, events| {
                    mechanism.restore(&pages, park, Some(world), events).expect("a restore");
                });
            }
            Act::Free(first, count) => {
                self.same(|mechanism, _, _| mechanism.free(run(first, count)));
                self.world.free(run(first, count));
            }
            Act::Move(first, count, to) => {
                self.same(|mechanism, _, _| {
                    mechanism.moved(run(first, count), page(to)).expect("a move");
                });
                self.world.moved(run(first, count), page(to));
            }
            Act::DropKept(vpn) => {
                let dropped = self.bytes.drop_kept(page(vpn));
                let counted = self.sizes.drop_kept(page(vpn));
                let frees = |dropped: Option<u64>| dropped.map(|bytes| bytes > 0);
                assert_eq!(frees(dropped), frees(counted), "page {vpn}");
            }
            Act::Adopt(first, count) => {
                let absent: BTreeMap<u64, bool> = (first..first + u64::from(count))
                    .map(|vpn| (vpn, self.bytes.state(page(vpn)) == State::Absent))
                    .collect();
                self.same(|mechanism, _, events| {
                    mechanism.adopt(run(first, count), events).expect("pages");
                });
                for (vpn, _) in absent.into_iter().filter(|(_, absent)| *absent) {
                    self.write(vpn);
                }
            }
        }
    }
}

/// What goes far goes to flash or to a donor, by where it is.
fn log_of(vpn: u64) -> LogId {
    if vpn.is_multiple_of(2) { LogId::FLASH } else { LogId::at(DonorId::FIRST) }
}

fn far_tiers(costs: &Costs) -> Vec<FarTier> {
    let link = LinkCost { round_trip_ns: 3e5, byte_ns: 8.7, chunk_ns: 1e4, chunk_bytes: 64 << 10 };
    let flash = FarCost::Flash(costs.flash().expect("what flash costs"));
    let tier = |log, cost| FarTier { log, bytes: 64 << 20, cost };
    vec![tier(LogId::FLASH, flash), tier(LogId::at(DonorId::FIRST), FarCost::Link(link))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn both_tell_the_same(
        acts in prop::collection::vec(act(), 1..60),
        retain in any::<bool>(),
        keep in any::<bool>(),
        buffer in 1usize..40,
        far in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let trace = trace(directory.path());
        let limits = StoreConfig {
            page_bytes: 4096,
            mem_limit_bytes: 64 << 20,
            disksize_pages: 1 << 20,
        };
        let costs = Costs::reference();
        let buffer = Some(Buffer { pages: buffer, keep });
        let clock = Clock::Modelled(costs.clone());
        let lookahead = Lookahead::default();
        let far: Vec<FarTier> = if far { far_tiers(&costs) } else { Vec::new() };
        let ratio = SizeModel::Ratio(3.0);
        let mut both = Both {
            bytes: Bytes::new(&trace, PoolKind::SizeClasses, limits, retain, buffer, clock, &far).expect("a store"),
            sizes: Sizes::new(ratio, PoolKind::SizeClasses, limits, retain, buffer, costs, &far).expect("tables"),
            world: World::new(&lookahead),
            next: 0,
        };
        both.bytes.start(SPACE).expect("a space");
        both.sizes.start(SPACE).expect("a space");
        for vpn in 0..PAGES {
            both.write(vpn);
        }
        for act in acts {
            both.play(act);
        }
        both.bytes.end(SPACE);
        both.sizes.end(SPACE);
        prop_assert_eq!((both.bytes.pool().pages, both.sizes.pool().pages), (0, 0));
        prop_assert_eq!((both.bytes.resident_pages(), both.sizes.resident_pages()), (0, 0));
        prop_assert_eq!(both.sizes.pool_used_bytes(), 0);
    }
}

#[test]
fn wrong_bytes_are_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = trace(directory.path());
    let limits =
        StoreConfig { page_bytes: 4096, mem_limit_bytes: 64 << 20, disksize_pages: 1 << 20 };
    let clock = Clock::Modelled(Costs::reference());
    let mut bytes =
        Bytes::new(&trace, PoolKind::SizeClasses, limits, true, None, clock, &[]).expect("a store");
    let lookahead = Lookahead::default();
    let mut world = World::new(&lookahead);
    bytes.start(SPACE).expect("a space");
    let mut events = Vec::new();
    bytes.fault(page(0), Some(&world), &mut events).expect("a first touch");
    world.set(page(0), ContentId(7));
    let group = Group {
        pages: vec![page(0)],
        hotness: None,
        codec: CodecKind::Lz4,
        chunk_bytes: 4096,
        park_siblings: false,
    };
    bytes.swap_out(SPACE, &[group], Some(&world), &mut events).expect("a swap-out");
    // The world says otherwise than what was stored.
    world.set(page(0), ContentId(8));
    let error = bytes.fault(page(0), Some(&world), &mut events).expect_err("other bytes");
    assert!(matches!(error, crate::LabError::WrongBytes { .. }), "{error}");
    assert!(!error.is_bad_input());
}

/// Ariadne 4.4: a page that was decompressed ahead for nothing is compressed again, in chunks of the size
/// that packing gave it. What it takes there is what it took before, and with the daemon's mover too.
#[test]
fn what_is_pushed_out_of_the_buffer_takes_what_it_took() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = trace(directory.path());
    let limits =
        StoreConfig { page_bytes: 4096, mem_limit_bytes: 64 << 20, disksize_pages: 1 << 20 };
    let lookahead = Lookahead::default();
    let mut world = World::new(&lookahead);
    let costs = Costs::reference();
    let buffer = Some(Buffer { pages: 1, keep: false });
    let clock = Clock::Modelled(costs.clone());
    let mut bytes = Bytes::new(&trace, PoolKind::SizeClasses, limits, false, buffer, clock, &[])
        .expect("a store");
    let mut sizes =
        Sizes::new(SizeModel::Table, PoolKind::SizeClasses, limits, false, buffer, costs, &[])
            .expect("tables");
    let chunks = [(0, 256), (1, 2048), (2, 4096)];
    let both: [&mut dyn Mechanism; 2] = [&mut bytes, &mut sizes];
    for mechanism in both {
        let mut events = Vec::new();
        mechanism.start(SPACE).expect("a space");
        for (vpn, chunk_bytes) in chunks {
            mechanism.fault(page(vpn), Some(&world), &mut events).expect("a first touch");
            world.set(page(vpn), ContentId(vpn as u32));
            let group = Group {
                pages: vec![page(vpn)],
                hotness: None,
                codec: CodecKind::Lz4,
                chunk_bytes,
                park_siblings: false,
            };
            mechanism.swap_out(SPACE, &[group], Some(&world), &mut events).expect("a swap-out");
        }
        let stored = |events: &[Event]| {
            let bytes = events.iter().filter_map(|event| match event {
                Event::Stored { page, bytes, .. } => Some((*page, *bytes)),
                _ => None,
            });
            bytes.collect::<Vec<_>>()
        };
        let before = stored(&events);
        assert!(before.windows(2).all(|two| two[0].1 > two[1].1), "{before:?}");
        events.clear();
        for vpn in [0, 1, 2, 0] {
            mechanism.restore(&[page(vpn)], true, Some(&world), &mut events).expect("a restore");
        }
        assert_eq!(stored(&events), before);
    }
}

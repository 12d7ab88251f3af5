//! AdaptiveComp against a naive transcription of Ariadne 4.3, over random rounds of victims.

use std::collections::BTreeSet;

use clew_core::{CodecKind, Group, Hotness, Packing, PageId, Unit, Victim};
use clew_policy::packing::adaptive_comp::{AdaptiveComp, ChunkSizes, Params, Successive};
use proptest::prelude::*;

use clew_conformance::{World, page, run};

const SIZES: ChunkSizes = ChunkSizes { hot: 1 << 10, warm: 2 << 10, cold: 16 << 10 };

fn named(sizes: &str) -> Result<ChunkSizes, String> {
    sizes.to_string().try_into()
}

fn params(sizes: ChunkSizes, successive: Successive) -> Params {
    Params {
        sizes,
        hot_codec: CodecKind::Lz4,
        warm_codec: CodecKind::Raw,
        cold_codec: CodecKind::Zstd,
        successive,
        park_siblings: false,
    }
}

/// What becomes of `victims`: groups, and what is left. Each space fills one block after another.
fn naive(
    params: Params,
    page_bytes: u32,
    victims: &[(PageId, Option<Hotness>)],
    flush: bool,
) -> (Vec<Group>, Vec<PageId>) {
    let mut groups = Vec::new();
    for (page, hotness) in victims {
        let (chunk, codec) = match hotness {
            Some(Hotness::Cold) => continue,
            Some(Hotness::Hot) => (params.sizes.hot, params.hot_codec),
            Some(Hotness::Warm) | None => (params.sizes.warm, params.warm_codec),
        };
        groups.push(Group {
            pages: vec![*page],
            hotness: *hotness,
            codec,
            chunk_bytes: chunk.min(page_bytes),
            park_siblings: false,
        });
    }
    let cold: Vec<PageId> =
        victims.iter().filter(|(_, h)| *h == Some(Hotness::Cold)).map(|(p, _)| *p).collect();
    let mut left = Vec::new();
    let block_pages = (params.sizes.cold / page_bytes).max(1) as usize;
    for space in 0..3 {
        let mut block = Vec::new();
        let mut pages: Vec<PageId> =
            cold.iter().copied().filter(|page| page.space().0 == space).collect();
        if params.successive == Successive::Addresses {
            pages.sort();
        }
        for page in pages {
            block.push(page);
            if block.len() == block_pages {
                groups.push(cold_block(params, page_bytes, std::mem::take(&mut block)));
            }
        }
        if flush && !block.is_empty() {
            groups.push(cold_block(params, page_bytes, block));
        } else {
            left.extend(block);
        }
    }
    left.sort_by_key(|page| cold.iter().position(|at| at == page));
    (groups, left)
}

fn cold_block(params: Params, page_bytes: u32, pages: Vec<PageId>) -> Group {
    Group {
        hotness: Some(Hotness::Cold),
        codec: params.cold_codec,
        chunk_bytes: params.sizes.cold.min(page_bytes * pages.len() as u32),
        park_siblings: params.park_siblings,
        pages,
    }
}

fn victims_of(pages: &[(PageId, Option<Hotness>)]) -> Vec<Victim> {
    let victim = |(page, hotness): &(PageId, Option<Hotness>)| Victim {
        unit: Unit::Page(*page),
        hotness: *hotness,
    };
    pages.iter().map(victim).collect()
}

fn left_of(victims: &[Victim]) -> Vec<PageId> {
    let page = |victim: &Victim| match victim {
        Victim { unit: Unit::Page(page), hotness: Some(Hotness::Cold) } => *page,
        other => panic!("{other:?} was left"),
    };
    victims.iter().map(page).collect()
}

proptest! {
    #[test]
    fn groups_agree_with_a_naive_transcription(
        page_bytes in prop_oneof![Just(4096u32), Just(16 << 10)],
        hot in prop_oneof![Just(256u32), Just(512), Just(1 << 10)],
        warm in prop_oneof![Just(2u32 << 10), Just(4 << 10)],
        cold in prop_oneof![Just(16u32 << 10), Just(32 << 10)],
        successive in prop_oneof![Just(Successive::Victims), Just(Successive::Addresses)],
        rounds in proptest::collection::vec(
            (
                proptest::collection::btree_map((0u32..3, 0u64..60), 0u8..8, 0..40),
                any::<bool>(),
                any::<prop::sample::Index>(),
            ),
            1..5,
        ),
    ) {
        let params = params(ChunkSizes { hot, warm, cold }, successive);
        let mut world = World::new(&[0, 0, 1]);
        world.facts.page_bytes = page_bytes;
        let mut packer = AdaptiveComp::new(params);
        let mut waiting: Vec<Victim> = Vec::new();
        for (new, flush, turn) in rounds {
            // As the engine does: what was left comes first. No page is offered twice.
            let known: BTreeSet<PageId> = left_of(&waiting).into_iter().collect();
            let mut pages: Vec<(PageId, Option<Hotness>)> = new
                .into_iter()
                .map(|((space, vpn), class)| {
                    let hotness = match class {
                        0 => None,
                        1 => Some(Hotness::Hot),
                        2 => Some(Hotness::Warm),
                        _ => Some(Hotness::Cold),
                    };
                    (page(space, vpn), hotness)
                })
                .filter(|(page, _)| !known.contains(page))
                .collect();
            if !pages.is_empty() {
                let by = turn.index(pages.len());
                pages.rotate_left(by);
            }
            let mut all: Vec<_> =
                left_of(&waiting).into_iter().map(|page| (page, Some(Hotness::Cold))).collect();
            all.extend(&pages);
            waiting.extend(victims_of(&pages));
            let mut groups = Vec::new();
            packer.pack(&mut waiting, flush, &world.view(), &mut groups);
            let (expected, left) = naive(params, page_bytes, &all, flush);
            prop_assert_eq!(&groups, &expected);
            prop_assert_eq!(left_of(&waiting), left);
            prop_assert!(!flush || waiting.is_empty());
        }
    }
}

#[test]
fn neighbours_share_a_block_when_addresses_decide() {
    let world = World::new(&[0]);
    let scattered =
        [7, 1, 100, 3, 0, 101, 2, 102, 103].map(|vpn| (page(0, vpn), Some(Hotness::Cold)));
    let mut victims = victims_of(&scattered);
    let mut groups = Vec::new();
    let mut packer = AdaptiveComp::new(params(SIZES, Successive::Addresses));
    packer.pack(&mut victims, false, &world.view(), &mut groups);
    let blocks: Vec<Vec<u64>> =
        groups.iter().map(|g| g.pages.iter().map(|page| page.vpn().0).collect()).collect();
    assert_eq!(blocks, [[0, 1, 2, 3], [7, 100, 101, 102]]);
    assert_eq!(left_of(&victims), [page(0, 103)]);
}

#[test]
fn pages_of_a_unit_are_packed_one_by_one() {
    let world = World::new(&[0]);
    let unit = Unit::Pages(run(0, 10, 6).pages().collect());
    let mut victims = vec![Victim { unit, hotness: Some(Hotness::Cold) }];
    let mut groups = Vec::new();
    let mut packer = AdaptiveComp::new(params(SIZES, Successive::Victims));
    packer.pack(&mut victims, false, &world.view(), &mut groups);
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].pages, run(0, 10, 4).pages().collect::<Vec<_>>());
    assert_eq!(left_of(&victims), run(0, 14, 2).pages().collect::<Vec<_>>());
}

#[test]
fn chunk_sizes_are_named_as_in_the_paper() {
    for hot in ["256B", "512B", "1K"] {
        for warm in ["2K", "4K"] {
            for cold in ["16K", "32K"] {
                let name = format!("{hot}-{warm}-{cold}");
                let sizes = named(&name).unwrap();
                assert_eq!(sizes.to_string(), name);
            }
        }
    }
    assert_eq!(named("1K-2K-16K"), Ok(SIZES));
    assert_eq!(named("256-4096-128K").unwrap().to_string(), "256B-4K-128K");
    for wrong in ["", "1K", "1K-2K", "1K-2K-16K-4K", "128-2K-16K", "1K-8K-16K", "3K-4K-16K"] {
        assert!(named(wrong).is_err(), "{wrong}");
    }
    assert!(named("1K-2K-2K").is_err() && named("1K-2K-256K").is_err());
}

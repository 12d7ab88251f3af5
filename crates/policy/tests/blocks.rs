//! What is packed into blocks of several pages: association groups and fixed blocks of neighbours.

use clew_conformance::{World, page};
use clew_core::{ByteSize, CodecKind, Group, Hotness, Packing, PageId, Unit, Victim};
use clew_policy::packing::adaptive_region::{self, AdaptiveRegion};
use clew_policy::packing::fixed_blocks::{self, FixedBlocks};
use clew_policy::schemes::Answer;

fn world(page_bytes: u32) -> World {
    let mut world = World::new(&[0, 0, 1]);
    world.facts.page_bytes = page_bytes;
    world
}

fn victim(unit: Unit) -> Victim {
    Victim { unit, hotness: None }
}

fn pages(space: u32, vpns: impl IntoIterator<Item = u64>) -> Vec<PageId> {
    vpns.into_iter().map(|vpn| page(space, vpn)).collect()
}

fn pack(policy: &mut dyn Packing, victims: &mut Vec<Victim>, flush: bool, kib: u32) -> Vec<Group> {
    let mut groups = Vec::new();
    policy.pack(victims, flush, &world(kib << 10).view(), &mut groups);
    groups
}

fn lengths(groups: &[Group]) -> Vec<usize> {
    groups.iter().map(|group| group.pages.len()).collect()
}

#[test]
fn a_page_is_a_block_and_a_group_is_one_up_to_the_buffer() {
    let mut policy = AdaptiveRegion::new(adaptive_region::Params::default());
    let first = pages(0, [5, 9, 70]);
    let mut victims = vec![
        victim(Unit::Page(page(0, 3))),
        Victim { unit: Unit::Pages(first.clone()), hotness: Some(Hotness::Warm) },
        victim(Unit::Pages(pages(2, 100..141))),
        victim(Unit::Pages(pages(2, [1]))),
    ];
    let groups = pack(&mut policy, &mut victims, false, 4);
    assert!(victims.is_empty());
    assert_eq!(lengths(&groups), [1, 3, 32, 9, 1]);
    let chunks: Vec<u32> = groups.iter().map(|group| group.chunk_bytes >> 10).collect();
    assert_eq!(chunks, [4, 12, 128, 36, 4]);
    let parks: Vec<bool> = groups.iter().map(|group| group.park_siblings).collect();
    assert_eq!(parks, [false, true, true, true, false]);
    assert_eq!((&groups[1].pages, groups[1].hotness), (&first, Some(Hotness::Warm)));
    assert!(groups.iter().all(|group| group.codec == CodecKind::Lz4));
}

#[test]
fn the_buffer_is_of_bytes_and_a_chunk_is_no_larger_than_a_codec_takes() {
    let params = adaptive_region::Params { buffer: ByteSize(512 << 10), ..Default::default() };
    let mut victims = vec![victim(Unit::Pages(pages(0, 0..200)))];
    let groups = pack(&mut AdaptiveRegion::new(params), &mut victims, true, 4);
    assert_eq!(lengths(&groups), [128, 72]);
    assert!(groups.iter().all(|group| group.chunk_bytes == 128 << 10));
    // Pages of 16 KiB.
    let mut policy = AdaptiveRegion::new(adaptive_region::Params::default());
    let mut victims = vec![victim(Unit::Pages(pages(0, 0..20)))];
    assert_eq!(lengths(&pack(&mut policy, &mut victims, false, 16)), [8, 8, 4]);
}

#[test]
fn neighbours_fill_blocks_and_too_few_wait_for_more() {
    let params = fixed_blocks::Params { block: ByteSize(16 << 10), ..Default::default() };
    let mut policy = FixedBlocks::new(params);
    let single = |vpn| victim(Unit::Page(page(0, vpn)));
    let mut victims: Vec<Victim> = [9, 1, 30, 2, 8].map(single).to_vec();
    victims.push(victim(Unit::Pages(pages(1, [4, 3]))));
    let groups = pack(&mut policy, &mut victims, false, 4);
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].pages, pages(0, [1, 2, 8, 9]));
    assert_eq!((groups[0].chunk_bytes, groups[0].park_siblings), (16 << 10, false));
    // What waits is as it came.
    assert_eq!(victims, [single(30), victim(Unit::Pages(pages(1, [4, 3])))]);
    victims.extend([31, 7, 50].map(single));
    let groups = pack(&mut policy, &mut victims, true, 4);
    assert!(victims.is_empty());
    let found: Vec<Vec<PageId>> = groups.into_iter().map(|group| group.pages).collect();
    assert_eq!(found, [pages(0, [7, 30, 31, 50]), pages(1, [3, 4])]);
}

#[test]
fn a_dictionary_is_for_single_pages() {
    let learned = CodecKind::ZstdDictionary;
    let region = adaptive_region::Params { codec: learned, ..Default::default() };
    assert!(region.validate().is_err());
    let fixed = fixed_blocks::Params { codec: learned, ..Default::default() };
    assert!(fixed.validate().is_err());
    assert!(adaptive_region::Params::default().validate().is_ok());
}

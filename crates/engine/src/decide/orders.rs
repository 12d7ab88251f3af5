//! From groups that have a place to orders: how much room there is, what one order may hold.

use std::collections::BTreeMap;

use clew_core::{AppId, Group, PageId, SpaceId, Tier, TierFacts};

use super::{ORDER_PAGES, Order};

/// What a page takes in `tier`, on average so far; half a page as long as nothing is known.
pub(super) fn stored_page_bytes(tier: &TierFacts, page_bytes: u32) -> u64 {
    match tier.used_bytes.checked_div(tier.pages) {
        Some(average) => average.max(1),
        None => u64::from(page_bytes) / 2,
    }
}

/// How many more pages `tier` can probably hold.
pub(super) fn room_pages(tier: &TierFacts, page_bytes: u32) -> u64 {
    let by_bytes = tier.limit_bytes.saturating_sub(tier.used_bytes)
        / stored_page_bytes(tier, page_bytes).max(1);
    tier.limit_pages.saturating_sub(tier.pages).min(by_bytes)
}

/// `group` with other pages; no chunk is larger than the group.
pub(super) fn with_pages(group: &Group, pages: Vec<PageId>, page_bytes: u32) -> Group {
    let group_bytes = (pages.len() as u32).saturating_mul(page_bytes);
    Group { chunk_bytes: group.chunk_bytes.min(group_bytes), pages, ..*group }
}

/// The group, or a group for each of the spaces that its pages are of.
pub(super) fn cut_by_space(group: Group, page_bytes: u32) -> Vec<Group> {
    let Some(first) = group.pages.first() else { return Vec::new() };
    if group.pages.iter().all(|page| page.space() == first.space()) {
        return vec![group];
    }
    let mut spaces: BTreeMap<SpaceId, Vec<PageId>> = BTreeMap::new();
    for page in &group.pages {
        spaces.entry(page.space()).or_default().push(*page);
    }
    spaces.into_values().map(|pages| with_pages(&group, pages, page_bytes)).collect()
}

/// Sorts groups by space, tier and address and cuts them into orders.
pub(super) fn into_orders(mut placed: Vec<(AppId, SpaceId, Tier, Group)>, out: &mut Vec<Order>) {
    placed.sort_by_key(|(app, space, tier, group)| (*app, *space, *tier, group.pages[0]));
    let mut room = 0;
    for (app, space, tier, group) in placed {
        let pages = group.pages.len();
        match out.last_mut() {
            Some(Order::SwapOut { app: a, space: s, tier: t, groups })
                if (*a, *s, *t) == (app, space, tier) && pages <= room =>
            {
                room -= pages;
                groups.push(group);
            }
            _ => {
                room = ORDER_PAGES.saturating_sub(pages);
                out.push(Order::SwapOut { app, space, groups: vec![group], tier });
            }
        }
    }
}

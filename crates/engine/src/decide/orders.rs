//! From groups that have a place to orders: how much room there is, what one order may hold.

use std::collections::BTreeMap;

use clew_core::{AppId, Cause, FlashForm, Group, Order, PageId, SpaceId, Tier, TierFacts};

use super::ORDER_PAGES;

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

/// Puts a group for each of the spaces that pages of several are of in its place.
pub(super) fn cut_by_space(groups: Vec<Group>, page_bytes: u32) -> Vec<Group> {
    let is_cut = |group: &Group| {
        let of_first = |page: &PageId| page.space() == group.pages[0].space();
        !group.pages.is_empty() && group.pages.iter().all(of_first)
    };
    match groups.iter().all(is_cut) {
        true => groups,
        false => groups.into_iter().flat_map(|group| of_each_space(group, page_bytes)).collect(),
    }
}

fn of_each_space(group: Group, page_bytes: u32) -> Vec<Group> {
    let mut spaces: BTreeMap<SpaceId, Vec<PageId>> = BTreeMap::new();
    for page in &group.pages {
        spaces.entry(page.space()).or_default().push(*page);
    }
    spaces.into_values().map(|pages| with_pages(&group, pages, page_bytes)).collect()
}

/// A group with its place: a tier, and how it lies there if that is a log.
pub(super) type Placed = (AppId, SpaceId, (Tier, FlashForm), Group);

pub(super) fn count_pages(placed: &[Placed]) -> u64 {
    placed.iter().map(|(.., group)| group.pages.len() as u64).sum()
}

/// Those for which there is no room are added to `stay`.
pub(super) fn keep_what_fits(
    placed: &mut Vec<Placed>,
    room: &mut BTreeMap<Tier, u64>,
    stay: &mut Vec<PageId>,
) {
    placed.retain(|(_, _, (tier, _), group)| {
        let room = room.entry(*tier).or_default();
        let left = room.checked_sub(group.pages.len() as u64);
        match left {
            Some(left) => *room = left,
            None => stay.extend(&group.pages),
        }
        left.is_some()
    });
}

/// What groups are to be ordered for.
#[derive(Clone, Copy)]
pub(super) enum For {
    /// To leave their program, or if they are evicted, their tier.
    Leaving(Cause),
    /// To be stored anew where they are.
    Repacking,
}

/// Sorts groups by space, tier and address and cuts them into orders.
pub(super) fn into_orders(mut placed: Vec<Placed>, what: For, out: &mut Vec<Order>) {
    placed.sort_by_cached_key(|(app, space, to, group)| (*app, *space, *to, group.pages[0]));
    let mut rest = placed.into_iter().peekable();
    while let Some((app, space, to, group)) = rest.next() {
        let mut pages = group.pages.len();
        let mut groups = vec![group];
        let fits = |(a, s, t, group): &Placed, pages: usize| {
            (*a, *s, *t) == (app, space, to) && pages + group.pages.len() <= ORDER_PAGES
        };
        while let Some((.., group)) = rest.next_if(|next| fits(next, pages)) {
            pages += group.pages.len();
            groups.push(group);
        }
        let (tier, form) = to;
        out.push(match what {
            For::Leaving(Cause::SwapOut | Cause::Rejected) => {
                Order::SwapOut { app, space, groups, tier, form }
            }
            For::Leaving(Cause::Evicted) => Order::Move { app, space, groups, tier, form },
            For::Repacking => Order::Repack { app, space, groups },
        });
    }
}

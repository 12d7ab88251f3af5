//! Between question and orders: victims are packed, groups placed, room is made and kept to.

use std::collections::{BTreeMap, HashSet};

use clew_core::{
    AppId, Cause, Ending, FlashForm, Group, Order, PageFacts, PageId, Place, Tier, Unit, Verdict,
    Victim, View,
};
use clew_policy::schemes::OnFull;
use clew_policy::{Policies, low_memory_killer};

use super::orders::{
    self, For, Placed, count_pages, cut_by_space, into_orders, room_pages, stored_page_bytes,
};
use super::{Engine, pages_of};

/// One part of the pool in so many.
const KEPT_FREE: u64 = 16;

impl Engine {
    /// Asks eviction to make room for so many pages in the pool; how many leave it.
    pub(super) fn evict(
        &mut self,
        pages_wanted: u64,
        pages: &dyn PageFacts,
        out: &mut Vec<Order>,
    ) -> u64 {
        let tiers = &self.known.facts.tiers;
        let Some(pool) = tiers.get(&Tier::Pool).filter(|_| tiers.len() > 1) else { return 0 };
        let each = stored_page_bytes(pool, self.known.facts.page_bytes);
        let Policies { reclaim, eviction, .. } = &mut self.policies;
        let view = View { facts: &self.known.facts, pages, classes: Some(&**reclaim) };
        let mut units = Vec::new();
        eviction.pick_evictions(pages_wanted.saturating_mul(each), &view, &mut units);
        let (mut victims, mut seen) = (Vec::new(), HashSet::new());
        for unit in units {
            let mut of_unit = match unit {
                Unit::Page(page) => vec![page],
                Unit::Pages(pages) => pages,
                Unit::App(app) => self.pages_in(app, Some(Tier::Pool), pages),
            };
            of_unit.retain(|page| pages.tier(*page) == Some(Tier::Pool) && seen.insert(*page));
            let Some(first) = of_unit.first() else { continue };
            let hotness = self.policies.reclaim.class(*first);
            victims.push(Victim { unit: Unit::Pages(of_unit), hotness });
        }
        self.pack_and_move(victims, pages, out)
    }

    /// All tiers are full and nothing may leave them: the scheme's last resort. An app that was
    /// ordered to end and is not gone yet will make room.
    pub(super) fn full(&mut self, urgent: bool, out: &mut Vec<Order>) {
        self.counted.full += 1;
        if urgent && self.on_full == OnFull::Kill && self.ending.is_empty() {
            let spared = |app| self.spared.contains(&app);
            let ending = low_memory_killer::pick(&self.known.facts, spared);
            ending.into_iter().for_each(|ending| self.end(ending, out));
        }
    }

    /// Turns verdicts into victims that are made of pages.
    pub(super) fn expand(
        &mut self,
        verdicts: Vec<Verdict>,
        pages: &dyn PageFacts,
        victims: &mut Vec<Victim>,
        out: &mut Vec<Order>,
    ) {
        for verdict in verdicts {
            match verdict {
                Verdict::EndApp { app, reason } => self.end(Ending { app, reason }, out),
                Verdict::Take(Victim { unit: Unit::App(app), hotness }) => {
                    let mut resident = self.pages_in(app, None, pages);
                    resident.retain(|page| !self.waiting_pages.contains(page));
                    let victim = |page| Victim { unit: Unit::Page(page), hotness };
                    victims.extend(resident.into_iter().map(victim));
                }
                Verdict::Take(victim) => victims.push(victim),
            }
        }
    }

    /// The pages of `app` that are in `tier`, or resident.
    fn pages_in(&self, app: AppId, tier: Option<Tier>, pages: &dyn PageFacts) -> Vec<PageId> {
        let mut there = Vec::new();
        for space in self.known.facts.spaces_of(app) {
            pages.for_each(space, &mut |page, is_in| there.extend((is_in == tier).then_some(page)));
        }
        there
    }

    /// What leaves DRAM.
    pub(super) fn pack_and_place(
        &mut self,
        mut victims: Vec<Victim>,
        flush: bool,
        made_room: u64,
        pages: &dyn PageFacts,
        out: &mut Vec<Order>,
    ) {
        let groups = self.pack(&mut victims, flush, pages);
        let mut stay: Vec<PageId> = Vec::new();
        if flush {
            stay.extend(victims.iter().flat_map(|victim| pages_of(&victim.unit)));
        } else {
            self.waiting_pages.extend(victims.iter().flat_map(|victim| pages_of(&victim.unit)));
            self.waiting.append(&mut victims);
        }
        let mut placed = self.place_all(groups, Cause::SwapOut, pages, &mut stay, out);

        let mut room = self.room();
        let pool = room.entry(Tier::Pool).or_default();
        *pool = pool.saturating_add(made_room);
        let to_pool: u64 = placed
            .iter()
            .filter(|(_, _, (tier, _), _)| *tier == Tier::Pool)
            .map(|(.., group)| group.pages.len() as u64)
            .sum();
        let beyond = to_pool.saturating_sub(*pool);
        // Once a round: what is evicted is where it was until that is done.
        if beyond > 0 && made_room == 0 {
            let evicted = self.evict(beyond, pages, out);
            *room.entry(Tier::Pool).or_default() += evicted;
            self.pass_on(&mut placed, beyond.saturating_sub(evicted), pages);
        }
        self.keep_what_fits(&mut placed, &mut room, &mut stay);
        self.counted.ordered_pages += count_pages(&placed);
        into_orders(placed, For::Leaving(Cause::SwapOut), out);
        self.hand_back(stay, pages);
    }

    /// More is to leave than the pool will have room for: what would be evicted right behind, the first of
    /// the victims, is placed as if it had been in the pool.
    fn pass_on(&mut self, placed: &mut [Placed], mut beyond: u64, pages: &dyn PageFacts) {
        if !self.has_tier_beyond() {
            return;
        }
        for (app, _, to, group) in placed.iter_mut().filter(|(_, _, to, _)| to.0 == Tier::Pool) {
            if beyond == 0 {
                return;
            }
            *to = match self.place(group, *app, Cause::Evicted, pages) {
                Place::Tier(other) => (other, FlashForm::AsStored),
                Place::FlashPages => (Tier::Flash, FlashForm::Pages),
                Place::DonorPages(donor) => (Tier::Donor(donor), FlashForm::Pages),
                Place::Stay | Place::EndApp(_) => continue,
            };
            beyond = beyond.saturating_sub(group.pages.len() as u64);
        }
    }

    /// What goes from one tier to another; how many pages do.
    pub(super) fn pack_and_move(
        &mut self,
        mut victims: Vec<Victim>,
        pages: &dyn PageFacts,
        out: &mut Vec<Order>,
    ) -> u64 {
        if victims.is_empty() {
            return 0;
        }
        let groups = self.pack(&mut victims, true, pages);
        let mut stay: Vec<PageId> =
            victims.iter().flat_map(|victim| pages_of(&victim.unit)).copied().collect();
        let mut placed = self.place_all(groups, Cause::Evicted, pages, &mut stay, out);
        placed.retain(|(_, _, (tier, _), group)| {
            let is_there = |page: &PageId| pages.tier(*page) == Some(*tier);
            let leaves = !group.pages.iter().any(is_there);
            if !leaves {
                stay.extend(&group.pages);
            }
            leaves
        });
        self.keep_what_fits(&mut placed, &mut self.room(), &mut stay);
        let moved = count_pages(&placed);
        self.counted.moved_pages += moved;
        into_orders(placed, For::Leaving(Cause::Evicted), out);
        self.hand_back(stay, pages);
        moved
    }

    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        flush: bool,
        pages: &dyn PageFacts,
    ) -> Vec<Group> {
        let Policies { reclaim, packing, .. } = &mut self.policies;
        let view = View { facts: &self.known.facts, pages, classes: Some(&**reclaim) };
        let mut groups = Vec::new();
        packing.pack(victims, flush, &view, &mut groups);
        cut_by_space(groups, self.known.facts.page_bytes)
    }

    /// Where each group goes; what has no place is added to `stay`.
    fn place_all(
        &mut self,
        groups: Vec<Group>,
        cause: Cause,
        pages: &dyn PageFacts,
        stay: &mut Vec<PageId>,
        out: &mut Vec<Order>,
    ) -> Vec<Placed> {
        let mut placed = Vec::new();
        for group in groups {
            let space = group.pages[0].space();
            let Some(app) = self.known.facts.app_of(space) else {
                stay.extend(&group.pages);
                continue;
            };
            match self.place(&group, app, cause, pages) {
                Place::Tier(tier) => {
                    placed.push((app, space, (tier, FlashForm::AsStored), group));
                }
                Place::FlashPages => {
                    placed.push((app, space, (Tier::Flash, FlashForm::Pages), group));
                }
                Place::DonorPages(donor) => {
                    placed.push((app, space, (Tier::Donor(donor), FlashForm::Pages), group));
                }
                Place::Stay => stay.extend(&group.pages),
                Place::EndApp(ended) => {
                    stay.extend(&group.pages);
                    let reason = "there is no place for its memory";
                    self.end(Ending { app: ended, reason }, out);
                }
            }
        }
        placed
    }

    /// Those for which there is no room are added to `stay`. What lies in its file needs none.
    fn keep_what_fits(
        &self,
        placed: &mut Vec<Placed>,
        room: &mut BTreeMap<Tier, u64>,
        stay: &mut Vec<PageId>,
    ) {
        let facts = &self.known.facts;
        let in_file =
            |(_, space, (tier, _), _): &mut Placed| *tier == Tier::Flash && facts.is_file(*space);
        let in_files: Vec<Placed> = placed.extract_if(.., in_file).collect();
        orders::keep_what_fits(placed, room, stay);
        placed.extend(in_files);
    }

    /// Pages that each tier has room for. Of a pool that can give to a log, some is kept free: what a block will
    /// take is not foreseen to the byte.
    fn room(&self) -> BTreeMap<Tier, u64> {
        let mut room = BTreeMap::new();
        for (tier, facts) in &self.known.facts.tiers {
            let mut facts = *facts;
            if *tier == Tier::Pool && self.has_tier_beyond() {
                facts.limit_bytes -= facts.limit_bytes / KEPT_FREE;
            }
            room.insert(*tier, room_pages(&facts, self.known.facts.page_bytes));
        }
        room
    }

    /// Whether there is flash, or a donor.
    fn has_tier_beyond(&self) -> bool {
        self.known.facts.tiers.keys().any(|tier| matches!(tier, Tier::Flash | Tier::Donor(_)))
    }
}

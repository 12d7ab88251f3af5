//! App-aware swapping: all pages of an app go to one donor, the one with most free memory.
//!
//! Source: MobileSwap III-C (AAS). "Pages belonging to the same app are swapped to the same destination", "MobileSwap
//! prefers to swap the app to the device which has the most available memory space", as the last heartbeat says
//! ([`clew_core::TierFacts::free_bytes`]), also where less of it may be used: what others have there counts. An app keeps its donor as long as it has a page there; a donor that has no room for
//! more of it takes nothing else of it meanwhile: the rest stays in DRAM.
//!
//! *When a donor is lost*, and "in three other conditions" (its link is weak, or used by others; it wants its memory
//! back), the apps whose pages are there end, so that none of them ever asks for a page that does not come, and they
//! start anew when their user wants them. That is `on_loss = "end"`, the paper's. Where pages have a second copy (ours,
//! [`DonorState::Single`], [`DonorState::Relieved`]) they live in any case, and what the donor has comes back from the copy; with `on_loss = "keep"`
//! nobody ends who does not ask for a page that is gone.
//!
//! Which app has pages where is known from what left ([`Event::Stored`]): also where it left on an order of an earlier assignment, and
//! after a daemon was succeeded by another, who is told of all that is stored.
//!
//! The app in front is not ended: its pages were all asked back when it came there. If some are at a donor that is not up
//! when it goes to the background, it ends then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clew_core::{
    AppId, AppState, Cause, DonorId, DonorState, Ending, Event, Group, Metric, Observe, Place,
    Placement, Tier, TierFacts, View,
};
use serde::{Deserialize, Serialize};

use super::donors::to_donor;
use crate::schemes::{About, Answer};

/// What becomes of apps whose donor is lost, weak or wants its memory back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    /// They end, and start anew when they are wanted (III-C).
    #[default]
    End,
    /// They live until they ask for a page that is gone.
    Keep,
}

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What becomes of the apps of a donor that is lost.
    pub on_loss: OnLoss,
    /// Pages travel compressed, and lie so at the donor.
    pub compressed: bool,
}

impl Answer<dyn Placement> for Params {
    fn about(&self) -> About {
        let form = if self.compressed { ", compressed" } else { "" };
        let loss = match self.on_loss {
            OnLoss::End => "its apps end when it is lost",
            OnLoss::Keep => "its apps live when it is lost",
        };
        About {
            tiers: &[Tier::Donor(DonorId::FIRST)],
            ..About::of(
                "app-aware",
                format!("the donor with most free memory, one an app{form}; {loss}"),
            )
        }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(AppAware::new(*self))
    }
}

/// The policy. See the module.
pub struct AppAware {
    params: Params,
    /// The donor of each app that has a page at one, or is on its way there.
    donor_of: BTreeMap<AppId, DonorId>,
    /// Where each app has had a page since it last had none anywhere: mostly its donor alone.
    was_at: BTreeSet<(DonorId, AppId)>,
    to_end: VecDeque<Ending>,
    assigned: u64,
    ended: u64,
}

impl AppAware {
    /// Has placed nothing yet.
    pub fn new(params: Params) -> AppAware {
        AppAware {
            params,
            donor_of: BTreeMap::new(),
            was_at: BTreeSet::new(),
            to_end: VecDeque::new(),
            assigned: 0,
            ended: 0,
        }
    }

    /// The donor that an app has, or gets.
    fn donor(&mut self, app: AppId, view: &View<'_>) -> Option<DonorId> {
        let is_up = |donor: &DonorId| view.facts.donors.get(donor) == Some(&DonorState::Up);
        if let Some(donor) = self.donor_of.get(&app).copied() {
            return Some(donor).filter(is_up);
        }
        let room = |facts: &TierFacts| facts.limit_bytes.saturating_sub(facts.used_bytes);
        let donors = view.facts.tiers.iter().filter_map(|(tier, facts)| match tier {
            Tier::Donor(donor) if room(facts) > 0 => {
                Some((*donor, facts.free_bytes.unwrap_or(room(facts))))
            }
            _ => None,
        });
        let up = donors.filter(|(donor, _)| is_up(donor));
        let (donor, _) = up.max_by_key(|(donor, free)| (*free, std::cmp::Reverse(*donor)))?;
        self.donor_of.insert(app, donor);
        self.assigned += 1;
        Some(donor)
    }

    fn forget(&mut self, app: AppId) {
        self.donor_of.remove(&app);
        self.was_at.retain(|(_, of)| *of != app);
    }

    fn end_apps_of(&mut self, donor: DonorId, state: DonorState, view: &View<'_>) {
        let Some(reason) = why_to_end(state) else { return };
        let is_background = |app: &AppId| {
            view.facts.apps.get(app).is_some_and(|stats| stats.state == AppState::Background)
        };
        let of_donor = self.was_at.range((donor, AppId(0))..=(donor, AppId(u32::MAX)));
        let of_donor = of_donor.map(|(_, app)| *app).filter(is_background);
        for app in of_donor.filter(|app| stored(*app, view) > 0) {
            self.to_end.push_back(Ending { app, reason });
        }
    }
}

/// Why apps end whose donor is in this state, if they do.
fn why_to_end(state: DonorState) -> Option<&'static str> {
    match state {
        // Their pages have a second copy.
        DonorState::Up | DonorState::Single | DonorState::Relieved => None,
        DonorState::Weak => Some("the link to the donor of its memory is weak or busy"),
        DonorState::Pressed => Some("the donor of its memory wants it back"),
        DonorState::Lost => Some("the donor of its memory is lost"),
    }
}

/// Pages that an app has at donors.
fn stored(app: AppId, view: &View<'_>) -> u64 {
    view.facts.app_pages.get(&app).map_or(0, |pages| pages.stored[Tier::DONORS])
}

impl Observe for AppAware {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier: Tier::Donor(donor), .. } => {
                if let Some(app) = view.app_of(page) {
                    self.donor_of.entry(app).or_insert(donor);
                    self.was_at.insert((donor, app));
                }
            }
            Event::Exit { app } => self.forget(app),
            // Everything of it came back; what it gets next may be another donor.
            Event::Background { app } if stored(app, view) == 0 => self.forget(app),
            Event::Background { app } if self.params.on_loss == OnLoss::End => {
                let of_app = self.was_at.iter().filter(|(_, of)| *of == app);
                let states = of_app.filter_map(|(donor, _)| view.facts.donors.get(donor));
                let reason = states.copied().find_map(why_to_end);
                self.to_end.extend(reason.map(|reason| Ending { app, reason }));
            }
            Event::Donor { donor, state } if self.params.on_loss == OnLoss::End => {
                self.end_apps_of(donor, state, view);
            }
            _ => {}
        }
    }

    fn take_ending(&mut self) -> Option<Ending> {
        let ending = self.to_end.pop_front();
        self.ended += u64::from(ending.is_some());
        ending
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("app_aware_assigned", self.assigned, "times that an app was given a donor"),
            ("app_aware_ended", self.ended, "apps ended with their donor"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Placement for AppAware {
    fn place(&mut self, _group: &Group, app: AppId, cause: Cause, view: &View<'_>) -> Place {
        match cause {
            Cause::SwapOut | Cause::Rejected => match self.donor(app, view) {
                Some(donor) => to_donor(donor, self.params.compressed),
                None => Place::Stay,
            },
            Cause::Evicted => Place::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use clew_core::{AppStats, Facts, PageCounts, PageFacts, PageId, SpaceId};

    use super::*;

    struct Nowhere;

    impl PageFacts for Nowhere {
        fn tier(&self, _: PageId) -> Option<Tier> {
            None
        }

        fn counts(&self, _: SpaceId) -> PageCounts {
            PageCounts::default()
        }

        fn for_each(&self, _: SpaceId, _: &mut dyn FnMut(PageId, Option<Tier>)) {}
    }

    fn facts(free: &[u64]) -> Facts {
        let mut facts = Facts::default();
        for (number, free) in free.iter().enumerate() {
            let donor = DonorId::new(number).unwrap();
            let full = TierFacts { limit_bytes: *free, limit_pages: 1 << 40, ..Default::default() };
            facts.tiers.insert(Tier::Donor(donor), full);
            facts.donors.insert(donor, DonorState::Up);
        }
        for app in 0..8 {
            facts.apps.insert(AppId(app), AppStats::default());
        }
        facts
    }

    /// A page of an app has gone there.
    fn went(policy: &mut AppAware, facts: &mut Facts, app: u32, donor: DonorId) {
        facts.space_app = (0..8).map(|app| Some(AppId(app))).collect();
        let page = PageId::new(SpaceId(app), clew_core::Vpn(1));
        has(facts, app, 1);
        tell(policy, Event::Stored { page, tier: Tier::Donor(donor), bytes: 4096 }, facts);
    }

    fn has(facts: &mut Facts, app: u32, pages: u64) {
        let mut counts = PageCounts::default();
        counts.stored[Tier::DONORS] = pages;
        facts.app_pages.insert(AppId(app), counts);
    }

    fn place(policy: &mut AppAware, app: u32, facts: &Facts) -> Place {
        let group = Group {
            pages: vec![],
            hotness: None,
            codec: Default::default(),
            chunk_bytes: 4096,
            park_siblings: false,
        };
        let view = View { facts, pages: &Nowhere, classes: None };
        policy.place(&group, AppId(app), Cause::SwapOut, &view)
    }

    fn tell(policy: &mut AppAware, event: Event, facts: &Facts) -> Vec<AppId> {
        policy.on_event(&event, &View { facts, pages: &Nowhere, classes: None });
        std::iter::from_fn(|| policy.take_ending()).map(|ending| ending.app).collect()
    }

    fn donor(number: usize) -> DonorId {
        DonorId::new(number).unwrap()
    }

    #[test]
    fn an_app_has_one_donor_and_that_is_the_freest() {
        let mut policy = AppAware::new(Params::default());
        let mut facts = facts(&[10, 30, 20]);
        assert_eq!(place(&mut policy, 1, &facts), Place::DonorPages(donor(1)));
        has(&mut facts, 1, 5);
        // Another is freer by now, but its pages are to stay together.
        facts.tiers.get_mut(&Tier::Donor(donor(1))).unwrap().used_bytes = 25;
        assert_eq!(place(&mut policy, 1, &facts), Place::DonorPages(donor(1)));
        assert_eq!(place(&mut policy, 2, &facts), Place::DonorPages(donor(2)));
        // It is back as a whole, and is sent away again.
        has(&mut facts, 1, 0);
        assert_eq!(tell(&mut policy, Event::Background { app: AppId(1) }, &facts), []);
        assert_eq!(place(&mut policy, 1, &facts), Place::DonorPages(donor(2)));
    }

    /// Of each donor so much may be used, and most have more: that decides, where there is room at all.
    #[test]
    fn the_freest_is_who_has_most_and_not_of_whom_most_may_be_used() {
        let mut policy = AppAware::new(Params::default());
        let mut facts = facts(&[10, 10, 20, 0]);
        for (number, free) in [50, 90, 60, 99].into_iter().enumerate() {
            facts.tiers.get_mut(&Tier::Donor(donor(number))).unwrap().free_bytes = Some(free);
        }
        assert_eq!(place(&mut policy, 1, &facts), Place::DonorPages(donor(1)));
    }

    #[test]
    fn who_is_not_up_takes_nothing_and_nobody_stands_in() {
        let mut policy = AppAware::new(Params { compressed: true, ..Params::default() });
        let mut facts = facts(&[10, 30]);
        assert_eq!(place(&mut policy, 1, &facts), Place::Tier(Tier::Donor(donor(1))));
        has(&mut facts, 1, 5);
        facts.donors.insert(donor(1), DonorState::Weak);
        assert_eq!(place(&mut policy, 1, &facts), Place::Stay);
        assert_eq!(place(&mut policy, 2, &facts), Place::Tier(Tier::Donor(donor(0))));
        facts.donors.insert(donor(0), DonorState::Lost);
        assert_eq!(place(&mut policy, 3, &facts), Place::Stay);
    }

    /// After a takeover, and where an order of an earlier assignment was late.
    #[test]
    fn who_has_pages_where_is_known_from_what_left() {
        let mut policy = AppAware::new(Params::default());
        let mut facts = facts(&[10, 30]);
        went(&mut policy, &mut facts, 1, donor(0));
        assert_eq!(place(&mut policy, 1, &facts), Place::DonorPages(donor(0)), "the less free one");
        went(&mut policy, &mut facts, 1, donor(1));
        for lost in [0, 1] {
            let lost = Event::Donor { donor: donor(lost), state: DonorState::Lost };
            assert_eq!(tell(&mut policy, lost, &facts), [AppId(1)]);
        }
        tell(&mut policy, Event::Exit { app: AppId(1) }, &facts);
        let lost = Event::Donor { donor: donor(0), state: DonorState::Lost };
        assert_eq!(tell(&mut policy, lost, &facts), []);
    }

    #[test]
    fn with_a_donor_end_its_background_apps_that_have_pages_there() {
        for state in [DonorState::Lost, DonorState::Weak, DonorState::Pressed] {
            let mut policy = AppAware::new(Params::default());
            let mut facts = facts(&[10]);
            for app in 1..=4 {
                place(&mut policy, app, &facts);
                if app != 3 {
                    went(&mut policy, &mut facts, app, donor(0));
                }
            }
            facts.apps.get_mut(&AppId(4)).unwrap().state = AppState::Foreground;
            let lost = Event::Donor { donor: donor(0), state };
            assert_eq!(tell(&mut policy, lost, &facts), [AppId(1), AppId(2)], "{state:?}");
            // Who was in front ends when it no longer is, unless all of it is back by then.
            let goes = || Event::Background { app: AppId(4) };
            assert_eq!(tell(&mut policy, goes(), &facts), [], "{state:?}: it is up again");
            facts.donors.insert(donor(0), state);
            assert_eq!(tell(&mut policy, goes(), &facts), [AppId(4)], "{state:?}");
            has(&mut facts, 4, 0);
            assert_eq!(tell(&mut policy, goes(), &facts), [], "{state:?}: it is back");
            for state in [DonorState::Up, DonorState::Single, DonorState::Relieved] {
                let back = Event::Donor { donor: donor(0), state };
                assert_eq!(tell(&mut policy, back, &facts), []);
            }
        }
        let mut policy = AppAware::new(Params { on_loss: OnLoss::Keep, ..Params::default() });
        let mut facts = facts(&[10]);
        went(&mut policy, &mut facts, 1, donor(0));
        let lost = Event::Donor { donor: donor(0), state: DonorState::Lost };
        assert_eq!(tell(&mut policy, lost, &facts), []);
    }
}

//! Machines that lend memory, as the scheme is told of them: they are up from the beginning on, and lost at a time that
//! the settings state. An app that asks for a page of a lost donor cannot go on: it has crashed.

use clew_core::{DonorId, DonorState, Event, PageFacts, PageId, Tier, TierFacts};

use super::{Donors, Replay};
use crate::mechanism::Mechanism;

/// The donors of a replay.
#[derive(Default)]
pub(super) struct Lenders {
    settings: Option<Donors>,
    began: bool,
    pub lost: bool,
}

impl Lenders {
    pub fn of(settings: Option<&Donors>) -> Lenders {
        Lenders { settings: settings.cloned(), ..Lenders::default() }
    }

    fn all(&self) -> impl Iterator<Item = DonorId> + use<> {
        let count = self.settings.as_ref().map_or(0, |donors| donors.bytes.len());
        (0..count).filter_map(DonorId::new)
    }
}

impl<M: Mechanism> Replay<'_, M> {
    /// They are up, or lost by now.
    pub(super) fn look_at_donors(&mut self) {
        let Some(settings) = &self.lenders.settings else { return };
        let is_lost = settings.lost_at.is_some_and(|at| self.now >= at);
        let state = match (self.lenders.began, is_lost && !self.lenders.lost) {
            (_, true) => DonorState::Lost,
            (false, false) => DonorState::Up,
            (true, false) => return,
        };
        (self.lenders.began, self.lenders.lost) = (true, is_lost);
        for donor in self.lenders.all() {
            if state == DonorState::Lost {
                self.driver.set_tier(Tier::Donor(donor), TierFacts::default());
            }
            self.tell(&Event::Donor { donor, state });
        }
    }

    /// Whether a page cannot be had any more.
    pub(super) fn is_lost(&self, page: PageId) -> bool {
        self.lenders.lost && matches!(self.mechanism.tier(page), Some(Tier::Donor(_)))
    }
}

//! Machines that lend memory, as the scheme is told of them: they are up from the beginning on, and lost at the times that
//! the settings state. An app that asks for a page of a lost donor cannot go on: it has crashed.

use std::collections::BTreeSet;

use clew_core::{DonorId, DonorState, Event, Ns, PageFacts, PageId, Tier, TierFacts};
use clew_store::flash::LogId;

use super::{Replay, Settings};
use crate::costs::{FarCost, LinkCost};
use crate::error::LabError;
use crate::mechanism::{FarTier, Mechanism};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Donor {
    /// What it lends, bytes.
    pub bytes: u64,
    /// It is lost at this time of the trace, if at all.
    pub lost_at: Option<Ns>,
}

/// Machines that lend memory, and the link to any of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Donors {
    /// Each of them.
    pub each: Vec<Donor>,
    /// What a link costs. Schemes that swap page by page send chunks of a page over it.
    pub link: LinkCost,
}

/// The tiers that the scheme of `settings` has at donors.
pub(super) fn tiers(settings: &Settings, page_bytes: u32) -> Result<Vec<FarTier>, LabError> {
    let scheme = &settings.scheme;
    if !scheme.uses(Tier::Donor(DonorId::FIRST)) {
        return Ok(Vec::new());
    }
    let Some(donors) = settings.donors.as_ref().filter(|donors| !donors.each.is_empty()) else {
        return match scheme.needs_donors() {
            false => Ok(Vec::new()),
            true => Err(LabError::Setting {
                what: format!("scheme {}", scheme.name),
                why: "it has no place but donors: say how much each of them lends (--donors)"
                    .to_string(),
            }),
        };
    };
    let mut link = donors.link;
    if scheme.page_by_page() {
        link.chunk_bytes = page_bytes.into();
    }
    let tier = |(number, donor): (usize, &Donor)| {
        let too_many = || LabError::Setting {
            what: "donors".to_string(),
            why: format!("there are more than {}", DonorId::COUNT),
        };
        let log = LogId::at(DonorId::new(number).ok_or_else(too_many)?);
        Ok(FarTier { log, bytes: donor.bytes, cost: FarCost::Link(link) })
    };
    donors.each.iter().enumerate().map(tier).collect()
}

/// The donors of a replay.
#[derive(Default)]
pub(super) struct Lenders {
    each: Vec<Donor>,
    began: bool,
    lost: BTreeSet<DonorId>,
}

impl Lenders {
    pub fn of(settings: &Settings) -> Lenders {
        let each = settings.donors.as_ref().map(|donors| donors.each.clone());
        Lenders { each: each.unwrap_or_default(), ..Lenders::default() }
    }
}

impl<M: Mechanism> Replay<'_, M> {
    /// They are up, or lost by now.
    pub(super) fn look_at_donors(&mut self) {
        let began = std::mem::replace(&mut self.lenders.began, true);
        for number in 0..self.lenders.each.len() {
            let Some(donor) = DonorId::new(number) else { return };
            let is_lost = self.lenders.each[number].lost_at.is_some_and(|at| self.now >= at);
            if is_lost && self.lenders.lost.insert(donor) {
                self.driver.set_tier(Tier::Donor(donor), TierFacts::default());
                self.tell(&Event::Donor { donor, state: DonorState::Lost });
            } else if !is_lost && !began {
                self.tell(&Event::Donor { donor, state: DonorState::Up });
            }
        }
    }

    /// Whether nothing of a tier can be had any more.
    pub(super) fn is_lost_tier(&self, tier: Tier) -> bool {
        matches!(tier, Tier::Donor(donor) if self.lenders.lost.contains(&donor))
    }

    /// Whether a page cannot be had any more.
    pub(super) fn is_lost(&self, page: PageId) -> bool {
        !self.lenders.lost.is_empty()
            && self.mechanism.tier(page).is_some_and(|tier| self.is_lost_tier(tier))
    }
}

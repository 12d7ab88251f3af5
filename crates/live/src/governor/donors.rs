//! Machines that lend memory: how they stand is looked at with the budget, and the policies are told what has changed.
//!
//! How full a donor is, its heartbeat says: what others have there counts. One that is not up has no room.

use std::collections::BTreeMap;

use clew_core::{DonorId, DonorState, Event, Tier, TierFacts};
use clew_remote::Standing;
use clew_store::PoolFacts;

use super::Governor;
use crate::control::status::DonorStatus;
use crate::donor_tier::DonorTier;

/// The donors of a daemon, and what the policies were told of each.
#[derive(Default)]
pub(super) struct Donors {
    tiers: Vec<DonorTier>,
    told: BTreeMap<DonorId, DonorState>,
}

impl Governor {
    /// From now on there are these.
    pub fn lend_from(&mut self, tiers: Vec<DonorTier>) {
        self.donors.tiers = tiers;
    }

    /// Tells the driver how donors stand.
    pub(super) fn look_at_donors(&mut self, pool: &PoolFacts) {
        let tiers = std::mem::take(&mut self.donors.tiers);
        for tier in &tiers {
            let log = tier.log.facts();
            let pages = pool.log_pages[tier.log.log().index()];
            if pages == 0 {
                // Nobody asks for what it had.
                tier.forgive();
            }
            let standing = tier.standing();
            self.driver.set_tier(Tier::Donor(tier.donor), room(&standing, log.tier(pages)));
            self.clean_log(tier.log.log(), &log);
            let before = self.donors.told.insert(tier.donor, standing.state);
            if before != Some(standing.state) {
                let (at, state) = (&tier.at, standing.state);
                match &standing.why {
                    Some(why) => tracing::warn!(at, ?state, why, "a donor"),
                    None => tracing::info!(at, ?state, "a donor"),
                }
                self.tell(&Event::Donor { donor: tier.donor, state });
            }
        }
        self.donors.tiers = tiers;
    }

    pub(super) fn donors_status(&self) -> Vec<DonorStatus> {
        let pages = self.shared.mover.store.facts().log_pages;
        let status = |tier: &DonorTier| {
            let (standing, log) = (tier.standing(), tier.log.facts());
            DonorStatus {
                at: tier.at.clone(),
                state: standing.state,
                why: standing.why,
                stored_pages: pages[tier.log.log().index()],
                live_bytes: log.live_bytes,
                free_bytes: standing.free_bytes,
                sent_bytes: standing.sent_bytes,
                received_bytes: standing.received_bytes,
                waiting_bytes: standing.waiting_bytes,
                round_trip_us: standing.round_trip.map(|time| time.as_micros() as u64),
                connections: standing.connections,
                cuts: standing.cuts,
                read_errors: log.read_errors,
            }
        };
        self.donors.tiers.iter().map(status).collect()
    }
}

/// What a donor would take, with what it has.
fn room(standing: &Standing, log: TierFacts) -> TierFacts {
    let free = match standing.state {
        DonorState::Up => standing.free_bytes,
        DonorState::Weak | DonorState::Pressed | DonorState::Lost | DonorState::Single => 0,
    };
    let limit_bytes = log.limit_bytes.min(log.used_bytes.saturating_add(free));
    TierFacts { limit_bytes, ..log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_has_the_room_that_it_says_and_none_when_it_is_not_up() {
        let log = TierFacts { used_bytes: 100, limit_bytes: 1000, pages: 7, limit_pages: u64::MAX };
        let mut standing = Standing {
            state: DonorState::Up,
            free_bytes: 300,
            round_trip: None,
            sent_bytes: 0,
            received_bytes: 0,
            waiting_bytes: 0,
            connections: 1,
            cuts: 0,
            why: None,
        };
        assert_eq!(room(&standing, log).limit_bytes, 400);
        standing.free_bytes = u64::MAX;
        assert_eq!(room(&standing, log).limit_bytes, 1000);
        for state in [DonorState::Weak, DonorState::Pressed, DonorState::Lost, DonorState::Single] {
            standing.state = state;
            assert_eq!(room(&standing, log), TierFacts { limit_bytes: 100, ..log });
        }
    }
}

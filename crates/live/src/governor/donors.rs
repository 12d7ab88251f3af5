//! Machines that lend memory: how they stand is looked at with the budget, and the policies are told what has changed.

use std::time::Instant;

use clew_core::{Event, Tier};
use clew_remote::patience::Patience;
use clew_remote::told::Told;
use clew_store::PoolFacts;

use super::Governor;
use crate::control::status::DonorStatus;
use crate::donor_tier::DonorTier;

/// The donors of a daemon, and what the policies were told of each.
#[derive(Default)]
pub(super) struct Donors {
    tiers: Vec<DonorTier>,
    told: Told,
    /// Since when there are these.
    since: Option<Instant>,
}

impl Governor {
    /// From now on there are these.
    pub fn lend_from(&mut self, tiers: Vec<DonorTier>) {
        self.donors.tiers = tiers;
        self.donors.since = Some(Instant::now());
    }

    /// Tells the driver how donors stand.
    pub(super) fn look_at_donors(&mut self, pool: &PoolFacts) {
        let tiers = std::mem::take(&mut self.donors.tiers);
        // A successor has pages there before it has reached any of them.
        let is_new =
            self.donors.since.is_some_and(|since| since.elapsed() <= Patience::default().donor);
        for tier in &tiers {
            let log = tier.log.facts();
            let pages = pool.log_pages[tier.log.log().index()];
            if pages == 0 {
                // Nobody asks for what it had.
                tier.forgive();
            }
            let standing = tier.standing();
            let (room, changed) =
                self.donors.told.look(tier.donor, &standing, log.tier(pages), is_new);
            self.driver.set_tier(Tier::Donor(tier.donor), room);
            self.clean_log(tier.log.log(), &log);
            if let Some(state) = changed {
                let at = &tier.at;
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

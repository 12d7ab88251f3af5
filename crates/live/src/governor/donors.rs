//! Machines that lend memory: how they stand is looked at with the budget, and the policies are told what has changed.
//!
//! What a donor has that wants its memory back is brought here, as far as there is room, whatever the scheme: after a
//! while the donor takes it, and who needs a page then cannot go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::{DonorState, Event, Tier, Vpn};
use clew_remote::patience::Patience;
use clew_remote::told::Told;
use clew_store::flash::LogId;
use clew_store::{PoolFacts, State};

use super::Governor;
use super::requests::Then;
use crate::control::status::DonorStatus;
use crate::donor_tier::DonorTier;
use crate::programs::process::{ALL_PAGES, Process};

/// How often that is begun anew at most, with what room there is then.
const BROUGHT: Duration = Duration::from_secs(1);

/// Something of a donor that wants its memory back is brought here.
struct Brought {
    began: Instant,
    /// Of the orders.
    promise: u64,
}

/// The donors of a daemon, and what the policies were told of each.
#[derive(Default)]
pub(super) struct Donors {
    tiers: Vec<DonorTier>,
    told: Told,
    /// Since when there are these.
    since: Option<Instant>,
    /// The last time for each.
    brought: HashMap<LogId, Brought>,
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
            let (log, facts) = (tier.log.log(), tier.log.facts());
            let pages = pool.log_pages[log.index()];
            if pages == 0 {
                // Nobody asks for what it had.
                tier.forgive();
            }
            let standing = tier.standing();
            let (room, changed) =
                self.donors.told.look(tier.donor, &standing, facts.tier(pages), is_new);
            self.driver.set_tier(Tier::Donor(tier.donor), room);
            self.clean_log(log, &facts);
            if let Some(state) = changed {
                let at = &tier.at;
                match &standing.why {
                    Some(why) => tracing::warn!(at, ?state, why, "a donor"),
                    None => tracing::info!(at, ?state, "a donor"),
                }
                self.tell(&Event::Donor { donor: tier.donor, state });
            }
            // What is on its way would be ordered again.
            let is_due = self.donors.brought.get(&log).is_none_or(|last| {
                last.began.elapsed() > BROUGHT && !self.promises.contains_key(&last.promise)
            });
            let is_wanted = matches!(standing.state, DonorState::Pressed | DonorState::Relieved);
            if is_wanted && pages > 0 && is_due {
                let promise = self.bring_from(log);
                let began = Instant::now();
                self.donors.brought.insert(log, Brought { began, promise });
            }
        }
        self.donors.tiers = tiers;
    }

    /// Has what lies there brought here, as far as the budget allows: apps that were used last come first. The
    /// promise waits for all of it.
    fn bring_from(&mut self, log: LogId) -> u64 {
        let promise = self.promise(None, Then::Answer);
        let budget = *self.driver.budget();
        let room = budget.total_bytes.saturating_sub(self.used_bytes + budget.low_bytes);
        let mut pages = (room / budget.page_bytes) as usize;
        let mut processes: Vec<Arc<Process>> =
            self.shared.processes.read().values().cloned().collect();
        processes.sort_by_key(|process| {
            let stats = self.driver.facts().apps.get(&process.app);
            std::cmp::Reverse(stats.map(|stats| stats.last_foreground))
        });
        for process in processes {
            let mut vpns = self.stored_at(&process, log);
            vpns.truncate(pages);
            pages -= vpns.len();
            self.restore(&process, &vpns, Some(promise));
        }
        self.keep_promise(promise);
        promise
    }

    /// Pages of a program that lie there.
    fn stored_at(&self, process: &Process, log: LogId) -> Vec<Vpn> {
        let store = &self.shared.mover.store;
        let mut vpns = Vec::new();
        let (first, pages) = ALL_PAGES;
        process.space.table.for_range(first, pages, |vpn, entry| {
            let is_there = entry.handle().is_some_and(|handle| store.log_of(handle) == Some(log));
            if entry.state() == State::Stored && is_there {
                vpns.push(vpn);
            }
        });
        vpns
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

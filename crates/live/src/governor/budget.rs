//! The budget: what is counted, when reclaim begins and ends, who has a budget of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AppState, Tier, TierFacts};
use clew_engine::budget::Use;
use clew_store::PoolFacts;
use clew_store::flash::{FlashFacts, LogId};

use super::Governor;
use super::fullness::Say;
use super::scans::Unknown;
use crate::control::status::UsedBytes;
use crate::programs::proc_stat::resident_anonymous_bytes;
use crate::programs::process::Process;
use crate::workers::work::Work;

/// One slot of flash in so many: fewer free ones are few.
const FEW_SLOTS: u64 = 8;

/// A buffer between daemon and agent that was not needed for so long gives its memory back.
const BUFFER_IDLE: Duration = Duration::from_secs(1);

fn tier_facts(facts: &PoolFacts) -> TierFacts {
    TierFacts {
        used_bytes: facts.used_bytes,
        limit_bytes: facts.limit_bytes,
        pages: facts.pages - facts.far_pages.min(facts.pages),
        limit_pages: facts.limit_pages,
        ..TierFacts::default()
    }
}

impl Governor {
    pub(super) fn resident_of(&self, process: &Process) -> u64 {
        process.resident_bytes(self.shared.page_bytes)
    }

    pub(super) fn daemon_bytes(&mut self) -> u64 {
        let page = self.shared.page_bytes;
        let own = self.own_statm.as_ref().map_or(0, |f| resident_anonymous_bytes(f, page));
        own + self.shared.tables_bytes()
    }

    /// Buffers that nobody uses at the moment give their memory back.
    pub(super) fn empty_idle_buffers(&self) {
        for process in self.shared.processes.read().values() {
            process.memory.empty_idle_buffer(BUFFER_IDLE);
        }
    }

    pub(super) fn keep_budget(&mut self) {
        let facts = self.shared.mover.store.facts();
        let processes: Vec<Arc<Process>> = self.shared.processes.read().values().cloned().collect();
        let residents: Vec<u64> = processes.iter().map(|p| self.resident_of(p)).collect();
        // Siblings may outlive the one that is managed.
        let is_counted =
            |pid| processes.iter().zip(&residents).any(|(p, bytes)| p.pid() == pid && *bytes > 0);
        let small: u64 = self
            .waiting
            .iter()
            .filter(|w| !w.forked && !w.shares_with.is_some_and(is_counted))
            .map(|w| w.resident)
            .sum();
        let buffers: u64 = processes.iter().map(|p| p.memory.buffer_bytes()).sum();
        let is_there = |id| self.shared.processes.read().contains_key(&id);
        let counted = processes.iter().zip(&residents);
        let counted = counted.map(|(process, resident)| process.counted_bytes(*resident, is_there));
        let counted: Vec<u64> = counted.collect();
        self.resident_bytes = counted.iter().sum::<u64>() + small;
        self.used = UsedBytes {
            programs_bytes: self.resident_bytes,
            buffers_bytes: buffers,
            pool_bytes: facts.used_bytes,
            kernel_bytes: self.kernel_tier_bytes(&processes),
            mounts_bytes: self.mounts.held_bytes(),
            daemon_bytes: self.daemon_bytes(),
        };
        self.used_bytes = self.used.total();
        self.driver.set_tier(Tier::Pool, tier_facts(&facts));
        self.look_at_donors(&facts);
        if let Some(flash) = self.shared.mover.store.log(LogId::FLASH) {
            let flash = flash.facts();
            // Who puts nothing there has no room there.
            if self.config.scheme.uses(Tier::Flash) {
                self.driver
                    .set_tier(Tier::Flash, flash.tier(facts.log_pages[LogId::FLASH.index()]));
            }
            self.clean_log(LogId::FLASH, &flash);
        }
        let (full, times) = self.driver.pool_full();
        let said = self.pool.look(full, times, Instant::now());
        self.log_of_pool(said);
        let budget = *self.driver.budget();
        let free_bytes = budget.free_bytes(self.used_bytes);
        self.shared.mover.room_along.is(free_bytes / budget.page_bytes);
        let near = free_bytes < budget.high_bytes * 4;
        // New memory is found in time, and more eagerly near the limit.
        for (process, resident) in processes.iter().zip(&residents) {
            let unknown = Unknown::of(process, *resident, self.shared.page_bytes);
            if process.is_managed() && self.scans.is_due(process.id, unknown, near) {
                self.scan(process.clone(), None);
            }
        }
        for (process, resident) in processes.iter().zip(&residents) {
            self.look_where_it_grew(process, *resident);
            self.keep_own_budget(process, *resident);
        }
        let is_gone = free_bytes < budget.low_bytes / 2;
        // What users over their own budgets have too much they give themselves.
        let owed = self.keep_user_budgets(&processes, &counted, is_gone);
        // Room is made between relaunches; during one, only what must be: its faults need the CPUs.
        let relaunching = self.driver.is_relaunching();
        // Where an app may be ended, a machine that stalls is reason enough.
        let stalled = self.may_kill()
            && self.last_stall.is_some_and(|when| when.elapsed() < Duration::from_secs(1));
        let used_bytes = self.used_bytes.saturating_sub(owed);
        let resident_bytes = self.resident_bytes.saturating_sub(owed);
        let now = Use { used_bytes, resident_bytes, relaunching, stalled, ..Use::default() };
        let leaves = self.driver.leaving_pages() > 0;
        let is_short = self.driver.shortage(now).is_some();
        if leaves || is_short {
            self.last_busy = Instant::now();
        }
        let over = leaves && free_bytes == 0;
        self.shared.over_budget.store(over, Ordering::Relaxed);
        self.driver.keep_budget(self.now, now, &self.programs);
        self.carry_out(None);
    }

    /// Has slots of a log made free before none is.
    pub(super) fn clean_log(&mut self, log: LogId, facts: &FlashFacts) {
        let few = facts.free_slots < facts.slots / FEW_SLOTS;
        if few && facts.latched.is_none() && self.cleaning.insert(log) {
            self.hand_out(None, |ticket| Work::CleanLog { log, ticket });
        }
        let latched = facts.latched.as_ref().filter(|_| log == LogId::FLASH);
        if let Some(why) = latched.filter(|_| !self.flash_latched) {
            self.flash_latched = true;
            tracing::error!("flash takes nothing more: {why}; what is there stays readable");
        }
    }

    /// Takes a background process down to the budget that a rule gives it.
    pub(super) fn keep_own_budget(&mut self, process: &Arc<Process>, resident: u64) {
        let Some(own) = self.config.rule(&process.command).budget else { return };
        let background =
            self.apps.get(&process.app).is_some_and(|a| a.state == AppState::Background);
        let recently =
            self.over_budget.get(&process.id).is_some_and(|t| t.elapsed() < Duration::from_secs(1));
        if resident <= own.0 || !background || recently || self.driver.pool_full().0 {
            return;
        }
        self.over_budget.insert(process.id, Instant::now());
        let excess = ((resident - own.0) / self.shared.page_bytes) as usize;
        self.driver.take_out_of_app(process.app, excess, &self.programs);
        self.carry_out(None);
    }

    /// Something did not fit into the pool.
    pub(super) fn look_at_room(&mut self) {
        self.driver.no_room(tier_facts(&self.shared.mover.store.facts()));
        self.carry_out(None);
    }

    fn log_of_pool(&self, said: Option<Say>) {
        let then = if self.may_kill() { "kill" } else { "stop" };
        match said {
            Some(Say::Full) => tracing::warn!(
                "the pool is full: nothing more leaves the programs (on_full = {then})"
            ),
            Some(Say::Room { times }) => {
                tracing::warn!(times, "the pool has had room for a while: it is full no longer");
            }
            None => {}
        }
    }

    /// Gives up kept copies until `wanted_bytes` are free, as far as there are any.
    pub(super) fn give_up_kept(&mut self, wanted_bytes: u64) {
        let shared = &self.shared;
        let dropped = self.driver.give_up_kept(wanted_bytes, |page| {
            let process = shared.process(page.space())?;
            shared.mover.drop_kept(&process.space, page.vpn())
        });
        if dropped.copies > 0 {
            shared.mover.store.compact(dropped.copies as usize);
        }
        self.driver.gave_up(dropped, tier_facts(&shared.mover.store.facts()), &self.programs);
    }
}

//! The budget, and what the driver wants done for it.

use clew_core::{AppId, Event, FlashForm, Group, Ns, PageId, SpaceId, Tier, Trigger};
use clew_engine::budget::Use;
use clew_engine::driver::{Command, SAMPLE_BYTES};
use clew_policy::schemes::OnFull;
use clew_report::Memory;
use clew_store::State;
use clew_store::flash::LogId;

use super::ahead::Restoring;
use super::{Replay, TICK};
use crate::costs::Spent;
use crate::error::LabError;
use crate::mechanism::Mechanism;

/// Where pages go that leave their program, or their tier.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// Into the pool.
    ToPool,
    /// Into a log, past the pool.
    Far(LogId, FlashForm),
    /// From the pool to a log.
    Evict(LogId, FlashForm),
    /// To the kernel's zram.
    Lend,
}

impl<M: Mechanism> Replay<'_, M> {
    /// What a relaunch is expected to use comes back.
    pub(super) fn prefetch(&mut self, trigger: Trigger) {
        self.driver.want_early(trigger, &self.mechanism);
        self.driver.bring_wanted(self.used(), &self.mechanism);
    }

    /// Brings back what nobody has asked for yet; how many pages came.
    pub(super) fn restore(&mut self, pages: &[PageId], park: bool) -> Result<usize, LabError> {
        self.tally.decided(4, pages.iter().map(|page| page.raw()));
        let there: Vec<PageId> =
            pages.iter().copied().filter(|page| !self.is_lost(*page)).collect();
        let pages = there.as_slice();
        let mut events = std::mem::take(&mut self.events);
        let world = self.world.as_ref();
        let spent = self.mechanism.restore(pages, park, world, &mut events)?;
        self.tally.spend(&spent);
        if let (Some(watch), Some(page)) = (&mut self.watch, pages.first()) {
            watch.brought(self.spaces.app(page.space()), &spent);
        }
        let came = |event: &&Event| matches!(event, Event::PageIn { .. });
        let count = events.iter().filter(came).count();
        let order = Restoring {
            work_ns: spent.cpu_ns() + spent.device_ns,
            round_trip_ns: spent.round_trip_ns,
            alone_ns: self.costs.fault_ns
                + spent.round_trip_ns
                + spent.device_ns / count.max(1) as f64,
            pages: count,
        };
        self.ahead.begin(self.program_ns(), order);
        self.tell_all(&mut events, false)?;
        self.ahead.end();
        Ok(count)
    }

    #[inline]
    pub(super) fn used(&self) -> Use {
        let resident_bytes = self.mechanism.resident_pages() * self.driver.budget().page_bytes;
        let relaunching = self.window.is_some();
        Use { used_bytes: self.used_bytes(), resident_bytes, relaunching, ..Use::default() }
    }

    #[inline]
    pub(super) fn used_bytes(&self) -> u64 {
        let pages = self.mechanism.resident_pages() + self.mechanism.parked_pages();
        pages * self.driver.budget().page_bytes
            + self.mechanism.pool_used_bytes()
            + self.mechanism.kernel_used_bytes()
            + self.tables_bytes
    }

    /// Reclaims what is short. As the daemon does at its ticks.
    pub(super) fn keep_budget(&mut self) -> Result<(), LabError> {
        if self.driver.has_commands() {
            self.carry_out()?;
        }
        while !self.nobody_leaves {
            let now = self.used();
            let page_bytes = self.driver.budget().page_bytes;
            self.tally.peak(now.used_bytes, || Memory {
                resident_bytes: self.mechanism.resident_pages() * page_bytes,
                parked_bytes: self.mechanism.parked_pages() * page_bytes,
                pool_bytes: self.mechanism.pool_used_bytes(),
                kernel_bytes: self.mechanism.kernel_used_bytes(),
                tables_bytes: self.tables_bytes,
                ..Memory::default()
            });
            let is_short = self.driver.shortage(now).is_some();
            if !is_short || self.now < self.not_before {
                return Ok(());
            }
            self.tables_bytes = self.mechanism.tables_bytes();
            self.driver.set_tier(Tier::Pool, self.mechanism.pool());
            for (log, facts) in self.mechanism.logs() {
                if !self.is_lost_tier(log.tier()) {
                    self.driver.set_tier(log.tier(), facts);
                }
            }
            if let Some(kernel) = self.mechanism.kernel() {
                self.driver.set_tier(Tier::Kernel, kernel);
            }
            self.driver.keep_budget(self.now, now, &self.mechanism);
            if !self.carry_out()? {
                self.not_before = Ns(self.now.0 + TICK.0);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does what the driver wants done; true if that freed memory.
    pub(super) fn carry_out(&mut self) -> Result<bool, LabError> {
        let mut progress = false;
        while let Some(command) = self.driver.next_command() {
            match command {
                Command::SwapOut { space, groups, number }
                | Command::Move { space, groups, tier: Tier::Pool, form: _, number } => {
                    progress |= self.take_out(space, &groups, How::ToPool, number)?;
                    if self.mechanism.was_full() {
                        self.driver.no_room(self.mechanism.pool());
                    }
                }
                Command::PutFar { space, groups, to, form, number } => {
                    progress |= self.take_out(space, &groups, How::Far(to, form), number)?;
                }
                Command::Move { space, groups, tier: Tier::Flash, form, number } => {
                    let how = How::Evict(LogId::FLASH, form);
                    progress |= self.take_out(space, &groups, how, number)?;
                }
                Command::Move { space, groups, tier: Tier::Donor(donor), form, number } => {
                    let how = How::Evict(LogId::at(donor), form);
                    progress |= self.take_out(space, &groups, how, number)?;
                }
                Command::Repack { space, groups, number } => {
                    self.driver.carried_out(number, 0);
                    if self.plays(space) {
                        let spent = self.mechanism.repack(space, &groups)?;
                        self.tally.spend(&spent);
                        self.backlog.push(self.program_ns(), spent.cpu_ns(), 0);
                    }
                }
                Command::Restore { space, pages, park, number } => {
                    let came = if self.plays(space) { self.restore(&pages, park)? } else { 0 };
                    self.driver.carried_out(number, came);
                }
                Command::Peek { space, groups, number } => {
                    self.driver.carried_out(number, 0);
                    if self.plays(space) {
                        let samples = self.peek(&groups)?;
                        let sampled = samples.iter().filter(|sample| !sample.is_empty()).count();
                        let spent = Spent::sampling(sampled as u64, &self.costs);
                        self.tally.spend(&spent);
                        self.backlog.push(self.program_ns(), spent.cpu_ns(), 0);
                        self.driver.peeked(self.now, groups, &samples, &self.mechanism);
                    }
                }
                Command::Lend { space, groups, number }
                | Command::Move { space, groups, tier: Tier::Kernel, form: _, number } => {
                    progress |= self.take_out(space, &groups, How::Lend, number)?;
                }
                // A replay hears of every touch that the trace has; it has no sensor.
                Command::Watch { .. } | Command::EndWatch { .. } => {}
                Command::GiveUp { wanted_bytes } => {
                    let mechanism = &mut self.mechanism;
                    let give_up = |page| mechanism.drop_kept(page);
                    let dropped = self.driver.give_up_kept(wanted_bytes, give_up);
                    if dropped.copies > 0 {
                        self.mechanism.compact(dropped.copies);
                    }
                    self.tally.kept_dropped += dropped.copies;
                    progress |= dropped.bytes > 0;
                    self.driver.gave_up(dropped, self.mechanism.pool(), &self.mechanism);
                }
                Command::EndApp { app, .. } => {
                    let in_front = self.driver.facts().is_in_front(app);
                    if self.on_full == OnFull::Kill && !in_front && !self.dead.contains(&app) {
                        self.tally.decided(2, [u64::from(app.0)]);
                        self.end_app(app);
                        self.dead.insert(app);
                        self.tally.kills += 1;
                        progress = true;
                    }
                }
                Command::Run(job) => {
                    (job.run)();
                    self.tell(&Event::JobDone { job: job.id });
                }
            }
        }
        Ok(progress)
    }

    /// Everything of `app` leaves.
    pub(super) fn take_out_all(&mut self, app: AppId) -> Result<(), LabError> {
        if self.dead.contains(&app) {
            return Ok(());
        }
        self.carry_out()?;
        self.driver.take_out_app(app, &self.mechanism);
        self.carry_out().map(|_| ())
    }

    /// How each page of these begins; nothing of those that are not resident any more.
    pub(super) fn peek(&mut self, groups: &[Group]) -> Result<Vec<Vec<u8>>, LabError> {
        let (mechanism, world) = (&mut self.mechanism, self.world.as_ref());
        let sample = |page: &PageId| match mechanism.state(*page) {
            State::Resident => mechanism.beginning_of(*page, SAMPLE_BYTES, world),
            _ => Ok(Vec::new()),
        };
        groups.iter().flat_map(|group| &group.pages).map(sample).collect()
    }

    /// Takes groups out of a space, or of their tier; true if something left.
    pub(super) fn take_out(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        how: How,
        number: u64,
    ) -> Result<bool, LabError> {
        // It takes the reclaimer's time, and none of the driver's.
        self.driver.carried_out(number, 0);
        if !self.plays(space) {
            // It was ended, and what it had is gone.
            return Ok(false);
        }
        for group in groups {
            self.tally.decided(1, group.pages.iter().map(|page| page.raw()));
        }
        if self.spaces.is_file(space)
            && matches!(how, How::Far(LogId::FLASH, _) | How::Evict(LogId::FLASH, _))
        {
            return Ok(self.drop_pages(groups));
        }
        let used = self.used_bytes();
        let mut events = std::mem::take(&mut self.events);
        let world = self.world.as_ref();
        let mechanism = &mut self.mechanism;
        let spent = match how {
            How::ToPool => mechanism.swap_out(space, groups, world, &mut events),
            How::Far(to, form) => mechanism.put_far(space, groups, (to, form), world, &mut events),
            How::Evict(to, form) => mechanism.evict(space, groups, (to, form), &mut events),
            How::Lend => mechanism.lend(space, groups, world, &mut events),
        }?;
        self.tally.spend(&spent);
        if let Some(watch) = &mut self.watch {
            watch.took_out(self.spaces.app(space), groups, &spent);
        }
        let freed = used.saturating_sub(self.used_bytes());
        // What is on its way to a log is in memory until the device has it.
        let took_ns = spent.cpu_ns() + spent.device_ns;
        self.backlog.push(self.program_ns(), took_ns, freed);
        // A page that could not be evicted is told of as stored, too.
        let left = events.iter().any(|event| match event {
            Event::Stored { tier, .. } => {
                !matches!(how, How::Evict(..)) || LogId::of(*tier).is_some()
            }
            _ => false,
        });
        if let How::Evict(..) = how {
            // They left their program before.
            events.iter().for_each(|event| self.tell(event));
            events.clear();
            self.events = events;
        } else {
            self.tell_all(&mut events, false)?;
        }
        Ok(left)
    }
}

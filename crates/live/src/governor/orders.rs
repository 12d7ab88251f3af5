//! Orders on their way to workers, and what becomes of them.

use std::sync::Arc;

use clew_core::{Event, SpaceId, Tier, Vpn};
use clew_engine::driver::Command;
use clew_store::State;
use clew_store::flash::LogId;

use super::Governor;
use super::silence::takes_orders;
use crate::agents::refusal::AttachError;
use crate::programs::process::Process;
use crate::workers::work::{Done, Peeked, Work};

/// Pages a restore hands to one worker at a time.
const RESTORE_PAGES: usize = 512;

/// An order to put zeros into what nobody has touched of a process.
pub(super) struct Untouched {
    process: Arc<Process>,
    ticket: u64,
}

impl Untouched {
    fn work(self) -> Work {
        Work::PutUntouched { process: self.process, ticket: self.ticket }
    }
}

impl Governor {
    pub(super) fn ticket(&mut self, promise: Option<u64>) -> u64 {
        let ticket = self.number();
        self.tickets.insert(ticket, promise.unwrap_or(0));
        if let Some(promise) = promise.and_then(|p| self.promises.get_mut(&p)) {
            promise.left += 1;
        }
        ticket
    }

    /// A promise waits for what was ordered for nobody.
    pub(super) fn wait_for(&mut self, ticket: u64, promise: u64) {
        if let Some(waits @ 0) = self.tickets.get_mut(&ticket)
            && let Some(promised) = self.promises.get_mut(&promise)
        {
            *waits = promise;
            promised.left += 1;
        }
    }

    pub(super) fn hand_out(&mut self, promise: Option<u64>, make: impl FnOnce(u64) -> Work) {
        let ticket = self.ticket(promise);
        self.work.send(make(ticket));
    }

    /// Sends work that may begin.
    fn begin(&self, work: Option<Work>) {
        if let Some(work) = work {
            self.work.send(work);
        }
    }

    /// Takes out of a process: one at a time, so that an agent that does not answer holds up one
    /// worker, and not all of them.
    pub(super) fn take_out(&mut self, space: SpaceId, work: Work) {
        let work = self.swap_outs.last(space, work);
        self.begin(work);
    }

    /// The same, before all that waits.
    pub(super) fn take_out_next(&mut self, space: SpaceId, work: Work) {
        let work = self.swap_outs.first(space, work);
        self.begin(work);
    }

    /// Has zeros put into what nobody has touched of a process: one at a time for each user, as that takes long, is nothing
    /// that a program waits for, and may be asked for again and again.
    pub(super) fn put_untouched(&mut self, process: Arc<Process>, promise: u64) {
        let (uid, ticket) = (process.uid(), self.ticket(Some(promise)));
        let order = self.untouched.last(uid, Untouched { process, ticket });
        self.begin(order.map(Untouched::work));
    }

    /// Does none of them that has not begun: whoever waits for it is answered.
    pub(super) fn leave_untouched(&mut self) {
        for Untouched { ticket, .. } in self.untouched.leave(|_| true) {
            self.done(Done { ticket, ..Done::default() });
        }
    }

    /// What is told of a page that left, some time after it did. It may have come back meanwhile, and
    /// been told of as back; told of as stored only now, no policy would ever take it out again.
    pub(super) fn as_it_is_now(&self, event: &Event) -> Option<Event> {
        let Event::Stored { page, .. } = *event else { return Some(event.clone()) };
        let state = self.programs.with(page.space(), |p| p.space.table.load(page.vpn()).state())?;
        match state {
            State::Resident => Some(Event::Stayed { page }),
            State::Absent => None,
            State::Moving | State::Stored | State::Restoring | State::Parked | State::Lent => {
                Some(event.clone())
            }
        }
    }

    pub(super) fn done(&mut self, done: Done) {
        let promise = self.tickets.remove(&done.ticket).unwrap_or(0);
        if let Some(number) = self.commands.remove(&done.ticket) {
            self.driver.carried_out(number, done.pages);
        }
        if let Some(process) = done.process.as_ref().filter(|_| done.taken_out) {
            let next = self.swap_outs.next(process.id);
            self.begin(next);
        }
        if let Some(process) = done.process.as_ref().filter(|_| done.untouched) {
            let next = self.untouched.next(process.uid());
            self.begin(next.map(Untouched::work));
        }
        if let Some(process) = done.process.as_ref().filter(|_| done.accessed_cleared) {
            self.touches_cleared(process.id);
        }
        if let (Some(process), Some(is_free)) = (&done.process, done.let_go) {
            self.was_let_go(process, is_free);
        }
        if let Some(Ok(process)) = &done.managed
            && process.forked
        {
            self.introduce(process);
        } else if let Some(Ok(process)) = &done.managed {
            self.meet(process.id);
        }
        for event in &done.events {
            if let Event::PageIn { page, .. } = event {
                self.driver.keep_copy(*page);
            }
            if let Event::Stayed { page } = event {
                self.stayed(*page);
            } else if let Some(event) = self.as_it_is_now(event) {
                // What somebody wanted out is no sign of memory being short.
                if let (Event::Stored { page, .. }, 0) = (&event, promise) {
                    self.thrashing.left(*page);
                }
                self.tell(&event);
            }
        }
        let is_on_its_way = done.peeked.is_some();
        if let Some(Peeked { groups, samples }) = done.peeked {
            self.driver.peeked(self.now, groups, &samples, &self.programs);
            self.carry_out((promise != 0).then_some(promise));
        }
        if let Some(job) = done.job {
            self.tell(&Event::JobDone { job });
        }
        if let Some(log) = done.cleaned {
            self.cleaning.remove(&log);
        }
        if done.full {
            self.look_at_room();
        }
        match done.managed {
            Some(Ok(process)) => {
                self.waiting.retain(|w| !w.is_prepared_as(process.pid()));
                tracing::info!(pid = process.pid(), command = process.command, "managed");
            }
            Some(Err((pid, error))) => {
                tracing::info!(pid, %error, "cannot be managed");
                if let Some(w) = self.waiting.iter_mut().find(|w| w.is_prepared_as(pid)) {
                    w.shares_with = match error {
                        AttachError::Shared { pid } => Some(pid),
                        _ => None,
                    };
                    w.reason = Some(error.to_string());
                }
            }
            None => {}
        }
        if let (Some(process), Some(why)) = (&done.process, done.alone) {
            self.let_go(process, why, None);
        }
        if let (Some(process), Some(look)) = (&done.process, &done.scanned) {
            let found = look.found_pages.map(|pages| pages * self.shared.page_bytes);
            self.scans.ended(process.id, look.took, found);
        }
        if let Some(promised) = self.promises.get_mut(&promise) {
            if !is_on_its_way {
                promised.stayed += done.asked.saturating_sub(done.pages);
                promised.stored += done.pages;
            }
            self.keep_promise(promise);
        }
    }

    pub(super) fn restore_all(&mut self, process: &Arc<Process>, promise: u64) {
        self.restore(process, &process.stored_vpns(), Some(promise));
    }

    /// Has these pages of a program brought back.
    pub(super) fn restore(&mut self, process: &Arc<Process>, vpns: &[Vpn], promise: Option<u64>) {
        for vpns in vpns.chunks(RESTORE_PAGES) {
            let (process, vpns) = (process.clone(), vpns.to_vec());
            self.hand_out(promise, |ticket| Work::Restore { process, vpns, park: false, ticket });
        }
    }

    /// The same, at the end: what can never come back is forgotten.
    pub(super) fn restore_for_good(&mut self, process: &Arc<Process>, promise: u64) {
        for vpns in process.stored_vpns().chunks(RESTORE_PAGES) {
            let (process, vpns) = (process.clone(), vpns.to_vec());
            self.hand_out(Some(promise), |ticket| Work::RestoreForGood { process, vpns, ticket });
        }
    }

    /// Does what the driver wants done; `promise` waits for what is taken out.
    pub(super) fn carry_out(&mut self, promise: Option<u64>) {
        while let Some(command) = self.driver.next_command() {
            let bytes = self.kernel.page_bytes;
            match command {
                Command::SwapOut { space, groups, number } => {
                    let make = |process, ticket| Work::SwapOut { process, groups, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Peek { space, groups, number } => {
                    let make = |process, ticket| Work::Peek { process, groups, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::PutFar { space, groups, to, form, number } => {
                    let to = (to, form);
                    let make = |process, ticket| Work::PutFar { process, groups, to, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Move { space, groups, tier: Tier::Flash, form, number } => {
                    let to = (LogId::FLASH, form);
                    let make = |process, ticket| Work::Evict { process, groups, to, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Move { space, groups, tier: Tier::Donor(donor), form, number } => {
                    let to = (LogId::at(donor), form);
                    let make = |process, ticket| Work::Evict { process, groups, to, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Move { space, groups, tier: Tier::Pool, form: _, number } => {
                    self.kernel.to_compact = true;
                    let make = |process, ticket| Work::SwapOut { process, groups, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Move { space, groups, tier: Tier::Kernel, form: _, number } => {
                    let make = |process, ticket| Work::PassOn { process, groups, bytes, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Lend { space, groups, number } => {
                    let make = |process, ticket| Work::Lend { process, groups, bytes, ticket };
                    self.take_groups_out(space, number, promise, make);
                }
                Command::Repack { space, groups, number } => {
                    let Some(process) = self.shared.process(space) else {
                        self.driver.carried_out(number, 0);
                        continue;
                    };
                    let ticket = self.ticket(None);
                    self.commands.insert(ticket, number);
                    self.work.send(Work::Repack { process, groups, ticket });
                }
                Command::Restore { space, pages, park, number } => {
                    let Some(process) = self.shared.process(space) else {
                        self.driver.carried_out(number, 0);
                        continue;
                    };
                    let vpns = pages.iter().map(|page| page.vpn()).collect();
                    let ticket = self.ticket(None);
                    self.commands.insert(ticket, number);
                    self.work.send(Work::Restore { process, vpns, park, ticket });
                }
                Command::Watch { space, groups } => {
                    if let Some(process) =
                        self.shared.process(space).filter(|process| takes_orders(process))
                    {
                        let ticket = self.ticket(None);
                        self.take_out(space, Work::Sample { process, groups, ticket });
                    }
                }
                Command::EndWatch { space, pages } => {
                    let Some(process) = self.shared.process(space) else { continue };
                    let vpns = pages.iter().map(|page| page.vpn()).collect();
                    self.hand_out(None, |ticket| Work::EndSample { process, vpns, ticket });
                }
                Command::GiveUp { wanted_bytes } => self.give_up_kept(wanted_bytes),
                Command::EndApp { app, reason } => self.end_app(app, reason),
                Command::Run(job) => self.hand_out(None, |ticket| Work::Job { job, ticket }),
            }
        }
    }

    fn take_groups_out(
        &mut self,
        space: SpaceId,
        number: u64,
        promise: Option<u64>,
        make: impl FnOnce(Arc<Process>, u64) -> Work,
    ) {
        let Some(process) = self.shared.process(space) else {
            return self.driver.carried_out(number, 0);
        };
        // Of who takes none they are off the lists until it does: else they were picked at once.
        if !self.takes_orders(&process) {
            self.passed_over.insert(space);
            return self.driver.carried_out(number, 0);
        }
        let ticket = self.ticket(promise);
        self.commands.insert(ticket, number);
        self.take_out(space, make(process, ticket));
    }
}

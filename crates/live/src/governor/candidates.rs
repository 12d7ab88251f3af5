//! Programs that come: they wait until they are large enough, and are prepared; what a predecessor or a
//! parent already managed is introduced.

use std::sync::Arc;

use clew_core::{AppId, Event, PageId, PageRun, SpaceId, Tier, Vpn};
use clew_store::State;

use super::{BEING_PREPARED, Governor, Waiting};
use crate::agents::candidate::Candidate;
use crate::programs::proc_stat::resident_anonymous_bytes_of;
use crate::programs::process::Process;

/// What waits that is looked at each time.
const LOOKED_AT: usize = 64;

impl Governor {
    pub(super) fn hello(&mut self, mut candidate: Box<Candidate>) {
        // They are heard at once, and one that has executed a program since may be heard last.
        let is_later =
            |other: &Candidate| other.pid == candidate.pid && other.order > candidate.order;
        if self.waiting.iter().any(|w| w.candidate.as_deref().is_some_and(is_later)) {
            return;
        }
        let app = match &candidate.child {
            Some(child) => child.app,
            None if candidate.app_name.is_empty() => {
                self.app_named(candidate.uid, &candidate.command.clone())
            }
            None => self.app_named(candidate.uid, &candidate.app_name.clone()),
        };
        candidate.app = app;
        if let Some(app) = self.apps.get_mut(&app) {
            app.awaited = None;
        }
        // The same pid with a new memory: the old one is gone, or will be noticed as gone.
        self.waiting.retain(|w| w.pid != candidate.pid);
        let (pid, command) = (candidate.pid, candidate.command.clone());
        let reason = (self.config.rule(&command).never).then(|| "a rule says never".to_string());
        let forked = candidate.child.is_some();
        let resident = resident_anonymous_bytes_of(pid, self.shared.page_bytes);
        self.waiting.push(Waiting {
            candidate: Some(candidate),
            app,
            pid,
            command,
            forked,
            reason,
            ticket: 0,
            shares_with: None,
            resident,
        });
    }

    /// Policies learn of a space with the first that is heard of it: a fault, what a look through it has found, or that
    /// it is managed. Of pages of a space that they do not know they could not say whose they are.
    pub(super) fn meet(&mut self, space: SpaceId) {
        if self.driver.facts().app_of(space).is_none()
            && let Some(process) = self.shared.process(space)
        {
            self.begin_space(&process);
        }
    }

    fn begin_space(&mut self, process: &Process) {
        // None of its pages will be known.
        if self.config.rule(&process.command).protect {
            self.driver.protect(process.id, process.app);
        }
        self.tell(&Event::SpaceStart { space: process.id, app: process.app, file: false });
    }

    /// The policies learn of a program that a predecessor managed, or of a forked child from which
    /// pages can be taken from now on, as if all had happened now.
    pub(super) fn introduce(&mut self, process: &Arc<Process>) {
        // Of one that has been buried meanwhile the end was told.
        if !self.shared.process(process.id).is_some_and(|now| Arc::ptr_eq(&now, process)) {
            return;
        }
        self.begin_space(process);
        let mut stored = Vec::new();
        let mut runs: Vec<PageRun> = Vec::new();
        let lent_bytes = self.kernel.page_bytes;
        let store = self.shared.mover.store.clone();
        process.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            let page = PageId::new(process.id, vpn);
            match entry.state() {
                State::Stored | State::Restoring | State::Parked => {
                    let of = |h| store.stored_bytes(h) / u32::from(store.block_pages(h).max(1));
                    stored.push((
                        page,
                        self.shared.mover.tier_of(entry),
                        entry.handle().map_or(0, of),
                    ));
                }
                State::Lent => stored.push((page, Tier::Kernel, lent_bytes)),
                State::Resident => {
                    if entry.handle().is_some() {
                        self.driver.keep_copy(page);
                    }
                    match runs.last_mut() {
                        Some(last) if last.first.vpn().0 + u64::from(last.count) == vpn.0 => {
                            last.count += 1;
                        }
                        _ => runs.push(process.run(vpn, 1)),
                    }
                }
                State::Absent | State::Moving => {}
            }
        });
        for run in runs {
            self.tell(&Event::Resident { run });
        }
        for (page, tier, bytes) in stored {
            self.tell(&Event::Stored { page, tier, bytes });
        }
    }

    pub(super) fn manage(&mut self, index: usize, promise: Option<u64>) {
        let Some(mut candidate) = self.waiting[index].candidate.take() else { return };
        self.waiting[index].reason = Some(BEING_PREPARED.to_string());
        let load =
            |h: usize| self.shared.processes.read().values().filter(|p| p.handler == h).count();
        candidate.handler = (0..self.shared.epolls.len()).min_by_key(|h| load(*h)).unwrap_or(0);
        let ticket = self.ticket(promise);
        self.waiting[index].ticket = ticket;
        self.crew.prepare(candidate, ticket);
    }

    /// Has all programs of an app managed that can be; `promise` waits for that, and for those that are being prepared
    /// already, as far as nobody else does.
    pub(super) fn manage_all(&mut self, app: AppId, promise: u64) {
        for i in 0..self.waiting.len() {
            let of = &self.waiting[i];
            if of.app != app {
                continue;
            }
            if of.reason.is_none() {
                self.manage(i, Some(promise));
            } else if of.reason.as_deref() == Some(BEING_PREPARED) {
                self.wait_for(of.ticket, promise);
            }
        }
    }

    /// Looks at what waits, so many at a time in turn, and has those managed that have become large enough.
    pub(super) fn admit_candidates(&mut self) {
        for _ in 0..self.waiting.len().min(LOOKED_AT) {
            self.looked_at = (self.looked_at + 1) % self.waiting.len();
            let w = &mut self.waiting[self.looked_at];
            w.resident = resident_anonymous_bytes_of(w.pid, self.shared.page_bytes);
            if w.candidate.is_some()
                && w.reason.is_none()
                && w.resident >= self.config.min_process.0
            {
                self.manage(self.looked_at, None);
            }
        }
    }
}

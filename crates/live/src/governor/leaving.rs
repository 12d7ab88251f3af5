//! Programs that are let go: see [`crate::programs::let_go`].

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Governor, Waiting};
use crate::faults::affinity;
use crate::programs::alone::Alone;
use crate::programs::let_go::PATIENCE;
use crate::programs::plea::Plea;
use crate::programs::proc_stat::resident_anonymous_bytes_of;
use crate::programs::process::Process;
use crate::workers::work::Work;

impl Governor {
    /// Looks for programs that are to be left alone for what they have open, and do not ask.
    pub(super) fn look_at_open_files(&mut self) {
        let mut managed: Vec<Arc<Process>> =
            self.shared.processes.read().values().cloned().collect();
        managed.retain(|p| p.is_managed() && p.pid() != 0 && p.next_look.begin());
        for process in managed {
            self.hand_out(None, |ticket| Work::LookAtOpenFiles { process, ticket });
        }
    }

    /// A part of it is let go. It waits for what is being taken out, in one worker's place.
    pub(super) fn leave_out(&mut self, plea: Plea) {
        let ticket = self.ticket(None);
        self.take_out(plea.process.id, Work::LeaveOut { plea, ticket });
    }

    /// Nothing more is taken out of the process, and everything is brought back. Who asked for it
    /// is answered then.
    pub(super) fn let_go(&mut self, process: &Arc<Process>, why: Alone, plea: Option<Plea>) {
        if process.has_left() {
            plea.iter().for_each(|plea| plea.answer(true));
            return;
        }
        match self.pleas.entry(process.id) {
            Entry::Occupied(mut asked) => return asked.get_mut().extend(plea),
            Entry::Vacant(none) => none.insert(plea.into_iter().collect()),
        };
        let (pid, command) = (process.pid(), &process.command);
        tracing::info!(pid, command, "{why}");
        process.leave(Some(why));
        let (process, since) = (process.clone(), Instant::now());
        let ticket = self.ticket(None);
        // It waits for what is being taken out: no worker does.
        self.take_out_next(process.id, Work::LetGo { process, since, ticket });
    }

    /// Who has waited too long for what is being taken out (its agent is frozen, perhaps) waits no longer.
    pub(super) fn end_pleas_that_cannot_begin(&mut self) {
        let is_late = |work: &Work| match work {
            Work::LetGo { since, .. } => since.elapsed() > PATIENCE,
            Work::LeaveOut { plea, .. } => plea.since.elapsed() > PATIENCE,
            _ => false,
        };
        for work in self.swap_outs.leave(is_late) {
            match work {
                Work::LetGo { process, ticket, .. } => {
                    self.tickets.remove(&ticket);
                    self.was_let_go(&process, false);
                }
                Work::LeaveOut { plea, ticket } => {
                    self.tickets.remove(&ticket);
                    plea.answer(false);
                }
                _ => {}
            }
        }
    }

    /// It has been let go, or cannot be.
    pub(super) fn was_let_go(&mut self, process: &Process, is_free: bool) {
        process.left.store(is_free, Ordering::SeqCst);
        if !is_free {
            tracing::warn!(pid = process.pid(), "not every page could be brought back: it stays");
            process.leave(None);
        }
        for plea in self.pleas.remove(&process.id).into_iter().flatten() {
            plea.answer(is_free);
        }
    }

    /// A process that is let go is not served any more, but it still runs.
    pub(super) fn list_as_left_alone(&mut self, process: &Process) {
        let (app, pid, command) = (process.app, process.pid(), process.command.clone());
        let cpu = self.shared.handler_cpus[process.handler];
        affinity::widen(&process.narrowed, pid, cpu);
        if let Some(why) = process.leaves().filter(|_| pid != 0) {
            let (candidate, forked, reason) = (None, false, Some(why.to_string()));
            self.waiting.retain(|w| w.pid != pid);
            let resident = resident_anonymous_bytes_of(pid, self.shared.page_bytes);
            self.waiting.push(Waiting {
                candidate,
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
    }
}

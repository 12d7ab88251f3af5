//! Programs and apps that have ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AppId, Event};
use clew_store::points;

use super::{Governor, NOBODY_CAME, Waiting};
use crate::programs::process::Process;

impl Governor {
    /// Frees what programs that ended have left.
    pub(super) fn bury_the_dead(&mut self) {
        let check_memory = self.last_kcmp.elapsed() > Duration::from_secs(2);
        if check_memory {
            self.last_kcmp = Instant::now();
            self.look_for_own_userfaultfds();
            let is_left = |w: &Waiting| w.candidate.as_ref().is_some_and(|c| c.is_left());
            self.waiting.retain(|w| !is_left(w));
        }
        let processes: Vec<Arc<Process>> = self.shared.processes.read().values().cloned().collect();
        for process in processes {
            process.memory.watch_again();
            if check_memory && process.pid() != 0 && process.memory.agent_outlived(process.pid()) {
                // execve, and the agent has not noticed.
                process.memory.detach();
            }
            let lives_on = process.memory.uffd.is_alive();
            if lives_on && !process.has_left() {
                continue;
            }
            if self.swap_outs.contains_key(&process.id) {
                // Its end is waited for where waiting is done.
                process.memory.hang_up();
                continue;
            }
            self.shared.processes.write().remove(&process.id);
            self.waiting.retain(|w| !w.forked || w.pid != process.pid());
            if lives_on {
                self.list_as_left_alone(&process);
            }
            self.scans.forget(process.id);
            self.kernel.forget(process.id);
            self.over_budget.remove(&process.id);
            self.shared.mover.end(&process.space);
            points::gone_forgotten();
            process.space.journal.end();
            points::gone_ended();
            self.tell(&Event::SpaceEnd { space: process.id });
            if let Some(app) = self.apps.get_mut(&process.app) {
                app.past_faults += process.faults.load(Ordering::Relaxed);
                app.past_demand += process.demand.load(Ordering::Relaxed);
                app.past_lent_back += process.lent_back.load(Ordering::Relaxed);
                app.past_fault_ns += process.fault_ns.load(Ordering::Relaxed);
                app.past_fault_codec_ns += process.fault_codec_ns.load(Ordering::Relaxed);
                app.past_fault_along_ns += process.fault_along_ns.load(Ordering::Relaxed);
                app.past_restored += process.demand.load(Ordering::Relaxed)
                    + process.restored.load(Ordering::Relaxed);
                app.past_swapped_out += process.swapped_out.load(Ordering::Relaxed);
            }
        }
        self.waiting.retain(|w| std::fs::metadata(format!("/proc/{}", w.pid)).is_ok());
        if self.shared.recovering.load(Ordering::SeqCst) > 0 {
            // Apps whose programs are still being taken over have none yet.
            return;
        }
        let alive: Vec<AppId> = self
            .shared
            .processes
            .read()
            .values()
            .map(|p| p.app)
            .chain(self.waiting.iter().map(|w| w.app))
            .chain(self.apps.iter().filter(|(_, app)| app.is_awaited()).map(|(id, _)| *id))
            .chain(self.outside.apps_with_processes())
            .collect();
        let gone: Vec<AppId> = self.apps.keys().filter(|id| !alive.contains(id)).copied().collect();
        for app in gone {
            self.apps.remove(&app);
            self.tell(&Event::Exit { app });
        }
        let is_idle = self.config.exit_when_idle && self.apps.is_empty();
        if is_idle && (self.had_apps || self.nobody_comes()) && self.stopping.is_none() {
            self.stop(None);
        }
    }

    /// Whether this is a private daemon, and its first app will not come any more.
    fn nobody_comes(&self) -> bool {
        self.config
            .starter
            .is_some_and(|starter| self.started.elapsed() > NOBODY_CAME || !starter.is_alive())
    }
}

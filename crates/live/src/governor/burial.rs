//! Programs and apps that have ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AppId, Event};
use clew_store::points;
use crossbeam_channel::Sender;

use super::{Governor, NOBODY_CAME, Waiting};
use crate::agents::candidate::Who;
use crate::message::Message;
use crate::programs::looks::Leaver;
use crate::programs::process::Process;

/// How often it is asked whether programs have left their memory.
const LEAVERS: Duration = Duration::from_secs(2);

/// Of hundreds of programs that wait it is not asked each time whether they are there.
const AT_A_TIME: usize = 32;

impl Governor {
    /// Starts who looks whether programs have ended.
    ///
    /// # Errors
    /// If the system has no threads.
    pub fn look(&mut self, to_governor: &Sender<Message>) -> io::Result<()> {
        self.looks.start(to_governor)
    }

    /// Has somebody look which programs have ended, and now and then which have left their memory.
    pub(super) fn look_for_the_dead(&mut self) {
        let processes: Vec<Arc<Process>> = self.shared.processes.read().values().cloned().collect();
        if self.last_kcmp.elapsed() > LEAVERS {
            self.last_kcmp = Instant::now();
            self.look_at_open_files();
            let known = processes.iter().map(|process| (process.clone(), process.pid()));
            for (process, pid) in known.filter(|(_, pid)| *pid != 0) {
                self.looks.look_whether_left(Leaver::Managed(process, pid));
            }
            for candidate in self.waiting.iter().filter_map(|w| w.candidate.as_ref()) {
                if let Some(who) = candidate.who() {
                    let is_asked_about = candidate.is_asked_about.clone();
                    self.looks.look_whether_left(Leaver::Waiting(who, is_asked_about));
                }
            }
        }
        self.looks.look_for_ends(processes);
    }

    /// Of a candidate the program has left its agent.
    pub(super) fn is_left(&mut self, who: Who) {
        let is_it = |w: &Waiting| w.candidate.as_ref().and_then(|c| c.who()) == Some(who);
        self.waiting.retain(|w| !is_it(w));
    }

    /// Frees what programs that ended have left.
    pub(super) fn bury_the_dead(&mut self) {
        let processes: Vec<Arc<Process>> = self.shared.processes.read().values().cloned().collect();
        for process in processes {
            process.memory.watch_again();
            let lives_on = !process.memory.has_ended();
            if lives_on && !process.has_left() {
                continue;
            }
            if self.swap_outs.is_busy(process.id) {
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
            self.forget_touches(process.id);
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
        self.forget_who_waits_no_more();
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
            self.keep_profile(app);
            self.apps.remove(&app);
            self.tell(&Event::Exit { app });
        }
        let is_over = self.config.exit_when_idle && (self.had_apps || self.nobody_comes());
        let is_left = self.config.recorder.is_some_and(|recorder| !recorder.is_alive());
        if self.apps.is_empty() && (is_over || is_left) && self.stopping.is_none() {
            self.stop(None);
        }
    }

    /// Of those that only wait, [`AT_A_TIME`] are looked at each time, one after the other.
    fn forget_who_waits_no_more(&mut self) {
        let all = self.waiting.len();
        let first = self.waiting_looked_at % all.max(1);
        let mut number = 0;
        self.waiting.retain(|w| {
            let is_its_turn = (number + all - first) % all < AT_A_TIME;
            number += 1;
            !is_its_turn || std::fs::metadata(format!("/proc/{}", w.pid)).is_ok()
        });
        let left = self.waiting.len();
        self.waiting_looked_at = if left == 0 { 0 } else { (first + AT_A_TIME) % left };
    }

    /// Whether this is a private daemon, and its first app will not come any more.
    fn nobody_comes(&self) -> bool {
        self.config
            .starter
            .is_some_and(|starter| self.started.elapsed() > NOBODY_CAME || !starter.is_alive())
    }
}

//! Foreground, background, relaunch; and the end, when every page comes back first.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AppId, AppState, Event, PageId, Profile, Trigger};
use clew_engine::budget::Use;
use clew_store::{Entry, State, points};
use crossbeam_channel::Sender;

use super::requests::{Then, reply};
use super::{App, Governor};
use crate::control::trusted_path::own_uid;
use crate::faults::affinity;
use crate::programs::let_go::end_agents;
use crate::programs::process::Process;

/// For how long an app that has just begun is in front, where nobody else is.
const LAUNCH: Duration = Duration::from_secs(10);

impl Governor {
    /// `app` has its first program. Who starts one waits for it or is about to use it: it is in front, unless another of
    /// his was brought there.
    pub(super) fn launch(&mut self, app: AppId) {
        let user = self.apps.get(&app).map(|a| a.uid);
        let of_the_user = |a: &App| a.state == AppState::Foreground && Some(a.uid) == user;
        if self.apps.values().any(|a| of_the_user(a) && a.launched.is_none()) {
            return;
        }
        self.others_to_background(app);
        if let Some(a) = self.apps.get_mut(&app) {
            a.state = AppState::Foreground;
            a.launched = Some(Instant::now());
        }
        self.tell(&Event::Launch { app });
    }

    pub(super) fn end_launches(&mut self) {
        let is_over = |a: &&App| a.launched.is_some_and(|since| since.elapsed() >= LAUNCH);
        let over = self.apps.iter().filter(|(_, a)| is_over(a)).map(|(id, _)| *id);
        for app in over.collect::<Vec<AppId>>() {
            self.background(app);
        }
    }

    fn others_to_background(&mut self, app: AppId) {
        let in_front = self.apps.iter().filter(|(_, a)| a.state == AppState::Foreground);
        let user = self.apps.get(&app).map(|a| a.uid);
        let of_the_user = in_front.filter(|(_, a)| Some(a.uid) == user);
        let others = of_the_user.map(|(id, _)| *id).filter(|id| *id != app);
        for other in others.collect::<Vec<AppId>>() {
            self.background(other);
        }
    }

    pub(super) fn foreground(&mut self, app: AppId) {
        self.others_to_background(app);
        let faults = self.faults_of(app);
        if let Some(a) = self.apps.get_mut(&app) {
            a.state = AppState::Foreground;
            a.launched = None;
        }
        for process in self.shared.of_app(app) {
            process.relaunching.store(true, Ordering::Relaxed);
        }
        self.driver.begin_relaunch(self.now, app, faults);
        // What came back before is not of this relaunch.
        self.look_at_lent(app);
        self.tell(&Event::Relaunch { app });
        self.prefetch_relaunch(app);
    }

    /// Brings back what the scheme expects to be used. For a relaunch that is many pages, which become
    /// resident: those wanted first come first, in runs, while faults overtake.
    fn prefetch_relaunch(&mut self, app: AppId) {
        self.driver.want_early(Trigger::Relaunch(app), &self.programs);
        self.bring_wanted();
    }

    /// What is wanted comes back as far as there is room.
    pub(super) fn bring_wanted(&mut self) {
        let (used_bytes, resident_bytes) = (self.used_bytes, self.resident_bytes);
        let now = Use { used_bytes, resident_bytes, ..Use::default() };
        self.driver.bring_wanted(now, &self.programs);
        self.carry_out(None);
    }

    pub(super) fn background(&mut self, app: AppId) {
        if !self.driver.is_relaunched(app) {
            self.tell_touches(app);
        }
        self.end_relaunch(app);
        self.clear_touches(app);
        if let Some(a) = self.apps.get_mut(&app) {
            a.state = AppState::Background;
            a.launched = None;
        }
        self.tell(&Event::Background { app });
        self.keep_profile(app);
        self.begin_window(app);
    }

    /// How an app has been used so far is kept for its next launch.
    pub(super) fn keep_profile(&mut self, app: AppId) {
        if let (Some(known), Some(stats)) =
            (self.apps.get(&app), self.driver.facts().apps.get(&app))
        {
            // Names are one user's own, and what another user does is not written down.
            if known.uid == own_uid() {
                self.profiles.keep(&known.name, Profile::from(stats));
            }
        }
    }

    pub(super) fn end_relaunch(&mut self, app: AppId) {
        self.look_at_lent(app);
        for process in self.shared.of_app(app) {
            process.relaunching.store(false, Ordering::Relaxed);
            let cpu = self.shared.handler_cpus[process.handler];
            affinity::widen(&process.narrowed, process.pid(), cpu);
        }
        // Touches that are not told of yet come first.
        self.drain_ring();
        if self.driver.is_relaunched(app) {
            self.tell_touches(app);
        }
        let shared = self.shared.clone();
        let is_untouched = |page: PageId| {
            let entry = shared.process(page.space()).map(|p| p.space.table.load(page.vpn()));
            entry.is_some_and(|e| e.state() == State::Stored && e.has(Entry::SAMPLED))
        };
        self.driver.end_relaunch(self.now, app, is_untouched, &self.programs);
        self.carry_out(None);
    }

    pub(super) fn end_quiet_relaunches(&mut self) {
        let shared = self.shared.clone();
        let faults = |app| {
            let processes = shared.of_app(app);
            processes.iter().map(|p| p.faults.load(Ordering::Relaxed)).sum()
        };
        for app in self.driver.quiet_relaunches(self.now, faults) {
            self.end_relaunch(app);
        }
    }

    pub(super) fn stop(&mut self, answer: Option<Sender<String>>) {
        let answers = self.stopping.get_or_insert_default();
        answers.extend(answer);
        if answers.len() > 1 {
            return;
        }
        // The budget does not count any more.
        self.shared.over_budget.store(false, Ordering::Relaxed);
        self.shared.mover.room_along.is(u64::MAX);
        self.leave_untouched();
        let promise = self.promise(None, Then::Stop);
        let processes: Vec<Arc<Process>> = self.shared.processes.read().values().cloned().collect();
        for process in &processes {
            self.restore_all(process, promise);
        }
        self.keep_promise(promise);
    }

    /// True when every page is back and every program on its own.
    pub(super) fn finish_stop(&mut self) -> bool {
        let processes: Vec<Arc<Process>> = self.shared.processes.read().values().cloned().collect();
        let left: usize = processes
            .iter()
            .filter(|p| p.memory.uffd.is_alive() && !p.memory.is_given_up())
            .map(|p| p.stored_vpns().len())
            .sum();
        if self.shared.recovering.load(Ordering::SeqCst) > 0 {
            return false;
        }
        if left > 0 {
            // Something was taken out, or forked, after the order to stop, or cannot come back.
            let promise = self.promise(None, Then::Stop);
            for process in &processes {
                self.restore_for_good(process, promise);
            }
            self.keep_promise(promise);
            return false;
        }
        for app in self.apps.keys().copied().collect::<Vec<_>>() {
            self.end_relaunch(app);
            self.keep_profile(app);
        }
        // Nobody knows which process one of them is: once nobody serves it, it would read zeros.
        for process in processes.iter().filter(|process| process.memory.is_given_up()) {
            process.stored_vpns().into_iter().for_each(|vpn| process.memory.refuse(vpn));
        }
        points::stop_restored();
        end_agents(&processes);
        points::stop_detached();
        for answer in self.stopping.take().unwrap_or_default() {
            reply(&answer, Ok(()));
        }
        true
    }
}

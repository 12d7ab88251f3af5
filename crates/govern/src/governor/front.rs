//! Which app is in front: as somebody says, else as activity tells (processor time and major faults, as the daemon
//! has it). Coming to the front is a relaunch: what the scheme expects it to use is read from swap.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use clew_core::{AppId, AppState, Event, SpaceId, Trigger};
use clew_live::governor::activity::{PERIOD, Turn, cpu_time, turn};

use crate::governor::Governor;
use crate::program::Program;

impl Governor {
    /// Somebody says where the app of a process is.
    pub(super) fn told(&mut self, pid: u32, front: bool) {
        self.look_up();
        let found = self.apps.iter().find(|(_, app)| {
            app.root.pid == pid || app.members.iter().any(|member| member.pid == pid)
        });
        let Some(id) = found.map(|(id, _)| *id) else {
            tracing::warn!("process {pid} is not governed: nobody comes to the front or goes back");
            return;
        };
        self.told_app(id, front);
    }

    /// Somebody says where an app is.
    pub(super) fn told_app(&mut self, id: AppId, front: bool) {
        let Some(app) = self.apps.get_mut(&id) else { return };
        app.activity.told = true;
        match (front, app.state) {
            (true, _) => self.foreground(id),
            (false, AppState::Foreground) => self.background(id),
            (false, AppState::Background) => {}
        }
    }

    fn foreground(&mut self, app: AppId) {
        let is_other = |(id, other): &(&AppId, &crate::governor::App)| {
            **id != app && other.state == AppState::Foreground
        };
        let others: Vec<AppId> = self.apps.iter().filter(is_other).map(|(id, _)| *id).collect();
        others.into_iter().for_each(|other| self.background(other));
        let Some(known) = self.apps.get_mut(&app) else { return };
        known.state = AppState::Foreground;
        let faults = known.faults;
        // What the kernel took by itself since the last look is to come back too.
        let of_app = self.programs.values().filter(|program| program.app == app);
        let spaces: Vec<SpaceId> = of_app.map(|program| program.space).collect();
        spaces.into_iter().for_each(|space| self.look(space));
        self.driver.begin_relaunch(self.now, app, faults);
        self.driver.tell(self.now, &Event::Relaunch { app }, &self.pages);
        self.driver.want_early(Trigger::Relaunch(app), &self.pages);
        self.bring_wanted();
    }

    fn background(&mut self, app: AppId) {
        self.end_relaunch(app);
        if let Some(known) = self.apps.get_mut(&app) {
            known.state = AppState::Background;
        }
        self.driver.tell(self.now, &Event::Background { app }, &self.pages);
    }

    pub(super) fn end_relaunch(&mut self, app: AppId) {
        self.hear();
        self.look_what_was_used(app);
        // Nothing is watched.
        self.driver.end_relaunch(self.now, app, |_| false, &self.pages);
    }

    /// Relaunches of which nobody says that they are over end when nothing is asked for any more.
    pub(super) fn end_quiet_relaunches(&mut self) {
        let apps = &self.apps;
        let faults = |app: AppId| apps.get(&app).map_or(0, |app| app.faults);
        for app in self.driver.quiet_relaunches(self.now, faults) {
            self.end_relaunch(app);
        }
    }

    /// Looks at what apps do, and brings to the front the one that is used.
    pub(super) fn watch_activity(&mut self) {
        if self.last_activity.elapsed() < PERIOD {
            return;
        }
        let now = Instant::now();
        self.last_activity = now;
        let mut worked = HashSet::new();
        for (id, app) in &mut self.apps {
            if app.activity.is_passed_over(app.faults, now) {
                continue;
            }
            let cpu: Duration = app.members.iter().filter_map(|member| cpu_time(member.pid)).sum();
            app.activity.read(cpu, app.faults, now);
            if std::mem::replace(&mut app.cpu, cpu) != cpu {
                worked.insert(*id);
            }
        }
        let busy = |program: &&mut Program| worked.contains(&program.app);
        self.programs.values_mut().filter(busy).for_each(|program| program.stir());
        let apps = self.apps.iter().map(|(id, app)| (*id, app.state, &app.activity));
        match turn(apps, now) {
            Some(Turn::ToFront(app)) => self.foreground(app),
            Some(Turn::ToBack(app)) => self.background(app),
            None => {}
        }
    }
}

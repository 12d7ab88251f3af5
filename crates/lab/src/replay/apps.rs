//! Apps come to the front, go back and end.

use clew_core::{AppId, Event, Hotness, PageFacts, SpaceId, Trigger};
use clew_trace::Record;

use super::watch::Mark;
use super::{Replay, Window};
use crate::error::LabError;
use crate::mechanism::Mechanism;

impl<M: Mechanism> Replay<'_, M> {
    pub(super) fn life(&mut self, record: &Record) -> Result<(), LabError> {
        match *record {
            Record::SpaceStart { space, app, file } => {
                self.end_space(space);
                self.spaces.note(record);
                if let Some(world) = &mut self.world {
                    world.start(space, file);
                }
                if self.plays(space) {
                    self.mechanism.start(space)?;
                    self.tell(&Event::SpaceStart { space, app, file });
                }
            }
            Record::SpaceEnd { space } => {
                self.end_space(space);
                self.spaces.note(record);
                if let Some(world) = &mut self.world {
                    world.end(space);
                }
            }
            Record::Launch { app } => {
                self.mark(Some(app));
                self.revive(app)?;
                self.window = None;
                self.hot_sets.close();
                self.tally.launches += 1;
                self.watch_launch(app);
                self.tell(&Event::Launch { app });
            }
            Record::Relaunch { app } => {
                self.mark(Some(app));
                self.window = None;
                self.hot_sets.close();
                if self.dead.contains(&app) {
                    self.revive(app)?;
                    self.tally.cold_launches += 1;
                    self.launching = None;
                    self.tell(&Event::Launch { app });
                    return Ok(());
                }
                self.own.begin();
                self.launching = None;
                if let Some(watch) = &mut self.watch {
                    watch.begin(app, false);
                }
                self.window = Some(Window { app, stalled_ns: 0.0 });
                self.tell(&Event::Relaunch { app });
                self.follow_relaunch(app);
                self.prefetch(Trigger::Relaunch(app));
            }
            Record::ResponseComplete { app, response_ns } if !self.dead.contains(&app) => {
                let mut response_ns = response_ns;
                if let Some(window) = self.window.take_if(|window| window.app == app) {
                    let own = self.own.of(response_ns);
                    let took = own + window.stalled_ns;
                    response_ns = took.round() as u64;
                    self.tally.relaunched(own, took);
                    if let Some(watch) = &mut self.watch {
                        watch.responded(app, own, took);
                    }
                }
                let launched = self.launching.take_if(|window| window.app == app);
                if let (Some(window), Some(watch)) = (launched, &mut self.watch) {
                    let own = self.own.of(response_ns);
                    watch.responded(app, own, own + window.stalled_ns);
                }
                self.hot_sets.responded(app);
                self.tell(&Event::ResponseComplete { app, response_ns });
                self.tables_bytes = self.mechanism.tables_bytes();
            }
            Record::Background { app } if !self.dead.contains(&app) => {
                self.window.take_if(|window| window.app == app);
                self.launching.take_if(|window| window.app == app);
                self.hot_sets.close_app(app);
                if let Some(watch) = &mut self.watch {
                    watch.close();
                }
                self.tell(&Event::Background { app });
            }
            Record::Exit { app } => {
                self.end_app(app);
                self.dead.remove(&app);
                for space in self.spaces.note(record) {
                    if let Some(world) = &mut self.world {
                        world.end(space);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What this relaunch uses is compared with the hot list as it is now.
    pub(super) fn follow_relaunch(&mut self, app: AppId) {
        let Replay { spaces, mechanism, driver, hot_sets, .. } = self;
        let mut hot = Vec::new();
        if self.has_hot_list {
            for space in spaces.of_app(app) {
                mechanism.for_each(space, &mut |page, _| {
                    if driver.class(page) == Some(Hotness::Hot) {
                        hot.push(page);
                    }
                });
            }
        }
        hot_sets.relaunch(app, spaces.of_app(app), hot.into_iter());
    }

    pub(super) fn end_space(&mut self, space: SpaceId) {
        if self.plays(space) {
            self.hot_sets.end_space(space);
            self.mechanism.end(space);
            self.tally.ahead_unused += self.ahead.gone_space(space);
            self.tell(&Event::SpaceEnd { space });
        }
    }

    /// Says how far everything is, if anybody watches: an app comes to the front, or it is the end.
    pub(super) fn mark(&mut self, app: Option<AppId>) {
        let Some(watch) = &mut self.watch else { return };
        let (pool, tally) = (self.mechanism.pool(), &self.tally);
        let cached = self.driver.facts().apps.values().filter(|app| app.launches > 0).count();
        watch.mark(Mark {
            app: app.map(|app| app.0),
            flash_read_bytes: tally.flash_read_bytes(),
            flash_written_bytes: tally.flash_written_bytes(),
            out_pages: tally.out_pages() - self.files.to_pool_pages,
            out_file_pages: self.files.to_pool_pages + self.files.dropped_pages,
            compressed_pages: tally.compressed_pages(),
            sampled_pages: tally.sampled_pages(),
            pool_pages: pool.pages,
            pool_bytes: pool.used_bytes,
            at_ns: self.now.0,
            cached_apps: cached as u64,
            kills: tally.kills,
            crashes: tally.crashes,
            cold_launches: tally.cold_launches,
        });
    }

    /// A launch begins, if anybody watches.
    fn watch_launch(&mut self, app: AppId) {
        if let Some(watch) = &mut self.watch {
            watch.begin(app, true);
            self.own.begin();
            self.launching = Some(Window { app, stalled_ns: 0.0 });
        }
    }

    /// All of an app ends; nothing, if it has ended already.
    pub(super) fn end_app(&mut self, app: AppId) {
        self.window.take_if(|window| window.app == app);
        self.launching.take_if(|window| window.app == app);
        if let Some(watch) = &mut self.watch {
            watch.ended(app);
        }
        self.hot_sets.close_app(app);
        if self.dead.contains(&app) {
            return;
        }
        let spaces: Vec<SpaceId> = self.spaces.of_app(app).collect();
        for space in spaces {
            self.end_space(space);
        }
        self.tell(&Event::Exit { app });
    }

    /// An app that was ended here begins anew, without memory.
    pub(super) fn revive(&mut self, app: AppId) -> Result<(), LabError> {
        if !self.dead.remove(&app) {
            return Ok(());
        }
        let of_app = self.spaces.of_app(app);
        let of_app: Vec<SpaceId> = of_app.filter(|space| self.takes(*space)).collect();
        for space in of_app {
            let file = self.spaces.is_file(space);
            self.mechanism.start(space)?;
            self.tell(&Event::SpaceStart { space, app, file });
        }
        Ok(())
    }
}

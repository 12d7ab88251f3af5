//! Memory of programs in a replay: pages that come into being, move and are touched.

use clew_core::{AccessKind, Event, PageId, PageRun};
use clew_store::State;
use clew_trace::{ContentId, Record};

use super::Replay;
use crate::error::LabError;
use crate::mechanism::Mechanism;
use crate::world::MAX_PAGES;

impl<M: Mechanism> Replay<'_, M> {
    pub(super) fn resident(&mut self, run: PageRun) -> Result<(), LabError> {
        let room = MAX_PAGES.saturating_sub(self.mechanism.resident_pages());
        if u64::from(run.count) > room {
            let why = format!("{} pages are more than a replay has room for", run.count);
            return Err(LabError::Record { record: self.record, field: "pages", why });
        }
        if let Some(world) = &mut self.world {
            run.pages().for_each(|page| world.begin(page));
        }
        let mut events = std::mem::take(&mut self.events);
        self.mechanism.adopt(run, &mut events)?;
        self.tell_all(&mut events, false)?;
        self.keep_budget()
    }

    pub(super) fn moved(&mut self, from: PageRun, to: PageId) -> Result<(), LabError> {
        let over = PageRun { first: to, ..from };
        self.mechanism.moved(from, to)?;
        if let Some(world) = &mut self.world {
            world.moved(from, to);
        }
        self.tally.ahead_unused += self.ahead.gone(from) + self.ahead.gone(over);
        self.tell(&Event::Moved { from, to });
        Ok(())
    }

    pub(super) fn contents(&mut self, page: PageId, content: ContentId) -> Result<(), LabError> {
        let Some(world) = &mut self.world else { return Ok(()) };
        if world.differs(page, content) {
            if matches!(self.mechanism.state(page), State::Stored | State::Parked | State::Lent) {
                self.tally.unseen_writes += 1;
                // It must not leave again before it is written.
                self.nobody_leaves = true;
                self.bring(page, true)?;
                self.nobody_leaves = false;
            }
            if let Some(world) = &mut self.world {
                world.set(page, content);
            }
            self.mechanism.written(page);
            self.keep_budget()?;
        }
        Ok(())
    }

    /// Of an app that was ended here, only what its pages hold is followed: it may come back.
    #[cold]
    pub(super) fn pass_over(&mut self, record: &Record) {
        let taken = record.pages().is_some_and(|run| self.takes(run.first.space()));
        if let Some(world) = self.world.as_mut().filter(|_| taken) {
            world.pass_over(record);
        }
    }

    #[inline]
    pub(super) fn access(&mut self, page: PageId, write: bool) -> Result<(), LabError> {
        if !self.plays(page.space()) {
            self.pass_over(&Record::Access { page, kind: AccessKind::Seen, write });
            return Ok(());
        }
        if let Some(world) = &mut self.world {
            world.begin(page);
        }
        self.tally.accesses += 1;
        let app = self.spaces.app(page.space());
        self.hot_sets.used(page, app);
        if let Some(watch) = &mut self.watch {
            watch.used(page, app);
        }
        if self.mechanism.state(page) == State::Resident {
            self.tally.hits += 1;
            self.hit(page, write);
            Ok(())
        } else {
            self.fault(page, write)
        }
    }

    #[inline]
    pub(super) fn hit(&mut self, page: PageId, write: bool) {
        if write && self.world.is_none() {
            self.mechanism.written(page);
        }
        let now_ns = self.program_ns();
        let used = self.ahead.used(page, now_ns);
        if !self.hides_touches {
            self.tell(&Event::Access { page, kind: AccessKind::Seen, write });
        }
        if let Some(wait_ns) = used {
            self.tally.ahead_used += 1;
            self.stall(page, wait_ns);
            if !self.hides_touches {
                self.tell(&Event::PrefetchUsed { page });
            }
        }
    }

    pub(super) fn fault(&mut self, page: PageId, write: bool) -> Result<(), LabError> {
        self.bring(page, write)?;
        self.keep_budget()
    }

    pub(super) fn bring(&mut self, page: PageId, write: bool) -> Result<(), LabError> {
        if self.is_lost(page) {
            if let Some(app) = self.spaces.app(page.space()) {
                self.tally.crashes += 1;
                self.end_app(app);
                self.dead.insert(app);
            }
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        let in_file = self.is_in_file(page);
        let mut spent = self.mechanism.fault(page, self.world.as_ref(), &mut events)?;
        if in_file {
            spent += self.read_from_file(page, &mut events)?;
        }
        self.tally.spend(&spent);
        if let Some(watch) = &mut self.watch {
            watch.brought(self.spaces.app(page.space()), &spent);
        }
        self.stall(page, spent.wait_ns);
        self.tell_all(&mut events, write)?;
        if write && self.world.is_none() {
            self.mechanism.written(page);
        }
        self.wait_for_room(page);
        Ok(())
    }

    /// The program that owns `page` waits, which counts while it is relaunched.
    pub(super) fn stall(&mut self, page: PageId, ns: f64) {
        let app = self.spaces.app(page.space());
        let window = self.window.as_mut().or(self.launching.as_mut());
        if let Some(window) = window.filter(|window| Some(window.app) == app) {
            window.stalled_ns += ns;
        }
    }

    /// While memory is full of pages that are on their way out, the program waits for them.
    pub(super) fn wait_for_room(&mut self, page: PageId) {
        let (used, total) = (self.used_bytes(), self.driver.budget().total_bytes);
        let wait = self.backlog.wait(self.program_ns(), used, total);
        if wait > 0.0 && self.window.is_some() {
            self.tally.waited_ns += wait;
        }
        if wait > 0.0 {
            self.stall(page, wait);
        }
    }
}

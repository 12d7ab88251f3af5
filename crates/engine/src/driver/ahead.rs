//! Copies made ahead: when an app has gone to the background, those pages are compressed that will leave first
//! when the next one comes back, and stay where they are. Else compression takes the CPUs that who returns needs.
//!
//! A copy is of use until its page is written, so those of an app count as any kept copy once it has been used
//! again, and go when memory is short. Others go only when nothing else is left to give up.

use std::collections::{BTreeMap, VecDeque};

use clew_core::{AppId, Event, PageFacts, PageId};

use super::{Call, Command, Driver};
use crate::budget::{Shortage, Use};

#[derive(Default)]
pub(super) struct Ahead {
    /// Pages that have a copy, per cent of what is resident; 0: none is made.
    share_pct: u32,
    /// Who will leave next is to be asked.
    is_due: bool,
    /// What is to be copied.
    left: VecDeque<Command>,
    /// Pages of which a copy was ordered, by their app.
    of: BTreeMap<AppId, Vec<PageId>>,
}

impl Driver {
    /// From now on so many pages, per cent of what is resident, have a copy before they leave.
    pub fn set_copies_ahead(&mut self, share_pct: u32) {
        self.ahead.share_pct = share_pct;
    }

    /// Whether copies are ever made ahead.
    pub fn copies_ahead(&self) -> bool {
        self.ahead.share_pct > 0
    }

    /// What an event means for them.
    pub(super) fn follow_ahead(&mut self, event: &Event) {
        if !self.copies_ahead() {
            return;
        }
        match *event {
            Event::Relaunch { .. } => {
                self.ahead.left.clear();
                self.ahead.is_due = false;
            }
            Event::Background { app } => {
                self.ahead.is_due = true;
                for page in self.ahead.of.remove(&app).unwrap_or_default() {
                    self.keep_copy(page);
                }
            }
            Event::Exit { app } => drop(self.ahead.of.remove(&app)),
            _ => {}
        }
    }

    /// Copies a little ahead, if nothing else is to be done.
    pub(super) fn copy_ahead(
        &mut self,
        used: Use,
        shortage: Option<Shortage>,
        pages: &dyn PageFacts,
    ) {
        if !self.copies_ahead() {
            return;
        }
        if shortage.is_some_and(|shortage| shortage.urgent) || self.pool_full {
            self.ahead.left.clear();
            let all = std::mem::take(&mut self.ahead.of);
            all.into_values().flatten().for_each(|page| self.keep_copy(page));
            return;
        }
        let is_idle = !used.relaunching && used.leaving_bytes == 0 && shortage.is_none();
        if !is_idle || self.under_way.copies() {
            return;
        }
        if std::mem::take(&mut self.ahead.is_due) {
            let resident = used.resident_bytes / self.budget.page_bytes;
            let wanted = resident * u64::from(self.ahead.share_pct) / 100;
            let others = std::mem::take(&mut self.commands);
            self.orders(Call::CopiesAhead(wanted as usize), pages, |engine, pages, orders| {
                engine.plan_copies_ahead(wanted as usize, pages, orders);
            });
            self.ahead.left = std::mem::replace(&mut self.commands, others);
        }
        let Some(next) = self.ahead.left.pop_front() else { return };
        if let Command::CopyAhead { space, groups, .. } = &next
            && let Some(app) = self.engine.facts().app_of(*space)
        {
            let pages = groups.iter().flat_map(|group| &group.pages);
            self.ahead.of.entry(app).or_default().extend(pages);
        }
        self.commands.push_back(next);
    }
}

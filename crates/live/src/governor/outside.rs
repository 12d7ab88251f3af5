//! What is asked of the thread that looks for memory outside ([`crate::programs::outside`]), and what it found.

use std::time::{Duration, Instant};

use clew_core::AppId;
use crossbeam_channel::{Receiver, Sender, bounded};

use super::{BEING_PREPARED, Governor};
use crate::programs::outside::{Asked, Found, Known, Told};
use crate::programs::process::Process;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(2);

/// What is known of memory outside.
pub(super) struct Outside {
    /// By app.
    pub found: Found,
    ask: Sender<Asked>,
    asked: Receiver<Asked>,
    last: Instant,
}

impl Outside {
    /// Nothing is known.
    pub(super) fn new(now: Instant) -> Outside {
        let (ask, asked) = bounded(1);
        Outside { found: Found::new(), ask, asked, last: now }
    }

    /// Apps of which a process was found that is not managed: they have not ended.
    pub(super) fn apps_with_processes(&self) -> impl Iterator<Item = AppId> {
        self.found.iter().filter(|(_, found)| !found.processes.is_empty()).map(|(app, _)| *app)
    }
}

impl Governor {
    /// Where the thread that looks is asked, and what is not worth a word.
    pub fn outside_asked(&self) -> (Receiver<Asked>, u64) {
        (self.outside.asked.clone(), self.config.min_process.0)
    }

    /// Asks it to look. If it has not finished the last time it is not asked again.
    pub(super) fn look_outside(&mut self) {
        if self.outside.last.elapsed() < PERIOD {
            return;
        }
        self.outside.last = Instant::now();
        let mut told: Vec<Told> = Vec::new();
        for (id, app) in &self.apps {
            let app_of = (*id, app.uid);
            told.extend(app.root.map(|pid| Told { app: app_of, pid, known: Known::Started }));
        }
        let owned = |app: AppId| (app, self.apps.get(&app).map_or(u32::MAX, |app| app.uid));
        for w in &self.waiting {
            let known = match &w.reason {
                _ if w.shares_with.is_some() => Known::Managed { buffer_bytes: 0 },
                Some(reason) if reason != BEING_PREPARED => Known::Refused(reason.clone()),
                _ => Known::Soon,
            };
            told.push(Told { app: owned(w.app), pid: w.pid, known });
        }
        let mut children = Vec::new();
        for process in self.shared.processes.read().values() {
            if process.forked && process.pid() != 0 {
                children.push(process.clone());
            }
            let is_told = self.waiting.iter().any(|w| w.pid == process.pid());
            if process.pid() == 0 || is_told {
                continue;
            }
            let buffer_bytes = process.memory.buffer_bytes();
            let known = match self.why_not_managed(process) {
                None => Known::Managed { buffer_bytes },
                Some(_) if process.memory.is_silent() => Known::Soon,
                Some(reason) => Known::Refused(reason),
            };
            told.push(Told { app: owned(process.app), pid: process.pid(), known });
        }
        // The later ones say more.
        let _ = self.outside.ask.try_send((told, children));
    }

    /// Why nothing is taken out of a process; `None` if it is managed.
    pub(super) fn why_not_managed(&self, process: &Process) -> Option<String> {
        let silent = process.memory.is_silent();
        if process.is_managed() && !silent {
            return None;
        }
        if let Some(why) = process.leaves() {
            return Some(why.to_string());
        }
        let waiting = self.waiting.iter().find(|w| w.forked && w.pid == process.pid());
        Some(match (process.pid(), waiting) {
            (0, _) => "forked child: its faults are served, its pages stay".into(),
            _ if silent => "its agent is silent (frozen?): its pages stay until it answers".into(),
            (_, Some(w)) => self.why_waiting(w),
            (_, None) => "its agent is gone: its faults are served".into(),
        })
    }
}

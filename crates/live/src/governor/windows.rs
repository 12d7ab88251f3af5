//! Windows of a recording: everything of an app is taken out, so that until its next window each
//! first access to a page is a fault, which is seen. Costs programs a fault a page and window.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use clew_core::AppId;

use super::Governor;
use super::requests::Then;
use crate::config::Config;
use crate::recording::file_reads::{FileReads, FileStreams};
use crate::recording::recorder::Pencil;

/// When windows begin.
pub(super) struct Windows {
    /// From the end of one to the beginning of the next; `None`: there are none.
    every: Option<Duration>,
    /// When the last window of an app began; `None`: its pages are on their way out.
    began: HashMap<AppId, Option<Instant>>,
    /// Of files, whose mappings leave, too.
    of_files: Option<FileReads>,
}

impl Windows {
    /// As the recording says; none without one.
    pub fn new(config: &Config) -> Windows {
        let every = config.record.as_ref().and_then(|recording| recording.windows);
        Windows { every, began: HashMap::new(), of_files: None }
    }
}

impl Governor {
    /// Records what of files is used, until [`Governor::end_recording`].
    ///
    /// # Errors
    /// No thread can be started.
    pub fn record_files(&mut self, streams: FileStreams, pencil: Pencil) -> io::Result<()> {
        let reads = FileReads::start(streams, pencil, self.shared.clone(), self.started)?;
        self.windows.of_files = Some(reads);
        Ok(())
    }

    /// All that was recorded is handed on.
    pub(super) fn end_recording(&mut self) {
        self.windows.of_files = None;
        self.driver.end_listening();
    }

    /// Begins windows that are due.
    pub(super) fn keep_windows(&mut self) {
        let Some(every) = self.windows.every else { return };
        let is_due = |app: &AppId| match self.windows.began.get(app) {
            Some(None) => false,
            Some(Some(began)) => began.elapsed() >= every,
            None => true,
        };
        let due: Vec<AppId> = self.apps.keys().copied().filter(is_due).collect();
        self.windows.began.retain(|app, _| self.apps.contains_key(app));
        for app in due {
            self.begin_window(app);
        }
    }

    /// Takes everything of `app` out, if its windows are recorded.
    pub(super) fn begin_window(&mut self, app: AppId) {
        let is_out = self.windows.began.get(&app) == Some(&None);
        if self.windows.every.is_none() || is_out || self.stopping.is_some() {
            return;
        }
        self.windows.began.insert(app, None);
        let promise = self.promise(None, Then::Window(app));
        self.drain_ring();
        self.carry_out(None);
        self.driver.take_out_app(app, &self.programs);
        self.carry_out(Some(promise));
        self.keep_promise(promise);
    }

    /// Everything is out.
    pub(super) fn window_began(&mut self, app: AppId) {
        if let Some(of_files) = &self.windows.of_files {
            let processes = self.shared.processes.read();
            let of_app = processes.values().filter(|process| process.app == app);
            of_files.begin_window(of_app.map(|process| process.pid()).collect());
        }
        self.windows.began.insert(app, Some(Instant::now()));
        self.driver.window(app);
    }
}

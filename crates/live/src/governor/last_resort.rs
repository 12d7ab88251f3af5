//! What is left when memory and pool are full and the scheme says `on_full = "kill"`: ending the
//! background app that the engine names. Never one in front, never one with a protected program.

use clew_core::{AppId, AppState};
use clew_policy::schemes::OnFull;

use super::Governor;

impl Governor {
    pub(super) fn may_kill(&self) -> bool {
        self.config.scheme.on_full == OnFull::Kill
    }

    pub(super) fn end_app(&mut self, app: AppId, reason: &str) {
        let Some(known) = self.apps.get(&app) else { return };
        let (uid, name, state) = (known.uid, known.name.clone(), known.state);
        let processes = self.shared.of_app(app);
        let is_protected = processes.iter().any(|p| self.driver.is_protected(p.id));
        if !self.may_kill() || state == AppState::Foreground || is_protected {
            tracing::warn!(name, reason, "a policy wants to end an app that may not be ended");
            return;
        }
        let mut ended = 0;
        for process in &processes {
            ended += usize::from(process.name().is_some_and(|name| name.send_kill().is_some()));
        }
        tracing::error!(uid, name, reason, ended, "ended an app (on_full = kill)");
        self.ended.push((uid, name));
    }
}

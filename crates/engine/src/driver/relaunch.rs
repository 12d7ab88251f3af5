//! Relaunches: when one is over of which nobody says so.

use std::collections::BTreeMap;

use clew_core::{AppId, Ns, PageFacts, PageId};

use super::Driver;

/// A relaunch without a response told ends when no fault came for this long.
const QUIET: Ns = Ns::from_ms(200);
/// And if none has come yet: its program may not have run so far, and what is watched of it would be
/// told as unused.
const SILENT: Ns = Ns::from_ms(2000);

/// One that is going on. Counts of faults are of the app since it began.
struct Relaunch {
    began: Ns,
    faults_before: u64,
    faults_seen: u64,
    last_fault: Ns,
}

#[derive(Default)]
pub(super) struct Relaunches(BTreeMap<AppId, Relaunch>);

impl Driver {
    /// A relaunch of `app` begins, which has had so many faults; its event follows.
    pub fn begin_relaunch(&mut self, now: Ns, app: AppId, faults: u64) {
        let relaunch =
            Relaunch { began: now, faults_before: faults, faults_seen: faults, last_fault: now };
        self.relaunches.0.insert(app, relaunch);
    }

    /// It is over: it was said, or [`Driver::quiet_relaunches`] has it. Touches so far have been told;
    /// `is_untouched` says of a page that was watched whether it was not touched.
    pub fn end_relaunch(
        &mut self,
        now: Ns,
        app: AppId,
        is_untouched: impl Fn(PageId) -> bool,
        pages: &dyn PageFacts,
    ) {
        self.now = self.now.max(now);
        self.relaunches.0.remove(&app);
        self.end_sample(now, app, is_untouched, pages);
    }

    /// Relaunches in which nothing happens any more; `faults` counts those of an app.
    pub fn quiet_relaunches(&mut self, now: Ns, faults: impl Fn(AppId) -> u64) -> Vec<AppId> {
        let mut quiet = Vec::new();
        for (app, relaunch) in &mut self.relaunches.0 {
            let faults = faults(*app);
            if faults != relaunch.faults_seen {
                (relaunch.faults_seen, relaunch.last_fault) = (faults, now);
            }
            let patience = if faults == relaunch.faults_before { SILENT } else { QUIET };
            let since = |then: Ns| now.since(then) > patience;
            if since(relaunch.began) && since(relaunch.last_fault) {
                quiet.push(*app);
            }
        }
        quiet
    }

    /// Whether some app is being relaunched.
    pub fn is_relaunching(&self) -> bool {
        !self.relaunches.0.is_empty()
    }

    /// Whether this one is.
    pub fn is_relaunched(&self, app: AppId) -> bool {
        self.relaunches.0.contains_key(&app)
    }

    /// Nothing is known of it any more.
    pub(super) fn forget_relaunch(&mut self, app: AppId) {
        self.relaunches.0.remove(&app);
    }
}

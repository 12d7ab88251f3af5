//! What `clew ps` shows.

use std::fs::File;
use std::sync::atomic::Ordering;

use clew_core::{AppState, Vpn};
use clew_store::State;

use super::{Governor, Waiting};
use crate::affinity::Placement;
use crate::control::{AppStatus, PoolStatus, ProcessStatus, Status};
use crate::mappings::resident_anonymous_bytes;

impl Governor {
    fn why_waiting(&self, w: &Waiting) -> String {
        let too_small = || format!("smaller than {}", self.config.min_process);
        w.reason.clone().unwrap_or_else(too_small)
    }

    pub(super) fn status(&mut self) -> Status {
        let facts = self.shared.mover.store.facts();
        let page = self.shared.page_bytes;
        let counters = &self.shared.mover.counters;
        let (reused, corrupt) =
            (counters.reused.load(Ordering::Relaxed), counters.corrupt.load(Ordering::Relaxed));
        let ratio = |pages: u64, bytes: u64| {
            if bytes == 0 { 0.0 } else { (pages * page) as f64 / bytes as f64 }
        };
        let mut apps: Vec<AppStatus> = Vec::new();
        for (id, app) in &self.apps {
            let mut status = AppStatus {
                name: app.name.clone(),
                state: match app.state {
                    AppState::Foreground => "foreground".into(),
                    AppState::Background => "background".into(),
                },
                faults: app.past_faults,
                demand_faults: app.past_demand,
                fault_ns: app.past_fault_ns,
                fault_codec_ns: app.past_fault_codec_ns,
                restored_pages: app.past_restored,
                swapped_out_pages: app.past_swapped_out,
                ..AppStatus::default()
            };
            let mut stored_bytes = 0;
            for process in self.shared.of_app(*id) {
                let mut stored = 0;
                process.space.table.for_range(Vpn(0), u64::MAX >> 20, |_, entry| {
                    if entry.state() == State::Stored {
                        stored += 1;
                        stored_bytes += entry.handle().map_or(0, |h| {
                            u64::from(self.shared.mover.store.stored_bytes(h))
                                / u64::from(self.shared.mover.store.block_pages(h).max(1))
                        });
                    }
                });
                let resident = self.resident_of(&process);
                status.stored_pages += stored;
                status.resident_bytes += resident;
                status.faults += process.faults.load(Ordering::Relaxed);
                status.demand_faults += process.demand.load(Ordering::Relaxed);
                status.fault_ns += process.fault_ns.load(Ordering::Relaxed);
                status.fault_codec_ns += process.fault_codec_ns.load(Ordering::Relaxed);
                status.restored_pages += process.demand.load(Ordering::Relaxed)
                    + process.restored.load(Ordering::Relaxed);
                status.swapped_out_pages += process.swapped_out.load(Ordering::Relaxed);
                let managed = process.is_managed();
                let waits = |w: &&Waiting| w.forked && w.pid == process.pid();
                let waiting = self.waiting.iter().find(waits);
                status.processes.push(ProcessStatus {
                    pid: process.pid(),
                    command: process.command.clone(),
                    managed,
                    reason: match (managed, process.pid(), waiting) {
                        (true, ..) => String::new(),
                        (_, 0, _) => "forked child: its faults are served, its pages stay".into(),
                        (_, _, Some(w)) => self.why_waiting(w),
                        (_, _, None) => "its agent is gone: its faults are served".into(),
                    },
                    resident_bytes: resident,
                    stored_pages: stored,
                });
            }
            status.ratio = ratio(status.stored_pages, stored_bytes);
            for w in self.waiting.iter().filter(|w| w.app == *id && !w.forked) {
                let resident = File::open(format!("/proc/{}/statm", w.pid))
                    .map_or(0, |mut f| resident_anonymous_bytes(&mut f, page));
                status.resident_bytes += resident;
                status.processes.push(ProcessStatus {
                    pid: w.pid,
                    command: w.command.clone(),
                    managed: false,
                    reason: self.why_waiting(w),
                    resident_bytes: resident,
                    stored_pages: 0,
                });
            }
            status.processes.sort_by_key(|p| p.pid);
            apps.push(status);
        }
        apps.sort_by(|a, b| a.name.cmp(&b.name));
        Status {
            scheme: self.config.scheme_name.clone(),
            budget_bytes: self.config.budget.0,
            used_bytes: self.used_bytes,
            daemon_bytes: self.daemon_bytes(),
            daemon_pid: std::process::id(),
            keeper_pid: self.keeper_pid,
            placement: match self.shared.placement {
                Placement::Narrow => "narrow".into(),
                Placement::Free => "free".into(),
            },
            pool: PoolStatus {
                used_bytes: facts.used_bytes,
                limit_bytes: facts.limit_bytes,
                stored_pages: facts.pages,
                ratio: ratio(facts.pages, facts.used_bytes),
                full: self.pool_full,
                reused_pages: reused,
                corrupt_pages: corrupt,
            },
            ended_apps: self.ended.clone(),
            apps,
        }
    }
}

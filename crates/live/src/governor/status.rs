//! What `clew ps`, `clew top` and the metrics show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clew_core::{AppId, AppState, Hotness, PageId, Tier, Vpn};
use clew_store::flash::LogId;
use clew_store::{Entry, State};

use super::{App, Governor, Waiting};
use crate::control::status::{
    AppStatus, ClassPages, ClassStatus, EarlyStatus, FlashStatus, HotPages, PolicyMetric,
    PoolStatus, ProcessStatus, SensorStatus, Status, TierStatus, Totals,
};
use crate::faults::account::FaultAccount;
use crate::faults::affinity::Placement;
use crate::faults::latency::Latency;
use crate::programs::proc_stat::{Stat, cpu_seconds};
use crate::programs::process::Process;
use crate::users::Asker;

/// Stored pages of one process that are asked for their size, at most: each costs a lock of the
/// pool, and whoever waits for the policies waits meanwhile.
const SIZE_SAMPLE: u64 = 512;

/// The least budget in which no app would thrash.
fn enough_budget(apps: &[AppStatus]) -> Option<u64> {
    apps.iter().filter_map(|app| app.thrashing.map(|t| t.enough_budget_bytes)).max()
}

impl Governor {
    pub(super) fn why_waiting(&self, w: &Waiting) -> String {
        let too_small = || format!("smaller than {}", self.config.min_process);
        w.reason.clone().unwrap_or_else(too_small)
    }

    pub(super) fn hot_pages(&self, app: AppId) -> Vec<HotPages> {
        let of = |process: &Arc<Process>| {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            process.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, _| {
                if self.driver.class(PageId::new(process.id, vpn)) != Some(Hotness::Hot) {
                    return;
                }
                let address = vpn.addr(self.shared.page_bytes);
                match runs.last_mut() {
                    Some((first, pages)) if *first + *pages * self.shared.page_bytes == address => {
                        *pages += 1;
                    }
                    _ => runs.push((address, 1)),
                }
            });
            HotPages { pid: process.pid(), runs }
        };
        self.shared.of_app(app).iter().map(of).collect()
    }

    /// What is shown to who asks. A user of a service sees the own apps, what they use, and nothing that what others
    /// do could be read from.
    pub(super) fn status_for(&mut self, asker: Asker) -> Status {
        let Asker::User(uid) = asker else { return self.status() };
        let apps = self.apps_status(|app| app.uid == uid);
        let used = self.users.used(uid);
        let ended = self.ended.iter().filter(|(of, _)| *of == uid);
        Status {
            scheme: self.config.scheme_name.clone(),
            budget_bytes: self.user_budget().unwrap_or(self.config.budget.0),
            used_bytes: used.total(),
            used,
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            enough_budget_bytes: enough_budget(&apps),
            daemon_pid: std::process::id(),
            ended_apps: ended.map(|(_, name)| name.clone()).collect(),
            of_user: Some(uid),
            apps,
            ..Status::default()
        }
    }

    /// What is served as metrics: anybody on this machine may read them, so a service names nobody's apps there.
    pub(super) fn metrics_status(&mut self) -> Status {
        let mut status = self.status();
        if self.shared.users.is_service() {
            status.apps.clear();
        }
        status
    }

    /// The apps that are wanted, in the order of their names.
    fn apps_status(&self, is_wanted: impl Fn(&App) -> bool) -> Vec<AppStatus> {
        let wanted = self.apps.iter().filter(|(_, app)| is_wanted(app));
        let mut apps: Vec<AppStatus> = wanted.map(|(id, app)| self.app_status(*id, app)).collect();
        apps.sort_by(|a, b| (&a.name, a.uid).cmp(&(&b.name, b.uid)));
        apps
    }

    pub(super) fn status(&mut self) -> Status {
        let facts = self.shared.mover.store.facts();
        let counters = &self.shared.mover.counters;
        let (reused, corrupt) =
            (counters.reused.load(Ordering::Relaxed), counters.corrupt.load(Ordering::Relaxed));
        let apps = self.apps_status(|_| true);
        let latencies = &self.shared.latencies;
        let stored_fault_latency = Latency::sum(latencies.iter().map(|l| &l.stored));
        let fresh_fault_latency = Latency::sum(latencies.iter().map(|l| &l.fresh));
        let flash_fault_latency = Latency::sum(latencies.iter().map(|l| &l.flash));
        let fault_account = FaultAccount::sum(latencies.iter().map(|l| &l.account));
        let pool_pages = facts.pages.saturating_sub(facts.far_pages);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sampled, touched) = (count(&counters.sampled), count(&counters.sampled_used));
        let early = self.driver.early();
        let early = EarlyStatus {
            asked_pages: early.asked_pages,
            coming_pages: early.coming_pages,
            early_pages: early.came_pages,
            along_pages: count(&counters.along),
            parked_pages: self.shared.mover.parked_pages() as u64,
            parked_total_pages: count(&counters.parked),
            used_pages: count(&counters.parked_used),
            expired_pages: count(&counters.parked_expired),
        };
        Status {
            scheme: self.config.scheme_name.clone(),
            budget_bytes: self.config.budget.0,
            used_bytes: self.used_bytes,
            used: self.used,
            daemon_bytes: self.daemon_bytes(),
            daemon_cpu_seconds: Stat::of(std::process::id()).map_or(0.0, |own| own.cpu_seconds()),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            managed_pages: self.managed_pages(),
            enough_budget_bytes: enough_budget(&apps),
            daemon_pid: std::process::id(),
            keeper_pid: self.keeper_pid,
            placement: match self.shared.placement {
                Placement::Narrow => "narrow".into(),
                Placement::Free => "free".into(),
            },
            pool: PoolStatus {
                used_bytes: facts.used_bytes,
                limit_bytes: facts.limit_bytes,
                stored_pages: pool_pages,
                ratio: self.ratio(pool_pages, facts.used_bytes as f64),
                full: self.driver.pool_full().0,
                reused_pages: reused,
                corrupt_pages: corrupt,
            },
            tiers: self.tiers(),
            flash: self.flash(),
            donors: self.donors_status(),
            totals: self.totals(),
            stored_fault_latency,
            fresh_fault_latency,
            flash_fault_latency,
            fault_account,
            policies: self.driver.metrics().into_iter().map(PolicyMetric::from).collect(),
            early,
            sensor: SensorStatus {
                sampled_pages: sampled,
                touches: touched,
                unused_pages: self.driver.unused_pages(),
                accessed_pages: self.touches.used_pages,
                not_accessed_pages: self.touches.unused_pages,
                clearing: self.touches.clearing(),
            },
            lost_programs: self.shared.lost.get().map_or(0, |lost| lost.len() as u64),
            ended_apps: self.ended.iter().map(|(_, name)| name.clone()).collect(),
            of_user: None,
            mounts: self.mounts.status(),
            users: self.users_status(),
            apps,
        }
    }

    fn flash(&self) -> Option<FlashStatus> {
        let counters = &self.shared.mover.counters;
        let facts = self.shared.mover.store.log(LogId::FLASH)?.facts();
        Some(FlashStatus {
            evicted_pages: counters.evicted.load(Ordering::Relaxed),
            demand_pages: counters.demand_flash.load(Ordering::Relaxed),
            stored_bytes: facts.appended_bytes,
            written_bytes: facts.written_bytes,
            cleaned_bytes: facts.cleaned_bytes,
            read_bytes: facts.read_bytes,
            near_blocks: facts.window_reads,
            write_amplification: facts.write_amplification(),
            utilisation: facts.utilisation(),
            read_errors: facts.read_errors,
            latched: facts.latched,
        })
    }

    fn managed_pages(&self) -> u64 {
        let of = |process: &Arc<Process>| {
            let c = process.space.table.counts();
            c.resident + c.moving + c.stored + c.restoring + c.parked + c.lent
        };
        self.shared.processes.read().values().map(of).sum()
    }

    fn ratio(&self, pages: u64, bytes: f64) -> f64 {
        if bytes == 0.0 { 0.0 } else { (pages * self.shared.page_bytes) as f64 / bytes }
    }

    fn app_status(&self, id: AppId, app: &App) -> AppStatus {
        let mut status = AppStatus {
            name: app.name.clone(),
            uid: app.uid,
            state: match app.state {
                AppState::Foreground => "foreground".into(),
                AppState::Background => "background".into(),
            },
            launches: self.driver.facts().apps.get(&id).map_or(0, |stats| stats.launches),
            faults: app.past_faults,
            demand_faults: app.past_demand,
            lent_back_pages: app.past_lent_back,
            fault_ns: app.past_fault_ns,
            fault_codec_ns: app.past_fault_codec_ns,
            fault_along_ns: app.past_fault_along_ns,
            restored_pages: app.past_restored,
            swapped_out_pages: app.past_swapped_out,
            prefetch_used_pages: app.prefetch_used,
            classes: self.classes(id),
            ..AppStatus::default()
        };
        let mut stored_bytes = 0.0;
        for process in self.shared.of_app(id) {
            let counts = process.space.table.counts();
            status.parked_pages += counts.parked;
            status.lent_pages += counts.lent;
            let (stored, bytes) = self.stored_of(&process);
            stored_bytes += bytes;
            let resident = self.resident_of(&process);
            status.stored_pages += stored;
            status.resident_bytes += resident;
            status.faults += process.faults.load(Ordering::Relaxed);
            status.demand_faults += process.demand.load(Ordering::Relaxed);
            status.lent_back_pages += process.lent_back.load(Ordering::Relaxed);
            status.fault_ns += process.fault_ns.load(Ordering::Relaxed);
            status.fault_codec_ns += process.fault_codec_ns.load(Ordering::Relaxed);
            status.fault_along_ns += process.fault_along_ns.load(Ordering::Relaxed);
            status.restored_pages +=
                process.demand.load(Ordering::Relaxed) + process.restored.load(Ordering::Relaxed);
            status.swapped_out_pages += process.swapped_out.load(Ordering::Relaxed);
            let reason = self.why_not_managed(&process);
            status.processes.push(ProcessStatus {
                pid: process.pid(),
                command: process.command.clone(),
                managed: reason.is_none(),
                reason: reason.unwrap_or_default(),
                resident_bytes: resident,
                stored_pages: stored,
                faults: process.faults.load(Ordering::Relaxed),
                swapped_out_pages: process.swapped_out.load(Ordering::Relaxed),
            });
        }
        status.ratio = self.ratio(status.stored_pages, stored_bytes);
        status.outside = self.outside.found.get(&id).cloned().unwrap_or_default();
        status.thrashing = self.thrashing_of(id, status.ratio);
        for w in self.waiting.iter().filter(|w| w.app == id && !w.forked) {
            status.resident_bytes += w.resident;
            status.processes.push(ProcessStatus {
                pid: w.pid,
                command: w.command.clone(),
                managed: false,
                reason: self.why_waiting(w),
                resident_bytes: w.resident,
                ..ProcessStatus::default()
            });
        }
        status.processes.sort_by_key(|p| p.pid);
        let known = status.processes.iter().filter(|p| p.pid != 0);
        status.cpu_seconds = known.filter_map(|p| cpu_seconds(p.pid)).sum();
        status
    }

    /// How many pages of a process are stored, samples apart, and the bytes they take: in the pool, of
    /// many, by a sample spread over all; in the kernel's zram what a page takes there on average.
    fn stored_of(&self, process: &Process) -> (u64, f64) {
        let lent = process.space.table.counts().lent;
        let (stored, in_pool) = self.stored_in_pool(process);
        (stored + lent, in_pool + lent as f64 * f64::from(self.kernel.page_bytes))
    }

    /// What the stored pages of a process take in the pool.
    pub(super) fn pool_bytes_of(&self, process: &Process) -> f64 {
        self.stored_in_pool(process).1
    }

    /// [`Governor::stored_of`] without the kernel's zram.
    fn stored_in_pool(&self, process: &Process) -> (u64, f64) {
        let store = &self.shared.mover.store;
        let counts = process.space.table.counts();
        let step = (counts.stored + counts.parked).div_ceil(SIZE_SAMPLE).max(1);
        let (mut stored, mut asked, mut bytes) = (0u64, 0u64, 0u64);
        process.space.table.for_range(Vpn(0), u64::MAX >> 20, |_, entry| {
            let is_stored = matches!(entry.state(), State::Stored | State::Parked);
            if !is_stored || entry.has(Entry::SAMPLED) {
                return;
            }
            if stored.is_multiple_of(step) {
                asked += 1;
                bytes += entry.handle().map_or(0, |h| {
                    u64::from(store.stored_bytes(h)) / u64::from(store.block_pages(h).max(1))
                });
            }
            stored += 1;
        });
        let in_pool = if asked == 0 { 0.0 } else { bytes as f64 * stored as f64 / asked as f64 };
        (stored, in_pool)
    }

    fn classes(&self, app: AppId) -> Option<ClassStatus> {
        let of = |class| {
            let counts = self.driver.class_counts(app, class);
            ClassPages { resident_pages: counts.resident, out_pages: counts.out }
        };
        let (hot, warm, cold) = (of(Hotness::Hot), of(Hotness::Warm), of(Hotness::Cold));
        let classes = ClassStatus { hot, warm, cold };
        (classes != ClassStatus::default()).then_some(classes)
    }

    fn tiers(&self) -> Vec<TierStatus> {
        let limit = |limit: u64| (limit != u64::MAX).then_some(limit);
        let tiers = self.driver.facts().tiers.iter();
        let status = |(tier, facts): (&Tier, &clew_core::TierFacts)| TierStatus {
            tier: match tier {
                Tier::Pool => "pool".into(),
                Tier::Kernel => "kernel".into(),
                Tier::Flash => "flash".into(),
                Tier::Donor(donor) => format!("donor {}", donor.number()),
            },
            used_bytes: facts.used_bytes,
            limit_bytes: limit(facts.limit_bytes),
            stored_pages: facts.pages,
            limit_pages: limit(facts.limit_pages),
        };
        tiers.map(status).collect()
    }

    fn totals(&self) -> Totals {
        let c = &self.shared.mover.counters;
        Totals {
            demand_faults: c.demand.load(Ordering::Relaxed),
            lent_pages: c.lent.load(Ordering::Relaxed),
            lent_back_pages: c.lent_back.load(Ordering::Relaxed),
            fresh_faults: c.fresh.load(Ordering::Relaxed),
            spurious_faults: c.spurious.load(Ordering::Relaxed),
            restored_pages: c.restored.load(Ordering::Relaxed),
            swapped_out_pages: c.swapped_out.load(Ordering::Relaxed)
                + c.lent.load(Ordering::Relaxed),
            zero_pages: c.zeros.load(Ordering::Relaxed),
            returned_pages: c.returned.load(Ordering::Relaxed),
            prefetch_used_pages: self.prefetch_used,
            conflicts: c.conflicts.load(Ordering::Relaxed),
            lost_events: self.shared.ring_dropped.load(Ordering::Relaxed),
            room_waits: self.shared.room_waits.load(Ordering::Relaxed),
        }
    }
}

//! Clew: its daemon and the programs that it manages, all inside the group whose hard limit is the
//! total. The daemon's budget is lower by what it does not count; of that it keeps a part free by itself.
//! Programs that fill freely have no hard limit, which would end them while the daemon makes room: what is
//! used says how well the budget is kept.
//!
//! A scheme that uses the kernel's zram as a tier finds a device, the same as the kernel's own arm has,
//! and what that takes is taken off the limit ([`super::limit`]). One that puts pages at a donor has one on another machine
//! ([`super::donor`]), on whose network its daemon is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clew_core::DonorState;
use clew_live::control::protocol::Request;
use clew_live::control::status::Status;
use clew_policy::Scheme;

use super::donor::{self, DonorScheme, Far};
use super::kernel::{ALGORITHM, swap_bytes};
use super::limit::{LimitKeeper, MARGIN_BYTES};
use clew_report::{Classes, Memory};

use super::{Arm, ArmKind, ArmSettings, Ground, Look, Moved, Tally, wait};
use crate::cpu_time;
use crate::daemon::{Daemon, DaemonSettings};
use crate::error::BenchError;
use crate::interrupt;
use crate::kernel_pool::{KernelPool, PoolUse};
use crate::network::Machine;
use crate::pagemap::page_bytes;
use crate::programs::Kind;
use crate::zram::ZramSwap;

/// As the kernel writes it of a group that has none.
const NO_LIMIT_BYTES: u64 = i64::MAX as u64 & !4095;
const FITTING_PATIENCE: Duration = Duration::from_secs(60);
const MANAGED_PATIENCE: Duration = Duration::from_secs(5);
const DONOR_PATIENCE: Duration = Duration::from_secs(10);
/// What a recording daemon may keep that is not written down yet, and its file's pages.
const RECORDER_BYTES: u64 = 96 << 20;

/// The arm on Clew. Fields end in this order: the daemon is asked to stop, then who lends it memory, then the group ends
/// whatever is left.
pub struct Clew {
    kind: ArmKind,
    limit: Option<LimitKeeper>,
    daemon: Option<Daemon>,
    far: Option<Far>,
    exe: PathBuf,
    /// A preset's name or a file.
    scheme: String,
    options: Vec<OsString>,
    /// Whether the daemon is told which app comes and goes.
    calls: bool,
    /// Time that our thread spent reclaiming page cache.
    reclaim: Duration,
    /// Ratio when the pool was largest.
    densest: (u64, Option<f64>),
    ground: Option<Ground>,
    zram: Option<ZramSwap>,
}

impl Clew {
    /// The arm with the command of `settings`, and its scheme where the arm has none of its own.
    pub fn new(kind: ArmKind, settings: &ArmSettings) -> Result<Clew, BenchError> {
        let exe = settings.clew()?;
        Ok(Clew {
            kind,
            limit: None,
            daemon: None,
            far: None,
            exe,
            scheme: match kind {
                ArmKind::Clew => settings.clew_scheme.clone(),
                ArmKind::ClewZram => "zram".to_string(),
                ArmKind::ClewArcher => "archer".to_string(),
                ArmKind::Flash(flash) => {
                    flash.preset().unwrap_or(&settings.clew_scheme).to_string()
                }
                ArmKind::Donor(donor) => {
                    donor.preset().unwrap_or(&settings.clew_scheme).to_string()
                }
                _ => "ariadne".to_string(),
            },
            options: match kind {
                ArmKind::Clew => settings.daemon_options.clone(),
                _ => Vec::new(),
            },
            calls: kind != ArmKind::ClewAriadneNoCalls,
            reclaim: Duration::ZERO,
            densest: (0, None),
            ground: None,
            zram: None,
        })
    }

    /// The scheme that it is called by.
    fn loaded(&self) -> Result<Scheme, BenchError> {
        let scheme = match Scheme::preset(&self.scheme) {
            Ok(preset) => Ok(preset),
            Err(unknown) => match std::fs::read_to_string(&self.scheme) {
                Ok(text) => Scheme::from_toml(&text),
                Err(_) => Err(unknown),
            },
        };
        let unavailable = |error: clew_policy::SchemeError| BenchError::Unavailable {
            what: "clew",
            reason: format!("scheme {}: {error}", self.scheme),
        };
        scheme.map_err(unavailable)
    }

    /// Whether the scheme uses the kernel's zram.
    fn lends(&self) -> Result<bool, BenchError> {
        Ok(self.loaded()?.kernel_share_pct() > 0)
    }

    /// Waits until it can put pages at all of its donors.
    fn wait_for_donors(&mut self) -> Result<(), BenchError> {
        let since = Instant::now();
        loop {
            let donors = self.status()?.donors;
            let Some(down) = donors.iter().find(|donor| donor.state != DonorState::Up) else {
                return Ok(());
            };
            if since.elapsed() > DONOR_PATIENCE {
                let reason = down.why.clone().unwrap_or_else(|| "it is not up".to_string());
                return Err(BenchError::Unavailable { what: "the donor", reason });
            }
            interrupt::sleep(Duration::from_millis(20))?;
        }
    }

    /// What its zram holds, where it lends to one.
    fn lent(&self) -> PoolUse {
        self.kernel_pool().map(|pool| pool.now()).unwrap_or_default()
    }

    /// Waits until the daemon has everything within the total.
    fn wait_until_it_fits(&mut self, ground: &Ground) -> Result<(), BenchError> {
        let (since, total) = (Instant::now(), ground.total()?);
        loop {
            self.make_room()?;
            let zram = self.lent().used_bytes;
            let used = ground.group.usage_bytes()? + zram;
            if used <= total {
                return Ok(());
            }
            if since.elapsed() > FITTING_PATIENCE {
                let (used, total) = (used >> 20, total >> 20);
                let reason = format!("{used} MiB stay in use of {total}");
                return Err(BenchError::Unavailable { what: "the budget", reason });
            }
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }

    fn order(&mut self, request: &Request) -> Result<(), BenchError> {
        self.daemon().order(request)
    }

    fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("an arm that has begun has a daemon")
    }

    fn status(&mut self) -> Result<Status, BenchError> {
        let status = self.daemon().status()?;
        // Pool, zram and donors together.
        let zram = self.lent();
        let at_donors: u64 = status.donors.iter().map(|donor| donor.live_bytes).sum();
        let pages: u64 = status.donors.iter().map(|donor| donor.stored_pages).sum();
        let used_bytes = status.pool.used_bytes + zram.used_bytes + at_donors;
        let elsewhere = zram.original_bytes + pages * page_bytes();
        if used_bytes >= self.densest.0 && (status.pool.stored_pages > 0 || elsewhere > 0) {
            let in_pool = status.pool.used_bytes as f64 * status.pool.ratio;
            let ratio = (in_pool + elsewhere as f64) / used_bytes as f64;
            self.densest = (used_bytes, Some(ratio));
        }
        Ok(status)
    }
}

/// An error if a program is not managed: its times would say nothing about Clew. A compiler is none yet:
/// each file has processes of its own.
fn all_managed(status: &Status, apps: &[(Kind, u32)]) -> Result<(), BenchError> {
    for (kind, _) in apps.iter().filter(|(kind, _)| *kind != Kind::Compile) {
        let app = status.apps.iter().find(|app| app.name == kind.name());
        let processes = app.map(|app| app.processes.as_slice()).unwrap_or_default();
        if processes.iter().any(|process| process.managed) {
            continue;
        }
        let reason = processes
            .iter()
            .map(|process| format!("{}: {}", process.command, process.reason))
            .next()
            .unwrap_or_else(|| "the daemon does not know it".to_string());
        let reason = format!("it does not manage {kind} ({reason})");
        return Err(BenchError::Unavailable { what: "clew", reason });
    }
    Ok(())
}

/// Pages of all apps by class; `None` where an app has none.
fn classes(status: &Status) -> Option<Classes> {
    let mut all = Classes::default();
    for app in &status.apps {
        let classes = app.classes.as_ref()?;
        for (pages, resident, stored) in [
            (&classes.hot, &mut all.hot_resident_bytes, &mut all.hot_stored_bytes),
            (&classes.warm, &mut all.warm_resident_bytes, &mut all.warm_stored_bytes),
            (&classes.cold, &mut all.cold_resident_bytes, &mut all.cold_stored_bytes),
        ] {
            *resident += pages.resident_pages * page_bytes();
            *stored += pages.out_pages * page_bytes();
        }
    }
    (!status.apps.is_empty()).then_some(all)
}

impl Arm for Clew {
    fn kind(&self) -> ArmKind {
        self.kind
    }

    fn scheme(&self) -> String {
        match self.kind {
            ArmKind::Without(ablation) => format!("ariadne, {}", ablation.description()),
            ArmKind::Donor(_) => {
                let far = self.far.as_ref().map_or_else(String::new, Far::description);
                format!("{}, {far}", self.scheme)
            }
            _ => self.scheme.clone(),
        }
    }

    fn begin(&mut self, ground: &Ground) -> Result<(), BenchError> {
        self.ground = Some(ground.clone());
        // Who records compares nothing, and needs memory for what is not written down yet.
        let recorder = if self.options.is_empty() { 0 } else { RECORDER_BYTES };
        ground.group.never_swap()?;
        if !ground.fills_freely {
            ground.group.limit(ground.total()? + recorder)?;
        }
        if let ArmKind::Without(ablation) = self.kind {
            self.scheme = ablation.write_scheme(&self.exe, &ground.scratch)?;
        }
        if self.lends()? {
            self.zram = Some(ZramSwap::start(ALGORITHM, swap_bytes(ground.total()?))?);
            if !ground.fills_freely {
                let total = ground.total()? + recorder;
                self.limit = Some(LimitKeeper::start(
                    ground.group.clone(),
                    total,
                    MARGIN_BYTES,
                    self.kernel_pool(),
                ));
            }
        }
        // Lower by what the group holds and the daemon does not count: page tables, stacks, sockets,
        // file pages.
        let uncounted = ground.headroom_bytes / 6 * 5;
        let budget_bytes = ground.total()?.saturating_sub(uncounted);
        if let ArmKind::Flash(_) = self.kind {
            let file = ground.scratch.join("flash");
            let size = swap_bytes(ground.total()?).to_string();
            let flash: [OsString; 4] =
                ["--flash".into(), file.into(), "--flash-size".into(), size.into()];
            self.options.extend(flash);
        }
        let mut scheme = self.scheme.clone();
        if let ArmKind::Donor(donor) = self.kind {
            let (bytes, scratch) = (swap_bytes(ground.total()?), &ground.scratch);
            if donor == DonorScheme::Asked {
                scheme = donor::write_scheme(&self.loaded()?, scratch)?;
            }
            let far = Far::begin(donor, &self.exe, bytes, scratch)?;
            self.options.extend(far.options(bytes, scratch));
            self.far = Some(far);
        }
        let settings = DaemonSettings {
            exe: &self.exe,
            scheme: &scheme,
            budget_bytes: Some(budget_bytes),
            toml: "",
            scratch: &ground.scratch,
            options: &self.options,
        };
        let start = || Daemon::start(settings, &ground.group);
        self.daemon = Some(match &self.far {
            None => start()?,
            Some(far) => far.network().on(Machine::Near, start)??,
        });
        self.wait_for_donors()
    }

    fn kernel_pool(&self) -> Option<KernelPool> {
        self.zram.as_ref().map(ZramSwap::pool)
    }

    fn launcher(&self, app: Kind) -> Vec<OsString> {
        self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.launcher(app.name()))
    }

    /// The hard limit kills; the daemon needs a moment where programs grow without pause.
    fn fill_ceiling_bytes(&self) -> Option<u64> {
        let ground = self.ground.as_ref().filter(|ground| !ground.fills_freely)?;
        Some(ground.total_bytes?.saturating_sub(ground.headroom_bytes / 2))
    }

    fn filled(&mut self, apps: &[(Kind, u32)]) -> Result<(), BenchError> {
        // The daemon may take a large program on a moment after it has grown.
        let since = Instant::now();
        while let Err(error) = all_managed(&self.status()?, apps) {
            if since.elapsed() > MANAGED_PATIENCE {
                return Err(error);
            }
            interrupt::sleep(Duration::from_millis(50))?;
        }
        apps.iter().try_for_each(|&(app, _)| self.to_background(app))?;
        match self.ground.clone() {
            Some(ground) if ground.fills_freely => self.wait_until_it_fits(&ground),
            _ => Ok(()),
        }
    }

    fn to_foreground(&mut self, app: Kind) -> Result<(), BenchError> {
        match self.calls {
            true => self.order(&Request::Fg { app: app.name().to_string() }),
            false => Ok(()),
        }
    }

    fn responded(&mut self, app: Kind, after: Duration) -> Result<(), BenchError> {
        let (app, response_ns) = (app.name().to_string(), after.as_nanos() as u64);
        match self.calls {
            true => self.order(&Request::Responded { app, response_ns }),
            false => Ok(()),
        }
    }

    fn to_background(&mut self, app: Kind) -> Result<(), BenchError> {
        match self.calls {
            true => self.order(&Request::Bg { app: app.name().to_string() }),
            false => Ok(()),
        }
    }

    /// The daemon makes room by itself; page cache of the group is the kernel's to give up, which it
    /// would do in time on a whole machine, and does only at the limit in a group.
    fn make_room(&mut self) -> Result<(), BenchError> {
        let Some(ground) = &self.ground else { return Ok(()) };
        let (total, group) = (ground.total()?, &ground.group);
        let excess = (group.usage_bytes()? + ground.headroom_bytes).saturating_sub(total);
        let limit = if ground.fills_freely { NO_LIMIT_BYTES } else { total };
        let idle = group.idle_file_bytes()?;
        let before = cpu_time::this_thread();
        if excess.min(idle) > 1 << 20 {
            group.give_up_files(excess.min(idle), limit)?;
        }
        self.reclaim += cpu_time::this_thread() - before;
        Ok(())
    }

    fn swap_bytes_written(&mut self) -> Result<u64, BenchError> {
        Ok(self.status()?.flash.map_or(0, |flash| flash.written_bytes))
    }

    fn outside_cpu(&self) -> Duration {
        self.reclaim + self.limit.as_ref().map_or(Duration::ZERO, LimitKeeper::spent)
    }

    fn look(&mut self, apps: &[(Kind, u32)]) -> Result<Look, BenchError> {
        let status = self.status()?;
        let pages: u64 = status.apps.iter().map(|app| app.stored_pages).sum();
        let kept = Memory {
            resident_bytes: status.apps.iter().map(|app| app.resident_bytes).sum(),
            stored_bytes: pages * page_bytes(),
            pool_bytes: status.pool.used_bytes + self.lent().used_bytes,
            daemon_bytes: status.daemon_bytes,
            disk_bytes: status.flash.as_ref().map_or(0, |flash| flash.stored_bytes),
            donor_bytes: status.donors.iter().map(|donor| donor.live_bytes).sum(),
            classes: classes(&status),
            ..Memory::default()
        };
        let moved = |&(kind, _): &(Kind, u32)| {
            let app = status.apps.iter().find(|app| app.name == kind.name());
            app.map_or_else(Moved::default, |app| Moved {
                faulted_pages: app.demand_faults + app.lent_back_pages,
                restored_pages: app.restored_pages.saturating_sub(app.demand_faults),
                fault_ns: Some(app.fault_ns),
                fault_codec_ns: Some(app.fault_codec_ns),
            })
        };
        Ok(Look { kept, moved: apps.iter().map(moved).collect() })
    }

    fn tally(&mut self) -> Result<Tally, BenchError> {
        let status = self.status()?;
        let faults = status.apps.iter().map(|app| app.demand_faults + app.lent_back_pages).sum();
        Ok(Tally { faults, ratio: self.densest.1, waits: wait::of(&status) })
    }
}

#[cfg(test)]
mod tests {
    use clew_live::control::status::{AppStatus, ProcessStatus};

    use super::*;

    fn status(managed: bool) -> Status {
        let process = ProcessStatus {
            command: "redis-server".to_string(),
            managed,
            reason: "static binary".to_string(),
            ..ProcessStatus::default()
        };
        let app = AppStatus {
            name: "redis".to_string(),
            processes: vec![process],
            ..AppStatus::default()
        };
        Status { apps: vec![app], ..Status::default() }
    }

    #[test]
    fn programs_that_are_not_managed_are_noticed() {
        let redis = (Kind::Redis, 1);
        assert!(all_managed(&status(true), &[redis]).is_ok());
        let error = all_managed(&status(false), &[redis]).expect_err("not managed");
        assert!(error.to_string().contains("static binary"), "{error}");
        assert!(all_managed(&status(true), &[redis, (Kind::Node, 2)]).is_err());
    }
}

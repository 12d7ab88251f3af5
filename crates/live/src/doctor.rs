//! What this machine offers, what is missing, what to do about it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::process::{DumpableBehavior, Resource, getrlimit};
use serde::Serialize;

use crate::accessed::AccessedBits;
use crate::control::service::{self, ROOTS_SOCKET, Service, group_named};
use crate::faults::affinity;
use crate::faults::uffd::{FEATURES, Uffd, feature};
use crate::kernel_swap::KernelSwap;
use crate::programs::kcmp::share_memory;
use crate::recording::file_reads::FileStreams;
use crate::survival::pressure;

/// How much a check matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is there.
    Ok,
    /// Something works less well.
    Limited,
    /// The daemon cannot run.
    Missing,
    /// A fact.
    Info,
}

/// One line of the diagnosis.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it stands.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do, where something can be done.
    pub advice: String,
}

fn check(name: &'static str, level: Level, found: impl Into<String>, advice: &str) -> Check {
    Check { name, level, found: found.into(), advice: advice.into() }
}

/// What the daemon cannot do without and this machine lacks, in words.
pub fn first_missing() -> Option<String> {
    required()
        .into_iter()
        .find(|c| c.level == Level::Missing)
        .map(|c| format!("{}: {}; {}", c.name, c.found, c.advice))
}

/// Has this process be its user's in `/proc`: who has capabilities from its file is root's there, and cannot read what is
/// told of itself. Who is not as capable may read no more of it than before.
fn be_own_user_s() {
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable) {
        tracing::debug!(%error, "what this process is in /proc stays as it is");
    }
}

fn required() -> Vec<Check> {
    be_own_user_s();
    let mut checks = Vec::new();
    let uffd = Uffd::open_own();
    checks.push(match &uffd {
        Ok(_) => check("userfaultfd", Level::Ok, "can be opened", ""),
        Err(e) => check(
            "userfaultfd",
            Level::Missing,
            e.to_string(),
            "run as root, give access to /dev/userfaultfd, or set vm.unprivileged_userfaultfd=1",
        ),
    });
    if let Ok(uffd) = uffd {
        checks.push(match uffd.api(FEATURES) {
            Ok(()) => {
                check("userfaultfd features", Level::Ok, "MOVE, POISON, marks, all events", "")
            }
            Err(e) => check(
                "userfaultfd features",
                Level::Missing,
                e.to_string(),
                "Linux 6.8 or later is needed (UFFDIO_MOVE)",
            ),
        });
        let with_fork = Uffd::open_own().and_then(|u| u.api(FEATURES | feature::EVENT_FORK));
        checks.push(match with_fork {
            Ok(()) => check("following forks", Level::Ok, "EVENT_FORK", ""),
            Err(e) => check(
                "following forks",
                Level::Missing,
                e.to_string(),
                "CAP_SYS_PTRACE is needed: without it a forked child would read zeros",
            ),
        });
    }
    checks.push(match scan_works() {
        Ok(()) => check("PAGEMAP_SCAN", Level::Ok, "works", ""),
        Err(e) => check("PAGEMAP_SCAN", Level::Missing, e, "Linux 6.7 or later is needed"),
    });
    let own = std::process::id();
    checks.push(match share_memory(own, own) {
        Some(true) => check("kcmp", Level::Ok, "works", ""),
        _ => check(
            "kcmp",
            Level::Missing,
            io::Error::last_os_error().to_string(),
            "a kernel with CONFIG_KCMP is needed, and a sandbox that allows kcmp: nobody can tell \
             without it whose memory an agent is in",
        ),
    });
    checks.extend(processor_time());
    let page = page_bytes();
    checks.push(match page {
        4096 => check("page size", Level::Ok, "4 KiB", ""),
        _ => check(
            "page size",
            Level::Missing,
            format!("{page} bytes"),
            "this version manages 4 KiB pages only",
        ),
    });
    checks
}

fn scan_works() -> Result<(), String> {
    let pagemap = File::open("/proc/self/pagemap").map_err(|e| e.to_string())?;
    crate::programs::pagemap::present_pages(&pagemap, 0x1000, 0x2000, 4096, |_| {})
        .map_err(|e| e.to_string())
}

fn page_bytes() -> i64 {
    // SAFETY: takes a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}

/// Everything that can be said about this machine. Measures fault latencies (some 50 ms).
pub fn examine() -> Vec<Check> {
    let mut checks = required();
    let service = service::look_at(Path::new(ROOTS_SOCKET));
    if matches!(service, Service::Ours { .. }) {
        // What this user may not do, it does.
        checks.iter_mut().filter(|c| c.level == Level::Missing).for_each(|c| {
            c.level = Level::Limited;
        });
    }
    checks.push(for_all_users(service));
    // SAFETY: takes nothing, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    checks.push(match root {
        true => check("privileges", Level::Ok, "root", ""),
        false => check(
            "privileges",
            Level::Limited,
            "not root",
            "programs of other users cannot be managed; the demo's kernel peers cannot run",
        ),
    });
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    checks.push(check("kernel", Level::Info, release.trim(), ""));
    match affinity::measure() {
        Some(m) => checks.push(check(
            "fault placement",
            Level::Info,
            format!(
                "{:.1} us beside the handler, {:.1} us anywhere: {}",
                m.same_cpu_ns as f64 / 1e3,
                m.free_ns as f64 / 1e3,
                match m.choose() {
                    affinity::Placement::Narrow => "affinity is narrowed during a relaunch",
                    affinity::Placement::Free => "threads stay where they are",
                }
            ),
            "",
        )),
        None => checks.push(check(
            "fault placement",
            Level::Info,
            format!("{} CPU(s): nothing to choose", affinity::allowed_cpus().len()),
            "",
        )),
    }
    let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    checks.push(check("huge pages", Level::Info, thp.trim(), ""));
    checks.push(match fs::metadata("/sys/block/zram0") {
        Ok(_) => {
            let algorithms =
                fs::read_to_string("/sys/block/zram0/comp_algorithm").unwrap_or_default();
            check("kernel zram (peer)", Level::Ok, algorithms.trim(), "")
        }
        Err(_) => check(
            "kernel zram (peer)",
            Level::Limited,
            "no /sys/block/zram0",
            "comparisons leave it out; 'modprobe zram' may bring it",
        ),
    });
    checks.push(match KernelSwap::find() {
        Ok(_) => check("kernel zram (tier)", Level::Ok, "the kernel swaps to zram first", ""),
        Err(why) => check(
            "kernel zram (tier)",
            Level::Info,
            why,
            "a scheme with kernel-first keeps everything in its pool then; with zram as swap, what nobody foresees \
             comes back at the price of the kernel's own fault",
        ),
    });
    let memory_cgroup = ["/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/cgroup.controllers"]
        .iter()
        .position(|p| fs::metadata(p).is_ok());
    checks.push(match memory_cgroup {
        Some(0) => check("memory cgroups (demo)", Level::Ok, "version 1", ""),
        Some(_) => check(
            "memory cgroups (demo)",
            Level::Limited,
            "version 2",
            "the demo limits memory with version 1",
        ),
        None => {
            check("memory cgroups (demo)", Level::Limited, "none", "the demo cannot limit memory")
        }
    });
    checks.push(reads_of_files());
    checks.push(sensor());
    checks.push(pids());
    checks.extend(files());
    checks.extend(address_space());
    checks
}

/// Whether a service for all users is there, and this user may use it.
fn for_all_users(service: Service) -> Check {
    const NAME: &str = "service for all users";
    match service {
        Service::None => check(
            NAME,
            Level::Info,
            "none",
            "'clew daemon --all-users' of root is one, for whoever is in its group",
        ),
        Service::Ours { group } => check(
            NAME,
            Level::Ok,
            format!(
                "at {ROOTS_SOCKET}, for members of group {}: you may use it",
                group_named(group)
            ),
            "",
        ),
        Service::ForOthers { group } => check(
            NAME,
            Level::Limited,
            format!("at {ROOTS_SOCKET}, and you may not use it"),
            &format!(
                "it is for members of group {}: root adds you ('usermod -aG'), then log in again",
                group_named(group)
            ),
        ),
        Service::Silent { group, error } => check(
            NAME,
            Level::Limited,
            format!("at {ROOTS_SOCKET}, for members of group {}, as you are", group_named(group)),
            &format!("it does not answer: {error}"),
        ),
    }
}

fn reads_of_files() -> Check {
    const NAME: &str = "reads of files";
    match FileStreams::listen() {
        Ok(_) => check(NAME, Level::Ok, "the kernel tells of them ('clew record --files')", ""),
        Err(error) => check(
            NAME,
            Level::Limited,
            error.to_string(),
            "'clew record --files' needs root, and Linux 6.11 with tracepoints and fanotify",
        ),
    }
}

/// How the use of resident pages becomes known.
fn sensor() -> Check {
    const OWN: &str = "a sample is taken out before a relaunch, and touches of it are faults";
    let why = match AccessedBits::open() {
        Ok(_) => {
            let found = "the accessed bits of page tables are read by BPF";
            return check("use of resident pages", Level::Ok, found, "");
        }
        Err(why) => why,
    };
    let damon = Path::new("/sys/kernel/mm/damon/admin");
    let others = match (Path::new("/sys/kernel/mm/page_idle/bitmap").exists(), damon.exists()) {
        (true, _) => "idle-page tracking is there, and not used by this version",
        (false, true) => "no idle-page tracking; DAMON is there, and not used by this version",
        (false, false) => "no idle-page tracking, no DAMON",
    };
    check(
        "use of resident pages",
        Level::Limited,
        format!("{OWN} ({others}; accessed bits: {why})"),
        "root's daemon reads the accessed bits of page tables, on x86-64 with Linux 6.14 and BTF: less comes back twice",
    )
}

/// Memory that the daemon shares counts as files.
fn files() -> Option<Check> {
    let longest = pressure::longest_file()?;
    let advice = "raise 'ulimit -f' (LimitFSIZE of a service): the daemon's pool and what it shares with \
                  agents are files of this kind, and a daemon whose cannot grow manages no program";
    Some(check(
        "limit on files",
        Level::Limited,
        format!("files of {longest} bytes at most"),
        advice,
    ))
}

/// A daemon that the kernel ends leaves programs that wait.
fn processor_time() -> Option<Check> {
    pressure::limit_time();
    let most = pressure::most_seconds()?;
    let advice = "have no 'ulimit -t' (LimitCPU of a service): a daemon works for all its programs, and one that is ended by \
                  such a limit leaves them waiting";
    let text = format!("{most} s of a CPU at most, in which no daemon can serve");
    Some(check("limit on processor time", Level::Missing, text, advice))
}

/// What the daemon maps is mostly never touched.
fn address_space() -> Option<Check> {
    let most = pressure::most_address_space()?;
    let advice = "raise 'ulimit -v' (LimitAS of a service): a daemon maps 18 GiB and eight times its pool, and uses little \
                  of it; where it may not, it does not begin";
    let text = format!("{most} bytes of address space at most");
    Some(check("limit on address space", Level::Limited, text, advice))
}

/// An agent is a process: limits on processes concern it.
fn pids() -> Check {
    let open = getrlimit(Resource::Nofile).current;
    let text = open.map_or("any number of open files".into(), |open| format!("{open} open files"));
    match open.is_some_and(|open| open < 1024) {
        true => check("limits", Level::Limited, text, "raise 'ulimit -n': a program takes five"),
        false => check("limits", Level::Info, text, ""),
    }
}

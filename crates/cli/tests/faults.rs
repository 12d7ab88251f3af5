//! System calls that fail: every call site in daemon and agent, each of the first times that a call is
//! made there, with two errors each. Whatever fails, no byte is wrong and nobody waits longer than
//! [`BOUND`]; the daemon goes on, or ends with a reason and the next one takes over.
//!
//! Sites are found by two runs in which nothing fails. `CLEW_FAULT_SECONDS` limits the cases to a seeded
//! sample of so many seconds (40 for all tests here together; 0: all cases), `CLEW_FAULT_SEED` is the
//! seed, `CLEW_FAULT_ONLY` names a site or a call: only what has it in its name is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_fixture::Setting;
use clew_fixture::hook::{ALLOCATION, PTHREAD_CREATE, Site, Table, Tools};
use clew_fixture::world::{BOUND, FLASH, World, life, succession};
use clew_fixture::*;
use clew_store::points::NAMES;

/// How many of the times that a site is passed are tried.
const TIMES: u64 = 20;

/// Errors, by number.
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EINTR: i32 = 4;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EPERM: i32 = 1;
const ENOLCK: i32 = 37;
const ENOSYS: i32 = 38;
const EADDRINUSE: i32 = 98;
const ENOBUFS: i32 = 105;
const ECHILD: i32 = 10;
const ECONNABORTED: i32 = 103;

/// A system call that can fail for want of something, or because of what others do: its number, its
/// name, and two errors that it can give. Calls that fail for wrong arguments only (UFFDIO_WAKE,
/// getpid, futex, sigprocmask and their like) are not here.
const CALLS: [(u32, &str, [i32; 2]); 62] = [
    (0, "read", [EINTR, EIO]),
    (1, "write", [ENOSPC, EINTR]),
    (2, "open", [EMFILE, ENOMEM]),
    (3, "close", [EINTR, EIO]),
    (4, "stat", [ENOENT, ENOMEM]),
    (5, "fstat", [ENOMEM, EIO]),
    (7, "poll", [EINTR, ENOMEM]),
    (8, "lseek", [ESRCH, EINVAL]),
    (9, "mmap", [ENOMEM, EAGAIN]),
    (10, "mprotect", [ENOMEM, EACCES]),
    (11, "munmap", [ENOMEM, EINVAL]),
    (12, "brk", [ENOMEM, ENOMEM]),
    (16, "ioctl", [EAGAIN, ENOMEM]),
    (17, "pread64", [EINTR, EIO]),
    (18, "pwrite64", [ENOSPC, EINTR]),
    (20, "writev", [ENOSPC, EINTR]),
    (21, "access", [ENOENT, EACCES]),
    (28, "madvise", [EAGAIN, ENOMEM]),
    (32, "dup", [EMFILE, ENOMEM]),
    (41, "socket", [EMFILE, ENOMEM]),
    (42, "connect", [EAGAIN, ENOMEM]),
    (43, "accept", [EMFILE, ECONNABORTED]),
    (44, "sendto", [ENOBUFS, EINTR]),
    (45, "recvfrom", [EINTR, ENOMEM]),
    (46, "sendmsg", [ENOBUFS, EINTR]),
    (47, "recvmsg", [EINTR, ENOMEM]),
    (49, "bind", [EADDRINUSE, ENOMEM]),
    (50, "listen", [EADDRINUSE, ENOMEM]),
    (54, "setsockopt", [ENOMEM, ENOBUFS]),
    (55, "getsockopt", [ENOMEM, ENOBUFS]),
    (56, "clone", [EAGAIN, ENOMEM]),
    (61, "wait4", [EINTR, ECHILD]),
    (72, "fcntl", [EMFILE, EINVAL]),
    (73, "flock", [EINTR, ENOLCK]),
    (77, "ftruncate", [EINTR, ENOMEM]),
    (82, "rename", [ENOSPC, EIO]),
    (83, "mkdir", [ENOSPC, EACCES]),
    (87, "unlink", [EIO, EACCES]),
    (90, "chmod", [EPERM, EIO]),
    (91, "fchmod", [EPERM, EIO]),
    (126, "capset", [EPERM, EINVAL]),
    (141, "setpriority", [EACCES, EPERM]),
    (151, "mlockall", [ENOMEM, EPERM]),
    (203, "sched_setaffinity", [ESRCH, EPERM]),
    (204, "sched_getaffinity", [ESRCH, EPERM]),
    (217, "getdents64", [ENOENT, ENOMEM]),
    (232, "epoll_wait", [EINTR, ENOMEM]),
    (233, "epoll_ctl", [ENOMEM, ENOSPC]),
    (257, "openat", [EMFILE, ENOMEM]),
    (262, "newfstatat", [ENOENT, ENOMEM]),
    (271, "ppoll", [EINTR, ENOMEM]),
    (285, "fallocate", [EINTR, ENOMEM]),
    (288, "accept4", [EMFILE, ENFILE]),
    (291, "epoll_create1", [EMFILE, ENOMEM]),
    (293, "pipe2", [EMFILE, ENFILE]),
    (302, "prlimit64", [EPERM, EINVAL]),
    (312, "kcmp", [ESRCH, EPERM]),
    (317, "seccomp", [ENOMEM, EINVAL]),
    (318, "getrandom", [EINTR, EAGAIN]),
    (319, "memfd_create", [EMFILE, ENOMEM]),
    (323, "userfaultfd", [EMFILE, ENOMEM]),
    (327, "preadv2", [EINTR, ENOMEM]),
];

/// The same, newer.
const MORE_CALLS: [(u32, &str, [i32; 2]); 6] = [
    (332, "statx", [ENOENT, ENOMEM]),
    (424, "pidfd_send_signal", [ESRCH, EPERM]),
    (434, "pidfd_open", [EMFILE, ESRCH]),
    (436, "close_range", [EMFILE, ENOSYS]),
    (438, "pidfd_getfd", [EMFILE, ESRCH]),
    (PTHREAD_CREATE, "pthread_create", [EAGAIN, ENOMEM]),
];

/// What ioctl is asked for: errors of its own, or none where only wrong arguments can fail.
const IOCTLS: [(u32, &str, Option<[i32; 2]>); 13] = [
    (0xc018_aa3f, "UFFDIO_API", Some([EPERM, EINVAL])),
    (0xc020_aa00, "UFFDIO_REGISTER", Some([ENOMEM, EBUSY])),
    (0x8010_aa01, "UFFDIO_UNREGISTER", Some([ENOMEM, EINVAL])),
    (0x8010_aa02, "UFFDIO_WAKE", None),
    (0xc028_aa03, "UFFDIO_COPY", Some([EAGAIN, ENOMEM])),
    (0xc020_aa04, "UFFDIO_ZEROPAGE", Some([EAGAIN, ENOMEM])),
    (0xc028_aa05, "UFFDIO_MOVE", Some([EAGAIN, EBUSY])),
    (0xc020_aa08, "UFFDIO_POISON", Some([EAGAIN, ENOMEM])),
    (0x0000_aa00, "USERFAULTFD_IOC_NEW", Some([EMFILE, ENOMEM])),
    (0xc060_6610, "PAGEMAP_SCAN", Some([EINTR, ENOMEM])),
    (0xc068_6611, "PROCMAP_QUERY", Some([EINTR, ESRCH])),
    (0x5421, "FIONBIO", None),
    (0x5401, "TCGETS", None),
];

fn calls() -> impl Iterator<Item = (u32, &'static str, [i32; 2])> {
    CALLS.into_iter().chain(MORE_CALLS)
}

fn numbers() -> Vec<u32> {
    calls().map(|call| call.0).filter(|number| *number < PTHREAD_CREATE).collect()
}

/// Those that the agent makes. The program is asked about them too, wherever it makes them.
const AGENTS_CALLS: [u32; 20] =
    [5, 9, 11, 16, 28, 41, 42, 46, 47, 56, 61, 72, 126, 271, 293, 312, 317, 323, 434, 436];

/// The call of a site, and the errors that it is to fail with.
fn call_of(site: &Site) -> Option<(String, [i32; 2])> {
    let (_, name, errors) = calls().find(|call| call.0 == site.number)?;
    match name {
        "ioctl" => match IOCTLS.iter().find(|(request, ..)| *request == site.what) {
            Some((_, name, errors)) => Some((format!("ioctl({name})"), (*errors)?)),
            None => Some((format!("ioctl({:#x})", site.what), errors)),
        },
        "fcntl" => Some((format!("fcntl({})", site.what), errors)),
        _ => Some((name.to_string(), errors)),
    }
}

/// Where faults are injected.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    /// The daemon of a whole life.
    Daemon,
    /// The daemon of a whole life, with flash.
    Flash,
    /// The successor of one that died in the middle of a batch.
    Successor,
    /// The agents of a program and its children, and what runs in the program to start them.
    Agent,
}

struct Case {
    site: usize,
    nth: u64,
    error: i32,
}

/// What came of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// Everything as if nothing had failed.
    WentOn,
    /// Something of the program was not managed, and `clew ps` said why.
    Unmanaged,
    /// The daemon ended with a reason, and the next one took over.
    Ended,
}

struct Told {
    table: Table,
    ends: Vec<world::End>,
    unmanaged: Vec<String>,
    refused: Vec<String>,
    agent_object: PathBuf,
    _dir: TempDir,
}

/// Lives through it, with a call that fails, and checks everything.
fn tell(tools: &Tools, part: Part, fail: Option<(u64, u64, i32)>) -> Told {
    let dir = TempDir::new();
    let (table, other) = (Table::new(dir.join("table")), Table::new(dir.join("other")));
    let fail =
        fail.map_or("0 0 0".to_string(), |(key, nth, error)| format!("{key:x} {nth} {error}"));
    let mut setting: Setting = tools.environment(&table, &numbers());
    setting.push(("CLEW_HOOK_FAIL", fail.clone()));
    let mut world = match part {
        Part::Daemon => World::new(tools, "zram", vec![setting], Vec::new()),
        Part::Flash => World::new(tools, FLASH, vec![setting], Vec::new()),
        Part::Successor => {
            let mut first = tools.environment(&other, &[]);
            first.push(tools.with_points());
            let point = NAMES.iter().position(|name| *name == "out_taken").expect("a point");
            first.push(tools.stop_at(point, 3, false));
            World::new(tools, "ariadne", vec![first, setting], Vec::new())
        }
        Part::Agent => {
            World::new(tools, "zram", Vec::new(), tools.notify(&table, &AGENTS_CALLS, &fail))
        }
    };
    match part {
        Part::Daemon | Part::Flash | Part::Agent => life(&mut world),
        Part::Successor => succession(&mut world),
    }
    assert!(table.is_ready(), "the hook was not loaded");
    let ends = world.ends.drain(usize::from(part == Part::Successor)..).collect();
    let (unmanaged, refused) = (world.unmanaged.clone(), world.refused.clone());
    let agent_object = world.agent_object.clone();
    Told { table, ends, unmanaged, refused, agent_object, _dir: dir }
}

/// A run in which nothing fails. On a busy machine it may be looked before a child has its own agent;
/// not each time.
fn undisturbed(tools: &Tools, part: Part) -> Told {
    let runs = std::iter::repeat_with(|| tell(tools, part, None)).take(5).inspect(|told| {
        assert!(
            told.ends.is_empty() && told.refused.is_empty(),
            "{:?} {:?}",
            told.ends,
            told.refused
        );
    });
    let mut reasons = Vec::new();
    let whole = { runs }.find(|told| {
        reasons.extend(told.unmanaged.clone());
        told.unmanaged.is_empty()
    });
    whole.unwrap_or_else(|| panic!("not managed, and nothing failed: {reasons:?}"))
}

/// `None` where nothing failed: the call was not made as often this time.
fn judge(told: &Told) -> Option<Outcome> {
    if told.table.fired() == 0 {
        assert!(told.ends.is_empty(), "a daemon ended and nothing had failed: {:?}", told.ends);
        return None;
    }
    for end in &told.ends {
        assert!(end.has_reason(), "a daemon ended without a reason: {end:?}");
    }
    assert!(told.unmanaged.iter().all(|reason| !reason.is_empty()), "unmanaged, and no reason");
    Some(match (told.ends.is_empty(), told.unmanaged.is_empty() && told.refused.is_empty()) {
        (false, _) => Outcome::Ended,
        (true, false) => Outcome::Unmanaged,
        (true, true) => Outcome::WentOn,
    })
}

/// Has a call of `site` fail, the `nth` time if it is made so often, else an earlier one; `None` where
/// none is made any more: who does what depends on who is quicker.
fn reach(tools: &Tools, part: Part, site: &Site, nth: u64, error: i32) -> Option<(Outcome, Told)> {
    let earlier = std::iter::successors(Some(nth), |nth| (*nth > 1).then_some(nth / 2));
    earlier.chain([1; 4]).find_map(|nth| {
        let told = tell(tools, part, Some((site.key, nth, error)));
        Some((judge(&told)?, told))
    })
}

/// What became of the cases of a site.
#[derive(Default)]
struct Results {
    outcomes: BTreeMap<Outcome, u64>,
    reasons: BTreeMap<String, u64>,
}

/// A sample of so many tenths of the time.
fn matrix(part: Part, share: u64) {
    let only = std::env::var("CLEW_FAULT_ONLY").unwrap_or_default();
    let seconds = number_from_env("CLEW_FAULT_SECONDS", 40);
    let limit = (seconds > 0).then(|| Duration::from_secs(seconds) * share as u32 / 10);
    cases_of(part, &only, limit);
}

/// What has `only` in its name; a sample where there is a limit.
fn cases_of(part: Part, only: &str, limit: Option<Duration>) {
    let name = format!("faults::{part:?}").to_lowercase();
    if !can_run(&name, &["cc", "nm", "objcopy"]) {
        return;
    }
    let _alone = alone();
    let began = Instant::now();
    let mut tools = Tools::new();
    let [first, second] = [(); 2].map(|()| undisturbed(&tools, part));
    if part == Part::Agent {
        tools.know_agent(&first.agent_object);
    }
    let describe = |site: &Site| match part {
        Part::Agent => tools.describe_agent(site),
        _ => tools.describe(site),
    };
    // What is called only now and then cannot be relied on.
    let always: BTreeSet<u64> = second.table.sites().iter().map(|site| site.key).collect();
    let known: Vec<(Site, String, [i32; 2])> = first
        .table
        .sites()
        .into_iter()
        .filter(|site| site.number != ALLOCATION && always.contains(&site.key))
        .filter_map(|site| {
            let (call, errors) = call_of(&site)?;
            let name = format!("{call} {}", describe(&site));
            name.contains(only).then_some((site, name, errors))
        })
        .collect();
    assert!(known.len() > 5 || !only.is_empty(), "hardly any site was found: {}", known.len());
    let mut cases = Vec::new();
    for (i, (site, _, errors)) in known.iter().enumerate() {
        for nth in 1..=site.count.min(TIMES) {
            let errors = if errors[0] == errors[1] { &errors[..1] } else { &errors[..] };
            cases.extend(errors.iter().map(|error| Case { site: i, nth, error: *error }));
        }
    }
    let all = cases.len();
    let mut random = Random(number_from_env("CLEW_FAULT_SEED", 1));
    for i in (1..cases.len()).rev() {
        cases.swap(i, random.below(i as u64 + 1) as usize);
    }
    let until = limit.map(|limit| Instant::now() + limit);
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Results>> = Mutex::default();
    let (failures, missed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    in_parallel(|| {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            if until.is_some_and(|until| Instant::now() > until) {
                break;
            }
            let (site, name, _) = &known[case.site];
            let what = format!("{name}, time {}, errno {}", case.nth, case.error);
            let judged = std::panic::catch_unwind(|| {
                let (outcome, told) = reach(&tools, part, site, case.nth, case.error)?;
                Some((outcome, told.ends, told.unmanaged, told.refused))
            });
            match judged {
                Ok(None) => missed.lock().expect("whole").push(what),
                Ok(Some((outcome, ends, unmanaged, refused))) => {
                    let mut results = results.lock().expect("whole");
                    let of_site = results.entry(case.site).or_default();
                    *of_site.outcomes.entry(outcome).or_default() += 1;
                    let words = ends.iter().map(|end| end.last_words().to_string());
                    for reason in words.chain(unmanaged).chain(refused) {
                        *of_site.reasons.entry(reason).or_default() += 1;
                    }
                }
                Err(_) => {
                    eprintln!("FAILED: {what}");
                    failures.lock().expect("whole").push(what);
                }
            }
        }
    });
    let results = results.into_inner().expect("whole");
    let mut totals: BTreeMap<Outcome, u64> = BTreeMap::new();
    for (i, (site, name, _)) in known.iter().enumerate() {
        let Some(of_site) = results.get(&i) else {
            println!("{name}: made {} times", site.count);
            continue;
        };
        println!("{name}: made {} times, {:?}", site.count, of_site.outcomes);
        for (reason, times) in &of_site.reasons {
            println!("    {times} x {reason}");
        }
        for (outcome, times) in &of_site.outcomes {
            *totals.entry(*outcome).or_default() += times;
        }
    }
    let failures = failures.into_inner().expect("whole");
    let tried: u64 = totals.values().sum::<u64>() + failures.len() as u64;
    println!(
        "{name}: {} sites, {all} cases, {tried} tried in {:.0} s: {totals:?}, {} failed; nobody waited \
         longer than {BOUND:?}",
        known.len(),
        began.elapsed().as_secs_f64(),
        failures.len()
    );
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(tried > 0, "no case was tried");
    let missed = missed.into_inner().expect("whole");
    assert!(missed.len() as u64 <= tried / 10, "too many calls were not made again: {missed:#?}");
}

#[test]
fn the_daemons_system_calls_fail() {
    matrix(Part::Daemon, 4);
}

/// Reads are tried again, after a write that failed nothing more is taken, and nothing is lost.
#[test]
fn what_flash_asks_of_the_kernel_fails() {
    let seconds = number_from_env("CLEW_FAULT_SECONDS", 40);
    let limit = (seconds > 0).then(|| Duration::from_secs(seconds) * 3 / 10);
    cases_of(Part::Flash, "flash::", limit);
}

/// A program is ended whose marks cannot be looked at, and needs not be for a call that fails once.
#[test]
fn a_scan_of_pages_that_fails_once_ends_no_program() {
    cases_of(Part::Daemon, "PAGEMAP_SCAN", None);
}

/// Whatever a successor cannot read of what its predecessor left: it does not begin without it, as the programs would wait
/// for ever.
#[test]
fn a_file_that_cannot_be_looked_at_is_not_one_that_is_missing() {
    cases_of(Part::Successor, "trace::regular::", None);
}

#[test]
fn a_successors_system_calls_fail() {
    matrix(Part::Successor, 4);
}

/// Who connects is told who listens. Where it stays the dead daemon, nobody ever asks its successor.
#[test]
fn a_successor_that_cannot_listen_leaves_everything_to_the_next_one() {
    cases_of(Part::Successor, "listen ", None);
}

#[test]
fn the_agents_system_calls_fail() {
    matrix(Part::Agent, 2);
}

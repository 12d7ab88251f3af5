//! Where the faulting thread and its handler run, and which of the daemon's threads come before programs.
//!
//! A fault answered on another CPU pays for waking that CPU, which on a virtual machine costs ten
//! times what the answer costs. So during a relaunch, and only then, the faulting thread's affinity
//! is narrowed to its handler's CPU; its own is given back afterwards. Whether that pays is
//! measured when the daemon starts.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::faults::uffd::{FEATURES, Uffd};
use crate::programs::environment;
use crate::programs::proc_stat::{Stat, is_all_of, user_of};

/// Threads that are looked at for such as were begun by a narrowed one.
const MOST: usize = 4096;

/// What the daemon does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Placement {
    /// Narrow the faulting thread's affinity during a relaunch.
    Narrow,
    /// Leave threads where they are.
    Free,
}

/// Round trips of one fault, nanoseconds at p50.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Faulting thread and handler on one CPU.
    pub same_cpu_ns: u64,
    /// The faulting thread wherever the kernel puts it.
    pub free_ns: u64,
}

impl Measured {
    /// The better placement. Where the kernel happened to put the thread beside the handler, both
    /// measure alike, and only narrowing makes sure of it.
    pub fn choose(self) -> Placement {
        if self.same_cpu_ns * 4 <= self.free_ns * 5 { Placement::Narrow } else { Placement::Free }
    }
}

/// The CPUs this process may use.
pub fn allowed_cpus() -> Vec<usize> {
    let set = get(0).unwrap_or_else(|| only(0));
    // SAFETY: CPU_ISSET reads the set only; the index is below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

fn only(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: a zeroed set is valid; the index is checked by CPU_SET.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    }
}

fn get(tid: u32) -> Option<libc::cpu_set_t> {
    // SAFETY: the set is as large as stated.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let done = libc::sched_getaffinity(tid as i32, size_of_val(&set), &mut set);
        (done >= 0).then_some(set)
    }
}

fn set(tid: u32, set: &libc::cpu_set_t) -> bool {
    // SAFETY: the set is as large as stated.
    unsafe { libc::sched_setaffinity(tid as i32, size_of_val(set), set) == 0 }
}

/// Pins the calling thread.
pub fn pin(cpu: usize) -> bool {
    set(0, &only(cpu))
}

/// The calling thread comes before programs, or does so no longer. Where the system does not allow it (it takes
/// CAP_SYS_NICE) nothing changes.
pub fn come_first(first: bool) {
    let nice = if first { -10 } else { 0 };
    // SAFETY: takes numbers, and changes this thread's own priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// The calling thread keeps its CPU as long as this lives, whoever else wants it: for some microseconds.
/// Where the system does not allow it (it takes CAP_SYS_NICE) nothing changes.
pub struct Unpreempted {
    before: Option<(i32, libc::sched_param)>,
}

impl Unpreempted {
    /// From now on.
    pub fn now() -> Unpreempted {
        // SAFETY: takes numbers, and a structure that lives across the calls; zeros are a valid one.
        unsafe {
            let mut had: libc::sched_param = std::mem::zeroed();
            let policy = libc::sched_getscheduler(0);
            let known = policy >= 0 && libc::sched_getparam(0, &mut had) == 0;
            let first = libc::sched_param { sched_priority: 1 };
            let done = known && libc::sched_setscheduler(0, libc::SCHED_FIFO, &first) == 0;
            Unpreempted { before: done.then_some((policy, had)) }
        }
    }
}

impl Drop for Unpreempted {
    fn drop(&mut self) {
        if let Some((policy, had)) = &self.before {
            // SAFETY: as above.
            unsafe { libc::sched_setscheduler(0, *policy, had) };
        }
    }
}

/// A thread of a program, as the kernel names it to who reads its faults: by its number in its own
/// namespace of processes, which may be somebody else's here.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The program.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

impl Thread {
    /// Whether the program has a thread of this number here.
    fn is_the_programs(self) -> bool {
        let Thread { pid, tid } = self;
        pid != 0 && tid != 0 && Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
    }
}

/// A thread that was narrowed.
#[derive(Clone, Copy)]
pub struct Narrowed {
    /// Its number.
    tid: u32,
    /// The CPUs that it had.
    before: libc::cpu_set_t,
    /// When that was, in clock ticks since the machine began; not known of what a predecessor narrowed.
    since: Option<u64>,
}

/// Now, in clock ticks since the machine began.
fn ticks() -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time lives across the call; the other takes a number.
    let (done, a_second) = unsafe {
        (libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now), libc::sysconf(libc::_SC_CLK_TCK))
    };
    let a_second = u64::try_from(a_second).ok().filter(|ticks| done == 0 && *ticks > 0)?;
    Some(now.tv_sec as u64 * a_second + now.tv_nsec as u64 * a_second / 1_000_000_000)
}

/// Narrows a thread to `cpu`, once; `slot` remembers what it had, and `remembered` is called before it
/// is done. False where it is not the program's as far as can be told from here.
pub fn narrow(
    slot: &Mutex<Option<Narrowed>>,
    thread: Thread,
    cpu: usize,
    remembered: impl FnOnce(),
) -> bool {
    // One thread of a program: narrowing several would make them share a CPU.
    if slot.lock().is_some() {
        return true;
    }
    if !thread.is_the_programs() {
        return false;
    }
    if let Some(before) = get(thread.tid) {
        *slot.lock() = Some(Narrowed { tid: thread.tid, before, since: ticks() });
        remembered();
        set(thread.tid, &only(cpu));
    }
    true
}

/// What [`narrow`] remembers, for a record: thread, and a bit for each CPU that it had. Only the
/// first 256 CPUs.
pub fn to_words(Narrowed { tid, before: set, .. }: &Narrowed) -> (u32, Vec<u64>) {
    // SAFETY: CPU_ISSET reads the set only; the index is below CPU_SETSIZE.
    let bit = |cpu: usize| u64::from(unsafe { libc::CPU_ISSET(cpu, set) }) << (cpu % 64);
    let mut words: Vec<u64> =
        (0..4).map(|word| (word * 64..word * 64 + 64).map(bit).sum()).collect();
    while words.last() == Some(&0) {
        words.pop();
    }
    (*tid, words)
}

/// The inverse of [`to_words`].
pub fn from_words((tid, words): &(u32, Vec<u64>)) -> Narrowed {
    // SAFETY: a zeroed set is valid; the index is below CPU_SETSIZE.
    let before = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in (0..words.len().min(4) * 64).filter(|c| words[c / 64] >> (c % 64) & 1 != 0) {
            libc::CPU_SET(cpu, &mut set);
        }
        set
    };
    Narrowed { tid: *tid, before, since: None }
}

/// Gives the narrowed thread of program `pid` its affinity back, unless it was changed since, or the
/// thread is gone. Threads and processes that were begun by it meanwhile, and by these, have what it had then: they get
/// the same, by a thread that waits for an execve of theirs.
pub fn widen(slot: &Mutex<Option<Narrowed>>, pid: u32, cpu: usize) {
    /// Such threads that are there; of more that wait nobody needs to know.
    static BESIDE: AtomicUsize = AtomicUsize::new(0);
    const MOST_BESIDE: usize = 8;
    let Some(Narrowed { tid, before, since }) = slot.lock().take() else { return };
    if (Thread { pid, tid }).is_the_programs() && is_only(tid, cpu) {
        set(tid, &before);
    }
    let Some(since) = since else { return };
    if BESIDE.fetch_add(1, Ordering::Relaxed) < MOST_BESIDE {
        let work = move || {
            widen_descendants(pid, &before, since, cpu);
            BESIDE.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("widens".into()).spawn(work).is_ok() {
            return;
        }
    }
    BESIDE.fetch_sub(1, Ordering::Relaxed);
}

/// Whether it may use this CPU and no other.
fn is_only(tid: u32, cpu: usize) -> bool {
    let narrow = only(cpu);
    // SAFETY: both sets are initialised.
    get(tid).is_some_and(|now| unsafe { libc::CPU_EQUAL(&now, &narrow) })
}

/// Gives `before` to those threads of a program, and of its descendants, that may use `cpu` only and were begun since.
fn widen_descendants(pid: u32, before: &libc::cpu_set_t, since: u64, cpu: usize) {
    let is_younger = |stat: String| Stat::at(&stat).is_ok_and(|stat| stat.started >= since);
    let widen_thread = |process: u32, tid: u32| {
        if is_only(tid, cpu) && is_younger(format!("/proc/{process}/task/{tid}/stat")) {
            set(tid, before);
        }
    };
    // Whose parents have ended (who begins a daemon ends) descend from nobody here: they have the program's user, and
    // its environment.
    let socket = |pid| environment::agents_socket(pid).ok().flatten();
    if let (Some(user), Some(ours)) = (user_of(pid), socket(pid)) {
        let is_ours = |pid: &u32| {
            is_only(*pid, cpu)
                && is_younger(format!("/proc/{pid}/stat"))
                && is_all_of(*pid, user)
                && socket(*pid).as_ref() == Some(&ours)
        };
        for orphan in numbers_in("/proc").filter(is_ours) {
            let threads = numbers_in(&format!("/proc/{orphan}/task"));
            threads.for_each(|tid| widen_thread(orphan, tid));
        }
    }
    let (mut processes, mut looked_at) = (vec![pid], 0);
    while let Some(process) = processes.pop()
        && looked_at < MOST
    {
        for tid in numbers_in(&format!("/proc/{process}/task")) {
            looked_at += 1;
            let thread = format!("/proc/{process}/task/{tid}");
            widen_thread(process, tid);
            let children = std::fs::read_to_string(format!("{thread}/children"));
            let children = children.unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
            processes.extend(children.filter(|pid: &u32| is_younger(format!("/proc/{pid}/stat"))));
        }
    }
}

/// The entries of a directory that are numbers.
fn numbers_in(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Measures both placements with a userfaultfd of this process; `None` where it has none, or one
/// CPU only. Takes some 30 ms.
pub fn measure() -> Option<Measured> {
    let cpus = allowed_cpus();
    if cpus.len() < 2 {
        return None;
    }
    let same_cpu_ns = fault_round_trip(cpus[0], Some(cpus[0]))?;
    let free_ns = fault_round_trip(cpus[0], None)?;
    Some(Measured { same_cpu_ns, free_ns })
}

/// Median of faults with a little work in between; the handler is pinned.
fn fault_round_trip(handler_cpu: usize, toucher_cpu: Option<usize>) -> Option<u64> {
    const PAGES: usize = 200;
    const PAGE: usize = 4096;
    let uffd = Uffd::open_own().ok()?;
    uffd.api(FEATURES).ok()?;
    // SAFETY: a fresh mapping of our own; unmapped below, after both threads are done with it.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGES * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base = base as u64;
    uffd.register(base, (PAGES * PAGE) as u64).ok()?;
    let (mut times, is_free) = std::thread::scope(|scope| {
        let uffd = &uffd;
        let handler = Builder::new().spawn_scoped(scope, move || {
            pin(handler_cpu);
            let page = [7u8; PAGE];
            let mut served = 0;
            while served < PAGES {
                let mut poll = libc::pollfd {
                    fd: std::os::fd::AsRawFd::as_raw_fd(uffd),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one pollfd that lives across the call.
                if unsafe { libc::poll(&mut poll, 1, 1000) } == 0 {
                    // Nobody touches: there was no thread for it.
                    break;
                }
                let Ok(faults) = uffd.read_faults() else { break };
                let put = |addr: &u64| uffd.copy(*addr & !(PAGE as u64 - 1), &page).errno == 0;
                if !faults.iter().all(put) {
                    break;
                }
                served += faults.len();
            }
            // Also if something failed: nobody is to wait for ever. Still registered, the unmapping
            // would wait too, for somebody to read its event.
            uffd.unregister(base, (PAGES * PAGE) as u64).is_ok()
        });
        let touch = move || {
            if let Some(cpu) = toucher_cpu {
                pin(cpu);
            }
            let mut times = Vec::with_capacity(PAGES);
            for i in 0..PAGES {
                let start = Instant::now();
                // SAFETY: within the mapping; the handler fills the page.
                let value = unsafe { ((base as usize + i * PAGE) as *const u8).read_volatile() };
                times.push(start.elapsed().as_nanos() as u64);
                if value != 7 {
                    return Vec::new();
                }
                let until = Instant::now();
                while until.elapsed().as_micros() < 10 {
                    std::hint::spin_loop();
                }
            }
            times
        };
        // Nobody touches what nobody serves. A system that has no more threads measures nothing.
        let Ok(handler) = handler else {
            return (Vec::new(), uffd.unregister(base, (PAGES * PAGE) as u64).is_ok());
        };
        let toucher = Builder::new().spawn_scoped(scope, touch);
        let times = toucher.ok().and_then(|toucher| toucher.join().ok()).unwrap_or_default();
        (times, handler.join().unwrap_or_default())
    });
    if is_free {
        // SAFETY: both threads have ended.
        unsafe { libc::munmap(base as *mut libc::c_void, PAGES * PAGE) };
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};

    use clew_agent::protocol::ENV_SOCKET;

    use super::*;

    #[test]
    fn only_threads_of_the_program_are_narrowed() {
        let mut other =
            std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        // The test below has the first one, and threads that widen may still be at it when a test has ended.
        let cpu = *allowed_cpus().last().expect("a CPU");
        let words = |tid, before| to_words(&Narrowed { tid, before, since: None });
        let cpus = |tid: u32| get(tid).map(|set| words(tid, set));
        let before = cpus(other.id());
        let slot = Mutex::new(None);
        // As when a program in a namespace of its own names a thread by a number that is another's here.
        let stranger = Thread { pid: std::process::id(), tid: other.id() };
        assert!(!narrow(&slot, stranger, cpu, || panic!("nothing is remembered")));
        assert_eq!(cpus(other.id()), before);
        // It is a child of this process, and clock ticks are coarse: what began in the same one counts as begun since.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let thread = Thread { pid: other.id(), tid: other.id() };
        assert!(narrow(&slot, thread, cpu, || {}));
        assert_eq!(cpus(other.id()), Some(words(other.id(), only(cpu))));
        // As if it had ended and its number had passed to another program.
        let remembered = *slot.lock();
        widen(&slot, std::process::id(), cpu);
        assert_eq!(cpus(other.id()), Some(words(other.id(), only(cpu))));
        *slot.lock() = remembered;
        widen(&slot, other.id(), cpu);
        assert_eq!(cpus(other.id()), before);
        other.kill().expect("it was ours");
        other.wait().expect("it was ours");
    }

    /// What a narrowed thread begins has what it has then.
    #[test]
    fn what_was_begun_meanwhile_is_widened_too() {
        let [first, _, ..] = allowed_cpus()[..] else { return };
        let own = get(0).expect("our own");
        let slot = Mutex::new(None);
        let mut narrowed = std::process::Command::new("sh");
        // Each line of its input begins one more, or, as daemons are begun, one whose parent ends.
        let script = "while read how; do case $how in\n\
            one) sleep 60 & echo $!;; daemon) sh -c 'sleep 60 >&2 & echo $!';; esac; done; wait";
        narrowed.args(["-c", script]).env(ENV_SOCKET, "/nowhere");
        narrowed.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut shell = narrowed.spawn().expect("sh starts");
        let (mut to, from) =
            (shell.stdin.take().expect("piped"), shell.stdout.take().expect("piped"));
        let mut from = std::io::BufReader::new(from).lines();
        let mut begin = |how: &str| -> u32 {
            to.write_all(format!("{how}\n").as_bytes()).expect("it reads");
            from.next().expect("it says").expect("whom").parse().expect("a number")
        };
        let pinned_itself = begin("one");
        set(pinned_itself, &only(first));
        // Clock ticks are coarse.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let thread = Thread { pid: shell.id(), tid: shell.id() };
        assert!(narrow(&slot, thread, first, || {}));
        let (meanwhile, orphan) = (begin("one"), begin("daemon"));
        // Begun by somebody else meanwhile, and pinned by himself.
        let strangers = [Some("/nowhere/else"), None].map(|socket| {
            let mut sleep = std::process::Command::new("sleep");
            sleep.arg("60").env_remove(ENV_SOCKET).envs(socket.map(|path| (ENV_SOCKET, path)));
            let stranger = sleep.spawn().expect("sleep starts");
            set(stranger.id(), &only(first));
            stranger
        });
        assert!(is_only(meanwhile, first) && is_only(orphan, first));
        widen(&slot, shell.id(), first);
        let began = Instant::now();
        while (is_only(meanwhile, first) || is_only(orphan, first))
            && began.elapsed().as_secs() < 60
        {
            std::thread::yield_now();
        }
        // SAFETY: both sets are initialised.
        let has_own = |tid| get(tid).is_some_and(|set| unsafe { libc::CPU_EQUAL(&set, &own) });
        assert!(has_own(meanwhile) && has_own(orphan) && has_own(shell.id()));
        assert!(is_only(pinned_itself, first), "that was its own doing, and before");
        for mut stranger in strangers {
            assert!(is_only(stranger.id(), first), "it is nobody's business");
            stranger.kill().and_then(|()| stranger.wait()).expect("it was ours");
        }
        for pid in [pinned_itself, meanwhile, orphan] {
            // SAFETY: takes numbers; all were begun here, and sleep for a minute.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        drop(to);
        shell.wait().expect("it was ours");
    }
}

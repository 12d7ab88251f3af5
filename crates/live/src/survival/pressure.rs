//! What the daemon does lest it be the one that suffers when memory is short, and how it hears that
//! the machine stalls for want of it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use crossbeam_channel::Sender;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::message::Message;

const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// More than 150 ms of any second in which all tasks waited for memory.
const TRIGGER: &str = "full 150000 1000000";

/// Makes this process, and the keeper that it starts, nearly the last that the kernel ends.
pub fn protect_daemon() {
    let set = |score: i32| fs::write(OOM_SCORE_ADJ, score.to_string());
    if let Err(error) = set(-900) {
        tracing::debug!(%error, "the daemon is not protected from the out-of-memory killer");
        // Whoever started it may be offered before others, as the programs of many sessions are.
        let score =
            fs::read_to_string(OOM_SCORE_ADJ).ok().and_then(|text| text.trim().parse().ok());
        if score.is_some_and(|score: i32| score > 0) {
            let _ = set(0);
        }
    }
}

/// Takes as many descriptors as this process may have, but not more than there are slots in the
/// journal. Each address space that is followed has a descriptor: so descriptors run out first, and
/// then the kernel keeps what it has to tell of a fork, and the fork waits. A child for which there
/// is no slot would be lost.
pub fn limit_descriptors(slots: u64) {
    raise_to(Resource::Nofile, Some(slots));
}

/// Has its files grow as far as they may. Memory that it shares counts as files.
pub fn limit_files() {
    raise_to(Resource::Fsize, None);
}

/// Has this process run for as long as it may. What programs wait for takes time for all of them, so a limit that
/// was meant for one would end it, and they would wait for ever.
pub fn limit_time() {
    let all = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Cpu, all).is_err() {
        raise_to(Resource::Cpu, None);
    }
}

/// Seconds of a CPU after which the kernel ends this process; `None` where nothing limits them.
pub fn most_seconds() -> Option<u64> {
    getrlimit(Resource::Cpu).maximum
}

/// Takes as much of it as this process may have, but not more than `most`.
fn raise_to(resource: Resource, most: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    let current = [maximum, most].into_iter().flatten().min();
    if let Err(error) = setrlimit(resource, Rlimit { current, maximum }) {
        tracing::debug!(%error, ?resource, "the limit stays what it is");
    }
}

/// How long files of this process may become, bytes; `None` where nothing limits them.
pub fn longest_file() -> Option<u64> {
    getrlimit(Resource::Fsize).maximum
}

/// Bytes of address space that this process may have; `None` where nothing limits them.
pub fn most_address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Descriptors that this process may have open at most; `None` where nothing limits them.
pub fn most_descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Whether who has just been given `descriptor`, the lowest that was free, may be given more: the last
/// quarter is for children that programs fork, which need one each, and for clients.
pub fn has_descriptors_for_others(descriptor: &impl AsRawFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current;
    limit.is_none_or(|limit| (descriptor.as_raw_fd() as u64) < limit / 4 * 3)
}

/// Whether at least `wanted` descriptors more can be opened: a daemon that cannot accept anybody
/// must not take over, for nobody could reach it, not even to end it.
pub fn spare_descriptors(wanted: usize) -> io::Result<()> {
    let null = OwnedFd::from(File::open("/dev/null")?);
    (1..wanted).map(|_| null.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Bytes of the reserve for what the daemon allocates while it frees memory: many times what the policy
/// thread and the workers need for the batches that are under way.
#[cfg(target_env = "gnu")]
const RESERVE: usize = 4 << 20;

/// Gets memory for the allocator now, and has it kept: what is allocated while memory is short comes
/// from there, and what is freed goes back there. To be called before there are threads, and before
/// [`lock_memory`].
pub fn reserve_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 16 << 20);
        libc::mallopt(libc::M_TOP_PAD, RESERVE as i32);
    }
    #[cfg(target_env = "gnu")]
    // Touched, and given back to the allocator.
    drop(std::hint::black_box(vec![1u8; RESERVE]));
}

/// Keeps what the daemon touches from being paged out: programs wait for it. To be called once the
/// segments are mapped: whoever may not lock that much is refused here, and not at the next mapping.
pub fn lock_memory() {
    // ONFAULT: the segments are far larger than what they hold.
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: takes flags only.
    if unsafe { libc::mlockall(flags) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "the daemon's memory can be paged out");
    }
}

/// Tells the governor whenever the machine stalls (PSI), for ever; returns where the kernel does
/// not tell.
pub fn watch_stalls(governor: &Sender<Message>) {
    let opened = File::options().read(true).write(true).open("/proc/pressure/memory");
    let armed = opened.and_then(|mut file| file.write_all(TRIGGER.as_bytes()).map(|()| file));
    let file = match armed {
        Ok(file) => file,
        Err(error) => return tracing::debug!(%error, "no pressure stall information"),
    };
    loop {
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        let ready = unsafe { libc::poll(&mut poll, 1, -1) };
        if poll.revents & libc::POLLERR != 0 {
            return;
        }
        if ready > 0 && governor.send(Message::Stalled).is_err() {
            return;
        }
    }
}

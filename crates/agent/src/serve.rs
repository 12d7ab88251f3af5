//! The agent's life: connect, shut itself in, say hello, prepare when asked, obey, notice the program's
//! end.
//!
//! Invariant: between `Take` and `Release` the pages taken are in staging, so that they can be
//! found there whoever dies. Staging is registered on the program's own userfaultfd: the kernel
//! then refuses to move pages while an unread event says that mappings are changing.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::home::{Home, STAGING_BYTES};
use crate::kept::{BEACON, MAY_BE_REGISTERED, State, read_beacon, tell_started};
use crate::protocol::{
    CALL_AT, Call, Header, Hello, Kind, MAGIC, Order, Ready, Run, SLOTS, SlotState, Taken,
    call_word,
};
use crate::shut_in;
use crate::sys::{Timespec, close, errno, exit, nr, syscall4, syscall6};
use crate::users::is_trusted;

const PAGE: usize = 4096;

const AF_UNIX: usize = 1;
const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
const O_CLOEXEC_NONBLOCK: usize = 0o2000000 | 0o4000;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;
const WRITEPROTECT_MODE_WP: u64 = 1;
const USERFAULTFD_IOC_NEW: usize = 0xaa00;
const MADV_DONTNEED: usize = 4;
const MADV_REMOVE: usize = 9;
const MADV_WIPEONFORK: usize = 18;
const MADV_POPULATE_WRITE: usize = 23;
const PR_SET_NAME: usize = 15;
pub(crate) const POLLIN: i16 = 1;
/// How often an advice that the kernel does not take now is given again.
const MADVISE_TRIES: u32 = 16;
/// How often the agent asks, unprompted, whether the memory is still the program's.
const CHECK_SECONDS: i64 = 30;
const SOCK_NONBLOCK: usize = 0o4000;
/// How long it is waited for room among those who wait to be accepted.
const CONNECT_SECONDS: i64 = 1;
/// How long a forked child is left alone: most are gone by then, or somebody else by execve.
const CHILDHOOD_NANOSECONDS: i64 = 100_000_000;

#[repr(C)]
pub(crate) struct Pollfd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

#[repr(C)]
struct Iovec {
    base: usize,
    len: usize,
}

#[repr(C)]
struct Msghdr {
    name: usize,
    name_len: u32,
    iov: *const Iovec,
    iov_len: usize,
    control: usize,
    control_len: usize,
    flags: i32,
}

/// SCM_RIGHTS with up to two descriptors.
#[repr(C, align(8))]
struct Rights {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; 2],
}

#[repr(C)]
struct UffdioMove {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

#[repr(C)]
struct UffdioWriteprotect {
    start: u64,
    len: u64,
    mode: u64,
}

/// What it takes to give pages away; exists once the daemon has asked.
struct Prepared {
    uffd: i32,
    staging: usize,
    buffer: usize,
}

/// Where the agent begins.
///
/// # Safety
/// Called once, on a stack of its own, with the address of a [`State`] nobody else uses.
pub unsafe extern "C" fn run(area: usize) -> ! {
    // SAFETY: as the caller says.
    let state = unsafe { &*(area as *const State) };
    leave_the_program(state);
    // Later it can neither connect nor be what the program was: a program that gives up its privileges,
    // or shuts itself in, could else use those of an agent whose memory it can write.
    let Some(socket) = connect_now(&state.path) else { exit(1) };
    if shut_in::give_up_privileges() < 0 {
        exit(1);
    }
    tell_started(area);
    let program = state.program_fd;
    if state.forked {
        outlive_childhood(state, program);
    }
    // In a child the page is missing, on a userfaultfd that the daemon has had since the fork: it
    // answers with what tells this child from the others. Only with a daemon there.
    let beacon = if state.forked { read_beacon() } else { [0; 2] };
    let header = Header::new(Kind::Hello, crate::protocol::VERSION, 0);
    let mut hello = Hello { header, name: state.name, beacon };
    hello.header.detail = state.name_len as u32;
    // The daemon goes by the descriptor, and asks the kernel for everything else about the program.
    if send(socket, &hello, size_of::<Hello>(), Some(program)) < 0 {
        exit(1);
    }
    let mut prepared: Option<Prepared> = None;
    let mut daemon = socket;
    let mut pipe = state.alive_fd;
    loop {
        let mut fds = [daemon, pipe, program].map(|fd| Pollfd { fd, events: POLLIN, revents: 0 });
        let wait = Timespec { seconds: CHECK_SECONDS, nanoseconds: 0 };
        // SAFETY: both live across the call.
        let ready = unsafe {
            syscall6(nr::PPOLL, fds.as_mut_ptr() as usize, 3, &raw const wait as usize, 0, 8, 0)
        };
        if fds[2].revents != 0 {
            exit(0);
        }
        if ready < 0 && ![-errno::EINTR, -errno::ENOMEM].contains(&ready) {
            // A filter that it has inherited does not let it wait.
            exit(1);
        }
        if ready <= 0 || fds[1].revents != 0 {
            if !still_the_programs_memory(state.program) {
                exit(0);
            }
            if fds[1].revents != 0 {
                // The program closed all its descriptors; from now on only its pidfd tells.
                close(pipe);
                pipe = -1;
            }
        }
        if fds[0].revents != 0 && !obey(daemon, area, &mut prepared) {
            // The daemon is gone. Staying keeps a descriptor of the userfaultfd open, so that
            // missing pages wait for a successor and are never read as zeros.
            close(daemon);
            daemon = -1;
            if prepared.is_none() {
                exit(0);
            }
        }
    }
}

/// Waits whether the program stays; ends with it.
fn outlive_childhood(state: &State, program: i32) {
    let mut fds = [state.alive_fd, program].map(|fd| Pollfd { fd, events: POLLIN, revents: 0 });
    let wait = Timespec { seconds: 0, nanoseconds: CHILDHOOD_NANOSECONDS };
    // SAFETY: both live across the call.
    unsafe {
        syscall6(nr::PPOLL, fds.as_mut_ptr() as usize, 2, &raw const wait as usize, 0, 8, 0);
    }
    let is_over = fds[0].revents != 0 && !still_the_programs_memory(state.program);
    if fds[1].revents != 0 || is_over {
        exit(0);
    }
}

/// Becomes a process of its own, with no descriptors but two.
fn leave_the_program(state: &State) {
    let (alive, program) = (state.alive_fd as usize, state.program_fd as usize);
    let (low, high) = (alive.min(program), alive.max(program));
    // SAFETY: no pointers but constant strings; the descriptor table is a copy, so closing
    // descriptors does not concern the program.
    unsafe {
        syscall4(nr::SETSID, 0, 0, 0, 0);
        syscall4(nr::CHDIR, c"/".as_ptr() as usize, 0, 0, 0);
        syscall4(nr::PRCTL, PR_SET_NAME, c"clew-agent".as_ptr() as usize, 0, 0);
        for (first, end) in [(0, low), (low + 1, high), (high + 1, 1 << 32)] {
            if first < end {
                syscall4(nr::CLOSE_RANGE, first, end - 1, 0, 0);
            }
        }
    }
}

/// Whether the program, which its descriptor says has not ended, still runs in the memory that the
/// agent shares. When nobody can tell (the program has other credentials now), the daemon will.
fn still_the_programs_memory(program: i32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: takes no pointers.
    unsafe {
        let me = syscall4(nr::GETPID, 0, 0, 0, 0) as usize;
        syscall6(nr::KCMP, me, program as usize, KCMP_VM, 0, 0, 0) <= 0
    }
}

/// Connects to the daemon, or gives up soon: the program waits.
///
/// Who is in the queue of those who wait for room gets in, however many try again and again without.
fn connect_now(path: &[u8; 108]) -> Option<i32> {
    let socket = connect(path, Patience::Seconds(CONNECT_SECONDS)).ok()?;
    // What is sent later may wait.
    set_patience(socket, 0);
    Some(socket)
}

fn set_patience(socket: i32, seconds: i64) {
    const SO_SNDTIMEO: usize = 21;
    set_option(socket, SO_SNDTIMEO, &[seconds, 0]);
}

/// Whether who is at the other end may send descriptors from now on (Linux 6.16; before, he may).
fn takes_descriptors(socket: i32, takes: bool) {
    const SO_PASSRIGHTS: usize = 83;
    set_option(socket, SO_PASSRIGHTS, &i32::from(takes));
}

fn set_option<T>(socket: i32, option: usize, value: &T) {
    const SOL_SOCKET: usize = 1;
    let (at, len) = (core::ptr::from_ref(value) as usize, size_of::<T>());
    // SAFETY: `value` outlives the call.
    unsafe { syscall6(nr::SETSOCKOPT, socket as usize, SOL_SOCKET, option, at, len, 0) };
}

/// How long it may take to connect.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// Nor does anything wait that is sent or received later.
    None,
    Seconds(i64),
}

/// Connects to the daemon. On failure the errno, 0 if who listens is not trusted.
pub(crate) fn connect(path: &[u8; 108], patience: Patience) -> Result<i32, isize> {
    #[repr(C)]
    struct SockaddrUn {
        family: u16,
        path: [u8; 108],
    }
    let address = SockaddrUn { family: AF_UNIX as u16, path: *path };
    let len = 2 + path.iter().position(|b| *b == 0).ok_or(0isize)? + 1;
    let flags = if matches!(patience, Patience::None) { SOCK_NONBLOCK } else { 0 };
    // SAFETY: `address` outlives the call.
    unsafe {
        let fd = syscall4(nr::SOCKET, AF_UNIX, SOCK_SEQPACKET_CLOEXEC | flags, 0, 0);
        if fd < 0 {
            return Err(-fd);
        }
        let fd = fd as i32;
        if let Patience::Seconds(seconds) = patience {
            set_patience(fd, seconds);
        }
        // What a stranger has queued would be closed with the socket, and that may take long.
        takes_descriptors(fd, false);
        let done = syscall4(nr::CONNECT, fd as usize, &raw const address as usize, len, 0);
        if done == 0 && is_trusted(fd) {
            takes_descriptors(fd, true);
            return Ok(fd);
        }
        close(fd);
        Err(-done)
    }
}

pub(crate) fn send<T>(socket: i32, message: &T, len: usize, fd: Option<i32>) -> isize {
    let iov = Iovec { base: core::ptr::from_ref(message) as usize, len };
    let rights = Rights { len: 20, level: 1, kind: 1, fds: [fd.unwrap_or(-1), -1] };
    let msg = Msghdr {
        name: 0,
        name_len: 0,
        iov: &iov,
        iov_len: 1,
        control: if fd.is_some() { &raw const rights as usize } else { 0 },
        control_len: if fd.is_some() { 24 } else { 0 },
        flags: 0,
    };
    const MSG_NOSIGNAL: usize = 0x4000;
    loop {
        // SAFETY: everything `msg` points to lives across the call.
        let n = unsafe {
            syscall4(nr::SENDMSG, socket as usize, &raw const msg as usize, MSG_NOSIGNAL, 0)
        };
        // No memory at the moment: not for long, and whoever gave up here would leave its program.
        if ![-errno::EINTR, -errno::ENOBUFS, -errno::ENOMEM].contains(&n) {
            return n;
        }
    }
}

/// Receives one message; the number of bytes, and the descriptors that came along.
fn receive(socket: i32, order: &mut Order) -> (isize, [i32; 2]) {
    let iov = Iovec { base: core::ptr::from_mut(order) as usize, len: size_of::<Order>() };
    let mut rights = Rights { len: 0, level: 0, kind: 0, fds: [-1, -1] };
    let mut msg = Msghdr {
        name: 0,
        name_len: 0,
        iov: &iov,
        iov_len: 1,
        control: &raw mut rights as usize,
        control_len: size_of::<Rights>(),
        flags: 0,
    };
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    // SAFETY: everything `msg` points to lives across the call and may be written.
    let n = unsafe {
        syscall4(nr::RECVMSG, socket as usize, &raw mut msg as usize, MSG_CMSG_CLOEXEC, 0)
    };
    let count = if msg.control_len >= 16 { rights.len.saturating_sub(16) / 4 } else { 0 };
    let mut fds = [-1, -1];
    fds[..count.min(2)].copy_from_slice(&rights.fds[..count.min(2)]);
    (n, fds)
}

/// Obeys one order. False when the daemon is gone.
fn obey(socket: i32, area: usize, prepared: &mut Option<Prepared>) -> bool {
    // SAFETY: an Order of zeros is valid.
    let mut order: Order = unsafe { core::mem::zeroed() };
    let (n, fds) = receive(socket, &mut order);
    if n == -errno::EINTR || n == -errno::EAGAIN || n == -errno::ENOMEM {
        return true;
    }
    if n < size_of::<Header>() as isize || order.header.magic != MAGIC {
        return false;
    }
    let body = (n as usize - size_of::<Header>()) / size_of::<Run>();
    let runs = &order.runs[..(order.header.value as usize).min(body)];
    let number = order.header.detail;
    let sent = match (Kind::from_u32(order.header.kind), prepared.as_ref()) {
        (Some(Kind::Detach), _) => {
            MAY_BE_REGISTERED.store(false, Release);
            exit(0)
        }
        (Some(Kind::Manage), None) => match prepare(Home::of(area), fds, order.header.value == 1) {
            Ok((p, is_new)) => {
                let ready = Ready {
                    header: Header::new(Kind::Ready, 0, number),
                    staging: p.staging as u64,
                    area: area as u64,
                    beacon: BEACON.load(Relaxed) as u64,
                };
                let sent = send(socket, &ready, size_of::<Ready>(), is_new.then_some(p.uffd));
                *prepared = Some(p);
                sent
            }
            Err((step, error)) => {
                send(socket, &Header::new(Kind::Refused, error as u32, step), 16, None)
            }
        },
        (Some(Kind::Take), Some(p)) => {
            let header = Header::new(Kind::Taken, 0, number);
            let mut taken = Taken { header, slots: [0; SLOTS] };
            if begin(p, number) {
                take(p, runs, &mut taken.slots);
                mark(p, runs, &taken.slots);
                call(p).store(call_word(number, Call::Moved), Release);
            }
            // The program may change its mappings from here on: the copies need not be waited for.
            let sent = send(socket, &taken, size_of::<Taken>(), None);
            match copy(p, &taken.slots) {
                true if sent >= 0 => {
                    send(socket, &Header::new(Kind::Copied, 0, number), size_of::<Header>(), None)
                }
                _ => sent,
            }
        }
        (Some(Kind::Release), Some(p)) => {
            let error = match (order.header.value as usize).min(SLOTS) * PAGE {
                0 => {
                    // If it cannot, its memory stays.
                    advise(p.buffer, CALL_AT, MADV_REMOVE);
                    0
                }
                bytes => advise(p.staging, bytes, MADV_DONTNEED),
            };
            send(socket, &Header::new(Kind::Done, error, number), 16, None)
        }
        (Some(Kind::Unshare), Some(p)) => {
            // No batch is under way. What is in staging all the same (the program has locked all its
            // memory for a while, or somebody has walked it) would stand in the way of each move.
            let mut error = 0;
            if begin(p, number) {
                error = advise(p.staging, STAGING_BYTES, MADV_DONTNEED);
                for run in runs {
                    let bytes = (run.pages as usize).min(SLOTS) * PAGE;
                    error |= advise(run.src as usize, bytes, MADV_POPULATE_WRITE);
                }
            }
            send(socket, &Header::new(Kind::Done, error, number), 16, None)
        }
        (Some(Kind::Sync), Some(_)) => send(socket, &Header::new(Kind::Done, 0, number), 16, None),
        _ => send(socket, &Header::new(Kind::Refused, errno::EPROTO as u32, 0), 16, None),
    };
    sent >= 0
}

/// Begins an order, unless the daemon has called it off.
fn begin(prepared: &Prepared, number: u32) -> bool {
    let (pending, begun) = (call_word(number, Call::Pending), call_word(number, Call::Begun));
    call(prepared).compare_exchange(pending, begun, AcqRel, Acquire).is_ok()
}

fn call(prepared: &Prepared) -> &AtomicU64 {
    // SAFETY: the buffer is mapped as long as the agent lives, and the word is aligned.
    unsafe { &*((prepared.buffer + CALL_AT) as *const AtomicU64) }
}

fn advise(address: usize, bytes: usize, advice: usize) -> u32 {
    let mut tries = 0;
    loop {
        // SAFETY: DONTNEED is only ever asked for staging; POPULATE_WRITE changes no contents.
        let result = unsafe { syscall4(nr::MADVISE, address, bytes, advice, 0) };
        // Not now, says the kernel; it has no memory, perhaps.
        let passes = [-errno::EAGAIN, -errno::EINTR, -errno::ENOMEM].contains(&result);
        tries += 1;
        if !passes || tries == MADVISE_TRIES {
            return result.unsigned_abs() as u32;
        }
    }
}

/// Gets a userfaultfd for this memory, the buffer and the staging area; then gives up what it took to
/// do that. On failure: the step and the errno. True if the userfaultfd was opened here: a forked
/// child's is `given`.
fn prepare(home: Home, fds: [i32; 2], given: bool) -> Result<(Prepared, bool), (u32, isize)> {
    let [buffer_fd, device] = fds;
    let check = |step, result: isize| if result < 0 { Err((step, -result)) } else { Ok(result) };
    // SAFETY: the place is there, and used by no agent before this one; ioctl IOC_NEW takes flags, no pointer.
    unsafe {
        let uffd = if given {
            device as isize
        } else if device >= 0 {
            syscall4(nr::IOCTL, device as usize, USERFAULTFD_IOC_NEW, O_CLOEXEC_NONBLOCK, 0)
        } else {
            syscall4(nr::USERFAULTFD, O_CLOEXEC_NONBLOCK, 0, 0, 0)
        };
        let uffd = check(1, uffd)? as i32;
        let buffer = check(2, home.map_buffer(buffer_fd as usize))? as usize;
        // Aligned to a huge page, so that a huge page of the program moves as one.
        let staging = check(3, home.open_staging())? as usize;
        if BEACON.load(Relaxed) == 0 {
            // Missing in every child and grandchild, whatever becomes of it here.
            let beacon = check(4, home.open_beacon())? as usize;
            check(4, syscall4(nr::MADVISE, beacon, PAGE, MADV_WIPEONFORK, 0))?;
            BEACON.store(beacon, Relaxed);
        }
        MAY_BE_REGISTERED.store(true, Release);
        close(buffer_fd);
        if !given {
            close(device);
        }
        check(5, shut_in::allow_orders_only())?;
        Ok((Prepared { uffd, staging, buffer }, !given))
    }
}

/// Moves the runs into staging.
fn take(prepared: &Prepared, runs: &[Run], slots: &mut [u8; SLOTS]) {
    for (i, run) in runs.iter().enumerate() {
        let (first, pages) = (run.slot as usize, run.pages as usize);
        if first > SLOTS || pages > SLOTS - first {
            continue;
        }
        if !move_run(prepared, run, &mut slots[first..first + pages]) {
            for later in &runs[i..] {
                let (first, pages) = (later.slot as usize, later.pages as usize);
                if let Some(rest) = slots.get_mut(first..first.saturating_add(pages)) {
                    for slot in rest.iter_mut().filter(|s| **s == SlotState::Unused as u8) {
                        *slot = SlotState::Skipped as u8;
                    }
                }
            }
            break;
        }
    }
}

/// Copies what moved into the buffer; false if nothing did.
fn copy(prepared: &Prepared, slots: &[u8; SLOTS]) -> bool {
    let mut any = false;
    for_taken(slots, |at, count| {
        any = true;
        // SAFETY: both areas hold SLOTS pages; these staging pages are there (in memory or in
        // the kernel's swap), since it has just moved them, and nobody else touches them.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (prepared.staging + at * PAGE) as *const u8,
                (prepared.buffer + at * PAGE) as *mut u8,
                count * PAGE,
            );
        }
    });
    any
}

/// Leaves a mark where each page was, which goes when its mapping goes: by it the daemon knows an unmapping that the
/// kernel told it of from one that failed. Where the kernel leaves none now, because mappings are changing, there is none.
fn mark(prepared: &Prepared, runs: &[Run], slots: &[u8; SLOTS]) {
    for run in runs {
        let first = run.slot as usize;
        let Some(of_run) = slots.get(first..first.saturating_add(run.pages as usize)) else {
            continue;
        };
        for_taken(of_run, |at, count| {
            let order = UffdioWriteprotect {
                start: run.src + (at * PAGE) as u64,
                len: (count * PAGE) as u64,
                mode: WRITEPROTECT_MODE_WP,
            };
            // SAFETY: `order` lives across the call; it changes no contents.
            unsafe {
                let order = &raw const order as usize;
                syscall4(nr::IOCTL, prepared.uffd as usize, UFFDIO_WRITEPROTECT, order, 0)
            };
        });
    }
}

/// Runs of slots that hold a page: where each begins, and how many there are.
fn for_taken(slots: &[u8], mut found: impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < slots.len() {
        let taken = |s: &u8| *s == SlotState::Taken as u8;
        let count = slots[at..].iter().take_while(|s| taken(s)).count();
        if count > 0 {
            found(at, count);
        }
        at += count.max(1);
    }
}

/// False when the program is changing its mappings and nothing more can be taken now.
fn move_run(prepared: &Prepared, run: &Run, slots: &mut [u8]) -> bool {
    let mut at = 0;
    let mut tries = 0;
    let mut most = slots.len();
    while at < slots.len() {
        let pages = most.min(slots.len() - at);
        let mut order = UffdioMove {
            dst: (prepared.staging + (run.slot as usize + at) * PAGE) as u64,
            src: run.src + (at * PAGE) as u64,
            len: (pages * PAGE) as u64,
            mode: 0,
            moved: 0,
        };
        // SAFETY: `order` lives across the call; its destination is our own staging area.
        let result = unsafe {
            syscall4(nr::IOCTL, prepared.uffd as usize, UFFDIO_MOVE, &raw mut order as usize, 0)
        };
        if order.moved > 0 {
            let pages = (order.moved as usize / PAGE).min(slots.len() - at);
            slots[at..at + pages].fill(SlotState::Taken as u8);
            at += pages;
            tries = 0;
            most = most.saturating_mul(2);
            continue;
        }
        let state = match -result {
            errno::EAGAIN if tries < 3 => {
                tries += 1;
                continue;
            }
            errno::EAGAIN => return false,
            errno::ENOENT => SlotState::Hole,
            // EEXIST: something touched the staging slot; the page stays where it is.
            errno::EBUSY | errno::EEXIST => SlotState::Busy,
            // The run may cross from one mapping into another: find out where.
            _ if pages > 1 => {
                most = pages / 2;
                continue;
            }
            _ => SlotState::Refused,
        };
        slots[at] = state as u8;
        at += 1;
        tries = 0;
    }
    true
}

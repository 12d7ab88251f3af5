//! The fault threads: one a CPU, each serving its share of the programs.
//!
//! They answer from the page table and post what happened; they ask no policy and wait for no other
//! process. Events are read and applied under the space's lock held for writing, and before the
//! faults that came with them: what the program gave up must not come back.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clew_core::{Event, SpaceId, Vpn};
use clew_engine::{Answered, Fault, Memory, MoverContext};
use clew_store::Entry;

use crate::faults::account::{Cause, Spent, Stopwatch};
use crate::faults::affinity::{self, Placement, Thread};
use crate::faults::aside::Aside;
use crate::faults::events;
use crate::faults::interrupter::Interrupter;
use crate::faults::populating::is_left_to_the_kernel;
use crate::faults::room::{FOR_BUDGET, FOR_GROUP, WaitForRoom};
use crate::faults::unwatched::Unwatched;
use crate::programs::process::Process;
use crate::programs::shared::Shared;
use crate::users::FEW_IN;

/// Token of the descriptor that ends a fault thread.
pub const STOP_TOKEN: u64 = u64::MAX;

/// How long a thread rests that was told of a message which it could not read: it is told again at once.
const UNREADABLE: Duration = Duration::from_millis(1);

/// Serves faults on the CPU of `handler` until its stop descriptor becomes readable.
pub fn run(shared: &Shared, handler: usize) {
    affinity::pin(shared.handler_cpus[handler]);
    affinity::come_first(true);
    let mut ctx = MoverContext::default();
    let mut interrupter = Interrupter::default();
    let (mut faults, mut told) = (Vec::with_capacity(32), Vec::new());
    let (mut room, mut aside) = (WaitForRoom::default(), Aside::default());
    let mut unwatched = Unwatched::default();
    loop {
        unwatched.look(shared, handler);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let most = [room.remaining(), aside.remaining()].into_iter().flatten().min();
        let epoll = shared.epolls[handler].as_raw_fd();
        let said = unwatched.wait(epoll, most);
        let most = if said.is_some() { Some(Duration::ZERO) } else { most };
        let n = wait(epoll, &mut events, most);
        let mut watch = Stopwatch::since(Instant::now());
        let waited = room.end_due() as u64;
        shared.room_waits.fetch_add(waited, Ordering::Relaxed);
        aside.look_again();
        let mut rests = false;
        let events = &events[..n.max(0) as usize];
        if events.iter().any(|event| event.u64 == STOP_TOKEN) {
            room.end();
            return;
        }
        let watched = events.iter().filter_map(|event| {
            let process = shared.process(SpaceId(event.u64 as u32))?;
            Some((process, event.events & libc::EPOLLERR as u32 != 0))
        });
        for (process, is_error) in watched.chain(said.unwrap_or_default()) {
            if is_error {
                // Its agent has made it wait.
                process.memory.uffd.set_nonblocking();
            }
            // Its faults wait for those of the programs before it.
            watch.to(Cause::Queue);
            let mut round = Round { watch: &mut watch, room: &mut room, aside: &mut aside };
            serve(shared, &process, &mut round, &mut ctx, &mut interrupter, &mut faults, &mut told);
            rests |= process.unreadable.is_so();
        }
        if rests {
            std::thread::sleep(UNREADABLE);
        }
    }
}

/// Waits for messages, at most so long; how many descriptors have some.
fn wait(epoll: RawFd, events: &mut [libc::epoll_event; 32], most: Option<Duration>) -> i32 {
    let timeout = most.map(|most| libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(most.subsec_nanos() as i32),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: array and time live across the call, and the array is as long as stated.
    unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll,
            events.as_mut_ptr(),
            events.len(),
            timeout,
            std::ptr::null::<libc::sigset_t>(),
            size_of::<libc::c_ulong>(),
        ) as i32
    }
}

/// What the programs of one round share.
struct Round<'a> {
    watch: &'a mut Stopwatch,
    room: &'a mut WaitForRoom,
    aside: &'a mut Aside,
}

fn serve(
    shared: &Shared,
    process: &Arc<Process>,
    round: &mut Round<'_>,
    ctx: &mut MoverContext,
    interrupter: &mut Interrupter,
    faults: &mut Vec<(u64, u32)>,
    told: &mut Vec<Event>,
) {
    faults.clear();
    let patience = || round.aside.patience(process.id);
    let Some(guard) = process.space.table.lock.write_for_a_fault(patience) else {
        process.held_since.lock().get_or_insert(round.watch.last());
        round.aside.lay(process);
        return;
    };
    round.aside.got(process.id);
    if !process.memory.claim_events() {
        drop(guard);
        process.held_since.lock().get_or_insert(round.watch.last());
        process.memory.look_away();
        return;
    }
    let mut watch = *round.watch;
    if let Some(since) = process.held_since.lock().take() {
        watch.spent.add(Cause::Held, watch.last().saturating_duration_since(since));
    }
    watch.to(Cause::Lock);
    events::read_and_apply(shared, process, interrupter, faults);
    watch.to(Cause::Events);
    if process.memory.is_given_up() {
        refuse(shared, process, faults);
        return;
    }
    if process.may_lack() {
        // What is known may be its parent's. It does something to its memory; then it asks again.
        let page = |addr| Vpn::of_addr(addr, shared.page_bytes);
        faults.iter().for_each(|(addr, _)| process.memory.wake(page(*addr), 1));
        return;
    }
    let guard = guard.downgrade();
    let narrow =
        shared.placement == Placement::Narrow && process.relaunching.load(Ordering::Relaxed);
    for (addr, tid) in faults.iter().copied() {
        let vpn = Vpn::of_addr(addr, shared.page_bytes);
        if vpn == Vpn::of_addr(process.beacon, shared.page_bytes) {
            tell_who_it_is(shared, process, vpn);
            continue;
        }
        if process.memory.staging().contains(&addr) {
            // Nobody but the agent has business there, and the agent reads only what it moved:
            // somebody walks the program's whole memory. Zeros are what an empty page holds.
            if process.memory.put_zero(vpn, 1).pages == 0 {
                // A page of the program has come there meanwhile: only a put would have woken who asks.
                process.memory.wake(vpn, 1);
            }
            continue;
        }
        if narrow {
            let thread = Thread { pid: process.pid(), tid };
            let cpu = shared.handler_cpus[process.handler];
            let slot = &process.narrowed;
            if !affinity::narrow(slot, thread, cpu, || process.save_record(shared.column())) {
                process.relaunching.store(false, Ordering::Relaxed);
            }
        }
        if let Some(wait) = wait_for_room(shared, process, vpn)
            && round.room.add(process, vpn, wait)
        {
            continue;
        }
        watch.to(Cause::Queue);
        answer(shared, process, (vpn, tid), &watch, round.room, ctx, told);
    }
    drop(guard);
}

/// How long this fault is to wait before it is asked for again.
fn wait_for_room(shared: &Shared, process: &Process, vpn: Vpn) -> Option<Duration> {
    let user = process.of_user();
    let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    if is_set(&user.holds_others_up) {
        return (!user.may_have_one(Instant::now())).then_some(FEW_IN);
    }
    let is_over = is_set(&shared.over_budget) || is_set(&user.is_over_budget);
    let is_fresh = || process.space.table.load(vpn) == Entry::ABSENT;
    (is_over && is_fresh() && !WaitForRoom::lets_through(process)).then_some(FOR_BUDGET)
}

/// A forked child is not served, and nobody knows yet which process it is: its agent may say, which ends it,
/// and whoever needs a page gets SIGBUS.
fn refuse(shared: &Shared, process: &Process, faults: &[(u64, u32)]) {
    let beacon = Vpn::of_addr(process.beacon, shared.page_bytes);
    for vpn in faults.iter().map(|(addr, _)| Vpn::of_addr(*addr, shared.page_bytes)) {
        match vpn == beacon {
            true => tell_who_it_is(shared, process, vpn),
            false => process.memory.refuse(vpn),
        }
    }
}

/// The agent of a forked child asks which one that is.
fn tell_who_it_is(shared: &Shared, process: &Process, beacon: Vpn) {
    let mut page = vec![0u8; shared.page_bytes as usize];
    for (to, word) in page.chunks_exact_mut(8).zip(process.beacon_says()) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    if !process.memory.put_beacon(beacon, &page) {
        process.memory.wake(beacon, 1);
    }
}

fn answer(
    shared: &Shared,
    process: &Arc<Process>,
    (vpn, thread): (Vpn, u32),
    before: &Stopwatch,
    room: &mut WaitForRoom,
    ctx: &mut MoverContext,
    told: &mut Vec<Event>,
) {
    let latency = &shared.latencies[process.handler];
    process.faults.fetch_add(1, Ordering::Relaxed);
    let fault = shared.mover.fault(&process.space, vpn, ctx, told);
    let user = process.of_user();
    if user.holds_others_up.load(Ordering::Relaxed) {
        user.has_had(told.len().max(1));
    }
    tell(shared, process, told);
    match fault {
        Fault::Restored => {
            // What came along came when the program ran again: nobody waited for that.
            let Some(Answered { at, codec_ns }) = ctx.answered else { return };
            let (own, along) = (at.saturating_duration_since(before.last()), at.elapsed());
            let codec = Duration::from_nanos(codec_ns);
            let mut spent: Spent = before.spent;
            spent.add(Cause::Codec, codec);
            spent.add(Cause::Put, own.saturating_sub(codec));
            latency.stored.record(spent.total());
            latency.account.enter(&spent);
            let ns = |time: Duration| time.as_nanos() as u64;
            process.fault_codec_ns.fetch_add(codec_ns, Ordering::Relaxed);
            process.fault_ns.fetch_add(ns(spent.total()), Ordering::Relaxed);
            process.fault_along_ns.fetch_add(ns(along), Ordering::Relaxed);
        }
        Fault::Fresh(_) => latency.fresh.record(before.spent.total() + before.last().elapsed()),
        Fault::Far(awaited, far) => {
            shared.arrivals.fetch(&shared.mover, process, (awaited, far), before.began());
        }
        Fault::Again
            if process.memory.has_no_room_since().is_some()
                && room.add(process, vpn, FOR_GROUP) => {}
        Fault::Again if is_left_to_the_kernel(process, vpn, thread, shared.page_bytes) => {}
        fault => ended(shared, process, vpn, fault),
    }
}

/// Tells the policies.
pub(super) fn tell(shared: &Shared, process: &Process, told: &mut Vec<Event>) {
    for event in told.drain(..) {
        match event {
            Event::PageIn { demand: true, .. } => process.demand.fetch_add(1, Ordering::Relaxed),
            Event::PageIn { demand: false, .. } => process.restored.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        shared.post(event);
    }
}

/// A fault is over and has put no page: what its thread hears.
pub(super) fn ended(shared: &Shared, process: &Process, vpn: Vpn, fault: Fault) {
    match fault {
        Fault::Restored | Fault::Fresh(_) | Fault::Far(..) => {}
        Fault::Spurious | Fault::Waiting => {}
        // The thread faults anew, behind the events that stand in the way.
        Fault::Again | Fault::Gone => process.memory.wake(vpn, 1),
        Fault::Corrupt(error) => {
            let addr = vpn.addr(shared.page_bytes);
            tracing::error!(
                pid = process.pid(),
                command = process.command,
                "the stored copy of the page at {addr:#x} is damaged ({error}): the program gets \
                 SIGBUS when it touches it"
            );
            process.memory.uffd.poison(addr, shared.page_bytes);
            process.memory.wake(vpn, 1);
        }
    }
}

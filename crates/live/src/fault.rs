//! The fault threads: one a CPU, each serving its share of the programs.
//!
//! They answer from the page table and post what happened; they ask no policy and wait for no other
//! process. Events are read and applied under the space's lock held for writing, and before the
//! faults that came with them: what the program gave up must not come back.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clew_core::{AccessKind, Event, PageId, SpaceId, Tier, Vpn};
use clew_engine::{Fault, ManagedSpace, Memory, MoverContext};
use parking_lot::{Mutex, RwLockWriteGuard};

use crate::affinity::{self, Placement};
use crate::governor::Message as ToGovernor;
use crate::process::{Process, Shared};
use crate::program::ProgramMemory;
use crate::uffd::Message;

/// Token of the descriptor that ends a fault thread.
pub const STOP_TOKEN: u64 = u64::MAX;

/// Serves faults on the CPU of `handler` until its stop descriptor becomes readable.
pub fn run(shared: &Shared, handler: usize) {
    affinity::pin(shared.handler_cpus[handler]);
    // SAFETY: changes this thread's own priority; failing (not root) is no harm.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
    let mut ctx = MoverContext::default();
    let mut messages = Vec::with_capacity(32);
    let mut faults = Vec::with_capacity(32);
    loop {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: the array lives across the call and is as long as stated.
        let n = unsafe {
            libc::epoll_wait(shared.epolls[handler].as_raw_fd(), events.as_mut_ptr(), 32, -1)
        };
        for event in &events[..n.max(0) as usize] {
            if event.u64 == STOP_TOKEN {
                return;
            }
            if let Some(process) = shared.process(SpaceId(event.u64 as u32)) {
                serve(shared, &process, &mut ctx, &mut messages, &mut faults);
            }
        }
    }
}

fn serve(
    shared: &Shared,
    process: &Arc<Process>,
    ctx: &mut MoverContext,
    messages: &mut Vec<Message>,
    faults: &mut Vec<(u64, u32)>,
) {
    faults.clear();
    let guard = process.space.table.lock.write();
    if process.memory.events_held() {
        drop(guard);
        process.memory.look_away();
        return;
    }
    loop {
        messages.clear();
        let more = match process.memory.uffd.read(messages) {
            Ok(more) => more,
            Err(error) => {
                tracing::error!(pid = process.pid, %error, "cannot read a program's faults");
                false
            }
        };
        for message in messages.drain(..) {
            match message {
                Message::Fault { addr, tid } => faults.push((addr, tid)),
                other => apply(shared, process, other),
            }
        }
        if !more {
            break;
        }
    }
    let guard = RwLockWriteGuard::downgrade(guard);
    let narrow =
        shared.placement == Placement::Narrow && process.relaunching.load(Ordering::Relaxed);
    for (addr, tid) in faults.iter().copied() {
        let vpn = Vpn::of_addr(addr, shared.page_bytes);
        if process.memory.staging().contains(&addr) {
            // Nobody but the agent has business there, and the agent reads only what it moved:
            // somebody walks the program's whole memory. Zeros are what an empty page holds.
            process.memory.put_zero(vpn, 1);
            continue;
        }
        if narrow {
            affinity::narrow(&process.narrowed, tid, shared.handler_cpus[process.handler]);
        }
        answer(shared, process, vpn, ctx);
    }
    drop(guard);
}

fn answer(shared: &Shared, process: &Process, vpn: Vpn, ctx: &mut MoverContext) {
    let page = PageId::new(process.id, vpn);
    process.faults.fetch_add(1, Ordering::Relaxed);
    match shared.mover.fault(&process.space, vpn, ctx) {
        Fault::Restored => {
            process.demand.fetch_add(1, Ordering::Relaxed);
            shared.post(Event::Access { page, kind: AccessKind::Fault, write: false });
            shared.post(Event::PageIn { page, tier: Tier::Pool, demand: true });
        }
        Fault::Fresh(pages) => {
            shared.post(Event::Resident { run: process.run(vpn, u64::from(pages)) });
            shared.post(Event::Access { page, kind: AccessKind::Fresh, write: false });
        }
        Fault::Spurious | Fault::Waiting => {}
        // The thread faults anew, behind the events that stand in the way.
        Fault::Again | Fault::Gone => process.memory.wake(vpn, 1),
        Fault::Corrupt(error) => {
            let addr = vpn.addr(shared.page_bytes);
            tracing::error!(
                pid = process.pid,
                command = process.command,
                "the stored copy of the page at {addr:#x} is damaged ({error}): the program gets \
                 SIGBUS when it touches it"
            );
            process.memory.uffd.poison(addr, shared.page_bytes);
            process.memory.wake(vpn, 1);
        }
    }
}

/// Applies what the program did. The space's lock is held for writing.
fn apply(shared: &Shared, process: &Arc<Process>, message: Message) {
    let page = shared.page_bytes;
    let staging = process.memory.staging();
    match message {
        Message::Fault { .. } => {}
        Message::Remove { start, end } | Message::Unmap { start, end }
            if staging.contains(&start) && end <= staging.end => {}
        Message::Remove { start, end } => forget(shared, process, start, end),
        Message::Unmap { start, end } => {
            forget(shared, process, start, end);
            cut(&mut process.regions.lock(), start, end);
        }
        Message::Remap { from, to, len } => {
            let (first, pages) = (Vpn::of_addr(from, page), len / page);
            let target = Vpn::of_addr(to, page);
            shared.mover.remap(&process.space, first, pages, target);
            let mut regions = process.regions.lock();
            cut(&mut regions, from, from + len);
            cut(&mut regions, to, to + len);
            regions.insert(to, to + len);
            shared.post(Event::Moved {
                from: process.run(first, pages),
                to: PageId::new(process.id, target),
            });
        }
        Message::Fork { child } => fork(shared, process, child),
    }
}

fn forget(shared: &Shared, process: &Process, start: u64, end: u64) {
    let (first, pages) = (Vpn::of_addr(start, shared.page_bytes), (end - start) / shared.page_bytes);
    shared.mover.forget(&process.space, first, pages);
    shared.post(Event::Freed { run: process.run(first, pages) });
}

/// The child shares what its parent has stored. It has no agent, so its own pages stay; its
/// descriptor must be held until its memory is gone.
fn fork(shared: &Shared, parent: &Arc<Process>, uffd: crate::uffd::Uffd) {
    let id = shared.new_space_id();
    let epoll = shared.epolls[parent.handler].as_raw_fd();
    let memory = Arc::new(ProgramMemory::new(
        uffd,
        shared.page_bytes,
        None,
        None,
        epoll,
        u64::from(id.0),
    ));
    let space = Arc::new(ManagedSpace::new(shared.new_table(id), memory.clone()));
    shared.mover.fork(&parent.space, &space);
    let child = Arc::new(Process {
        id,
        app: parent.app,
        pid: 0,
        command: parent.command.clone(),
        space,
        memory,
        regions: Mutex::new(parent.regions.lock().clone()),
        files: None,
        handler: parent.handler,
        relaunching: Default::default(),
        narrowed: Mutex::new(None),
        faults: Default::default(),
        demand: Default::default(),
        restored: Default::default(),
        swapped_out: Default::default(),
    });
    shared.processes.write().insert(id, child.clone());
    if let Err(error) = child.memory.watch() {
        tracing::error!(%error, pid = parent.pid, "cannot watch a forked child; it will wait");
    }
    let _ = shared.governor.send(ToGovernor::Forked(child));
}

/// Takes `[start, end)` out of the set of regions.
pub fn cut(regions: &mut std::collections::BTreeMap<u64, u64>, start: u64, end: u64) {
    let hit: Vec<(u64, u64)> = regions
        .range(..end)
        .rev()
        .take_while(|(_, e)| **e > start)
        .map(|(s, e)| (*s, *e))
        .collect();
    for (s, e) in hit {
        regions.remove(&s);
        if s < start {
            regions.insert(s, start);
        }
        if e > end {
            regions.insert(end, e);
        }
    }
}


#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn regions_are_cut() {
        let mut regions: BTreeMap<u64, u64> = [(10, 20), (30, 40), (50, 60)].into();
        cut(&mut regions, 15, 35);
        assert_eq!(regions, [(10, 15), (35, 40), (50, 60)].into());
        cut(&mut regions, 52, 55);
        assert_eq!(regions, [(10, 15), (35, 40), (50, 52), (55, 60)].into());
        cut(&mut regions, 0, 100);
        assert!(regions.is_empty());
    }
}

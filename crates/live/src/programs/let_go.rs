//! A program that has a userfaultfd of its own is left alone; and so are parts of any that asks for it.
//!
//! A mapping can be registered on one userfaultfd only. So a program that asks for one of its own
//! gets every page back, and its mappings; it is not managed again. It asks itself where it registers
//! memory by the C library's `ioctl` (see the agent's `let_go`). One that makes system calls of its
//! own is found out by its open files, which are looked at from time to time, and before anything more of it is
//! registered; so is one that has its own memory open as a file ([`crate::programs::alone`]).
//!
//! Memory that children find wiped (MADV_WIPEONFORK) must be in its program, where the kernel sees to
//! that: the agent's `madvise` asks for it. Scans leave such mappings out ([`crate::programs::mappings`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::Vpn;
use clew_engine::MoverContext;
use clew_store::State;

use crate::agents::closer::Foreign;
use crate::agents::peer::is_still_there;
use crate::agents::refusal::AttachError;
use crate::agents::seqpacket;
use crate::faults::poison::poison_if_damaged;
use crate::programs::kcmp::share_memory;
use crate::programs::plea::{Plea, answer};
use crate::programs::process::{ALL_PAGES, Process};
use crate::programs::regions::{cut, remove};
use crate::programs::shared::Shared;
use crate::survival::predecessor::ProcessName;

/// Pleas of one program that wait to be granted, at most: who has more threads that ask has them ask again.
const MAX_PLEAS: usize = 16;
/// How long it may take to bring everything back, or until that can begin. The program waits as long.
pub const PATIENCE: Duration = Duration::from_secs(25);
/// How long a worker waits for what else is done with the process's pages: moments.
const MOMENTS: Duration = Duration::from_secs(1);
/// Pages brought back at once.
const PIECE: usize = 512;

impl Plea {
    /// Who asks at the other end of `socket` is known by the kernel's word. `None` if that is nobody who
    /// is managed: then it has been told so. A forked child that says who it is (`beacon`) before its
    /// agent has said which process that is, is told to ask again, unless it asks for a `range` only.
    ///
    /// # Errors
    /// If the kernel does not say who asks.
    pub fn of(
        shared: &Shared,
        socket: Foreign,
        beacon: [u64; 2],
        range: Option<Range<u64>>,
    ) -> Result<Option<Plea>, AttachError> {
        let who = seqpacket::peer(&socket).map_err(AttachError::NoAnswer)?;
        let peer = who.pid as u32;
        let name = ProcessName::of(peer)
            .map_err(|source| AttachError::Proc { what: "finding the program", source })?;
        is_still_there(&socket, peer)?;
        let is_it = |process: &&Arc<Process>| {
            process.name() == Some(name) && !process.memory.agent_outlived(peer)
        };
        let processes: Vec<Arc<Process>> = shared.processes.read().values().cloned().collect();
        let is_child = |p: &&Arc<Process>| p.secret != 0 && p.beacon_says() == beacon;
        let child = || processes.iter().find(is_child);
        // A process of its own in a program's memory (vfork, CLONE_VM).
        let shares =
            |p: &&Arc<Process>| p.uid() == who.uid && share_memory(peer, p.pid()) == Some(true);
        let known = processes.iter().find(is_it).or_else(|| child().filter(|_| range.is_some()));
        let asks = known.or_else(|| processes.iter().find(shares));
        if let Some(process) = asks.cloned() {
            let is_one_more = |pleas: usize| (pleas < MAX_PLEAS).then_some(pleas + 1);
            if process.pleas.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_one_more).is_ok()
            {
                return Ok(Some(Plea { process, range, since: Instant::now(), socket }));
            }
            answer(&socket, libc::EAGAIN);
            return Ok(None);
        }
        let is_unknown_yet = shared.recovering.load(Ordering::SeqCst) > 0 || child().is_some();
        answer(&socket, if is_unknown_yet { libc::EAGAIN } else { libc::ESRCH });
        Ok(None)
    }
}

/// Brings every page of a process back and gives its mappings up; false if that cannot be done, and
/// then it is as it was. [`Process::leaves`] says why.
pub fn let_go(shared: &Shared, process: &Process, ctx: &mut MoverContext) -> bool {
    let is_back = bring_back(shared, process, ALL_PAGES, ctx, || {
        // First: a successor that knows of no mapping takes nothing out.
        process.regions.lock().clear();
        process.save_facts();
        unregister(process);
        true
    });
    if is_back {
        process.memory.detach();
    }
    is_back
}

/// The same for one range, of a process that stays managed; false if that cannot be done.
pub fn leave_out(
    shared: &Shared,
    process: &Process,
    range: &Range<u64>,
    ctx: &mut MoverContext,
) -> bool {
    let page = shared.page_bytes;
    let (start, end) = (range.start, range.end);
    let overlaps = |own: &Range<u64>| own.start < end && start < own.end;
    if process.agents_own(page).iter().any(overlaps) {
        return false;
    }
    let pages = (Vpn::of_addr(start, page), (end - start) / page);
    bring_back(shared, process, pages, ctx, || {
        process.left_out.fetch_add(1, Ordering::SeqCst);
        // As above, and nobody has to know more of these pages than of any that are not registered.
        remove(shared, process, start, end);
        cut(&mut process.regions.lock(), start, end);
        process.save_facts();
        process.memory.uffd.unregister(start, end - start).is_ok()
    })
}

/// Brings pages back, so many from the first on, and then does what is `last` while no other page can
/// leave. True also if the memory has ended.
fn bring_back(
    shared: &Shared,
    process: &Process,
    pages: (Vpn, u64),
    ctx: &mut MoverContext,
    last: impl FnOnce() -> bool,
) -> bool {
    let until = Instant::now() + PATIENCE;
    // Nothing of it is being taken out, which a frozen agent could keep from ending.
    let Some(_none_goes) = process.space.try_hold_swap_outs(MOMENTS) else { return false };
    while process.memory.uffd.is_alive() {
        for vpns in process.stored_vpns_of(pages).chunks(PIECE) {
            let mut events = Vec::new();
            let back = shared.mover.restore(&process.space, vpns, ctx, &mut events);
            process.restored.fetch_add(back.pages as u64, Ordering::Relaxed);
            poison_if_damaged(shared, process, back.corrupt);
        }
        {
            // What is on its way back is put with this lock held for reading.
            let _events_wait = process.space.table.lock.write();
            let mut is_back = true;
            process.space.table.for_range(pages.0, pages.1, |_, entry| {
                is_back &= matches!(entry.state(), State::Absent | State::Resident | State::Lent);
            });
            if is_back {
                return last();
            }
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Tells the agents of programs of which nothing is stored any more to end. One that does not (it is stopped,
/// perhaps) keeps its program's userfaultfd: the mappings are given up for it, so that nobody waits there.
pub fn end_agents(processes: &[Arc<Process>]) {
    processes.iter().for_each(|process| process.memory.detach());
    let until = Instant::now() + MOMENTS;
    for process in processes {
        let patience = until.saturating_duration_since(Instant::now());
        if !process.memory.agent_ends(patience) {
            let (pid, command) = (process.pid(), &process.command);
            tracing::info!(pid, command, "its agent does not end: its memory is given up without");
            unregister(process);
        }
    }
}

/// Nothing is missing, so nobody waits for a page; who has begun to is woken.
fn unregister(process: &Process) {
    let Some(files) = process.files.get() else { return };
    let Ok(maps) = files.mappings() else { return };
    for mapping in maps.iter().filter(|m| m.private_anonymous()) {
        // What is another's, or nobody's, is refused or left as it is.
        let _ = process.memory.uffd.unregister(mapping.start, mapping.bytes());
    }
}

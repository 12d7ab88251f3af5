//! What programs do with their memory: reading it from their userfaultfds, in an order that can
//! have been.
//!
//! The kernel posts an event after the fact and without any lock, so two threads' events can be
//! read in the wrong order: one moves X away, another moves Z to the free X, and the second event
//! comes first. Applied as read, X would be forgotten. But a program's mappings count as changing
//! until the last event is read, and the kernel tells so: when something was moved (or forked),
//! events are collected until nothing is outstanding, and then put in order.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::{Event, PageId, Vpn};
use clew_engine::ManagedSpace;
use clew_store::State;
use parking_lot::Mutex;

use crate::governor::Message as ToGovernor;
use crate::mappings::{self, Mapping};
use crate::process::{Process, Shared};
use crate::program::ProgramMemory;
use crate::uffd::{Message, Uffd};

/// How long outstanding events are waited for. They are posted by threads that are runnable.
const OUTSTANDING: Duration = Duration::from_secs(1);

/// Reads everything there is, applies events, and leaves the faults to the caller. The space's
/// lock is held for writing.
pub fn read_and_apply(
    shared: &Shared,
    process: &Arc<Process>,
    messages: &mut Vec<Message>,
    faults: &mut Vec<(u64, u32)>,
) {
    let mut events = Vec::new();
    let mut deadline = None;
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
                other => events.push(other),
            }
        }
        if more {
            continue;
        }
        let order_matters =
            events.iter().any(|e| matches!(e, Message::Remap { .. } | Message::Fork { .. }));
        if !order_matters || !process.memory.uffd.is_changing() {
            break;
        }
        let until = *deadline.get_or_insert_with(|| Instant::now() + OUTSTANDING);
        if Instant::now() > until {
            tracing::debug!(pid = process.pid, "events outstanding for {OUTSTANDING:?}");
            break;
        }
        // Sleeping, not spinning: those threads may need this CPU.
        std::thread::sleep(Duration::from_micros(20));
    }
    if !events.is_empty() {
        apply_all(shared, process, events);
    }
}

fn apply_all(shared: &Shared, process: &Arc<Process>, mut events: Vec<Message>) {
    if events.len() == 1 || has_one_thread(process) {
        for event in events {
            apply(shared, process, event);
        }
        return;
    }
    let mut moved: Vec<(u64, u64, u64)> = Vec::new();
    let mut children: Vec<(Arc<ManagedSpace>, usize)> = Vec::new();
    while !events.is_empty() {
        // The first event that is possible as things stand; if none is, the first.
        let possible = |i: &usize| match events[*i] {
            Message::Remap { to, len, .. } => {
                !occupied(process, to, to + len, shared.page_bytes)
                    || !(0..events.len()).any(|o| o != *i && leaves(&events[o], to, to + len))
            }
            _ => true,
        };
        let next = (0..events.len()).find(possible).unwrap_or(0);
        let event = events.remove(next);
        if let Message::Remap { from, to, len } = event {
            moved.push((from, to, len));
        }
        if let Some(child) = apply(shared, process, event) {
            children.push((child, moved.len()));
        }
    }
    // Whether a child was forked before or after a move of another thread, nobody says: it gets
    // the pages at both places. What it has too much is never asked for.
    let page = shared.page_bytes;
    for (child, before) in &children {
        for (i, (from, to, len)) in moved.iter().enumerate() {
            let to_vpn = Vpn::of_addr(*to, page);
            let also_at = if i < *before { Vpn::of_addr(*from, page) } else { to_vpn };
            shared.mover.fork_range(&process.space, child, to_vpn, len / page, also_at);
        }
    }
}

fn has_one_thread(process: &Process) -> bool {
    use std::os::unix::fs::MetadataExt;
    process.pid == 0
        || std::fs::metadata(format!("/proc/{}/task", process.pid)).is_ok_and(|m| m.nlink() <= 3)
}

/// Applies one event; the child, if it was a fork.
fn apply(shared: &Shared, process: &Arc<Process>, event: Message) -> Option<Arc<ManagedSpace>> {
    match event {
        Message::Remap { from, to, len } => remap(shared, process, from, to, len),
        Message::Unmap { start, end } => unmap(shared, process, start, end),
        Message::Remove { start, end } => remove(shared, process, start, end),
        Message::Fork { child } => return Some(fork(shared, process, child)),
        Message::Fault { .. } => {}
    }
    None
}

/// Whether `event` takes something away from `[start, end)`.
fn leaves(event: &Message, start: u64, end: u64) -> bool {
    match event {
        Message::Remap { from, len, .. } => *from < end && start < from + len,
        Message::Unmap { start: s, end: e } => *s < end && start < *e,
        _ => false,
    }
}

/// Whether, as far as is known, something of the program is in `[start, end)`.
fn occupied(process: &Process, start: u64, end: u64, page_bytes: u64) -> bool {
    let mut found =
        process.regions.lock().range(..end).next_back().is_some_and(|(_, e)| *e > start);
    let (first, pages) = (Vpn::of_addr(start, page_bytes), (end - start) / page_bytes);
    process.space.table.for_range(first, pages, |_, _| found = true);
    found
}

/// Ranges of `[start, end)` in which mappings of ours are now.
fn registered_now(process: &Process, start: u64, end: u64) -> Vec<(u64, u64)> {
    let Some(files) = &process.files else { return Vec::new() };
    let mut files = files.lock();
    let within = |text: String| -> Vec<Mapping> {
        mappings::parse(&text).into_iter().filter(|m| m.start < end && start < m.end).collect()
    };
    // Flags are only in smaps, which costs more; usually nothing is there.
    if mappings::read_again(&mut files.maps).map(within).is_ok_and(|m| m.is_empty()) {
        return Vec::new();
    }
    let smaps = mappings::read_again(&mut files.smaps).map(within).unwrap_or_default();
    smaps.iter().filter(|m| m.is_registered()).map(|m| (m.start, m.end)).collect()
}

fn remove(shared: &Shared, process: &Process, start: u64, end: u64) {
    if process.memory.staging().contains(&start) {
        return; // our own agent
    }
    let (first, pages) =
        (Vpn::of_addr(start, shared.page_bytes), (end - start) / shared.page_bytes);
    shared.mover.forget(&process.space, first, pages);
    shared.post(Event::Freed { run: process.run(first, pages) });
}

/// The event may come late: another thread may have moved something there since, and told us. What
/// is mapped there and registered now is not what was unmapped, and keeps its pages. (If that move
/// is still to be told, it will replace them.)
fn unmap(shared: &Shared, process: &Process, start: u64, end: u64) {
    let (first, pages) =
        (Vpn::of_addr(start, shared.page_bytes), (end - start) / shared.page_bytes);
    let mut at_stake = false;
    process.space.table.for_range(first, pages, |_, entry| {
        at_stake |= !matches!(entry.state(), State::Absent | State::Resident);
    });
    let kept = match at_stake && !has_one_thread(process) {
        true => registered_now(process, start, end),
        false => Vec::new(),
    };
    let mut from = start;
    for (s, e) in kept.into_iter().chain([(end, end)]) {
        if from < s.min(end) {
            remove(shared, process, from, s.min(end));
            cut(&mut process.regions.lock(), from, s.min(end));
        }
        from = from.max(e);
    }
}

fn remap(shared: &Shared, process: &Process, from: u64, to: u64, len: u64) {
    let page = shared.page_bytes;
    let (first, pages) = (Vpn::of_addr(from, page), len / page);
    let target = Vpn::of_addr(to, page);
    shared.mover.remap(&process.space, first, pages, target);
    let mut regions = process.regions.lock();
    cut(&mut regions, from, from + len);
    cut(&mut regions, to, to + len);
    regions.insert(to, to + len);
    drop(regions);
    let to = PageId::new(process.id, target);
    shared.post(Event::Moved { from: process.run(first, pages), to });
}

/// The child shares what its parent has stored. It has no agent, so its own pages stay; its
/// descriptor must be held until its memory is gone.
fn fork(shared: &Shared, parent: &Arc<Process>, uffd: Uffd) -> Arc<ManagedSpace> {
    let id = shared.new_space_id();
    let epoll = shared.epolls[parent.handler].as_raw_fd();
    let token = u64::from(id.0);
    let memory = ProgramMemory::new(uffd, shared.page_bytes, None, None, epoll, token);
    let memory = Arc::new(memory);
    let space = Arc::new(ManagedSpace::new(shared.new_table(id), memory.clone()));
    shared.mover.fork(&parent.space, &space);
    let child = Arc::new(Process {
        id,
        app: parent.app,
        pid: 0,
        command: parent.command.clone(),
        space: space.clone(),
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
    space
}

/// Takes `[start, end)` out of the set of regions.
pub fn cut(regions: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
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

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
use parking_lot::Mutex;

use crate::governor::Message as ToGovernor;
use crate::process::{Process, Shared};
use crate::program::ProgramMemory;
use crate::uffd::{Message, Uffd};

/// How long outstanding events are waited for. They are posted by threads that are runnable.
const OUTSTANDING: Duration = Duration::from_secs(1);

/// How long moves are remembered for the unmappings that belong to them.
const REMEMBERED: Duration = Duration::from_secs(60);

/// One applied move: mremap is told as a move, and then, later, as an unmapping of the old range.
pub struct Move {
    from: (u64, u64),
    to: (u64, u64),
    when: Instant,
    /// The unmapping of `from` is still to be told.
    owes_unmap: bool,
}

/// Reads everything there is, applies events, and leaves the faults to the caller. The space's
/// lock is held for writing.
pub fn read_and_apply(
    shared: &Shared,
    process: &Arc<Process>,
    messages: &mut Vec<Message>,
    faults: &mut Vec<(u64, u32)>,
) {
    let mut events = Vec::new();
    read(process, messages, faults, &mut events);
    if events.is_empty() {
        return;
    }
    let ordered = |events: &[Message]| {
        !events.iter().any(|e| matches!(e, Message::Remap { .. } | Message::Fork { .. }))
    };
    if !ordered(&events) && !has_one_thread(process) {
        let deadline = Instant::now() + OUTSTANDING;
        while process.memory.uffd.is_changing() && Instant::now() < deadline {
            // Sleeping, not spinning: who is to post may need this CPU.
            std::thread::sleep(Duration::from_micros(20));
            read(process, messages, faults, &mut events);
        }
    }
    if ordered(&events) || has_one_thread(process) {
        for event in events {
            apply(shared, process, event);
        }
        return;
    }
    let mut changes = Changes::default();
    changes.apply_possible(shared, process, &mut events);
    changes.share_with_children(shared, process);
}

fn read(
    process: &Process,
    messages: &mut Vec<Message>,
    faults: &mut Vec<(u64, u32)>,
    events: &mut Vec<Message>,
) {
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
        if !more {
            return;
        }
    }
}

/// What several threads did at once.
#[derive(Default)]
struct Changes {
    moved: Vec<(u64, u64, u64)>,
    /// Children, and how many moves had been applied before their fork.
    children: Vec<(Arc<ManagedSpace>, usize)>,
}

impl Changes {
    /// Applies events in an order that can have been.
    fn apply_possible(
        &mut self,
        shared: &Shared,
        process: &Arc<Process>,
        events: &mut Vec<Message>,
    ) {
        while !events.is_empty() {
            // If no order fits what is known, as they came.
            let possible = |i: &usize| is_possible(shared, process, events, *i);
            let next = (0..events.len()).find(possible).unwrap_or(0);
            let event = events.remove(next);
            if let Message::Remap { from, to, len } = event {
                self.moved.push((from, to, len));
            }
            if let Some(child) = apply(shared, process, event) {
                self.children.push((child, self.moved.len()));
            }
        }
    }

    /// Whether a child was forked before or after a move of another thread, nobody says: it gets
    /// the pages at both places. What it has too much is never asked for.
    fn share_with_children(&self, shared: &Shared, process: &Process) {
        let page = shared.page_bytes;
        for (child, before) in &self.children {
            for (i, (from, to, len)) in self.moved.iter().enumerate() {
                let to_vpn = Vpn::of_addr(*to, page);
                let also_at = if i < *before { Vpn::of_addr(*from, page) } else { to_vpn };
                shared.mover.fork_range(&process.space, child, to_vpn, len / page, also_at);
            }
        }
    }
}

/// Whether event `i` can have been the next, as things stand.
fn is_possible(shared: &Shared, process: &Process, events: &[Message], i: usize) -> bool {
    match events[i] {
        Message::Remap { from, to, len } => {
            // Something is still at its target, and somebody says that it left.
            let blocked = occupied(process, to, to + len, shared.page_bytes)
                && (0..events.len()).any(|o| o != i && leaves(&events[o], to, to + len));
            // Something read before it arrives where it comes from: is it that which moves on, or
            // what was there before? The latter has the extent that is known.
            let follows = events[..i].iter().any(|e| {
                matches!(e, Message::Remap { to, len: l, .. }
                    if *to < from + len && from < to + l)
            });
            let known = process.regions.lock().get(&from) == Some(&(from + len));
            !blocked && (!follows || known)
        }
        _ => true,
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

/// An unmapping that belongs to a move tells nothing new: the pages went with the move, and what
/// another thread has moved to the free place since is not what was unmapped.
fn unmap(shared: &Shared, process: &Process, start: u64, end: u64) {
    let mut moves = process.moves.lock();
    moves.retain(|m| m.when.elapsed() < REMEMBERED);
    let owing = moves.iter().position(|m| m.owes_unmap && m.from == (start, end));
    if let Some(i) = owing {
        moves[i].owes_unmap = false;
        if moves[i + 1..].iter().any(|m| m.to.0 < end && start < m.to.1) {
            return;
        }
    }
    drop(moves);
    remove(shared, process, start, end);
    cut(&mut process.regions.lock(), start, end);
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
    let (from, to) = ((from, from + len), (to, to + len));
    let when = Instant::now();
    process.moves.lock().push(Move { from, to, when, owes_unmap: true });
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
        moves: Mutex::default(),
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

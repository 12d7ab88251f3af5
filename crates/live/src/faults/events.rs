//! What programs do with their memory: reading it from their userfaultfds, in an order that can
//! have been.
//!
//! The kernel posts an event after the fact and without any lock, so events of several threads may be
//! read in the wrong order ([`crate::faults::order`]). As long as one is known to be missing, nothing that was
//! read is applied that has to do with it, and no fault is answered: what is known may be wrong.
//!
//! A message that was read is nowhere but here. The kernel writes it straight into the program's
//! journal, where it is marked while it is applied and stays until all are: a successor goes on
//! where this daemon died.
//!
//! Messages are read under the space's lock: while one that drops pages is on its way, none may be
//! put. Who holds it waits for nobody (see [`crate::faults::uffd`]), but for 50 ms, once, where a forked
//! child's agent has it wait, and for an event that is missing ([`OUTSTANDING`]): what other threads of the program are in is
//! asked meanwhile, as one of them may have to be let go on for it. Such an agent may have read messages itself: what is stored and what the
//! program is told of its memory do not fit any more, and its program is ended rather than served.

use std::cmp::Reverse;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clew_core::{Event, PageId, Vpn};
use clew_store::journal::MESSAGES;
use clew_store::points;

use crate::faults::doubts::without;
use crate::faults::interrupter::Interrupter;
use crate::faults::order::{self, Layout, Next, Trust};
use crate::faults::populating::is_left_to_the_kernel;
use crate::faults::uffd::{Message, Uffd};
use crate::faults::unmapped::{marked, out_in};
use crate::message::Message as ToGovernor;
use crate::programs::facts;
use crate::programs::memory::ProgramMemory;
use crate::programs::not_inherited;
use crate::programs::process::{Owner, Process};
use crate::programs::regions::{cut, is_known, remove};
use crate::programs::shared::Shared;
use crate::survival::records::{Record, Stage};

/// How long an event that is missing is waited for. It is posted by a thread that is runnable.
const OUTSTANDING: Duration = Duration::from_secs(10);

/// After how long of that what fits is taken for it.
const FITTING: Duration = Duration::from_millis(50);

/// How long a fork waits for events of other threads. They are not needed: what those move meanwhile is
/// nothing that the child can count on.
const FORK: Duration = Duration::from_millis(2);

/// Messages read by one call.
const READ_AT_ONCE: usize = 16;

/// A message of the journal that was not applied yet.
#[derive(Clone, Copy)]
struct Pending {
    /// Where it is in the journal.
    at: usize,
    message: Message,
}

impl Pending {
    fn is_fork(&self) -> bool {
        matches!(self.message, Message::Fork { .. })
    }

    /// Whether it matters what came before it.
    fn has_an_order(&self) -> bool {
        self.is_fork() || matches!(self.message, Message::Remap { .. })
    }
}

/// The upper half of a mark in the journal: this message is being applied.
const BEGUN: u32 = 1 << 16;
/// It has been applied. The lower half says as the how manieth.
const DONE: u32 = 2 << 16;

/// Reads everything there is, applies events, and leaves the faults to the caller. The space's
/// lock is held for writing.
pub fn read_and_apply(
    shared: &Shared,
    process: &Arc<Process>,
    interrupter: &mut Interrupter,
    faults: &mut Vec<(u64, u32)>,
) {
    Reader::default().finish(shared, process, interrupter, faults);
    not_inherited::look_on(shared, process);
}

/// The same for a program that was taken over: what its last daemon had read comes first.
pub fn resume(
    shared: &Shared,
    process: &Arc<Process>,
    inherited: &dyn Inherited,
    interrupter: &mut Interrupter,
) {
    let mut reader = Reader::default();
    reader.resume(shared, process, inherited, interrupter);
    reader.finish(shared, process, interrupter, &mut Vec::new());
}

/// What a successor knows of children that its predecessor was told of.
pub trait Inherited {
    /// The child whose descriptor had this number, if it is recorded already.
    fn child(&self, number: RawFd) -> Option<Arc<Process>>;
}

/// Takes the descriptors of children that nobody has recorded yet from the predecessor's keeper. To
/// be done as long as that runs; their new numbers are written beside the old ones, with the
/// generation for which they hold.
pub fn take_children(
    shared: &Shared,
    process: &Process,
    inherited: &dyn Inherited,
    take: impl Fn(RawFd) -> io::Result<OwnedFd>,
) -> io::Result<()> {
    let journal = &process.space.journal;
    for at in 0..MESSAGES {
        let words = journal.message(at);
        if words[0] as u32 == 0 {
            break;
        }
        // A child that was served may have ended since, and its number may be another's.
        let is_done = (words[0] >> 32) as u32 & !0xffff == DONE;
        if let Some(Message::Fork { child }) = Message::parse(words)
            && !is_done
            && inherited.child(child).is_none()
        {
            let number = take(child)?.into_raw_fd();
            journal.annotate_message(at, shared.generation << 32 | u64::from(number as u32));
        }
    }
    Ok(())
}

/// The number that [`take_children`] wrote.
fn taken(shared: &Shared, process: &Process, pending: Pending) -> Option<RawFd> {
    let note = process.space.journal.message(pending.at)[2];
    (note >> 32 == shared.generation & 0xffff_ffff).then_some(note as u32 as RawFd)
}

/// Reads messages of one program into its journal, and applies them from there.
#[derive(Default)]
struct Reader {
    /// Messages in the journal.
    len: usize,
    pending: Vec<Pending>,
    changes: Changes,
    /// Children that nobody serves yet.
    born: Vec<Arc<Process>>,
}

impl Reader {
    fn finish(
        &mut self,
        shared: &Shared,
        process: &Arc<Process>,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) {
        self.read(process, interrupter, faults);
        if !self.pending.is_empty() || !self.changes.is_empty() {
            while !self.pending.is_empty() {
                if self.pending.iter().any(Pending::has_an_order)
                    && !process.memory.is_given_up()
                    && !has_one_thread(process)
                {
                    self.wait_for_forks(shared, process, interrupter, faults);
                    self.apply_in_order(shared, process, interrupter, faults);
                } else {
                    let pending = self.pending.remove(0);
                    self.apply(shared, process, pending, interrupter, faults);
                }
            }
            self.changes.correct_children(shared);
            for (child, _) in &self.changes.children {
                let _events = child.space.table.lock.write();
                // Of one that was taken over, messages may have been read that come later.
                if child.space.journal.message(0)[0] as u32 == 0 {
                    not_inherited::look_on(shared, child);
                }
            }
            for child in self.born.drain(..) {
                serve(shared, child);
            }
        }
        let mut doubts = process.doubts.lock();
        if !doubts.is_empty() && !process.memory.uffd.is_changing() {
            doubts.clear();
        }
        drop(doubts);
        process.space.journal.clear_messages(0..self.len);
        points::change_cleared();
    }

    fn has_room(&self, process: &Process) -> bool {
        process.space.journal.room_for_messages(self.len).1 > 0
    }

    fn wait(
        &mut self,
        shared: &Shared,
        process: &Process,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) {
        let began = Instant::now();
        // Sleeping, not spinning: who is to post may need this CPU.
        std::thread::sleep(Duration::from_micros(20));
        self.read(process, interrupter, faults);
        // What is missing may be told by a thread that waits for one of these.
        let page = shared.page_bytes;
        faults.retain(|(addr, thread)| {
            !is_left_to_the_kernel(process, Vpn::of_addr(*addr, page), *thread, page)
        });
        let now = Instant::now();
        shared.allowance.spend(now - began, now);
    }

    /// Waits for what other threads did before or after a fork, for a moment.
    fn wait_for_forks(
        &mut self,
        shared: &Shared,
        process: &Process,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) {
        let began = Instant::now();
        let may_wait = shared.allowance.has_some(began);
        while self.pending.iter().any(Pending::is_fork)
            && may_wait
            && began.elapsed() < FORK
            && self.has_room(process)
            && process.memory.uffd.is_changing()
            && !process.memory.is_given_up()
        {
            self.wait(shared, process, interrupter, faults);
        }
    }

    /// Applies what several threads did, in an order that can have been.
    fn apply_in_order(
        &mut self,
        shared: &Shared,
        process: &Arc<Process>,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) {
        let began = Instant::now();
        while !self.pending.is_empty() && !process.memory.is_given_up() {
            let messages: Vec<Message> = self.pending.iter().map(|p| p.message).collect();
            let layout = Known { process, page_bytes: shared.page_bytes };
            let mut next = order::next(&messages, &layout, Trust::Sure);
            if next == Next::Wait {
                let trust = match began.elapsed() {
                    _ if !process.memory.uffd.is_changing() => Trust::AllThere,
                    waited if waited >= FITTING => Trust::Fitting,
                    _ => Trust::Sure,
                };
                next = order::next(&messages, &layout, trust);
            }
            match next {
                Next::Apply(i) => {
                    let pending = self.pending.remove(i);
                    self.apply(shared, process, pending, interrupter, faults);
                }
                Next::Wait if began.elapsed() < OUTSTANDING && self.has_room(process) => {
                    self.wait(shared, process, interrupter, faults);
                }
                Next::Wait | Next::Unclear => {
                    tracing::error!(pid = process.pid(), ?messages, "no order fits");
                    process
                        .give_up("what its threads did to its memory at once cannot be followed");
                }
            }
        }
    }

    fn read(
        &mut self,
        process: &Process,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) {
        if !process.memory.is_heard() {
            return;
        }
        let journal = &process.space.journal;
        loop {
            let (to, room) = journal.room_for_messages(self.len);
            let most = room.min(READ_AT_ONCE);
            if most == 0 {
                // What is here is applied first; the rest waits in the kernel.
                return;
            }
            // SAFETY: the journal has room for `most` messages there, and only who holds the
            // space's lock for writing uses it.
            let read = match unsafe { process.memory.uffd.read_to(to, most, interrupter) } {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    process.give_up("its agent makes the daemon wait, and may read its messages");
                    return;
                }
                Err(error) => {
                    // Without a descriptor for a forked child, perhaps: the kernel keeps the message
                    // then, and the fork waits. Faults come before it.
                    if process.unreadable.found() {
                        let pid = process.pid();
                        tracing::error!(pid, %error, "cannot read what a program did: it may wait");
                    }
                    return;
                }
            };
            process.unreadable.over();
            points::change_read();
            for at in self.len..self.len + read {
                match Message::parse(journal.message(at)) {
                    // An agent that outlived its daemon may have marked what had come back.
                    Some(Message::Fault { addr, is_marked: true, .. }) => {
                        process.memory.unmark(addr);
                    }
                    Some(Message::Fault { addr, tid, .. }) => faults.push((addr, tid)),
                    // Our own agent's, after every batch: whoever frees memory allocates none.
                    Some(Message::Remove { start, .. })
                        if process.memory.staging().contains(&start) => {}
                    Some(message) => self.pending.push(Pending { at, message }),
                    None => tracing::error!(pid = process.pid(), "an event that was not asked for"),
                }
            }
            // Faults come again where this daemon dies: behind the last event they take no place, however many come while
            // one is waited for.
            let is_fault = |at: &usize| {
                matches!(Message::parse(journal.message(*at)), Some(Message::Fault { .. }))
            };
            let all = self.len..self.len + read;
            self.len = all.end - all.clone().rev().take_while(is_fault).count();
            journal.clear_messages(self.len..all.end);
            if read < most {
                return;
            }
        }
    }

    fn resume(
        &mut self,
        shared: &Shared,
        process: &Arc<Process>,
        inherited: &dyn Inherited,
        interrupter: &mut Interrupter,
    ) {
        let journal = &process.space.journal;
        let (mut begun, mut done) = (Vec::new(), Vec::new());
        while self.len < MESSAGES && journal.message(self.len)[0] as u32 != 0 {
            let words = journal.message(self.len);
            let (at, mark) = (self.len, (words[0] >> 32) as u32);
            self.len += 1;
            // Its faults come again: they are woken.
            let Some(message) = Message::parse(words) else { continue };
            let pending = Pending { at, message };
            match (message, mark & !0xffff) {
                (Message::Fault { .. }, _) => {}
                (_, 0) => self.pending.push(pending),
                // The facts say that it was applied to them, and they come last. Of one that changes none
                // of them they do not say so: that is applied again.
                (_, BEGUN) if mark & 0xffff != process.applied.load(Relaxed) & 0xffff => {
                    begun.push(pending);
                }
                _ => done.push((mark & 0xffff, pending)),
            }
        }
        if begun.is_empty() {
            journal.set_step(0);
        }
        // The number of the last one is known; those before it have wrapped around once at most.
        let last = process.applied.load(Relaxed);
        done.sort_unstable_by_key(|(number, _)| Reverse(last.wrapping_sub(*number) & 0xffff));
        for (_, pending) in done {
            match pending.message {
                Message::Remap { from, to, len } => self.changes.moved.push((from, to, len)),
                Message::Fork { child } => {
                    let known = inherited.child(child);
                    self.changes.children.extend(known.map(|c| (c, self.changes.moved.len())));
                }
                _ => {}
            }
        }
        // A child's descriptor has another number here.
        let mut translate = |pending: &mut Pending| match pending.message {
            Message::Fork { child } => {
                match (inherited.child(child), taken(shared, process, *pending)) {
                    (Some(known), _) => {
                        self.changes.children.push((known, self.changes.moved.len()));
                        false
                    }
                    (None, Some(number)) => {
                        pending.message = Message::Fork { child: number };
                        process.renumbered.lock().insert(number, child);
                        true
                    }
                    (None, None) => {
                        tracing::error!(pid = process.pid(), "a forked child's descriptor is lost");
                        false
                    }
                }
            }
            _ => true,
        };
        begun.retain_mut(&mut translate);
        self.pending.retain_mut(&mut translate);
        for pending in begun {
            self.apply(shared, process, pending, interrupter, &mut Vec::new());
        }
    }

    /// Applies one message. From its mark to the next one death may come at any point: it is then
    /// applied again, as far as the step says that it is still to be.
    fn apply(
        &mut self,
        shared: &Shared,
        process: &Arc<Process>,
        pending: Pending,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) {
        let journal = &process.space.journal;
        let number = process.applied.load(Relaxed).wrapping_add(1);
        journal.mark_message(pending.at, BEGUN | number & 0xffff);
        points::change_begun();
        match pending.message {
            Message::Remap { from, to, len } => {
                self.changes.moved.push((from, to, len));
                remap(shared, process, from, to, len);
            }
            // One that belongs to a move tells nothing new: the pages went with the move, and what another
            // thread has moved to the free place since is not what was unmapped.
            Message::Unmap { start, end } if process.moves.lock().is_taken_again((start, end)) => {}
            Message::Unmap { start, end } => {
                process.doubts.lock().settle(&(start..end));
                let kept = self.kept(shared, process, start..end, interrupter, faults);
                unmap(shared, process, start..end, &kept);
            }
            Message::Remove { start, end } => {
                process.moves.lock().is_mapped((start, end));
                remove(shared, process, start, end);
            }
            Message::Fork { child } => {
                // SAFETY: the kernel, or whoever took it over from the keeper, has installed this
                // descriptor for us, and nobody else knows its number.
                let child = unsafe { OwnedFd::from_raw_fd(child) };
                let child = fork(shared, process, Uffd::new(child));
                self.changes.children.push((child.clone(), self.changes.moved.len()));
                self.born.push(child);
            }
            Message::Fault { .. } => {}
        }
        process.applied.store(number, Relaxed);
        points::change_applied();
        if facts::are_changed_by(&pending.message, number) {
            process.save_facts();
        }
        points::change_facts();
        journal.mark_message(pending.at, DONE | number & 0xffff);
        points::change_done();
        journal.set_step(0);
    }

    /// The parts of what a program is said to have unmapped that are there still, ascending. The kernel tells of an
    /// unmapping before it finds that there can be none (of what is sealed, or by an `mmap` over it at a limit), and tells
    /// no more of it. But where a page has its mark still, nothing was unmapped: unless it is another's that has been moved
    /// there since, which is told, too.
    fn kept(
        &mut self,
        shared: &Shared,
        process: &Process,
        range: Range<u64>,
        interrupter: &mut Interrupter,
        faults: &mut Vec<(u64, u32)>,
    ) -> Vec<Range<u64>> {
        let out = out_in(process, range.clone(), shared.page_bytes);
        if out.is_empty() {
            return Vec::new();
        }
        let began = Instant::now();
        let may_wait = shared.allowance.has_some(began);
        loop {
            let mut kept = marked(process, &out, shared.page_bytes);
            for pending in &self.pending {
                if let Message::Remap { to, len, .. } = pending.message {
                    kept = without(kept, &(to..to + len));
                }
            }
            // Nothing is put as long as anything is untold, and a move clears the place that it goes to: nobody
            // reads what was kept for too long.
            let is_over = !may_wait
                || !process.memory.uffd.is_changing()
                || began.elapsed() >= FITTING
                || !self.has_room(process)
                || process.memory.is_given_up();
            if kept.is_empty() || is_over {
                if !kept.is_empty() && process.memory.uffd.is_changing() {
                    process.doubts.lock().add(range);
                }
                return kept;
            }
            self.wait(shared, process, interrupter, faults);
        }
    }
}

/// What several threads did at once, as far as it was applied.
#[derive(Default)]
struct Changes {
    moved: Vec<(u64, u64, u64)>,
    /// Children, and how many moves had been applied before their fork.
    children: Vec<(Arc<Process>, usize)>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.moved.is_empty() && self.children.is_empty()
    }

    /// Whether a child was forked before or after a move of another thread, the order of events does not
    /// say, but its mappings do: what is known where it has no mapping is where that came from, or went
    /// to, if it has a mapping there of which nothing is known.
    fn correct_children(&self, shared: &Shared) {
        for (child, before) in &self.children {
            let _events = child.space.table.lock.write();
            let (applied, later) = self.moved.split_at((*before).min(self.moved.len()));
            for (from, to, len) in applied.iter().rev() {
                correct(shared, child, (*to, *from, *len));
            }
            for moved in later {
                correct(shared, child, *moved);
            }
        }
    }
}

/// Moves what is known of a child along a move that it has or has not seen, if that is what its mappings
/// say. The space's lock is held for writing.
fn correct(shared: &Shared, child: &Process, (from, to, len): (u64, u64, u64)) {
    let page = shared.page_bytes;
    let known = |at: u64| is_known(child, at, at + len, page);
    let has = |at: u64| child.memory.uffd.covers(at, page);
    if !known(from) || known(to) || has(from) != Some(false) || has(to) != Some(true) {
        return;
    }
    child.space.journal.set_step(0);
    let (from, to) = (Vpn::of_addr(from, page), Vpn::of_addr(to, page));
    if let Err(error) = shared.mover.remap(&child.space, from, len / page, to) {
        child.give_up(&format!("its memory cannot be followed: {error}"));
    }
    child.space.journal.set_step(0);
}

fn has_one_thread(process: &Process) -> bool {
    use std::os::unix::fs::MetadataExt;
    // Of a child that has not said who it is, nobody knows.
    process.pid() != 0
        && std::fs::metadata(format!("/proc/{}/task", process.pid())).is_ok_and(|m| m.nlink() <= 3)
}

/// What is known of a program's memory.
struct Known<'a> {
    process: &'a Process,
    page_bytes: u64,
}

impl Layout for Known<'_> {
    fn is_occupied(&self, start: u64, end: u64) -> bool {
        let known = self.process.doubts.lock().known_of(start..end);
        let regions = self.process.regions.lock();
        known.into_iter().any(|Range { start, end }| {
            let below = |(_, e): (&u64, &u64)| *e > start;
            regions.range(..end).next_back().is_some_and(below)
                || is_known(self.process, start, end, self.page_bytes)
        })
    }

    fn is_mapping(&self, start: u64, end: u64) -> bool {
        self.process.regions.lock().get(&start) == Some(&end)
    }
}

/// Forgets `range`, but for the parts that are `kept`.
fn unmap(shared: &Shared, process: &Process, range: Range<u64>, kept: &[Range<u64>]) {
    let mut from = range.start;
    for part in kept {
        remove(shared, process, from, part.start);
        from = part.end;
    }
    remove(shared, process, from, range.end);
    if kept.is_empty() {
        cut(&mut process.regions.lock(), range.start, range.end);
    }
}

fn remap(shared: &Shared, process: &Process, from: u64, to: u64, len: u64) {
    let page = shared.page_bytes;
    let (first, pages) = (Vpn::of_addr(from, page), len / page);
    let target = Vpn::of_addr(to, page);
    if let Err(error) = shared.mover.remap(&process.space, first, pages, target) {
        // What is stored would be zeros where it is now.
        process.give_up(&format!("its memory cannot be followed: {error}"));
    }
    let mut regions = process.regions.lock();
    cut(&mut regions, from, from + len);
    cut(&mut regions, to, to + len);
    regions.insert(to, to + len);
    drop(regions);
    process.moves.lock().push((from, from + len), (to, to + len));
    let mut doubts = process.doubts.lock();
    doubts.settle(&(from..from + len));
    doubts.settle(&(to..to + len));
    drop(doubts);
    for from in process.runs(first, pages) {
        let to = Vpn(target.0 + (from.first.vpn().0 - first.0));
        shared.post(Event::Moved { from, to: PageId::new(process.id, to) });
    }
}

/// The child shares what its parent has stored. Its own pages stay until its agent has said which
/// process it is (the kernel does not); its descriptor must be held until its memory is gone.
fn fork(shared: &Shared, parent: &Arc<Process>, uffd: Uffd) -> Arc<Process> {
    let epoll = shared.epolls[parent.handler].as_raw_fd();
    let number = uffd.as_raw_fd();
    let (Some(journal), Some(table)) = (shared.journal.begin(), shared.new_table()) else {
        // No memory for it: slots, and numbers of spaces, are never fewer than descriptors, and the
        // child has one. A child that no successor knows would wait for ever.
        clew_core::remark!(
            "clew: no memory to write down a forked child: stopping before one is lost"
        );
        std::process::abort();
    };
    let id = table.id();
    let memory = ProgramMemory::new(uffd, shared.page_bytes, None, None, epoll, u64::from(id.0));
    let (stage, secret) = (Stage::Child, secret());
    let mut record = Record { stage, pid: 0, started: 0, secret, ..parent.record.lock().clone() };
    record.descriptors = Default::default();
    record.narrowed = None;
    record.given_up = false;
    if let Some(old) = parent.renumbered.lock().remove(&number) {
        record.descriptors[shared.other_column()].uffd = Some(old);
    }
    let seat = shared.users.seat_of_served(parent.uid());
    let owner = Owner { app: parent.app, seat };
    let child = Process::new(owner, record, parent.handler, table, memory, journal, None);
    let _ = child.parent.set(parent.id);
    *child.regions.lock() = parent.regions.lock().clone();
    let lost = shared.mover.fork(&parent.space, &child.space);
    if !lost.is_empty() {
        refuse(shared, &child, &lost);
    }
    if parent.memory.is_given_up() {
        child.give_up("what is known of its parent's memory may be wrong");
    }
    points::fork_table();
    child.save_facts();
    child.save_record(shared.column());
    points::fork_recorded();
    child.space.journal.publish(id);
    points::fork_published();
    child
}

/// The table has no room for these pages of a child. Whoever reads one there gets SIGBUS, or, where the
/// kernel cannot be told so now, waits: nobody gets zeros.
fn refuse(shared: &Shared, child: &Process, lost: &[Vpn]) {
    let (command, pages) = (&child.command, lost.len());
    tracing::error!(
        command,
        pages,
        "no room in page tables for what a forked child shares: it gets SIGBUS"
    );
    let is_refused = |vpn: &Vpn| {
        let poison = child.memory.uffd.poison(vpn.addr(shared.page_bytes), shared.page_bytes);
        // Without a mapping the child does not have the page.
        matches!(poison.errno, 0 | libc::EEXIST | libc::ENOENT | libc::ESRCH)
    };
    if !lost.iter().all(is_refused) {
        child.give_up("no room in page tables for what it shares with its parent");
    }
}

/// A number that nobody guesses; 0, which no agent may say, if there is none.
fn secret() -> u64 {
    let mut secret = 0u64;
    // SAFETY: the buffer is as long as stated.
    unsafe { libc::getrandom((&raw mut secret).cast(), size_of_val(&secret), 0) };
    secret
}

fn serve(shared: &Shared, child: Arc<Process>) {
    shared.processes.write().insert(child.id, child.clone());
    if let Err(error) = child.memory.watch() {
        tracing::error!(%error, command = child.command, "cannot watch a child yet: it is asked again and again");
    }
    points::fork_served();
    let _ = shared.governor.send(ToGovernor::Forked(child));
}

//! The memory of one live program: its userfaultfd, and its agent where it has one.

mod found;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_agent::protocol::Run;
use clew_core::Vpn;
use clew_engine::{Memory, Put, PutStop, Staged, Took};

use crate::agents::agent::Agent;
use crate::faults::uffd::{Partial, Uffd};
use crate::programs::advice;
use crate::programs::mem_file::MemFile;
use crate::programs::pagemap::{PageIs, marked_pages, page_states, present_pages};
use crate::programs::robust::RobustLists;
use crate::survival::records::Descriptors;

/// Fresh pages given at once where touches are scattered, and at most where they are in order.
const FRESH_RUN: u32 = 8;
const FRESH_RUN_MAX: u32 = 64;

/// Who waits for a page asks again far more often, in milliseconds: what was refused before that is over.
const ROOM_ASKED_MS: u64 = 1000;

/// Whether a program's events may be read. They must not while its agent moves pages; before it has begun,
/// a fault may call that off. What an agent says of itself is believed: it is its own program's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// They may.
    None,
    /// Pages are marked, and the order is not sent.
    Marked { yields: bool },
    /// The order of this number is.
    Sent { yields: bool, order: u32 },
    /// A fault came first.
    CalledOff,
}

impl Hold {
    const fn word(self) -> u64 {
        match self {
            Hold::None => 0,
            Hold::CalledOff => 1,
            Hold::Marked { yields } => 2 | (yields as u64) << 2,
            Hold::Sent { yields, order } => 3 | (yields as u64) << 2 | (order as u64) << 32,
        }
    }

    const fn of(word: u64) -> Hold {
        let yields = word & 4 != 0;
        match word & 3 {
            0 => Hold::None,
            1 => Hold::CalledOff,
            2 => Hold::Marked { yields },
            _ => Hold::Sent { yields, order: (word >> 32) as u32 },
        }
    }
}

/// Programs that could not be watched so far.
static REFUSALS: AtomicU64 = AtomicU64::new(0);

/// How often the system has refused to watch a program.
pub fn refusals() -> u64 {
    REFUSALS.load(Ordering::SeqCst)
}

/// The memory of one program.
pub struct ProgramMemory {
    /// Its userfaultfd.
    pub uffd: Uffd,
    /// Pages that must stay.
    pub robust: RobustLists,
    page_bytes: u64,
    /// Set once; for a forked child later than the rest.
    agent: OnceLock<Agent>,
    pagemap: OnceLock<File>,
    /// Whether events may be read now: a [`Hold`].
    hold: AtomicU64,
    /// The fault thread has disarmed the descriptor and wants it armed again when events may be read.
    disarmed: AtomicBool,
    /// It is to be watched and is not: the system refused.
    unwatched: AtomicBool,
    /// It is not served any more.
    given_up: AtomicBool,
    /// Nor are its messages read.
    unheard: AtomicBool,
    /// It was found to exist no longer.
    ended: AtomicBool,
    /// Since when no page could be put for want of memory, 0 if one could, and when that was tried last, in
    /// milliseconds of [`now_ms`].
    no_room: [AtomicU64; 2],
    /// How often what may be in staging is looked for again in this batch.
    looks: AtomicUsize,
    epoll: RawFd,
    token: u64,
    fresh_next: AtomicU64,
    fresh_len: AtomicU32,
}

impl ProgramMemory {
    /// `epoll` and `token` are where and how its descriptor is watched.
    pub fn new(
        uffd: Uffd,
        page_bytes: u64,
        agent: Option<Agent>,
        pagemap: Option<File>,
        epoll: RawFd,
        token: u64,
    ) -> ProgramMemory {
        let memory = ProgramMemory {
            uffd,
            robust: RobustLists::default(),
            page_bytes,
            agent: agent.map(OnceLock::from).unwrap_or_default(),
            pagemap: pagemap.map(OnceLock::from).unwrap_or_default(),
            hold: AtomicU64::new(Hold::None.word()),
            disarmed: AtomicBool::new(false),
            unwatched: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            unheard: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            no_room: Default::default(),
            looks: AtomicUsize::new(found::LOOKS_AT_ALL),
            epoll,
            token,
            fresh_next: AtomicU64::new(0),
            fresh_len: AtomicU32::new(FRESH_RUN),
        };
        memory.asks_about_staging();
        memory
    }

    /// Its agent's staging is private memory.
    fn asks_about_staging(&self) {
        if let Some(agent) = self.agent.get() {
            self.uffd.asks_about(agent.staging(self.page_bytes).start);
        }
    }

    /// Its agent, if there is one that lives.
    fn agent(&self) -> Option<&Agent> {
        self.agent.get().filter(|agent| agent.is_alive())
    }

    /// Whether pages can be taken out.
    pub fn has_agent(&self) -> bool {
        self.agent().is_some()
    }

    /// Whether its agent owes an answer: it may be frozen, and gets no orders until it has given it. So does one whose
    /// memory cannot be read.
    pub fn is_silent(&self) -> bool {
        self.agent.get().is_some_and(Agent::is_silent) || self.mem().is_some_and(MemFile::was_stuck)
    }

    /// Whether a worker waits for its agent, which has begun an order and does not end it, or for its memory.
    pub fn holds_up_a_worker(&self) -> bool {
        self.agent.get().is_some_and(Agent::holds_up_a_worker)
            || self.mem().is_some_and(MemFile::is_stuck)
    }

    /// Whether one that was silent can be given orders again. Waits for nobody.
    pub fn is_heard_again(&self) -> bool {
        self.agent.get().is_some_and(Agent::is_heard_again)
            || self.mem().is_some_and(MemFile::goes_on)
    }

    fn mem(&self) -> Option<&MemFile> {
        self.agent.get().and_then(|agent| agent.mem.as_ref())
    }

    /// Whoever waits for its agent waits no longer: its memory is gone.
    pub fn hang_up(&self) {
        if let Some(agent) = self.agent.get() {
            agent.hang_up();
        }
    }

    /// Tells the agent to end. The caller has brought every page back.
    pub fn detach(&self) {
        if let Some(agent) = self.agent.get() {
            agent.detach();
        }
    }

    /// Whether its agent, which was told to end, ends within `patience`, if it has one.
    pub fn agent_ends(&self, patience: Duration) -> bool {
        self.agent.get().is_none_or(|agent| agent.ends(patience))
    }

    /// Waits until the agent is in the middle of no order of a predecessor's.
    pub fn sync(&self) {
        // Also if it is not to be used any more: it may still be at work.
        if let Some(agent) = self.agent.get() {
            agent.sync();
        }
    }

    /// Has the staging area emptied after a takeover ([`Agent::empty_staging`]). Waits for nobody.
    pub fn empty_staging(&self) {
        if let Some(agent) = self.agent.get() {
            agent.empty_staging();
        }
    }

    /// Waits until then for what [`ProgramMemory::empty_staging`] has ordered.
    pub fn staging_is_emptied(&self, until: Instant) {
        if let Some(agent) = self.agent() {
            agent.staging_is_emptied(until);
        }
    }

    /// Gives back the memory of a buffer that has not been needed for so long.
    pub fn empty_idle_buffer(&self, idle: Duration) {
        if let Some(agent) = self.agent.get() {
            agent.empty_idle_buffer(idle);
        }
    }

    /// Memory of the buffer that it shares with its agent.
    pub fn buffer_bytes(&self) -> u64 {
        self.agent.get().map_or(0, Agent::buffer_bytes)
    }

    /// Gives it its agent; nothing is to be taken out meanwhile. False if it has one.
    pub fn set_agent(&self, agent: Agent) -> bool {
        let is_first = self.agent.set(agent).is_ok();
        self.asks_about_staging();
        is_first
    }

    /// Gives it its pagemap. False if it has one.
    pub fn set_pagemap(&self, pagemap: File) -> bool {
        self.pagemap.set(pagemap).is_ok()
    }

    /// The first bytes of a page, at most so many; nothing where it is not in memory now or cannot be
    /// read. Waits for nobody: a page that leaves at this moment is an error of `/proc/PID/mem`.
    pub fn beginning_of(&self, vpn: Vpn, bytes: usize) -> Vec<u8> {
        let (address, page) = (vpn.addr(self.page_bytes), self.page_bytes);
        let mut is_here = false;
        if let Some(pagemap) = self.pagemap.get() {
            let _ = present_pages(pagemap, address, address + page, page, |_| is_here = true);
        }
        let mem = self.mem().filter(|_| is_here);
        let mut sample = vec![0; bytes.min(page as usize)];
        match mem.map(|mem| mem.read(&mut sample, address)) {
            Some(Ok(())) => sample,
            _ => Vec::new(),
        }
    }

    /// The descriptors that a successor needs.
    pub fn descriptors(&self) -> Descriptors {
        let agent = self.agent.get();
        let [socket, buffer] = agent.map(Agent::descriptors).map_or([None; 2], |d| d.map(Some));
        Descriptors {
            uffd: Some(self.uffd.as_raw_fd()),
            socket,
            buffer,
            mem: agent.and_then(|a| a.mem.as_ref()).map(|f| f.as_raw_fd()),
            pagemap: self.pagemap.get().map(|f| f.as_raw_fd()),
            ..Descriptors::default()
        }
    }

    /// Addresses of the agent's staging area and of its own.
    pub fn agents_addresses(&self) -> (u64, u64) {
        self.agent.get().map_or((0, 0), Agent::addresses)
    }

    /// Address range of the agent's staging area.
    pub fn staging(&self) -> Range<u64> {
        self.agent.get().map_or(0..0, |agent| agent.staging(self.page_bytes))
    }

    /// Address ranges of the agent's own: never to be managed.
    pub fn agents_own(&self) -> Vec<Range<u64>> {
        self.agent.get().map(Agent::area).into_iter().chain([self.staging()]).collect()
    }

    /// The program's pagemap.
    pub fn pagemap(&self) -> Option<&File> {
        self.pagemap.get()
    }

    /// Whether events may be read now; ask with the space's lock held for writing. What was not begun, and
    /// may be called off, is called off for that.
    pub fn claim_events(&self) -> bool {
        let hold = self.hold.load(Ordering::SeqCst);
        let called_off = || {
            let off = Hold::CalledOff.word();
            self.hold.compare_exchange(hold, off, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        match Hold::of(hold) {
            Hold::None | Hold::CalledOff => true,
            Hold::Marked { yields } => yields && called_off(),
            Hold::Sent { yields, order } => self.agent.get().is_some_and(|agent| {
                agent.has_moved(order) || yields && agent.calls_off(order) && called_off()
            }),
        }
    }

    /// Starts to watch the descriptor. If the system refuses, it is to be asked for messages until
    /// [`ProgramMemory::watch_again`] says that it is watched.
    pub fn watch(&self) -> io::Result<()> {
        let done = self.epoll_ctl(libc::EPOLL_CTL_ADD, libc::EPOLLIN);
        match done.is_err() {
            true => self.is_refused(),
            false => self.unwatched.store(false, Ordering::SeqCst),
        }
        done
    }

    fn is_refused(&self) {
        self.unwatched.store(true, Ordering::SeqCst);
        REFUSALS.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing is put there any more, nor taken; and nobody watches it, unless somebody still `hears` what it
    /// says. False if that was so before.
    pub fn give_up(&self, hears: bool) -> bool {
        if self.given_up.swap(true, Ordering::SeqCst) {
            return false;
        }
        if !hears {
            self.unheard.store(true, Ordering::SeqCst);
            let _ = self.epoll_ctl(libc::EPOLL_CTL_DEL, 0);
            self.unwatched.store(false, Ordering::SeqCst);
        }
        self.hang_up();
        true
    }

    /// Whether its messages are to be read: unless it was given up without.
    pub fn is_heard(&self) -> bool {
        !self.unheard.load(Ordering::SeqCst)
    }

    /// Tells it who it is: this is what its beacon holds, also where nothing else is put any more. False if
    /// there is something, or it cannot be put now.
    pub fn put_beacon(&self, beacon: Vpn, bytes: &[u8]) -> bool {
        let copied = self.uffd.copy(beacon.addr(self.page_bytes), bytes);
        self.note_room(copied);
        copied.errno == 0
    }

    /// The page at `address` can be written again, whoever waits to.
    pub fn unmark(&self, address: u64) {
        let page = address / self.page_bytes * self.page_bytes;
        // Who faulted while mappings changed does so again.
        if self.uffd.unmark(page, self.page_bytes, true).is_err() {
            let _ = self.uffd.wake(page, self.page_bytes);
        }
    }

    /// Tells, ascending, the parts of `range` in which pages that were taken out have their marks still: no mapping
    /// there has ended since. Nothing of a child that has not said who it is, nor where nobody has this memory any more:
    /// a program that ends, or executes another, right after it has unmapped something.
    ///
    /// # Errors
    /// If that cannot be looked at.
    pub fn for_marked(&self, range: Range<u64>, found: impl FnMut(Range<u64>)) -> io::Result<()> {
        match self.pagemap.get().map(|pagemap| marked_pages(pagemap, range, found)) {
            Some(Err(error)) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whoever touches the page gets SIGBUS, who waits for it too.
    pub fn refuse(&self, vpn: Vpn) {
        self.uffd.poison(vpn.addr(self.page_bytes), self.page_bytes);
        self.wake(vpn, 1);
    }

    /// Whether [`ProgramMemory::give_up`] was called.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Whether it was found to exist no longer; asks nobody.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// For how long the kernel has had no memory for any page of it, if it had none a moment ago: its control group is
    /// at its limit, perhaps.
    pub fn has_no_room_since(&self) -> Option<Duration> {
        let [since, last] = [0, 1].map(|i| self.no_room[i].load(Ordering::Relaxed));
        let now = now_ms();
        let is_so = since != 0 && now.saturating_sub(last) < ROOM_ASKED_MS;
        is_so.then(|| Duration::from_millis(now.saturating_sub(since)))
    }

    fn note_room(&self, put: Partial) {
        if put.errno == libc::ENOMEM && put.bytes == 0 {
            if self.has_no_room_since().is_none() {
                self.no_room[0].store(now_ms(), Ordering::Relaxed);
            }
            self.no_room[1].store(now_ms(), Ordering::Relaxed);
        } else if put.bytes > 0 && self.no_room[0].load(Ordering::Relaxed) != 0 {
            self.no_room[0].store(0, Ordering::Relaxed);
        }
    }

    /// Asks whether it still exists, unless that is known; whether it is found to have ended now. May wait as
    /// long as its program's threads change their mappings.
    pub fn look_whether_ended(&self) -> bool {
        !self.has_ended() && !self.uffd.is_alive() && !self.ended.swap(true, Ordering::SeqCst)
    }

    /// Its agent's process id, if it ever had one.
    pub fn agent_pid(&self) -> Option<u32> {
        self.agent.get().map(Agent::pid)
    }

    /// Tries again what the system has refused; nearly always there is nothing to do. Whether it is watched.
    pub fn watch_again(&self) -> bool {
        if !self.unwatched.load(Ordering::SeqCst) {
            return true;
        }
        // Somebody else may be faster.
        let is_there = |error: io::Error| error.raw_os_error() == Some(libc::EEXIST);
        let done = self.epoll_ctl(libc::EPOLL_CTL_MOD, libc::EPOLLIN).is_ok()
            || self.epoll_ctl(libc::EPOLL_CTL_ADD, libc::EPOLLIN).map_or_else(is_there, |()| true);
        // Never said before it is so: who asks for its messages would stop.
        if done {
            self.unwatched.store(false, Ordering::SeqCst);
        }
        done
    }

    /// No message is heard of until [`ProgramMemory::look_again`].
    pub fn lay_aside(&self) {
        let _ = self.epoll_ctl(libc::EPOLL_CTL_MOD, 0);
        self.disarmed.store(true, Ordering::SeqCst);
    }

    /// The fault thread found events held: it looks away until they are released.
    pub fn look_away(&self) {
        self.lay_aside();
        if self.hold.load(Ordering::SeqCst) == Hold::None.word() {
            self.look_again();
        }
    }

    /// Whoever was laid aside is heard again.
    pub fn look_again(&self) {
        if self.disarmed.swap(false, Ordering::SeqCst)
            && self.epoll_ctl(libc::EPOLL_CTL_MOD, libc::EPOLLIN).is_err()
        {
            self.is_refused();
        }
    }

    fn epoll_ctl(&self, operation: i32, events: i32) -> io::Result<()> {
        if !self.is_heard() && operation != libc::EPOLL_CTL_DEL {
            return Ok(());
        }
        let mut event = libc::epoll_event { events: events as u32, u64: self.token };
        // SAFETY: `event` lives across the call.
        let done =
            unsafe { libc::epoll_ctl(self.epoll, operation, self.uffd.as_raw_fd(), &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether program `pid` has ended, or has left this memory (execve), and an agent that takes orders runs on in it.
    pub fn agent_outlived(&self, pid: u32) -> bool {
        self.agent().is_some_and(|agent| agent.outlives(pid))
    }

    /// Ends the agent of program `pid` that has ended, or has left this memory (execve), where the agent has not noticed: it
    /// is told first, and killed the next time. It may wait for a page of its own program's, or be stopped.
    pub fn end_outliving_agent(&self, pid: u32) {
        match self.agent.get().filter(|agent| agent.outlives(pid)) {
            Some(agent) if agent.is_alive() => agent.detach(),
            Some(agent) => agent.kill(),
            None => {}
        }
    }

    /// Ends an agent that a worker waits for, at once.
    pub fn kill_agent_that_holds_up(&self) {
        if let Some(agent) = self.agent.get().filter(|agent| agent.holds_up_a_worker()) {
            agent.kill();
        }
    }

    /// The order of this number is about to be sent; false if it was called off.
    fn sends(&self, order: u32) -> bool {
        let before = self.hold.load(Ordering::SeqCst);
        let Hold::Marked { yields } = Hold::of(before) else {
            // Nobody holds events, or they are not held any more.
            return before != Hold::CalledOff.word();
        };
        let sent = Hold::Sent { yields, order }.word();
        self.hold.compare_exchange(before, sent, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// `vpns` (ascending), but for those in `without` (ascending).
    fn runs(&self, vpns: &[Vpn], without: &[Vpn]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let is_wanted = |(_, vpn): &(usize, &Vpn)| without.binary_search(vpn).is_err();
        for (i, vpn) in vpns.iter().enumerate().filter(is_wanted) {
            let src = vpn.addr(self.page_bytes);
            match runs.last_mut() {
                Some(last) if last.src + u64::from(last.pages) * self.page_bytes == src => {
                    last.pages += 1;
                }
                _ => runs.push(Run { src, slot: i as u32, pages: 1 }),
            }
        }
        runs
    }

    /// Those pages of `runs` that are registered: of others the kernel would give zeros when they are
    /// touched again. While mappings change, the kernel moves none.
    fn registered(&self, runs: Vec<Run>) -> Vec<Run> {
        let covers = |run: &Run| {
            self.uffd.covers(run.src, u64::from(run.pages) * self.page_bytes) != Some(false)
        };
        let mut found = Vec::with_capacity(runs.len());
        let (mut stay, mut first) = (0, None);
        for run in runs {
            if covers(&run) {
                found.push(run);
                continue;
            }
            // It may lie in several mappings.
            let page = |i: u32| {
                let src = run.src + u64::from(i) * self.page_bytes;
                Run { src, slot: run.slot + i, pages: 1 }
            };
            let pages = (0..run.pages).map(page).filter(covers);
            let before = found.len();
            found.extend(pages);
            let left = run.pages as usize - (found.len() - before);
            if left > 0 {
                stay += left;
                first.get_or_insert(run.src);
            }
        }
        if let Some(first) = first {
            tracing::warn!(stay, "pages from {first:#x} on are not registered: they stay");
        }
        found
    }
}

/// What comes of a page for a program that is not served any more: it stays stored.
const GIVEN_UP: Put = Put { pages: 0, stop: Some(PutStop::Gone) };

/// Milliseconds since this process first asked, and one more.
fn now_ms() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

fn put_result(partial: Partial, page_bytes: u64) -> Put {
    let pages = (partial.bytes / page_bytes) as usize;
    let stop = match partial.errno {
        0 => None,
        // No memory now: the page is asked for again until there is.
        libc::EAGAIN | libc::ENOMEM => Some(PutStop::Again),
        libc::EEXIST => Some(PutStop::Exists),
        _ => Some(PutStop::Gone),
    };
    Put { pages, stop }
}

impl Memory for ProgramMemory {
    fn hold_events(&self, yields: bool) {
        self.hold.store(Hold::Marked { yields }.word(), Ordering::SeqCst);
    }

    fn release_events(&self) {
        self.hold.store(Hold::None.word(), Ordering::SeqCst);
        self.look_again();
    }

    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        took.clear();
        took.resize(vpns.len(), Took::Stayed);
        self.looks.store(found::LOOKS_AT_ALL, Ordering::Relaxed);
        if let Some(agent) = self.agent() {
            let stay = self.robust.among(vpns, self.page_bytes, agent.mem.as_ref());
            let runs = self.registered(self.runs(vpns, &stay));
            let check = |took: &mut [Took]| self.find_moved(agent, &runs, took);
            let recover = |took: &mut [Took]| self.recover(agent, took);
            let sends = |order: u32| self.sends(order);
            agent.take(&runs, took, sends, check, recover);
            if self.hold.load(Ordering::SeqCst) == Hold::CalledOff.word() {
                took.fill(Took::CalledOff);
            }
        }
    }

    fn finish_taking(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        let Some(agent) = self.agent.get() else { return };
        agent.copied(took, |took| self.recover_copies(agent, took));
        // Of these nobody writes any more: what a thread had locked when they left is on its list by now.
        let staging = self.staging();
        let is_taken = |slot: &usize| took.get(*slot) == Some(&Took::Taken);
        let left = |vpn: &Vpn| vpns.binary_search(vpn).ok().filter(is_taken);
        let moved = |address: u64| {
            let (vpn, at) = (Vpn::of_addr(address, self.page_bytes), address % self.page_bytes);
            left(&vpn).map_or(address, |slot| staging.start + slot as u64 * self.page_bytes + at)
        };
        let needed = self.robust.among_left(vpns, self.page_bytes, agent.mem.as_ref(), moved);
        let slots: Vec<usize> = needed.iter().filter_map(left).collect();
        slots.into_iter().for_each(|slot| took[slot] = Took::Needed);
    }

    fn copy_taken(&self, i: usize, out: &mut [u8]) -> bool {
        let Some(agent) = self.agent.get() else { return false };
        let Err(error) = agent.copy_taken(i, out) else { return true };
        // The kernel cannot read it from its own swap, or has no memory for it in the control group of who had it first:
        // the program's doing, perhaps. It is in staging still.
        let is_found = self.staged(i, out) == Staged::Copied;
        tracing::warn!(pid = agent.pid(), %error, is_found, "a page that an agent has copied cannot be read");
        is_found
    }

    fn release_taken(&self) {
        if let Some(agent) = self.agent() {
            agent.release_taken();
        }
    }

    fn lend(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        took.clear();
        took.resize(vpns.len(), Took::Stayed);
        let Some(agent) = self.agent() else { return };
        let Some(pagemap) = self.pagemap.get() else { return };
        let Some(process) = agent.process().filter(|_| self.uffd.is_alive()) else { return };
        let runs = self.runs(vpns, &[]);
        let range = |run: &Run| (run.src, u64::from(run.pages) * self.page_bytes);
        let ranges: Vec<(u64, u64)> = runs.iter().map(range).collect();
        if let Err(error) = advice::advise(process, &ranges, libc::MADV_PAGEOUT) {
            tracing::debug!(pid = agent.pid(), %error, "pages cannot be given to the kernel's swap");
        }
        for run in &runs {
            let slots = &mut took[run.slot as usize..][..run.pages as usize];
            let first = Vpn::of_addr(run.src, self.page_bytes);
            let Ok(states) = page_states(pagemap, first, slots.len()) else { continue };
            for (took, is) in slots.iter_mut().zip(states) {
                *took = match is {
                    PageIs::Swapped => Took::Taken,
                    PageIs::Present => Took::Stayed,
                    PageIs::Nothing => Took::Hole,
                };
            }
        }
    }

    fn unshare(&self, vpns: &[Vpn]) -> bool {
        self.agent().is_some_and(|agent| agent.unshare(&self.runs(vpns, &[])))
    }

    fn put(&self, first: Vpn, bytes: &[u8]) -> Put {
        if self.is_given_up() {
            return GIVEN_UP;
        }
        let copied = self.uffd.copy(first.addr(self.page_bytes), bytes);
        self.note_room(copied);
        put_result(copied, self.page_bytes)
    }

    fn put_zero(&self, first: Vpn, count: usize) -> Put {
        if self.is_given_up() {
            return GIVEN_UP;
        }
        let len = count as u64 * self.page_bytes;
        put_result(self.uffd.zero(first.addr(self.page_bytes), len), self.page_bytes)
    }

    fn wake(&self, first: Vpn, count: usize) {
        let _ = self.uffd.wake(first.addr(self.page_bytes), count as u64 * self.page_bytes);
    }

    fn fresh_run(&self, vpn: Vpn) -> usize {
        // Touches in order get twice as much each time, as read-ahead does.
        let in_order = self.fresh_next.load(Ordering::Relaxed) == vpn.0;
        let len = match in_order {
            true => (self.fresh_len.load(Ordering::Relaxed) * 2).min(FRESH_RUN_MAX),
            false => FRESH_RUN,
        };
        self.fresh_len.store(len, Ordering::Relaxed);
        self.fresh_next.store(vpn.0 + u64::from(len), Ordering::Relaxed);
        len as usize
    }
}

#[cfg(test)]
mod tests;

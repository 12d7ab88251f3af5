//! The memory of one live program: its userfaultfd, and its agent where it has one.
//!
//! Lock order: `link` (orders to the agent) after the space's batch lock; nothing is taken while it
//! is held.
//!
//! An agent may be silent for as long as it likes: it may be frozen. An order that it has not begun
//! is called off after [`PATIENCE`], as if it had never been given; one that it has begun (pages may
//! be in staging) is waited for as long as it lives. An agent that owes an answer gets no further
//! order, and is called silent, until it has given it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_agent::protocol::{
    AREA_BYTES, BUFFER_BYTES, CALL_AT, Call, Header, Kind, MAGIC, Run, SLOTS, SlotState, Taken,
    call_word,
};
use clew_core::Vpn;
use clew_engine::{Memory, Put, PutStop, Staged, Took};
use parking_lot::Mutex;

use crate::advice;
use crate::mappings::{PageIs, page_states, present_pages};
use crate::registry::Descriptors;
use crate::seqpacket;
use crate::uffd::{Partial, Uffd};

/// Fresh pages given at once where touches are scattered, and at most where they are in order.
const FRESH_RUN: u32 = 8;
const FRESH_RUN_MAX: u32 = 64;

/// How long an agent may leave an order alone before it is called off.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How often a page is looked for, a millisecond apart, before it is given up as lost.
const LOOKS: usize = 200;

/// Before what failed for want of something passing is tried again.
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// A shared mapping of the buffer that an agent fills. The program's memory shows it too: it is
/// never a Rust reference, only copied from.
struct Buffer {
    base: NonNull<u8>,
    fd: OwnedFd,
    bytes: usize,
}

// SAFETY: only raw copies touch the memory, and the mapping lives as long as the value.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// By which orders are begun or called off.
    fn call(&self) -> &AtomicU64 {
        // SAFETY: the mapping is that long, lives as long as this value, and the word is aligned.
        unsafe { &*self.base.as_ptr().add(CALL_AT).cast::<AtomicU64>() }
    }

    /// Calls off the order of this number, or if none is named whatever order is not begun; false
    /// if there is none that can be.
    fn call_off(&self, number: Option<u32>) -> bool {
        let word = self.call().load(Ordering::Acquire);
        let number = number.unwrap_or((word >> 32) as u32);
        let (pending, off) = (call_word(number, Call::Pending), call_word(number, Call::CalledOff));
        self.call().compare_exchange(pending, off, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives the memory of all its pages back; the call word stays.
    fn empty(&self) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain system call on our descriptor.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, 0, CALL_AT as libc::off_t) == 0 }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody holds a pointer into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The daemon's end of one agent.
pub struct Agent {
    socket: OwnedFd,
    pid: u32,
    buffer: Buffer,
    staging: u64,
    area: u64,
    /// The program's `mem` and `pagemap`, to find what a dead agent left in staging.
    mem: Option<File>,
    alive: AtomicBool,
    /// It owes an answer.
    silent: AtomicBool,
    /// It has begun an order, and somebody waits for the end of it for longer than usual.
    holds_up: AtomicBool,
    /// Number of the last order.
    orders: AtomicU32,
    /// Its process as a descriptor, from when it is first needed.
    process: OnceLock<OwnedFd>,
}

/// What is known between one order and the next.
#[derive(Default)]
struct Link {
    /// What each page of the batch under way occupies.
    slots: Vec<Took>,
    /// The order whose answer the agent owes.
    owed: Option<(u32, Kind)>,
    /// When the buffer was filled last, unless its memory was given back since.
    filled: Option<Instant>,
}

/// Why an order was not carried out, as far as is known.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("the agent is gone: {0}")]
    Gone(#[from] io::Error),
    #[error("the agent is silent")]
    Silent,
}

/// The memory of one program.
pub struct ProgramMemory {
    /// Its userfaultfd.
    pub uffd: Uffd,
    page_bytes: u64,
    /// Set once; for a forked child later than the rest.
    agent: OnceLock<Agent>,
    pagemap: OnceLock<File>,
    /// One order at a time.
    link: Mutex<Link>,
    /// Events are not to be read now.
    taking: AtomicBool,
    /// The fault thread has disarmed the descriptor and wants it armed again after `taking`.
    disarmed: AtomicBool,
    /// It is to be watched and is not: the system refused.
    unwatched: AtomicBool,
    /// Memory of the buffer that it shares with its agent.
    buffer_bytes: AtomicUsize,
    epoll: RawFd,
    token: u64,
    fresh_next: AtomicU64,
    fresh_len: AtomicU32,
}

impl Agent {
    /// Maps the buffer that was handed to the agent behind `socket`. No two generations of daemons
    /// give their orders the same numbers.
    pub fn new(
        socket: OwnedFd,
        buffer: OwnedFd,
        staging: u64,
        area: u64,
        mem: Option<File>,
        generation: u64,
    ) -> io::Result<Agent> {
        let bytes = BUFFER_BYTES;
        // SAFETY: a fresh shared mapping of a memfd of that size; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                buffer.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let buffer = Buffer { base, fd: buffer, bytes };
        let pid = seqpacket::peer(&socket)?.pid as u32;
        let orders = AtomicU32::new((generation as u32) << 24);
        let (alive, silent, holds_up) =
            (AtomicBool::new(true), AtomicBool::default(), AtomicBool::default());
        Ok(Agent {
            socket,
            pid,
            buffer,
            staging,
            area,
            mem,
            alive,
            silent,
            holds_up,
            orders,
            process: OnceLock::new(),
        })
    }

    /// The answer to order `number`, or nothing within `patience` (`None`: for ever).
    fn answer_to(
        &self,
        number: u32,
        patience: Option<Duration>,
        answer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        loop {
            if patience.is_some_and(|patience| !seqpacket::is_readable(&self.socket, patience)) {
                return Ok(None);
            }
            let n = match seqpacket::receive(&self.socket, answer) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((n, _)) => n,
                // It works on; whoever took it for dead would look for pages before they have moved.
                Err(error) if seqpacket::is_passing(&error) => {
                    pause();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_answer = n >= size_of::<Header>()
                && answer[..4] == MAGIC.to_ne_bytes()
                && answer[12..16] == number.to_ne_bytes();
            // Others are to orders of a predecessor that died.
            if is_answer {
                return Ok(Some(n));
            }
        }
    }
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
        // A predecessor may have filled the buffer.
        let link = Link { filled: Some(Instant::now()), ..Link::default() };
        ProgramMemory {
            uffd,
            page_bytes,
            agent: agent.map(OnceLock::from).unwrap_or_default(),
            pagemap: pagemap.map(OnceLock::from).unwrap_or_default(),
            link: Mutex::new(link),
            taking: AtomicBool::new(false),
            disarmed: AtomicBool::new(false),
            unwatched: AtomicBool::new(false),
            buffer_bytes: AtomicUsize::new(0),
            epoll,
            token,
            fresh_next: AtomicU64::new(0),
            fresh_len: AtomicU32::new(FRESH_RUN),
        }
    }

    /// Whether pages can be taken out.
    pub fn has_agent(&self) -> bool {
        self.agent.get().is_some_and(|a| a.alive.load(Ordering::Acquire))
    }

    /// Whether its agent owes an answer: it may be frozen, and gets no orders until it has given it.
    pub fn is_silent(&self) -> bool {
        self.has_agent() && self.agent.get().is_some_and(|a| a.silent.load(Ordering::Acquire))
    }

    /// Whether a worker waits for its agent, which has begun an order and does not end it.
    pub fn holds_up_a_worker(&self) -> bool {
        self.agent.get().is_some_and(|a| a.holds_up.load(Ordering::Acquire))
    }

    /// Takes the answer that a silent agent owes, if it has come: whether it can be given orders
    /// again. Waits for nobody.
    pub fn is_heard_again(&self) -> bool {
        let Some(agent) = self.agent.get().filter(|_| self.is_silent()) else { return false };
        let Some(mut link) = self.link.try_lock() else { return false };
        self.settle(agent, &mut link, Duration::ZERO).is_ok()
    }

    /// Whoever waits for its agent waits no longer: its memory is gone.
    pub fn hang_up(&self) {
        if let Some(agent) = self.agent.get() {
            agent.alive.store(false, Ordering::Release);
            seqpacket::hang_up(&agent.socket);
        }
    }

    /// Gives it its agent; nothing is to be taken out meanwhile. False if it has one.
    pub fn set_agent(&self, agent: Agent) -> bool {
        self.agent.set(agent).is_ok()
    }

    /// Gives it its pagemap. False if it has one.
    pub fn set_pagemap(&self, pagemap: File) -> bool {
        self.pagemap.set(pagemap).is_ok()
    }

    /// The descriptors that a successor needs.
    pub fn descriptors(&self) -> Descriptors {
        let agent = self.agent.get();
        Descriptors {
            uffd: Some(self.uffd.as_raw_fd()),
            socket: agent.map(|a| a.socket.as_raw_fd()),
            buffer: agent.map(|a| a.buffer.fd.as_raw_fd()),
            mem: agent.and_then(|a| a.mem.as_ref()).map(|f| f.as_raw_fd()),
            pagemap: self.pagemap.get().map(|f| f.as_raw_fd()),
            ..Descriptors::default()
        }
    }

    /// Addresses of the agent's staging area and of its own.
    pub fn agents_addresses(&self) -> (u64, u64) {
        self.agent.get().map_or((0, 0), |a| (a.staging, a.area))
    }

    /// Address range of the agent's staging area.
    pub fn staging(&self) -> std::ops::Range<u64> {
        self.agent.get().map_or(0..0, |a| a.staging..a.staging + SLOTS as u64 * self.page_bytes)
    }

    /// Address ranges of the agent's own: never to be managed.
    pub fn agents_own(&self) -> Vec<std::ops::Range<u64>> {
        let area = |a: &Agent| a.area..a.area + AREA_BYTES as u64;
        self.agent.get().into_iter().map(area).chain([self.staging()]).collect()
    }

    /// The program's pagemap.
    pub fn pagemap(&self) -> Option<&File> {
        self.pagemap.get()
    }

    /// Whether events may be read now; ask with the space's lock held for writing.
    pub fn events_held(&self) -> bool {
        self.taking.load(Ordering::Acquire)
    }

    /// Starts to watch the descriptor. If the system refuses, [`ProgramMemory::watch_again`] is to be
    /// called until it does not, or the program waits for ever.
    pub fn watch(&self) -> io::Result<()> {
        let done = self.epoll_ctl(libc::EPOLL_CTL_ADD, libc::EPOLLIN);
        self.unwatched.store(done.is_err(), Ordering::SeqCst);
        done
    }

    /// Tries again what the system has refused; nearly always there is nothing to do.
    pub fn watch_again(&self) {
        if !self.unwatched.swap(false, Ordering::SeqCst) {
            return;
        }
        let modified = self.epoll_ctl(libc::EPOLL_CTL_MOD, libc::EPOLLIN);
        if modified.is_err() && self.epoll_ctl(libc::EPOLL_CTL_ADD, libc::EPOLLIN).is_err() {
            self.unwatched.store(true, Ordering::SeqCst);
        }
    }

    /// The fault thread found events held: it looks away until they are released.
    pub fn look_away(&self) {
        let _ = self.epoll_ctl(libc::EPOLL_CTL_MOD, 0);
        self.disarmed.store(true, Ordering::SeqCst);
        if !self.taking.load(Ordering::SeqCst) {
            self.rearm();
        }
    }

    fn rearm(&self) {
        if self.disarmed.swap(false, Ordering::SeqCst)
            && self.epoll_ctl(libc::EPOLL_CTL_MOD, libc::EPOLLIN).is_err()
        {
            self.unwatched.store(true, Ordering::SeqCst);
        }
    }

    fn epoll_ctl(&self, operation: i32, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: self.token };
        // SAFETY: `event` lives across the call.
        let done =
            unsafe { libc::epoll_ctl(self.epoll, operation, self.uffd.as_raw_fd(), &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the agent runs on in memory that process `pid` has left (execve).
    pub fn agent_outlived(&self, pid: u32) -> bool {
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return false };
        crate::attach::share_memory(agent.pid, pid) == Some(false)
    }

    /// Tells the agent to end. The caller has brought every page back.
    pub fn detach(&self) {
        if let Some(agent) = self.agent.get() {
            agent.alive.store(false, Ordering::Release);
            let _ = seqpacket::send(&agent.socket, [&header_bytes(Kind::Detach, 0, 0)], &[]);
        }
    }

    /// One order and its answer. Without one the agent is dead, or it is silent and will not carry
    /// the order out.
    fn order(
        &self,
        agent: &Agent,
        link: &mut Link,
        (kind, value): (Kind, u32),
        runs: &[Run],
        answer: &mut [u8],
    ) -> Result<usize, Unanswered> {
        // Not waited for: its answer may have to wait for events that are held.
        self.settle(agent, link, Duration::ZERO)?;
        let result = self.fresh_order(agent, link, (kind, value), runs, answer);
        if matches!(result, Err(Unanswered::Gone(_))) {
            agent.alive.store(false, Ordering::Release);
        }
        result
    }

    fn fresh_order(
        &self,
        agent: &Agent,
        link: &mut Link,
        (kind, value): (Kind, u32),
        runs: &[Run],
        answer: &mut [u8],
    ) -> Result<usize, Unanswered> {
        let number = self.give(agent, (kind, value), runs)?;
        if let Some(n) = agent.answer_to(number, Some(PATIENCE), answer)? {
            return Ok(n);
        }
        let is_begun = match kind {
            Kind::Take | Kind::Unshare => !agent.buffer.call_off(Some(number)),
            // A successor must know what became of its predecessor's orders.
            Kind::Sync => true,
            _ => false,
        };
        if is_begun {
            agent.holds_up.store(true, Ordering::Release);
            let answered = agent.answer_to(number, None, answer);
            agent.holds_up.store(false, Ordering::Release);
            return answered?.ok_or(Unanswered::Silent);
        }
        tracing::info!(agent = agent.pid, ?kind, "an agent is silent; it may be frozen");
        link.owed = Some((number, kind));
        agent.silent.store(true, Ordering::Release);
        Err(Unanswered::Silent)
    }

    /// Gives an order without waiting for its answer; its number.
    fn give(&self, agent: &Agent, (kind, value): (Kind, u32), runs: &[Run]) -> io::Result<u32> {
        let number = agent.orders.fetch_add(1, Ordering::Relaxed);
        if matches!(kind, Kind::Take | Kind::Unshare) {
            agent.buffer.call().store(call_word(number, Call::Pending), Ordering::Release);
        }
        let head = header_bytes(kind, value, number);
        // SAFETY: Run is plain numbers without padding.
        let body =
            unsafe { std::slice::from_raw_parts(runs.as_ptr().cast::<u8>(), size_of_val(runs)) };
        loop {
            match seqpacket::send(&agent.socket, [&head, body], &[]) {
                Err(error) if seqpacket::is_passing(&error) => pause(),
                other => return other.map(|()| number),
            }
        }
    }

    /// Waits for the answer that is owed, if one is.
    fn settle(&self, agent: &Agent, link: &mut Link, patience: Duration) -> Result<(), Unanswered> {
        let Some((number, kind)) = link.owed else { return Ok(()) };
        let mut answer = vec![0u8; size_of::<Taken>()];
        let answered = agent.answer_to(number, Some(patience), &mut answer).inspect_err(|error| {
            tracing::debug!(%error, "an agent is gone that was silent");
            agent.alive.store(false, Ordering::Release);
        });
        if answered?.is_none() {
            agent.silent.store(true, Ordering::Release);
            return Err(Unanswered::Silent);
        }
        link.owed = None;
        agent.silent.store(false, Ordering::Release);
        if kind == Kind::Release {
            self.is_released(agent, &answer)?;
        }
        Ok(())
    }

    /// Gives back the memory of a buffer that has not been needed for so long.
    pub fn empty_idle_buffer(&self, idle: Duration) {
        let Some(agent) = self.agent.get() else { return };
        // Not in the middle of an order, nor of a batch.
        let Some(mut link) = self.link.try_lock() else { return };
        let is_free = !link.slots.contains(&Took::Taken);
        if is_free && link.filled.is_some_and(|when| when.elapsed() >= idle) && agent.buffer.empty()
        {
            link.filled = None;
            self.buffer_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Memory of the buffer that it shares with its agent.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes.load(Ordering::Relaxed) as u64
    }

    /// What the answer to a `Release` says.
    fn is_released(&self, agent: &Agent, answer: &[u8]) -> io::Result<()> {
        if answer[8..12] == [0; 4] {
            return Ok(());
        }
        // What stays in staging would be taken for pages of a later batch.
        tracing::warn!("an agent cannot empty its staging area: it is not used any more");
        agent.alive.store(false, Ordering::Release);
        Err(io::Error::other("its staging area cannot be emptied"))
    }

    /// Waits until the agent is in the middle of no order of a predecessor's. One that it has not
    /// begun, it never will.
    pub fn sync(&self) {
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return };
        let mut link = self.link.lock();
        if !agent.buffer.call_off(None) {
            let mut answer = vec![0u8; size_of::<Taken>()];
            let _ = self.order(agent, &mut link, (Kind::Sync, 0), &[], &mut answer);
        }
    }

    /// Copies what is in slot `slot` of the staging area.
    pub fn staged(&self, slot: usize, out: &mut [u8]) -> Staged {
        let files = self.agent.get().and_then(|a| Some((a, a.mem.as_ref()?)));
        let (Some((agent, mem)), Some(pagemap)) = (files, self.pagemap.get()) else {
            return Staged::Unknown;
        };
        let address = agent.staging + slot as u64 * self.page_bytes;
        let end = address + self.page_bytes;
        let mut tries = 0;
        loop {
            let mut is_there = false;
            let looked = present_pages(pagemap, address, end, self.page_bytes, |_| is_there = true)
                .and_then(|()| Ok(is_there || self.is_swapped(pagemap, address)?));
            match looked {
                Ok(false) => return Staged::Empty,
                Ok(true) if mem.read_exact_at(out, address).is_ok() => return Staged::Copied,
                _ => {}
            }
            // A page is lost with this, so it has to be certain.
            tries += 1;
            if tries == LOOKS || !self.uffd.is_alive() {
                return Staged::Unknown;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the staging area emptied after a takeover, before anything else is ordered. Waits for
    /// nobody; [`ProgramMemory::staging_is_emptied`] does.
    pub fn empty_staging(&self) {
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return };
        let mut link = self.link.lock();
        match self.give(agent, (Kind::Release, SLOTS as u32), &[]) {
            Ok(number) => link.owed = Some((number, Kind::Release)),
            Err(_) => agent.alive.store(false, Ordering::Release),
        }
    }

    /// Waits until then for what [`ProgramMemory::empty_staging`] has ordered.
    pub fn staging_is_emptied(&self, until: Instant) {
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return };
        let patience = until.saturating_duration_since(Instant::now());
        let _ = self.settle(agent, &mut self.link.lock(), patience);
    }

    /// Whether a page is in the kernel's swap: it may have gone there since it was moved.
    fn is_swapped(&self, pagemap: &File, address: u64) -> io::Result<bool> {
        match page_states(pagemap, Vpn::of_addr(address, self.page_bytes), 1) {
            Ok(states) => Ok(states[0] == PageIs::Swapped),
            // The memory is gone.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn runs(&self, vpns: &[Vpn]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (i, vpn) in vpns.iter().enumerate() {
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

    /// What a dead agent left in staging is copied to the buffer; the rest never left the program.
    /// What cannot be looked at may be here or there, and is lost.
    fn recover(&self, agent: &Agent, took: &mut [Took]) {
        let mut page = vec![0u8; self.page_bytes as usize];
        for (slot, took) in took.iter_mut().enumerate() {
            *took = match self.staged(slot, &mut page) {
                Staged::Empty => Took::Stayed,
                Staged::Unknown => Took::Lost,
                Staged::Copied => {
                    // SAFETY: `slot` is below SLOTS, the mapping holds SLOTS pages.
                    unsafe {
                        let to = agent.buffer.base.as_ptr().add(slot * page.len());
                        std::ptr::copy_nonoverlapping(page.as_ptr(), to, page.len());
                    }
                    Took::Taken
                }
            };
        }
        let lost = took.iter().filter(|t| **t == Took::Lost).count();
        if lost > 0 && self.uffd.is_alive() {
            tracing::error!(
                lost,
                "an agent died in the middle of an order and its staging area cannot be read: the \
                 program gets SIGBUS when it touches these pages"
            );
        }
    }
}

fn header_bytes(kind: Kind, value: u32, number: u32) -> [u8; size_of::<Header>()] {
    let header = Header::new(kind, value, number);
    let mut bytes = [0; size_of::<Header>()];
    let words = [header.magic, header.kind, header.value, header.detail];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
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
    fn hold_events(&self) {
        self.taking.store(true, Ordering::SeqCst);
    }

    fn release_events(&self) {
        self.taking.store(false, Ordering::SeqCst);
        self.rearm();
    }

    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        took.clear();
        took.resize(vpns.len(), Took::Stayed);
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return };
        let mut link = self.link.lock();
        let mut answer = vec![0u8; size_of::<Taken>()];
        let runs = self.runs(vpns);
        let order = (Kind::Take, runs.len() as u32);
        match self.order(agent, &mut link, order, &runs, &mut answer) {
            Ok(n) if n == size_of::<Taken>() => {
                let states = &answer[size_of::<Header>()..];
                for (took, state) in took.iter_mut().zip(states) {
                    *took = match SlotState::from_u8(*state) {
                        SlotState::Taken => Took::Taken,
                        SlotState::Hole => Took::Hole,
                        SlotState::Busy => Took::Busy,
                        SlotState::Unused | SlotState::Refused | SlotState::Skipped => Took::Stayed,
                    };
                }
            }
            // It has taken nothing, and will not.
            Err(Unanswered::Silent) => {}
            outcome => {
                tracing::debug!(?outcome, "an agent is gone in the middle of an order");
                agent.alive.store(false, Ordering::Release);
                self.recover(agent, took);
            }
        }
        link.slots.clone_from(took);
        link.filled = Some(Instant::now());
        let filled = took.len() * self.page_bytes as usize;
        self.buffer_bytes.fetch_max(filled, Ordering::Relaxed);
    }

    fn copy_taken(&self, i: usize, out: &mut [u8]) {
        let Some(agent) = self.agent.get() else { return };
        assert!(i < SLOTS && out.len() == self.page_bytes as usize);
        // SAFETY: the buffer holds SLOTS pages. The program could write to it meanwhile: what is
        // copied is then what its own agent made of its own memory.
        unsafe {
            let from = agent.buffer.base.as_ptr().add(i * out.len());
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
        }
    }

    fn release_taken(&self) {
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return };
        let mut link = self.link.lock();
        let used = link.slots.iter().rposition(|t| *t == Took::Taken).map_or(0, |last| last + 1);
        link.slots.clear();
        if used > 0 {
            let mut answer = [0u8; size_of::<Header>()];
            let order = (Kind::Release, used as u32);
            if self.order(agent, &mut link, order, &[], &mut answer).is_ok() {
                let _ = self.is_released(agent, &answer);
            }
        }
    }

    fn lend(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        took.clear();
        took.resize(vpns.len(), Took::Stayed);
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return };
        let Some(pagemap) = self.pagemap.get() else { return };
        if agent.process.get().is_none()
            && let Ok(process) = advice::pidfd(agent.pid)
        {
            let _ = agent.process.set(process);
        }
        let Some(process) = agent.process.get().filter(|_| self.uffd.is_alive()) else { return };
        let runs = self.runs(vpns);
        let range = |run: &Run| (run.src, u64::from(run.pages) * self.page_bytes);
        let ranges: Vec<(u64, u64)> = runs.iter().map(range).collect();
        if let Err(error) = advice::advise(process, &ranges, libc::MADV_PAGEOUT) {
            tracing::debug!(pid = agent.pid, %error, "pages cannot be given to the kernel's swap");
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
        let Some(agent) = self.agent.get().filter(|_| self.has_agent()) else { return false };
        let mut link = self.link.lock();
        let runs = self.runs(vpns);
        let mut answer = [0u8; size_of::<Header>()];
        self.order(agent, &mut link, (Kind::Unshare, runs.len() as u32), &runs, &mut answer).is_ok()
    }

    fn put(&self, first: Vpn, bytes: &[u8]) -> Put {
        put_result(self.uffd.copy(first.addr(self.page_bytes), bytes), self.page_bytes)
    }

    fn put_zero(&self, first: Vpn, count: usize) -> Put {
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

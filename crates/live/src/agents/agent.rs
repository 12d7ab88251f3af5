//! The daemon's end of one agent: its socket, orders and answers, and the buffer that it fills.
//!
//! Lock order: `link` (orders to the agent) after the space's batch lock; nothing is taken while it
//! is held.
//!
//! An agent may be silent for as long as it likes: it may be frozen. An order that it has not begun
//! is called off after [`PATIENCE`], as if it had never been given; one that it has begun (pages may
//! be in staging) is waited for as long as it lives. An agent that owes an answer gets no further
//! order, and is called silent, until it has given it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_agent::protocol::{
    AREA_BYTES, BUFFER_BYTES, CALL_AT, Call, Header, Kind, MAGIC, Run, SLOTS, SlotState, Taken,
    call_word,
};
use clew_engine::Took;
use clew_store::{Segment, SegmentError};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::agents::closer::Foreign;
use crate::agents::seqpacket;
use crate::passing::is_passing;
use crate::programs::as_its_user::signal_as_user_of;
use crate::programs::kcmp::runs_in_memory_of;
use crate::programs::mem_file::MemFile;

/// How long an agent may leave an order alone before it is called off.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How long one that was killed is waited for.
const GONE: Duration = Duration::from_secs(5);

/// How often in a batch what fails for want of memory is tried again, a millisecond apart: a program whose every page
/// fails makes nobody wait for each.
const TRIES: usize = 200;

/// Messages in a row that answer nothing that was asked. A predecessor's orders explain a few.
const MOST_UNASKED: usize = 64;

/// Before what failed for want of something passing is tried again.
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// The buffer that an agent fills. The program has it too, and may change what is in it at any
/// moment: a page is copied once, and what was copied is what counts. Only the call word is used
/// where it is mapped.
///
/// It is read and never written here, nor is its memory given back by us: both wait for a lock of the file's, which the
/// program can hold for as long as it likes (it writes there what never comes), and no signal ends that.
enum Buffer {
    /// Of the right size for ever.
    Sealed(Segment),
    /// A predecessor's that its program can cut short: touching it could end this process. Kept
    /// for a successor to know, and never used.
    Unfit(OwnedFd),
}

impl Buffer {
    /// By which orders are begun or called off.
    fn call(&self) -> Option<&AtomicU64> {
        match self {
            Buffer::Sealed(segment) => Some(segment.word(CALL_AT / size_of::<u64>())),
            Buffer::Unfit(_) => None,
        }
    }

    /// Calls off the order of this number, or if none is named whatever order is not begun; false
    /// if there is none that can be.
    fn call_off(&self, number: Option<u32>) -> bool {
        let Some(call) = self.call() else { return false };
        let number = number.unwrap_or_else(|| (call.load(Ordering::Acquire) >> 32) as u32);
        let (pending, off) = (call_word(number, Call::Pending), call_word(number, Call::CalledOff));
        call.compare_exchange(pending, off, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the order of this number has come so far.
    fn is_at(&self, number: u32, state: Call) -> bool {
        self.call().is_some_and(|call| call.load(Ordering::Acquire) == call_word(number, state))
    }

    fn read(&self, at: usize, out: &mut [u8]) -> io::Result<()> {
        match self {
            Buffer::Sealed(segment) => segment.read_at(at, out).map_err(io::Error::other),
            Buffer::Unfit(_) => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl AsRawFd for Buffer {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Buffer::Sealed(segment) => segment.as_raw_fd(),
            Buffer::Unfit(fd) => fd.as_raw_fd(),
        }
    }
}

/// What a buffer is called in /proc.
const BUFFER_NAME: &str = "clew-buffer";

/// A buffer for a new agent.
///
/// # Errors
/// If the system refuses, or has no memory for the call word: it is touched where it is mapped.
pub fn new_buffer() -> Result<Segment, SegmentError> {
    let buffer = Segment::new(BUFFER_NAME, BUFFER_BYTES)?;
    buffer.populate(CALL_AT, BUFFER_BYTES - CALL_AT)?;
    Ok(buffer)
}

/// Whether process `pid` has ended, with all its threads.
fn has_ended(pid: u32) -> bool {
    let Some(number) = Pid::from_raw(pid as i32) else { return false };
    match pidfd_open(number, PidfdFlags::empty()) {
        Ok(process) => seqpacket::is_readable(&process, Duration::ZERO),
        Err(error) => error == Errno::SRCH,
    }
}

/// The daemon's end of one agent.
pub struct Agent {
    socket: Foreign,
    pid: u32,
    buffer: Buffer,
    staging: u64,
    area: u64,
    /// The program's `mem`, to find what a dead agent left in staging.
    pub mem: Option<MemFile>,
    alive: AtomicBool,
    /// It owes an answer.
    silent: AtomicBool,
    /// It has begun an order, and somebody waits for the end of it for longer than usual.
    holds_up: AtomicBool,
    /// Number of the last order.
    orders: AtomicU32,
    /// One order at a time.
    link: Mutex<Link>,
    /// Pages of the batch that it should have copied to the buffer, by slot. A leaf.
    in_its_stead: Mutex<BTreeMap<usize, Box<[u8]>>>,
    /// How many these are.
    stand_ins: AtomicUsize,
    /// How often something is tried again in this batch.
    tries: AtomicUsize,
    /// Its process as a descriptor, from when it is first needed.
    process: OnceLock<OwnedFd>,
    /// When it was killed, if it was.
    killed: OnceLock<Instant>,
}

/// What is known between one order and the next.
struct Link {
    /// What each page of the batch under way occupies.
    slots: Vec<Took>,
    /// The order whose pages the agent still copies to the buffer.
    copying: Option<u32>,
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

impl Agent {
    /// The agent behind `socket`, which was given `buffer` ([`new_buffer`]). No two generations of
    /// daemons give their orders the same numbers.
    ///
    /// # Errors
    /// Those of asking who is behind the socket.
    pub fn new(
        socket: Foreign,
        buffer: Segment,
        staging: u64,
        area: u64,
        mem: Option<File>,
        generation: u64,
    ) -> io::Result<Agent> {
        Agent::with(socket, Buffer::Sealed(buffer), staging, area, mem, generation)
    }

    /// One that a predecessor had. If its program can change the size of the buffer it counts as
    /// dead, but for [`Agent::sync`]: it gets no order, and what it has in staging is found there.
    ///
    /// # Errors
    /// As [`Agent::new`]; if the buffer cannot be mapped.
    pub fn inherited(
        socket: Foreign,
        buffer: OwnedFd,
        staging: u64,
        area: u64,
        mem: Option<File>,
        generation: u64,
    ) -> io::Result<Agent> {
        let buffer = match Segment::adopt_sealed(BUFFER_NAME, buffer, BUFFER_BYTES) {
            Ok(Ok(segment)) => Buffer::Sealed(segment),
            Ok(Err(fd)) => Buffer::Unfit(fd),
            Err(error) => return Err(io::Error::other(error)),
        };
        Agent::with(socket, buffer, staging, area, mem, generation)
    }

    fn with(
        socket: Foreign,
        buffer: Buffer,
        staging: u64,
        area: u64,
        mem: Option<File>,
        generation: u64,
    ) -> io::Result<Agent> {
        let is_fit = matches!(buffer, Buffer::Sealed(_));
        let pid = seqpacket::peer(&socket)?.pid as u32;
        // A predecessor may have filled the buffer.
        let filled = Some(Instant::now());
        let link = Link { slots: Vec::new(), copying: None, owed: None, filled };
        Ok(Agent {
            socket,
            pid,
            buffer,
            staging,
            area,
            mem: mem.map(MemFile::from),
            alive: AtomicBool::new(is_fit),
            silent: AtomicBool::default(),
            holds_up: AtomicBool::default(),
            orders: AtomicU32::new((generation as u32) << 24),
            link: Mutex::new(link),
            process: OnceLock::new(),
            killed: OnceLock::new(),
            in_its_stead: Mutex::default(),
            stand_ins: AtomicUsize::new(0),
            tries: AtomicUsize::new(TRIES),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The descriptors of its socket and its buffer.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.socket.as_raw_fd(), self.buffer.as_raw_fd()]
    }

    /// Addresses of its staging area and of its own.
    pub fn addresses(&self) -> (u64, u64) {
        (self.staging, self.area)
    }

    /// Address range of its staging area.
    pub fn staging(&self, page_bytes: u64) -> Range<u64> {
        self.staging..self.staging + SLOTS as u64 * page_bytes
    }

    /// Address range of its own.
    pub fn area(&self) -> Range<u64> {
        self.area..self.area + AREA_BYTES as u64
    }

    /// Its process as a descriptor.
    pub fn process(&self) -> Option<&OwnedFd> {
        if self.process.get().is_none()
            && let Ok(process) = seqpacket::peer_process(&self.socket)
        {
            let _ = self.process.set(process);
        }
        self.process.get()
    }

    /// Whether its process ends within `patience`; false also where the system does not say.
    pub fn ends(&self, patience: Duration) -> bool {
        self.process().is_some_and(|process| seqpacket::is_readable(process, patience))
    }

    /// Whether program `pid` has ended, or has left its memory (execve), and it has not.
    pub fn outlives(&self, pid: u32) -> bool {
        (has_ended(pid) || runs_in_memory_of(self.pid, pid) == Some(false))
            && !self.ends(Duration::ZERO)
    }

    /// Ends it at once, wherever it is. What it has in staging is found there. The kernel decides whether its user may: by now it may
    /// be a program that has more rights than he has (execve).
    ///
    /// One that is not gone for long after it (it waits where no signal ends it, for its user's own file system, or is frozen) is not
    /// waited for: it does nothing any more before it ends.
    pub fn kill(&self) {
        self.dies();
        if let Some(killed) = self.killed.get() {
            if killed.elapsed() >= GONE {
                seqpacket::hang_up(&self.socket);
            }
            return;
        }
        let _ = self.killed.set(Instant::now());
        if let Some(process) = self.process() {
            let killed = signal_as_user_of(&self.socket, process, Signal::KILL);
            tracing::info!(agent = self.pid, ?killed, "an agent that does not end is killed");
        }
    }

    /// Whether it can be given orders, now or when it is heard again.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether it owes an answer: it may be frozen, and gets no orders until it has given it.
    pub fn is_silent(&self) -> bool {
        self.is_alive() && self.silent.load(Ordering::Acquire)
    }

    /// Whether a worker waits for it: it has begun an order and does not end it.
    pub fn holds_up_a_worker(&self) -> bool {
        self.holds_up.load(Ordering::Acquire)
    }

    /// Takes the answer that it owes, if it is silent and the answer has come: whether it can be
    /// given orders again. Waits for nobody.
    pub fn is_heard_again(&self) -> bool {
        if !self.is_silent() {
            return false;
        }
        let Some(mut link) = self.link.try_lock() else { return false };
        self.settle(&mut link, Duration::ZERO).is_ok()
    }

    /// Whoever waits for it waits no longer: its memory is gone.
    pub fn hang_up(&self) {
        self.dies();
        seqpacket::hang_up(&self.socket);
    }

    /// Tells it to end. The caller has brought every page back. One that cannot be told is hung up on.
    pub fn detach(&self) {
        self.dies();
        if seqpacket::send(&self.socket, [&header_bytes(Kind::Detach, 0, 0)], &[]).is_err() {
            seqpacket::hang_up(&self.socket);
        }
    }

    fn dies(&self) {
        self.alive.store(false, Ordering::Release);
    }

    // ---- orders ------------------------------------------------------------------------------

    /// Has it move the runs to staging and copy what moved to the buffer, which [`Agent::copied`] waits
    /// for. If it dies meanwhile, `recover` says what became of each page. If it lives, `check` corrects
    /// what it was told. Nothing was taken where it is silent, or where `sends`, which is told the
    /// order's number, says that it is not to be sent.
    pub fn take(
        &self,
        runs: &[Run],
        took: &mut Vec<Took>,
        sends: impl FnOnce(u32) -> bool,
        check: impl FnOnce(&mut [Took]),
        recover: impl FnOnce(&mut [Took]),
    ) {
        let mut link = self.link.lock();
        self.forget_stand_ins();
        self.tries.store(TRIES, Ordering::Relaxed);
        let mut answer = vec![0u8; size_of::<Taken>()];
        let order = (Kind::Take, runs.len() as u32);
        let mut number = None;
        let sends = |order| {
            number = Some(order);
            sends(order)
        };
        match self.order_if(&mut link, order, runs, &mut answer, sends) {
            // Called off before it was sent.
            Ok(0) => {}
            Ok(n) if n == size_of::<Taken>() => {
                let states = &answer[size_of::<Header>()..];
                let is_taken = |state: &u8| *state == SlotState::Taken as u8;
                link.copying = number.filter(|_| states.iter().any(is_taken));
                for (took, state) in took.iter_mut().zip(states) {
                    *took = match SlotState::from_u8(*state) {
                        SlotState::Taken => Took::Taken,
                        SlotState::Hole => Took::Hole,
                        SlotState::Busy => Took::Busy,
                        SlotState::Unused | SlotState::Refused | SlotState::Skipped => Took::Stayed,
                    };
                }
                check(took);
            }
            // It has taken nothing, and will not.
            Err(Unanswered::Silent) => {}
            outcome => {
                tracing::debug!(?outcome, "an agent is gone in the middle of an order");
                self.dies();
                recover(took);
            }
        }
        link.slots.clone_from(took);
        link.filled = Some(Instant::now());
    }

    /// Whether what the order of this number takes has been moved.
    pub fn has_moved(&self, order: u32) -> bool {
        self.buffer.is_at(order, Call::Moved)
    }

    /// Calls off the order of this number; false if it has begun, or was never sent.
    pub fn calls_off(&self, order: u32) -> bool {
        self.buffer.call_off(Some(order))
    }

    /// Waits until what was taken last is in the buffer. If it dies meanwhile, `recover` says what became
    /// of each page.
    pub fn copied(&self, took: &mut Vec<Took>, recover: impl FnOnce(&mut [Took])) {
        let mut link = self.link.lock();
        let Some(number) = link.copying.take() else { return };
        let mut answer = [0u8; size_of::<Header>()];
        let mut copied = self.answer_to(number, Some(PATIENCE), &mut answer);
        if matches!(copied, Ok(None)) {
            copied = self.patiently_answer_to(number, &mut answer);
        }
        if !matches!(copied, Ok(Some(_))) {
            tracing::debug!(?copied, "an agent is gone in the middle of a copy");
            self.dies();
            recover(took);
            link.slots.clone_from(took);
        }
    }

    /// Copies page `slot` of the buffer. What the program writes there meanwhile is what its own agent
    /// made of its own memory.
    ///
    /// # Errors
    /// The kernel has lost the page, or has no memory for it: nobody may go on with other bytes.
    ///
    /// # Panics
    /// If there is no such slot, or `out` is no page.
    pub fn copy_taken(&self, slot: usize, out: &mut [u8]) -> io::Result<()> {
        assert!(slot < SLOTS && out.len() * SLOTS == CALL_AT);
        if self.stand_ins.load(Ordering::Acquire) > 0
            && let Some(page) = self.in_its_stead.lock().get(&slot)
        {
            out.copy_from_slice(page);
            return Ok(());
        }
        let at = slot * out.len();
        loop {
            let read = self.buffer.read(at, out);
            let less = |tries: usize| tries.checked_sub(1);
            if read.is_ok()
                || self.tries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
            {
                return read;
            }
            pause();
        }
    }

    /// Does what it should have done: this is what page `slot` of the buffer should hold, until the batch is over. False
    /// if there is no memory for it.
    ///
    /// # Panics
    /// If there is no such slot, or `page` is no page.
    #[must_use]
    pub fn fill(&self, slot: usize, page: &[u8]) -> bool {
        assert!(slot < SLOTS && page.len() * SLOTS == CALL_AT);
        let mut copy = Vec::new();
        if copy.try_reserve_exact(page.len()).is_err() {
            return false;
        }
        copy.extend_from_slice(page);
        let mut pages = self.in_its_stead.lock();
        pages.insert(slot, copy.into_boxed_slice());
        self.stand_ins.store(pages.len(), Ordering::Release);
        true
    }

    fn forget_stand_ins(&self) {
        if self.stand_ins.swap(0, Ordering::AcqRel) > 0 {
            self.in_its_stead.lock().clear();
        }
    }

    /// Has it empty what the last [`Agent::take`] left in staging.
    pub fn release_taken(&self) {
        let mut link = self.link.lock();
        let used = link.slots.iter().rposition(|t| *t == Took::Taken).map_or(0, |last| last + 1);
        link.slots.clear();
        self.forget_stand_ins();
        if used > 0 {
            let mut answer = [0u8; size_of::<Header>()];
            let order = (Kind::Release, used as u32);
            if self.order(&mut link, order, &[], &mut answer).is_ok() {
                let _ = self.is_released(&answer);
            }
        }
    }

    /// Has it bring the pages of the runs to memory, each a page of their own; false if it did not.
    pub fn unshare(&self, runs: &[Run]) -> bool {
        let mut link = self.link.lock();
        let mut answer = [0u8; size_of::<Header>()];
        self.order(&mut link, (Kind::Unshare, runs.len() as u32), runs, &mut answer).is_ok()
    }

    /// Waits until it is in the middle of no order of a predecessor's. One that it has not begun, it
    /// never will.
    pub fn sync(&self) {
        let mut link = self.link.lock();
        // What is not begun in a buffer that is not looked at is carried out first.
        if !self.buffer.call_off(None) {
            let mut answer = vec![0u8; size_of::<Taken>()];
            let _ = self.order(&mut link, (Kind::Sync, 0), &[], &mut answer);
        }
    }

    /// Has the staging area emptied after a takeover, before anything else is ordered. Waits for
    /// nobody; [`Agent::staging_is_emptied`] does.
    pub fn empty_staging(&self) {
        if let Buffer::Unfit(_) = self.buffer {
            tracing::warn!(
                agent = self.pid,
                "its buffer is of a version whose programs could end a daemon by it: it is not used \
                 any more, and its program keeps its pages"
            );
            self.detach();
            return;
        }
        let mut link = self.link.lock();
        let number = self.orders.fetch_add(1, Ordering::Relaxed);
        match self.give(number, (Kind::Release, SLOTS as u32), &[]) {
            Ok(()) => link.owed = Some((number, Kind::Release)),
            Err(_) => self.dies(),
        }
    }

    /// Waits until then for what [`Agent::empty_staging`] has ordered.
    pub fn staging_is_emptied(&self, until: Instant) {
        let patience = until.saturating_duration_since(Instant::now());
        let _ = self.settle(&mut self.link.lock(), patience);
    }

    /// Has it give back the memory of a buffer that has not been needed for so long. Waits for nobody.
    pub fn empty_idle_buffer(&self, idle: Duration) {
        // Not in the middle of an order, nor of a batch.
        let Some(mut link) = self.link.try_lock() else { return };
        let is_free = !link.slots.contains(&Took::Taken) && link.owed.is_none();
        let is_idle = link.filled.is_some_and(|when| when.elapsed() >= idle);
        if is_free && is_idle && self.is_alive() && matches!(self.buffer, Buffer::Sealed(_)) {
            let number = self.orders.fetch_add(1, Ordering::Relaxed);
            match self.give(number, (Kind::Release, 0), &[]) {
                Ok(()) => link.owed = Some((number, Kind::Release)),
                // It is frozen, perhaps: another time.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.dies(),
            }
            link.filled = None;
        }
    }

    /// Memory of the pages of its buffer: what the kernel says, as the program may have more than it was asked for,
    /// and may not have given back what it was told to.
    pub fn buffer_bytes(&self) -> u64 {
        // SAFETY: plain numbers, for which zeros are right.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure lives across the call.
        match unsafe { libc::fstat(self.buffer.as_raw_fd(), &mut stat) } {
            0 => (stat.st_blocks as u64 * 512).saturating_sub((BUFFER_BYTES - CALL_AT) as u64),
            _ => 0,
        }
    }

    // ---- messages ----------------------------------------------------------------------------

    /// One order and its answer. Without one it is dead, or it is silent and will not carry the
    /// order out.
    fn order(
        &self,
        link: &mut Link,
        order: (Kind, u32),
        runs: &[Run],
        answer: &mut [u8],
    ) -> Result<usize, Unanswered> {
        self.order_if(link, order, runs, answer, |_| true)
    }

    /// The same, if `sends` still says so; else the answer has no bytes.
    fn order_if(
        &self,
        link: &mut Link,
        (kind, value): (Kind, u32),
        runs: &[Run],
        answer: &mut [u8],
        sends: impl FnOnce(u32) -> bool,
    ) -> Result<usize, Unanswered> {
        // Not waited for: its answer may have to wait for events that are held.
        self.settle(link, Duration::ZERO)?;
        let number = self.orders.fetch_add(1, Ordering::Relaxed);
        if !sends(number) {
            return Ok(0);
        }
        let result = self.fresh_order(link, number, (kind, value), runs, answer);
        if matches!(result, Err(Unanswered::Gone(_))) {
            self.dies();
        }
        result
    }

    fn fresh_order(
        &self,
        link: &mut Link,
        number: u32,
        (kind, value): (Kind, u32),
        runs: &[Run],
        answer: &mut [u8],
    ) -> Result<usize, Unanswered> {
        self.give(number, (kind, value), runs)?;
        if let Some(n) = self.answer_to(number, Some(PATIENCE), answer)? {
            return Ok(n);
        }
        let is_begun = match kind {
            // A fault may have called it off already.
            Kind::Take | Kind::Unshare => {
                !self.buffer.call_off(Some(number)) && !self.buffer.is_at(number, Call::CalledOff)
            }
            // A successor must know what became of its predecessor's orders.
            Kind::Sync => true,
            _ => false,
        };
        if is_begun {
            return self.patiently_answer_to(number, answer)?.ok_or(Unanswered::Silent);
        }
        tracing::info!(agent = self.pid, ?kind, "an agent is silent; it may be frozen");
        link.owed = Some((number, kind));
        self.silent.store(true, Ordering::Release);
        Err(Unanswered::Silent)
    }

    /// The answer to an order that it has begun, however long it takes: it may be frozen.
    fn patiently_answer_to(&self, number: u32, answer: &mut [u8]) -> io::Result<Option<usize>> {
        self.holds_up.store(true, Ordering::Release);
        let answered = self.answer_to(number, None, answer);
        self.holds_up.store(false, Ordering::Release);
        answered
    }

    /// Gives an order without waiting for its answer. Orders that are not read add up only
    /// where an agent answers what it has not read: it is as good as dead. But before it is known what
    /// became of a predecessor's order it is waited for.
    fn give(&self, number: u32, (kind, value): (Kind, u32), runs: &[Run]) -> io::Result<()> {
        if matches!(kind, Kind::Take | Kind::Unshare) {
            let Some(call) = self.buffer.call() else {
                return Err(io::ErrorKind::PermissionDenied.into());
            };
            call.store(call_word(number, Call::Pending), Ordering::Release);
        }
        let head = header_bytes(kind, value, number);
        // SAFETY: Run is plain numbers without padding.
        let body =
            unsafe { std::slice::from_raw_parts(runs.as_ptr().cast::<u8>(), size_of_val(runs)) };
        let mut tries = 1;
        loop {
            let sent = seqpacket::send(&self.socket, [&head, body], &[]);
            match sent.as_ref().err() {
                Some(error) if seqpacket::is_out_of_memory(error) && tries < TRIES => tries += 1,
                Some(error) if error.kind() == io::ErrorKind::WouldBlock && kind == Kind::Sync => {}
                _ => return sent,
            }
            pause();
        }
    }

    /// The answer to order `number`, or nothing within `patience` (`None`: for ever). One who sends
    /// other messages without end is taken for dead: else it would hold up who reads them.
    fn answer_to(
        &self,
        number: u32,
        patience: Option<Duration>,
        answer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let mut unasked = 0;
        loop {
            if unasked > MOST_UNASKED {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it sends what nobody has asked for",
                ));
            }
            if patience.is_some_and(|patience| !seqpacket::is_readable(&self.socket, patience)) {
                return Ok(None);
            }
            let n = match self.socket.receive(answer) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((n, _)) => n,
                // It works on; whoever took it for dead would look for pages before they have moved.
                Err(error) if is_passing(&error) => {
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
            unasked += 1;
        }
    }

    /// Waits for the answer that is owed, if one is.
    fn settle(&self, link: &mut Link, patience: Duration) -> Result<(), Unanswered> {
        let Some((number, kind)) = link.owed else { return Ok(()) };
        let mut answer = vec![0u8; size_of::<Taken>()];
        let answered = self.answer_to(number, Some(patience), &mut answer).inspect_err(|error| {
            tracing::debug!(%error, "an agent is gone that was silent");
            self.dies();
        });
        if answered?.is_none() {
            self.silent.store(true, Ordering::Release);
            return Err(Unanswered::Silent);
        }
        link.owed = None;
        self.silent.store(false, Ordering::Release);
        if kind == Kind::Release {
            self.is_released(&answer)?;
        }
        Ok(())
    }

    /// What the answer to a `Release` says.
    fn is_released(&self, answer: &[u8]) -> io::Result<()> {
        if answer[8..12] == [0; 4] {
            return Ok(());
        }
        // What stays in staging would be taken for pages of a later batch.
        tracing::warn!("an agent cannot empty its staging area: it is not used any more");
        self.dies();
        Err(io::Error::other("its staging area cannot be emptied"))
    }
}

pub(crate) fn header_bytes(kind: Kind, value: u32, number: u32) -> [u8; size_of::<Header>()] {
    let header = Header::new(kind, value, number);
    let mut bytes = [0; size_of::<Header>()];
    let words = [header.magic, header.kind, header.value, header.detail];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

//! The workers: everything that takes time and asks no policy.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_core::{Event, FlashForm, Group, Job, PageId, Vpn};
use clew_engine::driver::SAMPLE_BYTES;
use clew_engine::{MoverContext, SwapOut};
use clew_store::flash::LogId;
use clew_store::{ReadError, State};
use crossbeam_channel::{Receiver, Sender, select, unbounded};

use crate::agents::attach::{AttachError, Candidate};
use crate::agents::strangers::{self, Stranger};
use crate::control::trusted_path::own_uid;
use crate::faults::events::remove;
use crate::governor::Message;
use crate::kernel_swap::KernelSwap;
use crate::programs::let_go::{self, Plea};
use crate::programs::mappings;
use crate::programs::not_inherited::forget_what_is_missing;
use crate::programs::process::{Process, Shared};
use crate::programs::scan::scan;

/// One piece of work. Each is answered by one [`Message::Done`].
pub enum Work {
    /// Take groups out of one process.
    SwapOut { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Take groups out of one process, onto flash, in this form.
    PutFar { process: Arc<Process>, groups: Vec<Group>, to: (LogId, FlashForm), ticket: u64 },
    /// Move the blocks of stored groups of one process to flash, in this form.
    Evict { process: Arc<Process>, groups: Vec<Group>, to: (LogId, FlashForm), ticket: u64 },
    /// Read the beginning of each page.
    Peek { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Give groups of one process to the kernel's swap, where a page takes about `bytes`.
    Lend { process: Arc<Process>, groups: Vec<Group>, bytes: u32, ticket: u64 },
    /// Bring stored groups of one process back and give them to the kernel's swap, as [`Work::Lend`].
    PassOn { process: Arc<Process>, groups: Vec<Group>, bytes: u32, ticket: u64 },
    /// Have the kernel's zram give back memory that it does not use.
    Compact { swap: KernelSwap, ticket: u64 },
    /// Make slots of flash free.
    CleanLog { log: LogId, ticket: u64 },
    /// Bring pages back (ascending), or only decompress and park them.
    Restore { process: Arc<Process>, vpns: Vec<Vpn>, park: bool, ticket: u64 },
    /// Bring pages back (ascending), and forget those that can never come.
    RestoreForGood { process: Arc<Process>, vpns: Vec<Vpn>, ticket: u64 },
    /// Take pages out of one process to see whether they are used.
    Sample { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Bring back what is left of a sample (ascending).
    EndSample { process: Arc<Process>, vpns: Vec<Vpn>, ticket: u64 },
    /// Long work of a policy.
    Job { job: Job, ticket: u64 },
    /// Find and register new mappings.
    Scan { process: Arc<Process>, ticket: u64 },
    /// See whether a process has a userfaultfd of its own.
    LookForOwn { process: Arc<Process>, ticket: u64 },
    /// Bring everything back and give its mappings up.
    LetGo { process: Arc<Process>, since: Instant, ticket: u64 },
    /// Bring a range back and give its mappings up.
    LeaveOut { plea: Plea, ticket: u64 },
}

/// Where work is handed in. What a program may wait for comes first, and the long work of policies, which keeps
/// no worker, has somebody of its own.
pub struct Desk {
    urgent: Sender<Work>,
    other: Sender<Work>,
    jobs: Sender<Work>,
}

/// Where workers get it.
#[derive(Clone)]
pub struct Queue {
    urgent: Receiver<Work>,
    other: Receiver<Work>,
    jobs: Receiver<Work>,
}

/// A queue of work and its desk.
pub fn queue() -> (Desk, Queue) {
    let [urgent, other, jobs] = std::array::from_fn(|_| unbounded());
    let queue = Queue { urgent: urgent.1, other: other.1, jobs: jobs.1 };
    (Desk { urgent: urgent.0, other: other.0, jobs: jobs.0 }, queue)
}

impl Desk {
    /// Hands work in.
    pub fn send(&self, work: Work) {
        let to = match work {
            Work::Restore { .. }
            | Work::RestoreForGood { .. }
            | Work::LetGo { .. }
            | Work::LeaveOut { .. } => &self.urgent,
            Work::SwapOut { .. }
            | Work::PutFar { .. }
            | Work::Evict { .. }
            | Work::Peek { .. }
            | Work::Lend { .. }
            | Work::PassOn { .. }
            | Work::Compact { .. }
            | Work::Sample { .. }
            | Work::EndSample { .. }
            | Work::Scan { .. }
            | Work::LookForOwn { .. } => &self.other,
            // Both take long.
            Work::Job { .. } | Work::CleanLog { .. } => &self.jobs,
        };
        // Without workers the daemon is ending.
        let _ = to.send(work);
    }
}

impl Queue {
    /// The next piece for a worker; `None` when the desk is closed.
    fn next(&self) -> Option<Work> {
        if let Ok(work) = self.urgent.try_recv() {
            return Some(work);
        }
        select! {
            recv(self.urgent) -> work => work.ok(),
            recv(self.other) -> work => work.ok(),
        }
    }
}

/// Pages that are to leave, and how each begins.
pub struct Peeked {
    /// In these groups.
    pub groups: Vec<Group>,
    /// One a page, in their order; nothing of one that could not be read.
    pub samples: Vec<Vec<u8>>,
}

/// How a program was looked through.
#[derive(Debug)]
pub struct Look {
    /// How long that took.
    pub took: Duration,
    /// Nothing went wrong.
    pub is_whole: bool,
}

/// What came of it.
#[derive(Default)]
pub struct Done {
    /// The ticket it carried.
    pub ticket: u64,
    /// Its process.
    pub process: Option<Arc<Process>>,
    /// For the policies.
    pub events: Vec<Event>,
    /// How pages begin that are to leave.
    pub peeked: Option<Peeked>,
    /// Pages stored or brought back.
    pub pages: usize,
    /// Pages it was asked about.
    pub asked: usize,
    /// Its process can be taken out of again.
    pub taken_out: bool,
    /// It has looked for mappings, for so long.
    pub scanned: Option<Look>,
    /// The pool was full.
    pub full: bool,
    /// The long work of a policy that this was.
    pub job: Option<u64>,
    /// A slot of this log was cleaned, or none is worth it.
    pub cleaned: Option<LogId>,
    /// Its process has a userfaultfd of its own.
    pub has_own: bool,
    /// Its process has been let go, or cannot be.
    pub let_go: Option<bool>,
    /// A candidate that became managed, or why not.
    pub managed: Option<Result<Arc<Process>, (u32, AttachError)>>,
}

/// Pages between two lent ones that are asked about with them.
const NEAR_PAGES: u64 = 512;

/// The workers. One that waits for an agent which has begun an order and is frozen can do nothing
/// else; then another takes its place, and one too many leaves when the agent is heard again. No worker waits
/// for a program that is not managed yet: each user's are prepared by somebody of their own.
pub struct Crew {
    shared: Arc<Shared>,
    work: Queue,
    answer: Sender<Message>,
    size: Arc<Size>,
    hired: usize,
    /// Who prepares programs, by their user.
    strangers: HashMap<u32, Sender<Stranger>>,
}

#[derive(Default)]
struct Size {
    present: AtomicUsize,
    wanted: AtomicUsize,
}

impl Crew {
    /// Nobody yet.
    pub fn new(shared: Arc<Shared>, work: Queue, answer: Sender<Message>) -> Crew {
        Crew { shared, work, answer, size: Arc::default(), hired: 0, strangers: HashMap::new() }
    }

    /// Somebody who does one piece of long work after the other, and nothing else.
    fn hire_for_jobs(&self) -> std::io::Result<()> {
        let (shared, work) = (self.shared.clone(), self.work.jobs.clone());
        let answer = self.answer.clone();
        std::thread::Builder::new().name("jobs".into()).spawn(move || {
            let mut ctx = MoverContext::default();
            for item in work {
                let done = perform(&shared, item, &mut ctx);
                if answer.send(Message::Done(Box::new(done))).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Somebody who prepares programs of a user. Each may take some seconds to answer.
    fn hire_for_strangers(&mut self, uid: u32) -> std::io::Result<&Sender<Stranger>> {
        let (shared, answer) = (self.shared.clone(), self.answer.clone());
        let none = match self.strangers.entry(uid) {
            Entry::Occupied(hired) => return Ok(hired.into_mut()),
            Entry::Vacant(none) => none,
        };
        let (to, strangers) = unbounded();
        std::thread::Builder::new()
            .name("strangers".into())
            .spawn(move || strangers::prepare(&shared, &strangers, &answer))?;
        Ok(none.insert(to))
    }

    /// Has a candidate prepared for management. Answered by one [`Message::Done`], too.
    pub fn prepare(&mut self, candidate: Box<Candidate>, ticket: u64) {
        match self.hire_for_strangers(candidate.uid) {
            // Without one the daemon is ending.
            Ok(strangers) => drop(strangers.send((candidate, ticket))),
            Err(source) => {
                let error = AttachError::Proc { what: "starting a thread", source };
                let managed = Some(Err((candidate.pid, error)));
                let done = Done { ticket, managed, ..Done::default() };
                let _ = self.answer.send(Message::Done(Box::new(done)));
            }
        }
    }

    /// Makes it so many workers, one who prepares programs, each of which may take some seconds to
    /// answer, and one for the long work of policies.
    pub fn keep(&mut self, wanted: usize) -> std::io::Result<()> {
        if self.hired == 0 {
            self.hire_for_strangers(own_uid())?;
            self.hire_for_jobs()?;
        }
        self.size.wanted.store(wanted, Ordering::Relaxed);
        while self.size.present.load(Ordering::Relaxed) < wanted {
            let (shared, work) = (self.shared.clone(), self.work.clone());
            let (answer, size) = (self.answer.clone(), self.size.clone());
            std::thread::Builder::new()
                .name(format!("worker-{}", self.hired))
                .spawn(move || run(&shared, &work, &answer, &size))?;
            self.size.present.fetch_add(1, Ordering::Relaxed);
            self.hired += 1;
        }
        Ok(())
    }
}

/// Works until the desk is closed, or one is not needed any more.
fn run(shared: &Arc<Shared>, work: &Queue, answer: &Sender<Message>, size: &Size) {
    let mut ctx = MoverContext::default();
    while let Some(item) = work.next() {
        let done = perform(shared, item, &mut ctx);
        if answer.send(Message::Done(Box::new(done))).is_err() {
            return;
        }
        let one_less = |present: usize| {
            (present > size.wanted.load(Ordering::Relaxed)).then(|| present.saturating_sub(1))
        };
        if size.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return;
        }
    }
}

fn perform(shared: &Arc<Shared>, work: Work, ctx: &mut MoverContext) -> Done {
    match work {
        Work::SwapOut { process, groups, ticket } => {
            let out = shared.mover.swap_out(&process.space, &groups, ctx);
            taken_out(process, &groups, out, ticket)
        }
        Work::PutFar { process, groups, to, ticket } => {
            let out = shared.mover.swap_out_far(&process.space, &groups, to, ctx);
            taken_out(process, &groups, out, ticket)
        }
        Work::Evict { process, groups, to, ticket } => {
            let out = shared.mover.evict(&process.space, &groups, to, ctx);
            taken_out(process, &groups, out, ticket)
        }
        Work::Lend { process, groups, bytes, ticket } => {
            let out = shared.mover.lend(&process.space, &groups, bytes, ctx);
            taken_out(process, &groups, out, ticket)
        }
        Work::Peek { process, groups, ticket } => {
            let pages = || groups.iter().flat_map(|group| &group.pages);
            let is_in = |vpn| process.space.table.load(vpn).state() == State::Resident;
            let sample = |page: &PageId| match is_in(page.vpn()) {
                true => process.memory.beginning_of(page.vpn(), SAMPLE_BYTES),
                false => Vec::new(),
            };
            let samples: Vec<Vec<u8>> = pages().map(sample).collect();
            let (asked, peeked) = (samples.len(), Some(Peeked { groups, samples }));
            let (taken_out, process) = (true, Some(process));
            Done { ticket, asked, peeked, taken_out, process, ..Done::default() }
        }
        Work::PassOn { process, groups, bytes, ticket } => {
            let (out, corrupt) = pass_on(shared, &process, &groups, bytes, ctx);
            poison_if_damaged(shared, &process, corrupt);
            taken_out(process, &groups, out, ticket)
        }
        Work::CleanLog { log, ticket } => {
            let cleaned = shared.mover.store.clean_log(log);
            if let Err(error) = &cleaned {
                tracing::debug!(%error, %log, "not cleaned");
            }
            Done { ticket, cleaned: Some(log), ..Done::default() }
        }
        Work::Compact { swap, ticket } => {
            swap.compact();
            Done { ticket, ..Done::default() }
        }
        Work::Job { job, ticket } => {
            (job.run)();
            Done { ticket, job: Some(job.id), ..Done::default() }
        }
        Work::Sample { process, groups, ticket } => {
            let out = shared.mover.sample(&process.space, &groups, ctx);
            let process = Some(process);
            Done { ticket, events: out.events, taken_out: true, process, ..Done::default() }
        }
        Work::EndSample { process, vpns, ticket } => {
            let ended = shared.mover.end_sample(&process.space, &vpns, ctx);
            poison_if_damaged(shared, &process, ended.corrupt);
            Done { ticket, process: Some(process), ..Done::default() }
        }
        Work::Restore { process, vpns, park, ticket } => {
            let mut events = Vec::new();
            let result = match park {
                true => shared.mover.park(&process.space, &vpns, ctx, &mut events),
                false => shared.mover.restore(&process.space, &vpns, ctx, &mut events),
            };
            process.restored.fetch_add(result.pages as u64, Ordering::Relaxed);
            poison_if_damaged(shared, &process, result.corrupt);
            Done {
                ticket,
                events,
                pages: result.pages,
                asked: vpns.len(),
                process: Some(process),
                ..Done::default()
            }
        }
        Work::RestoreForGood { process, vpns, ticket } => {
            restore_for_good(shared, &process, &vpns, ctx);
            Done { ticket, process: Some(process), ..Done::default() }
        }
        Work::Scan { process, ticket } => {
            let began = Instant::now();
            let found = scan(shared, &process).inspect_err(|error| {
                tracing::debug!(pid = process.pid(), %error, "cannot scan a process");
            });
            let scanned = Some(Look { took: began.elapsed(), is_whole: found.is_ok() });
            let events = found.unwrap_or_default();
            Done { ticket, events, scanned, process: Some(process), ..Done::default() }
        }
        Work::LookForOwn { process, ticket } => {
            let has_own = let_go::has_own_userfaultfd(process.pid());
            Done { ticket, has_own, process: Some(process), ..Done::default() }
        }
        Work::LetGo { process, ticket, .. } => {
            let let_go = Some(let_go::let_go(shared, &process, ctx));
            let process = Some(process);
            Done { ticket, let_go, taken_out: true, process, ..Done::default() }
        }
        Work::LeaveOut { plea, ticket } => {
            let leave_out = |range| let_go::leave_out(shared, &plea.process, range, ctx);
            plea.answer(plea.range.as_ref().is_some_and(leave_out));
            let process = Some(plea.process.clone());
            Done { ticket, taken_out: true, process, ..Done::default() }
        }
    }
}

/// From the pool to the kernel's swap, by way of the program.
fn pass_on(
    shared: &Arc<Shared>,
    process: &Process,
    groups: &[Group],
    bytes: u32,
    ctx: &mut MoverContext,
) -> (SwapOut, Option<(Vpn, ReadError)>) {
    let mut vpns: Vec<Vpn> =
        groups.iter().flat_map(|group| group.pages.iter().map(|page| page.vpn())).collect();
    vpns.sort_unstable();
    let mut came = Vec::new();
    let restored = shared.mover.restore(&process.space, &vpns, ctx, &mut came);
    let mut out = shared.mover.lend(&process.space, groups, bytes, ctx);
    // Of those that are given away at once nobody needs to hear that they came; of those that came
    // along with them, he does.
    came.retain(|event| match event {
        Event::PageIn { page, .. } => vpns.binary_search(&page.vpn()).is_err(),
        _ => true,
    });
    out.events.splice(0..0, came);
    (out, restored.corrupt)
}

/// What came of taking groups out.
fn taken_out(process: Arc<Process>, groups: &[Group], out: SwapOut, ticket: u64) -> Done {
    process.swapped_out.fetch_add(out.stored as u64, Ordering::Relaxed);
    if let Some(full) = &out.full {
        tracing::debug!(%full, "the pool is full");
    }
    Done {
        ticket,
        events: out.events,
        pages: out.stored,
        asked: groups.iter().map(|g| g.pages.len()).sum(),
        taken_out: true,
        full: out.full.is_some(),
        process: Some(process),
        ..Done::default()
    }
}

/// Brings pages back, of which some may never come: what is damaged is a SIGBUS from now on, also when
/// nobody serves the program any more, and what is not registered is nobody's (its program can have seen to
/// that, by its agent's userfaultfd).
fn restore_for_good(shared: &Shared, process: &Process, vpns: &[Vpn], ctx: &mut MoverContext) {
    let page = shared.page_bytes;
    let back = shared.mover.restore(&process.space, vpns, ctx, &mut Vec::new());
    process.restored.fetch_add(back.pages as u64, Ordering::Relaxed);
    let damaged = back.corrupt.as_ref().map(|(vpn, _)| vpn.addr(page));
    poison_if_damaged(shared, process, back.corrupt);
    let _events_wait = process.space.table.lock.write();
    if let Some(address) = damaged {
        // While mappings change it may be elsewhere by now.
        let is_poisoned = process.memory.uffd.poison(address, page).errno == libc::EEXIST;
        if is_poisoned {
            remove(shared, process, address, address + page);
        }
    }
    if let (Some(first), Some(last)) = (vpns.first(), vpns.last()) {
        forget_what_is_missing(shared, process, first.addr(page), last.addr(page) + page);
    }
}

/// Finds what came back from the kernel's swap by itself.
pub fn look_at_lent(shared: &Shared, process: &Process, events: &mut Vec<Event>) {
    let Some(pagemap) = process.memory.pagemap() else { return };
    if process.space.table.counts().lent == 0 {
        return;
    }
    // Ranges with lent pages, as far apart as is cheaper than to ask twice.
    let mut ranges: Vec<Range<u64>> = Vec::new();
    process.space.table.for_range(Vpn(0), u64::MAX >> 20, |Vpn(vpn), entry| {
        match ranges.last_mut() {
            _ if entry.state() != State::Lent => {}
            Some(range) if vpn - range.end < NEAR_PAGES => range.end = vpn + 1,
            _ => ranges.push(vpn..vpn + 1),
        }
    });
    let page = shared.page_bytes;
    for range in ranges {
        let (start, end) = (range.start * page, range.end * page);
        let looked = mappings::present_pages(pagemap, start, end, page, |present| {
            let (first, pages) = (present.first, present.pages);
            let back = shared.mover.came_back(&process.space, first, pages, events);
            process.lent_back.fetch_add(back as u64, Ordering::Relaxed);
        });
        if let Err(error) = looked {
            tracing::debug!(pid = process.pid(), %error, "cannot look for pages that came back");
            return;
        }
    }
}

/// A program must not read what is not its own.
pub(crate) fn poison_if_damaged(
    shared: &Shared,
    process: &Process,
    damaged: Option<(Vpn, ReadError)>,
) {
    let Some((vpn, error)) = damaged else { return };
    let addr = vpn.addr(shared.page_bytes);
    tracing::error!(
        pid = process.pid(),
        "the stored copy of the page at {addr:#x} is damaged ({error}): the program gets SIGBUS when \
         it touches it"
    );
    process.memory.uffd.poison(addr, shared.page_bytes);
}

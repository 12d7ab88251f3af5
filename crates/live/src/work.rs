//! The workers: everything that takes time and asks no policy.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clew_core::{Event, Group, Job, PageId, Vpn};
use clew_engine::driver::SAMPLE_BYTES;
use clew_engine::{MoverContext, SwapOut};
use clew_store::{ReadError, State, points};
use crossbeam_channel::{Receiver, Sender, select, unbounded};
use parking_lot::RwLockWriteGuard;

use crate::agents::attach::Candidate;
use crate::agents::strangers::{self, Stranger};
use crate::faults::events::remove;
use crate::governor::Message;
use crate::kernel_swap::KernelSwap;
use crate::programs::let_go::{self, Plea};
use crate::programs::mappings::{self, Mapping, Span};
use crate::programs::not_inherited::forget_what_is_missing;
use crate::programs::process::{Process, Shared};

/// One piece of work. Each is answered by one [`Message::Done`].
pub enum Work {
    /// Take groups out of one process.
    SwapOut { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Read the beginning of each page.
    Peek { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Give groups of one process to the kernel's swap, where a page takes about `bytes`.
    Lend { process: Arc<Process>, groups: Vec<Group>, bytes: u32, ticket: u64 },
    /// Bring stored groups of one process back and give them to the kernel's swap, as [`Work::Lend`].
    PassOn { process: Arc<Process>, groups: Vec<Group>, bytes: u32, ticket: u64 },
    /// Have the kernel's zram give back memory that it does not use.
    Compact { swap: KernelSwap, ticket: u64 },
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
    LetGo { process: Arc<Process>, ticket: u64 },
    /// Bring a range back and give its mappings up.
    LeaveOut { plea: Plea, ticket: u64 },
}

/// Where work is handed in. What a program may wait for comes first, and what waits for strangers has
/// somebody of its own: no worker waits for a program that is not managed yet, or is kept by the long
/// work of a policy.
pub struct Desk {
    urgent: Sender<Work>,
    other: Sender<Work>,
    strangers: Sender<Stranger>,
    jobs: Sender<Work>,
}

/// Where workers get it.
#[derive(Clone)]
pub struct Queue {
    urgent: Receiver<Work>,
    other: Receiver<Work>,
    strangers: Receiver<Stranger>,
    jobs: Receiver<Work>,
}

/// A queue of work and its desk.
pub fn queue() -> (Desk, Queue) {
    let [urgent, other, jobs] = std::array::from_fn(|_| unbounded());
    let strangers = unbounded();
    let queue = Queue { urgent: urgent.1, other: other.1, strangers: strangers.1, jobs: jobs.1 };
    (Desk { urgent: urgent.0, other: other.0, strangers: strangers.0, jobs: jobs.0 }, queue)
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
            | Work::Peek { .. }
            | Work::Lend { .. }
            | Work::PassOn { .. }
            | Work::Compact { .. }
            | Work::Sample { .. }
            | Work::EndSample { .. }
            | Work::Scan { .. }
            | Work::LookForOwn { .. } => &self.other,
            Work::Job { .. } => &self.jobs,
        };
        // Without workers the daemon is ending.
        let _ = to.send(work);
    }

    /// Has a candidate prepared for management. Answered by one [`Message::Done`], too.
    pub fn prepare(&self, candidate: Box<Candidate>, ticket: u64) {
        let _ = self.strangers.send((candidate, ticket));
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
    /// It has looked for mappings.
    pub scanned: bool,
    /// The pool was full.
    pub full: bool,
    /// The long work of a policy that this was.
    pub job: Option<u64>,
    /// Its process has a userfaultfd of its own.
    pub has_own: bool,
    /// Its process has been let go, or cannot be.
    pub let_go: Option<bool>,
    /// A candidate that became managed, or why not.
    pub managed: Option<Result<Arc<Process>, (u32, String)>>,
}

/// Times that a span's edges are looked at again when they move while one looks.
const MAX_LOOKS: usize = 8;

/// Pages between two lent ones that are asked about with them.
const NEAR_PAGES: u64 = 512;

/// Neighbours that a registration may have to take in, one after the other.
const MAX_EDGES: usize = 16;

/// The workers. One that waits for an agent which has begun an order and is frozen can do nothing
/// else; then another takes its place, and one too many leaves when the agent is heard again.
pub struct Crew {
    shared: Arc<Shared>,
    work: Queue,
    answer: Sender<Message>,
    size: Arc<Size>,
    hired: usize,
}

#[derive(Default)]
struct Size {
    present: AtomicUsize,
    wanted: AtomicUsize,
}

impl Crew {
    /// Nobody yet.
    pub fn new(shared: Arc<Shared>, work: Queue, answer: Sender<Message>) -> Crew {
        Crew { shared, work, answer, size: Arc::default(), hired: 0 }
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

    /// Somebody who prepares programs. Each may take some seconds to answer.
    fn hire_for_strangers(&self) -> std::io::Result<()> {
        let (shared, strangers) = (self.shared.clone(), self.work.strangers.clone());
        let answer = self.answer.clone();
        std::thread::Builder::new()
            .name("strangers".into())
            .spawn(move || strangers::prepare(&shared, &strangers, &answer))?;
        Ok(())
    }

    /// Makes it so many workers, one who prepares programs, each of which may take some seconds to
    /// answer, and one for the long work of policies.
    pub fn keep(&mut self, wanted: usize) -> std::io::Result<()> {
        if self.hired == 0 {
            self.hire_for_strangers()?;
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
            let events = scan(shared, &process).unwrap_or_else(|error| {
                tracing::debug!(pid = process.pid(), %error, "cannot scan a process");
                Vec::new()
            });
            Done { ticket, events, scanned: true, process: Some(process), ..Done::default() }
        }
        Work::LookForOwn { process, ticket } => {
            let has_own = let_go::has_own_userfaultfd(process.pid());
            Done { ticket, has_own, process: Some(process), ..Done::default() }
        }
        Work::LetGo { process, ticket } => {
            let is_free = let_go::let_go(shared, &process, ctx);
            Done { ticket, let_go: Some(is_free), process: Some(process), ..Done::default() }
        }
        Work::LeaveOut { plea, ticket } => {
            let leave_out = |range| let_go::leave_out(shared, &plea.process, range, ctx);
            plea.answer(plea.range.as_ref().is_some_and(leave_out));
            Done { ticket, taken_out: true, process: Some(plea.process), ..Done::default() }
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

/// Registers mappings that are new, and adopts pages that are present.
pub(crate) fn scan(shared: &Shared, process: &Process) -> std::io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let (Some(files), Some(pagemap)) = (process.files.get(), process.memory.pagemap()) else {
        return Ok(events);
    };
    let (pointers, _) = mappings::stack_pointers(process.pid());
    let own = process.agents_own(shared.page_bytes);
    let left_out = process.left_out.load(Ordering::SeqCst);
    let known = process.regions.lock().clone();
    let is_known =
        |start: u64, end: u64| known.range(..=start).next_back().is_some_and(|(_, e)| *e >= end);
    let maps = mappings::parse(&mappings::read_again(&mut files.lock().maps)?);
    let wanted = |span: &Span| span.parts.iter().any(|p| !is_known(p.0, p.1));
    if mappings::spans(&maps, &pointers, &own).iter().any(wanted) {
        // Flags are only in smaps, which walks the page tables: read it when it matters.
        let smaps = mappings::parse(&mappings::read_again(&mut files.lock().smaps)?);
        for span in mappings::spans(&smaps, &pointers, &own).iter().filter(|s| wanted(s)) {
            let seen = Seen { smaps: &smaps, pointers: &pointers, own: &own, left_out };
            // The lock keeps events unread while what is seen here is put down.
            let events_wait = process.space.table.lock.write();
            let done = register(shared, process, pagemap, span, &seen, &mut events);
            // Faults that came meanwhile are answered before the next span.
            RwLockWriteGuard::unlock_fair(events_wait);
            done?;
        }
    }
    // Pages that are present though the table says Absent: given up by a madvise that only marks
    // them (MADV_FREE) and in use again without a fault, or about to be dropped by a call whose
    // event was read. The latter is ruled out once every thread was seen elsewhere, while no
    // further event is read.
    let _events_wait = process.space.table.lock.write();
    if mappings::stack_pointers(process.pid()).1 {
        for (start, end) in process.regions.lock().clone() {
            adopt(shared, process, pagemap, start, end, &mut events)?;
        }
    }
    Ok(events)
}

/// What a scan saw a moment ago.
struct Seen<'a> {
    smaps: &'a [Mapping],
    pointers: &'a [u64],
    own: &'a [Range<u64>],
    left_out: u64,
}

/// Registers a span of mappings together with the free addresses around it: a mapping that grows
/// or is joined by a neighbour before the kernel gets to it is still registered whole.
///
/// A mapping that is cut in two by this can be moved by no mremap until its other part has
/// followed. So the span's edges are looked at again right before, and once more right after. The
/// space's lock is held for writing.
fn register(
    shared: &Shared,
    process: &Process,
    pagemap: &File,
    wanted: &Span,
    seen: &Seen<'_>,
    events: &mut Vec<Event>,
) -> std::io::Result<()> {
    let Some(files) = process.files.get() else { return Ok(()) };
    // What was left out since has other flags than were seen: the next scan sees them.
    if process.is_leaving() || process.left_out.load(Ordering::SeqCst) != seen.left_out {
        return Ok(());
    }
    let mut files = files.lock();
    let uffd = &process.memory.uffd;
    let is_known = |part: &(u64, u64)| {
        let regions = process.regions.lock();
        regions.range(..=part.0).next_back().is_some_and(|(_, end)| *end >= part.1)
    };
    let mut before = Vec::new();
    let mut registered = None;
    for _ in 0..MAX_LOOKS {
        let maps = mappings::parse(&mappings::read_again(&mut files.maps)?);
        before = mappings::with_flags(maps, seen.smaps);
        let spans = mappings::spans(&before, seen.pointers, seen.own);
        let overlaps = |s: &&Span| {
            s.start < wanted.end && wanted.start < s.end && !s.parts.iter().all(is_known)
        };
        let Some(span) = spans.iter().find(overlaps) else { return Ok(()) };
        let (start, end) = (span.start, span.end);
        // What is known of memory that is not registered is another's, which was there before.
        if !forget_what_is_missing(shared, process, start, end) {
            return Ok(());
        }
        let is_cut =
            |edge: u64| mappings::covering(&files.maps, edge).is_some_and(|m| m.start < edge);
        if is_cut(start) || is_cut(end) {
            continue;
        }
        if uffd.register(start, end - start).is_ok() {
            registered = Some((start, end));
            break;
        }
        // Something else has come into the gaps.
        let (first, last) = (span.parts[0].0, span.parts[span.parts.len() - 1].1);
        match uffd.register(first, last - first) {
            Ok(()) => registered = Some((first, last)),
            Err(error) => tracing::debug!(
                pid = process.pid(),
                "mappings {first:#x}-{last:#x} not registered: {error}"
            ),
        }
        break;
    }
    let Some((mut low, mut high)) = registered else { return Ok(()) };
    points::register_done();
    // Left out on purpose: it was there before, as it is now.
    let left_out = |m: &Mapping| before.iter().any(|b| (b.start, b.end) == (m.start, m.end));
    let cut_off = |m: &Mapping| {
        m.private_anonymous()
            && m.permissions.starts_with('r')
            && !left_out(m)
            && !seen.own.iter().any(|o| m.start < o.end && o.start < m.end)
            && !is_known(&(m.start, m.end))
    };
    // What lay at the edges may have gone meanwhile, and a mapping of the span may have grown
    // beyond them: then it is cut in two now, and its other part must follow at once.
    for _ in 0..MAX_EDGES {
        let below = mappings::covering(&files.maps, low.saturating_sub(1));
        let above = mappings::covering(&files.maps, high);
        let Some(m) = below.into_iter().chain(above).find(cut_off) else { break };
        if uffd.register(m.start, m.bytes()).is_err() {
            break;
        }
        (low, high) = (low.min(m.start), high.max(m.end));
    }
    for _ in 0..MAX_EDGES {
        let maps = mappings::parse(&mappings::read_again(&mut files.maps)?);
        for m in maps.iter().filter(|m| m.start < high && low < m.end) {
            if !m.private_anonymous() {
                // Shared memory that came into a gap a moment ago is not ours.
                let _ = uffd.unregister(m.start, m.bytes());
                continue;
            }
            // What came into a gap after the kernel was asked is not registered: a page that left it
            // would be zeros when it is touched again. The next scan finds it.
            if uffd.covers(m.start, m.bytes()) != Some(true) {
                continue;
            }
            let mut regions = process.regions.lock();
            crate::faults::events::cut(&mut regions, m.start, m.end);
            regions.insert(m.start, m.end);
        }
        // The same where the kernel does not answer single questions.
        let edge = maps.iter().find(|m| (m.start == high || m.end == low) && cut_off(m));
        let Some(m) = edge.filter(|m| uffd.register(m.start, m.bytes()).is_ok()) else { break };
        (low, high) = (low.min(m.start), high.max(m.end));
    }
    drop(files);
    let registered: Vec<(u64, u64)> =
        process.regions.lock().range(low..high).map(|(s, e)| (*s, *e)).collect();
    for (start, end) in registered {
        adopt(shared, process, pagemap, start, end, events)?;
    }
    points::register_adopted();
    Ok(())
}

/// Adopts the present pages of a registered range. The space's lock is held for writing.
fn adopt(
    shared: &Shared,
    process: &Process,
    pagemap: &File,
    start: u64,
    end: u64,
    events: &mut Vec<Event>,
) -> std::io::Result<()> {
    let mut found = Vec::new();
    mappings::present_pages(pagemap, start, end, shared.page_bytes, |p| found.push(p))?;
    // Between our look at the table of regions and the scan the range may have been unmapped, and
    // mapped anew without us. Then the program still waits for its event to be read, which takes
    // the lock that we hold: the kernel tells.
    if process.memory.uffd.is_changing() {
        return Ok(());
    }
    for present in found {
        shared.mover.adopt(&process.space, present.first, present.pages, events);
    }
    Ok(())
}

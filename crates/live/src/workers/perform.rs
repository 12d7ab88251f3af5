//! How each piece of work is done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clew_core::{Event, Group, PageId, Vpn};
use clew_engine::driver::SAMPLE_BYTES;
use clew_engine::{MoverContext, SwapOut};
use clew_store::{ReadError, State};

use super::work::{Done, Look, Peeked, Work};
use crate::accessed::AccessedBits;
use crate::faults::poison::poison_if_damaged;
use crate::programs::alone::Alone;
use crate::programs::let_go;
use crate::programs::not_inherited::forget_what_is_missing;
use crate::programs::process::Process;
use crate::programs::regions::remove;
use crate::programs::scan::{Found, scan};
use crate::programs::shared::Shared;

/// Does one piece.
pub(super) fn perform(shared: &Arc<Shared>, work: Work, ctx: &mut MoverContext) -> Done {
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
        Work::Repack { process, groups, ticket } => {
            shared.mover.repack(&process.space, &groups, ctx);
            Done { ticket, process: Some(process), ..Done::default() }
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
        Work::PutUntouched { process, ticket } => {
            put_untouched(shared, &process);
            Done { ticket, untouched: true, process: Some(process), ..Done::default() }
        }
        Work::RestoreForGood { process, vpns, ticket } => {
            restore_for_good(shared, &process, &vpns, ctx);
            Done { ticket, process: Some(process), ..Done::default() }
        }
        Work::Scan { process, ticket } => {
            let began = Instant::now();
            let (Found { events, alone }, done) = scan(shared, &process, ctx);
            let took = began.elapsed();
            if let Err(error) = &done {
                tracing::debug!(pid = process.pid(), %error, "cannot scan a process");
            }
            let pages = |event: &Event| match event {
                Event::Resident { run } => u64::from(run.count),
                _ => 0,
            };
            let found_pages = done.is_ok().then(|| events.iter().map(pages).sum());
            let scanned = Some(Look { took, found_pages });
            Done { ticket, events, scanned, alone, process: Some(process), ..Done::default() }
        }
        Work::ClearAccessed { process, ticket } => {
            // If its number is another's by now, that one's bits are cleared, and nobody goes by them.
            match AccessedBits::clear(process.pid()) {
                Ok(()) => process.accessed_cleared.store(true, Ordering::Relaxed),
                Err(error) => tracing::debug!(pid = process.pid(), %error, "not cleared"),
            }
            Done { ticket, accessed_cleared: true, process: Some(process), ..Done::default() }
        }
        Work::LookAtOpenFiles { process, ticket } => {
            let began = Instant::now();
            let alone = Alone::by_open_files(process.pid());
            process.next_look.over(began.elapsed());
            Done { ticket, alone, process: Some(process), ..Done::default() }
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

/// Of so much of a program's memory that nobody has touched: zeros take no memory, but page tables do.
const MOST_UNTOUCHED_BYTES: u64 = 1 << 30;
/// Pages of which the kernel is asked at once whether they are there.
const ASKED_ABOUT: usize = 4096;

fn put_untouched(shared: &Shared, process: &Process) {
    // What is known of a child may be its parent's still.
    if process.may_lack() || process.memory.is_given_up() {
        return;
    }
    let mut left = MOST_UNTOUCHED_BYTES / shared.page_bytes;
    // Not held meanwhile: who reads events has the space's lock, and takes this one then.
    let regions = process.regions.lock().clone();
    for (start, end) in regions {
        let first = Vpn::of_addr(start, shared.page_bytes);
        let pages = (end - start) / shared.page_bytes;
        let windows = (0..pages).step_by(ASKED_ABOUT).flat_map(|at| {
            let count = ASKED_ABOUT.min((pages - at) as usize);
            process.memory.holes(Vpn(first.0 + at), count)
        });
        for (hole, pages) in windows {
            let put = shared.mover.put_untouched(&process.space, hole, pages, left);
            left -= put;
            // Of what is reserved there is no end; and where nothing can be put the mapping is gone.
            if left == 0 || put == 0 {
                break;
            }
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

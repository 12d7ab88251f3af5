//! The workers: everything that takes time and asks no policy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clew_core::{Event, Group, Vpn};
use clew_engine::MoverContext;
use crossbeam_channel::{Receiver, Sender};

use crate::attach::{Candidate, manage};
use crate::governor::Message;
use crate::mappings::{self, flags_allow, is_candidate};
use crate::process::{Process, Shared};

/// One piece of work. Each is answered by one [`Message::Done`].
pub enum Work {
    /// Take groups out of one process.
    SwapOut { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Bring pages back (ascending).
    Restore { process: Arc<Process>, vpns: Vec<Vpn>, ticket: u64 },
    /// Find and register new mappings.
    Scan { process: Arc<Process>, ticket: u64 },
    /// Prepare a candidate for management.
    Manage { candidate: Box<Candidate>, ticket: u64 },
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
    /// Pages stored or brought back.
    pub pages: usize,
    /// Pages it was asked about.
    pub asked: usize,
    /// The pool was full.
    pub full: bool,
    /// A candidate that became managed, or why not.
    pub managed: Option<Result<Arc<Process>, (u32, String)>>,
}

/// Works until the channel closes.
pub fn run(shared: &Arc<Shared>, work: &Receiver<Work>, answer: &Sender<Message>) {
    let mut ctx = MoverContext::default();
    while let Ok(item) = work.recv() {
        let done = perform(shared, item, &mut ctx);
        if answer.send(Message::Done(Box::new(done))).is_err() {
            return;
        }
    }
}

fn perform(shared: &Arc<Shared>, work: Work, ctx: &mut MoverContext) -> Done {
    match work {
        Work::SwapOut { process, groups, ticket } => {
            let asked = groups.iter().map(|g| g.pages.len()).sum();
            let out = shared.mover.swap_out(&process.space, &groups, ctx);
            process.swapped_out.fetch_add(out.stored as u64, Ordering::Relaxed);
            if let Some(full) = &out.full {
                tracing::debug!(%full, "the pool is full");
            }
            Done {
                ticket,
                events: out.events,
                pages: out.stored,
                asked,
                full: out.full.is_some(),
                process: Some(process),
                managed: None,
            }
        }
        Work::Restore { process, vpns, ticket } => {
            let mut events = Vec::new();
            let result = shared.mover.restore(&process.space, &vpns, ctx, &mut events);
            process.restored.fetch_add(result.pages as u64, Ordering::Relaxed);
            if let Some((vpn, error)) = result.corrupt {
                let addr = vpn.addr(shared.page_bytes);
                tracing::error!(pid = process.pid, "the stored copy of the page at {addr:#x} is \
                    damaged ({error}): the program gets SIGBUS when it touches it");
                process.memory.uffd.poison(addr, shared.page_bytes);
            }
            Done {
                ticket,
                events,
                pages: result.pages,
                asked: vpns.len(),
                process: Some(process),
                ..Done::default()
            }
        }
        Work::Scan { process, ticket } => {
            let events = scan(shared, &process).unwrap_or_else(|error| {
                tracing::debug!(pid = process.pid, %error, "cannot scan a process");
                Vec::new()
            });
            Done { ticket, events, process: Some(process), ..Done::default() }
        }
        Work::Manage { candidate, ticket } => {
            let pid = candidate.pid;
            let managed = manage(shared, *candidate).map_err(|error| (pid, error.to_string()));
            let mut done = Done { ticket, ..Done::default() };
            if let Ok(process) = &managed {
                done.events = scan(shared, process).unwrap_or_default();
                done.process = Some(process.clone());
            }
            done.managed = Some(managed);
            done
        }
    }
}

/// Registers mappings that are new, and adopts pages that are present.
fn scan(shared: &Shared, process: &Process) -> std::io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let (Some(files), Some(pagemap)) = (&process.files, process.memory.pagemap()) else {
        return Ok(events);
    };
    let (pointers, quiet) = mappings::stack_pointers(process.pid);
    let maps = mappings::parse(&mappings::read_again(&mut files.lock().maps)?);
    let known = process.regions.lock().clone();
    let is_known = |start: u64, end: u64| {
        known.range(..=start).next_back().is_some_and(|(_, e)| *e >= end)
    };
    let candidate = |i: usize, list: &[mappings::Mapping]| {
        is_candidate(&list[i], i.checked_sub(1).map(|b| &list[b]), &pointers)
    };
    let new = (0..maps.len()).any(|i| candidate(i, &maps) && !is_known(maps[i].start, maps[i].end));
    if new {
        // Flags are only in smaps, which walks the page tables: read it when it matters.
        let smaps = mappings::parse(&mappings::read_again(&mut files.lock().smaps)?);
        for i in 0..smaps.len() {
            let m = &smaps[i];
            if candidate(i, &smaps) && flags_allow(m) && !is_known(m.start, m.end) {
                adopt_mapping(shared, process, pagemap, m.start, m.end, &mut events)?;
            }
        }
    }
    // Pages that are present though the table says Absent: given up by a madvise that only marks
    // them (MADV_FREE) and in use again without a fault, or about to be dropped by a call whose
    // event was read. The latter is ruled out once every thread was seen elsewhere.
    if quiet {
        for (start, end) in known {
            let _events_wait = process.space.table.lock.write();
            adopt_present(shared, process, pagemap, start, end, &mut events)?;
        }
    }
    Ok(events)
}

fn adopt_mapping(
    shared: &Shared,
    process: &Process,
    pagemap: &std::fs::File,
    start: u64,
    end: u64,
    events: &mut Vec<Event>,
) -> std::io::Result<()> {
    // The lock keeps events unread while the scan believes what it sees.
    let _events_wait = process.space.table.lock.write();
    if let Err(error) = process.memory.uffd.register(start, end - start) {
        tracing::debug!(pid = process.pid, "mapping {start:#x}-{end:#x} not registered: {error}");
        return Ok(());
    }
    {
        let mut regions = process.regions.lock();
        crate::fault::cut(&mut regions, start, end);
        regions.insert(start, end);
    }
    adopt_present(shared, process, pagemap, start, end, events)
}

fn adopt_present(
    shared: &Shared,
    process: &Process,
    pagemap: &std::fs::File,
    start: u64,
    end: u64,
    events: &mut Vec<Event>,
) -> std::io::Result<()> {
    mappings::present_pages(pagemap, start, end, shared.page_bytes, |present| {
        shared.mover.adopt(&process.space, present.first, present.pages, events);
    })
}

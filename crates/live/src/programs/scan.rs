//! Finding memory that is new: registering mappings, and adopting the pages that are in them.
//!
//! The space's lock is held in short pieces: for one registration, and for one window of pages that are
//! adopted. What takes long, `maps`, `smaps` and the threads' states, is read without it; so is which
//! pages are there, and that is believed if no event was applied meanwhile.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{Event, Vpn};
use clew_engine::MoverContext;
use clew_store::{Entry, points};

use crate::faults::affinity::Unpreempted;
use crate::programs::alone::Alone;
use crate::programs::calls;
use crate::programs::let_go::leave_out;
use crate::programs::mappings::{self, Mapping, Span};
use crate::programs::not_inherited::{forget_what_is_missing, look_to_the_end};
use crate::programs::pagemap::{self, Present};
use crate::programs::process::Process;
use crate::programs::regions::{cut, parts_in};
use crate::programs::shared::Shared;

/// Times that a span's edges are looked at again when they move while one looks.
const MAX_LOOKS: usize = 8;

/// Neighbours that a registration may have to take in, one after the other.
const MAX_EDGES: usize = 16;

/// How often pages that were just registered are tried again where the program is changing its mappings, and how far apart.
const TRIES: u32 = 10;
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// How long one scan looks again at a program that is changing its mappings.
const LONGEST: Duration = Duration::from_millis(500);

/// Pages adopted at a time: some tens of microseconds.
const WINDOW_PAGES: u64 = 4096;

/// What a scan has found.
#[derive(Default)]
pub struct Found {
    /// Pages that are there.
    pub events: Vec<Event>,
    /// The program is to be left alone: nothing was registered.
    pub alone: Option<Alone>,
}

/// Registers mappings that are new, and adopts pages that are present. What was found before an error counts: it is in the
/// table, and nobody will find it again.
pub fn scan(
    shared: &Shared,
    process: &Process,
    ctx: &mut MoverContext,
) -> (Found, std::io::Result<()>) {
    let mut found = Found::default();
    let done = find(shared, process, &mut found, ctx);
    (found, done)
}

fn find(
    shared: &Shared,
    process: &Process,
    found: &mut Found,
    ctx: &mut MoverContext,
) -> std::io::Result<()> {
    let (Some(files), Some(pagemap)) = (process.files.get(), process.memory.pagemap()) else {
        return Ok(());
    };
    // What is known of a child may be its parent's still.
    if !look_to_the_end(shared, process) {
        return Ok(());
    }
    let (pointers, _) = calls::stack_pointers(process.pid());
    let own = process.agents_own(shared.page_bytes);
    let left_out = process.left_out.load(Ordering::SeqCst);
    let known = process.regions.lock().clone();
    let is_known =
        |start: u64, end: u64| known.range(..=start).next_back().is_some_and(|(_, e)| *e >= end);
    let maps = files.mappings()?;
    let wanted = |span: &Span| span.parts.iter().any(|p| !is_known(p.0, p.1));
    if mappings::spans(&maps, &pointers, &own).iter().any(wanted) {
        // Who writes memory through a file opens that first and maps what it writes there afterwards: nothing of that
        // is registered if one looks in between.
        found.alone = Alone::by_open_files(process.pid());
        if found.alone.is_some() {
            return Ok(());
        }
        // Flags are only in smaps, which walks the page tables: read it when it matters.
        let smaps = files.mappings_with_flags()?;
        let until = Instant::now() + LONGEST;
        let seen = Seen { smaps: &smaps, pointers: &pointers, own: &own, left_out, until };
        let mut registered = BTreeMap::new();
        let spans = mappings::spans(&smaps, &pointers, &own);
        let done: std::io::Result<()> =
            spans.iter().filter(|span| wanted(span)).try_for_each(|span| {
                registered.extend(register(shared, process, span, &seen)?);
                Ok(())
            });
        if !registered.is_empty() {
            let smaps = files.mappings_with_flags()?;
            give_back_refused(shared, process, &smaps, &mut registered, ctx);
        }
        for (start, end) in registered {
            adopt(shared, process, pagemap, start..end, None, &mut found.events)?;
            points::register_adopted();
        }
        done?;
    }
    // Pages that are present though the table says Absent: given up by a madvise that only marks
    // them (MADV_FREE) and in use again without a fault, or about to be dropped by a call whose
    // event was read. The latter is ruled out once every thread was seen elsewhere, if no further
    // event has been read since.
    let applied = process.applied.load(Ordering::SeqCst);
    if calls::stack_pointers(process.pid()).1 {
        let quiet = Quiet { applied, is_alone: OnceCell::new() };
        // Not held meanwhile: who reads events has the space's lock, and takes this one then.
        let regions = process.regions.lock().clone();
        for (start, end) in regions {
            adopt(shared, process, pagemap, start..end, Some(&quiet), &mut found.events)?;
        }
    }
    Ok(())
}

/// What was registered by the flags of something else, which lay there when they were read, and must not be: a child
/// would find its parent's bytes where it is to find none. What was touched since may have left, or be on its way.
fn give_back_refused(
    shared: &Shared,
    process: &Process,
    smaps: &[Mapping],
    registered: &mut BTreeMap<u64, u64>,
    ctx: &mut MoverContext,
) {
    for m in smaps.iter().filter(|m| m.is_refused()) {
        if parts_in(registered, m.start, m.end).is_empty() {
            continue;
        }
        if !leave_out(shared, process, &(m.start..m.end), ctx) {
            let pid = process.pid();
            tracing::warn!(pid, "{:#x}-{:#x} should be left alone, and has left", m.start, m.end);
            continue;
        }
        cut(registered, m.start, m.end);
    }
}

/// No thread of the program was in a call that drops pages a moment ago.
struct Quiet {
    /// The last event that had been applied then.
    applied: u32,
    /// Whether nobody else shares the memory, whose calls were not looked at. Asked where there is something to adopt.
    is_alone: OnceCell<bool>,
}

/// What a scan saw a moment ago.
struct Seen<'a> {
    smaps: &'a [Mapping],
    pointers: &'a [u64],
    own: &'a [Range<u64>],
    left_out: u64,
    /// Until when all mappings are read again where some have changed.
    until: Instant,
}

/// Whether what lies in a span now is what was seen there: the same mappings, with the same protection.
fn is_as_seen(maps: &File, span: &Span, seen: &Seen<'_>) -> std::io::Result<bool> {
    let is_within = |m: &&Mapping| span.start <= m.start && m.end <= span.end;
    let mut now = mappings::touching(maps, span.start, span.end)?;
    now.retain(|m| is_within(&m));
    let first = seen.smaps.partition_point(|m| m.start < span.start);
    let then = seen.smaps[first..].iter().take_while(is_within);
    let is_same = |(now, then): (&Mapping, &Mapping)| {
        (now.start, now.end, &now.permissions, now.private_anonymous())
            == (then.start, then.end, &then.permissions, then.private_anonymous())
    };
    Ok(now.len() == then.clone().count() && now.iter().zip(then).all(is_same))
}

/// Registers a span of mappings together with the free addresses around it: a mapping that grows
/// or is joined by a neighbour before the kernel gets to it is still registered whole. Returns the
/// mappings that are registered now.
///
/// A mapping that is cut in two by this can be moved by no mremap until its other part has
/// followed. So the span's edges are looked at again right before, and once more right after, and
/// no other thread gets this CPU in between.
fn register(
    shared: &Shared,
    process: &Process,
    wanted: &Span,
    seen: &Seen<'_>,
) -> std::io::Result<Vec<(u64, u64)>> {
    let Some(files) = process.files.get() else { return Ok(Vec::new()) };
    let uffd = &process.memory.uffd;
    let is_known = |part: &(u64, u64)| {
        let regions = process.regions.lock();
        regions.range(..=part.0).next_back().is_some_and(|(_, end)| *end >= part.1)
    };
    for look in 0..MAX_LOOKS {
        let (spans, before);
        // Nearly always it is as it was seen, which a few questions tell: reading all there is takes
        // long where mappings are many.
        let (span, before) = if look == 0 && is_as_seen(&files.maps, wanted, seen)? {
            (Some(wanted), seen.smaps)
        } else if Instant::now() > seen.until {
            // Where many mappings change all the time each look takes long: the next scan sees them.
            return Ok(Vec::new());
        } else {
            let maps = files.mappings()?;
            before = mappings::with_flags(maps, seen.smaps);
            spans = mappings::spans(&before, seen.pointers, seen.own);
            let overlaps = |s: &&Span| s.start < wanted.end && wanted.start < s.end;
            (spans.iter().find(overlaps), before.as_slice())
        };
        let Some(span) = span.filter(|span| !span.parts.iter().all(is_known)) else {
            return Ok(Vec::new());
        };
        let (start, end) = (span.start, span.end);
        // It keeps events unread while what is seen here is put down.
        let events_wait = process.space.table.lock.write();
        let maps = &files.maps;
        // What was left out since has other flags than were seen: the next scan sees them. And what
        // is known of memory that is not registered is another's, which was there before.
        if process.leaves().is_some()
            || process.left_out.load(Ordering::SeqCst) != seen.left_out
            || !forget_what_is_missing(shared, process, start, end)
        {
            return Ok(Vec::new());
        }
        let unpreempted = Unpreempted::now();
        let is_cut = |edge: u64| mappings::covering(maps, edge).is_some_and(|m| m.start < edge);
        if is_cut(start) || is_cut(end) {
            continue;
        }
        // Something else may have come into the gaps.
        let (first, last) = (span.parts[0].0, span.parts[span.parts.len() - 1].1);
        let whole = uffd.register(start, end - start).map(|()| (start, end));
        let registered =
            match whole.or_else(|_| uffd.register(first, last - first).map(|()| (first, last))) {
                Ok(range) => range,
                Err(error) => {
                    tracing::debug!(
                        pid = process.pid(),
                        "mappings {first:#x}-{last:#x} not registered: {error}"
                    );
                    return Ok(Vec::new());
                }
            };
        points::register_done();
        // Left out on purpose: it was there before, as it is now.
        let left_out = |m: &Mapping| {
            let at = before.binary_search_by_key(&m.start, |b| b.start);
            at.is_ok_and(|at| before[at].end == m.end)
        };
        let cut_off = |m: &Mapping| {
            m.private_anonymous()
                && m.permissions.starts_with('r')
                && !left_out(m)
                && !seen.own.iter().any(|o| m.start < o.end && o.start < m.end)
                && !is_known(&(m.start, m.end))
        };
        let registered = join_edges(process, maps, registered, cut_off);
        drop(unpreempted);
        let (range, found) = registered_in(process, maps, registered, cut_off)?;
        // What somebody has moved here, and nobody knows of yet, would be taken for what his move has to wait for. A program
        // that changes its memory all the time is looked at all the same.
        if look + 1 < MAX_LOOKS && uffd.is_changing() {
            events_wait.unlock_fair();
            std::thread::sleep(TRY_AGAIN);
            continue;
        }
        let mut regions = process.regions.lock();
        for (start, end) in found {
            cut(&mut regions, start, end);
            regions.insert(start, end);
        }
        let done = regions.range(range).map(|(s, e)| (*s, *e)).collect();
        drop(regions);
        // Faults that came meanwhile are answered before the next span.
        events_wait.unlock_fair();
        return Ok(done);
    }
    Ok(Vec::new())
}

/// Has what was cut off at the edges of a range that was registered follow it; the range with that. What lay
/// at the edges may have gone meanwhile, and a mapping of the span may have grown beyond them: then it is
/// cut in two now, and its other part must follow at once.
fn join_edges(
    process: &Process,
    maps: &File,
    (mut low, mut high): (u64, u64),
    cut_off: impl Fn(&Mapping) -> bool,
) -> (u64, u64) {
    let uffd = &process.memory.uffd;
    for _ in 0..MAX_EDGES {
        let below = mappings::covering(maps, low.saturating_sub(1));
        let above = mappings::covering(maps, high);
        let Some(m) = below.into_iter().chain(above).find(&cut_off) else { break };
        if uffd.register(m.start, m.bytes()).is_err() {
            break;
        }
        (low, high) = (low.min(m.start), high.max(m.end));
    }
    (low, high)
}

/// A range that was registered, and the mappings in it that are.
type Registered = (Range<u64>, Vec<(u64, u64)>);

/// Which mappings of a range that was registered are registered now, and the range with what was cut off at its edges. The
/// space's lock is held for writing.
fn registered_in(
    process: &Process,
    maps: &File,
    (mut low, mut high): (u64, u64),
    cut_off: impl Fn(&Mapping) -> bool,
) -> std::io::Result<Registered> {
    let uffd = &process.memory.uffd;
    let mut registered = Vec::new();
    for _ in 0..MAX_EDGES {
        let found = mappings::touching(maps, low, high)?;
        for m in found.iter().filter(|m| m.start < high && low < m.end) {
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
            registered.push((m.start, m.end));
        }
        // The same where the kernel does not answer single questions.
        let edge = found.iter().find(|m| (m.start == high || m.end == low) && cut_off(m));
        let Some(m) = edge.filter(|m| uffd.register(m.start, m.bytes()).is_ok()) else { break };
        (low, high) = (low.min(m.start), high.max(m.end));
    }
    Ok((low..high, registered))
}

/// Adopts the present pages of a registered range, window by window; with `quiet` only as long as no event has been
/// applied since.
///
/// Without it, a page may be adopted that a call is about to drop whose event is not read. Nothing is lost by
/// that: the page is taken for resident, a touch of it gets zeros as it must, and who takes it out
/// finds a hole. A stored page is never adopted over.
fn adopt(
    shared: &Shared,
    process: &Process,
    pagemap: &File,
    range: Range<u64>,
    quiet: Option<&Quiet>,
    events: &mut Vec<Event>,
) -> std::io::Result<()> {
    let window = WINDOW_PAGES * shared.page_bytes;
    let mut found = Vec::new();
    let look = |from: u64, found: &mut Vec<Present>| {
        let to = range.end.min(from + window);
        found.clear();
        pagemap::present_pages(pagemap, from, to, shared.page_bytes, |p| found.push(p))
    };
    for from in range.clone().step_by(window as usize) {
        for again in (0..=TRIES).rev() {
            let seen = process.applied.load(Ordering::SeqCst);
            look(from, &mut found)?;
            if found.is_empty() {
                break;
            }
            if let Some(quiet) = quiet {
                let is_new = |present: &Present| {
                    let mut pages = present.first.0..present.first.0 + present.pages;
                    pages.any(|page| process.space.table.load(Vpn(page)) == Entry::ABSENT)
                };
                if !found.iter().any(is_new) {
                    break;
                }
                if !quiet.is_alone.get_or_init(|| process.is_alone_in_its_memory()) {
                    return Ok(());
                }
            }
            let events_wait = process.space.table.lock.write();
            let now = process.applied.load(Ordering::SeqCst);
            if quiet.is_some_and(|quiet| quiet.applied != now) {
                return Ok(());
            }
            if seen != now {
                look(from, &mut found)?;
            }
            // Between our look at the table of regions and the scan the range may have been unmapped, and
            // mapped anew without us. Then the program still waits for its event to be read, which takes
            // the lock that we hold: the kernel tells.
            if process.memory.uffd.is_changing() {
                drop(events_wait);
                // What is not adopted now is once all threads are seen to be elsewhere, which may never be.
                if quiet.is_some() || again == 0 {
                    return Ok(());
                }
                std::thread::sleep(TRY_AGAIN);
                continue;
            }
            // What was registered a moment ago may have been unmapped since, and something else be there: what left that
            // would be zeros.
            let page = shared.page_bytes;
            let regions = process.regions.lock();
            for present in &found {
                let start = present.first.addr(page);
                for (start, end) in parts_in(&regions, start, start + present.pages * page) {
                    let (first, pages) = (Vpn::of_addr(start, page), (end - start) / page);
                    shared.mover.adopt(&process.space, first, pages, events);
                }
            }
            drop(regions);
            events_wait.unlock_fair();
            break;
        }
    }
    Ok(())
}

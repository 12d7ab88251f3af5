//! Live equals replay: what a recording daemon asked of its policies is asked again, of the same
//! scheme, at the same places among the same events; the answers are compared with those that stand
//! in the trace.
//!
//! Where timing decides, they may differ: the daemon's page tables are ahead of what its policies
//! have been told by what waits in its queues. Here they are ahead by the pages that came back with
//! the one that the prefetcher is asked about, and by nothing else. A victim that is chosen by only one
//! of the two is told as having stayed, so that later questions still mean the same.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use clew_core::{
    AppId, Demand, Event, PageCounts, PageFacts, PageId, PageRun, SampleDemand, SpaceId, Tier,
    Trigger, Vpn,
};
use clew_engine::decide::Engine;
use clew_policy::Scheme;
use clew_trace::{Note, Record, Source, Stamped, Trace};
use serde::Serialize;

use crate::error::LabError;
use crate::page_map::LEAF;
use crate::replay::Progress;
use crate::sane;
use crate::spaces::Spaces;

/// How far two sets of choices agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Made by the daemon.
    pub recorded: u64,
    /// Made here.
    pub replayed: u64,
    /// Made by both.
    pub both: u64,
}

impl Agreement {
    fn add<T: Eq + std::hash::Hash>(&mut self, recorded: &HashSet<T>, replayed: &HashSet<T>) {
        self.recorded += recorded.len() as u64;
        self.replayed += replayed.len() as u64;
        self.both += recorded.intersection(replayed).count() as u64;
    }

    /// Of all choices that one of the two made, the part that both made; 1 if there was none.
    pub fn share(&self) -> f64 {
        let all = self.recorded + self.replayed - self.both;
        if all == 0 { 1.0 } else { self.both as f64 / all as f64 }
    }
}

/// What was decided live, and is decided again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decisions {
    /// Name of the scheme.
    pub scheme: String,
    /// Questions that were asked.
    pub questions: u64,
    /// Of these, answered the same to the last page, in the same order.
    pub same: u64,
    /// Pages to take out.
    pub victims: Agreement,
    /// Pages that are stored as one group, with its codec, chunk size and hotness.
    pub groups: Agreement,
    /// Pages to bring back early.
    pub prefetches: Agreement,
    /// Pages to watch.
    pub samples: Agreement,
    /// Apps to end.
    pub endings: Agreement,
    /// The number of the record of the first question that was answered otherwise.
    pub first_difference: Option<u64>,
}

/// One question of the recording daemon.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Question {
    Pages(Demand),
    App(AppId),
    Prefetch(Trigger),
    Samples(SampleDemand),
}

/// Pages that a daemon manages at most.
const MOST_PAGES: u64 = 1 << 26;

/// Asks again. The scheme stands in the trace.
///
/// # Errors
/// Those of reading; [`LabError::Record`] for what no daemon writes down.
pub fn decisions(trace: &Trace, progress: Progress<'_>) -> Result<Decisions, LabError> {
    let provenance = &trace.header().provenance;
    let scheme = provenance.notes.get("scheme_toml");
    let (Source::Recorded, Some(scheme)) = (provenance.source, scheme) else {
        return Err(LabError::Setting {
            what: trace.path().display().to_string(),
            why: "it has no decisions: only what 'clew record' writes has some".to_string(),
        });
    };
    let scheme = Scheme::from_toml(scheme)?;
    let mut engine = Engine::new(&scheme);
    engine.set_page_bytes(trace.header().page_bytes);
    let found = Decisions { scheme: scheme.name.clone(), ..Decisions::default() };
    let mut asker = Asker {
        engine,
        pages: Pages::default(),
        ahead: VecDeque::with_capacity(AHEAD),
        found,
        open: None,
        asked_for: None,
    };
    let failed = LabError::trace;
    let mut spaces = Spaces::default();
    let mut records = trace.records().map_err(failed(trace.path()))?;
    let mut number = 0u64;
    loop {
        while asker.ahead.len() < AHEAD
            && let Some(stamped) = records.next()
        {
            asker.ahead.push_back(stamped.map_err(failed(trace.path()))?);
        }
        let Some(stamped) = asker.ahead.pop_front() else { break };
        sane::check(number, &stamped.record, MOST_PAGES)?;
        for space in spaces.note(&stamped.record) {
            asker.pages.remove(space);
        }
        asker.play(number, stamped.at, &stamped.record);
        let answered = asker.open.as_ref().map_or(0, |open| open.pages);
        if answered > MOST_PAGES || asker.pages.is_too_much(MOST_PAGES) {
            let why = "more pages than a daemon manages".to_string();
            return Err(LabError::Record { record: number, field: "pages", why });
        }
        number += 1;
        if number.is_multiple_of(1 << 16) {
            progress(records.position(), trace.file_bytes());
        }
    }
    asker.close();
    Ok(asker.found)
}

/// Records that are looked at beforehand: more than a block has pages.
const AHEAD: usize = 512;

/// A question, and what the daemon's policies answered.
struct Open {
    record: u64,
    question: Question,
    answer: Vec<Note>,
    /// Pages that the answer names, some more than once.
    pages: u64,
}

impl Open {
    fn new(record: u64, question: Question) -> Open {
        Open { record, question, answer: Vec::new(), pages: 0 }
    }
}

struct Asker {
    engine: Engine,
    pages: Pages,
    /// The next records.
    ahead: VecDeque<Stamped>,
    found: Decisions,
    open: Option<Open>,
    /// The fault or hit that the prefetcher was last asked about: it is only noted where there is
    /// something to bring back.
    asked_for: Option<Trigger>,
}

impl Asker {
    fn play(&mut self, number: u64, at: clew_core::Ns, record: &Record) {
        if let Record::Note(
            note @ (Note::Group { .. }
            | Note::Victim { .. }
            | Note::Prefetch { .. }
            | Note::Sample { .. }
            | Note::EndApp { .. }),
        ) = record
            && let Some(open) = &mut self.open
        {
            open.answer.push(*note);
            open.pages += match note {
                Note::Sample { run } => u64::from(run.count),
                _ => 1,
            };
            return;
        }
        if let Record::Contents { .. } = record {
            // Written down by others, also in the middle of an answer.
            return;
        }
        self.close();
        let question = match *record {
            Record::Note(Note::TierUse { tier, used_bytes, pages }) => {
                return self.engine.set_tier_use(tier, used_bytes, pages);
            }
            Record::Note(Note::AskedPages { pages, urgent }) => {
                self.tell(at, &Event::Pressure { pages, urgent });
                Question::Pages(Demand { pages: pages as usize, urgent })
            }
            Record::Note(Note::AskedApp { app }) => Question::App(app),
            Record::Note(Note::AskedPrefetch { trigger }) => Question::Prefetch(trigger),
            Record::Note(Note::AskedSamples { app, pages, run_pages }) => {
                let pages = usize::try_from(pages).unwrap_or(usize::MAX);
                Question::Samples(SampleDemand { app, pages, run_pages })
            }
            Record::Note(Note::Spared { app }) => return self.engine.spare(app),
            ref record => return self.event(number, at, record),
        };
        self.open = Some(Open::new(number, question));
    }

    fn event(&mut self, number: u64, at: clew_core::Ns, record: &Record) {
        let trigger = match *record {
            Record::Note(Note::PageIn { page, demand: true, .. }) => Some(Trigger::Fault(page)),
            Record::Note(Note::PrefetchUsed { page }) => Some(Trigger::Hit(page)),
            _ => None,
        };
        if let Some(trigger) = trigger
            && self.asked_for.take() != Some(trigger)
        {
            let question = Question::Prefetch(trigger);
            self.open = Some(Open::new(number, question));
            self.close();
            self.asked_for = None;
        }
        if let Some(event) = record.to_event() {
            self.pages.note(&event);
            self.tell(at, &event);
        }
    }

    fn tell(&mut self, at: clew_core::Ns, event: &Event) {
        self.engine.tell(at, event, &self.pages);
        // The trace says when each was done.
        self.engine.take_jobs(|job| (job.run)());
    }

    /// Pages that came back with the one that is asked about are back, though nobody was told.
    fn look_ahead(&mut self) {
        for Stamped { record, .. } in &self.ahead {
            match *record {
                Record::Note(Note::PageIn { page, demand: false, .. }) => {
                    self.pages.set(page, Some(At::Resident));
                }
                Record::Contents { .. } => {}
                _ => return,
            }
        }
    }

    /// Asks what is open, and compares.
    fn close(&mut self) {
        let Some(Open { record, question, answer: recorded, .. }) = self.open.take() else {
            return;
        };
        let mut orders = Vec::new();
        let replayed: Vec<Note> = match question {
            Question::Pages(demand) => {
                self.engine.plan_swap_out(demand, &self.pages, &mut orders);
                orders.iter().flat_map(Note::of_order).collect()
            }
            Question::App(app) => {
                self.engine.plan_app_out(app, &self.pages, &mut orders);
                orders.iter().flat_map(Note::of_order).collect()
            }
            Question::Prefetch(trigger) => {
                self.asked_for = Some(trigger);
                if !matches!(trigger, Trigger::Relaunch(_)) {
                    self.look_ahead();
                }
                let mut picked = Vec::new();
                self.engine.plan_prefetch(trigger, &self.pages, &mut picked);
                picked.into_iter().map(|page| Note::Prefetch { page }).collect()
            }
            Question::Samples(wanted) => {
                let runs = self.engine.plan_samples(wanted, &self.pages);
                runs.into_iter().map(|run| Note::Sample { run }).collect()
            }
        };
        self.found.questions += 1;
        if recorded == replayed {
            self.found.same += 1;
        } else {
            self.found.first_difference.get_or_insert(record);
        }
        let (before, now) = (Chosen::of(&recorded), Chosen::of(&replayed));
        self.found.victims.add(&before.victims, &now.victims);
        self.found.groups.add(&before.groups, &now.groups);
        self.found.prefetches.add(&before.prefetches, &now.prefetches);
        self.found.samples.add(&before.samples, &now.samples);
        self.found.endings.add(&before.endings, &now.endings);
        // On their way out, until the trace says what became of them.
        before.victims.iter().for_each(|page| self.pages.leave_out(*page));
        let mut only_here: Vec<PageId> = now.victims.difference(&before.victims).copied().collect();
        only_here.sort_unstable();
        let at = self.engine.facts().now;
        for page in only_here {
            self.tell(at, &Event::Stayed { page });
        }
    }
}

/// The choices of one answer.
#[derive(Default)]
struct Chosen {
    victims: HashSet<PageId>,
    groups: HashSet<(String, Vec<PageId>)>,
    prefetches: HashSet<PageId>,
    samples: HashSet<PageId>,
    endings: HashSet<AppId>,
}

impl Chosen {
    fn of(answer: &[Note]) -> Chosen {
        let mut chosen = Chosen::default();
        let mut group: Option<(String, Vec<PageId>)> = None;
        for note in answer {
            match note {
                Note::Victim { page } => {
                    chosen.victims.insert(*page);
                    if let Some((_, pages)) = &mut group {
                        pages.push(*page);
                    }
                    continue;
                }
                Note::Prefetch { page } => drop(chosen.prefetches.insert(*page)),
                Note::Sample { run } => chosen.samples.extend(run.pages()),
                Note::EndApp { app } => drop(chosen.endings.insert(*app)),
                _ => {}
            }
            let begun = matches!(note, Note::Group { .. });
            let next = begun.then(|| (format!("{note:?}"), Vec::new()));
            chosen.groups.extend(std::mem::replace(&mut group, next));
        }
        chosen.groups.extend(group);
        chosen
    }
}

/// Where a page is, as far as the trace has told.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Resident,
    Leaving,
    Tier(Tier),
}

#[derive(Default)]
struct OfSpace {
    pages: BTreeMap<Vpn, At>,
    counts: PageCounts,
    leaves: HashSet<u64>,
}

impl OfSpace {
    fn count(&mut self, at: Option<At>, up: bool) {
        let counter = match at {
            Some(At::Resident | At::Leaving) => &mut self.counts.resident,
            Some(At::Tier(tier)) => &mut self.counts.stored[tier.index()],
            None => return,
        };
        *counter = if up { *counter + 1 } else { *counter - 1 };
    }

    fn set(&mut self, vpn: Vpn, at: Option<At>) -> Option<At> {
        let before = match at {
            Some(at) => self.pages.insert(vpn, at),
            None => self.pages.remove(&vpn),
        };
        self.count(before, false);
        self.count(at, true);
        before
    }
}

/// The page tables that the events of a trace tell of.
#[derive(Default)]
struct Pages {
    spaces: HashMap<SpaceId, OfSpace>,
    /// Pages of all of them.
    known: u64,
    /// And leaves of neighbours that had one.
    leaves: u64,
}

impl Pages {
    fn set(&mut self, page: PageId, at: Option<At>) -> Option<At> {
        let of_space = self.spaces.entry(page.space()).or_default();
        let before = of_space.set(page.vpn(), at);
        if at.is_some() && before.is_none() {
            self.known += 1;
            self.leaves += u64::from(of_space.leaves.insert(page.vpn().0 / LEAF as u64));
        } else if at.is_none() && before.is_some() {
            self.known -= 1;
        }
        before
    }

    /// Whether there are more than `most`, or where nobody has neighbours as many leaves as those need.
    fn is_too_much(&self, most: u64) -> bool {
        self.known > most || self.leaves > most / LEAF as u64
    }

    fn remove(&mut self, space: SpaceId) {
        if let Some(gone) = self.spaces.remove(&space) {
            self.known -= gone.pages.len() as u64;
            self.leaves -= gone.leaves.len() as u64;
        }
    }

    fn leave_out(&mut self, page: PageId) {
        self.set(page, Some(At::Leaving));
    }

    fn in_run(&self, run: PageRun) -> Vec<Vpn> {
        let first = run.first.vpn();
        let end = Vpn(first.0.saturating_add(u64::from(run.count)));
        let of_space = self.spaces.get(&run.first.space());
        of_space.map_or(Vec::new(), |s| s.pages.range(first..end).map(|(vpn, _)| *vpn).collect())
    }

    fn note(&mut self, event: &Event) {
        match *event {
            Event::Resident { run } => {
                for page in run.pages() {
                    self.set(page, Some(At::Resident));
                }
            }
            Event::PageIn { page, .. }
            | Event::Access { page, .. }
            | Event::Stayed { page }
            | Event::PrefetchUsed { page } => {
                self.set(page, Some(At::Resident));
            }
            Event::Stored { page, tier, .. } => {
                self.set(page, Some(At::Tier(tier)));
            }
            Event::Freed { run } => {
                let space = run.first.space();
                for vpn in self.in_run(run) {
                    self.set(PageId::new(space, vpn), None);
                }
            }
            Event::Moved { from, to } => {
                self.note(&Event::Freed { run: PageRun { first: to, ..from } });
                for vpn in self.in_run(from) {
                    let page = PageId::new(from.first.space(), vpn);
                    let at = self.set(page, None);
                    self.set(to.plus(page.raw() - from.first.raw()), at);
                }
            }
            _ => {}
        }
    }
}

impl PageFacts for Pages {
    fn tier(&self, page: PageId) -> Option<Tier> {
        match self.spaces.get(&page.space())?.pages.get(&page.vpn())? {
            At::Tier(tier) => Some(*tier),
            At::Resident | At::Leaving => None,
        }
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        self.spaces.get(&space).map_or(PageCounts::default(), |of_space| of_space.counts)
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let Some(of_space) = self.spaces.get(&space) else { return };
        for (vpn, at) in &of_space.pages {
            match at {
                At::Resident => visit(PageId::new(space, *vpn), None),
                At::Tier(tier) => visit(PageId::new(space, *vpn), Some(*tier)),
                At::Leaving => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_without_neighbours_count_as_their_leaves() {
        let mut pages = Pages::default();
        let page = |space, vpn| PageId::new(SpaceId(space), Vpn(vpn));
        let resident =
            |space, vpn, count| Event::Resident { run: PageRun { first: page(space, vpn), count } };
        pages.note(&resident(1, 0, 1024));
        assert!(!pages.is_too_much(1024) && pages.is_too_much(1023));
        pages.note(&Event::Freed { run: PageRun { first: page(1, 0), count: 1023 } });
        assert_eq!((pages.known, pages.leaves), (1, 2));
        pages.note(&resident(2, 4096, 1));
        assert!(!pages.is_too_much(3 * 512) && pages.is_too_much(2 * 512));
        pages.remove(SpaceId(1));
        assert_eq!((pages.known, pages.leaves), (1, 1));
    }
}

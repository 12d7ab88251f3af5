//! Threads of a model change memory at once, and are told of late and in another order. What is known
//! after all was applied must be what is there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::*;

const THREADS: usize = 4;
/// Places, each long enough for the longest mapping.
const PLACES: u64 = 8;
const PLACE: u64 = 1 << 12;
const PAGE: u64 = 1 << 8;

const CASES: u32 = 20_000;
static UNCLEAR: AtomicU32 = AtomicU32::new(0);

/// What is known: the number of what each page holds, and mappings.
#[derive(Clone, Default, Debug, PartialEq)]
struct Known {
    pages: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, u64>,
    /// As the daemon has them: those whose unmapping is still to be told.
    owed: Vec<Owed>,
}

/// A place that was left, and the places that were filled since.
#[derive(Clone, Debug, PartialEq)]
struct Owed {
    left: (u64, u64),
    filled: Vec<(u64, u64)>,
}

impl Layout for Known {
    fn is_occupied(&self, start: u64, end: u64) -> bool {
        self.pages.range(start..end).next().is_some()
            || self.mappings.range(..end).next_back().is_some_and(|(_, e)| *e > start)
    }

    fn is_mapping(&self, start: u64, end: u64) -> bool {
        self.mappings.get(&start) == Some(&end)
    }
}

impl Known {
    fn forget(&mut self, start: u64, end: u64) {
        self.pages.retain(|page, _| !(start..end).contains(page));
    }

    fn apply(&mut self, message: Message) {
        match message {
            Message::Remap { from, to, len } => {
                self.forget(to, to + len);
                let moved: Vec<(u64, u64)> =
                    self.pages.range(from..from + len).map(|(p, c)| (*p, *c)).collect();
                self.forget(from, from + len);
                self.pages.extend(moved.into_iter().map(|(page, c)| (page - from + to, c)));
                self.mappings.remove(&from);
                self.mappings.insert(to, to + len);
                self.owed.iter_mut().for_each(|owed| owed.filled.push((to, to + len)));
                self.owed.push(Owed { left: (from, from + len), filled: Vec::new() });
            }
            Message::Unmap { start, end } => {
                let owed = self.owed.iter().position(|owed| owed.left == (start, end));
                let since = owed.map(|i| self.owed.remove(i).filled).unwrap_or_default();
                if since.iter().any(|(s, e)| overlap(*s, *e, start, end)) {
                    return;
                }
                self.forget(start, end);
                self.mappings.retain(|s, e| !overlap(*s, *e, start, end));
            }
            Message::Remove { start, end } => self.forget(start, end),
            Message::Fork { .. } | Message::Fault { .. } => {}
        }
    }
}

/// What a thread is at.
#[derive(Default)]
struct Thread {
    /// Its mappings: place, length, number.
    own: Vec<(u64, u64, u64)>,
    /// Events of its call that are not posted yet.
    hidden: VecDeque<Message>,
    /// Whether one is posted and not read.
    waits: bool,
    /// Whether its call counts as over.
    over: bool,
}

#[derive(Default)]
struct Model {
    threads: [Thread; THREADS],
    /// What is mapped: place and end.
    taken: BTreeMap<u64, u64>,
    posted: VecDeque<(usize, Message)>,
    known: Known,
    read: Vec<Message>,
    numbers: u64,
    unclear: bool,
    /// What children were forked: whose, what it has of its parent's thread.
    children: Vec<Vec<(u64, u64, u64)>>,
}

impl Model {
    fn free_place(&self) -> Option<u64> {
        (0..PLACES).map(|n| n * PLACE).find(|at| !self.taken.contains_key(at))
    }

    /// The kernel registers and knows at once what appears while all is quiet.
    fn map(&mut self, thread: usize, pages: u64) {
        let Some(at) = self.free_place() else { return };
        self.numbers += 1;
        let end = at + pages * PAGE;
        self.taken.insert(at, end);
        self.threads[thread].own.push((at, pages * PAGE, self.numbers));
        self.known.mappings.insert(at, end);
        (0..pages).for_each(|p| {
            self.known.pages.insert(at + p * PAGE, self.numbers);
        });
    }

    fn is_quiet(&self) -> bool {
        self.posted.is_empty() && self.threads.iter().all(|t| t.hidden.is_empty() && t.over)
    }

    fn is_idle(&self, thread: usize) -> bool {
        let t = &self.threads[thread];
        t.hidden.is_empty() && !t.waits
    }

    fn act(&mut self, thread: usize, what: u8) {
        let Some((at, len, number)) = self.threads[thread].own.pop() else { return };
        let range = (at, at + len);
        let mut said = VecDeque::new();
        match what {
            0..=3 => {
                let Some(to) = self.free_place() else {
                    self.threads[thread].own.push((at, len, number));
                    return;
                };
                self.taken.remove(&at);
                self.taken.insert(to, to + len);
                self.threads[thread].own.insert(0, (to, len, number));
                said.push_back(Message::Remap { from: at, to, len });
                said.push_back(Message::Unmap { start: range.0, end: range.1 });
            }
            4 => {
                self.taken.remove(&at);
                said.push_back(Message::Unmap { start: range.0, end: range.1 });
            }
            5 => {
                self.threads[thread].own.insert(0, (at, len, 0));
                said.push_back(Message::Remove { start: range.0, end: range.1 });
            }
            _ => {
                self.threads[thread].own.push((at, len, number));
                let own = self.threads[thread].own.clone();
                let child = self.children.len() as i32;
                self.children.push(own);
                said.push_back(Message::Fork { child });
            }
        }
        self.threads[thread].hidden = said;
        self.threads[thread].over = false;
    }

    fn post(&mut self, thread: usize) {
        let t = &mut self.threads[thread];
        if !t.waits
            && let Some(message) = t.hidden.pop_front()
        {
            t.waits = true;
            self.posted.push_back((thread, message));
        }
    }

    fn settle(&mut self, thread: usize) {
        if self.is_idle(thread) {
            self.threads[thread].over = true;
        }
    }

    fn read(&mut self, most: usize) -> Result<(), TestCaseError> {
        for _ in 0..most.min(self.posted.len()) {
            let (thread, message) = self.posted.pop_front().unwrap();
            self.threads[thread].waits = false;
            self.read.push(message);
        }
        let trust = if self.is_quiet() { Trust::AllThere } else { Trust::Sure };
        while !self.read.is_empty() && !self.unclear {
            match next(&self.read, &self.known, trust) {
                Next::Apply(i) => {
                    let message = self.read.remove(i);
                    if let Message::Fork { child } = message {
                        self.check(&self.children[child as usize])?;
                    }
                    self.known.apply(message);
                }
                Next::Wait => return Ok(()),
                Next::Unclear => self.unclear = true,
            }
        }
        Ok(())
    }

    fn check(&self, own: &[(u64, u64, u64)]) -> Result<(), TestCaseError> {
        for (at, len, number) in own {
            let pages = self.known.pages.range(*at..at + len).map(|(_, number)| *number);
            let wanted = if *number == 0 { 0 } else { len / PAGE };
            prop_assert_eq!(pages.clone().count() as u64, wanted, "at {:#x}", at);
            prop_assert!(pages.clone().all(|n| n == *number), "{:?} at {:#x}", pages, at);
        }
        Ok(())
    }
}

/// Whether nobody had to give up.
fn run(steps: &[(u8, u8, u8)]) -> Result<bool, TestCaseError> {
    let mut model = Model::default();
    for thread in 0..THREADS {
        model.threads[thread].over = true;
        model.map(thread, 1 + thread as u64 % 2);
    }
    for (kind, thread, what) in steps {
        let thread = *thread as usize % THREADS;
        match kind {
            0..=3 if model.is_idle(thread) && model.threads[thread].over => {
                model.act(thread, *what % 7);
            }
            4..=6 => model.post(thread),
            7..=9 => model.settle(thread),
            10..=12 => model.read(1 + *what as usize % 4)?,
            13 if model.is_quiet() && model.read.is_empty() => {
                model.map(thread, 1 + u64::from(*what) % 3)
            }
            _ => {}
        }
    }
    // Every call comes to its end.
    for _ in 0..4 {
        for thread in 0..THREADS {
            model.post(thread);
        }
        model.read(usize::MAX)?;
    }
    (0..THREADS).for_each(|thread| model.settle(thread));
    model.read(0)?;
    if model.unclear {
        return Ok(false);
    }
    prop_assert!(model.read.is_empty(), "left: {:?}", model.read);
    let all: Vec<_> = model.threads.iter().flat_map(|t| t.own.clone()).collect();
    model.check(&all)?;
    let pages: u64 = all.iter().filter(|(.., n)| *n != 0).map(|(_, len, _)| len / PAGE).sum();
    prop_assert_eq!(model.known.pages.len() as u64, pages, "more is known than there is");
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn what_is_known_is_what_is_there(
        steps in prop::collection::vec((0u8..14, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let followed = run(&steps)?;
        // Eight places for four threads: elsewhere it is rarer by far.
        UNCLEAR.fetch_add(u32::from(!followed), Relaxed);
        prop_assert!(UNCLEAR.load(Relaxed) <= CASES / 8);
    }
}

/// Whoever moves into a place comes before who left it: it is waited for.
#[test]
fn a_move_waits_for_who_left_its_place() {
    let mut known = Known::default();
    known.apply(Message::Remap { from: 0x9000, to: 0x1000, len: 0x200 });
    known.apply(Message::Remap { from: 0xa000, to: 0x2000, len: 0x100 });
    let comes = Message::Remap { from: 0x2000, to: 0x1000, len: 0x100 };
    let fork = Message::Fork { child: 3 };
    assert_eq!(next(&[comes, fork], &known, Trust::Sure), Next::Wait);
    let leaves = Message::Remap { from: 0x1000, to: 0x3000, len: 0x200 };
    assert_eq!(next(&[comes, fork, leaves], &known, Trust::Sure), Next::Apply(2));
    let ends = Message::Unmap { start: 0x1000, end: 0x1200 };
    assert_eq!(next(&[comes, fork, ends], &known, Trust::Sure), Next::Apply(2));
    // The move's own end of where it was must not come before it.
    let own = Message::Unmap { start: 0x2000, end: 0x2100 };
    assert_eq!(next(&[comes, own], &known, Trust::Sure), Next::Wait);
}

#[test]
fn which_of_two_left_first_is_not_guessed() {
    let mut known = Known::default();
    known.apply(Message::Remap { from: 0x9000, to: 0x1000, len: 0x100 });
    known.apply(Message::Remap { from: 0xa000, to: 0x2000, len: 0x100 });
    let comes = Message::Remap { from: 0x2000, to: 0x1000, len: 0x100 };
    let one = Message::Remap { from: 0x1000, to: 0x3000, len: 0x100 };
    let other = Message::Remap { from: 0x1000, to: 0x4000, len: 0x100 };
    assert_eq!(next(&[comes, one], &known, Trust::Sure), Next::Wait);
    assert_eq!(next(&[comes, one], &known, Trust::Fitting), Next::Apply(1));
    assert_eq!(next(&[comes, one, other], &known, Trust::AllThere), Next::Unclear);
    // What goes to where the first came from, and was read after it, came after it.
    let back = Message::Remap { from: 0x1000, to: 0x2000, len: 0x100 };
    assert_eq!(next(&[comes, one, back], &known, Trust::AllThere), Next::Apply(1));
    let own = Message::Unmap { start: 0x1000, end: 0x1100 };
    assert_eq!(next(&[comes, one, own], &known, Trust::AllThere), Next::Apply(1));
}

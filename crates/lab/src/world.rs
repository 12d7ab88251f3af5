//! What every page of every program holds, whatever becomes of it: the truth that a replay compares
//! with.
//!
//! A trace tells what a page holds when its source looked: a recorder looks when a page leaves.
//! Under another scheme the page may leave earlier. So a page that was not told about yet holds
//! what it is told to hold first, as `clew-trace` says, and a first reading of the trace
//! ([`Lookahead`]) finds that out: 4 bytes for every time a page comes into being.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{PageId, PageRun, SpaceId};
use clew_trace::{ContentId, Record, Trace};

use crate::error::LabError;
use crate::page_map::{LEAF, PageMap};
use crate::sane;
use crate::spaces::Spaces;

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Zeros: nothing was ever told.
    Zeros,
    /// These contents of the trace.
    Content(ContentId),
}

/// As [`Holds`], in a word; zero is no page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Word(u64);

const ZEROS: Word = Word(1);

impl Word {
    fn of(holds: Holds) -> Word {
        match holds {
            Holds::Zeros => ZEROS,
            Holds::Content(id) => Word(u64::from(id.0) + 2),
        }
    }

    fn holds(self) -> Holds {
        match self.0.checked_sub(2) {
            Some(id) => Holds::Content(ContentId(id as u32)),
            None => Holds::Zeros,
        }
    }
}

/// What each page holds first, in the order in which pages come into being: anonymous ones, and pages of
/// files, which not every replay plays.
#[derive(Debug, Default)]
pub struct Lookahead {
    firsts: [Vec<u32>; 2],
    peak_pages: u64,
}

/// What a trace may have of pages, so that following it takes a few GiB at most.
/// Most pages that page tables are made for; only those that are used take memory.
pub(crate) const MAX_PAGES: u64 = 1 << 27;

#[derive(Clone, Copy)]
struct Most {
    /// There at once; and as many in leaves of neighbours of which one is there.
    pages: u64,
    /// Come into being, one after the other.
    begun: u64,
}

const MOST: Most = Most { pages: MAX_PAGES, begun: 1 << 28 };

/// The kinds of pages, in arrays.
const ANONYMOUS: usize = 0;
const OF_FILES: usize = 1;
/// Nothing is told of the page.
const NEVER: u32 = u32::MAX;

impl Lookahead {
    /// Reads the trace once.
    ///
    /// # Errors
    /// Those of reading; [`LabError::Record`] for what no program does, and for more pages than a replay
    /// has room for.
    pub fn of(trace: &Trace) -> Result<Lookahead, LabError> {
        Lookahead::within(trace, MOST)
    }

    fn within(trace: &Trace, most: Most) -> Result<Lookahead, LabError> {
        let failed = |source| LabError::trace(trace.path())(source);
        /// Of a page: the place that waits for its first contents, plus one; or it was told.
        const TOLD: u64 = u64::MAX;
        let mut firsts = [Vec::new(), Vec::new()];
        // Of each kind.
        let (mut alive, mut peak_pages) = ([0u64; 2], 0u64);
        let mut pages = PageMap::<u64>::default();
        let mut spaces = Spaces::default();
        let mut kinds: BTreeMap<SpaceId, usize> = BTreeMap::new();
        for stamped in trace.records().map_err(failed)? {
            let record = stamped.map_err(failed)?.record;
            let number = spaces.noted();
            sane::check(number, &record, most.pages)?;
            let was_file = |space| kinds.get(&space).copied().unwrap_or_default();
            for ended in spaces.note(&record) {
                pages.take_space(ended, |_| alive[was_file(ended)] -= 1);
            }
            if let Record::SpaceStart { space, file, .. } = record {
                kinds.insert(space, usize::from(file));
            }
            let Some(first) = record.pages().map(|run| run.first) else { continue };
            let kind = match (spaces.is_anonymous(first.space()), spaces.is_file(first.space())) {
                (true, _) => ANONYMOUS,
                (_, true) => OF_FILES,
                _ => continue,
            };
            let before = firsts[kind].len();
            match record {
                Record::Resident { run } => {
                    for page in run.pages() {
                        begin(&mut pages, page, &mut firsts[kind]);
                    }
                }
                Record::Access { page, .. } | Record::Candidate { page } => {
                    begin(&mut pages, page, &mut firsts[kind]);
                }
                Record::Contents { page, content } => {
                    begin(&mut pages, page, &mut firsts[kind]);
                    let place = std::mem::replace(pages.entry(page), TOLD);
                    if place != TOLD {
                        firsts[kind][place as usize - 1] = content.0;
                    }
                }
                Record::Freed { run } => pages.take_run(run, |_, _| alive[kind] -= 1),
                Record::Moved { from, to } => {
                    pages.take_run(PageRun { first: to, ..from }, |_, _| alive[kind] -= 1);
                    pages.move_run(from, to);
                }
                _ => {}
            }
            alive[kind] += (firsts[kind].len() - before) as u64;
            peak_pages = peak_pages.max(alive[ANONYMOUS]);
            let in_leaves = (pages.leaves() * LEAF) as u64;
            let there: u64 = alive.iter().sum();
            let begun: usize = firsts.iter().map(Vec::len).sum();
            if there.max(in_leaves) > most.pages || begun as u64 > most.begun {
                let why = "more pages than a replay has room for".to_string();
                return Err(LabError::Record { record: number, field: "pages", why });
            }
        }
        Ok(Lookahead { firsts, peak_pages })
    }

    /// Pages of files that are used at all.
    pub fn file_pages(&self) -> u64 {
        self.firsts[OF_FILES].len() as u64
    }

    /// Most pages of anonymous memory that are there at once.
    pub fn peak_pages(&self) -> u64 {
        self.peak_pages
    }
}

fn begin(pages: &mut PageMap<u64>, page: PageId, firsts: &mut Vec<u32>) {
    let place = pages.entry(page);
    if *place == 0 {
        firsts.push(NEVER);
        *place = firsts.len() as u64;
    }
}

/// What pages hold now. See the module.
pub struct World<'a> {
    pages: PageMap<Word>,
    lookahead: &'a Lookahead,
    /// Spaces that hold pages of files.
    files: BTreeSet<SpaceId>,
    /// How many pages of each kind have come into being.
    begun: [usize; 2],
}

impl World<'_> {
    /// Nothing is there yet.
    pub fn new(lookahead: &Lookahead) -> World<'_> {
        let (pages, files) = (PageMap::default(), BTreeSet::new());
        World { pages, lookahead, files, begun: [0; 2] }
    }

    /// The page is there from now on, if it was not before.
    #[inline]
    pub fn begin(&mut self, page: PageId) {
        let word = self.pages.entry(page);
        if word.0 == 0 {
            let is_file = !self.files.is_empty() && self.files.contains(&page.space());
            let (kind, begun) = match is_file {
                true => (OF_FILES, &mut self.begun[OF_FILES]),
                false => (ANONYMOUS, &mut self.begun[ANONYMOUS]),
            };
            let first = self.lookahead.firsts[kind].get(*begun).copied().unwrap_or(NEVER);
            *begun += 1;
            *word = match first {
                NEVER => ZEROS,
                id => Word::of(Holds::Content(ContentId(id))),
            };
        }
    }

    /// Only what pages hold is followed.
    pub fn pass_over(&mut self, record: &Record) {
        match *record {
            Record::Resident { run } => run.pages().for_each(|page| self.begin(page)),
            Record::Access { page, .. } | Record::Candidate { page } => self.begin(page),
            Record::Contents { page, content } => drop(self.set(page, content)),
            Record::Freed { run } => self.free(run),
            Record::Moved { from, to } => self.moved(from, to),
            _ => {}
        }
    }

    /// What `page` holds. Zeros, if it is not there.
    pub fn holds(&self, page: PageId) -> Holds {
        self.pages.get(page).holds()
    }

    /// From now on `page` holds `content`; true if that is something else than before.
    pub fn set(&mut self, page: PageId, content: ContentId) -> bool {
        self.begin(page);
        let new = Word::of(Holds::Content(content));
        std::mem::replace(self.pages.entry(page), new) != new
    }

    /// Whether [`World::set`] would change what the page holds.
    pub fn differs(&mut self, page: PageId, content: ContentId) -> bool {
        self.begin(page);
        self.pages.get(page) != Word::of(Holds::Content(content))
    }

    /// These pages are gone.
    pub fn free(&mut self, run: PageRun) {
        self.pages.take_run(run, |_, _| {});
    }

    /// These pages have moved.
    pub fn moved(&mut self, from: PageRun, to: PageId) {
        self.pages.move_run(from, to);
    }

    /// A space begins, which holds pages of files or anonymous ones.
    pub fn start(&mut self, space: SpaceId, file: bool) {
        self.end(space);
        if file {
            self.files.insert(space);
        }
    }

    /// All of a space is gone.
    pub fn end(&mut self, space: SpaceId) {
        self.pages.remove_space(space);
        self.files.remove(&space);
    }
}

#[cfg(test)]
mod tests {
    use clew_core::{AccessKind, AppId, Ns, Vpn};
    use clew_trace::{ContentsKind, Draft, Header, Provenance, Source, Writer};

    use super::*;

    #[test]
    fn a_trace_takes_no_more_memory_than_there_is_for_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("bomb.trace");
        let within = |records: &[Record]| {
            let provenance = Provenance::new(Source::Generated, "a test");
            let header = Header { page_bytes: 4096, contents: ContentsKind::None, provenance };
            let draft = Draft::new(&path, false).expect("a draft");
            let mut writer = Writer::new(draft, &header).expect("a header");
            let (app, space) = (AppId(1), SpaceId(1));
            writer.app(app, "app").expect("a name");
            let start = Record::SpaceStart { space, app, file: false };
            for record in [&[start], records].concat() {
                writer.record(Ns(0), record).expect("a record");
            }
            writer.finish().expect("an end").0.commit().expect("a file");
            let most = Most { pages: 4096, begun: 10_000 };
            Lookahead::within(&Trace::open(&path).expect("a trace"), most).map(drop)
        };
        let page = |vpn| PageId::new(SpaceId(1), Vpn(vpn));
        let run = |vpn, count| PageRun { first: page(vpn), count };
        let far =
            |n: u64| Record::Access { page: page(n << 20), kind: AccessKind::Fresh, write: true };
        let (all, none) =
            (Record::Resident { run: run(0, 4096) }, Record::Freed { run: run(0, 4096) });
        for fits in [vec![all, all], [all, none].repeat(2), (0..8).map(far).collect()] {
            within(&fits).expect("there is room");
        }
        for bomb in [
            vec![Record::Resident { run: run(0, 4097) }],
            vec![all, Record::Resident { run: run(4096, 1) }],
            [all, none].repeat(3),
            (0..9).map(far).collect(),
        ] {
            let error = within(&bomb).expect_err("there is no room");
            assert!(error.to_string().contains("pages") && error.is_bad_input(), "{error}");
        }
    }
}

//! The traces that Ariadne's authors publish: a directory of an app, a round and a kind of launch
//! (`APP/roundN/hot`, `APP/roundN/cold`), with what left DRAM, page by page, and what came back.
//!
//! They have no time stamps, and name a page by the place that it got in swap (its sector, whose
//! neighbours differ by 8) and by the frame that it was in (its PFN); both are used again. So this
//! is what an import makes of them:
//!
//! - A page is what was at a sector from one swap-out to the next. Its page number is the sector
//!   divided by 8, so that what left together is together; where a sector is used again, it is a
//!   new page with a number above [`REUSED`].
//! - Each round and kind is a life of its apps. All of them are launched, hold their pages (in the
//!   order of `lru_list.txt`, then in that of the swap-out), go to the background and are swapped
//!   out; then each is relaunched, accesses what was swapped in up to its first frame, is complete,
//!   and accesses the rest; at the end they exit.
//! - Times are made up: a microsecond a record, a second between phases, and a first frame when
//!   the paper says that this app has it (figure 2, ZRAM), or after 0.1 s.
//!
//! The recordings were made on a device that was in use: records are torn, there are holes, lines
//! that are none. All of that is passed over and counted.

mod lists;
mod raw;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::iter;
use std::path::{Path, PathBuf};

use clew_core::{AccessKind, AppId, Ns, PageId, PageRun, SPACES, SpaceId, Vpn};
use serde::Serialize;

use crate::error::TraceError;
use crate::header::{ContentsKind, Header, Provenance, Source};
use crate::record::{ContentId, Record};
use crate::regular;
use crate::writer::Writer;

use lists::{Label, Lines};

/// Bytes of a page on the devices that were traced.
pub const PAGE_BYTES: u32 = 4096;
/// Page numbers of pages whose sector had been used before begin here.
pub const REUSED: u64 = 1 << 41;
/// Page numbers of pages that are listed and never left begin here.
pub const LISTED: u64 = 1 << 42;
/// Sectors are below this.
const SECTORS: u64 = 8 * REUSED;

/// The apps of the published traces: name, uid, relaunch on ZRAM in milliseconds.
const APPS: [(&str, u32, u64); 5] = [
    ("youtube", 10123, 122),
    ("earth", 10124, 170),
    ("twitter", 10128, 262),
    ("bangdream", 10129, 138),
    ("firefox", 10130, 149),
];

/// What the paper says of its relaunches and its scripts do not bear out.
const PUBLISHED: &str = "\
    relaunches take what the authors' scripts say of ZRAM; of Ariadne the paper says 'within 10 %' of \
    DRAM, but YouTube's 73 to 75 ms are 16 to 19 % more than the scripts' 63 ms";

const STEP: u64 = 1_000;
const PHASE: u64 = 1_000_000_000;
const FIRST_FRAME: Ns = Ns::from_ms(100);

/// Why an import came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is nothing of the kind.
    #[error(
        "{0}: no swap-out trace there (expected APP/roundN/hot/swapout_trace.txt and its like)"
    )]
    Nothing(PathBuf),
    /// Not all of it has room in one trace.
    #[error("{0}: more than {SPACES} programs with those before it: import fewer rounds at a time")]
    TooMany(PathBuf),
    /// A file could not be read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// What one directory gave, and what was passed over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Imported {
    /// The app, as its directory is called.
    pub app: String,
    /// The round.
    pub round: String,
    /// `hot` or `cold`.
    pub kind: String,
    /// Pages swapped out whose contents are there.
    pub pages: u64,
    /// Swap-out records that end too early.
    pub torn: u64,
    /// Places where a header should be and is not.
    pub bad_headers: u64,
    /// Bytes passed over to find the next header.
    pub skipped_bytes: u64,
    /// Holes of zeros where a header should be.
    pub holes: u64,
    /// Bytes in them.
    pub hole_bytes: u64,
    /// Swap-outs to a sector that had been used before.
    pub reused_sectors: u64,
    /// Swap-outs from a frame that another page had been in before.
    pub reused_frames: u64,
    /// Swap-ins of a page that is there.
    pub swap_ins: u64,
    /// Swap-ins of a sector that nothing was swapped out to.
    pub lost_swap_ins: u64,
    /// Lines, or binary records, of lists that make no sense.
    pub bad_lines: u64,
    /// Pages in the LRU lists that were never swapped out; nothing is known of their contents.
    pub never_swapped: u64,
    /// Pages swapped in before the first frame.
    pub hot: u64,
    /// Pages swapped in later.
    pub warm: u64,
    /// Pages never swapped in.
    pub cold: u64,
    /// Labels in `compression_trace.txt`.
    pub labels: u64,
    /// Of these, labels that say the same as the swap-ins.
    pub labels_agree: u64,
    /// Lines in the kernel's logs.
    pub log_lines: u64,
    /// Of these, pages that were freed.
    pub log_frees: u64,
}

/// A directory with a swap-out trace.
struct Leaf {
    path: PathBuf,
    app: String,
    round: String,
    kind: String,
}

/// A page of a swap-out trace.
#[derive(Clone, Copy)]
struct Page {
    uid: u32,
    pfn: u64,
    sector: u64,
    content: ContentId,
    page: PageId,
}

/// A directory that has been read.
struct Life {
    /// The app that is relaunched.
    front: AppId,
    spaces: BTreeMap<u32, SpaceId>,
    /// In the order in which they are first there.
    listed: Vec<PageId>,
    pages: Vec<Page>,
    before_frame: Vec<PageId>,
    after_frame: Vec<PageId>,
    counts: Imported,
}

/// The header of an import.
pub fn header(tool: &str, directory: &Path) -> Header {
    let mut provenance = Provenance::new(Source::Imported, tool);
    let name = directory.file_name().unwrap_or(directory.as_os_str());
    let notes = [
        ("format", "Ariadne".to_string()),
        ("directory", name.to_string_lossy().into_owned()),
        ("times", "made up: 1 us a record, 1 s between phases".to_string()),
        ("published", PUBLISHED.to_string()),
    ];
    provenance.notes.extend(notes.map(|(name, note)| (name.to_string(), note)));
    Header { page_bytes: PAGE_BYTES, contents: ContentsKind::Bytes, provenance }
}

/// Imports everything below `directory` into `writer`. `progress` is told which directory is next,
/// and how many there are. What is kept in memory is 50 bytes a page of one round.
pub fn import<W: Write>(
    directory: &Path,
    writer: &mut Writer<W>,
    mut progress: impl FnMut(&Path, usize),
) -> Result<Vec<Imported>, ImportError> {
    let mut leaves = Vec::new();
    find(directory, 0, &mut leaves)?;
    if leaves.is_empty() {
        return Err(ImportError::Nothing(directory.to_path_buf()));
    }
    leaves.sort_by_key(|leaf| (round_number(&leaf.round), leaf.kind.clone(), leaf.app.clone()));
    let mut pen = Pen { writer, now: 0, next_space: 0 };
    let mut report = Vec::new();
    let mut left = leaves.len();
    let mut rest = leaves.into_iter().peekable();
    while let Some(first) = rest.next() {
        let round = (first.round.clone(), first.kind.clone());
        let mut lives = Vec::new();
        let mut next = Some(first);
        while let Some(leaf) = next {
            progress(&leaf.path, left);
            left -= 1;
            lives.push(pen.read(leaf)?);
            next = rest.next_if(|leaf| (&leaf.round, &leaf.kind) == (&round.0, &round.1));
        }
        pen.live(&lives)?;
        report.extend(lives.into_iter().map(|life| life.counts));
    }
    Ok(report)
}

/// Directories with a swap-out trace, at most as deep as they can be.
fn find(directory: &Path, depth: usize, out: &mut Vec<Leaf>) -> Result<(), ImportError> {
    if has_swap_out(directory) {
        let name = |up: usize| {
            let part = directory.ancestors().nth(up).and_then(Path::file_name);
            part.map_or(String::new(), |part| part.to_string_lossy().into_owned())
        };
        let (app, round, kind) = (name(2), name(1), name(0));
        out.push(Leaf { path: directory.to_path_buf(), app, round, kind });
    }
    if depth == 3 {
        return Ok(());
    }
    let failed = |source| ImportError::File { path: directory.to_path_buf(), source };
    for entry in directory.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && !path.is_symlink() {
            find(&path, depth + 1, out)?;
        }
    }
    Ok(())
}

fn has_swap_out(directory: &Path) -> bool {
    let is_there = |name: &str| directory.join(name).is_file();
    is_there(RAW) || is_there(META) && is_there(DATA)
}

const RAW: &str = "swapout_trace.txt";
const META: &str = "swapout_trace.txt.meta";
const DATA: &str = "swapout_trace.txt.data";

/// `round10` comes after `round9`.
fn round_number(round: &str) -> (u64, String) {
    let digits: String = round.chars().filter(char::is_ascii_digit).take(9).collect();
    (digits.parse().unwrap_or(0), round.to_string())
}

fn open(path: &Path) -> Result<BufReader<File>, ImportError> {
    let file = regular::open(path, File::options().read(true), 0);
    let file = file.map_err(|source| ImportError::File { path: path.to_path_buf(), source })?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// Bytes of a line, at most: one of the kernel's log has no more than 1,024.
const LINE: u64 = 4096;
/// What stands for a longer one.
const TOO_LONG: &[u8] = b"too long";

/// Each line without its end, as [`BufRead::split`] has them.
fn lines(mut from: impl BufRead) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let mut next = move || {
        let mut line = Vec::new();
        let read = from.by_ref().take(LINE).read_until(b'\n', &mut line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read as u64 == LINE {
            from.skip_until(b'\n')?;
            line = TOO_LONG.to_vec();
        }
        Ok((read > 0).then_some(line))
    };
    iter::from_fn(move || next().transpose())
}

/// Writes lives one after the other.
struct Pen<'a, W: Write> {
    writer: &'a mut Writer<W>,
    now: u64,
    next_space: u32,
}

impl<W: Write> Pen<'_, W> {
    fn record(&mut self, record: Record) -> Result<(), TraceError> {
        self.now += STEP;
        self.writer.record(Ns(self.now), record)
    }

    fn read(&mut self, leaf: Leaf) -> Result<Life, ImportError> {
        let mut counts = Imported {
            app: leaf.app.clone(),
            round: leaf.round.clone(),
            kind: leaf.kind.clone(),
            ..Imported::default()
        };
        let mut pages = self.swap_outs(&leaf, &mut counts)?;
        let lines = Lines::of(&leaf.path, &mut counts)?;
        let by_name = APPS.iter().find(|(name, ..)| *name == leaf.app).map(|(_, uid, _)| *uid);
        let front = AppId(by_name.unwrap_or_else(|| most_frequent(&pages)));

        let mut spaces = BTreeMap::new();
        let uids = pages.iter().map(|page| page.uid).chain(lines.resident.iter().map(|l| l.0));
        for uid in uids.chain([front.0]).collect::<BTreeSet<u32>>() {
            if self.next_space == SPACES {
                return Err(ImportError::TooMany(leaf.path));
            }
            spaces.insert(uid, SpaceId(self.next_space));
            self.next_space += 1;
            let known = APPS.iter().find(|(_, of, _)| *of == uid).map(|(name, ..)| *name);
            let own = (uid == front.0 && !leaf.app.is_empty()).then_some(leaf.app.as_str());
            let name = known.or(own).map_or_else(|| format!("uid {uid}"), str::to_string);
            if !self.writer.has_name(AppId(uid)) {
                self.writer.app(AppId(uid), &name)?;
            }
        }
        let at_sector = place(&mut pages, &spaces, &mut counts);
        let listed = listed(&pages, &lines.resident, &spaces, &mut counts);

        let mut was_in = HashSet::new();
        let mut swapped_in = |list: &[(u32, u64)]| -> Vec<PageId> {
            let mut came = Vec::new();
            for key in list {
                match at_sector.get(key) {
                    Some(page) => {
                        if was_in.insert(*page) {
                            came.push(*page);
                        }
                    }
                    None => counts.lost_swap_ins += 1,
                }
            }
            came
        };
        let before_frame = swapped_in(&lines.before_frame);
        let mut after_frame = swapped_in(&lines.after_frame);
        // What is in the list of all and in neither of the others came later still.
        after_frame.extend(swapped_in(&lines.all));
        counts.swap_ins = (before_frame.len() + after_frame.len()) as u64;
        counts.pages = pages.len() as u64;
        (counts.hot, counts.warm) = (before_frame.len() as u64, after_frame.len() as u64);
        counts.cold = counts.pages - counts.swap_ins;
        let hot: HashSet<PageId> = before_frame.iter().copied().collect();
        let warm: HashSet<PageId> = after_frame.iter().copied().collect();
        for (uid, sector, label) in &lines.labels {
            counts.labels += 1;
            let Some(page) = at_sector.get(&(*uid, *sector)) else { continue };
            let own = match (hot.contains(page), warm.contains(page)) {
                (true, _) => Label::Hot,
                (_, true) => Label::Warm,
                _ => Label::Cold,
            };
            counts.labels_agree += u64::from(own == *label);
        }
        Ok(Life { front, spaces, listed, pages, before_frame, after_frame, counts })
    }

    /// The pages of the swap-out trace; their contents are written already.
    fn swap_outs(&mut self, leaf: &Leaf, counts: &mut Imported) -> Result<Vec<Page>, ImportError> {
        let mut pages = Vec::new();
        let mut written = Ok(());
        let mut found = |place: raw::Place, bytes: &[u8]| {
            match self.writer.bytes(bytes) {
                Ok(content) => {
                    let raw::Place { uid, pfn, sector } = place;
                    let page = PageId::new(SpaceId(0), Vpn(0));
                    pages.push(Page { uid, pfn, sector, content, page });
                }
                Err(error) => written = Err(error),
            }
            written.is_ok()
        };
        let raw = leaf.path.join(RAW);
        if raw.is_file() {
            let read = raw::read(open(&raw)?, counts, &mut found);
            read.map_err(|source| ImportError::File { path: raw, source })?;
        } else {
            let (meta, data) = (leaf.path.join(META), leaf.path.join(DATA));
            let read = raw::read_split(open(&meta)?, open(&data)?, counts, &mut found);
            read.map_err(|source| ImportError::File { path: data, source })?;
        }
        written?;
        Ok(pages)
    }

    /// One round of all its apps.
    fn live(&mut self, lives: &[Life]) -> Result<(), TraceError> {
        for life in lives {
            self.now += PHASE;
            let others = life.spaces.keys().map(|uid| AppId(*uid)).filter(|a| *a != life.front);
            for app in others.chain([life.front]) {
                self.record(Record::Launch { app })?;
            }
            for (uid, space) in &life.spaces {
                let app = AppId(*uid);
                self.record(Record::SpaceStart { space: *space, app, file: false })?;
            }
            for page in &life.listed {
                self.record(Record::Resident { run: PageRun { first: *page, count: 1 } })?;
            }
            for page in &life.pages {
                let Page { page, content, .. } = *page;
                self.record(Record::Contents { page, content })?;
            }
            self.now += PHASE;
            for uid in life.spaces.keys() {
                self.record(Record::Background { app: AppId(*uid) })?;
            }
            for page in &life.pages {
                self.record(Record::Candidate { page: page.page })?;
            }
        }
        for life in lives {
            self.now += PHASE;
            let app = life.front;
            self.record(Record::Relaunch { app })?;
            let began = self.now;
            self.accesses(&life.before_frame)?;
            let known = APPS.iter().find(|(_, uid, _)| *uid == app.0);
            let paper = known.map_or(FIRST_FRAME, |(.., ms)| Ns::from_ms(*ms));
            self.now = self.now.max(began + paper.0);
            let response_ns = self.now - began;
            self.writer.record(Ns(self.now), Record::ResponseComplete { app, response_ns })?;
            self.now += PHASE;
            self.accesses(&life.after_frame)?;
            self.now += PHASE;
            self.record(Record::Background { app })?;
        }
        let apps = lives.iter().flat_map(|life| life.spaces.keys().copied());
        for app in apps.collect::<BTreeSet<u32>>() {
            self.record(Record::Exit { app: AppId(app) })?;
        }
        Ok(())
    }

    fn accesses(&mut self, pages: &[PageId]) -> Result<(), TraceError> {
        for page in pages {
            let kind = AccessKind::Fault;
            self.record(Record::Access { page: *page, kind, write: false })?;
        }
        Ok(())
    }
}

fn most_frequent(pages: &[Page]) -> u32 {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for page in pages {
        *counts.entry(page.uid).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(uid, _)| uid)
}

/// Gives each page its number; answers which page was at a sector last.
fn place(
    pages: &mut [Page],
    spaces: &BTreeMap<u32, SpaceId>,
    counts: &mut Imported,
) -> HashMap<(u32, u64), PageId> {
    let mut at_sector = HashMap::new();
    let mut numbers = HashSet::new();
    let mut frames = HashSet::new();
    let mut reused = 0;
    for page in pages {
        let space = spaces[&page.uid];
        let mut id = PageId::new(space, Vpn(page.sector / 8));
        if !numbers.insert(id) {
            id = PageId::new(space, Vpn(REUSED + reused));
            reused += 1;
        }
        page.page = id;
        let before = at_sector.insert((page.uid, page.sector), id);
        counts.reused_sectors += u64::from(before.is_some());
        counts.reused_frames += u64::from(!frames.insert(page.pfn));
    }
    at_sector
}

/// The pages that there are, in the order of the LRU list as far as it goes. A frame of the list is
/// the first page that left it.
fn listed(
    pages: &[Page],
    resident: &[(u32, u64)],
    spaces: &BTreeMap<u32, SpaceId>,
    counts: &mut Imported,
) -> Vec<PageId> {
    let mut in_frame = HashMap::new();
    for page in pages {
        in_frame.entry((page.uid, page.pfn)).or_insert(page.page);
    }
    let mut listed = Vec::with_capacity(pages.len());
    let mut are_listed = HashSet::new();
    // Of a frame that is listed several times the last place counts.
    for (uid, pfn) in resident.iter().rev() {
        let never = PageId::new(spaces[uid], Vpn(LISTED + pfn));
        let page = in_frame.get(&(*uid, *pfn)).copied().unwrap_or(never);
        if are_listed.insert(page) {
            counts.never_swapped += u64::from(page == never);
            listed.push(page);
        }
    }
    listed.reverse();
    listed.extend(pages.iter().map(|page| page.page).filter(|page| are_listed.insert(*page)));
    listed
}

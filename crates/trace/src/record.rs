//! What a trace is made of.

use clew_core::{
    AccessKind, AppId, CodecKind, DeviceFacts, DonorId, DonorState, Event, Group, Hotness, Ns,
    Order, PageId, PageRun, SpaceId, Tier, Trigger,
};

/// Contents of a page, by the order in which they came up in a trace: 0, 1, 2, …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContentId(pub u32);

/// What is known of contents whose bytes were not recorded, because memory holds secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentStats {
    /// The page repeats one word of 8 bytes.
    pub same_filled: bool,
    /// Entropy of its first 512 bytes, in 1/32 bit a byte: 0 to 255 (ezswap III-B).
    pub entropy: u8,
    /// Bytes after LZ4 in chunks of 256 bytes; never more than the page.
    pub lz4_256: u16,
    /// Bytes after LZ4 in chunks of 1 KiB.
    pub lz4_1k: u16,
    /// Bytes after LZ4 of the whole page.
    pub lz4_page: u16,
    /// Bytes after Zstandard, at Clew's level, of the whole page.
    pub zstd_page: u16,
}

/// A record and when it happened.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stamped {
    /// Since the trace began.
    pub at: Ns,
    /// What.
    pub record: Record,
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Record {
    /// An app was started (cold launch).
    Launch { app: AppId },
    /// An app was brought back to the foreground (hot launch).
    Relaunch { app: AppId },
    /// The first complete response after a launch or relaunch, so many nanoseconds after it.
    ResponseComplete { app: AppId, response_ns: u64 },
    /// An app was sent to the background.
    Background { app: AppId },
    /// An app ended, and all its spaces with it.
    Exit { app: AppId },
    /// An address space of `app` appeared, or began anew. It holds pages of files if `file`, else
    /// anonymous memory.
    SpaceStart { space: SpaceId, app: AppId, file: bool },
    /// An address space is gone.
    SpaceEnd { space: SpaceId },
    /// Pages found in DRAM, not accessed as far as anyone knows; of a space of files: read in clean.
    Resident { run: PageRun },
    /// A page was accessed. `kind` is how the source learned of it: under another scheme a `Fault`
    /// may find its page resident.
    Access { page: PageId, kind: AccessKind, write: bool },
    /// From here on the page holds this. A page that was not told about yet holds what it is told
    /// to hold first.
    Contents { page: PageId, content: ContentId },
    /// The source took the page out, or would have.
    Candidate { page: PageId },
    /// Pages were unmapped or their contents given up by the program.
    Freed { run: PageRun },
    /// Pages moved to another address (mremap).
    Moved { from: PageRun, to: PageId },
    /// Everything of the app was taken out: until its next window each first access is seen.
    Window { app: AppId },
    /// What the recording system asked, decided or did.
    Note(Note),
}

/// What the recording system asked, decided or did. Answers follow their question.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Note {
    /// So many pages were wanted back.
    AskedPages { pages: u64, urgent: bool },
    /// Everything of an app was wanted out.
    AskedApp { app: AppId },
    /// The prefetcher was asked.
    AskedPrefetch { trigger: Trigger },
    /// The next `pages` victims are one group.
    Group {
        pages: u32,
        tier: Tier,
        codec: CodecKind,
        chunk_bytes: u32,
        hotness: Option<Hotness>,
        park_siblings: bool,
    },
    /// A page was chosen to leave.
    Victim { page: PageId },
    /// A page was chosen to come back early.
    Prefetch { page: PageId },
    /// An app was chosen to end.
    EndApp { app: AppId },
    /// A page left for a tier and takes so many bytes there.
    Stored { page: PageId, tier: Tier, bytes: u32 },
    /// A page that was handed out stays.
    Stayed { page: PageId },
    /// A stored page came back.
    PageIn { page: PageId, tier: Tier, demand: bool },
    /// A stored copy was given up. Nobody writes it any more.
    Dropped { page: PageId, tier: Tier },
    /// A page that had come back early was used.
    PrefetchUsed { page: PageId },
    /// A page that had come back early was not used.
    PrefetchExpired { page: PageId },
    /// Resident pages were used, at some time since that was last looked at.
    Used { run: PageRun },
    /// Pages that were watched during a relaunch, or that were resident, were not used.
    Unused { run: PageRun },
    /// How full a tier was said to be.
    TierUse { tier: Tier, used_bytes: u64, pages: u64 },
    /// About so many pages of an app were wanted whose use is worth watching, in runs of so many.
    AskedSamples { app: AppId, pages: u64, run_pages: u32 },
    /// Pages that were chosen to be watched.
    Sample { run: PageRun },
    /// From here on the app is not to be ended because memory is short.
    Spared { app: AppId },
    /// Time has passed.
    Tick,
    /// Memory is short: so many pages of it.
    Pressure { pages: u64, urgent: bool },
    /// Long work that a policy had asked for was done.
    JobDone { job: u64 },
    /// The device that flash is on was looked at.
    DeviceSample { device: DeviceFacts },
    /// A donor stands otherwise than before.
    Donor { donor: DonorId, state: DonorState },
}

impl Note {
    /// What is noted of an order of the policies.
    pub fn of_order(order: &Order) -> Vec<Note> {
        match order {
            Order::SwapOut { groups, tier, .. } => {
                groups.iter().flat_map(|group| Note::of_group(group, *tier)).collect()
            }
            Order::EndApp { app, .. } => vec![Note::EndApp { app: *app }],
            Order::Move { .. } | Order::Repack { .. } => Vec::new(),
        }
    }

    /// What is noted of a group that is to leave for `tier`.
    fn of_group(group: &Group, tier: Tier) -> impl Iterator<Item = Note> + '_ {
        let head = Note::Group {
            pages: group.pages.len() as u32,
            tier,
            codec: group.codec,
            chunk_bytes: group.chunk_bytes,
            hotness: group.hotness,
            park_siblings: group.park_siblings,
        };
        let victims = group.pages.iter().map(|page| Note::Victim { page: *page });
        [head].into_iter().chain(victims)
    }
}

impl Record {
    /// The record of an event that an engine was told.
    pub fn of_event(event: &Event) -> Record {
        match *event {
            Event::Launch { app } => Record::Launch { app },
            Event::Relaunch { app } => Record::Relaunch { app },
            Event::ResponseComplete { app, response_ns } => {
                Record::ResponseComplete { app, response_ns }
            }
            Event::Background { app } => Record::Background { app },
            Event::Exit { app } => Record::Exit { app },
            Event::SpaceStart { space, app, file } => Record::SpaceStart { space, app, file },
            Event::SpaceEnd { space } => Record::SpaceEnd { space },
            Event::Resident { run } => Record::Resident { run },
            Event::Access { page, kind, write } => Record::Access { page, kind, write },
            Event::Freed { run } => Record::Freed { run },
            Event::Moved { from, to } => Record::Moved { from, to },
            Event::Stored { page, tier, bytes } => Record::Note(Note::Stored { page, tier, bytes }),
            Event::Stayed { page } => Record::Note(Note::Stayed { page }),
            Event::PageIn { page, tier, demand } => {
                Record::Note(Note::PageIn { page, tier, demand })
            }
            Event::Used { run } => Record::Note(Note::Used { run }),
            Event::Unused { run } => Record::Note(Note::Unused { run }),
            Event::PrefetchUsed { page } => Record::Note(Note::PrefetchUsed { page }),
            Event::PrefetchExpired { page } => Record::Note(Note::PrefetchExpired { page }),
            Event::JobDone { job } => Record::Note(Note::JobDone { job }),
            Event::Pressure { pages, urgent } => Record::Note(Note::Pressure { pages, urgent }),
            Event::DeviceSample { device } => Record::Note(Note::DeviceSample { device }),
            Event::Donor { donor, state } => Record::Note(Note::Donor { donor, state }),
            Event::Tick => Record::Note(Note::Tick),
        }
    }

    /// The event that it is the record of, if it is one.
    pub fn to_event(&self) -> Option<Event> {
        Some(match *self {
            Record::Launch { app } => Event::Launch { app },
            Record::Relaunch { app } => Event::Relaunch { app },
            Record::ResponseComplete { app, response_ns } => {
                Event::ResponseComplete { app, response_ns }
            }
            Record::Background { app } => Event::Background { app },
            Record::Exit { app } => Event::Exit { app },
            Record::SpaceStart { space, app, file } => Event::SpaceStart { space, app, file },
            Record::SpaceEnd { space } => Event::SpaceEnd { space },
            Record::Resident { run } => Event::Resident { run },
            Record::Access { page, kind, write } => Event::Access { page, kind, write },
            Record::Freed { run } => Event::Freed { run },
            Record::Moved { from, to } => Event::Moved { from, to },
            Record::Note(note) => match note {
                Note::Stored { page, tier, bytes } => Event::Stored { page, tier, bytes },
                Note::Stayed { page } => Event::Stayed { page },
                Note::PageIn { page, tier, demand } => Event::PageIn { page, tier, demand },
                Note::JobDone { job } => Event::JobDone { job },
                Note::Pressure { pages, urgent } => Event::Pressure { pages, urgent },
                Note::DeviceSample { device } => Event::DeviceSample { device },
                Note::Donor { donor, state } => Event::Donor { donor, state },
                Note::Tick => Event::Tick,
                Note::Used { run } => Event::Used { run },
                Note::Unused { run } => Event::Unused { run },
                Note::PrefetchUsed { page } => Event::PrefetchUsed { page },
                Note::PrefetchExpired { page } => Event::PrefetchExpired { page },
                Note::Dropped { .. }
                | Note::AskedPages { .. }
                | Note::AskedApp { .. }
                | Note::AskedPrefetch { .. }
                | Note::Group { .. }
                | Note::Victim { .. }
                | Note::Prefetch { .. }
                | Note::EndApp { .. }
                | Note::AskedSamples { .. }
                | Note::Sample { .. }
                | Note::Spared { .. }
                | Note::TierUse { .. } => return None,
            },
            Record::Contents { .. } | Record::Candidate { .. } | Record::Window { .. } => {
                return None;
            }
        })
    }

    /// The pages that the record is about, if it is about pages; of a move, those that moved.
    pub fn pages(&self) -> Option<PageRun> {
        let one = |first| Some(PageRun { first, count: 1 });
        match *self {
            Record::Resident { run } | Record::Freed { run } => Some(run),
            Record::Moved { from, .. } => Some(from),
            Record::Access { page, .. }
            | Record::Contents { page, .. }
            | Record::Candidate { page } => one(page),
            Record::Note(note) => match note {
                Note::Victim { page }
                | Note::Prefetch { page }
                | Note::Stored { page, .. }
                | Note::Stayed { page }
                | Note::PageIn { page, .. }
                | Note::PrefetchUsed { page }
                | Note::PrefetchExpired { page }
                | Note::Dropped { page, .. } => one(page),
                Note::Used { run } | Note::Unused { run } | Note::Sample { run } => Some(run),
                Note::AskedPrefetch { trigger: Trigger::Fault(page) | Trigger::Hit(page) } => {
                    one(page)
                }
                Note::AskedPrefetch { trigger: Trigger::Relaunch(_) }
                | Note::AskedPages { .. }
                | Note::AskedApp { .. }
                | Note::Group { .. }
                | Note::EndApp { .. }
                | Note::AskedSamples { .. }
                | Note::Spared { .. }
                | Note::Tick
                | Note::Pressure { .. }
                | Note::JobDone { .. }
                | Note::DeviceSample { .. }
                | Note::Donor { .. }
                | Note::TierUse { .. } => None,
            },
            Record::Launch { .. }
            | Record::Relaunch { .. }
            | Record::ResponseComplete { .. }
            | Record::Background { .. }
            | Record::Exit { .. }
            | Record::SpaceStart { .. }
            | Record::SpaceEnd { .. }
            | Record::Window { .. } => None,
        }
    }

    /// The app that the record is about, if it names one.
    pub fn app(&self) -> Option<AppId> {
        match *self {
            Record::Launch { app }
            | Record::Relaunch { app }
            | Record::ResponseComplete { app, .. }
            | Record::Background { app }
            | Record::Exit { app }
            | Record::SpaceStart { app, .. }
            | Record::Window { app }
            | Record::Note(
                Note::AskedApp { app }
                | Note::EndApp { app }
                | Note::AskedSamples { app, .. }
                | Note::Spared { app }
                | Note::AskedPrefetch { trigger: Trigger::Relaunch(app) },
            ) => Some(app),
            _ => None,
        }
    }
}

//! Records as bytes, and back: a tag, then what differs from the record before.
//!
//! The tag has the kind in bits 0..5 (0: it is in the next byte, 32 or more), 0x20 if the time is that of the record before, 0x40 if the
//! space is, and 0x80 for a yes or no that the kind has. Numbers are LEB128; signed differences are
//! folded (0, -1, 1, -2, …). A page number is told as its difference to the last one of its space,
//! more exactly to the last one of the spaces that are equal modulo 64. All of that begins anew
//! with each block.

use clew_core::{
    AccessKind, AppId, CodecKind, DeviceFacts, DonorId, DonorState, Hotness, Ns, PageId, PageRun,
    SPACES, SpaceId, Tier, Trigger, Vpn,
};

use crate::error::Bad;
use crate::kind::Kind;
use crate::known::VPNS;
use crate::record::{ContentId, Note, Record, Stamped};

const SAME_TIME: u8 = 0x20;
const SAME_SPACE: u8 = 0x40;
const FLAG: u8 = 0x80;
const KIND: u8 = 0x1f;
/// In place of a kind that has no room in the tag.
const LONG_KIND: u8 = 0;
const LASTS: usize = 64;

/// What the next record is told relative to.
pub(crate) struct Before {
    at: u64,
    space: u32,
    last: [u64; LASTS],
    content: u32,
}

impl Default for Before {
    fn default() -> Before {
        Before { at: 0, space: 0, last: [0; LASTS], content: 0 }
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn fold(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

/// Appends records to a block.
struct Pen<'a> {
    before: &'a mut Before,
    out: &'a mut Vec<u8>,
    /// Where the tag is, which is not finished before its record is.
    tag: usize,
}

impl Pen<'_> {
    /// Which donor a tier is, if it is one; behind its number.
    fn donor(&mut self, tier: Tier) {
        if let Tier::Donor(donor) = tier {
            self.out.push(donor.number() as u8);
        }
    }

    fn number(&mut self, value: impl Into<u64>) {
        put_varint(self.out, value.into());
    }

    fn flag(&mut self, yes: bool) {
        if yes {
            self.out[self.tag] |= FLAG;
        }
    }

    fn space(&mut self, space: SpaceId) {
        if self.before.space == space.0 {
            self.out[self.tag] |= SAME_SPACE;
        } else {
            self.before.space = space.0;
            self.number(space.0);
        }
    }

    fn page(&mut self, page: PageId) {
        self.space(page.space());
        let last = &mut self.before.last[page.space().0 as usize % LASTS];
        let difference = fold(page.vpn().0 as i64 - *last as i64);
        *last = page.vpn().0;
        self.number(difference);
    }

    fn run(&mut self, run: PageRun) {
        self.page(run.first);
        self.number(run.count);
        self.before.last[run.first.space().0 as usize % LASTS] += u64::from(run.count);
    }
}

/// Appends a record of `at`, which is not before the last one's.
pub(crate) fn put(out: &mut Vec<u8>, before: &mut Before, at: Ns, record: &Record) {
    let tag = out.len();
    let kind = Kind::of(record) as u8;
    match kind <= KIND {
        true => out.push(kind),
        false => out.extend([LONG_KIND, kind]),
    }
    if at.0 == before.at {
        out[tag] |= SAME_TIME;
    } else {
        put_varint(out, at.0 - before.at);
        before.at = at.0;
    }
    let mut pen = Pen { before, out, tag };
    match *record {
        Record::Launch { app }
        | Record::Relaunch { app }
        | Record::Background { app }
        | Record::Exit { app }
        | Record::Window { app } => pen.number(app.0),
        Record::ResponseComplete { app, response_ns } => {
            pen.number(app.0);
            pen.number(response_ns);
        }
        Record::SpaceStart { space, app, file } => {
            pen.flag(file);
            pen.space(space);
            pen.number(app.0);
        }
        Record::SpaceEnd { space } => pen.space(space),
        Record::Resident { run } | Record::Freed { run } => pen.run(run),
        Record::Access { page, write, .. } => {
            pen.flag(write);
            pen.page(page);
        }
        Record::Contents { page, content } => {
            pen.page(page);
            let next = i64::from(pen.before.content);
            pen.number(fold(i64::from(content.0) - next));
            pen.before.content = content.0.wrapping_add(1);
        }
        Record::Candidate { page } => pen.page(page),
        Record::Moved { from, to } => {
            pen.run(from);
            pen.number(to.space().0);
            pen.number(fold(to.vpn().0 as i64 - from.first.vpn().0 as i64));
        }
        Record::Note(note) => put_note(&mut pen, note),
    }
}

fn put_note(pen: &mut Pen<'_>, note: Note) {
    match note {
        Note::Tick => {}
        Note::JobDone { job } => pen.number(job),
        Note::DeviceSample { device } => {
            pen.number(device.used_bytes);
            pen.number(device.total_bytes);
            pen.number(device.written_bytes);
        }
        Note::Donor { donor, state } => {
            pen.out.push(donor.number() as u8);
            pen.number(state as u64);
        }
        Note::AskedPages { pages, urgent } | Note::Pressure { pages, urgent } => {
            pen.flag(urgent);
            pen.number(pages);
        }
        Note::AskedApp { app }
        | Note::EndApp { app }
        | Note::Spared { app }
        | Note::AskedPrefetch { trigger: Trigger::Relaunch(app) } => pen.number(app.0),
        Note::Victim { page }
        | Note::Prefetch { page }
        | Note::Stayed { page }
        | Note::PrefetchExpired { page }
        | Note::AskedPrefetch { trigger: Trigger::Fault(page) } => pen.page(page),
        Note::PrefetchUsed { page } | Note::AskedPrefetch { trigger: Trigger::Hit(page) } => {
            pen.flag(true);
            pen.page(page);
        }
        Note::Used { run } | Note::Unused { run } | Note::Sample { run } => pen.run(run),
        Note::AskedSamples { app, pages, run_pages } => {
            pen.number(app.0);
            pen.number(pages);
            pen.number(run_pages);
        }
        Note::Group { pages, tier, codec, chunk_bytes, hotness, park_siblings } => {
            pen.flag(park_siblings);
            pen.number(pages);
            pen.number(chunk_bytes);
            let hotness = match hotness {
                None => 0,
                Some(Hotness::Hot) => 1,
                Some(Hotness::Warm) => 2,
                Some(Hotness::Cold) => 3,
            };
            let codec = match codec {
                CodecKind::Raw => 0,
                CodecKind::Lz4 => 1,
                CodecKind::Zstd => 2,
                CodecKind::ZstdDictionary => 3,
                CodecKind::Lzo => 4,
                CodecKind::BaseDeltaImmediate => 5,
            };
            pen.out.push(tier.index() as u8 | codec << 2 | hotness << 5);
            pen.donor(tier);
        }
        Note::Stored { page, tier, bytes } => {
            pen.page(page);
            pen.number(u64::from(bytes) << 2 | tier.index() as u64);
            pen.donor(tier);
        }
        Note::PageIn { page, tier, demand } => {
            pen.flag(demand);
            pen.page(page);
            pen.out.push(tier.index() as u8);
            pen.donor(tier);
        }
        Note::Dropped { page, tier } => {
            pen.page(page);
            pen.out.push(tier.index() as u8);
            pen.donor(tier);
        }
        Note::TierUse { tier, used_bytes, pages } => {
            pen.out.push(tier.index() as u8);
            pen.donor(tier);
            pen.number(used_bytes);
            pen.number(pages);
        }
    }
}

/// Reads what [`put_varint`] and its like wrote, and believes none of it.
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], at: usize) -> Scan<'a> {
        Scan { bytes, at }
    }

    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub fn byte(&mut self, field: &'static str) -> Result<u8, Bad> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte.ok_or_else(|| Bad::new(field, "the block ends in the middle of it"))
    }

    #[inline]
    pub fn number(&mut self, field: &'static str) -> Result<u64, Bad> {
        let first = self.byte(field)?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.long_number(first, field) }
    }

    #[inline]
    fn long_number(&mut self, first: u8, field: &'static str) -> Result<u64, Bad> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte(field)?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Bad::new(field, "a number of more than 64 bits"))
    }

    pub fn number32(&mut self, field: &'static str) -> Result<u32, Bad> {
        let value = self.number(field)?;
        u32::try_from(value).map_err(|_| Bad::new(field, format!("{value} is too large")))
    }

    pub fn bytes(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], Bad> {
        let part = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        self.at += length;
        part.ok_or_else(|| Bad::new(field, "the block ends in the middle of it"))
    }

    fn app(&mut self) -> Result<AppId, Bad> {
        self.number32("app").map(AppId)
    }

    fn space_number(&mut self) -> Result<SpaceId, Bad> {
        match self.number("space")? {
            space if space < u64::from(SPACES) => Ok(SpaceId(space as u32)),
            space => Err(Bad::new("space", format!("{space}; {SPACES} is the limit"))),
        }
    }

    #[inline]
    fn space(&mut self, tag: u8, before: &mut Before) -> Result<SpaceId, Bad> {
        if tag & SAME_SPACE == 0 {
            before.space = self.space_number()?.0;
        }
        Ok(SpaceId(before.space))
    }

    #[inline]
    fn vpn(&mut self, relative_to: u64) -> Result<Vpn, Bad> {
        let vpn = relative_to.wrapping_add_signed(unfold(self.number("page")?));
        if vpn < VPNS { Ok(Vpn(vpn)) } else { Err(Bad::new("page", format!("number {vpn:#x}"))) }
    }

    #[inline]
    fn page(&mut self, tag: u8, before: &mut Before) -> Result<PageId, Bad> {
        let space = self.space(tag, before)?;
        let last = before.last[space.0 as usize % LASTS];
        let vpn = self.vpn(last)?;
        before.last[space.0 as usize % LASTS] = vpn.0;
        Ok(PageId::new(space, vpn))
    }

    fn run(&mut self, tag: u8, before: &mut Before) -> Result<PageRun, Bad> {
        let first = self.page(tag, before)?;
        let count = self.number32("pages")?;
        let last = &mut before.last[first.space().0 as usize % LASTS];
        *last = last.wrapping_add(u64::from(count));
        Ok(PageRun { first, count })
    }

    fn tier(&mut self) -> Result<Tier, Bad> {
        let number = self.byte("tier")?;
        self.tier_of(number.into())
    }

    /// The tier of this number; of a donor, which one follows.
    fn tier_of(&mut self, number: u64) -> Result<Tier, Bad> {
        match number {
            0 => Ok(Tier::Pool),
            1 => Ok(Tier::Kernel),
            2 => Ok(Tier::Flash),
            3 => Ok(Tier::Donor(self.donor()?)),
            other => Err(Bad::new("tier", format!("{other} is unknown"))),
        }
    }

    fn donor(&mut self) -> Result<DonorId, Bad> {
        let number = self.byte("donor")?;
        let unknown =
            || Bad::new("donor", format!("{number}: there are {} at most", DonorId::COUNT));
        DonorId::new(number.into()).ok_or_else(unknown)
    }

    /// The next record.
    #[inline]
    pub fn record(&mut self, before: &mut Before) -> Result<Stamped, Bad> {
        let tag = self.byte("tag")?;
        let number = match tag & KIND {
            LONG_KIND => self.byte("tag").map(|number| (number, number > KIND))?,
            number => (number, true),
        };
        let kind = Some(number).filter(|(_, fits)| *fits).and_then(|(n, _)| Kind::from_number(n));
        let kind = kind.ok_or_else(|| Bad::new("tag", format!("kind {} is unknown", number.0)))?;
        if tag & SAME_TIME == 0 {
            let later = self.number("time")?;
            let at = before.at.checked_add(later);
            before.at = at.ok_or_else(|| Bad::new("time", "beyond 64 bits of nanoseconds"))?;
        }
        let flag = tag & FLAG != 0;
        let record = match kind {
            Kind::AccessSeen => self.access(tag, before, AccessKind::Seen)?,
            Kind::AccessFresh => self.access(tag, before, AccessKind::Fresh)?,
            Kind::AccessFault => self.access(tag, before, AccessKind::Fault)?,
            Kind::Contents => {
                let page = self.page(tag, before)?;
                let difference = unfold(self.number("contents")?);
                let id = i64::from(before.content).checked_add(difference);
                let id = id.and_then(|id| u32::try_from(id).ok());
                let id = id.ok_or_else(|| Bad::new("contents", "a number of more than 32 bits"))?;
                before.content = id.wrapping_add(1);
                Record::Contents { page, content: ContentId(id) }
            }
            Kind::Candidate => Record::Candidate { page: self.page(tag, before)? },
            Kind::Resident => Record::Resident { run: self.run(tag, before)? },
            Kind::Freed => Record::Freed { run: self.run(tag, before)? },
            Kind::Moved => {
                let from = self.run(tag, before)?;
                let space = self.space_number()?;
                let to = PageId::new(space, self.vpn(from.first.vpn().0)?);
                Record::Moved { from, to }
            }
            Kind::Launch => Record::Launch { app: self.app()? },
            Kind::Relaunch => Record::Relaunch { app: self.app()? },
            Kind::ResponseComplete => {
                let app = self.app()?;
                Record::ResponseComplete { app, response_ns: self.number("response")? }
            }
            Kind::Background => Record::Background { app: self.app()? },
            Kind::Exit => Record::Exit { app: self.app()? },
            Kind::Window => Record::Window { app: self.app()? },
            Kind::SpaceStart => {
                let space = self.space(tag, before)?;
                Record::SpaceStart { space, app: self.app()?, file: flag }
            }
            Kind::SpaceEnd => Record::SpaceEnd { space: self.space(tag, before)? },
            note => Record::Note(self.note(note, tag, before)?),
        };
        Ok(Stamped { at: Ns(before.at), record })
    }

    #[inline]
    fn access(&mut self, tag: u8, before: &mut Before, kind: AccessKind) -> Result<Record, Bad> {
        Ok(Record::Access { page: self.page(tag, before)?, kind, write: tag & FLAG != 0 })
    }

    fn note(&mut self, kind: Kind, tag: u8, before: &mut Before) -> Result<Note, Bad> {
        let flag = tag & FLAG != 0;
        Ok(match kind {
            Kind::Tick => Note::Tick,
            Kind::Pressure => Note::Pressure { pages: self.number("pages")?, urgent: flag },
            Kind::JobDone => Note::JobDone { job: self.number("job")? },
            Kind::DeviceSample => {
                let (used_bytes, total_bytes) = (self.number("bytes")?, self.number("bytes")?);
                let written_bytes = self.number("bytes")?;
                Note::DeviceSample {
                    device: DeviceFacts { used_bytes, total_bytes, written_bytes },
                }
            }
            Kind::Donor => {
                let (donor, state) = (self.donor()?, self.number("state")?);
                let state = match state {
                    0 => DonorState::Up,
                    1 => DonorState::Weak,
                    2 => DonorState::Pressed,
                    3 => DonorState::Lost,
                    4 => DonorState::Single,
                    other => return Err(Bad::new("state", format!("{other} is unknown"))),
                };
                Note::Donor { donor, state }
            }
            Kind::AskedPages => Note::AskedPages { pages: self.number("pages")?, urgent: flag },
            Kind::AskedApp => Note::AskedApp { app: self.app()? },
            Kind::AskedRelaunch => Note::AskedPrefetch { trigger: Trigger::Relaunch(self.app()?) },
            Kind::AskedFault => {
                let page = self.page(tag, before)?;
                let trigger = if flag { Trigger::Hit(page) } else { Trigger::Fault(page) };
                Note::AskedPrefetch { trigger }
            }
            Kind::PrefetchEnd => {
                let page = self.page(tag, before)?;
                if flag { Note::PrefetchUsed { page } } else { Note::PrefetchExpired { page } }
            }
            Kind::Used => Note::Used { run: self.run(tag, before)? },
            Kind::Unused => Note::Unused { run: self.run(tag, before)? },
            Kind::AskedSamples => {
                let (app, pages) = (self.app()?, self.number("pages")?);
                Note::AskedSamples { app, pages, run_pages: self.number32("pages")? }
            }
            Kind::Sample => Note::Sample { run: self.run(tag, before)? },
            Kind::Spared => Note::Spared { app: self.app()? },
            Kind::Group => {
                let pages = self.number32("pages")?;
                let chunk_bytes = self.number32("chunk")?;
                let packed = self.byte("group")?;
                let tier = self.tier_of(u64::from(packed & 3))?;
                let codec = match packed >> 2 & 7 {
                    0 => CodecKind::Raw,
                    1 => CodecKind::Lz4,
                    2 => CodecKind::Zstd,
                    3 => CodecKind::ZstdDictionary,
                    4 => CodecKind::Lzo,
                    5 => CodecKind::BaseDeltaImmediate,
                    other => return Err(Bad::new("codec", format!("{other} is unknown"))),
                };
                let hotness = match packed >> 5 {
                    0 => None,
                    1 => Some(Hotness::Hot),
                    2 => Some(Hotness::Warm),
                    3 => Some(Hotness::Cold),
                    other => return Err(Bad::new("hotness", format!("{other} is unknown"))),
                };
                Note::Group { pages, tier, codec, chunk_bytes, hotness, park_siblings: flag }
            }
            Kind::Victim => Note::Victim { page: self.page(tag, before)? },
            Kind::Prefetch => Note::Prefetch { page: self.page(tag, before)? },
            Kind::EndApp => Note::EndApp { app: self.app()? },
            Kind::Stored => {
                let page = self.page(tag, before)?;
                let packed = self.number("bytes")?;
                let bytes = u32::try_from(packed >> 2)
                    .map_err(|_| Bad::new("bytes", format!("{} are too many", packed >> 2)))?;
                Note::Stored { page, tier: self.tier_of(packed & 3)?, bytes }
            }
            Kind::Stayed => Note::Stayed { page: self.page(tag, before)? },
            Kind::PageIn => {
                let page = self.page(tag, before)?;
                Note::PageIn { page, tier: self.tier()?, demand: flag }
            }
            Kind::Dropped => {
                let page = self.page(tag, before)?;
                Note::Dropped { page, tier: self.tier()? }
            }
            Kind::TierUse => {
                let tier = self.tier()?;
                let used_bytes = self.number("bytes")?;
                Note::TierUse { tier, used_bytes, pages: self.number("pages")? }
            }
            _ => return Err(Bad::new("tag", "no note")),
        })
    }
}

//! A part of a trace that is a trace itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clew_core::{AppId, Ns, PageId, PageRun, SpaceId};
use rangemap::RangeSet;

use crate::contents::{Content, Contents};
use crate::error::TraceError;
use crate::header::{ContentsKind, Header};
use crate::known::VPNS;
use crate::record::{ContentId, Record, Stamped};
use crate::trace::Trace;
use crate::writer::Writer;

/// What is cut out.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// From here on; what was before is told in short at the beginning.
    pub from: Ns,
    /// Up to here, exclusive.
    pub until: Option<Ns>,
    /// Only these apps and their spaces; empty: all. What was decided was decided for all of them,
    /// so it is left out where some are.
    pub apps: BTreeSet<AppId>,
    /// Leave out what pages hold.
    pub without_contents: bool,
    /// Leave out what the recording system asked, decided and did.
    pub without_notes: bool,
}

impl Cut {
    /// The header of the part, for [`Cut::write`].
    pub fn header(&self, whole: &Header) -> Header {
        let mut header = whole.clone();
        if self.without_contents {
            header.contents = ContentsKind::None;
        }
        let Cut { from, until, apps, .. } = self;
        let until = until.map_or("the end".to_string(), |until| format!("{} ns", until.0));
        let which = if apps.is_empty() { "all apps" } else { "some apps" };
        let note = format!("from {} ns until {until}, {which}", from.0);
        let before = header.provenance.notes.get("cut").map(|before| format!("{before}; "));
        let note = before.unwrap_or_default() + &note;
        header.provenance.notes.insert("cut".into(), note);
        header
    }

    /// Writes the part of `trace`, whose times begin at [`Cut::from`]. It begins with what is there
    /// then: apps (launched, and sent to the background but for the one in front), spaces, pages
    /// (as resident), and what they hold. Takes memory for the pages that there are at that time.
    /// `progress` is told now and then how many bytes of the whole are done.
    pub fn write<W: Write>(
        &self,
        trace: &Trace,
        writer: &mut Writer<W>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), TraceError> {
        let mut reader = trace.records()?;
        let mut ids = Ids::new(trace, self.without_contents)?;
        for (app, name) in &trace.totals().apps {
            if self.wants(*app) {
                writer.app(*app, name)?;
            }
        }
        let mut present = Some(Present::default());
        // Of all spaces that there were: whether they belong to an app that is wanted.
        let mut wanted: BTreeMap<SpaceId, bool> = BTreeMap::new();
        let mut rows = 0u64;
        while let Some(stamped) = reader.next() {
            let Stamped { at, record } = stamped?;
            rows += 1;
            if rows.is_multiple_of(1 << 16) {
                progress(reader.position());
            }
            if self.until.is_some_and(|until| at >= until) {
                break;
            }
            if let Record::SpaceStart { space, app, .. } = record {
                wanted.insert(space, self.wants(app));
            }
            if !self.keeps(&record, &wanted) {
                continue;
            }
            if at < self.from {
                if let Some(present) = &mut present {
                    present.take(&record);
                }
                continue;
            }
            if let Some(present) = present.take() {
                present.write(writer, &mut ids)?;
            }
            let record = match record {
                Record::Contents { page, content } => {
                    Record::Contents { page, content: ids.of(content, writer)? }
                }
                other => other,
            };
            writer.record(at.since(self.from), record)?;
        }
        match present {
            Some(present) => present.write(writer, &mut ids),
            None => Ok(()),
        }
    }

    fn wants(&self, app: AppId) -> bool {
        self.apps.is_empty() || self.apps.contains(&app)
    }

    fn keeps(&self, record: &Record, wanted: &BTreeMap<SpaceId, bool>) -> bool {
        let space = |space: SpaceId| wanted.get(&space).copied().unwrap_or(false);
        match *record {
            Record::Note(_) if self.without_notes || !self.apps.is_empty() => false,
            Record::Contents { .. } if self.without_contents => false,
            Record::SpaceEnd { space: of } => space(of),
            Record::Moved { from, to } => space(from.first.space()) && space(to.space()),
            ref other => match (other.pages(), other.app()) {
                (Some(run), _) => space(run.first.space()),
                (None, Some(app)) => self.wants(app),
                (None, None) => true,
            },
        }
    }
}

/// Ids of contents in the part, by those in the whole.
struct Ids {
    contents: Option<Contents<std::fs::File>>,
    new: BTreeMap<ContentId, ContentId>,
}

impl Ids {
    fn new(trace: &Trace, without: bool) -> Result<Ids, TraceError> {
        let contents = if without { None } else { Some(trace.contents()?) };
        Ok(Ids { contents, new: BTreeMap::new() })
    }

    fn of<W: Write>(
        &mut self,
        old: ContentId,
        writer: &mut Writer<W>,
    ) -> Result<ContentId, TraceError> {
        if let Some(new) = self.new.get(&old) {
            return Ok(*new);
        }
        let Some(contents) = &mut self.contents else { return Ok(old) };
        let new = match contents.get(old)? {
            Content::Bytes(page) => writer.bytes(page)?,
            Content::Stats(stats) => writer.stats(u128::from(old.0), &stats)?,
        };
        self.new.insert(old, new);
        Ok(new)
    }
}

/// What there is at some time.
#[derive(Default)]
struct Present {
    apps: BTreeSet<AppId>,
    front: Option<AppId>,
    spaces: BTreeMap<SpaceId, (AppId, bool)>,
    /// Pages that hold something, by their words: a page's neighbour has the next one.
    pages: RangeSet<u64>,
    contents: BTreeMap<u64, ContentId>,
}

impl Present {
    fn take(&mut self, record: &Record) {
        match *record {
            Record::Launch { app } | Record::Relaunch { app } => {
                self.apps.insert(app);
                self.front = Some(app);
            }
            Record::Background { app } => {
                self.apps.insert(app);
                self.front.take_if(|front| *front == app);
            }
            Record::Exit { app } => {
                self.apps.remove(&app);
                self.front.take_if(|front| *front == app);
                let ended = self.spaces.iter().filter(|(_, (of, _))| *of == app);
                let ended: Vec<SpaceId> = ended.map(|(space, _)| *space).collect();
                ended.into_iter().for_each(|space| self.end(space));
            }
            Record::SpaceStart { space, app, file } => {
                self.end(space);
                self.spaces.insert(space, (app, file));
            }
            Record::SpaceEnd { space } => self.end(space),
            Record::Resident { run } => self.pages.insert(words(run)),
            Record::Access { page, .. } | Record::Candidate { page } => self.there(page),
            Record::Contents { page, content } => {
                self.there(page);
                self.contents.insert(page.raw(), content);
            }
            Record::Freed { run } => self.remove(words(run)),
            Record::Moved { from, to } => {
                let old = words(from);
                let shift = to.raw().wrapping_sub(old.start);
                let pages = self.pages.overlapping(&old);
                let pages: Vec<_> =
                    pages.map(|part| part.start.max(old.start)..part.end.min(old.end)).collect();
                let contents = self.contents.range(old.clone());
                let contents: Vec<_> = contents.map(|(word, id)| (*word, *id)).collect();
                self.remove(old);
                self.remove(words(PageRun { first: to, ..from }));
                for part in pages {
                    self.pages.insert(part.start.wrapping_add(shift)..part.end.wrapping_add(shift));
                }
                let moved = contents.into_iter();
                self.contents.extend(moved.map(|(word, id)| (word.wrapping_add(shift), id)));
            }
            Record::ResponseComplete { .. } | Record::Window { .. } | Record::Note(_) => {}
        }
    }

    fn there(&mut self, page: PageId) {
        if !self.pages.contains(&page.raw()) {
            self.pages.insert(page.raw()..page.raw() + 1);
        }
    }

    fn end(&mut self, space: SpaceId) {
        if self.spaces.remove(&space).is_some() {
            let first = PageId::new(space, clew_core::Vpn(0)).raw();
            self.remove(first..first + VPNS);
        }
    }

    fn remove(&mut self, words: std::ops::Range<u64>) {
        self.pages.remove(words.clone());
        let gone: Vec<u64> = self.contents.range(words).map(|(word, _)| *word).collect();
        for word in gone {
            self.contents.remove(&word);
        }
    }

    fn write<W: Write>(self, writer: &mut Writer<W>, ids: &mut Ids) -> Result<(), TraceError> {
        let start = Ns(0);
        let others = self.apps.iter().filter(|app| Some(**app) != self.front);
        for app in others {
            writer.record(start, Record::Launch { app: *app })?;
            writer.record(start, Record::Background { app: *app })?;
        }
        if let Some(app) = self.front {
            writer.record(start, Record::Launch { app })?;
        }
        for (space, (app, file)) in self.spaces {
            writer.record(start, Record::SpaceStart { space, app, file })?;
        }
        for part in self.pages.iter() {
            let mut first = part.start;
            while first < part.end {
                // The first page of a space is the neighbour of the last one of the space before.
                let in_space = VPNS - PageId::from_raw(first).vpn().0;
                let count = (part.end - first).min(in_space).min(u64::from(u32::MAX)) as u32;
                let run = PageRun { first: PageId::from_raw(first), count };
                writer.record(start, Record::Resident { run })?;
                first += u64::from(count);
            }
        }
        for (word, content) in self.contents {
            let content = ids.of(content, writer)?;
            let record = Record::Contents { page: PageId::from_raw(word), content };
            writer.record(start, record)?;
        }
        Ok(())
    }
}

fn words(run: PageRun) -> std::ops::Range<u64> {
    run.first.raw()..run.first.raw() + u64::from(run.count)
}

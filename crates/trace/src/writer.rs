//! Writes traces.

use std::collections::HashMap;
use std::io::{self, Write};

use clew_core::{AppId, Ns};
use twox_hash::XxHash3_128;

use crate::block::{BlockKind, CONTENTS_TARGET, Packer, RECORDS_TARGET};
use crate::contents::{STATS_BYTES, put_stats};
use crate::error::{Bad, TraceError};
use crate::header::{ContentsKind, Header};
use crate::known::Known;
use crate::packed::{Before, put, put_varint};
use crate::reader::{TRAILER, TRAILER_MAGIC};
use crate::record::{ContentId, ContentStats, Record};
use crate::totals::{Totals, put_app};

/// Writes a trace from its first record to its last.
///
/// Apps get their names before they are used, contents their id. A record that could not be read
/// again (of a space that has not started, of an app without a name, earlier than the one before, later than any)
/// is refused, and nothing of it is written: the next one may follow.
///
/// A trace is complete only after [`Writer::finish`]; what was dropped before reads as truncated.
/// It holds 200 KiB of buffers, 24 bytes (in a hash table: up to twice that) for each of the
/// different contents, and 4 bytes for each 16 KiB of them.
pub struct Writer<W: Write> {
    out: W,
    offset: u64,
    packer: Packer,
    page_bytes: usize,
    contents_kind: ContentsKind,
    known: Known,
    totals: Totals,
    any: bool,
    records: Part,
    before: Before,
    contents: Part,
    apps: Part,
    ids: HashMap<u128, u32>,
    index: Vec<u8>,
    index_blocks: u64,
    last_contents_at: u64,
    /// Nothing more can be written behind a block of which only a part was.
    broken: bool,
}

/// A block that is being filled.
#[derive(Default)]
struct Part {
    raw: Vec<u8>,
    items: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    pub fn new(mut out: W, header: &Header) -> Result<Writer<W>, TraceError> {
        let bytes = header.to_bytes().map_err(|bad| bad.at(0))?;
        let failed = |source| TraceError::Write { offset: 0, source };
        out.write_all(&bytes).map_err(failed)?;
        Ok(Writer {
            out,
            offset: bytes.len() as u64,
            packer: Packer::new().map_err(failed)?,
            page_bytes: header.page_bytes as usize,
            contents_kind: header.contents,
            known: Known::default(),
            totals: Totals::default(),
            any: false,
            records: Part::default(),
            before: Before::default(),
            contents: Part::default(),
            apps: Part::default(),
            ids: HashMap::new(),
            index: Vec::new(),
            index_blocks: 0,
            last_contents_at: 0,
            broken: false,
        })
    }

    /// `app` is called `name`, now and until the end.
    pub fn app(&mut self, app: AppId, name: &str) -> Result<(), TraceError> {
        let apps = self.known.apps.len();
        self.known.name(app, name).map_err(|bad| self.refuse(bad))?;
        if self.known.apps.len() > apps {
            put_app(&mut self.apps.raw, app, name);
            self.apps.items += 1;
            if self.apps.raw.len() >= CONTENTS_TARGET {
                self.flush_apps()?;
            }
        }
        Ok(())
    }

    /// Whether `app` has got a name.
    pub fn has_name(&self, app: AppId) -> bool {
        self.known.apps.contains_key(&app)
    }

    /// The id of the contents of a page. The same bytes have the same id.
    pub fn bytes(&mut self, page: &[u8]) -> Result<ContentId, TraceError> {
        self.expect_contents(ContentsKind::Bytes)?;
        if page.len() != self.page_bytes {
            let why = format!("{} bytes; a page has {}", page.len(), self.page_bytes);
            return Err(self.refuse(Bad::new("contents", why)));
        }
        let hash = XxHash3_128::oneshot(page);
        self.content(hash, |raw| raw.extend(page))
    }

    /// The id of contents of which there are only statistics. The same `hash` has the same id, and
    /// the statistics that it had first. The hash itself is not written.
    pub fn stats(&mut self, hash: u128, stats: &ContentStats) -> Result<ContentId, TraceError> {
        self.expect_contents(ContentsKind::Stats)?;
        self.content(hash, |raw| put_stats(raw, stats))
    }

    /// The id that contents of this hash got from [`Writer::stats`], if they came up before.
    pub fn known_stats(&self, hash: u128) -> Option<ContentId> {
        self.ids.get(&hash).copied().map(ContentId)
    }

    fn expect_contents(&self, kind: ContentsKind) -> Result<(), TraceError> {
        if self.contents_kind == kind {
            return Ok(());
        }
        let why = format!("{kind:?} in a trace of {:?}", self.contents_kind);
        Err(self.refuse(Bad::new("contents", why)))
    }

    fn content(
        &mut self,
        hash: u128,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<ContentId, TraceError> {
        if let Some(id) = self.ids.get(&hash) {
            return Ok(ContentId(*id));
        }
        let id = self.known.contents;
        if id == u32::MAX {
            return Err(self.refuse(Bad::new("contents", "more than 2^32 different ones")));
        }
        put(&mut self.contents.raw);
        self.contents.items += 1;
        self.known.contents += 1;
        self.ids.insert(hash, id);
        if self.contents.raw.len() >= CONTENTS_TARGET {
            self.flush_contents()?;
        }
        Ok(ContentId(id))
    }

    /// Appends a record.
    pub fn record(&mut self, at: Ns, record: Record) -> Result<(), TraceError> {
        self.totals.may_come(at).map_err(|bad| self.refuse(bad))?;
        self.known.take(&record).map_err(|bad| self.refuse(bad))?;
        if !self.any {
            self.any = true;
            self.totals.first = at;
        }
        put(&mut self.records.raw, &mut self.before, at, &record);
        self.records.items += 1;
        self.totals.add(at, &record);
        if self.records.raw.len() >= RECORDS_TARGET { self.flush() } else { Ok(()) }
    }

    /// Whether a record may name `space`.
    pub fn lives(&self, space: clew_core::SpaceId) -> bool {
        self.known.lives(space)
    }

    fn refuse(&self, bad: Bad) -> TraceError {
        bad.in_record(self.offset, self.totals.records())
    }

    /// Writes what there is as blocks, so that a reader of the unfinished trace could have it.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.flush_apps()?;
        self.flush_contents()?;
        let mut records = std::mem::take(&mut self.records);
        self.block(BlockKind::Records, &mut records)?;
        self.records = records;
        self.before = Before::default();
        Ok(())
    }

    fn flush_apps(&mut self) -> Result<(), TraceError> {
        let mut apps = std::mem::take(&mut self.apps);
        self.block(BlockKind::Apps, &mut apps)?;
        self.apps = apps;
        Ok(())
    }

    fn flush_contents(&mut self) -> Result<(), TraceError> {
        let mut contents = std::mem::take(&mut self.contents);
        if contents.items > 0 {
            put_varint(&mut self.index, self.offset - self.last_contents_at);
            put_varint(&mut self.index, u64::from(contents.items));
            self.index_blocks += 1;
            self.last_contents_at = self.offset;
        }
        self.block(BlockKind::Contents, &mut contents)?;
        self.contents = contents;
        Ok(())
    }

    /// Writes a block, if there is anything in it, and empties it.
    fn block(&mut self, kind: BlockKind, part: &mut Part) -> Result<(), TraceError> {
        let offset = self.offset;
        let failed = |source| TraceError::Write { offset, source };
        if self.broken {
            return Err(failed(io::Error::other("an earlier write has failed")));
        }
        if part.raw.is_empty() {
            return Ok(());
        }
        let packed = self.packer.pack(kind, part.items, &part.raw, offset);
        let (header, stored) = packed.map_err(failed)?;
        self.broken = true;
        self.out.write_all(&header).and_then(|()| self.out.write_all(stored)).map_err(failed)?;
        self.broken = false;
        self.offset += (header.len() + stored.len()) as u64;
        part.raw.clear();
        part.items = 0;
        Ok(())
    }

    /// Ends the trace; returns what it was written to, flushed, and the counts.
    pub fn finish(mut self) -> Result<(W, Totals), TraceError> {
        self.flush()?;
        self.totals.contents = self.known.contents;
        self.totals.apps = std::mem::take(&mut self.known.apps);
        let mut end = Part::default();
        self.totals.put(&mut end.raw);
        put_varint(&mut end.raw, self.index_blocks);
        end.raw.append(&mut self.index);
        let at = self.offset;
        self.block(BlockKind::End, &mut end)?;
        let mut trailer = [0; TRAILER];
        trailer[..8].copy_from_slice(&at.to_le_bytes());
        trailer[8..].copy_from_slice(TRAILER_MAGIC);
        let written = self.out.write_all(&trailer).and_then(|()| self.out.flush());
        written.map_err(|source| TraceError::Write { offset: self.offset, source })?;
        Ok((self.out, self.totals))
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.offset
    }
}

const _: () = assert!(STATS_BYTES <= CONTENTS_TARGET);

//! Contents of pages, by their id.

use std::io::{BufReader, Read, Seek, SeekFrom};

use crate::block::{BlockHeader, BlockKind, CONTENTS_TARGET, Unpacker};
use crate::error::{Bad, TraceError};
use crate::header::{ContentsKind, Header};
use crate::packed::Scan;
use crate::record::{ContentId, ContentStats};
use crate::totals::Totals;

/// Bytes of [`ContentStats`] in a trace.
pub(crate) const STATS_BYTES: usize = 10;
/// Blocks that are kept decompressed; a power of two.
const CACHED: usize = 64;

/// What is known of contents.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Content<'a> {
    /// All of it: a page.
    Bytes(&'a [u8]),
    /// How it compresses.
    Stats(ContentStats),
}

/// Bytes that one of the contents takes, before compression.
pub(crate) fn entry_bytes(header: &Header) -> usize {
    match header.contents {
        ContentsKind::None => 0,
        ContentsKind::Stats => STATS_BYTES,
        ContentsKind::Bytes => header.page_bytes as usize,
    }
}

pub(crate) fn put_stats(out: &mut Vec<u8>, stats: &ContentStats) {
    out.extend([u8::from(stats.same_filled), stats.entropy]);
    for bytes in [stats.lz4_256, stats.lz4_1k, stats.lz4_page, stats.zstd_page] {
        out.extend(bytes.to_le_bytes());
    }
}

fn stats(entry: &[u8]) -> ContentStats {
    let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    ContentStats {
        same_filled: entry[0] & 1 != 0,
        entropy: entry[1],
        lz4_256: word(2),
        lz4_1k: word(4),
        lz4_page: word(6),
        zstd_page: word(8),
    }
}

/// Where contents are: 12 bytes a block of 16 KiB.
#[derive(Clone, Default, Debug)]
pub(crate) struct Index {
    /// First id of each block.
    firsts: Vec<u32>,
    /// Offset of each block.
    offsets: Vec<u64>,
}

impl Index {
    /// Reads what the end at `offset` holds.
    pub fn read(raw: &[u8], offset: u64, version: u16) -> Result<(Totals, Index), Bad> {
        let mut scan = Scan::new(raw, 0);
        let totals = Totals::scan(&mut scan, version)?;
        let mut index = Index::default();
        let (mut at, mut first) = (0u64, 0u32);
        for _ in 0..scan.number("index")? {
            let later = scan.number("index")?;
            let next = at.checked_add(later).filter(|next| later > 0 && *next < offset);
            at = next.ok_or_else(|| Bad::new("index", format!("{later} bytes after {at}")))?;
            index.firsts.push(first);
            index.offsets.push(at);
            let items = scan.number32("index")?;
            let more = first.checked_add(items).filter(|_| items > 0);
            first = more.ok_or_else(|| Bad::new("index", format!("{items} items")))?;
        }
        if first != totals.contents {
            let why = format!("{first} contents are in it, of {}", totals.contents);
            return Err(Bad::new("index", why));
        }
        match scan.is_over() {
            true => Ok((totals, index)),
            false => Err(Bad::new("index", "bytes follow it")),
        }
    }
}

/// Contents by their id, at random. Blocks that were used lately are kept: 1 MiB.
pub struct Contents<R> {
    input: BufReader<R>,
    /// Where the next read from `input` begins.
    position: u64,
    header: Header,
    index: Index,
    count: u32,
    unpacker: Unpacker,
    cached: Vec<(usize, Vec<u8>)>,
}

impl<R: Read + Seek> Contents<R> {
    pub(crate) fn new(
        input: R,
        header: Header,
        index: Index,
        count: u32,
    ) -> Result<Contents<R>, TraceError> {
        let mut input = BufReader::with_capacity(2 * CONTENTS_TARGET, input);
        let position = input.stream_position().map_err(TraceError::read(0))?;
        let unpacker = Unpacker::new().map_err(TraceError::read(0))?;
        let cached = vec![(usize::MAX, Vec::new()); CACHED];
        Ok(Contents { input, position, header, index, count, unpacker, cached })
    }

    /// How many there are: ids are below this.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The contents called `id`.
    pub fn get(&mut self, id: ContentId) -> Result<Content<'_>, TraceError> {
        if id.0 >= self.count {
            let why = format!("there are {}", self.count);
            return Err(TraceError::Contents { id: id.0, why });
        }
        let block = self.index.firsts.partition_point(|first| *first <= id.0) - 1;
        let slot = block % CACHED;
        if self.cached[slot].0 != block {
            let mut raw = std::mem::take(&mut self.cached[slot].1);
            self.cached[slot].0 = usize::MAX;
            self.load(block, &mut raw)?;
            self.cached[slot] = (block, raw);
        }
        let each = entry_bytes(&self.header);
        let at = (id.0 - self.index.firsts[block]) as usize * each;
        let entry = &self.cached[slot].1[at..at + each];
        Ok(match self.header.contents {
            ContentsKind::Bytes => Content::Bytes(entry),
            ContentsKind::Stats | ContentsKind::None => Content::Stats(stats(entry)),
        })
    }

    fn load(&mut self, block: usize, raw: &mut Vec<u8>) -> Result<(), TraceError> {
        let offset = self.index.offsets[block];
        let end = self.index.firsts.get(block + 1).copied().unwrap_or(self.count);
        let items = end - self.index.firsts[block];
        self.seek(offset).map_err(TraceError::read(offset))?;
        let header = BlockHeader::read(&mut self.input, offset)?;
        self.unpacker.unpack(&mut self.input, &header, offset, raw)?;
        self.position = header.next(offset);
        let wanted = items as usize * entry_bytes(&self.header);
        if header.kind != BlockKind::Contents || header.items != items || raw.len() != wanted {
            let why = format!("no block of {items} contents is there");
            return Err(Bad::new("index", why).at(offset));
        }
        Ok(())
    }

    fn seek(&mut self, offset: u64) -> std::io::Result<()> {
        let from = std::mem::replace(&mut self.position, u64::MAX);
        match i64::try_from(offset as i128 - from as i128) {
            Ok(forward) if from != u64::MAX => self.input.seek_relative(forward),
            _ => self.input.seek(SeekFrom::Start(offset)).map(drop),
        }
    }
}

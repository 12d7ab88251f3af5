//! Reads records.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Seek};

use clew_core::AppId;

use crate::VERSION;
use crate::block::{BlockHeader, BlockKind, Unpacker};
use crate::contents::{Index, entry_bytes};
use crate::error::{Bad, TraceError};
use crate::header::Header;
use crate::kind::Kind;
use crate::known::Known;
use crate::packed::{Before, Scan};
use crate::record::Stamped;
use crate::totals::{Totals, scan_app};

/// Behind the end: its offset, and [`TRAILER_MAGIC`].
pub(crate) const TRAILER: usize = 16;
pub(crate) const TRAILER_MAGIC: &[u8; 8] = b"CLEWENDS";

type Skip<R> = fn(&mut BufReader<R>, i64) -> io::Result<()>;

/// The records of a trace, in order. After an error, or the end, there is nothing more.
///
/// Every block that it reads is checked, and every record: what comes out names apps that have a
/// name, spaces that live, contents that there are, at times that never run backwards.
pub struct Reader<R> {
    input: BufReader<R>,
    /// Passes over so many bytes; `None`: they are read and checked.
    skip: Option<Skip<R>>,
    header: Header,
    version: u16,
    /// Of the next block.
    offset: u64,
    /// Of the block in `raw`.
    block: u64,
    known: Known,
    totals: Totals,
    any: bool,
    number: u64,
    before: Before,
    raw: Vec<u8>,
    at: usize,
    left: u32,
    unpacker: Unpacker,
    check_contents: bool,
    is_over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. The input need not be buffered.
    pub fn new(input: R) -> Result<Reader<R>, TraceError> {
        let mut input = BufReader::with_capacity(128 << 10, input);
        let (header, offset, version) = Header::read(&mut input)?;
        let unpacker = Unpacker::new().map_err(TraceError::read(offset))?;
        Ok(Reader {
            input,
            skip: None,
            header,
            version,
            offset,
            block: offset,
            known: Known::default(),
            totals: Totals::default(),
            any: false,
            number: 0,
            before: Before::default(),
            raw: Vec::new(),
            at: 0,
            left: 0,
            unpacker,
            check_contents: false,
            is_over: false,
        })
    }

    /// What holds for the whole trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The apps that have been named so far.
    pub fn apps(&self) -> &BTreeMap<AppId, String> {
        &self.known.apps
    }

    /// The counts so far; after the last record they are those of the trace.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Bytes of the trace that have been read or passed over.
    pub fn position(&self) -> u64 {
        self.offset
    }

    /// Decompresses contents too, which are of no use to a reader of records, and checks them.
    pub fn checking_contents(mut self) -> Reader<R> {
        self.check_contents = true;
        self.skip = None;
        self
    }

    /// Goes on to the next block of records; false at the end.
    #[cold]
    fn next_block(&mut self) -> Result<bool, TraceError> {
        loop {
            let offset = self.offset;
            if self.at < self.raw.len() {
                let why = format!("{} bytes follow the last one", self.raw.len() - self.at);
                return Err(Bad::new("records", why).at(self.block));
            }
            let header = BlockHeader::read(&mut self.input, offset)?;
            match header.kind {
                BlockKind::Contents => self.contents(&header)?,
                BlockKind::Apps => {
                    self.unpacker.unpack(&mut self.input, &header, offset, &mut self.raw)?;
                    let named = self.name_apps(header.items);
                    self.raw.clear();
                    self.at = 0;
                    named.map_err(|bad| bad.at(offset))?;
                }
                BlockKind::Records => {
                    self.unpacker.unpack(&mut self.input, &header, offset, &mut self.raw)?;
                    self.before = Before::default();
                    (self.at, self.left, self.block) = (0, header.items, offset);
                    if header.items == 0 {
                        return Err(Bad::new("block items", "none").at(offset));
                    }
                }
                BlockKind::End => {
                    self.unpacker.unpack(&mut self.input, &header, offset, &mut self.raw)?;
                    self.offset = header.next(offset);
                    return self.end(offset).map(|()| false);
                }
            }
            self.offset = header.next(offset);
            if self.left > 0 {
                return Ok(true);
            }
        }
    }

    fn contents(&mut self, header: &BlockHeader) -> Result<(), TraceError> {
        let offset = self.offset;
        let each = entry_bytes(&self.header) as u64;
        if each == 0 || u64::from(header.items) * each != u64::from(header.raw) {
            let why = format!("{} items in {} bytes, {each} each", header.items, header.raw);
            return Err(Bad::new("contents", why).at(offset));
        }
        let contents = self.known.contents.checked_add(header.items);
        self.known.contents =
            contents.ok_or_else(|| Bad::new("contents", "more than 2^32").at(offset))?;
        self.totals.contents = self.known.contents;
        match self.skip {
            _ if self.check_contents => {
                self.unpacker.unpack(&mut self.input, header, offset, &mut self.raw)?;
                self.raw.clear();
                Ok(())
            }
            Some(skip) => {
                let skipped = skip(&mut self.input, i64::from(header.stored));
                skipped.map_err(TraceError::read(offset))
            }
            None => self.unpacker.fetch(&mut self.input, header, offset),
        }
    }

    fn name_apps(&mut self, items: u32) -> Result<(), Bad> {
        let mut scan = Scan::new(&self.raw, 0);
        for _ in 0..items {
            let (app, name) = scan_app(&mut scan)?;
            self.known.name(app, name)?;
            self.totals.apps.entry(app).or_insert_with(|| name.to_string());
        }
        match scan.is_over() {
            true => Ok(()),
            false => Err(Bad::new("apps", "bytes follow the last one")),
        }
    }

    /// Compares the end with what came before it; nothing may follow but the trailer.
    fn end(&mut self, offset: u64) -> Result<(), TraceError> {
        let (totals, _) =
            Index::read(&self.raw, offset, self.version).map_err(|bad| bad.at(offset))?;
        self.raw.clear();
        if totals != self.totals {
            let why = format!(
                "{} records, {} contents, {} apps; it says {}, {}, {}",
                self.totals.records(),
                self.totals.contents,
                self.totals.apps.len(),
                totals.records(),
                totals.contents,
                totals.apps.len()
            );
            return Err(Bad::new("totals", why).at(offset));
        }
        let mut trailer = [0; TRAILER];
        self.input.read_exact(&mut trailer).map_err(TraceError::read(self.offset))?;
        if trailer[..8] != offset.to_le_bytes() || &trailer[8..] != TRAILER_MAGIC {
            return Err(TraceError::Checksum { offset: self.offset, what: "the last 16 bytes" });
        }
        self.offset += TRAILER as u64;
        let more = self.input.fill_buf().map_err(TraceError::read(self.offset))?;
        match more.is_empty() {
            true => Ok(()),
            false => Err(TraceError::Beyond { offset: self.offset }),
        }
    }

    #[inline]
    fn record(&mut self) -> Result<Stamped, Bad> {
        let mut scan = Scan::new(&self.raw, self.at);
        let stamped = scan.record(&mut self.before)?;
        self.at = scan.position();
        if self.version < VERSION
            && let kind = Kind::of(&stamped.record)
            && !kind.is_of(self.version)
        {
            let why = format!("{} in version {}", kind.name(), self.version);
            return Err(Bad::new("tag", why));
        }
        self.totals.may_come(stamped.at)?;
        self.known.take(&stamped.record)?;
        self.totals.add(stamped.at, &stamped.record);
        if !self.any {
            self.any = true;
            self.totals.first = stamped.at;
        }
        Ok(stamped)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// As [`Reader::new`], but passes over contents without reading them.
    pub fn records_only(input: R) -> Result<Reader<R>, TraceError> {
        let mut reader = Reader::new(input)?;
        reader.skip = Some(|input, bytes| input.seek_relative(bytes));
        Ok(reader)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Stamped, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Result<Stamped, TraceError>> {
        if self.left == 0 {
            if self.is_over {
                return None;
            }
            match self.next_block() {
                Ok(true) => {}
                Ok(false) => {
                    self.is_over = true;
                    return None;
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        match self.record() {
            Ok(stamped) => {
                self.left -= 1;
                self.number += 1;
                Some(Ok(stamped))
            }
            Err(bad) => {
                (self.is_over, self.left) = (true, 0);
                Some(Err(bad.in_record(self.block, self.number)))
            }
        }
    }
}

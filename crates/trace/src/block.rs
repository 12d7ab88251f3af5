//! Blocks: what a trace consists of after its header, each compressed and checked by itself.

use std::io::{self, Read};

use twox_hash::XxHash3_64;
use zstd::bulk::{Compressor, Decompressor};

use crate::error::{Bad, TraceError};

/// Bytes of a block's header.
pub(crate) const HEADER: usize = 24;
/// Bytes that a block is filled with.
pub(crate) const RECORDS_TARGET: usize = 64 << 10;
/// The same for contents: little is decompressed to get one page.
pub(crate) const CONTENTS_TARGET: usize = 16 << 10;
/// No block is larger, uncompressed.
const LARGEST: usize = 1 << 20;
/// Except the end, which holds the index of contents: 80 million pages of 4 KiB.
const LARGEST_END: usize = 64 << 20;
/// On real records level 1 is a fifth smaller than -1, and decodes as fast.
const LEVEL: i32 = 1;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockKind {
    Records = 1,
    Contents = 2,
    Apps = 3,
    End = 4,
}

/// The header of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    pub kind: BlockKind,
    /// Bytes that follow the header.
    pub stored: u32,
    /// Bytes when decompressed; equal to `stored` if they are not compressed.
    pub raw: u32,
    /// Records, contents or apps in it.
    pub items: u32,
    bytes: [u8; 16],
    checksum: u64,
}

impl BlockHeader {
    /// Reads the header of the block at `offset`. Nothing of it is known to be true before
    /// [`BlockHeader::check`].
    pub fn read(input: &mut impl Read, offset: u64) -> Result<BlockHeader, TraceError> {
        let mut header = [0; HEADER];
        input.read_exact(&mut header).map_err(TraceError::read(offset))?;
        BlockHeader::parse(&header).map_err(|bad| bad.at(offset))
    }

    fn parse(header: &[u8; HEADER]) -> Result<BlockHeader, Bad> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&header[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let kind = match word(0) {
            1 => BlockKind::Records,
            2 => BlockKind::Contents,
            3 => BlockKind::Apps,
            4 => BlockKind::End,
            other => return Err(Bad::new("block kind", format!("{other:#x} is unknown"))),
        };
        let (stored, raw, items) = (word(4), word(8), word(12));
        let largest = if kind == BlockKind::End { LARGEST_END } else { LARGEST };
        if raw as usize > largest {
            let why = format!("{raw} bytes; {largest} is the most");
            return Err(Bad::new("block length", why));
        }
        if stored > raw {
            let why = format!("{stored} bytes are stored of {raw}");
            return Err(Bad::new("block length", why));
        }
        if items > raw {
            let why = format!("{items} items in {raw} bytes");
            return Err(Bad::new("block items", why));
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[..16]);
        let checksum = u64::from(word(16)) | u64::from(word(20)) << 32;
        Ok(BlockHeader { kind, stored, raw, items, bytes, checksum })
    }

    /// Whether header and `stored` bytes are what was written at this offset.
    pub fn check(&self, offset: u64, stored: &[u8]) -> Result<(), TraceError> {
        let what = match self.kind {
            BlockKind::Records => "a block of records",
            BlockKind::Contents => "a block of contents",
            BlockKind::Apps => "a block of apps",
            BlockKind::End => "the end",
        };
        let right = checksum(&self.bytes, offset, stored) == self.checksum;
        if right { Ok(()) } else { Err(TraceError::Checksum { offset, what }) }
    }

    /// Where the next block begins.
    pub fn next(&self, offset: u64) -> u64 {
        offset + HEADER as u64 + u64::from(self.stored)
    }
}

/// The offset is in it, so that blocks that were dropped, doubled or exchanged are found out.
fn checksum(header: &[u8; 16], offset: u64, stored: &[u8]) -> u64 {
    let seed = XxHash3_64::oneshot_with_seed(offset, header);
    XxHash3_64::oneshot_with_seed(seed, stored)
}

/// Makes blocks.
pub(crate) struct Packer {
    compressor: Compressor<'static>,
    stored: Vec<u8>,
}

impl Packer {
    pub fn new() -> io::Result<Packer> {
        Ok(Packer { compressor: Compressor::new(LEVEL)?, stored: Vec::new() })
    }

    /// Header and stored bytes of a block at `offset`.
    pub fn pack<'a>(
        &'a mut self,
        kind: BlockKind,
        items: u32,
        raw: &'a [u8],
        offset: u64,
    ) -> io::Result<([u8; HEADER], &'a [u8])> {
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.compressor.compress_to_buffer(raw, &mut self.stored)?;
        let stored = if self.stored.len() < raw.len() { self.stored.as_slice() } else { raw };
        let mut header = [0; HEADER];
        header[0] = kind as u8;
        header[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        header[12..16].copy_from_slice(&items.to_le_bytes());
        let mut first = [0; 16];
        first.copy_from_slice(&header[..16]);
        header[16..].copy_from_slice(&checksum(&first, offset, stored).to_le_bytes());
        Ok((header, stored))
    }
}

/// Opens blocks.
pub(crate) struct Unpacker {
    decompressor: Decompressor<'static>,
    stored: Vec<u8>,
}

impl Unpacker {
    pub fn new() -> io::Result<Unpacker> {
        Ok(Unpacker { decompressor: Decompressor::new()?, stored: Vec::new() })
    }

    /// Reads what follows `header`, checks it, and leaves it decompressed in `raw`.
    pub fn unpack(
        &mut self,
        input: &mut impl Read,
        header: &BlockHeader,
        offset: u64,
        raw: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.fetch(input, header, offset)?;
        raw.clear();
        if header.stored == header.raw {
            raw.extend(&self.stored);
            return Ok(());
        }
        raw.reserve(header.raw as usize);
        let length = self.decompressor.decompress_to_buffer(&self.stored, raw);
        match length {
            Ok(length) if length == header.raw as usize => Ok(()),
            Ok(length) => {
                let why = format!("{length} bytes came out instead of {}", header.raw);
                Err(Bad::new("block length", why).at(offset))
            }
            Err(error) => Err(Bad::new("compressed bytes", error.to_string()).at(offset)),
        }
    }

    /// Reads what follows `header` and checks it.
    pub fn fetch(
        &mut self,
        input: &mut impl Read,
        header: &BlockHeader,
        offset: u64,
    ) -> Result<(), TraceError> {
        self.stored.clear();
        // Grows as bytes come: a header that lies about its length costs no memory.
        let read = input.take(u64::from(header.stored)).read_to_end(&mut self.stored);
        let read = read.map_err(|source| TraceError::Read { offset, source })?;
        if read < header.stored as usize {
            let offset = offset + (HEADER + read) as u64;
            return Err(TraceError::Truncated { offset });
        }
        header.check(offset, &self.stored)
    }
}

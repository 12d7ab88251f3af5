//! A trace in a file.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::block::{BlockHeader, BlockKind, Unpacker};
use crate::contents::{Contents, Index};
use crate::error::{Bad, TraceError};
use crate::header::Header;
use crate::reader::{Reader, TRAILER, TRAILER_MAGIC};
use crate::regular;
use crate::totals::Totals;

/// A finished trace in a file: its header and its end have been read and checked, nothing else.
#[derive(Clone, Debug)]
pub struct Trace {
    path: PathBuf,
    header: Header,
    totals: Totals,
    index: Index,
    file_bytes: u64,
}

impl Trace {
    /// Opens the trace at `path`.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let mut input = BufReader::new(file(path)?);
        let (header, begin, version) = Header::read(&mut input)?;
        let file_bytes = input.seek(SeekFrom::End(0)).map_err(TraceError::read(0))?;
        let cut = || TraceError::Truncated { offset: file_bytes };
        let at = file_bytes.checked_sub(TRAILER as u64).filter(|at| *at >= begin);
        let at = at.ok_or_else(cut)?;
        input.seek(SeekFrom::Start(at)).map_err(TraceError::read(at))?;
        let mut offset = [0; 8];
        let mut magic = [0; 8];
        input.read_exact(&mut offset).map_err(TraceError::read(at))?;
        input.read_exact(&mut magic).map_err(TraceError::read(at))?;
        if &magic != TRAILER_MAGIC {
            return Err(cut());
        }
        let offset = u64::from_le_bytes(offset);
        if offset < begin || offset >= at {
            let why = format!("the end is to be at byte {offset}");
            return Err(Bad::new("last 16 bytes", why).at(at));
        }
        input.seek(SeekFrom::Start(offset)).map_err(TraceError::read(offset))?;
        let end = BlockHeader::read(&mut input, offset)?;
        if end.kind != BlockKind::End || end.next(offset) != at {
            return Err(Bad::new("end", "something else is there").at(offset));
        }
        let mut raw = Vec::new();
        let mut unpacker = Unpacker::new().map_err(TraceError::read(offset))?;
        unpacker.unpack(&mut input, &end, offset, &mut raw)?;
        let (totals, index) = Index::read(&raw, offset, version).map_err(|bad| bad.at(offset))?;
        Ok(Trace { path: path.to_path_buf(), header, totals, index, file_bytes })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What holds for the whole trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The counts, as the trace says.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Its records, from the first on; contents are passed over.
    pub fn records(&self) -> Result<Reader<File>, TraceError> {
        Reader::records_only(file(&self.path)?)
    }

    /// Its contents. Each caller has a cache of its own.
    pub fn contents(&self) -> Result<Contents<File>, TraceError> {
        let (header, index) = (self.header.clone(), self.index.clone());
        Contents::new(file(&self.path)?, header, index, self.totals.contents)
    }
}

/// Opens a file of which nobody has to be waited for: it may be somebody else who names it, in a sweep.
fn file(path: &Path) -> Result<File, TraceError> {
    regular::open(path, OpenOptions::new().read(true), 0).map_err(TraceError::read(0))
}

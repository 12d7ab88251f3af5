//! What can be wrong with a trace, and where.

use std::io;

/// Why a trace could not be read or written. Offsets are in bytes from the beginning of the trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It could not be read.
    #[error("reading at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// It could not be written.
    #[error("writing at byte {offset}: {source}")]
    Write {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// It does not begin as traces do.
    #[error("not a trace of Clew: it does not begin with 'CLEWTRCE'")]
    NotATrace,
    /// It was written by another version.
    #[error("version {found} of the format; this program reads versions 1 to {}", crate::VERSION)]
    Version {
        /// Its version.
        found: u16,
    },
    /// It ends before its end.
    #[error("it ends at byte {offset}, before its end: it was cut off, or is still being written")]
    Truncated {
        /// Its length.
        offset: u64,
    },
    /// Something follows its end.
    #[error("byte {offset}: something follows the end of the trace")]
    Beyond {
        /// Where.
        offset: u64,
    },
    /// A checksum is wrong.
    #[error("byte {offset}: the checksum of {what} is wrong: it is damaged")]
    Checksum {
        /// Where the damaged part begins.
        offset: u64,
        /// Which part.
        what: &'static str,
    },
    /// A field of the header, of a block's header or of the end has a value that it may not have.
    #[error("byte {offset}, {field}: {why}")]
    Field {
        /// Where the part begins.
        offset: u64,
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A record cannot be: in a file, or given to a writer.
    #[error("record {number} (block at byte {offset}), {field}: {why}")]
    Record {
        /// Where the block begins that holds it, or is to hold it.
        offset: u64,
        /// The record's number in the trace, from 0.
        number: u64,
        /// Which of its fields.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// There are no contents of this number.
    #[error("contents {id}: {why}")]
    Contents {
        /// Their number.
        id: u32,
        /// What is wrong.
        why: String,
    },
}

impl TraceError {
    pub(crate) fn read(offset: u64) -> impl FnOnce(io::Error) -> TraceError {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof => TraceError::Truncated { offset },
            _ => TraceError::Read { offset, source },
        }
    }

    /// It could not be opened.
    pub fn opening(source: io::Error) -> TraceError {
        TraceError::Read { offset: 0, source }
    }

    /// Whether the trace itself is bad, or what was named is none, as opposed to the medium it is on.
    pub fn is_bad_input(&self) -> bool {
        match self {
            TraceError::Read { source, .. } => crate::regular::is_misnamed(source),
            TraceError::Write { .. } => false,
            _ => true,
        }
    }
}

/// A value that a field may not have.
#[derive(Debug, PartialEq)]
pub(crate) struct Bad {
    pub field: &'static str,
    pub why: String,
}

impl Bad {
    #[cold]
    pub fn new(field: &'static str, why: impl Into<String>) -> Bad {
        Bad { field, why: why.into() }
    }

    pub fn at(self, offset: u64) -> TraceError {
        TraceError::Field { offset, field: self.field, why: self.why }
    }

    pub fn in_record(self, offset: u64, number: u64) -> TraceError {
        TraceError::Record { offset, number, field: self.field, why: self.why }
    }
}

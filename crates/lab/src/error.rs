//! What can go wrong, where, and what to do about it.

use std::io;
use std::path::PathBuf;

use clew_core::PageId;
use clew_store::{SegmentError, StoreError, TableError};
use clew_trace::TraceError;

/// Bytes of a table of costs, a device model, a scheme or a sweep, at most.
const MAX_TEXT: u64 = 1 << 20;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The trace is bad, or cannot be read.
    #[error("{path}: {source}")]
    Trace {
        /// The trace.
        path: PathBuf,
        /// What is wrong.
        source: TraceError,
    },
    /// A page came back with other bytes than it had when it left. A defect of Clew.
    #[error(
        "record {record}: page {:#x} of space {} came back with wrong bytes (contents {content}): \
         a defect of Clew",
        page.vpn().0, page.space().0
    )]
    WrongBytes {
        /// The page.
        page: PageId,
        /// The number of the record that was played.
        record: u64,
        /// What it should have held.
        content: String,
    },
    /// The mechanism reports what cannot be. A defect of Clew.
    #[error("record {record}: page {:#x} of space {}: {what}: a defect of Clew",
        page.vpn().0, page.space().0)]
    Defect {
        /// The page.
        page: PageId,
        /// The number of the record that was played.
        record: u64,
        /// What happened.
        what: String,
    },
    /// Something happened in a simulation that must not. A defect of Clew.
    #[error("after {at_s:.3} simulated seconds: {what}: a defect of Clew")]
    Simulation {
        /// When.
        at_s: f64,
        /// What happened.
        what: String,
    },
    /// The trace has something that no program does.
    #[error("record {record}, {field}: {why}")]
    Record {
        /// Its number, from 0.
        record: u64,
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Real bytes are wanted of a trace that has none.
    #[error("{path} has no contents of pages, but {has}: replay it with --policy-only")]
    NoContents {
        /// The trace.
        path: PathBuf,
        /// What it has instead.
        has: &'static str,
    },
    /// A cost is needed that the table has not.
    #[error("the cost table '{table}' has no {what}; measure one with 'clew costs'")]
    NoCost {
        /// Name of the table.
        table: String,
        /// What is missing.
        what: String,
    },
    /// A row of a sweep cannot be written.
    #[error(transparent)]
    Report(#[from] clew_report::ReportError),
    /// A table of costs, a device model, a sweep makes no sense.
    #[error("{what}: {why}")]
    Setting {
        /// Where: a file, a field.
        what: String,
        /// What is wrong, and what it may be.
        why: String,
    },
    /// A device model lacks a number.
    #[error("device '{device}' has no {field}: no source states it ({hint})")]
    NoNumber {
        /// The device.
        device: String,
        /// The number.
        field: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The scheme makes no sense.
    #[error(transparent)]
    Scheme(#[from] clew_policy::SchemeError),
    /// A trace could not be generated, or nobody wanted it any more.
    #[error(transparent)]
    Generate(#[from] clew_trace::generate::GenerateError),
    /// There is no store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The page table cannot grow.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The system gave no memory.
    #[error(transparent)]
    Memory(#[from] SegmentError),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LabError {
    /// Whether what was given makes no sense, as opposed to something that failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            LabError::File { source, .. } => clew_trace::regular::is_misnamed(source),
            LabError::Trace { source, .. } => source.is_bad_input(),
            LabError::Record { .. }
            | LabError::NoContents { .. }
            | LabError::NoCost { .. }
            | LabError::Setting { .. }
            | LabError::NoNumber { .. }
            | LabError::Scheme(_) => true,
            LabError::WrongBytes { .. }
            | LabError::Defect { .. }
            | LabError::Simulation { .. }
            | LabError::Store(_)
            | LabError::Table(_)
            | LabError::Memory(_)
            | LabError::Generate(_)
            | LabError::Report(_) => false,
        }
    }

    /// For `map_err`, of a file.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> LabError {
        let path = path.to_path_buf();
        move |source| LabError::File { path, source }
    }

    /// The text of a file that somebody wrote by hand.
    pub(crate) fn or_text(path: &std::path::Path) -> Result<String, LabError> {
        clew_trace::regular::read_text(path, MAX_TEXT, 0).map_err(LabError::file(path))
    }

    /// For `map_err`, of a trace.
    pub(crate) fn trace(path: &std::path::Path) -> impl FnOnce(TraceError) -> LabError {
        let path = path.to_path_buf();
        move |source| LabError::Trace { path, source }
    }
}

//! Traces: what apps did with their memory, in order, and what their pages held.
//!
//! A trace is a stream of [`Record`]s with the time of each, in nanoseconds since its beginning,
//! which never runs backwards. Records are of two sorts. What *happened* in the world (apps are
//! launched, pages are accessed, freed, moved, hold these contents) is true under every scheme.
//! [`Note`]s are what the recording system asked, decided and did; a replay under another scheme
//! ignores them, a comparison of live with replay reads them.
//!
//! What a page holds is told by [`Record::Contents`], which names contents by their id. Contents
//! are kept once, however many pages hold them, in blocks of 16 KiB of their own: a reader of
//! records skips them, and [`Contents`] finds any of them by its id at any time, in memory of 12
//! bytes a block of contents and 1 MiB. In the file they come before the first record that names
//! them. Instead of its bytes, contents may be only [`ContentStats`], or nothing at all: a trace
//! says in its [`Header`] which of the three it has.
//!
//! [`Writer`] writes to any [`std::io::Write`] and never seeks. [`Reader`] reads from any
//! [`std::io::Read`], in 2 MiB, and trusts nothing: whatever the bytes are, it ends with a
//! [`TraceError`] that says where, and never with a panic. [`Trace`] is a file with both.
//!
//! The bytes are described in docs/formats.md.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

pub mod ariadne;
mod block;
mod contents;
pub mod cut;
mod draft;
mod error;
pub mod export;
pub mod generate;
mod header;
mod kind;
mod known;
mod packed;
mod reader;
mod record;
pub mod regular;
pub mod statistics;
mod totals;
mod trace;
mod writer;

pub use contents::{Content, Contents};
pub use draft::{Draft, directory_of, write_whole};
pub use error::TraceError;
pub use header::{ContentsKind, Header, Provenance, Source};
pub use kind::Kind;
pub use reader::Reader;
pub use record::{ContentId, ContentStats, Note, Record, Stamped};
pub use totals::Totals;
pub use trace::Trace;
pub use writer::Writer;

/// The version of the format that is written. Those before it are read too.
pub const VERSION: u16 = 6;
